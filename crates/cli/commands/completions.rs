//! `nicstripe completions`: completion scripts for shells.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::{failure::Failure, output::stdout};

/// Print completions for a shell, to be sourced or installed
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nicstripe completions bash > ~/.local/share/bash-completion/completions/nicstripe"
)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the script for the command line `program`.
    pub(crate) fn run(self, program: &mut Command) -> Result<(), Failure> {
        stdout::bytes(script(self.shell, program).as_bytes())
    }
}

/// Returns the completion script that clap generates. For interactive shells it also completes the
/// names of trusted peers.
fn script(shell: Shell, program: &mut Command) -> String {
    let mut script = Vec::new();
    generate(shell, program, "nicstripe", &mut script);
    let script = without_hidden(&String::from_utf8_lossy(&script));
    match shell {
        Shell::Bash => {
            script.replace(
                "complete -F _nicstripe ",
                "complete -F _nicstripe_and_peers ",
            ) + BASH
        }
        Shell::Fish => script + FISH,
        Shell::Zsh => {
            let lines: Vec<String> = script.lines().map(with_peers).collect();
            let (functions, end) = lines.split_at(
                lines
                    .iter()
                    .rposition(|line| line.starts_with("if ["))
                    .unwrap_or(lines.len()),
            );
            [&functions.join("\n"), ZSH, &end.join("\n"), "\n"].concat()
        }
        _ => script,
    }
}

/// Removes the option that only scripts use. clap_complete offers hidden options as well.
fn without_hidden(script: &str) -> String {
    let is_of_it = |line: &&str| {
        let is_list = line.trim_start().starts_with("opts=");
        !is_list && (line.contains("--complete") || line.contains("-l complete "))
    };
    let kept = script.lines().filter(|line| !is_of_it(line));
    kept.flat_map(|line| [line, "\n"])
        .collect::<String>()
        .replace(" --complete ", " ")
}

/// Changes a line of the zsh script to complete peer names, or `peer:path`, if it defines an
/// argument that takes them.
fn with_peers(line: &str) -> String {
    let is_of = |names: &[&str]| {
        names.iter().any(|name| {
            line.trim_start_matches(['\'', '*', ':'])
                .starts_with(&format!("{name} -- "))
        })
    };
    let action = match () {
        () if is_of(&["peer", "host", "which"]) => "_nicstripe_peers",
        () if is_of(&["paths", "repository", "base"]) => "_nicstripe_places",
        () => return line.to_owned(),
    };
    line.replace(":_default'", &format!(":{action}'"))
}

const BASH: &str = r#"
_nicstripe_paths() {
    local cur="${COMP_WORDS[COMP_CWORD]}" before="" word name
    case "${COMP_WORDS[1]}" in
        cp|ls|verify) ;;
        serve) [[ ${COMP_WORDS[2]} == @(restic|s3) ]] || return ;;
        *) return ;;
    esac
    if [[ ${cur} == : ]]; then
        word="${COMP_WORDS[COMP_CWORD-1]}:"
    elif [[ ${cur} == *:* ]]; then
        word="${cur}"
        before="${cur%%:*}:"
    else
        word="${COMP_WORDS[COMP_CWORD-2]}:${cur}"
    fi
    while IFS= read -r name; do
        # Quoted, so that the shell runs no part of a name.
        printf -v name '%q' "${name}"
        COMPREPLY+=("${before}${name}")
    done < <(nicstripe ls --complete -- "${word}" "${COMP_WORDS[@]}" 2>/dev/null </dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} != */ ]] || compopt -o nospace 2>/dev/null
}
_nicstripe_and_peers() {
    _nicstripe "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" end="" name
    local -a names=()
    [[ ${cur} == -* || ${COMP_CWORD} -lt 2 ]] && return
    # Bash splits words at a colon, unless COMP_WORDBREAKS has none.
    if [[ ${cur} == *:* || ${COMP_WORDS[COMP_CWORD-1]} == : ]]; then
        COMPREPLY=()
        compopt +o default +o bashdefault 2>/dev/null
        _nicstripe_paths
        return
    fi
    case "${COMP_WORDS[1]}" in
        cp|ls|verify) end=":" ;;
        bench|dial|doctor|exec|forward|links|status) ;;
        serve) [[ ${COMP_WORDS[2]} == @(restic|s3) && ${COMP_CWORD} -gt 2 ]] || return; end=":" ;;
        trust) [[ ${COMP_WORDS[2]} == @(allow|remove|show) && ${COMP_CWORD} -gt 2 ]] || return ;;
        *) return ;;
    esac
    while IFS= read -r name; do
        [[ ${name} == "${cur}"* ]] && names+=("${name}${end}")
    done < <(nicstripe trust list --names 2>/dev/null)
    [[ ${#names[@]} -eq 0 ]] && return
    COMPREPLY+=("${names[@]}")
    if [[ -n ${end} ]]; then
        # With "filenames" bash writes a colon as "\:".
        compopt -o nospace 2>/dev/null
        while IFS= read -r name; do COMPREPLY+=("${name}"); done < <(compgen -f -- "${cur}")
        [[ ${#COMPREPLY[@]} -gt ${#names[@]} ]] && compopt -o filenames 2>/dev/null
    fi
    return 0
}
"#;

const FISH: &str = r#"
function __nicstripe_peers
    nicstripe trust list --names 2>/dev/null
end
function __nicstripe_is_remote
    string match -qr '^[^/]*:' -- (commandline -ct)
end
# The files here are not those of the peer. fish offers them for what follows a colon.
complete -c nicstripe -n __nicstripe_is_remote -f
# fish quotes what it inserts.
function __nicstripe_places
    set -l word (commandline -ct)
    if string match -q '*:*' -- $word
        set -l host (string split -m 1 : -- $word)[1]
        for name in (nicstripe ls --complete -- $word (commandline -opc) 2>/dev/null </dev/null)
            echo "$host:$name"
        end
    else
        __nicstripe_peers | string replace -r '$' ':'
    end
end
complete -c nicstripe -n "__fish_nicstripe_using_subcommand ls" -f -a "(__nicstripe_places)" -d 'trusted machine'
for sub in cp verify
    complete -c nicstripe -n "__fish_nicstripe_using_subcommand $sub" -a "(__nicstripe_places)" -d 'trusted machine'
end
for sub in bench dial doctor exec forward links status
    complete -c nicstripe -n "__fish_nicstripe_using_subcommand $sub" -f -a "(__nicstripe_peers)" -d 'trusted machine'
end
complete -c nicstripe -n "__fish_nicstripe_using_subcommand serve; and __fish_seen_subcommand_from restic s3" -f -a "(__nicstripe_places)" -d 'trusted machine'
complete -c nicstripe -n "__fish_nicstripe_using_subcommand trust; and __fish_seen_subcommand_from allow remove show" -f -a "(__nicstripe_peers)" -d 'trusted machine'
"#;

const ZSH: &str = r#"
_nicstripe_peers() {
    local -a names=(${(f)"$(nicstripe trust list --names 2>/dev/null)"})
    compadd -a names
}
# zsh quotes what compadd adds.
_nicstripe_places() {
    if [[ ${PREFIX} == *:* && ${PREFIX%%:*} != */* ]]; then
        # The words that _arguments passes have no options before this one.
        local -a typed=(${(z)LBUFFER})
        local -a paths=(${(f)"$(nicstripe ls --complete -- "${PREFIX}" "${typed[@]}" 2>/dev/null </dev/null)"})
        compset -P 1 '*:'
        compadd -S '' -a paths
        return
    fi
    local -a names=(${(f)"$(nicstripe trust list --names 2>/dev/null)"})
    compadd -S '' -- ${^names}:
    _files
}
"#;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};

    use super::*;
    use crate::args;

    fn script_of(shell: Shell) -> String {
        script(shell, &mut args::Args::command())
    }

    #[test]
    fn every_shell_learns_the_subcommands() {
        for shell in Shell::value_variants() {
            let script = script_of(*shell);
            assert!(
                script.contains("serve") && script.contains("bwlimit"),
                "{shell}"
            );
        }
    }

    #[test]
    fn the_option_of_the_scripts_is_not_offered() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            generate(*shell, &mut args::Args::command(), "nicstripe", &mut script);
            let script = without_hidden(&String::from_utf8_lossy(&script));
            assert!(
                !script.contains("--complete") && !script.contains("-l complete"),
                "{shell}"
            );
            assert!(
                script.contains("exclude-link") && script.contains("completions"),
                "{shell}"
            );
        }
    }

    #[test]
    fn peers_are_offered_where_one_goes() {
        let zsh = script_of(Shell::Zsh);
        assert_eq!(zsh.matches(":_nicstripe_peers'").count(), 10, "{zsh}");
        let places = 4 + usize::from(cfg!(feature = "s3"));
        assert_eq!(zsh.matches(":_nicstripe_places'").count(), places, "{zsh}");
        assert!(script_of(Shell::Bash).contains("complete -F _nicstripe_and_peers"));
    }
}

//! Options of scp, rsync and cp that `nicstripe cp` lacks or defines differently, and the options
//! to type instead.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::arguments::Cp;
use crate::{
    failure::{Fault, usage},
    text::{answers::answer_in, invocation::Invocation},
};

/// Returns the hint for a usage error of `cp`; `None` if clap's own text suffices.
pub(crate) fn hint(error: &Error, invocation: &Invocation) -> Option<String> {
    let option = option_of(error)?;
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let needless = answer_in(NEEDLESS, option);
            match needless.zip(invocation.without(option)) {
                Some((answer, command)) => Some(format!("{answer}: {command}")),
                None => needless
                    .or_else(|| answer_in(ABSENT, option))
                    .map(str::to_owned),
            }
        }
        // rsync's options of these names have no value: clap took the next word, or found none.
        ErrorKind::InvalidValue if option.starts_with("--progress") => bare_progress(invocation),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue if option.starts_with("--port") => {
            Some(format!(
                "rsync's -P is not needed: {}",
                invocation.without("-P")?
            ))
        }
        _ => None,
    }
}

fn bare_progress(invocation: &Invocation) -> Option<String> {
    let command = invocation.without("--progress")?;
    Some(format!(
        "a terminal shows progress by default, --progress=always enables it elsewhere: {command}"
    ))
}

/// Option letter that takes a value in scp. In `nicstripe cp` the letter has rsync's meaning,
/// without a value.
struct Valued {
    letter: char,
    /// Returns true if the text looks like a value of scp's option rather than a file to copy.
    is_value: fn(&str) -> bool,
    answer: &'static str,
    /// Equivalent option of `nicstripe cp` and its value, in which `VALUE` stands for the typed
    /// value.
    instead: Option<[&'static str; 2]>,
}

const VALUED: &[Valued] = &[
    Valued {
        letter: 'l',
        is_value: |text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
        answer: "-l copies symbolic links, as in rsync; to limit the rate, as scp's -l",
        instead: Some(["--bwlimit", "VALUEkbit"]),
    },
    Valued {
        letter: 'c',
        is_value: |text| {
            ["-cbc", "-ctr", "-gcm@openssh.com", "-poly1305@openssh.com"]
                .iter()
                .any(|end| text.ends_with(end))
        },
        answer: "-c compares contents, as in rsync; the cipher is fixed",
        instead: None,
    },
    Valued {
        letter: 'S',
        is_value: |text| text.rsplit('/').next() == Some("ssh"),
        answer: "-S is for sparse files, as in rsync; the ssh program is -e",
        instead: Some(["-e", "VALUE"]),
    },
    Valued {
        letter: 'X',
        is_value: |text| {
            ["nrequests=", "buffer="]
                .iter()
                .any(|begin| text.starts_with(begin))
        },
        answer: "-X preserves extended attributes, as in rsync; sftp is not used",
        instead: None,
    },
];

/// Rejects a first path that looks like the value of an scp option before it, as in `-l 8000`. It
/// would be taken as a source.
pub(super) fn check_values(cp: &Cp, invocation: &Invocation) -> Result<(), Fault> {
    let [value, _, _, ..] = &cp.paths[..] else {
        return Ok(());
    };
    let Some(text) = value.to_str() else {
        return Ok(());
    };
    let command = |valued: &Valued| {
        let words = valued.instead.into_iter().flatten();
        let instead: Vec<String> = words.map(|word| word.replace("VALUE", text)).collect();
        invocation.without_letter(valued.letter, value, &instead)
    };
    let mut suspects = VALUED.iter().filter(|valued| (valued.is_value)(text));
    let Some((valued, command)) = suspects.find_map(|valued| Some((valued, command(valued)?)))
    else {
        return Ok(());
    };
    let letter = valued.letter;
    let error = format!("-{letter} takes no value, unlike scp's: \"{text}\" would be a source");
    Err(usage(error).with_hint(format!("{}: {command}", valued.answer)))
}

/// Returns the option that a usage error is about, as clap spells it.
fn option_of(error: &Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(option) => Some(option),
        _ => None,
    }
}

/// Options of scp and rsync that are unnecessary, because `nicstripe cp` always does what they
/// request. Each line has the options, a colon and the hint.
const NEEDLESS: &str = "\
--partial --partial-dir --append --append-verify: partial files are always kept; the same command resumes
--info: a terminal shows progress by default, --progress=always enables it elsewhere
-s --protect-args --secluded-args: names are always sent literally
-W --whole-file: files are sent whole unless --delta is given";

/// Options of scp, rsync and cp that `nicstripe cp` lacks. Each line has the options, a colon and
/// the hint.
const ABSENT: &str = "\
-1 -2 -5 -7 -8 -9 --limit: to limit the rate: --bwlimit RATE; scp's -l 8192 is --bwlimit 8192kbit
--interface --bind --bind-address -I: to choose the cables: --link LOCAL, repeated for each
-3: one end of a copy must be local: run it on one of the two machines
-J -F --rsync-path: options of ssh go into its command, as in -e 'ssh -J HOST'; the program there is found in its PATH or ~/.local/bin
-i --itemize-changes: -v prints the action on each file, -n without changes; a key file (scp's -i) goes into the ssh command: -e 'ssh -i FILE'
-t --times: -p preserves mode and times; trees always preserve times
-o -g --group: --owner preserves owner and group; ssh options (scp's -o) go into its command: -e 'ssh -o OPTION'
-R --relative: -r copies directories; --files-from LIST keeps the parent directories of the listed names
-L --copy-links --dereference: -r copies symbolic links as links; without -r a link given as SRC is followed
-b --backup --suffix --backup-dir: backups are not supported: existing files are replaced, or kept with --no-replace
--remove-source-files: sources are never removed";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::cp::arguments::tests::parse, failure::CommandError as _};

    fn invocation(words: &str) -> Invocation {
        let typed = ["nicstripe", "cp"].into_iter().chain(words.split(' '));
        Invocation::of(&typed.collect::<Vec<_>>())
    }

    fn said(words: &str) -> Option<String> {
        hint(&parse(words).unwrap_err(), &invocation(words))
    }

    #[test]
    fn what_is_needless_here_is_left_out_of_the_command() {
        for (words, command) in [
            ("-avhP a nas:", "cp -avh a nas:"),
            ("-P a nas:", "cp a nas:"),
            ("-aPv a nas:", "cp -av a nas:"),
            ("a nas: -P", "cp a nas:"),
            ("-a --partial a nas:", "cp -a a nas:"),
            ("--info=progress2 a nas:", "cp a nas:"),
            ("--progress a nas:", "cp a nas:"),
            ("-aW a nas:", "cp -a a nas:"),
        ] {
            let said = said(words).unwrap_or_else(|| panic!("{words:?}"));
            assert!(
                said.ends_with(&format!(": nicstripe {command}")),
                "{words:?}: {said}"
            );
        }
    }

    #[test]
    fn a_value_of_scp_behind_a_letter_of_rsync_is_refused_and_nothing_else_is() {
        let checked = |words: &str| {
            let (cp, invocation) = (parse(words).unwrap(), invocation(words));
            let error = check_values(&cp, &invocation).err()?;
            error.hint(&invocation)
        };
        for (words, command) in [
            ("-l 8192 a nas:", "cp --bwlimit 8192kbit a nas:"),
            ("-rl 8192 a nas:", "cp -r --bwlimit 8192kbit a nas:"),
            ("-c aes128-ctr -r a nas:", "cp -r a nas:"),
            ("-S /usr/bin/ssh a nas:", "cp -e /usr/bin/ssh a nas:"),
            ("-X nrequests=64 a nas:", "cp a nas:"),
        ] {
            let hint = checked(words).unwrap_or_else(|| panic!("{words:?}"));
            assert!(
                hint.ends_with(&format!(": nicstripe {command}")),
                "{words:?}: {hint}"
            );
        }
        for words in [
            "-l 8192 nas:",
            "-l a 8192 nas:",
            "-v 8192 a nas:",
            "-c b a nas:",
            "-A 8192 a nas:",
            "--links 8192 a nas:",
        ] {
            assert_eq!(checked(words), None, "{words:?}");
        }
    }

    #[test]
    fn an_option_that_is_answered_is_none_of_ours() {
        let rows = NEEDLESS.lines().chain(ABSENT.lines());
        for option in rows.flat_map(|row| row.split(": ").next().unwrap().split(' ')) {
            assert!(said(&format!("{option} a nas:")).is_some(), "{option}");
        }
        assert_eq!(said("--no-such-option a nas:"), None);
        assert_eq!(said("--port x a nas:"), None);
    }
}

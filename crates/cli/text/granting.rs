//! Commands that give rights to a peer, as text for hints.

use nicstripe::trust::{Access, PeerOptions};

use super::invocation::{is_harmless, quoted};

/// Returns the options of a command that give these rights.
pub(crate) fn options_giving(options: &PeerOptions) -> Vec<String> {
    let PeerOptions {
        root,
        access,
        rate,
        no_bench,
        no_facts,
        special_modes,
        dial,
        listen,
        exec,
    } = options;
    let flags = [
        (*access == Access::ReadOnly, "--read-only"),
        (*access == Access::AppendOnly, "--append-only"),
        (*no_bench, "--no-bench"),
        (*no_facts, "--no-facts"),
        (*special_modes, "--special-modes"),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
    let mut words: Vec<String> = flags.map(|(_, flag)| flag.to_owned()).collect();
    let mut push = |option: &str, value: String| {
        // A value that begins with a dash would be an option.
        match value.starts_with('-') {
            true => words.push(format!("{option}={value}")),
            false => words.extend([option.to_owned(), value]),
        }
    };
    if let Some(root) = root {
        push("--root", root.to_string_lossy().into_owned());
    }
    if let Some(rate) = rate {
        push("--rate", rate.bits_per_second().to_string());
    }
    dial.iter()
        .for_each(|target| push("--dial", target.to_string()));
    listen
        .iter()
        .for_each(|target| push("--listen", target.to_string()));
    exec.iter()
        .for_each(|rule| push("--exec", rule.to_string()));
    words
}

/// Returns a command line quoted for a shell; `None` if a word has characters that a terminal does
/// not show.
pub(crate) fn command(words: &[String]) -> Option<String> {
    let words = words.iter();
    let words = words.map(|word| is_harmless(word).then(|| quoted(word)));
    words
        .collect::<Option<Vec<_>>>()
        .map(|words| words.join(" "))
}

/// Returns the command that adds rights to those of the peer with this name or fingerprint; `None`
/// if it has characters that a terminal does not show.
pub(crate) fn allow_command(which: &str, options: &PeerOptions) -> Option<String> {
    let verb = ["nicstripe", "trust", "allow", which].map(str::to_owned);
    command(&[&verb[..], &options_giving(options)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> PeerOptions {
        text.parse().unwrap()
    }

    #[test]
    fn the_command_gives_a_shell_the_words_of_the_rights() {
        let command = |text: &str| {
            let command = allow_command("nas", &options(text))?;
            let words = command.split_once(" trust ");
            words.map(|(_, words)| words.to_owned())
        };
        assert_eq!(
            command("append-only,root=\"/srv/my data\",exec=\"sh -c 'echo $HOME'\"").as_deref(),
            Some(
                r"allow nas --append-only --root '/srv/my data' --exec 'sh -c '\''echo $HOME'\'''"
            )
        );
        assert_eq!(
            command("exec=\"-x *\"").as_deref(),
            Some("allow nas '--exec=-x *'")
        );
        // A tab, which a terminal shows as blanks.
        assert_eq!(command("exec=\"a '\t'\""), None);
    }
}

//! Options of scp, rsync and cp that `nicstripe cp` does not have, or has with another meaning: what to type here.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::invocation::Invocation;

/// Options of other programs with one answer.
struct Habit {
    options: &'static [&'static str],
    answer: &'static str,
    /// The command without the option does what was wanted.
    is_needless: bool,
}

/// Returns the hint for a usage error of `cp`; `None` where clap's own text is all there is to say.
pub(crate) fn hint(error: &Error, invocation: &Invocation) -> Option<String> {
    let option = option_of(error)?;
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let habit = HABITS.iter().find(|habit| habit.options.contains(&option))?;
            let needless = invocation.without(option).filter(|_| habit.is_needless);
            Some(needless.map_or_else(|| habit.answer.to_owned(), |command| format!("{}: {command}", habit.answer)))
        }
        // rsync's options of these names have no value: clap has taken the next word, or has found none.
        ErrorKind::InvalidValue if option.starts_with("--progress") => bare_progress(invocation),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue if option.starts_with("--port") => {
            Some(format!("without rsync's -P, which nothing here needs: {}", invocation.without("-P")?))
        }
        _ => None,
    }
}

fn bare_progress(invocation: &Invocation) -> Option<String> {
    let command = invocation.without("--progress")?;
    Some(format!("a terminal shows progress unasked, --progress=always elsewhere, too: {command}"))
}

/// Returns the option that an error is about, as clap names it.
fn option_of(error: &Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(option) => Some(option),
        _ => None,
    }
}

const HABITS: &[Habit] = &[
    Habit {
        options: &["--partial", "--partial-dir", "--append", "--append-verify"],
        answer: "parts of an interrupted copy are always kept, and the same command goes on from there",
        is_needless: true,
    },
    Habit { options: &["--info"], answer: "a terminal shows progress unasked, --progress=always elsewhere, too", is_needless: true },
    Habit { options: &["-s", "--protect-args", "--secluded-args"], answer: "names are always sent as they are", is_needless: true },
    Habit { options: &["-W", "--whole-file"], answer: "files are sent whole unless --delta is given", is_needless: true },
    Habit {
        options: &["-e", "--rsh", "--rsync-path", "-J"],
        answer: "no ssh takes part: the other machine runs `nicstripe serve`, and `nicstripe trust list` says who is trusted",
        is_needless: false,
    },
    Habit {
        options: &["-i", "--itemize-changes"],
        answer: "-v prints what is done with each file, -n what would be; a key file (scp's -i) is not needed: see `nicstripe key`",
        is_needless: false,
    },
    Habit { options: &["-t", "--times"], answer: "-p keeps mode and times; trees keep times without it", is_needless: false },
    Habit {
        options: &["-o", "-g", "--group"],
        answer: "--owner keeps owner and group; ssh's options (scp's -o) have no use here",
        is_needless: false,
    },
    Habit {
        options: &["-R", "--relative"],
        answer: "-r copies directories; --files-from LIST keeps the parent directories of names in a list",
        is_needless: false,
    },
    Habit {
        options: &["-L", "--copy-links", "--dereference"],
        answer: "-r copies symbolic links as links; one that is typed as SRC without -r is followed",
        is_needless: false,
    },
    Habit {
        options: &["-b", "--backup", "--suffix", "--backup-dir"],
        answer: "no backups are made: a file that exists is left, or replaced with -f or -u",
        is_needless: false,
    },
    Habit { options: &["--remove-source-files"], answer: "sources are never removed", is_needless: false },
];

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;

    fn said(words: &[&str]) -> Option<String> {
        let words = [&["nicstripe", "cp"], words].concat();
        hint(&Args::try_parse_from(&words).unwrap_err(), &Invocation::of(&words))
    }

    #[test]
    fn what_is_needless_here_is_left_out_of_the_command() {
        for (words, command) in [
            (&["-avhP", "a", "nas:"][..], "cp -avh a nas:"),
            (&["-P", "a", "nas:"], "cp a nas:"),
            (&["-aPv", "a", "nas:"], "cp -av a nas:"),
            (&["a", "nas:", "-P"], "cp a nas:"),
            (&["-a", "--partial", "a", "nas:"], "cp -a a nas:"),
            (&["--info=progress2", "a", "nas:"], "cp a nas:"),
            (&["--progress", "a", "nas:"], "cp a nas:"),
            (&["-aW", "a", "nas:"], "cp -a a nas:"),
        ] {
            let said = said(words).unwrap_or_else(|| panic!("{words:?}"));
            assert!(said.ends_with(&format!(": nicstripe {command}")), "{words:?}: {said}");
        }
    }

    #[test]
    fn an_option_that_is_answered_is_none_of_ours() {
        for option in HABITS.iter().flat_map(|habit| habit.options) {
            assert!(said(&[option, "a", "nas:"]).is_some(), "{option}");
        }
        assert_eq!(said(&["--no-such-option", "a", "nas:"]), None);
        assert_eq!(said(&["--port", "x", "a", "nas:"]), None);
    }
}

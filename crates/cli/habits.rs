//! Commands and options of other programs that nicstripe lacks, and what to type instead.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::{
    commands::cp,
    text::{answers::answer_in, invocation::Invocation},
};

/// Returns the hint for a usage error; `None` if clap's own text suffices.
pub(crate) fn hint(error: &Error, invocation: &Invocation) -> Option<String> {
    if invocation.is_of("cp") {
        return cp::habit_hint(error, invocation);
    }
    answer_to(error, invocation).map(str::to_owned)
}

/// Returns the answer to a command or option of another program, except those of `cp`.
fn answer_to(error: &Error, invocation: &Invocation) -> Option<&'static str> {
    let word = |kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        // clap takes the second directory for a subcommand.
        ErrorKind::ArgumentConflict if word(ContextKind::PriorArg) == Some("[DIR]") => {
            Some(ONE_DIRECTORY)
        }
        ErrorKind::InvalidSubcommand => {
            let typed = word(ContextKind::InvalidSubcommand)?;
            answer_in(COMMANDS, typed).filter(|_| invocation.is_of(typed))
        }
        ErrorKind::MissingRequiredArgument if invocation.is_of("ls") => Some(NO_MACHINE),
        ErrorKind::UnknownArgument => {
            let typed = word(ContextKind::InvalidArg)?;
            OPTIONS
                .iter()
                .filter(|(command, _)| invocation.is_of(command))
                .find_map(|(_, table)| answer_in(table, typed))
        }
        _ => None,
    }
}

/// Commands of other programs. Each line has the commands, a colon and the hint.
const COMMANDS: &str = "\
push put upload copy: to send: nicstripe cp FILE HOST:
get pull download fetch: to receive: nicstripe cp HOST:FILE .
sync mirror: to make HOST:DIR like SRC: nicstripe cp -a --delete SRC/ HOST:DIR
list dir: to list what a machine has: nicstripe ls HOST:
mkdir: directories are made by the copy: nicstripe cp --mkpath FILE HOST:DIR/
daemon server start listen: to start the daemon: nicstripe serve DIR
version: nicstripe --version
ping: nicstripe links HOST
iperf iperf3 test speedtest: to measure the cables: nicstripe bench HOST
ssh proxy connect: nicstripe dial PEER HOST:PORT";

/// Options of other programs, by command, in the form of [`COMMANDS`].
const OPTIONS: &[(&str, &str)] = &[
    (
        "bench",
        "\
-c --client: the machine is an argument: nicstripe bench HOST
-s --server: the other end is the daemon: nicstripe serve
-i --interval: bench shows its progress by itself, --json-stream prints each sample
-u --udp: bench measures what copies use, TCP",
    ),
    (
        "serve",
        "-d --daemon -D: for a service of systemd see `nicstripe man serve`; by hand: nicstripe serve &",
    ),
];

const NO_MACHINE: &str = "name a machine: nicstripe ls HOST: lists what it serves; machines on the cables: nicstripe discover";

const ONE_DIRECTORY: &str =
    "a daemon serves one directory; give peers their own with root=DIR in the list of peers";

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, tests::check};

    fn said(words: &[&str]) -> Option<String> {
        let words = [&["nicstripe"], words].concat();
        hint(
            &Args::try_parse_from(&words).unwrap_err(),
            &Invocation::of(&words),
        )
    }

    #[test]
    fn commands_and_options_of_other_programs_are_answered() {
        for row in COMMANDS.lines() {
            let (words, answer) = row.split_once(": ").unwrap();
            for word in words.split(' ') {
                assert_eq!(said(&[word, "x"]).as_deref(), Some(answer), "{word}");
            }
            if let Some((_, command)) = answer.split_once("nicstripe ") {
                let command = command.split([';', ',']).next().unwrap();
                let words: Vec<&str> = command.split(' ').collect();
                assert!(words[0] == "--version" || check(&words, row), "{row}");
            }
        }
        for (words, part) in [
            (&["bench", "-c", "nas"][..], "nicstripe bench HOST"),
            (&["bench", "-s"], "nicstripe serve"),
            (&["serve", "a", "b"], "one directory"),
            (&["ls", "-l"], "nicstripe ls HOST:"),
            (&["cp", "--interface", "eth1", "a", "nas:"], "--link"),
        ] {
            let said = said(words).unwrap_or_else(|| panic!("{words:?}"));
            assert!(said.contains(part), "{words:?}: {said}");
        }
        assert_eq!(said(&["frobnicate"]), None);
    }
}

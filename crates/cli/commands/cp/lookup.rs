//! Command that lists remote names, for the hint after a missing source.

use clap::Parser;

use super::arguments::Cp;
use crate::{
    connect::location::{Location, parent},
    failure::Failure,
    text::invocation::Invocation,
};

/// Returns one line of advice on a failure of the command `invocation`. For a missing remote source
/// it is the command that lists the existing ones.
pub(crate) fn hint(failure: &Failure, invocation: &Invocation) -> Option<String> {
    let is_missing = match failure {
        Failure::Library(error) => error.is_not_found(),
        _ => false,
    };
    let listed = is_missing.then(|| list_existing(invocation)).flatten();
    listed.or_else(|| failure.hint(invocation))
}

/// Returns the hint for a missing source, with the command of [`listing`]; `None` if there is no
/// such command.
pub(super) fn list_existing(invocation: &Invocation) -> Option<String> {
    Some(format!("list existing files: {}", listing(invocation)?))
}

/// Returns the `cp -n` command that lists the directory of a missing remote source. `None` unless
/// this `cp` has exactly one source, which is remote, and no `--files-from`.
fn listing(invocation: &Invocation) -> Option<String> {
    let words = invocation
        .words
        .get(1..)
        .filter(|_| invocation.is_of("cp"))?;
    let CommandLine { cp } = CommandLine::try_parse_from(words).ok()?;
    let [source] = cp.sources() else { return None };
    if cp.tree.files_from.is_some() || !matches!(Location::parse(source), Ok(Location::Remote(_))) {
        return None;
    }
    let flag = if cp.tree.is_recursive() { "-n" } else { "-rn" };
    Some(invocation.listing(flag, source, parent(source)))
}

/// Parser of the arguments of `cp` alone.
#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    cp: Cp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_at_the_daemon_is_looked_for_in_its_directory() {
        for (words, command) in [
            (&["nas:d/missing", "."][..], Some("cp -rn nas:d/ .")),
            (&["-r", "nas:d/missing/", "here"], Some("cp -n -r nas:d/ .")),
            (
                &["-P", "99", "nas:missing", "."],
                Some("cp -rn -P 99 nas: ."),
            ),
            (
                &["nicstripe://nas:99/missing", "-"],
                Some("cp -rn nicstripe://nas:99/ ."),
            ),
            (
                &["[fe80::1%eth1]:missing", "."],
                Some("cp -rn '[fe80::1%eth1]:' ."),
            ),
            (&["missing", "nas:"], None),
            (&["nas:a", "nas:b", "."], None),
        ] {
            let words = [&["nicstripe", "cp"], words].concat();
            let command = command.map(|command| format!("nicstripe {command}"));
            assert_eq!(listing(&Invocation::of(&words)), command, "{words:?}");
        }
    }
}

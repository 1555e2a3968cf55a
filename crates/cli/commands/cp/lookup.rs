//! Command that lists remote names, for the hint after a missing source.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use clap::Parser as _;

use super::location::Location;
use crate::{
    args::{Args, Command},
    text::invocation::Invocation,
};

/// Returns the `cp -n` command that lists the directory of a missing remote source. `None` unless
/// this `cp` has exactly one source, which is remote, and no `--files-from`.
pub(crate) fn listing(invocation: &Invocation) -> Option<String> {
    let Command::Cp(cp) = Args::try_parse_from(invocation.words()).ok()?.command else {
        return None;
    };
    let [source] = cp.sources() else { return None };
    if cp.tree.files_from.is_some() || !matches!(Location::parse(source), Ok(Location::Remote(_))) {
        return None;
    }
    let flag = if cp.tree.is_recursive() { "-n" } else { "-rn" };
    Some(invocation.listing(flag, source, parent(source)))
}

/// Returns the parent directory of a typed source, with a trailing slash, or `host:` for the root.
fn parent(source: &OsStr) -> &OsStr {
    let bytes = source.as_bytes();
    let name = bytes.strip_suffix(b"/").unwrap_or(bytes);
    let end = name
        .iter()
        .rposition(|byte| matches!(byte, b'/' | b':'))
        .map_or(0, |at| at + 1);
    OsStr::from_bytes(&bytes[..end])
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

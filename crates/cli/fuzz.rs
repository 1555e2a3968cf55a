//! Fuzz targets of the command: typed arguments and list files, and snapshots of doctor.
//!
//! `fuzz/fuzz_targets` calls these functions, and unit tests call them with every file of
//! `fuzz/corpus`.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use nicstripe_doctor::{Diagnosis, Snapshot, examine};

use crate::{
    commands::cp::lists::names_in,
    connect::location::Location,
    text::quantity::{Size, Speed, parse_rate, parse_size, parse_time},
};

/// Parses a source or target, a list of names, or a size, rate or time. The first byte of `data`
/// selects the parser.
pub fn arguments(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 | 1 => location(OsStr::from_bytes(bytes)),
        2 => names(bytes),
        _ => quantities(&String::from_utf8_lossy(bytes)),
    }
}

/// Asserts that parsing a printed remote location gives the same location.
///
/// Exceptions are escaped characters and locations that only a URL can express: those with a port,
/// or with colons that look like an IPv6 address without brackets.
fn location(argument: &OsStr) {
    let read = match Location::parse(argument) {
        Ok(read) => read,
        Err(error) => return drop(error.to_string()),
    };
    match &read {
        Location::Local(path) => assert_eq!(path.as_os_str(), argument),
        Location::Pipe => assert_eq!(argument, "-"),
        Location::Remote(remote) => {
            assert!(!remote.place.host.is_empty() && remote.place.port != Some(0));
            let shown = remote.to_string();
            let has_colon = remote.place.host.contains(':');
            let typed = if has_colon {
                shown.replacen(&*remote.place.host, &format!("[{}]", remote.place.host), 1)
            } else {
                shown.clone()
            };
            if !typed.contains('\\') && !shown.contains("::") && remote.place.port.is_none() {
                // A URL says how the host is reached, which is not printed.
                let Ok(Location::Remote(again)) = Location::parse(OsStr::new(&typed)) else {
                    panic!("{typed}: not read as remote");
                };
                assert_eq!(
                    (&again.place.host, &again.path),
                    (&remote.place.host, &remote.path),
                    "{typed}"
                );
            }
        }
    }
}

fn names(bytes: &[u8]) {
    let Some((from0, list)) = bytes.split_first() else {
        return;
    };
    let from0 = from0 & 1 == 1;
    match names_in(list, "list".as_ref(), from0) {
        Ok(listed) => assert!(listed.names.len() <= list.len()),
        Err(error) => drop(error.to_string()),
    }
}

fn quantities(text: &str) {
    if let Ok(size) = parse_size(text) {
        let _ = Size(size).to_string();
    }
    if let Ok(rate) = parse_rate(text) {
        let _ = Speed(rate).to_string();
    }
    let _ = parse_time(text);
}

/// Judges a snapshot, makes one of it again, and judges that.
///
/// Asserts that each command is a line of words for a shell, and that replacing names changes the
/// number of findings of no rule about a setting.
pub fn snapshots(data: &[u8]) {
    let Ok(snapshot) = Snapshot::parse(&String::from_utf8_lossy(data)) else {
        return;
    };
    let case = snapshot.into_case(None);
    let diagnosis = examine(&case, &[]);
    for finding in diagnosis.findings.iter().chain(&diagnosis.silenced) {
        let remedy = finding.remedy.iter();
        for command in remedy.flat_map(|remedy| remedy.commands.iter().chain(&remedy.undo)) {
            assert!(
                shell_words::split(command.line.as_str()).is_ok(),
                "{command:?}"
            );
        }
    }
    let again = examine(&Snapshot::of(&case).into_case(None), &[]);
    let settings = |diagnosis: &Diagnosis| {
        let all = diagnosis.findings.iter().chain(&diagnosis.silenced);
        all.filter(|finding| [33, 34, 42].contains(&finding.rule))
            .count()
    };
    assert_eq!(settings(&diagnosis), settings(&again));
}

#[cfg(test)]
mod tests {
    use nicstripe_testkit::replay;

    use super::*;

    #[test]
    fn the_targets_accept_every_file_of_their_corpora() {
        replay(&[("arguments", arguments), ("snapshots", snapshots)]);
    }
}

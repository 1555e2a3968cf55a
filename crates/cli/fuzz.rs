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
    fn arguments_corpus() {
        let with = |kind: u8, text: &[u8]| [&[kind], text].concat();
        let seeds = vec![
            ("remote", with(0, b"nas:a/b:c")),
            ("remote-root", with(0, b"nas:")),
            ("remote-directory", with(0, b"10.77.1.2:/a//b/")),
            ("remote-of-bytes", with(0, b"nas:a\xff\nb")),
            ("ipv6", with(0, b"[fe80::1%eth1]:a")),
            ("ipv6-without-brackets", with(0, b"fd00:1::2:a")),
            ("ipv6-open", with(0, b"[fe80::1:a")),
            ("url", with(0, b"nicstripe://[fe80::1%25eth1]:99/a%20b/")),
            ("url-of-nobody", with(0, b"nicstripe://:0/%2e%2e/a")),
            ("url-half-an-escape", with(0, b"nicstripe://nas/a%2")),
            ("ssh", with(0, b"ssh://u@nas:22/a")),
            ("user", with(0, b"u@nas:a")),
            ("up", with(0, b"nas:a/../b")),
            ("colons", with(0, b"::::")),
            ("local", with(0, b"./a:b")),
            ("pipe", with(0, b"-")),
            ("names", with(2, b"\0a/b\nc d\r\n\n./x\n.\n\xff")),
            ("names-nul", with(2, b"\x01a\nb\0c\0")),
            ("names-up", with(2, b"\0a\n../b\n")),
            ("size", with(3, b"1.5GiB")),
            ("size-too-large", with(3, b"99999999999999999999T")),
            ("rate", with(3, b"100 Mbit/s")),
            ("time", with(3, b"99999999999999999999h")),
            ("points", with(3, b"1.2.3")),
        ];
        replay("arguments", arguments, seeds);
    }

    #[test]
    fn snapshots_corpus() {
        let machine = r#"{"schema":"nicstripe-snapshot/1","machines":[{"host":{"name":"a'b\u001b"},
            "settings":{"net.ipv4.tcp_sack":"0","net.netfilter.nf_conntrack_count":"9","net.netfilter.nf_conntrack_max":"9"},
            "interfaces":[{"name":"e;h'","kind":"ethernet","speed_mbps":10,"duplex":"half","mtu":9014,"offloads":[],
            "modes":{"autoneg":false,"supported":["1000baseT/Full"]},"qdisc":{"kind":"tbf","limit_bps":1},
            "bus":[{"kind":"usb","address":"1-1","usb_mbps":12},{"kind":"pci","address":"0000:03:00.0","lanes":1,"lane_mts":2500}],
            "addresses":[{"ip":"10.0.0.1","prefix_len":8},{"ip":"fe80::1","prefix_len":64}]}]},{}],
            "links":[{"here":"e;h'","there":"x","local":"10.0.0.1","remote":"10.0.0.2","state":"misdirected","arrived":"y"}]}"#;
        let odd = r#"{"schema":"nicstripe-snapshot/1","machines":[{"interfaces":[{"name":"","statistics":{"rx_packets":18446744073709551615},
            "speed_mbps":4294967295,"addresses":[{"ip":"::1","prefix_len":255},{"ip":"1.1.1.1","prefix_len":99}]}]}]}"#;
        assert!(Snapshot::parse(machine).is_ok() && Snapshot::parse(odd).is_ok());
        let seeds = vec![
            ("machine", machine.as_bytes().to_vec()),
            ("odd-numbers", odd.as_bytes().to_vec()),
            ("other-schema", br#"{"schema":"x","machines":[]}"#.to_vec()),
        ];
        replay("snapshots", snapshots, seeds);
    }
}

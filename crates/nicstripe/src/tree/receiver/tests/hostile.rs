//! Tests of a hostile sender: its names and record sequences change nothing outside the target.

use std::{fs, os::unix::fs::symlink as link_to, path::Path};

use nicstripe_proto::{
    FailCode,
    tree::{
        Content, ENTRY_FOOTPRINT, Entry, EntryId, Node, NodeKind, Owner, PACKED_MOST, Record,
        Special, TreeRules, Verdict, Xattr,
    },
};

use super::abandoned;
use super::harness::{RawContent, RawName, RootDir, Sending, file, name, symlink};
use crate::tree::receiver::ReceiverRequest;
use crate::tree::{allowance::Receiving, channel::ReceiverInput};

/// Returns tree rules under which the receiver replaces and deletes as much as possible.
fn eager() -> TreeRules {
    TreeRules {
        replace: true,
        modes: true,
        owners: true,
        xattrs: true,
        delete: true,
        ..TreeRules::default()
    }
}

/// Simulates a root directory in which another user has created symbolic links that lead out of it.
fn trapped() -> RootDir {
    let ground = RootDir::quick();
    fs::create_dir(ground.at("real")).unwrap();
    fs::write(ground.at("real/file"), "inside").unwrap();
    link_to("real", ground.at("within")).unwrap();
    link_to("../outside/dir", ground.at("out")).unwrap();
    link_to(ground.outside().join("dir"), ground.at("absolute")).unwrap();
    link_to("../../outside/dir", ground.at("real/out")).unwrap();
    link_to("../outside/file", ground.at("outfile")).unwrap();
    link_to("../outside/new", ground.at("dangling")).unwrap();
    link_to("/proc/self/cwd", ground.at("magic")).unwrap();
    ground
}

/// Returns name components that are forbidden or unusual.
fn components() -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = [
        "",
        ".",
        "..",
        "/",
        "//",
        "/etc",
        "../",
        "../x",
        "x/..",
        "a/b",
        "./x",
        "..\0",
        "\0",
        "a\0b",
        "/etc/passwd",
        "out/secret",
        "out/new",
        "real/out/secret",
        "../outside/file",
        "../../outside/file",
        "...",
        ".. ",
        " ..",
        "..\n",
        "-rf",
        "~",
        "~root",
        "$HOME",
        "*",
        "?",
        "\\",
        "..\\x",
        "C:",
        "C:\\x",
        "con",
        "nul",
        "aux.txt",
        "a:b",
        "\u{202e}gpj.exe",
        "\u{1b}[2J",
        "\n",
        "\r\nfoo",
        "\u{7f}",
        "\u{feff}",
        "é",
        "e\u{301}",
        ".bashrc",
        ".ssh",
        "out",
        "absolute",
        "outfile",
        "dangling",
        "magic",
        "real",
        "root",
        "outside",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    found.extend([254, 255, 256, 257, 1000, 4095, 4096, 10_000].map(|len| vec![b'x'; len]));
    found.extend(
        [
            &b"\xff\xfe"[..],
            b"\x80",
            b"\xc0\xae\xc0\xae",
            b"%2e%2e",
            b"..%2f",
            b"\xe2\x80\xa5",
        ]
        .map(<[u8]>::to_vec),
    );
    for kind in ["part", "journal"] {
        found.extend(
            [".x.01234567", ".", ".x", "..", ".a.b.c"]
                .map(|stem| format!("{stem}.nicstripe-{kind}").into_bytes()),
        );
    }
    found.push(crate::file::hidden_name("real".as_ref(), &[7; 32], "part").into_encoded_bytes());
    found
}

fn contents() -> Vec<RawContent> {
    let path = |components: &[&str]| {
        RawName(
            components
                .iter()
                .map(|component| component.as_bytes().to_vec())
                .collect(),
        )
    };
    vec![
        RawContent::File {
            size: 3,
            alone: false,
        },
        RawContent::Directory,
        RawContent::Symlink {
            target: b"../outside/dir".to_vec(),
        },
        RawContent::HardLink {
            to: 0,
            path: path(&["..", "outside", "file"]),
        },
        RawContent::HardLink {
            to: 0,
            path: path(&["out", "secret"]),
        },
    ]
}

/// Sends an entry named `component`, followed by entries that could exploit it.
fn attack(sending: &mut Sending, component: &[u8], content: &RawContent) {
    sending.entry(None, "first", file(0));
    sending.raw(1, None, &[component], content);
    sending.flush();
    sending.raw(
        2,
        Some(1),
        &[b"secret"],
        &RawContent::File {
            size: 3,
            alone: false,
        },
    );
    sending.raw(
        3,
        None,
        &[component, b"secret"],
        &RawContent::File {
            size: 3,
            alone: false,
        },
    );
    sending.flush();
}

#[test]
fn no_name_leads_out() {
    let mut count = 0;
    for component in components() {
        for content in contents() {
            count += 1;
            let ground = trapped();
            let before = ground.snapshot();
            for ends in [false, true] {
                let mut sending = ground.start(eager());
                attack(&mut sending, &component, &content);
                if ends {
                    sending.piece(EntryId(1), 0, true, b"bad");
                    sending.end(EntryId(1));
                }
                let _ = sending.wait();
                assert_eq!(
                    ground.snapshot(),
                    before,
                    "{:?}",
                    String::from_utf8_lossy(&component)
                );
                assert_eq!(
                    fs::read_to_string(ground.at("real/file")).ok().as_deref(),
                    Some("inside")
                );
            }
        }
    }
    assert!(count >= 300, "only {count} names");
}

#[test]
fn no_directory_is_entered_through_a_symbolic_link() {
    for own in ["out", "absolute", "magic", "outfile", "dangling"] {
        // The link existed before, or the sender itself has created it.
        for is_sent in [false, true] {
            let ground = trapped();
            let before = ground.snapshot();
            let mut sending = ground.start(eager());
            if is_sent {
                sending.entry(None, "sent", symlink("../outside/dir"));
            }
            let own = if is_sent { "sent" } else { own };
            let directory = sending.directory(None, own);
            let secret = sending.entry(Some(directory), "secret", file(3));
            let sub = sending.directory(Some(directory), "sub");
            let through = Content::HardLink {
                to: EntryId(0),
                path: name(&format!("{own}/secret")),
            };
            sending.entry(None, "stolen", through);
            sending.end(sub);
            sending.end(directory);
            sending.decide();
            assert_eq!(sending.verdict(directory), Verdict::Exists);
            assert_eq!(sending.verdict(secret), Verdict::Blocked);
            let _ = sending.wait();
            assert_eq!(ground.snapshot(), before, "{own}");
            assert!(!ground.at("stolen").exists());
        }
    }
}

#[test]
fn a_directory_that_becomes_a_link_is_not_written_through() {
    let ground = RootDir::quick();
    let before = ground.snapshot();
    let mut sending = ground.start(eager());
    let directory = sending.directory(None, "d");
    let sub = sending.directory(Some(directory), "dir");
    let [early, late] = ["early", "secret"].map(|own| sending.entry(Some(sub), own, file(3)));
    sending.decide();
    // More directories than are kept open: `d/dir` must be reopened.
    let others: Vec<EntryId> = (0..200)
        .map(|index| sending.directory(None, &format!("other{index}")))
        .collect();
    sending.decide();
    others.into_iter().for_each(|id| sending.end(id));
    fs::rename(ground.at("d"), ground.at("moved")).unwrap();
    link_to(ground.outside(), ground.at("d")).unwrap();
    sending.content(early, b"bad");
    sending.content(late, b"bad");
    sending.end(sub);
    sending.end(directory);
    let report = sending.report();
    assert!(report.failed >= 2, "{report:?}");
    assert_eq!(ground.snapshot(), before);
}

#[test]
fn a_link_to_a_file_that_is_reached_by_a_link_is_refused() {
    let ground = trapped();
    for path in [
        "within/file",
        "out/secret",
        "real/out/secret",
        "outfile",
        "magic/Cargo.toml",
        "real",
        "missing",
    ] {
        let before = ground.snapshot();
        let mut sending = ground.start(TreeRules::default());
        let first = sending.entry(None, "first", file(0));
        sending.content(first, b"");
        sending.decide();
        let link = sending.entry(
            None,
            "stolen",
            Content::HardLink {
                to: first,
                path: name(path),
            },
        );
        let _ = sending.wait();
        assert!(!sending.done.contains(&link.0), "{path}");
        assert!(!ground.at("stolen").exists());
        assert_eq!(ground.snapshot(), before);
    }
}

/// Returns true if a file of the target has further names.
fn is_shared(path: &Path) -> bool {
    std::os::unix::fs::MetadataExt::nlink(&fs::metadata(path).unwrap()) > 1
}

#[test]
fn a_hard_link_refers_only_to_the_file_that_was_placed_for_its_entry() {
    let ground = RootDir::quick();
    fs::create_dir(ground.at(".ssh")).unwrap();
    fs::write(ground.at(".ssh/id"), "key").unwrap();
    fs::write(ground.at("newer"), "local").unwrap();
    let mut sending = ground.start(TreeRules {
        update: true,
        ..TreeRules::default()
    });
    let small = sending.entry(None, "small", file(1));
    let newer = sending.entry(None, "newer", file(1));
    let ssh = sending.directory(None, ".ssh");
    let unlinked = Entry {
        linked: false,
        ..sending.plain(None, "unlinked", file(1))
    };
    let unlinked = sending.tell(unlinked);
    sending.decide();
    sending.content(small, b"s");
    sending.content(unlinked, b"u");
    sending.wait_done(small);
    sending.wait_done(unlinked);
    let link = |to, path| Content::HardLink {
        to,
        path: name(path),
    };
    let stolen = [
        (small, ".ssh/id"),
        (small, "newer"),
        (small, "unlinked"),
        (unlinked, "unlinked"),
        (newer, "newer"),
        (ssh, ".ssh/id"),
        (ssh, "small"),
    ]
    .into_iter()
    .enumerate()
    .map(|(index, (to, path))| sending.entry(None, &format!("stolen{index}"), link(to, path)))
    .collect::<Vec<_>>();
    let right = sending.entry(None, "right", link(small, "small"));
    sending.end(ssh);
    let report = sending.report();
    assert_eq!((report.hard_links, report.failed), (1, stolen.len() as u64));
    assert!(sending.done.contains(&right.0) && is_shared(&ground.at("small")));
    for (index, id) in stolen.into_iter().enumerate() {
        assert!(!sending.done.contains(&id.0), "{index}");
        assert!(!ground.at(&format!("stolen{index}")).exists(), "{index}");
    }
    let others = [".ssh/id", "newer", "unlinked"];
    assert_eq!(others.map(|path| is_shared(&ground.at(path))), [false; 3]);
}

#[test]
fn a_hard_link_that_was_not_requested_ends_the_tree() {
    let ground = RootDir::quick();
    let mut request = ground.request(TreeRules::default());
    request.rules.hard_links = false;
    let mut sending = Sending::start(request);
    let first = sending.entry(None, "first", file(0));
    sending.content(first, b"");
    let second = Content::HardLink {
        to: first,
        path: name("first"),
    };
    sending.entry(None, "second", second);
    let error = sending.wait().as_ref().unwrap_err();
    assert_eq!(error.code, FailCode::Protocol);
    assert!(!ground.at("second").exists());
}

/// Protocol violation: a function that sends records to a receiver that has a directory `d`. The
/// directory contains an empty file `e` and a file `f` of 6 bytes.
type Breach = fn(&mut Sending);

const D: EntryId = EntryId(0);
const E: EntryId = EntryId(1);
const F: EntryId = EntryId(2);

const BREACHES: &[(&str, Breach)] = &[
    ("a number is skipped", |s| {
        let entry = Entry {
            id: EntryId(4),
            ..s.plain(None, "x", file(1))
        };
        s.tell(entry);
    }),
    ("a number comes twice", |s| {
        let entry = Entry {
            id: F,
            ..s.plain(None, "x", file(1))
        };
        s.tell(entry);
    }),
    ("an entry is in one that does not exist", |s| {
        told(s.entry(Some(EntryId(99)), "x", file(1)));
    }),
    ("an entry is in itself", |s| {
        told(s.directory(Some(EntryId(3)), "x"));
    }),
    ("an entry is in a file", |s| {
        told(s.entry(Some(F), "x", file(1)));
    }),
    ("an entry is in a directory that has ended", |s| {
        s.end(D);
        s.entry(Some(D), "x", file(1));
    }),
    ("an entry is in a symbolic link", |s| {
        let link = s.entry(None, "l", symlink("../outside"));
        s.entry(Some(link), "file", file(1));
    }),
    ("an entry in a directory has no name", |s| {
        told(s.directory(Some(D), ""));
    }),
    ("a file has no name", |s| told(s.entry(None, "", file(1)))),
    ("a symbolic link has no name", |s| {
        told(s.entry(None, "", symlink("x")));
    }),
    ("a name has two components", |s| {
        told(s.entry(Some(D), "x/y", file(1)));
    }),
    ("a top-level name has two components", |s| {
        told(s.entry(None, "x/y", file(1)));
    }),
    ("a large file is packed", |s| {
        told(s.entry(None, "x", file(PACKED_MOST as usize + 1)));
    }),
    ("a link names a later entry", |s| {
        told(s.entry(
            None,
            "x",
            Content::HardLink {
                to: EntryId(9),
                path: name("d/f"),
            },
        ));
    }),
    ("a link names itself", |s| {
        told(s.entry(
            None,
            "x",
            Content::HardLink {
                to: EntryId(3),
                path: name("d/f"),
            },
        ));
    }),
    ("a directory ends twice", |s| {
        s.end(D);
        s.end(D);
    }),
    ("a file ends as a directory", |s| s.end(F)),
    ("an unknown entry ends", |s| s.end(EntryId(77))),
    ("data of an unknown entry", |s| {
        s.piece(EntryId(77), 0, true, b"x");
    }),
    ("data of a directory", |s| s.piece(D, 0, true, b"x")),
    ("a piece leaves a gap", |s| s.piece(F, 1, false, b"x")),
    ("a piece comes twice", |s| {
        s.piece(F, 0, false, b"x");
        s.piece(F, 0, false, b"x");
    }),
    ("data beyond the end", |s| s.piece(F, 0, true, b"1234567")),
    ("data at an offset that overflows", |s| {
        s.piece(F, u64::MAX, true, b"12");
    }),
    ("data at the end", |s| s.piece(F, 6, true, b"")),
    ("the last data is too early", |s| {
        s.piece(F, 0, true, b"12345");
    }),
    ("the last data is not marked", |s| {
        s.piece(F, 0, false, b"123456");
    }),
    ("data after the last", |s| {
        s.piece(F, 0, true, b"123456");
        s.piece(F, 6, true, b"");
    }),
    ("empty data of a file with content", |s| {
        s.piece(F, 0, false, b"");
    }),
    ("an empty file arrives twice", |s| {
        s.piece(E, 0, true, b"");
        s.piece(E, 0, true, b"");
    }),
    ("an empty file has content", |s| s.piece(E, 0, true, b"x")),
    ("a standalone file arrives in pieces", |s| {
        let alone = s.entry(
            None,
            "alone",
            Content::File {
                size: 1,
                alone: true,
                digest: None,
            },
        );
        s.piece(alone, 0, true, b"x");
    }),
    ("an identical file is sent anyway", |s| {
        let link = s.entry(None, "l", symlink("x"));
        s.piece(link, 0, true, b"x");
    }),
    ("a directory is abandoned", |s| s.push(&abandoned(D))),
    ("an unknown entry is abandoned", |s| {
        s.push(&abandoned(EntryId(77)));
    }),
    ("a complete file is abandoned", |s| {
        s.piece(F, 0, true, b"123456");
        s.push(&abandoned(F));
    }),
    ("data of an abandoned file", |s| {
        s.piece(F, 0, false, b"1");
        s.push(&abandoned(F));
        s.piece(F, 1, false, b"2");
    }),
    ("a directory does not end", |s| {
        s.piece(E, 0, true, b"");
        s.piece(F, 0, true, b"123456");
    }),
    ("a file is missing", |s| s.end(D)),
    ("too many directories are open", |s| {
        (0..1100).for_each(|index| told(s.directory(None, &format!("d{index}"))));
    }),
    ("too many pending attributes", |s| {
        let value = vec![0; 100_000];
        for index in 0..400 {
            let xattrs = Some(vec![Xattr {
                name: b"user.x".to_vec().into(),
                value: value.clone().into(),
            }]);
            let entry = Entry {
                xattrs,
                ..s.plain(None, &format!("f{index}"), file(1))
            };
            s.tell(entry);
        }
    }),
    ("too many pending entries", |s| {
        (0..40_000).for_each(|index| told(s.entry(None, &format!("f{index}"), file(1))));
    }),
];

#[test]
fn a_breach_of_the_protocol_ends_the_transfer() {
    for (what, breach) in BREACHES {
        let ground = RootDir::quick();
        let before = ground.snapshot();
        let mut sending = ground.start(eager());
        let directory = sending.directory(None, "d");
        sending.entry(Some(directory), "e", file(0));
        sending.entry(Some(directory), "f", file(6));
        sending.decide();
        breach(&mut sending);
        sending.flush();
        assert!(!sending.breach().is_empty(), "{what}");
        assert_eq!(ground.snapshot(), before, "{what}");
        let left: Vec<String> = ground
            .names()
            .into_iter()
            .filter(|name| name.contains("nicstripe"))
            .collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
}

#[test]
fn a_batch_that_cannot_be_read_ends_the_transfer() {
    let ground = RootDir::quick();
    for batch in [
        &b"\x01"[..],
        &[9; 16],
        &[1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0xff; 200],
    ] {
        let mut sending = ground.start(eager());
        let mut buffer = crate::file::BufferPool::default().take();
        buffer.bytes_mut(0);
        assert!(buffer.append(batch));
        sending.inputs.send(ReceiverInput::Batch(buffer)).unwrap();
        sending.breach();
    }
}

#[test]
fn a_path_deeper_than_a_name_may_be_is_refused() {
    let ground = RootDir::quick();
    let mut sending = ground.start(TreeRules::default());
    let mut directories = vec![sending.directory(None, &"d".repeat(200))];
    for _ in 0..30 {
        directories.push(sending.directory(directories.last().copied(), &"d".repeat(200)));
    }
    directories.iter().rev().for_each(|id| sending.end(*id));
    let report = sending.report();
    assert_eq!(
        directories
            .iter()
            .map(|id| sending.verdict(*id))
            .filter(|verdict| *verdict == Verdict::Create)
            .count(),
        20
    );
    assert_eq!((report.directories, report.failed), (20, 1));
    assert!(
        sending
            .failed
            .iter()
            .all(|failure| failure.code == FailCode::Refused)
    );
}

#[test]
fn a_name_that_is_being_received_does_not_come_twice() {
    let ground = RootDir::quick();
    let mut sending = ground.start(TreeRules {
        replace: true,
        ..TreeRules::default()
    });
    let first = sending.entry(None, "f", file(3));
    let second = sending.entry(None, "f", file(3));
    let link = sending.entry(None, "f", symlink("x"));
    let hard = sending.entry(
        None,
        "f",
        Content::HardLink {
            to: first,
            path: name("f"),
        },
    );
    sending.content(first, b"one");
    sending.decide();
    assert_eq!(
        [second, link, hard].map(|id| sending.verdict(id)),
        [Verdict::Refused; 3]
    );
    sending.wait_done(first);
    let again = sending.entry(None, "f", file(5));
    sending.decide();
    assert_eq!(sending.verdict(again), Verdict::Replace);
    sending.content(again, b"again");
    let report = sending.report();
    assert_eq!((report.files, report.failed), (2, 3));
    assert_eq!(fs::read_to_string(ground.at("f")).unwrap(), "again");
}

#[test]
fn odd_owners_and_times_end_nothing() {
    let ground = RootDir::quick();
    let mut sending = ground.start(eager());
    for (index, (mode, seconds, nanoseconds, owner)) in [
        (u32::MAX, i64::MAX, u32::MAX, u32::MAX),
        (0, i64::MIN, 0, 0),
        (0o100_644, -1, 999_999_999, u32::MAX - 1),
    ]
    .into_iter()
    .enumerate()
    {
        let mtime = nicstripe_proto::journal::Timestamp {
            seconds,
            nanoseconds,
        };
        let owner = Some(Owner {
            uid: owner,
            gid: owner,
        });
        let xattrs = Some(vec![Xattr {
            name: b"user.\0".to_vec().into(),
            value: vec![].into(),
        }]);
        let entry = Entry {
            mode,
            mtime,
            owner,
            xattrs,
            ..sending.plain(None, &format!("f{index}"), file(1))
        };
        let id = sending.tell(entry);
        sending.content(id, b"x");
        let entry = Entry {
            mode,
            mtime,
            owner,
            ..sending.plain(None, &format!("d{index}"), Content::Directory)
        };
        let id = sending.tell(entry);
        sending.end(id);
    }
    let _ = sending.report();
    assert!(Path::new("/").exists());
}

/// Discards the ID of an entry that violates the protocol.
fn told(_: EntryId) {}

#[test]
fn devices_are_made_for_nobody_who_may_not_have_them_and_nodes_only_where_they_were_asked_for() {
    let null = Content::Node(Node {
        kind: NodeKind::CharDevice,
        major: 1,
        minor: 3,
    });
    let disk = Content::Node(Node {
        kind: NodeKind::BlockDevice,
        major: 8,
        minor: 0,
    });
    let fifo = Content::Node(Node {
        kind: NodeKind::Fifo,
        major: 0,
        minor: 0,
    });
    let ground = RootDir::quick();
    let rules = TreeRules {
        nodes: true,
        modes: true,
        ..TreeRules::default()
    };
    let mut sending = Sending::start(ReceiverRequest {
        privileged: false,
        ..ground.request(rules)
    });
    let devices = [
        sending.entry(None, "null", null),
        sending.entry(None, "disk", disk),
    ];
    let link = sending.entry(
        None,
        "other",
        Content::HardLink {
            to: devices[0],
            path: name("null"),
        },
    );
    let made = sending.entry(None, "fifo", fifo.clone());
    let report = sending.report();
    assert_eq!(devices.map(|id| sending.verdict(id)), [Verdict::LeftOut; 2]);
    assert_eq!(
        (sending.verdict(made), sending.verdict(link)),
        (Verdict::Create, Verdict::Refused)
    );
    assert_eq!((report.nodes, report.special, report.failed), (1, 2, 1));
    assert_eq!(ground.names(), ["fifo"]);

    let mut sending = ground.start(TreeRules::default());
    sending.entry(None, "unasked", fifo);
    assert!(sending.breach().contains("not requested"));
    assert_eq!(ground.names(), ["fifo"]);
}

#[test]
fn entries_beyond_the_memory_of_their_tree_end_it() {
    let allowance = Receiving::within(Receiving::LEASE.0, true);
    let ground = RootDir::quick();
    let start = || {
        Sending::start(ReceiverRequest {
            allowance,
            ..ground.request(TreeRules {
                delete: true,
                ..TreeRules::default()
            })
        })
    };
    let long = |index: usize| format!("{index:0200}");
    let most = allowance.entries / (ENTRY_FOOTPRINT + 4 * 200);

    // Files without content; completed ones make room for as many others.
    let mut sending = start();
    for round in 0..2 {
        let files: Vec<EntryId> = (0..most)
            .map(|index| sending.entry(None, &long(round * most + index), file(1)))
            .collect();
        sending.decide();
        assert!(
            sending.result.is_none()
                && files
                    .iter()
                    .all(|id| sending.verdict(*id) == Verdict::Create)
        );
        files.iter().for_each(|id| sending.content(*id, b"x"));
        files.iter().for_each(|id| sending.wait_done(*id));
    }
    let flood = |mut sending: Sending, told: &mut dyn FnMut(&mut Sending, usize)| {
        (0..4 * most).for_each(|index| told(&mut sending, index));
        sending.flush();
        while sending.result.is_none() {
            sending.hear();
        }
        let error = sending.result.unwrap().unwrap_err();
        assert_eq!(error.code, FailCode::Protocol);
        assert!(
            error.one_line().contains("they exceed 2 MiB of memory"),
            "{}",
            error.one_line()
        );
    };
    flood(sending, &mut |sending, index| {
        _ = sending.entry(None, &format!("another{}", long(index)), file(1));
    });

    // Links that wait for a file.
    let mut sending = start();
    let first = sending.entry(None, "first", file(1));
    let path = name("first");
    flood(sending, &mut |sending, index| {
        _ = sending.entry(
            None,
            &long(index),
            Content::HardLink {
                to: first,
                path: path.clone(),
            },
        );
    });

    // Directories that have ended but wait for a file.
    flood(start(), &mut |sending, index| {
        let directory = sending.directory(None, &long(index));
        sending.entry(Some(directory), "file", file(1));
        sending.end(directory);
    });
    assert!(
        ground.names().iter().all(|name| !name.contains("part")),
        "{:?}",
        ground.names()
    );
}

#[test]
fn names_of_what_is_not_copied_are_kept_within_the_memory_of_their_tree() {
    let ground = RootDir::new();
    fs::write(ground.at("surplus"), "").unwrap();
    for (specials, is_known) in [(1, true), (30_000, false)] {
        let rules = TreeRules {
            delete: true,
            ..TreeRules::default()
        };
        let allowance = Receiving::within(Receiving::LEASE.0, true);
        let mut sending = Sending::start(ReceiverRequest {
            allowance,
            ..ground.request(rules)
        });
        let top = sending.directory(None, "");
        (0..specials).for_each(|index| {
            sending.push(&Record::Special(Box::new(Special {
                name: name(&format!("{index:0100}")),
            })));
        });
        sending.end(top);
        sending.flush();
        sending.inputs.send(ReceiverInput::End).unwrap();
        while sending.result.is_none() {
            sending.hear();
        }
        assert_eq!(sending.result.unwrap().unwrap().special, specials);
        // Too many special files to remember: nothing counts as surplus.
        assert_eq!(ground.at("surplus").exists(), !is_known);
        fs::write(ground.at("surplus"), "").unwrap();
    }
}

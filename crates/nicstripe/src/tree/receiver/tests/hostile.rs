//! Tests of a hostile sender: its names and record sequences change nothing outside the target.

use std::{fs, os::unix::fs::symlink as link_to, path::Path};

use nicstripe_proto::{
    FailCode,
    message::{TreeSource, WalkRules},
    tree::{
        Content, ENTRY_FOOTPRINT, Entry, EntryId, Node, NodeKind, Owner, PACKED_MOST, Share,
        TreeRules, Verdict, Xattr,
    },
};

use super::harness::{
    RawContent, RawName, RootDir, Sending, alone, file, hard_link, symlink, with,
};
use crate::tree::receiver::{Promised, ReceiverRequest};
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
    let text = "/ // /etc ../ ../x x/.. a/b ./x ..\0 \0 a\0b out/new ... -rf ~ ~root $HOME * ? \\ \
                ..\\x C: C:\\x con nul aux.txt a:b \u{7f} \u{feff} é e\u{301} .bashrc .ssh out absolute \
                outfile dangling magic real root outside /etc/passwd out/secret real/out/secret \
                ../outside/file ../../outside/file \u{202e}gpj.exe \u{1b}[2J . ..";
    let mut found: Vec<Vec<u8>> = text
        .split(' ')
        .map(|text| text.as_bytes().to_vec())
        .collect();
    let blank = [&b""[..], b".. ", b" ..", b"..\n", b"\n", b"\r\nfoo"];
    let encoded = [
        &b"\xff\xfe"[..],
        b"\x80",
        b"\xc0\xae\xc0\xae",
        b"%2e%2e",
        b"..%2f",
        b"\xe2\x80\xa5",
    ];
    found.extend(blank.iter().chain(&encoded).map(|bytes| bytes.to_vec()));
    found.extend([254, 255, 256, 257, 1000, 4095, 4096, 10_000].map(|len| vec![b'x'; len]));
    for kind in ["part", "journal"] {
        let stems = [".x.01234567", ".", ".x", "..", ".a.b.c"];
        found.extend(stems.map(|stem| format!("{stem}.nicstripe-{kind}").into_bytes()));
    }
    found.push(crate::file::hidden_name("real".as_ref(), &[7; 32], "part").into_encoded_bytes());
    found
}

const THREE_BYTES: RawContent = RawContent::File {
    size: 3,
    alone: false,
};

fn contents() -> Vec<RawContent> {
    let path = |path: &str| {
        RawName(
            path.split('/')
                .map(|part| part.as_bytes().to_vec())
                .collect(),
        )
    };
    let hard_link = |to_path| RawContent::HardLink {
        to: 0,
        path: path(to_path),
    };
    vec![
        THREE_BYTES,
        RawContent::Directory,
        RawContent::Symlink {
            target: b"../outside/dir".to_vec(),
        },
        hard_link("../outside/file"),
        hard_link("out/secret"),
    ]
}

/// Sends an entry named `component`, followed by entries that could exploit it.
fn attack(sending: &mut Sending, component: &[u8], content: &RawContent) {
    sending.entry(None, "first", file(0));
    sending.raw(1, None, &[component], content);
    sending.flush();
    sending.raw(2, Some(1), &[b"secret"], &THREE_BYTES);
    sending.raw(3, None, &[component, b"secret"], &THREE_BYTES);
    sending.flush();
}

#[test]
fn no_name_leads_out() {
    let mut count = 0;
    for component in components() {
        for content in contents() {
            count += 1;
            let ground = trapped();
            for ends in [false, true] {
                let mut sending = ground.start(eager());
                attack(&mut sending, &component, &content);
                if ends {
                    sending.piece(EntryId(1), 0, true, b"bad");
                    sending.end(EntryId(1));
                }
                let _ = sending.wait();
                ground.check_outside(&String::from_utf8_lossy(&component));
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
    let existing = ["out", "absolute", "magic", "outfile", "dangling"];
    // The link existed before, or the sender itself has created it.
    for own in existing.into_iter().chain(["sent"]) {
        let ground = trapped();
        let mut sending = ground.start(eager());
        if own == "sent" {
            sending.entry(None, "sent", symlink("../outside/dir"));
        }
        let directory = sending.directory(None, own);
        let secret = sending.entry(Some(directory), "secret", file(3));
        let sub = sending.directory(Some(directory), "sub");
        let through = hard_link(EntryId(0), &format!("{own}/secret"));
        sending.entry(None, "stolen", through);
        sending.end(sub);
        sending.end(directory);
        sending.decide();
        assert_eq!(
            sending.verdicts([directory, secret]),
            [Verdict::Exists, Verdict::Blocked]
        );
        let _ = sending.wait();
        assert!(!ground.at("stolen").exists());
    }
}

#[test]
fn a_directory_that_becomes_a_link_is_not_written_through() {
    let ground = RootDir::quick();
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
}

#[test]
fn a_link_to_a_file_that_is_reached_by_a_link_is_refused() {
    let ground = trapped();
    let beyond = [
        "within/file",
        "out/secret",
        "real/out/secret",
        "outfile",
        "magic/Cargo.toml",
    ];
    for path in beyond.into_iter().chain(["real", "missing"]) {
        let mut sending = ground.start(TreeRules::default());
        let first = sending.entry(None, "first", file(0));
        sending.content(first, b"");
        sending.decide();
        let link = sending.entry(None, "stolen", hard_link(first, path));
        let _ = sending.wait();
        assert!(!sending.done.contains(&link.0), "{path}");
        assert!(!ground.at("stolen").exists());
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
    let mut sending = ground.start(with(|rules| rules.update = true));
    let small = sending.entry(None, "small", file(1));
    let newer = sending.entry(None, "newer", file(1));
    let ssh = sending.directory(None, ".ssh");
    let unlinked = Entry {
        linked: false,
        ..sending.plain(None, "unlinked", file(1))
    };
    let unlinked = sending.tell(unlinked);
    sending.decide();
    for id in [small, unlinked] {
        sending.content(id, b"s");
        sending.wait_done(id);
    }
    let stolen = [
        (small, ".ssh/id"),
        (small, "newer"),
        (small, "unlinked"),
        (unlinked, "unlinked"),
        (newer, "newer"),
        (ssh, ".ssh/id"),
        (ssh, "small"),
    ];
    let names = [0, 1, 2, 3, 4, 5, 6].map(|index| format!("stolen{index}"));
    let link = |(name, (to, path)): (&String, (EntryId, &str))| {
        (name.clone(), sending.entry(None, name, hard_link(to, path)))
    };
    let stolen: Vec<_> = names.iter().zip(stolen).map(link).collect();
    let right = sending.entry(None, "right", hard_link(small, "small"));
    sending.end(ssh);
    let report = sending.report();
    assert_eq!((report.hard_links, report.failed), (1, stolen.len() as u64));
    assert!(sending.done.contains(&right.0) && is_shared(&ground.at("small")));
    for (name, id) in stolen {
        assert!(
            !sending.done.contains(&id.0) && !ground.at(&name).exists(),
            "{name}"
        );
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
    let second = hard_link(first, "first");
    sending.entry(None, "second", second);
    let error = sending.wait().as_ref().unwrap_err();
    assert_eq!(error.code, FailCode::Protocol);
    assert!(!ground.at("second").exists());
}

/// Protocol violations by a sender of a directory 0 with an empty file 1 and a file 2 of 6 bytes:
/// the claim, the records that follow (see [`send`]), and a part of the error.
const BREACHES: &str = "
    a number is skipped         | number 4                          | entry 4, expected 3
    a number comes twice        | number 2                          | entry 2, expected 3
    an entry is in none         | file 77 x                         | in entry 77, which is not an open
    an entry is in itself       | dir 3 x                           | in entry 3, which is not an open
    an entry is in a file       | file 2 x                          | in entry 2, which is not an open
    a directory has ended       | end 0; file 0 x                   | in entry 0, which is not an open
    an entry is in a link       | link - l; file 3 file             | in entry 3, which is not an open
    an entry has no name        | dir 0 -                           | without a name in a directory
    a file has no name          | file - -                          | without a valid name
    a link has no name          | link - -                          | without a valid name
    a name has two components   | file 0 x/y                        | with several components
    a top-level name has two    | file - x/y                        | without a valid name
    a large file is packed      | large - x                         | packed a file of
    a link names a later entry  | hard 9 x                          | to entry 9, which was not announced
    a link names itself         | hard 3 x                          | to entry 3, which was not announced
    a directory ends twice      | end 0; end 0                      | ended entry 0, which is not an open
    a file ends                 | end 2                             | ended entry 2, which is not an open
    an unknown entry ends       | end 77                            | ended entry 77, which is not an open
    data of an unknown entry    | last 77 0 x                       | of entry 77, which was not requested
    data of a directory         | last 0 0 x                        | of entry 0, which was not requested
    data of a link              | link - l; last 3 0 x              | of entry 3, which was not requested
    data of a standalone file   | alone - x; last 3 0 x             | of entry 3, which is a standalone
    a piece leaves a gap        | more 2 1 x                        | out of order
    a piece comes twice         | more 2 0 x; more 2 0 x            | out of order
    data beyond the end         | last 2 0 1234567                  | out of order
    an offset that overflows    | last 2 18446744073709551615 12    | out of order
    data at the end             | last 2 6                          | out of order
    the last data is too early  | last 2 0 12345                    | out of order
    the last data is not marked | more 2 0 123456                   | out of order
    data after the last         | last 2 0 123456; last 2 6         | out of order
    empty data of a whole file  | more 2 0                          | out of order
    an empty file arrives twice | last 1 0; last 1 0                | out of order
    an empty file has content   | last 1 0 x                        | out of order
    data of an abandoned file   | more 2 0 1; abandon 2; more 2 1 2 | out of order
    a directory is abandoned    | abandon 0                         | entry 0, which was not requested
    an unknown one is abandoned | abandon 77                        | entry 77, which was not requested
    a whole file is abandoned   | last 2 0 123456; abandon 2        | entry 2 after its last data
    a directory does not end    | last 1 0; last 2 0 123456         | 0 files and 1 directories are
    files are missing           | end 0                             | 2 files and 0 directories are
    too many open directories   | dirs 1100                         | the limit of open directories
    too many attributes         | attributes 700                    | the limit of pending attributes
    too many entries            | files 40000                       | the limit of pending entries
";

/// Sends a record: its kind, the ID or parent of the entry, then the name, or the offset and bytes.
fn send(sending: &mut Sending, record: &str) {
    let words: Vec<&str> = record.split_whitespace().collect();
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    let id = word(1).parse().ok().map(EntryId);
    let known = id.unwrap_or(EntryId(0));
    let many = known.0;
    let name = word(2).trim_matches('-');
    let kind = word(0);
    match kind {
        "number" => {
            let plain = sending.plain(None, "x", file(1));
            sending.tell(Entry { id: known, ..plain });
        }
        "file" => _ = sending.entry(id, name, file(1)),
        "large" => _ = sending.entry(id, name, file(PACKED_MOST as usize + 1)),
        "alone" => _ = sending.entry(id, name, alone(1)),
        "dir" => _ = sending.directory(id, name),
        "link" => _ = sending.entry(id, name, symlink("../outside")),
        "hard" => _ = sending.entry(None, name, hard_link(known, "d/f")),
        "end" => sending.end(known),
        "abandon" => sending.abandon(known),
        "more" | "last" => {
            let offset = word(2).parse().unwrap();
            sending.piece(known, offset, kind == "last", word(3).as_bytes());
        }
        "dirs" => (0..many).for_each(|index| _ = sending.directory(None, &format!("d{index}"))),
        "files" => (0..many).for_each(|index| _ = sending.entry(None, &index.to_string(), file(1))),
        "attributes" => (0..many).for_each(|index| {
            let xattr = Xattr {
                name: b"user.x".to_vec().into(),
                value: vec![0; 100_000].into(),
            };
            let entry = Entry {
                xattrs: Some(vec![xattr]),
                ..sending.plain(None, &index.to_string(), file(1))
            };
            sending.tell(entry);
        }),
        _ => panic!("unknown record {record:?}"),
    }
}

#[test]
fn a_breach_of_the_protocol_ends_the_transfer() {
    for row in BREACHES.trim().lines() {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [what, records, expected] = columns[..] else {
            panic!("{row}")
        };
        let ground = RootDir::quick();
        let mut sending = ground.start(eager());
        let directory = sending.directory(None, "d");
        sending.entry(Some(directory), "e", file(0));
        sending.entry(Some(directory), "f", file(6));
        sending.decide();
        records
            .split(';')
            .for_each(|record| send(&mut sending, record));
        let error = sending.breach();
        assert!(error.contains(expected), "{what}: {error}");
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
    let is_made = |id: &&EntryId| sending.verdict(**id) == Verdict::Create;
    assert_eq!(directories.iter().filter(is_made).count(), 20);
    assert_eq!((report.directories, report.failed), (20, 1));
    let mut codes = sending.failed.iter().map(|failure| failure.code);
    assert!(codes.all(|code| code == FailCode::Refused));
}

#[test]
fn a_name_that_is_being_received_does_not_come_twice() {
    let ground = RootDir::quick();
    let mut sending = ground.start(with(|rules| rules.replace = true));
    let first = sending.entry(None, "f", file(3));
    let second = sending.entry(None, "f", file(3));
    let link = sending.entry(None, "f", symlink("x"));
    let hard = sending.entry(None, "f", hard_link(first, "f"));
    sending.content(first, b"one");
    sending.decide();
    assert_eq!(
        sending.verdicts([second, link, hard]),
        [Verdict::Refused; 3]
    );
    sending.wait_done(first);
    let again = sending.entry(None, "f", file(5));
    sending.decide();
    assert_eq!(sending.verdict(again), Verdict::Replace);
    sending.content(again, b"again");
    let report = sending.report();
    assert_eq!((report.files, report.failed), (2, 3));
    assert_eq!(ground.read("f"), "again");
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
        let xattr = Xattr {
            name: b"user.\0".to_vec().into(),
            value: vec![].into(),
        };
        let odd = |plain| Entry {
            mode,
            mtime: nicstripe_proto::journal::Timestamp {
                seconds,
                nanoseconds,
            },
            owner: Some(Owner {
                uid: owner,
                gid: owner,
            }),
            ..plain
        };
        let plain = sending.plain(None, &format!("f{index}"), file(1));
        let id = sending.tell(Entry {
            xattrs: Some(vec![xattr]),
            ..odd(plain)
        });
        sending.content(id, b"x");
        let plain = sending.plain(None, &format!("d{index}"), Content::Directory);
        let id = sending.tell(odd(plain));
        sending.end(id);
    }
    let _ = sending.report();
}

#[test]
fn devices_are_made_for_nobody_who_may_not_have_them_and_nodes_only_where_they_were_asked_for() {
    let node = |kind, major, minor| Content::Node(Node { kind, major, minor });
    let ground = RootDir::quick();
    let rules = with(|rules| (rules.nodes, rules.modes) = (true, true));
    let mut sending = Sending::start(ReceiverRequest {
        privileged: false,
        ..ground.request(rules)
    });
    let null = sending.entry(None, "null", node(NodeKind::CharDevice, 1, 3));
    let disk = sending.entry(None, "disk", node(NodeKind::BlockDevice, 8, 0));
    let link = sending.entry(None, "other", hard_link(null, "null"));
    let made = sending.entry(None, "fifo", node(NodeKind::Fifo, 0, 0));
    let report = sending.report();
    assert_eq!(sending.verdicts([null, disk]), [Verdict::LeftOut; 2]);
    assert_eq!(
        sending.verdicts([made, link]),
        [Verdict::Create, Verdict::Refused]
    );
    assert_eq!((report.nodes, report.special, report.failed), (1, 2, 1));
    assert_eq!(ground.names(), ["fifo"]);

    let mut sending = ground.start(TreeRules::default());
    sending.entry(None, "unasked", node(NodeKind::Fifo, 0, 0));
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
            ..ground.request(with(|rules| rules.delete = true))
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
        let is_wanted = |id: &EntryId| sending.verdict(*id) == Verdict::Create;
        assert!(sending.result.is_none() && files.iter().all(is_wanted));
        files.iter().for_each(|id| sending.content(*id, b"x"));
        files.iter().for_each(|id| sending.wait_done(*id));
    }
    let flood = |mut sending: Sending, told: &mut dyn FnMut(&mut Sending, usize)| {
        (0..4 * most).for_each(|index| told(&mut sending, index));
        let error = sending.ended().unwrap_err();
        assert_eq!(error.code, FailCode::Protocol);
        let text = error.one_line();
        assert!(text.contains("they exceed 2 MiB of memory"), "{text}");
    };
    flood(sending, &mut |sending, index| {
        _ = sending.entry(None, &format!("another{}", long(index)), file(1));
    });

    // Links that wait for a file.
    let mut sending = start();
    let first = sending.entry(None, "first", file(1));
    flood(sending, &mut |sending, index| {
        _ = sending.entry(None, &long(index), hard_link(first, "first"));
    });

    // Directories that have ended but wait for a file.
    flood(start(), &mut |sending, index| {
        let directory = sending.directory(None, &long(index));
        sending.entry(Some(directory), "file", file(1));
        sending.end(directory);
    });
    let left = ground.names();
    assert!(left.iter().all(|name| !name.contains("part")), "{left:?}");
}

#[test]
fn names_of_what_is_not_copied_are_kept_within_the_memory_of_their_tree() {
    let ground = RootDir::new();
    for (specials, is_known) in [(1, true), (30_000, false)] {
        fs::write(ground.at("surplus"), "").unwrap();
        let mut sending = Sending::start(ReceiverRequest {
            allowance: Receiving::within(Receiving::LEASE.0, true),
            ..ground.request(with(|rules| rules.delete = true))
        });
        let top = sending.directory(None, "");
        (0..specials).for_each(|index| sending.special(&format!("{index:0100}")));
        sending.end(top);
        assert_eq!(sending.wait().as_ref().unwrap().special, specials);
        // Too many special files to remember: nothing counts as surplus.
        assert_eq!(ground.at("surplus").exists(), !is_known);
    }
}

#[test]
fn large_files_are_for_who_asked_for_pieces_and_take_no_memory_without_end() {
    let ground = RootDir::new();
    let source = TreeSource {
        name: None,
        content: true,
    };
    for (pieces, files) in [(false, 3), (true, 3), (true, 20_000)] {
        let walk = WalkRules {
            share: Share::new(1, 2).ok(),
            pieces,
            ..WalkRules::default()
        };
        let mut sending = Sending::start(ReceiverRequest {
            promised: Some(Promised::new(std::slice::from_ref(&source), &walk)),
            ..ground.request(TreeRules::default())
        });
        (0..files).for_each(|index| sending.large(&format!("{index:0100}")));
        if files > 3 {
            sending.flush();
            let breach = sending.breach();
            assert!(breach.contains("64 MiB for large files"), "{breach}");
            continue;
        }
        let report = sending.report();
        let expected = if pieces { (0, 3) } else { (3, 0) };
        assert_eq!((report.special, report.large.len()), expected);
    }
}

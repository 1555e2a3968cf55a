mod attributes;
mod harness;
mod hostile;
mod promised;
mod racer;
mod surplus;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::mpsc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use nicstripe_proto::{
    ChunkSize, DataHeader, Digest, FailCode, Grid, Offer, PathId, SourceIdentity, TransferId,
    hash_tree::chunk_value,
    journal::Timestamp,
    message::PutOptions,
    tree::{
        Content, EntryId, TreeRules,
        Verdict::{Blocked, Create, Exists, Newer, Refused, Replace, Same},
    },
};

use self::harness::{MTIME, RootDir, Sending, alone, file, hard_link, name, reason, symlink, with};
use super::ReceiverRequest;
use crate::{
    file::{Arrived, BufferPool, IoPool},
    tree::{
        channel::ReceiverInput,
        options::{EntryOutcome, TreeReport},
    },
};

fn replacing() -> TreeRules {
    with(|rules| rules.replace = true)
}

/// Returns a file of these bytes, whose digest is known.
fn hashed(bytes: &[u8], alone: bool) -> Content {
    Content::File {
        size: bytes.len() as u64,
        alone,
        digest: Some(Digest(*blake3::hash(bytes).as_bytes())),
    }
}

fn set_mtime(path: &Path, mtime: Timestamp) {
    let time = UNIX_EPOCH + Duration::new(mtime.seconds as u64, mtime.nanoseconds);
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

/// Sends a tree with every kind of entry, including two hard links to one file.
fn send_all(sending: &mut Sending) -> Vec<EntryId> {
    let top = sending.directory(None, "top");
    let empty = sending.entry(Some(top), "empty", file(0));
    let small = sending.entry(Some(top), "small", file(5));
    let sub = sending.directory(Some(top), "sub");
    let large = sending.entry(Some(sub), "large", file(700_000));
    sending.end(sub);
    let symbolic = sending.entry(Some(top), "symbolic", symlink("../nowhere"));
    let hard = sending.entry(Some(top), "hard", hard_link(large, "top/sub/large"));
    sending.end(top);
    sending.decide();
    if sending.verdict(small).is_wanted() {
        sending.content(empty, b"");
        sending.content(small, b"small");
        sending.content(large, &large_content());
    }
    vec![top, empty, small, sub, large, symbolic, hard]
}

fn large_content() -> Vec<u8> {
    (0..700_000u32).map(|index| (index * 7 / 3) as u8).collect()
}

#[test]
fn a_tree_arrives_with_all_that_is_in_it_and_is_not_wanted_again() {
    let ground = RootDir::new();
    let mut sending = ground.start(with(|rules| rules.modes = true));
    let ids = send_all(&mut sending);
    let expected = TreeReport {
        files: 3,
        bytes: 700_005,
        directories: 2,
        symlinks: 1,
        hard_links: 1,
        ..TreeReport::default()
    };
    assert_eq!(sending.report(), expected);
    let is_made = |id: &EntryId| sending.verdict(*id) == Create && sending.done.contains(&id.0);
    assert!(ids.iter().all(is_made));
    let beneath = ["empty", "hard", "small", "sub", "sub/large", "symbolic"];
    let names = beneath.map(|name| format!("top/{name}"));
    assert_eq!(ground.names(), [&["top".to_owned()][..], &names].concat());
    let large = fs::read(ground.at("top/sub/large")).unwrap();
    assert!(large == large_content());
    let [large, hard] = ["top/sub/large", "top/hard"].map(|path| ground.meta(path));
    assert_eq!(large.ino(), hard.ino());
    assert_eq!(large.mtime_nsec(), 123_456_789);
    for (path, mode) in [("top", 0o755), ("top/sub", 0o755), ("top/hard", 0o644)] {
        let meta = ground.meta(path);
        let found = (meta.mode() & 0o7777, meta.mtime());
        assert_eq!(found, (mode, MTIME.seconds), "{path}");
    }
    let link = ground.at("top/symbolic");
    let target = fs::read_link(&link).unwrap();
    let mtime = fs::symlink_metadata(link).unwrap().mtime();
    assert_eq!(
        (mtime, target.to_str()),
        (MTIME.seconds, Some("../nowhere"))
    );
    let progress = &sending.progress;
    assert_eq!((progress.files, progress.files_done), (3, 3));
    assert!(progress.complete);
    assert_eq!(sending.listed.len(), 7);

    let mut sending = ground.start(TreeRules::default());
    let ids = send_all(&mut sending);
    let expected = TreeReport {
        unchanged: 5,
        ..TreeReport::default()
    };
    assert_eq!(sending.report(), expected);
    let is_there = ids.iter().all(|id| sending.verdict(*id) == Same);
    assert!(is_there, "{:?}", sending.verdicts);
    assert!(sending.done.is_empty() && sending.failed.is_empty());
    assert_eq!(sending.progress.skipped_bytes, 700_005);
}

#[test]
fn what_differs_is_replaced_only_if_that_is_asked_for() {
    let at = |seconds| Timestamp {
        seconds,
        nanoseconds: 0,
    };
    let [older, newer] = [-1, 1].map(|difference| at(MTIME.seconds + difference));
    let update = || with(|rules| rules.update = true);
    for (rules, mtime, expected) in [
        (TreeRules::default(), older, Exists),
        (replacing(), newer, Replace),
        (update(), older, Replace),
        (update(), newer, Newer),
    ] {
        let ground = RootDir::new();
        fs::write(ground.at("a"), "old").unwrap();
        set_mtime(&ground.at("a"), mtime);
        let mut sending = ground.start(rules);
        let id = sending.entry(None, "a", file(3));
        sending.decide();
        assert_eq!(sending.verdict(id), expected);
        if expected.is_wanted() {
            sending.content(id, b"new");
        }
        let report = sending.report();
        let content = if expected.is_wanted() { "new" } else { "old" };
        assert_eq!(ground.read("a"), content, "{expected:?}");
        assert_eq!(report.failed, u64::from(expected == Exists));
        assert_eq!(report.newer, u64::from(expected == Newer));
        assert_eq!(ground.names(), ["a"]);
    }
}

#[test]
fn files_of_one_digest_are_the_same_and_get_the_time() {
    let ground = RootDir::new();
    for (path, content) in [("same", "abc"), ("other", "xyz")] {
        fs::write(ground.at(path), content).unwrap();
    }
    let mut sending = ground.start(with(|rules| (rules.checksum, rules.replace) = (true, true)));
    let same = sending.entry(None, "same", hashed(b"abc", false));
    let link = sending.entry(None, "link", hard_link(same, "same"));
    let other = sending.entry(None, "other", hashed(b"abc", false));
    sending.decide();
    assert_eq!(
        sending.verdicts([same, link, other]),
        [Same, Create, Replace]
    );
    sending.content(other, b"abc");
    sending.report();
    let meta = ground.meta("same");
    assert_eq!((meta.mtime(), meta.nlink()), (MTIME.seconds, 2));
    assert_eq!(ground.read("other"), "abc");
}

/// A peer chooses the size of the file, up to a sparse one of terabytes.
#[test]
fn a_comparison_of_a_large_file_lets_other_jobs_run() {
    const SIZE: usize = 64 << 20;
    const PATIENCE: Duration = Duration::from_secs(20);
    let ground = RootDir::quick();
    let large = fs::File::create(ground.at("large")).unwrap();
    large.set_len(SIZE as u64).unwrap();
    let pool = IoPool::one_by_one().unwrap();
    let (release, gate) = mpsc::channel::<()>();
    let (began, running) = mpsc::channel();
    pool.run(move || {
        began.send(()).unwrap();
        let _ = gate.recv();
    });
    running.recv_timeout(PATIENCE).unwrap();

    let rules = with(|rules| (rules.checksum, rules.replace) = (true, true));
    let mut sending = Sending::start_on(pool.clone(), ground.request(rules));
    let id = sending.entry(None, "large", hashed(&vec![0; SIZE], true));
    sending.flush();
    let until = Instant::now() + PATIENCE;
    while pool.waiting() == 0 {
        assert!(Instant::now() < until, "the file is not compared");
        std::thread::yield_now();
    }
    let (ran, other) = mpsc::channel();
    let jobs = pool.clone();
    pool.run(move || ran.send(jobs.waiting()).unwrap());
    drop(release);

    // The rest of the comparison.
    assert_eq!(other.recv_timeout(PATIENCE), Ok(1));
    sending.decide();
    assert_eq!(sending.verdict(id), Same);
    sending.report();
}

/// The target is an existing directory to copy into, or the new name of a single directory or file.
#[test]
fn a_target_is_a_place_or_a_name() {
    let cases = [
        // target, as a name, top-level name, expected path
        ("", false, "top", "top"),
        ("there", true, "top", "there/top"),
        ("there", false, "top", "there/top"),
        ("new", true, "top", "new"),
        ("new", false, "top", "new/top"),
        ("a/b/new", true, "top", "a/b/new"),
        ("a/b/new", false, "top", "a/b/new/top"),
        ("inner", true, "top", "there/top"),
        ("", false, "", ""),
        ("there", true, "", "there"),
        ("new", true, "", "new"),
        ("new", false, "", "new"),
    ];
    for (target, as_name, own, expected) in cases {
        let ground = RootDir::new();
        fs::create_dir(ground.at("there")).unwrap();
        std::os::unix::fs::symlink("there", ground.at("inner")).unwrap();
        let target_name = (!target.is_empty()).then(|| name(target));
        let mut sending = ground.start_to(target_name, as_name, TreeRules::default());
        let top = sending.directory(None, own);
        let id = sending.entry(Some(top), "f", file(1));
        let path = format!("{own}/f").trim_start_matches('/').to_owned();
        let link = sending.entry(Some(top), "g", hard_link(id, &path));
        sending.end(top);
        sending.content(id, b"x");
        sending.report();
        assert!(sending.done.contains(&link.0));
        let are_there = ["f", "g"].map(|file| ground.at(expected).join(file).is_file());
        assert_eq!(are_there, [true; 2], "{target:?} {as_name} {own:?}");
        let is_listed = sending.listed.iter().any(|(name, _)| *name == path);
        assert!(is_listed, "{:?}", sending.listed);
    }
}

#[test]
fn a_file_that_is_the_target_is_replaced_under_its_own_name() {
    let ground = RootDir::new();
    fs::write(ground.at("name"), "old").unwrap();
    let mut sending = ground.start_to(Some(name("name")), true, replacing());
    let id = sending.entry(None, "other", file(3));
    sending.content(id, b"new");
    sending.report();
    assert_eq!(ground.names(), ["name"]);
    assert_eq!(ground.read("name"), "new");
}

#[test]
fn a_peer_that_may_only_add_changes_nothing() {
    let ground = RootDir::new();
    fs::create_dir(ground.at("d")).unwrap();
    let there = ["d/same", "d/differs", "d/surplus"];
    for path in there {
        fs::write(ground.at(path), "x").unwrap();
        set_mtime(&ground.at(path), MTIME);
    }
    fs::set_permissions(ground.at("d"), fs::Permissions::from_mode(0o711)).unwrap();
    let rules = with(|rules| (rules.modes, rules.delete, rules.replace) = (true, true, true));
    let mut sending = Sending::start(ReceiverRequest {
        append_only: true,
        ..ground.request(rules)
    });
    let directory = sending.directory(None, "d");
    let same = sending.entry(Some(directory), "same", file(1));
    let differs = sending.entry(Some(directory), "differs", file(2));
    let linked = sending.entry(Some(directory), "surplus", hard_link(same, "d/same"));
    let pointed = sending.entry(Some(directory), "differs", symlink("same"));
    let new = sending.entry(Some(directory), "new", file(1));
    sending.end(directory);
    sending.decide();
    let verdicts = sending.verdicts([same, differs, linked, pointed, new]);
    assert_eq!(verdicts, [Same, Refused, Refused, Refused, Create]);
    sending.content(new, b"n");
    let report = sending.report();
    assert_eq!((report.failed, report.deleted, report.files), (3, 0, 1));
    let mut codes = sending.failed.iter().map(|failure| failure.code);
    assert!(codes.all(|code| code == FailCode::NotPermitted));
    assert_eq!(ground.meta("d").mode() & 0o7777, 0o711);
    let usual = 0o666 & !crate::file::umask();
    for path in there {
        let meta = ground.meta(path);
        let found = (meta.len(), meta.nlink(), meta.mode() & 0o7777);
        assert_eq!(found, (1, 1, usual), "{path}");
    }
}

#[test]
fn a_dry_run_decides_and_changes_nothing() {
    let ground = RootDir::new();
    fs::create_dir(ground.at("top")).unwrap();
    fs::write(ground.at("top/surplus"), "x").unwrap();
    fs::write(ground.at("top/small"), "differs").unwrap();
    let before = (ground.names(), ground.meta("top").mtime());
    let set =
        |rules: &mut TreeRules| (rules.dry_run, rules.delete, rules.replace) = (true, true, true);
    let mut sending = ground.start(with(set));
    let top = sending.directory(None, "top");
    let small = sending.entry(Some(top), "small", file(5));
    let sub = sending.directory(Some(top), "sub");
    let inner = sending.entry(Some(sub), "inner", file(7));
    let hard = sending.entry(Some(sub), "hard", hard_link(inner, "top/sub/inner"));
    let alone = sending.entry(Some(sub), "alone", alone(1 << 40));
    let symbolic = sending.entry(Some(sub), "symbolic", symlink("x"));
    sending.end(sub);
    sending.end(top);
    let expected = TreeReport {
        files: 3,
        bytes: 12 + (1 << 40),
        directories: 1,
        symlinks: 1,
        hard_links: 1,
        deleted: 1,
        ..TreeReport::default()
    };
    assert_eq!(sending.report(), expected);
    assert_eq!(sending.verdicts([top, small, sub]), [Same, Replace, Create]);
    assert_eq!(
        sending.verdicts([inner, hard, alone, symbolic]),
        [Create; 4]
    );
    assert_eq!(sending.deleted, ["top/surplus"]);
    assert!(sending.done.is_empty() && sending.alone.is_empty());
    assert_eq!((ground.names(), ground.meta("top").mtime()), before);
}

#[test]
fn a_dry_run_makes_no_target() {
    let ground = RootDir::new();
    for as_name in [true, false] {
        let rules = with(|rules| rules.dry_run = true);
        let mut sending = ground.start_to(Some(name("a/b")), as_name, rules);
        let top = sending.directory(None, "top");
        let inner = sending.entry(Some(top), "f", file(1));
        sending.end(top);
        sending.report();
        assert_eq!(sending.verdicts([top, inner]), [Create; 2]);
        assert!(ground.names().is_empty());
    }
}

fn offer(size: u64) -> Offer {
    let source = SourceIdentity {
        size,
        mtime: MTIME,
        ..SourceIdentity::default()
    };
    Offer {
        transfer: TransferId(9),
        source,
        chunk_log2: ChunkSize::DEFAULT.log2(),
        mode: 0o600,
        kind: None,
        data: None,
        object: None,
    }
}

/// Opens the target of a standalone file, as a session does.
fn open_standalone(
    sending: &Sending,
    id: EntryId,
    size: u64,
) -> Result<crate::file::Target, crate::file::FileError> {
    let (answer, opened) = mpsc::channel();
    let answer = Box::new(move |result: Result<_, _>| answer.send(result).unwrap());
    let (offer, options) = (Box::new(offer(size)), PutOptions::default());
    sending
        .inputs
        .send(ReceiverInput::OpenStandalone {
            id,
            offer,
            options,
            answer,
        })
        .unwrap();
    opened
        .recv_timeout(Duration::from_secs(20))
        .unwrap()
        .map(|(target, _)| target)
}

#[test]
fn a_file_that_is_a_transfer_of_its_own_gets_its_attributes_and_its_links() {
    let ground = RootDir::new();
    fs::write(ground.at("alone"), "old").unwrap();
    let mut sending = ground.start(with(|rules| (rules.modes, rules.replace) = (true, true)));
    let id = sending.with_mode(0o751, None, "alone", alone(5));
    let link = sending.entry(None, "link", hard_link(id, "alone"));
    let failing = sending.entry(None, "failing", alone(5));
    let orphan = sending.entry(None, "orphan", hard_link(failing, "failing"));
    sending.decide();
    assert_eq!(sending.alone, [id, failing]);
    assert!(open_standalone(&sending, link, 5).is_err());

    let target = open_standalone(&sending, id, 5).unwrap();
    let mut buffer = BufferPool::default().take();
    buffer.bytes_mut(5).copy_from_slice(b"alone");
    let chunk = nicstripe_proto::ChunkId(0);
    let header = DataHeader {
        transfer: TransferId(9),
        chunk,
        value: chunk_value(Grid::new(5, ChunkSize::DEFAULT), chunk, b"alone").unwrap(),
        len: 5,
        raw_len: 0,
        last: true,
    };
    let arrived = Arrived {
        path: PathId(0),
        header,
        buffer,
    };
    assert!(!target.write_chunk(arrived, |_, result| result.unwrap()));
    let digest = Digest(*blake3::hash(b"alone").as_bytes());
    target.commit(digest).unwrap();
    let changed = reason(FailCode::SourceChanged, "it changed");
    for (id, result) in [(id, Ok(())), (failing, Err(changed))] {
        let ended = ReceiverInput::StandaloneEnded { id, result };
        sending.inputs.send(ended).unwrap();
    }

    let report = sending.report();
    assert_eq!((report.files, report.hard_links, report.failed), (1, 1, 2));
    let failed = sending
        .failed
        .iter()
        .map(|failure| (failure.id, failure.code));
    let expected = [
        (Some(failing), FailCode::SourceChanged),
        (Some(orphan), FailCode::Refused),
    ];
    assert!(failed.eq(expected), "{:?}", sending.failed);
    let meta = ground.meta("link");
    let found = (meta.len(), meta.mode() & 0o7777, meta.mtime(), meta.nlink());
    assert_eq!(found, (5, 0o751, MTIME.seconds, 2));
}

#[test]
fn a_stop_leaves_nothing_half_written() {
    let ground = RootDir::new();
    let mut sending = ground.start(TreeRules::default());
    let first = sending.entry(None, "first", file(1_000_000));
    let second = sending.entry(None, "second", file(1));
    sending.decide();
    sending.piece(first, 0, false, &[1; 100_000]);
    sending.content(second, b"x");
    sending.flush();
    sending.inputs.send(ReceiverInput::Stop).unwrap();
    let ended = sending.wait().as_ref().unwrap_err();
    assert_eq!(ended.code, FailCode::Cancelled);
    let left = ground.names();
    assert!(left.iter().all(|name| name == "second"), "{left:?}");
}

#[test]
fn what_the_sender_cannot_send_or_does_not_copy_is_told_here_too() {
    let ground = RootDir::new();
    let mut sending = ground.start(TreeRules::default());
    let broken = reason(FailCode::Io, "no\u{1b}[31m");
    sending.trouble(Some(name("a/b")), None, broken);
    let gone = reason(FailCode::NotFound, "gone");
    sending.trouble(None, Some("/away\u{1b}"), gone);
    sending.special("a/socket");
    let report = sending.report();
    assert_eq!(report.failures[1].name, "/away\\u{1b}");
    assert_eq!((report.failed, report.special), (2, 1));
    let failed = EntryOutcome::Failed {
        code: FailCode::Io,
        text: "no\\u{1b}[31m".into(),
    };
    let listed = [("a/b", failed), ("a/socket", EntryOutcome::Special)];
    assert_eq!(
        sending.listed,
        listed.map(|(name, outcome)| (name.to_owned(), outcome))
    );
    assert_eq!(sending.failed.len(), 0);
}

#[test]
fn an_abandoned_file_fails_and_the_rest_arrives() {
    let ground = RootDir::new();
    let mut sending = ground.start(TreeRules::default());
    let directory = sending.directory(None, "d");
    let names = ["begun", "not_begun", "whole"];
    let [begun, not_begun, whole] =
        names.map(|own| sending.entry(Some(directory), own, file(500_000)));
    let link = sending.entry(Some(directory), "link", hard_link(begun, "d/begun"));
    sending.end(directory);
    sending.decide();
    sending.piece(begun, 0, false, &[1; 100_000]);
    sending.flush();
    sending.abandon(begun);
    sending.abandon(not_begun);
    sending.content(whole, &[2; 500_000]);
    let report = sending.report();
    assert_eq!((report.files, report.failed, report.directories), (1, 3, 1));
    assert!(sending.done.contains(&directory.0));
    assert!(
        sending
            .failed
            .iter()
            .map(|failure| failure.id)
            .eq([Some(link)])
    );
    assert_eq!(ground.names(), ["d", "d/whole"]);
}

#[test]
fn a_name_that_is_taken_meanwhile_fails_and_stays() {
    let ground = RootDir::new();
    let mut sending = ground.start(TreeRules::default());
    let id = sending.entry(None, "f", file(3));
    sending.decide();
    fs::write(ground.at("f"), "mine").unwrap();
    sending.content(id, b"new");
    assert_eq!(sending.report().failed, 1);
    assert_eq!(sending.failed[0].code, FailCode::Exists);
    assert_eq!(ground.read("f"), "mine");
    assert_eq!(ground.names().len(), 1);
}

#[test]
fn what_another_program_puts_into_a_new_directory_stays() {
    let ground = RootDir::new();
    let mut sending = ground.start(replacing());
    let directory = sending.directory(None, "d");
    sending.decide();
    let names = ["file", "link", "directory"];
    for own in &names[..2] {
        fs::write(ground.at("d").join(own), "mine").unwrap();
    }
    fs::create_dir(ground.at("d/directory")).unwrap();
    let file = sending.entry(Some(directory), "file", file(3));
    sending.entry(Some(directory), "link", symlink("target"));
    let inner = sending.directory(Some(directory), "directory");
    sending.end(inner);
    sending.end(directory);
    sending.decide();
    sending.content(file, b"new");
    assert_eq!(sending.report().failed, 2);
    assert_eq!(sending.verdict(inner), Same);
    for own in &names[..2] {
        assert_eq!(ground.read(&format!("d/{own}")), "mine");
    }
}

#[test]
fn what_a_killed_attempt_left_is_no_obstacle() {
    let ground = RootDir::new();
    let hidden = crate::file::hidden_name("f".as_ref(), &[7; 32], "part");
    fs::write(ground.root().join(&hidden), "a leftover, and longer").unwrap();
    let mut sending = ground.start(TreeRules::default());
    let id = sending.entry(None, "f", file(3));
    sending.content(id, b"new");
    sending.report();
    assert_eq!(ground.names(), vec!["f".to_owned()]);
    assert_eq!(ground.read("f"), "new");
}

#[test]
fn what_is_in_the_way_of_a_directory_is_one_failure_whatever_was_to_go_into_it() {
    let ground = RootDir::new();
    fs::write(ground.at("d"), "file").unwrap();
    let mut sending = ground.start(replacing());
    let directory = sending.directory(None, "d");
    let sub = sending.directory(Some(directory), "sub");
    let inner = sending.entry(Some(sub), "f", file(1));
    sending.end(sub);
    sending.end(directory);
    let beside = sending.entry(None, "beside", file(1));
    sending.content(beside, b"x");
    let report = sending.report();
    assert_eq!(
        sending.verdicts([directory, sub, inner]),
        [Exists, Blocked, Blocked]
    );
    assert_eq!((report.failed, report.files), (1, 1));
    assert_eq!(ground.names(), ["beside", "d"]);
}

#[test]
fn batches_are_consumed_while_thousands_of_files_are_written() {
    let ground = RootDir::quick();
    let mut sending = ground.start(TreeRules::default());
    let content = [3; 3_000];
    let top = sending.directory(None, "top");
    for round in 1..=6 {
        let name = |index| format!("f{round}-{index}");
        let ids: Vec<EntryId> = (0..1000)
            .map(|index| sending.entry(Some(top), &name(index), file(content.len())))
            .collect();
        sending.decide();
        ids.into_iter().for_each(|id| sending.content(id, &content));
    }
    sending.end(top);
    let report = sending.report();
    assert_eq!((report.files, report.bytes), (6_000, 18_000_000));
    let outcomes = sending.listed.iter().map(|(_, outcome)| outcome);
    let copied = outcomes.filter(|outcome| matches!(outcome, EntryOutcome::Copied { .. }));
    assert_eq!(copied.count(), 6_001);
    assert_eq!(fs::read(ground.at("top/f1-999")).unwrap(), content);
}

/// Requires `NICSTRIPE_SMALL_DISK` to name a directory on a file system with less than 32 MiB free:
/// `mount -t tmpfs -o size=8m tmpfs DIR`.
#[test]
#[ignore = "needs a small file system, named by NICSTRIPE_SMALL_DISK"]
fn a_full_disk_fails_what_does_not_fit() {
    let disk = tempfile::tempdir_in(std::env::var_os("NICSTRIPE_SMALL_DISK").unwrap()).unwrap();
    let ground = RootDir::new();
    let root = std::sync::Arc::new(crate::file::Root::open(disk.path()).unwrap());
    let mut sending = Sending::start(ReceiverRequest {
        root,
        ..ground.request(TreeRules::default())
    });
    let content = vec![5; 1 << 20];
    let mut entry = |name: String| sending.entry(None, &name, file(content.len()));
    let ids: Vec<EntryId> = (0..32).map(|index| entry(format!("f{index}"))).collect();
    sending.decide();
    ids.into_iter().for_each(|id| sending.content(id, &content));
    sending.flush();
    let late = sending.entry(None, "late", file(content.len()));
    let report = sending.report();
    assert!(report.failed > 0 && report.files > 0);
    assert_eq!(report.files + report.failed, 33);
    let mut codes = sending.failed.iter().map(|failure| failure.code);
    assert!(
        codes.all(|code| code == FailCode::NoSpace),
        "{:?}",
        sending.failed
    );
    assert_eq!(sending.verdict(late), Refused);
    let mut left = fs::read_dir(disk.path()).unwrap();
    assert!(left.all(|entry| entry.unwrap().metadata().unwrap().len() == 1 << 20));
}

//! Tests of copies to and from file systems that lack what ext4 has: network shares, disks of other
//! systems, memory cards.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    time::{Duration, UNIX_EPOCH},
};

use nicstripe_testkit::{
    Daemon, Outcome, Process, Side, content, number,
    odd_disk::{
        Lack::{self, *},
        OddDisk,
    },
    pair::{LOOPBACK, MIB, Pair},
    tests,
    tree::plant,
    trial::Test,
};
use rustix::{
    fs::{XattrFlags, lsetxattr},
    process::Signal,
};

pub(crate) use nicstripe_testkit::odd_disk::obstacle;

pub(crate) const TESTS: &[Test] = tests![
    ten_kinds_of_disks_take_every_kind_of_copy,
    a_rename_without_flags_replaces_nothing,
    two_names_that_a_disk_takes_for_one_are_never_both_copied,
    what_a_disk_cannot_keep_is_said_if_it_was_asked_for,
    without_locks_two_copies_of_a_peer_still_exclude_each_other,
    a_root_that_stalls_delays_only_its_own_peer,
];

/// Kinds of disks: what each lacks, and the copies that say something there.
const KINDS: [(&str, &[Lack], &[Ending]); 10] = [
    ("nfs", &[RenameFlags], &[]),
    ("squashed nfs", &[RenameFlags, Owners, Locks], &[LOST]),
    (
        "cifs",
        &[RenameFlags, DirectorySync, Owners, Changes, NTFS_TIMES],
        &[LOST],
    ),
    (
        "sshfs",
        &[RenameFlags, HardLinks, DirectorySync, Times(1_000_000_000)],
        &[NO_LINK],
    ),
    ("9p", &[RenameFlags, DirectorySync, Locks, Xattrs], &[]),
    ("overlay", &[DirectIo], &[]),
    (
        "ntfs-3g",
        &[RenameFlags, DirectIo, Owners, NTFS_TIMES],
        &[LOST],
    ),
    (
        "exfat",
        &[
            RenameFlags,
            HardLinks,
            DirectIo,
            Symlinks,
            Owners,
            Changes,
            Xattrs,
            Times(10_000_000),
        ],
        &[NO_SYMLINK],
    ),
    (
        "fat",
        &[
            HardLinks,
            DirectIo,
            Symlinks,
            Owners,
            Changes,
            Xattrs,
            Times(2_000_000_000),
        ],
        &[NO_SYMLINK],
    ),
    ("ext4 with casefold", &[Case], &[]),
];

const LOST: Ending = (
    "all",
    0,
    " without all attributes (the disk cannot keep them, or",
);
const NO_LINK: Ending = ("all", 23, "cannot link \"all/");
const NO_SYMLINK: Ending = (
    "all",
    23,
    "cannot make symbolic link \"all/symlink\": Operation not permitted",
);

/// Times of NTFS, also over SMB.
const NTFS_TIMES: Lack = Times(100);

/// Name of a copy, its exit code, and a part of its output.
type Ending = (&'static str, i32, &'static str);

type Copying = fn(&Disks) -> Outcome;

/// Copies of the table, in order, each to or from the daemon's disk of that kind.
const COPIES: [(&str, Copying); 8] = [
    ("put", |disks| disks.pair.cp(&["f", "127.0.0.1:"])),
    ("get", |disks| disks.pair.cp(&["127.0.0.1:f", "disk/f"])),
    ("pipe", |disks| {
        let command = disks.pair.cp_command(&["-", "127.0.0.1:pipe"]);
        Process::spawn_fed(command, content(MIB)).finish()
    }),
    ("tree", |disks| disks.pair.cp(&["-r", "src", "127.0.0.1:"])),
    ("tree back", |disks| {
        disks.pair.cp(&["-r", "127.0.0.1:src", "disk/"])
    }),
    ("rerun", |disks| disks.pair.cp(&["-r", "src", "127.0.0.1:"])),
    ("all", |disks| disks.pair.cp(&["-aHv", "all", "127.0.0.1:"])),
    ("resume", Disks::resume),
];

/// Client and daemon, each with a disk of one kind.
struct Disks {
    /// Unmounted before the sides remove their folders.
    _disks: [OddDisk; 2],
    pair: Pair,
}

impl Disks {
    /// The daemon serves its disk; that of the client is its folder `disk`.
    fn lacking(lacks: &[Lack]) -> Self {
        let (client, server) = (Side::here(), Side::here());
        client.make_dir("disk");
        let mount = |folder| OddDisk::mount(folder, lacks).unwrap();
        let disks = [mount(&client.path("disk")), mount(&server.files())];
        client.trust(&server, "nas", "");
        server.trust(&client, "laptop", "");
        let daemon = Daemon::start(&server, &LOOPBACK);
        let pair = Pair {
            client,
            server,
            daemon,
        };
        Self {
            _disks: disks,
            pair,
        }
    }

    /// Kills a copy after its data was synced, and repeats it.
    fn resume(&self) -> Outcome {
        const LEN: usize = 12 * MIB;
        self.pair.client.write("big", content(LEN));
        let arguments = ["--bwlimit", "4M", "--json-stream", "big", "127.0.0.1:"];
        let copy = self.pair.start_cp(&arguments);
        copy.await_bytes(LEN as u64 * 3 / 4);
        copy.signal(Signal::KILL);
        copy.finish();
        let outcome = self.pair.cp(&["--json", "big", "127.0.0.1:"]);
        let resumed = number(&outcome.document(), "resumed_bytes");
        assert!(resumed > 0, "{outcome}");
        outcome
    }
}

fn ten_kinds_of_disks_take_every_kind_of_copy() {
    std::thread::scope(|scope| {
        for (kind, lacks, failing) in KINDS {
            scope.spawn(move || {
                let disks = Disks::lacking(lacks);
                let (client, server) = (&disks.pair.client, &disks.pair.server);
                client.write("f", content(MIB));
                for (name, len) in [("a", 5), ("sub/b", 0), ("sub/large", 5 * MIB)] {
                    plant(&client.path("src"), name, content(len));
                }
                plant(&client.path("all"), "one", "bytes");
                fs::hard_link(client.path("all/one"), client.path("all/two")).unwrap();
                symlink("one", client.path("all/symlink")).unwrap();
                // No unit but a nanosecond keeps this time.
                let time = UNIX_EPOCH + Duration::new(1_700_000_001, 987_654_321);
                for name in ["a", "sub/b", "sub/large"] {
                    let file = fs::File::open(client.path("src").join(name)).unwrap();
                    file.set_modified(time).unwrap();
                }
                for (name, copy) in COPIES {
                    let outcome = copy(&disks);
                    let (code, sentence) = failing
                        .iter()
                        .find(|(failing, ..)| *failing == name)
                        .map_or((0, ""), |(_, code, sentence)| (*code, *sentence));
                    let is_so = outcome.status.code() == Some(code)
                        && outcome.stderr.contains(sentence)
                        && (name != "rerun" || outcome.stderr.contains("3 unchanged"));
                    assert!(is_so, "{name} on {kind}: {outcome}");
                }
                for (side, name, len) in [
                    (server, "f", MIB),
                    (client, "disk/f", MIB),
                    (server, "pipe", MIB),
                    (server, "src/a", 5),
                    (server, "src/sub/b", 0),
                    (server, "src/sub/large", 5 * MIB),
                    (client, "disk/src/sub/large", 5 * MIB),
                    (server, "big", 12 * MIB),
                ] {
                    assert!(side.read(name) == content(len), "{name} on {kind}");
                }
                assert_eq!(server.names(), ["all", "big", "f", "pipe", "src"], "{kind}");
            });
        }
    });
}

fn a_rename_without_flags_replaces_nothing() {
    for lacks in [&[RenameFlags][..], &[RenameFlags, HardLinks]] {
        let disks = Disks::lacking(lacks);
        let pair = &disks.pair;
        pair.client.write("f", content(4 * MIB));
        let options = ["--no-replace", "--bwlimit", "2M", "--json-stream"];
        let copy = pair.start_cp(&[&options[..], &["f", "127.0.0.1:"]].concat());
        copy.await_bytes(MIB as u64);
        // Appears while the copy runs.
        pair.server.write("f", "theirs");
        let outcome = copy
            .finish()
            .expect(11)
            .error(&["\"f\" exists and differs"]);
        assert_eq!(pair.server.read("f"), b"theirs", "{outcome}");
    }
}

fn without_locks_two_copies_of_a_peer_still_exclude_each_other() {
    let disks = Disks::lacking(&[Locks]);
    let pair = &disks.pair;
    pair.client.write("f", content(4 * MIB));
    let first = pair.start_cp(&["--bwlimit", "256K", "--json-stream", "f", "127.0.0.1:"]);
    first.await_bytes(1);
    let second = pair.cp(&["f", "127.0.0.1:"]).expect(5);
    second.error(&["another transfer is writing it"]);
    first.kill();
    pair.cp(&["f", "127.0.0.1:"]).expect(0);
    assert!(pair.server.read("f") == content(4 * MIB));
}

fn what_a_disk_cannot_keep_is_said_if_it_was_asked_for() {
    for (lacks, options, lost) in [
        (&[][..], "-ra", 0),
        (&[Changes], "-r", 0),
        (&[Changes], "-ra", 1),
        (&[Owners], "-ra", 3),
        (&[Owners, Changes], "-rp", 3),
        (&[Xattrs], "-r", 0),
        (&[Xattrs], "-ra", 1),
    ] {
        let disks = Disks::lacking(lacks);
        let pair = &disks.pair;
        let src = pair.client.path("src");
        plant(&src, "sub/file", "bytes");
        fs::set_permissions(src.join("sub/file"), Permissions::from_mode(0o604)).unwrap();
        let value = lsetxattr(src.join("sub/file"), "user.a", b"b", XattrFlags::empty());
        let lost = if value.is_err() && lost == 1 { 0 } else { lost };
        // The second copy sends nothing, and says the same.
        for _ in 0..2 {
            let outcome = pair.cp(&[options, "--json", "src", "127.0.0.1:"]).expect(0);
            let tree = &outcome.document()["tree"];
            assert_eq!(
                number(tree, "stripped"),
                lost,
                "{lacks:?} {options} {outcome}"
            );
        }
        assert_eq!(pair.server.read("src/sub/file"), b"bytes");
    }
}

/// Also where each spelling has its own inode.
fn two_names_that_a_disk_takes_for_one_are_never_both_copied() {
    for lacks in [&[Case][..], &[Case, Inodes], &[Case, Inodes, RenameFlags]] {
        never_copies_both(lacks);
    }
}

fn never_copies_both(lacks: &[Lack]) {
    let disks = Disks::lacking(lacks);
    let pair = &disks.pair;
    for (name, bytes) in [
        ("Readme", "one"),
        ("README", "other"),
        ("Dir/a", "a"),
        ("dir/b", "b"),
        ("same", "same"),
    ] {
        plant(&pair.client.path("src"), name, bytes);
    }
    let mut placed = Vec::new();
    for options in ["-r", "-r", "-rf", "-rf"] {
        for delete in [&[][..], &["--delete"]] {
            let arguments = [delete, &[options, "--json", "src/", "127.0.0.1:"]].concat();
            let outcome = pair.cp(&arguments).expect(23);
            let tree = &outcome.document()["tree"];
            // One of the two files, and one of the two directories.
            assert_eq!(number(tree, "failed"), 2, "{outcome}");
            assert_eq!(number(tree, "deleted"), 0, "{outcome}");
            let names = pair.server.names();
            assert_eq!(names.len(), 3, "{names:?}");
            let read = pair.server.read("readme");
            let expected: &[u8] = if names.contains(&"Readme".into()) {
                b"one"
            } else {
                b"other"
            };
            assert_eq!(read, expected, "{names:?} {outcome}");
            if !placed.is_empty() {
                assert_eq!(placed, names);
                assert_eq!(number(tree, "files"), 0, "{outcome}");
            }
            placed = names;
        }
    }
}

fn a_root_that_stalls_delays_only_its_own_peer() {
    let [client, other, server] = std::array::from_fn(|_| Side::here());
    server.make_dir("disk");
    let root = server.path("disk");
    // Before the daemon starts, which sees no later mount of this thread.
    let disk = OddDisk::mount(&root, &[]).unwrap();
    for (side, name, rights) in [
        (&client, "laptop", String::new()),
        (&other, "other", format!("root={}", root.display())),
    ] {
        side.trust(&server, "nas", "");
        server.trust(side, name, &rights);
    }
    let daemon = Daemon::start(&server, &LOOPBACK);
    let pair = Pair {
        client,
        server,
        daemon,
    };
    for side in [&pair.client, &other] {
        side.write("f", content(MIB));
    }
    let copy = || other.start(pair.cp_arguments(&["f", "127.0.0.1:"]));
    copy().finish().expect(0);
    let running = pair.start_cp(&["--bwlimit", "1M", "f", "127.0.0.1:slow"]);
    disk.stall();
    let stalled: Vec<_> = (0..4).map(|_| copy()).collect();
    for number in 0..5 {
        let name = format!("127.0.0.1:f{number}");
        pair.cp(&["--timeout", "5s", "f", &name]).expect(0);
    }
    running.finish().expect(0);
    disk.release();
    for copy in stalled {
        copy.finish();
    }
    other
        .run(pair.cp_arguments(&["-f", "f", "127.0.0.1:"]))
        .expect(0);
    assert!(fs::read(root.join("f")).unwrap() == content(MIB));
}

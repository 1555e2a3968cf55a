//! Tests of a tree's sender and receiver, connected without a session.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use nicstripe_proto::{
    Name,
    message::WalkRules,
    tree::{ENTRY_FOOTPRINT, EntryId, TreeMessage, TreeRules},
};

use super::{
    allowance::{Receiving, Sending},
    channel::{
        Backlog, ReceiverChannel, ReceiverInput, SenderChannel, SenderInput, TreeChannel,
        WalkProgress,
    },
    filter::Filters,
    options::{EntryOutcome, TreeReport},
    receiver::ReceiverRequest,
    sender::SenderRequest,
    walk::SendSource,
};
use crate::file::{BufferPool, ChunkBuffer, FileError, IoPool, Root};

/// Rules of a recursive walk without further options.
pub(super) const RECURSIVE: WalkRules = WalkRules {
    recursive: true,
    hard_links: false,
    one_file_system: false,
    only: None,
    allow_changing: false,
    compress: false,
    share: None,
    pieces: false,
    only_directories: false,
};

type Result<T> = std::result::Result<T, FileError>;

/// Simulated channel of the sender, connected to the receiver of a tree.
struct There {
    memory: Option<u64>,
    buffers: BufferPool,
    receiver: mpsc::Sender<ReceiverInput>,
    done: mpsc::Sender<Result<TreeReport>>,
}

impl SenderChannel for There {
    fn receivers_memory(&self) -> Option<u64> {
        self.memory
    }

    fn buffer(&self) -> ChunkBuffer {
        self.buffers.take()
    }

    fn send(&mut self, batch: ChunkBuffer) -> bool {
        self.receiver.send(ReceiverInput::Batch(batch)).is_ok()
    }

    fn last(&mut self) -> bool {
        self.receiver.send(ReceiverInput::End).is_ok()
    }
}

impl TreeChannel for There {
    fn start_standalone(&mut self, _: EntryId, _: u64) -> bool {
        panic!("a large file");
    }

    fn tell(&mut self, _: &Name, _: EntryOutcome) -> bool {
        true
    }

    fn progress(&mut self, _: WalkProgress) -> bool {
        true
    }

    fn finish(self: Box<Self>, result: Result<TreeReport>) {
        drop(self.done.send(result));
    }
}

/// Simulated channel of the receiver, connected to the sender of a tree, which starts later.
struct Back {
    sender: Arc<OnceLock<mpsc::Sender<SenderInput>>>,
    done: mpsc::Sender<Result<TreeReport>>,
}

impl Back {
    fn say(&self, input: SenderInput) -> bool {
        self.sender.wait().send(input).is_ok()
    }
}

impl ReceiverChannel for Back {
    fn send(&mut self, message: TreeMessage) -> bool {
        self.say(SenderInput::Message(
            Backlog::new(64 << 20, true).queue(message).unwrap(),
        ))
    }

    fn consumed(&mut self) -> bool {
        true
    }
}

impl TreeChannel for Back {
    fn start_standalone(&mut self, _: EntryId, _: u64) -> bool {
        true
    }

    fn tell(&mut self, _: &Name, _: EntryOutcome) -> bool {
        true
    }

    fn progress(&mut self, _: WalkProgress) -> bool {
        true
    }

    fn finish(self: Box<Self>, result: Result<TreeReport>) {
        self.say(if result.is_ok() {
            SenderInput::Committed
        } else {
            SenderInput::Stop
        });
        drop(self.done.send(result));
    }
}

/// Copies the contents of `source` into the existing directory `target`. Asserts that sender and
/// receiver report equal counts, except those that only the sender has.
fn copy(source: &Path, target: &Path, rules: &TreeRules) -> TreeReport {
    copy_within(source, target, rules, Receiving::OWN, Sending::OWN)
}

/// Like `copy`, with these memory limits for sender and receiver.
fn copy_within(
    source: &Path,
    target: &Path,
    rules: &TreeRules,
    receiving: Receiving,
    sending: Sending,
) -> TreeReport {
    let rules = &TreeRules {
        hard_links: true,
        ..rules.clone()
    };
    let pool = IoPool::start().unwrap();
    let (sender, filters) = (
        Arc::new(OnceLock::new()),
        Filters::new(&rules.filters).unwrap(),
    );
    let (done, here) = mpsc::channel();
    let request = ReceiverRequest {
        root: Arc::new(Root::open(target).unwrap()),
        target: None,
        as_name: false,
        rules: rules.clone(),
        peer_key: [7; 32],
        append_only: false,
        privileged: true,
        list: false,
        promised: None,
        filters,
        allowance: receiving,
    };
    let receiver = request
        .into_run(())
        .start(
            pool.clone(),
            Box::new(Back {
                sender: sender.clone(),
                done,
            }),
        )
        .unwrap();

    let (done, there) = mpsc::channel();
    let sources = vec![SendSource::Path(source.join(""))];
    let request = SenderRequest {
        sources,
        rules: rules.clone(),
        walk: WalkRules {
            recursive: true,
            hard_links: true,
            ..WalkRules::default()
        },
        allowance: sending,
        ..SenderRequest::default()
    };
    let channel = Box::new(There {
        memory: receiving.announced,
        buffers: BufferPool::default(),
        receiver,
        done,
    });
    sender
        .set(request.into_run(()).start(pool, channel).unwrap())
        .ok()
        .unwrap();

    let sent = there.recv_timeout(DEADLINE).unwrap().unwrap();
    let received = here.recv_timeout(DEADLINE).unwrap().unwrap();
    let common = |report: TreeReport| TreeReport {
        special: 0,
        failures: Vec::new(),
        ..report
    };
    assert_eq!(common(sent.clone()), common(received));
    sent
}

const DEADLINE: Duration = Duration::from_secs(60);

/// Returns all entries beneath a directory: type and content, mode, modification time and link
/// count.
fn all_in(dir: &Path) -> BTreeMap<String, (String, u32, i64, u64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = match meta.file_type() {
            kind if kind.is_dir() => {
                left.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                "a directory".into()
            }
            kind if kind.is_symlink() => format!("to {:?}", fs::read_link(&path).unwrap()),
            _ => format!("{:?}", fs::read(&path).unwrap()),
        };
        let links = if meta.is_dir() { 0 } else { meta.nlink() };
        let name = path.strip_prefix(dir).unwrap().display().to_string();
        found.insert(name, (content, meta.mode(), meta.mtime_nsec(), links));
    }
    found
}

/// Creates directories, files of several sizes, symbolic and hard links, and files with various
/// modes.
fn plant(dir: &Path) {
    for index in 0..40 {
        let sub = dir.join(format!("d{}/e{index}", index % 3));
        fs::create_dir_all(&sub).unwrap();
        for (name, size) in [("none", 0), ("few", index), ("many", 5000 * index)] {
            fs::write(sub.join(name), vec![index as u8; size]).unwrap();
        }
        fs::set_permissions(
            sub.join("few"),
            fs::Permissions::from_mode(0o600 | index as u32),
        )
        .unwrap();
        fs::hard_link(sub.join("few"), sub.join("also")).unwrap();
        symlink("few", sub.join("link")).unwrap();
    }
    fs::set_permissions(dir.join("d1/e1"), fs::Permissions::from_mode(0o500)).unwrap();
}

fn ground() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let [source, target] = ["source", "target"].map(|name| dir.path().join(name));
    [&source, &target]
        .into_iter()
        .for_each(|path| fs::create_dir(path).unwrap());
    (dir, source, target)
}

fn keeping() -> TreeRules {
    TreeRules {
        modes: true,
        ..TreeRules::default()
    }
}

#[test]
fn a_tree_is_the_same_there_and_copied_again_nothing_is_sent() {
    let (_dir, source, target) = ground();
    plant(&source);
    let first = copy(&source, &target, &keeping());
    assert_eq!(first.files, 120);
    assert_eq!(first.directories, 43);
    assert_eq!(first.symlinks, 40);
    assert_eq!(first.hard_links, 40);
    assert_eq!(all_in(&source), all_in(&target));
    for rules in [
        keeping(),
        TreeRules {
            checksum: true,
            delete: true,
            replace: true,
            ..keeping()
        },
    ] {
        let again = copy(&source, &target, &rules);
        let expected = TreeReport {
            unchanged: 200,
            ..TreeReport::default()
        };
        assert_eq!(again, expected);
    }
    assert_eq!(all_in(&source), all_in(&target));
}

#[test]
fn a_dry_run_reports_what_a_run_then_does() {
    let (_dir, source, target) = ground();
    plant(&source);
    let rules = TreeRules {
        delete: true,
        replace: true,
        filters: vec!["e2*".into()],
        ..keeping()
    };
    for change in 0..3 {
        match change {
            0 => {}
            1 => {
                fs::write(source.join("d0/e0/few"), "other").unwrap();
                fs::create_dir_all(target.join("d0/surplus/deep")).unwrap();
                fs::write(target.join("d0/surplus/deep/f"), "1").unwrap();
                fs::create_dir_all(target.join("d2/e2-is-left-out")).unwrap();
            }
            _ => {
                fs::remove_dir_all(source.join("d1/e4")).unwrap();
                fs::write(target.join("late"), "1").unwrap();
            }
        }
        let before = all_in(&target);
        let dry = copy(
            &source,
            &target,
            &TreeRules {
                dry_run: true,
                ..rules.clone()
            },
        );
        assert_eq!(before, all_in(&target), "{change}");
        let run = copy(&source, &target, &rules);
        assert_eq!(dry, run, "{change}");
        assert_eq!(run.failed, 0, "{change}");
        assert!(change == 0 || run.deleted > 0, "{change} {run:?}");
    }
    assert!(
        target.join("d2/e2-is-left-out").exists()
            && !target.join("d0/surplus").exists()
            && !target.join("late").exists()
    );
}

#[test]
fn what_is_in_the_way_fails_and_both_ends_say_so() {
    let (_dir, source, target) = ground();
    plant(&source);
    fs::write(target.join("d0"), "a file in place of a directory").unwrap();
    fs::create_dir_all(target.join("d1/e1/none")).unwrap();
    fs::create_dir_all(target.join("d2/e2")).unwrap();
    fs::write(target.join("d2/e2/few"), "something else").unwrap();
    let report = copy(&source, &target, &keeping());
    // Directory d0, a file, and a hard link to a file.
    assert_eq!(report.failed, 3, "{report:?}");
    assert_eq!(
        fs::read(target.join("d2/e2/few")).unwrap(),
        b"something else"
    );
    assert_eq!(
        fs::read(source.join("d2/e5/many")).unwrap(),
        fs::read(target.join("d2/e5/many")).unwrap()
    );
}

#[test]
fn many_directories_of_one_file_each_are_copied_twice() {
    let (_dir, source, target) = ground();
    for index in 0..300 {
        let sub = source.join(format!("{index}/a/b"));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join("f"), format!("{index}")).unwrap();
    }
    let first = copy(&source, &target, &keeping());
    assert_eq!((first.files, first.directories), (300, 900));
    (0..300).for_each(|index| fs::write(source.join(format!("{index}/a/b/f")), "changed").unwrap());
    let second = copy(
        &source,
        &target,
        &TreeRules {
            replace: true,
            ..keeping()
        },
    );
    assert_eq!(second.files, 300);
    assert_eq!(second.directories, 0);
    assert_eq!(second.failed, 0);
}

#[test]
fn a_tree_with_the_least_memory_arrives_whole() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // All at once would need twice the receiver's memory.
    let least = Receiving::within(Receiving::LEASE.0, true);
    let files = 2 * least.entries / (ENTRY_FOOTPRINT + 4 * 250);
    let name = |file: usize| format!("{file:0250}");
    (0..files).for_each(|file| fs::write(source.path().join(name(file)), name(file)).unwrap());
    fs::write(source.path().join("large"), vec![7; 3 << 20]).unwrap();
    let report = copy_within(
        source.path(),
        target.path(),
        &TreeRules::default(),
        least,
        Sending::within(Sending::LEASE.0),
    );
    assert_eq!((report.files, report.failed), (files as u64 + 1, 0));
    assert!(
        (0..files)
            .all(|file| fs::read_to_string(target.path().join(name(file))).unwrap() == name(file))
    );
    assert_eq!(
        fs::read(target.path().join("large")).unwrap(),
        vec![7; 3 << 20]
    );
}

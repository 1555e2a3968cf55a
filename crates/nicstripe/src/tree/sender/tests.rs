use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Instant,
};

use nicstripe_proto::Name;
use nicstripe_proto::tree::{BatchReader, Entry, MOST_PENDING, MOST_UNDECIDED, Share};

use super::*;
use crate::{
    file::{BufferPool, ChunkBuffer},
    tree::{
        channel::{Backlog, TreeChannel, WalkProgress},
        options::{EntryOutcome, TreeReport},
        tests::RECURSIVE,
    },
};

/// Recorded call of the sender on its channel.
enum ChannelCall {
    Batch(Vec<u8>),
    Last,
    Standalone(EntryId),
    Announced(String, EntryOutcome),
    Progress(WalkProgress),
    Finished(Result<TreeReport, FileError>),
}

struct FakeChannel {
    buffers: BufferPool,
    given: mpsc::Sender<ChannelCall>,
}

impl SenderChannel for FakeChannel {
    fn buffer(&self) -> ChunkBuffer {
        self.buffers.take()
    }

    fn send(&mut self, batch: ChunkBuffer) -> bool {
        assert!(!batch.bytes().is_empty() && batch.bytes().len() <= MAX_PAYLOAD);
        self.given
            .send(ChannelCall::Batch(batch.bytes().to_vec()))
            .is_ok()
    }

    fn last(&mut self) -> bool {
        self.given.send(ChannelCall::Last).is_ok()
    }
}

impl TreeChannel for FakeChannel {
    fn start_standalone(&mut self, id: EntryId, _: u64) -> bool {
        self.given.send(ChannelCall::Standalone(id)).is_ok()
    }

    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool {
        self.given
            .send(ChannelCall::Announced(name.to_string(), outcome))
            .is_ok()
    }

    fn progress(&mut self, progress: WalkProgress) -> bool {
        self.given.send(ChannelCall::Progress(progress)).is_ok()
    }

    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>) {
        let _ = self.given.send(ChannelCall::Finished(result));
    }
}

/// Simulated receiver; each test chooses its answers.
struct Peer {
    inputs: mpsc::Sender<SenderInput>,
    given: Receiver<ChannelCall>,
    thread: Option<JoinHandle<()>>,
    entries: Vec<Entry>,
    contents: BTreeMap<String, Vec<u8>>,
    ended: BTreeSet<EntryId>,
    abandoned: Vec<EntryId>,
    alone: Vec<EntryId>,
    told: Vec<(String, EntryOutcome)>,
    progress: WalkProgress,
    batches: usize,
    is_last: bool,
    result: Option<Result<TreeReport, FileError>>,
}

impl Peer {
    fn start(request: SenderRequest) -> Self {
        let (inputs, receiver) = mpsc::channel();
        let (given, taken) = mpsc::channel();
        let channel = Box::new(FakeChannel {
            buffers: BufferPool::default(),
            given,
        });
        let (pool, handle) = (IoPool::start().unwrap(), inputs.clone());
        let thread = thread::spawn(move || run(request, receiver, handle, pool, channel));
        Self {
            inputs,
            given: taken,
            thread: Some(thread),
            entries: Vec::new(),
            contents: BTreeMap::new(),
            ended: BTreeSet::new(),
            abandoned: Vec::new(),
            alone: Vec::new(),
            told: Vec::new(),
            progress: WalkProgress::default(),
            batches: 0,
            is_last: false,
            result: None,
        }
    }

    fn say(&self, message: TreeMessage) {
        let _ = self.inputs.send(SenderInput::Message(
            Backlog::new(64 << 20, true).queue(message).unwrap(),
        ));
    }

    fn decide(&self, first: u64, verdicts: Vec<Verdict>) {
        self.say(TreeMessage::Verdicts {
            first: EntryId(first),
            verdicts,
        });
    }

    fn done(&self, first: u64, count: u64) {
        self.say(TreeMessage::Results {
            done: vec![(EntryId(first), count)],
            failed: vec![],
            deleted: vec![],
            stripped: None,
        });
    }

    fn commit(&self) {
        let _ = self.inputs.send(SenderInput::Committed);
    }

    fn fail(&self, id: Option<u64>, code: FailCode, text: &str) {
        let failure = EntryFailure {
            id: id.map(EntryId),
            code,
            text: text.into(),
        };
        self.say(TreeMessage::Results {
            done: vec![],
            failed: vec![failure],
            deleted: vec![],
            stripped: None,
        });
    }

    /// Records the sender's next call; returns false if none arrives within `timeout`.
    fn take(&mut self, timeout: Duration) -> bool {
        match self.given.recv_timeout(timeout) {
            Ok(ChannelCall::Batch(batch)) => self.take_batch(&batch),
            Ok(ChannelCall::Last) => self.is_last = true,
            Ok(ChannelCall::Standalone(id)) => self.alone.push(id),
            Ok(ChannelCall::Announced(name, outcome)) => self.told.push((name, outcome)),
            Ok(ChannelCall::Progress(progress)) => self.progress = progress,
            Ok(ChannelCall::Finished(result)) => self.result = Some(result),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    fn take_batch(&mut self, batch: &[u8]) {
        assert!(!self.is_last, "a batch after the last");
        self.batches += 1;
        for record in BatchReader::new(batch) {
            match record.unwrap() {
                Record::Entry(entry) => {
                    assert_eq!(entry.id.0, self.entries.len() as u64);
                    self.entries.push(*entry);
                }
                Record::Piece {
                    id,
                    offset,
                    last,
                    bytes,
                } => self.take_piece(id, offset, last, bytes),
                Record::EndDirectory { id, .. } => assert!(self.ended.insert(id)),
                Record::Trouble(_) | Record::Special(_) => {}
                Record::Abandoned { id, .. } => {
                    assert!(self.ended.insert(id));
                    self.abandoned.push(id);
                }
            }
        }
    }

    fn take_piece(&mut self, id: EntryId, offset: u64, last: bool, bytes: &[u8]) {
        let Content::File { size, .. } = self.entries[id.0 as usize].content else {
            panic!("data without a file")
        };
        let content = self.contents.entry(self.path(id)).or_default();
        assert_eq!(offset, content.len() as u64);
        assert!(!bytes.is_empty() || size == 0);
        content.extend(bytes);
        assert_eq!(last, content.len() as u64 == size);
        if last {
            assert!(self.ended.insert(id), "two ends of {id:?}");
        }
    }

    fn path(&self, id: EntryId) -> String {
        let entry = &self.entries[id.0 as usize];
        let above = entry
            .parent
            .map(|parent| self.path(parent))
            .filter(|above| !above.is_empty());
        let name = entry.name.as_ref().map(Name::to_string).unwrap_or_default();
        above.map_or(name.clone(), |above| format!("{above}/{name}"))
    }

    fn take_until(&mut self, until: impl Fn(&Self) -> bool) {
        while !until(self) {
            assert!(self.take(DEADLINE), "nothing more came");
        }
    }

    /// Records the sender's calls until it is idle.
    fn take_all(&mut self) {
        while self.take(QUIET) {}
    }

    /// Answers each entry with `verdict`, and reports all entries as done after the last batch.
    fn serve(&mut self, verdict: impl Fn(&Entry) -> Verdict) -> TreeReport {
        let mut decided = 0;
        while !self.is_last && self.result.is_none() {
            assert!(self.take(DEADLINE), "nothing more came");
            if decided < self.entries.len() {
                self.decide(
                    decided as u64,
                    self.entries[decided..].iter().map(&verdict).collect(),
                );
                decided = self.entries.len();
            }
        }
        self.done(0, self.entries.len() as u64);
        self.report()
    }

    /// Commits after the last batch, and returns the sender's report.
    fn report(&mut self) -> TreeReport {
        self.take_until(|peer| peer.is_last);
        self.commit();
        self.end().unwrap()
    }

    fn end(&mut self) -> Result<TreeReport, FileError> {
        self.take_until(|peer| peer.result.is_some());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.result.take().unwrap()
    }
}

const DEADLINE: Duration = Duration::from_secs(20);

/// Time without a call after which the sender counts as idle.
const QUIET: Duration = Duration::from_millis(200);

fn create(_: &Entry) -> Verdict {
    Verdict::Create
}

const CHANGING: WalkRules = WalkRules {
    allow_changing: true,
    ..RECURSIVE
};

fn request(source: &Path) -> SenderRequest {
    SenderRequest {
        sources: vec![SendSource::Path(source.join(""))],
        walk: RECURSIVE,
        list: true,
        ..SenderRequest::default()
    }
}

fn names(peer: &Peer, outcome: impl Fn(&EntryOutcome) -> bool) -> Vec<&str> {
    peer.told
        .iter()
        .filter(|(_, found)| outcome(found))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Returns `len` bytes that depend on their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn a_tree_arrives_with_the_contents_that_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("a"), "aaa").unwrap();
    fs::write(dir.path().join("d/empty"), "").unwrap();
    fs::write(dir.path().join("d/same"), "same").unwrap();
    std::os::unix::fs::symlink("a", dir.path().join("l")).unwrap();

    let mut peer = Peer::start(request(dir.path()));
    let report = peer.serve(|entry| match &entry.name {
        Some(name) if name.file_name() == b"same" => Verdict::Same,
        Some(name) if name.file_name() == b"a" => Verdict::Replace,
        None => Verdict::Same,
        Some(_) => Verdict::Create,
    });
    assert_eq!(
        peer.contents,
        BTreeMap::from([("a".into(), b"aaa".to_vec()), ("d/empty".into(), vec![])])
    );
    let expected = TreeReport {
        files: 2,
        bytes: 3,
        directories: 1,
        symlinks: 1,
        unchanged: 1,
        ..TreeReport::default()
    };
    assert_eq!(report, expected);
    let copied = names(&peer, |outcome| {
        matches!(outcome, EntryOutcome::Copied { .. })
    });
    assert_eq!(copied, ["a", "d", "d/empty", "l"]);
    assert_eq!(
        names(&peer, |outcome| matches!(
            outcome,
            EntryOutcome::Skipped(Verdict::Same)
        )),
        ["d/same"]
    );
    let progress = WalkProgress {
        files: 3,
        bytes: 7,
        skipped_bytes: 4,
        files_done: 3,
        complete: true,
    };
    assert_eq!(peer.progress, progress);
}

#[test]
fn files_of_every_size_about_a_batches_arrive_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let room = MAX_PAYLOAD - PIECE_HEADER;
    let sizes = [
        0,
        1,
        room - 1,
        room,
        room + 1,
        2 * room,
        2 * room + 1,
        MAX_PAYLOAD,
        4 << 20,
    ];
    for size in sizes {
        fs::write(dir.path().join(format!("f{size}")), pattern(size)).unwrap();
    }
    let mut peer = Peer::start(request(dir.path()));
    let report = peer.serve(create);
    assert_eq!((report.files, report.failed), (sizes.len() as u64, 0));
    for size in sizes {
        assert!(
            peer.contents[&format!("f{size}")] == pattern(size),
            "{size}"
        );
    }
}

#[test]
fn small_files_share_batches() {
    let dir = tempfile::tempdir().unwrap();
    (0..1000)
        .for_each(|index| fs::write(dir.path().join(format!("{index}")), pattern(index)).unwrap());
    let mut peer = Peer::start(request(dir.path()));
    let report = peer.serve(create);
    assert_eq!((report.files, report.bytes), (1000, 999 * 1000 / 2));
    // 500 KB of contents and 50 KB of entries need at least 3 batches; a slow disk may exceed
    // `BATCH_PATIENCE` at times.
    assert!(peer.batches < 60, "{} batches", peer.batches);
}

#[test]
fn large_files_are_announced_by_pieces_and_kept_for_the_caller_only_if_it_copies_them() {
    let dir = tempfile::tempdir().unwrap();
    let large = fs::File::create(dir.path().join("large")).unwrap();
    large.set_len(2 << 30).unwrap();
    for reports_large in [false, true] {
        let walk = WalkRules {
            share: Share::new(1, 1).ok(),
            pieces: true,
            ..RECURSIVE
        };
        let report = Peer::start(SenderRequest {
            walk,
            reports_large,
            ..request(dir.path())
        })
        .serve(create);
        assert_eq!((report.files, report.special), (0, 0));
        let pieces = report.large.iter().map(|(_, file)| file.pieces().count());
        assert_eq!(pieces.sum::<usize>(), if reports_large { 128 } else { 0 });
    }
}

#[test]
fn a_receiver_that_does_not_decide_holds_the_walk_back() {
    let dir = tempfile::tempdir().unwrap();
    (0..20_000)
        .for_each(|index| drop(fs::File::create(dir.path().join(format!("{index}"))).unwrap()));
    let mut peer = Peer::start(request(dir.path()));
    peer.take_until(|peer| peer.entries.len() >= MOST_UNDECIDED);
    peer.take_all();
    assert_eq!(peer.entries.len(), MOST_UNDECIDED);

    // Decided but without results: the walk continues up to the limit of pending entries.
    let mut decided = 0;
    while decided < MOST_PENDING {
        peer.decide(
            decided as u64,
            vec![Verdict::Create; peer.entries.len() - decided],
        );
        decided = peer.entries.len();
        let most = MOST_PENDING.min(decided + MOST_UNDECIDED);
        peer.take_until(|peer| peer.entries.len() >= most);
        peer.take_all();
        assert_eq!(peer.entries.len(), most);
    }
    assert_eq!(peer.entries.len(), MOST_PENDING);
    peer.done(1, decided as u64 - 1);
    peer.take_until(|peer| peer.entries.len() == 20_001);
    peer.decide(
        decided as u64,
        vec![Verdict::Create; peer.entries.len() - decided],
    );
    peer.take_until(|peer| peer.is_last);
    peer.done(0, 20_001);
    let report = peer.report();
    assert_eq!(report.files, 20_000);
    assert_eq!(report.directories, 1);
    assert_eq!(peer.contents.len(), 20_000);
}

#[test]
fn files_that_change_or_vanish_after_the_walk_are_abandoned_and_told() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["changed", "replaced", "vanished", "well"] {
        fs::write(dir.path().join(name), "1234").unwrap();
    }
    let mut peer = Peer::start(request(dir.path()));
    peer.take_until(|peer| peer.entries.len() == 5);
    fs::write(dir.path().join("changed"), "12345").unwrap();
    fs::remove_file(dir.path().join("replaced")).unwrap();
    std::os::unix::fs::symlink("well", dir.path().join("replaced")).unwrap();
    fs::remove_file(dir.path().join("vanished")).unwrap();
    let report = peer.serve(create);
    assert_eq!((report.files, report.failed), (1, 3));
    assert!(report.only_sources_changed(), "{:?}", report.failures);
    assert_eq!(peer.contents.keys().collect::<Vec<_>>(), ["well"]);
    let abandoned: BTreeSet<String> = peer.abandoned.iter().map(|id| peer.path(*id)).collect();
    assert_eq!(
        abandoned,
        ["changed", "replaced", "vanished"].map(String::from).into()
    );
}

#[test]
fn a_file_that_may_change_is_sent_up_to_the_size_it_had() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("grows"), "1234").unwrap();
    fs::write(dir.path().join("shrinks"), "1234").unwrap();
    let mut peer = Peer::start(SenderRequest {
        walk: CHANGING,
        ..request(dir.path())
    });
    peer.take_until(|peer| peer.entries.len() == 3);
    fs::write(dir.path().join("grows"), "56789").unwrap();
    fs::write(dir.path().join("shrinks"), "5").unwrap();
    let report = peer.serve(create);
    assert_eq!(
        peer.contents,
        BTreeMap::from([("grows".into(), b"5678".to_vec())])
    );
    assert_eq!(report.failed, 1);
    assert_eq!(report.failures[0].code, FailCode::SourceChanged);
    assert_eq!(&*report.failures[0].name, "shrinks");
}

#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("t/d"), dir.path().join("outside"));
    [&inside, &outside]
        .iter()
        .for_each(|path| fs::create_dir_all(path).unwrap());
    fs::write(inside.join("f"), "mine").unwrap();
    let mut peer = Peer::start(SenderRequest {
        walk: CHANGING,
        ..request(&dir.path().join("t"))
    });
    peer.take_until(|peer| peer.entries.len() == 3);
    fs::write(outside.join("f"), "hers").unwrap();
    fs::remove_dir_all(&inside).unwrap();
    std::os::unix::fs::symlink("../outside", &inside).unwrap();
    let report = peer.serve(create);
    assert!(
        peer.contents.is_empty() && report.only_sources_changed(),
        "{report:?}"
    );
}

#[test]
fn files_of_their_own_transfers_are_opened_on_demand_and_end_with_their_results() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::File::create(dir.path().join(name))
            .unwrap()
            .set_len(5 << 20)
            .unwrap();
    }
    let mut peer = Peer::start(request(dir.path()));
    peer.take_until(|peer| peer.entries.len() == 4);
    fs::remove_file(dir.path().join("c")).unwrap();
    peer.decide(
        0,
        vec![
            Verdict::Same,
            Verdict::Create,
            Verdict::Create,
            Verdict::Create,
        ],
    );
    peer.take_until(|peer| peer.alone.len() == 3);

    assert_eq!(open(&peer, 1).unwrap().identity.size, 5 << 20);
    assert_eq!(open(&peer, 3).unwrap_err().code, FailCode::SourceChanged);
    assert_eq!(open(&peer, 0).unwrap_err().code, FailCode::Protocol);
    let broken = Reason {
        code: FailCode::Digest,
        text: "broken".into(),
    };
    peer.inputs
        .send(SenderInput::StandaloneEnded {
            id: EntryId(1),
            result: Ok(()),
        })
        .ok()
        .unwrap();
    assert!(!peer.is_last, "a failed file must be abandoned");
    peer.inputs
        .send(SenderInput::StandaloneEnded {
            id: EntryId(2),
            result: Err(broken),
        })
        .ok()
        .unwrap();
    peer.take_until(|peer| peer.is_last);
    // A failure the receiver reports for an abandoned file does not count twice.
    peer.fail(Some(2), FailCode::Digest, "broken");
    peer.done(0, 2);
    let report = peer.report();
    assert_eq!((report.files, report.bytes, report.failed), (1, 5 << 20, 2));
    assert_eq!(peer.abandoned, [EntryId(3), EntryId(2)]);
    assert_eq!(
        report
            .failures
            .iter()
            .map(|failure| failure.code)
            .collect::<Vec<_>>(),
        [FailCode::SourceChanged, FailCode::Digest]
    );
}

fn open(peer: &Peer, id: u64) -> Result<Source, FileError> {
    let (answer, answered) = mpsc::channel();
    let answer: OnOpened<Source> = Box::new(move |result| drop(answer.send(result)));
    peer.inputs
        .send(SenderInput::OpenStandalone {
            id: EntryId(id),
            answer,
        })
        .ok()
        .unwrap();
    answered.recv_timeout(DEADLINE).unwrap()
}

#[test]
fn digests_are_those_of_the_files_and_entries_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let sizes: Vec<usize> = (0..200)
        .map(|index| index * 37 % 1000)
        .chain([9 << 20])
        .collect();
    let name = |index: usize| format!("{index:03}");
    sizes
        .iter()
        .enumerate()
        .for_each(|(index, size)| fs::write(dir.path().join(name(index)), pattern(*size)).unwrap());
    let rules = TreeRules {
        checksum: true,
        ..TreeRules::default()
    };
    let mut peer = Peer::start(SenderRequest {
        rules,
        ..request(dir.path())
    });
    let report = peer.serve(|_| Verdict::Same);
    assert_eq!(report.unchanged, sizes.len() as u64);
    for (index, size) in sizes.iter().enumerate() {
        let entry = &peer.entries[index + 1];
        assert_eq!(entry.name.as_ref().unwrap().to_string(), name(index));
        let Content::File { digest, .. } = entry.content else {
            panic!("{entry:?}")
        };
        assert_eq!(
            digest,
            Some(Digest(*blake3::hash(&pattern(*size)).as_bytes())),
            "{index}"
        );
    }
}

#[test]
fn a_dry_run_sends_no_content_and_counts_what_would_be_copied() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "aaa").unwrap();
    fs::File::create(dir.path().join("large"))
        .unwrap()
        .set_len(5 << 20)
        .unwrap();
    let rules = TreeRules {
        dry_run: true,
        ..TreeRules::default()
    };
    let mut peer = Peer::start(SenderRequest {
        rules,
        ..request(dir.path())
    });
    let report = peer.serve(create);
    assert_eq!(report.files, 2);
    assert_eq!(report.bytes, (5 << 20) + 3);
    assert_eq!(report.directories, 1);
    assert!(peer.contents.is_empty() && peer.alone.is_empty());
}

#[test]
fn what_fails_or_differs_at_the_receiver_is_told_with_its_text_escaped() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["differs", "failed", "newer", "refused"] {
        fs::write(dir.path().join(name), "1").unwrap();
    }
    let rules = TreeRules {
        update: true,
        ..TreeRules::default()
    };
    let mut peer = Peer::start(SenderRequest {
        rules,
        ..request(dir.path())
    });
    peer.take_until(|peer| peer.entries.len() == 5);
    // A failure may arrive before the verdict.
    peer.fail(Some(4), FailCode::Refused, "no\x1b[31m");
    peer.fail(None, FailCode::Io, "cannot delete");
    peer.decide(
        0,
        vec![
            Verdict::Same,
            Verdict::Exists,
            Verdict::Create,
            Verdict::Newer,
            Verdict::Refused,
        ],
    );
    peer.take_until(|peer| peer.is_last);
    peer.fail(Some(2), FailCode::NoSpace, &"x".repeat(5000));
    let deleted = vec![Name::parse(b"old/file").unwrap()];
    peer.say(TreeMessage::Results {
        done: vec![(EntryId(0), 1)],
        failed: vec![],
        deleted,
        stripped: None,
    });
    let report = peer.report();
    assert_eq!(
        (report.failed, report.newer, report.deleted, report.files),
        (4, 1, 1, 0)
    );
    let failures: Vec<_> = report
        .failures
        .iter()
        .map(|failure| (&*failure.name, failure.code, &*failure.text))
        .collect();
    assert_eq!(
        failures,
        [
            ("refused", FailCode::Refused, "no\\u{1b}[31m"),
            ("", FailCode::Io, "cannot delete"),
            (
                "differs",
                FailCode::Exists,
                "\"differs\" exists and differs"
            ),
            ("failed", FailCode::NoSpace, &"x".repeat(1024)),
        ]
    );
    assert_eq!(
        names(&peer, |outcome| *outcome == EntryOutcome::Deleted),
        ["old/file"]
    );
}

#[test]
fn a_file_that_failed_at_the_receiver_is_still_ended() {
    let dir = tempfile::tempdir().unwrap();
    (0..300).for_each(|index| {
        fs::write(dir.path().join(format!("{index}")), pattern(200_000)).unwrap();
    });
    let mut peer = Peer::start(request(dir.path()));
    peer.take_until(|peer| peer.entries.len() == 301);
    peer.decide(0, vec![Verdict::Create; 301]);
    (1..=300).for_each(|id| peer.fail(Some(id), FailCode::NoSpace, "full"));
    peer.take_until(|peer| peer.is_last);
    peer.done(0, 1);
    let report = peer.report();
    assert_eq!((report.failed, report.files), (300, 0));
    let ended = peer.ended.len();
    assert_eq!(ended, 301, "each file was finished or abandoned");
}

#[test]
fn a_peer_that_speaks_of_what_it_cannot_know_breaks_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "1").unwrap();
    let cases: [fn(&Peer); 9] = [
        |peer| peer.commit(),
        |peer| {
            peer.decide(0, vec![Verdict::Same, Verdict::Refused]);
            thread::sleep(QUIET);
            peer.commit();
        },
        |peer| peer.decide(1, vec![Verdict::Create]),
        |peer| peer.decide(0, vec![Verdict::Create; 3]),
        |peer| peer.decide(u64::MAX, vec![Verdict::Create; 2]),
        |peer| peer.done(0, 1),
        |peer| peer.done(u64::MAX, 2),
        |peer| peer.fail(Some(2), FailCode::Io, ""),
        |peer| (0..2).for_each(|_| peer.decide(0, vec![Verdict::Create])),
    ];
    for (index, case) in cases.iter().enumerate() {
        let mut peer = Peer::start(request(dir.path()));
        peer.take_until(|peer| peer.entries.len() == 2);
        case(&peer);
        assert_eq!(
            peer.end().unwrap_err().code,
            FailCode::Protocol,
            "case {index}"
        );
    }
}

/// A peer cannot report a copy as done without comparing digests, or before the file was sent.
#[test]
fn a_peer_that_calls_done_what_it_cannot_have_breaks_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "1").unwrap();
    fs::File::create(dir.path().join("b"))
        .unwrap()
        .set_len(5 << 20)
        .unwrap();
    type Case = (&'static str, fn(&Peer));
    let cases: [Case; 3] = [
        ("which was not sent completely", |peer| {
            peer.decide(0, vec![Verdict::Same, Verdict::Same, Verdict::Create]);
            peer.done(2, 1);
        }),
        ("which it refused", |peer| {
            peer.decide(0, vec![Verdict::Same, Verdict::Refused, Verdict::Same]);
            peer.done(1, 1);
        }),
        ("not requested", |peer| {
            peer.decide(0, vec![Verdict::Same, Verdict::Newer, Verdict::Newer]);
        }),
    ];
    for (expected, case) in cases {
        let mut peer = Peer::start(request(dir.path()));
        peer.take_until(|peer| peer.entries.len() == 3);
        case(&peer);
        let error = peer.end().unwrap_err();
        assert!(
            error.code == FailCode::Protocol && crate::text::chain(&error).contains(expected),
            "{}",
            crate::text::chain(&error)
        );
    }
}

#[test]
fn a_sender_that_is_stopped_or_not_listened_to_ends() {
    let dir = tempfile::tempdir().unwrap();
    (0..1000)
        .for_each(|index| fs::write(dir.path().join(format!("{index}")), pattern(1000)).unwrap());
    let mut peer = Peer::start(request(dir.path()));
    peer.take_until(|peer| !peer.entries.is_empty());
    peer.inputs.send(SenderInput::Stop).ok().unwrap();
    peer.thread.take().unwrap().join().unwrap();
    peer.take_all();
    assert!(peer.result.is_none());

    let Peer {
        given,
        thread,
        inputs,
        ..
    } = Peer::start(request(dir.path()));
    drop(given);
    thread.unwrap().join().unwrap();
    drop(inputs);
}

#[test]
fn a_filter_that_is_none_ends_it_at_once() {
    let rules = TreeRules {
        filters: vec!["[z-a]".into()],
        ..TreeRules::default()
    };
    let mut peer = Peer::start(SenderRequest {
        rules,
        ..SenderRequest::default()
    });
    assert_eq!(peer.end().unwrap_err().code, FailCode::Refused);
}

#[test]
fn nothing_to_send_is_no_failure_and_a_source_that_is_missing_is_one() {
    let mut peer = Peer::start(SenderRequest::default());
    assert_eq!(peer.report(), TreeReport::default());
    assert!(peer.is_last);
    let mut peer = Peer::start(request(Path::new("/nonexistent")));
    let report = peer.report();
    assert_eq!(report.failed, 1);
    assert_eq!(report.failures[0].code, FailCode::NotFound);
    assert_eq!(&*report.failures[0].name, "/nonexistent/");
}

#[test]
fn names_of_any_bytes_are_sent_as_they_are_and_told_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let name = b"a\n\xff\x1b";
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), "1").unwrap();
    let mut peer = Peer::start(request(dir.path()));
    peer.serve(create);
    assert_eq!(peer.entries[1].name.as_ref().unwrap().file_name(), name);
    assert_eq!(
        names(&peer, |outcome| matches!(
            outcome,
            EntryOutcome::Copied { .. }
        )),
        ["a\\n\\xff\\u{1b}"]
    );
}

#[test]
fn many_sources_of_many_directories_need_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let sources: Vec<PathBuf> = (0..300)
        .map(|index| dir.path().join(format!("{index}/f{index}")))
        .collect();
    for source in &sources {
        fs::create_dir(source.parent().unwrap()).unwrap();
        fs::write(source, "1").unwrap();
    }
    let sources = sources.into_iter().map(SendSource::Path).collect();
    let mut peer = Peer::start(SenderRequest {
        sources,
        ..SenderRequest::default()
    });
    peer.take_until(|peer| peer.entries.len() == 300);
    let here = dir.path().to_path_buf();
    let open = fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let target = entry
            .as_ref()
            .ok()
            .and_then(|entry| fs::read_link(entry.path()).ok());
        target.is_some_and(|target| target.starts_with(&here))
    });
    assert!(open.count() <= 65);
    assert_eq!(peer.serve(create).files, 300);
}

#[test]
fn progress_is_not_told_more_often_than_asked() {
    let dir = tempfile::tempdir().unwrap();
    (0..2000).for_each(|index| fs::write(dir.path().join(format!("{index}")), "1").unwrap());
    let begun = Instant::now();
    let mut peer = Peer::start(SenderRequest {
        list: false,
        ..request(dir.path())
    });
    let mut told = 0;
    let mut last = WalkProgress::default();
    while peer.result.is_none() {
        let from = peer.entries.len();
        assert!(peer.take(DEADLINE));
        told += u32::from(peer.progress != last);
        last = peer.progress;
        if peer.entries.len() > from {
            peer.decide(
                from as u64,
                vec![Verdict::Create; peer.entries.len() - from],
            );
        }
        if peer.is_last && peer.result.is_none() {
            peer.done(0, peer.entries.len() as u64);
            peer.commit();
        }
    }
    // The first, the last, and one per 50 ms.
    assert!(
        told <= 2 + begun.elapsed().as_millis() as u32 / 50,
        "{told} in {:?}",
        begun.elapsed()
    );
    assert_eq!(
        last,
        WalkProgress {
            files: 2000,
            bytes: 2000,
            skipped_bytes: 0,
            files_done: 2000,
            complete: true
        }
    );
}

#[test]
fn whoever_swaps_a_directory_for_a_link_gets_nothing_out_from_beyond_it() {
    let dir = tempfile::tempdir().unwrap();
    let (t, outside) = (dir.path().join("t"), dir.path().join("outside"));
    for (path, content) in [(t.join("d/e"), "mine"), (outside.join("e"), "hers")] {
        fs::create_dir_all(&path).unwrap();
        (0..50).for_each(|index| fs::write(path.join(format!("f{index}")), content).unwrap());
        fs::write(path.join(content), content).unwrap();
    }
    std::os::unix::fs::symlink(&outside, t.join("link")).unwrap();
    let seconds = std::env::var("NICSTRIPE_RACE_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2);
    let until = Instant::now() + Duration::from_secs(seconds);
    let racer = thread::spawn({
        let t = t.clone();
        move || {
            let (here, flags) = (
                fs::File::open(&t).unwrap(),
                rustix::fs::RenameFlags::EXCHANGE,
            );
            let mut swaps = 0;
            while Instant::now() < until {
                rustix::fs::renameat_with(&here, "d", &here, "link", flags).unwrap();
                swaps += 1;
            }
            swaps
        }
    });
    let (mut sent, mut changed) = (0, 0);
    while Instant::now() < until {
        let mut peer = Peer::start(SenderRequest {
            walk: CHANGING,
            ..request(&t)
        });
        let report = peer.serve(create);
        assert!(
            peer.contents.values().all(|content| content == b"mine"),
            "something from outside was sent"
        );
        let is_from_outside = |entry: &Entry| {
            entry
                .name
                .as_ref()
                .is_some_and(|name| name.file_name() == b"hers")
        };
        assert!(
            !peer.entries.iter().any(is_from_outside),
            "an outside entry was announced"
        );
        (sent, changed) = (sent + report.files, changed + report.failed);
    }
    eprintln!(
        "{sent} files sent, {changed} changed, {} swaps",
        racer.join().unwrap()
    );
    assert!(sent > 0);
}

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Instant,
};

use nicstripe_proto::Name;
use nicstripe_proto::tree::{
    BatchReader, Entry, MOST_PENDING, MOST_UNDECIDED, Share,
    Verdict::{Create, Exists, Newer, Refused, Same},
};

use tempfile::TempDir;

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
    seen: Seen,
}

/// What a peer has got of the sender and its channel.
#[derive(Default)]
struct Seen {
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

impl std::ops::Deref for Peer {
    type Target = Seen;

    fn deref(&self) -> &Seen {
        &self.seen
    }
}

impl std::ops::DerefMut for Peer {
    fn deref_mut(&mut self) -> &mut Seen {
        &mut self.seen
    }
}

impl Peer {
    /// Starts the sender of the contents of a directory, with what `set` changes in the request.
    fn of(dir: impl AsRef<Path>, set: impl FnOnce(&mut SenderRequest)) -> Self {
        let mut request = SenderRequest {
            sources: vec![SendSource::Path(dir.as_ref().join(""))],
            walk: RECURSIVE,
            list: true,
            ..SenderRequest::default()
        };
        set(&mut request);
        Self::start(request)
    }

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
            seen: Seen::default(),
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

    fn results(&self, done: &[(u64, u64)], failed: Vec<EntryFailure>, deleted: Vec<Name>) {
        let done = done.iter().map(|(first, count)| (EntryId(*first), *count));
        self.say(TreeMessage::Results {
            done: done.collect(),
            failed,
            deleted,
            stripped: None,
        });
    }

    fn done(&self, first: u64, count: u64) {
        self.results(&[(first, count)], vec![], vec![]);
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
        self.results(&[], vec![failure], vec![]);
    }

    fn input(&self, input: SenderInput) {
        self.inputs.send(input).ok().unwrap();
    }

    fn told(&self, outcome: impl Fn(&EntryOutcome) -> bool) -> Vec<&str> {
        let told = self.told.iter().filter(|(_, found)| outcome(found));
        told.map(|(name, _)| name.as_str()).collect()
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
        let path = self.path(id);
        let content = self.contents.entry(path).or_default();
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
    Create
}

const CHANGING: WalkRules = WalkRules {
    allow_changing: true,
    ..RECURSIVE
};

/// Creates a directory with these files.
fn dir_of<N: AsRef<Path>, B: AsRef<[u8]>>(files: impl IntoIterator<Item = (N, B)>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

/// Creates a directory with this many files of one byte.
fn dir_of_many(files: usize) -> TempDir {
    dir_of((0..files).map(|index| (index.to_string(), "1")))
}

/// Makes a file that is too large for a batch, without data.
fn large(path: &Path, size: u64) {
    fs::File::create(path).unwrap().set_len(size).unwrap();
}

/// Returns `len` bytes that depend on their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn a_tree_arrives_with_the_contents_that_are_wanted() {
    let dir = dir_of([("a", "aaa"), ("d/empty", ""), ("d/same", "same")]);
    symlink("a", dir.path().join("l")).unwrap();
    let mut peer = Peer::of(&dir, |_| {});
    let report = peer.serve(|entry| match &entry.name {
        Some(name) if name.file_name() == b"same" => Same,
        Some(name) if name.file_name() == b"a" => Verdict::Replace,
        None => Same,
        Some(_) => Create,
    });
    let contents = [("a".into(), b"aaa".to_vec()), ("d/empty".into(), vec![])];
    assert_eq!(peer.contents, BTreeMap::from(contents));
    let expected = TreeReport {
        files: 2,
        bytes: 3,
        directories: 1,
        symlinks: 1,
        unchanged: 1,
        ..TreeReport::default()
    };
    assert_eq!(report, expected);
    let copied = peer.told(|outcome| matches!(outcome, EntryOutcome::Copied { .. }));
    assert_eq!(copied, ["a", "d", "d/empty", "l"]);
    let skipped = peer.told(|outcome| matches!(outcome, EntryOutcome::Skipped(Same)));
    assert_eq!(skipped, ["d/same"]);
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
    let room = MAX_PAYLOAD - PIECE_HEADER;
    let pieces = [room - 1, room, room + 1, 2 * room, 2 * room + 1];
    let sizes = [&[0, 1, MAX_PAYLOAD, 4 << 20][..], &pieces].concat();
    let dir = dir_of(sizes.iter().map(|size| (size.to_string(), pattern(*size))));
    let mut peer = Peer::of(&dir, |_| {});
    let report = peer.serve(create);
    assert_eq!((report.files, report.failed), (sizes.len() as u64, 0));
    for size in sizes {
        assert!(peer.contents[&size.to_string()] == pattern(size), "{size}");
    }
}

#[test]
fn small_files_share_batches() {
    let dir = dir_of((0..1000).map(|index| (index.to_string(), pattern(index))));
    let mut peer = Peer::of(&dir, |_| {});
    let report = peer.serve(create);
    assert_eq!((report.files, report.bytes), (1000, 999 * 1000 / 2));
    // 500 KB of contents and 50 KB of entries need at least 3 batches; a slow disk may exceed
    // `BATCH_PATIENCE` at times.
    assert!(peer.batches < 60, "{} batches", peer.batches);
}

#[test]
fn large_files_are_announced_by_pieces_and_kept_for_the_caller_only_if_it_copies_them() {
    let dir = tempfile::tempdir().unwrap();
    large(&dir.path().join("large"), 2 << 30);
    for reports_large in [false, true] {
        let mut peer = Peer::of(&dir, |request| {
            request.walk.share = Share::new(1, 1).ok();
            request.walk.pieces = true;
            request.reports_large = reports_large;
        });
        let report = peer.serve(create);
        assert_eq!((report.files, report.special), (0, 0));
        let pieces = report.large.iter().map(|(_, file)| file.pieces().count());
        assert_eq!(pieces.sum::<usize>(), if reports_large { 128 } else { 0 });
    }
}

#[test]
fn a_receiver_that_does_not_decide_holds_the_walk_back() {
    let dir = dir_of((0..20_000).map(|index| (index.to_string(), "")));
    let mut peer = Peer::of(&dir, |_| {});
    peer.take_until(|peer| peer.entries.len() >= MOST_UNDECIDED);
    peer.take_all();
    assert_eq!(peer.entries.len(), MOST_UNDECIDED);

    // Decided but without results: the walk continues up to the limit of pending entries.
    let mut decided = 0;
    let decide_all = |peer: &Peer, decided: &mut usize| {
        let verdicts = vec![Create; peer.entries.len() - *decided];
        peer.decide(*decided as u64, verdicts);
        *decided = peer.entries.len();
    };
    while decided < MOST_PENDING {
        decide_all(&peer, &mut decided);
        let most = MOST_PENDING.min(decided + MOST_UNDECIDED);
        peer.take_until(|peer| peer.entries.len() >= most);
        peer.take_all();
        assert_eq!(peer.entries.len(), most);
    }
    peer.done(1, decided as u64 - 1);
    peer.take_until(|peer| peer.entries.len() == 20_001);
    decide_all(&peer, &mut decided);
    peer.take_until(|peer| peer.is_last);
    peer.done(0, 20_001);
    let report = peer.report();
    assert_eq!((report.files, report.directories), (20_000, 1));
    assert_eq!(peer.contents.len(), 20_000);
}

#[test]
fn files_that_change_or_vanish_after_the_walk_are_abandoned_and_told() {
    let names = ["changed", "replaced", "vanished", "well"];
    let dir = dir_of(names.map(|name| (name, "1234")));
    let mut peer = Peer::of(&dir, |_| {});
    peer.take_until(|peer| peer.entries.len() == 5);
    let [changed, replaced, vanished, _] = names.map(|name| dir.path().join(name));
    fs::write(changed, "12345").unwrap();
    fs::remove_file(&replaced).unwrap();
    symlink("well", replaced).unwrap();
    fs::remove_file(vanished).unwrap();
    let report = peer.serve(create);
    assert_eq!((report.files, report.failed), (1, 3));
    assert!(report.only_sources_changed(), "{:?}", report.failures);
    assert_eq!(peer.contents.keys().collect::<Vec<_>>(), ["well"]);
    let abandoned: BTreeSet<String> = peer.abandoned.iter().map(|id| peer.path(*id)).collect();
    assert!(abandoned.iter().eq(&names[..3]), "{abandoned:?}");
}

#[test]
fn a_file_that_may_change_is_sent_up_to_the_size_it_had() {
    let dir = dir_of([("grows", "1234"), ("shrinks", "1234")]);
    let mut peer = Peer::of(&dir, |request| request.walk = CHANGING);
    peer.take_until(|peer| peer.entries.len() == 3);
    fs::write(dir.path().join("grows"), "56789").unwrap();
    fs::write(dir.path().join("shrinks"), "5").unwrap();
    let report = peer.serve(create);
    let grown = BTreeMap::from([("grows".into(), b"5678".to_vec())]);
    assert_eq!((&peer.contents, report.failed), (&grown, 1));
    let failure = &report.failures[0];
    assert_eq!(
        (failure.code, &*failure.name),
        (FailCode::SourceChanged, "shrinks")
    );
}

#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    let dir = dir_of([("t/d/f", "mine"), ("outside/other", "")]);
    let mut peer = Peer::of(dir.path().join("t"), |request| request.walk = CHANGING);
    peer.take_until(|peer| peer.entries.len() == 3);
    fs::write(dir.path().join("outside/f"), "hers").unwrap();
    let inside = dir.path().join("t/d");
    fs::remove_dir_all(&inside).unwrap();
    symlink("../outside", &inside).unwrap();
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
        large(&dir.path().join(name), 5 << 20);
    }
    let mut peer = Peer::of(&dir, |_| {});
    peer.take_until(|peer| peer.entries.len() == 4);
    fs::remove_file(dir.path().join("c")).unwrap();
    peer.decide(0, vec![Same, Create, Create, Create]);
    peer.take_until(|peer| peer.alone.len() == 3);

    assert_eq!(open(&peer, 1).unwrap().identity.size, 5 << 20);
    assert_eq!(open(&peer, 3).unwrap_err().code, FailCode::SourceChanged);
    assert_eq!(open(&peer, 0).unwrap_err().code, FailCode::Protocol);
    let ended = |id, result| SenderInput::StandaloneEnded {
        id: EntryId(id),
        result,
    };
    peer.input(ended(1, Ok(())));
    assert!(!peer.is_last, "a failed file must be abandoned");
    let broken = Reason {
        code: FailCode::Digest,
        text: "broken".into(),
    };
    peer.input(ended(2, Err(broken)));
    peer.take_until(|peer| peer.is_last);
    // A failure the receiver reports for an abandoned file does not count twice.
    peer.fail(Some(2), FailCode::Digest, "broken");
    peer.done(0, 2);
    let report = peer.report();
    assert_eq!((report.files, report.bytes, report.failed), (1, 5 << 20, 2));
    assert_eq!(peer.abandoned, [EntryId(3), EntryId(2)]);
    let codes: Vec<_> = report.failures.iter().map(|failure| failure.code).collect();
    assert_eq!(codes, [FailCode::SourceChanged, FailCode::Digest]);
}

fn open(peer: &Peer, id: u64) -> Result<Source, FileError> {
    let (answer, answered) = mpsc::channel();
    let answer: OnOpened<Source> = Box::new(move |result| drop(answer.send(result)));
    peer.input(SenderInput::OpenStandalone {
        id: EntryId(id),
        answer,
    });
    answered.recv_timeout(DEADLINE).unwrap()
}

#[test]
fn digests_are_those_of_the_files_and_entries_keep_their_order() {
    let sizes: Vec<usize> = (0..200)
        .map(|index| index * 37 % 1000)
        .chain([9 << 20])
        .collect();
    let name = |index: usize| format!("{index:03}");
    let files = sizes.iter().enumerate();
    let dir = dir_of(files.map(|(index, size)| (name(index), pattern(*size))));
    let mut peer = Peer::of(&dir, |request| request.rules.checksum = true);
    let report = peer.serve(|_| Same);
    assert_eq!(report.unchanged, sizes.len() as u64);
    for (index, size) in sizes.iter().enumerate() {
        let entry = &peer.entries[index + 1];
        assert_eq!(entry.name.as_ref().unwrap().to_string(), name(index));
        let Content::File { digest, .. } = entry.content else {
            panic!("{entry:?}")
        };
        let expected = Digest(*blake3::hash(&pattern(*size)).as_bytes());
        assert_eq!(digest, Some(expected), "{index}");
    }
}

#[test]
fn a_dry_run_sends_no_content_and_counts_what_would_be_copied() {
    let dir = dir_of([("a", "aaa")]);
    large(&dir.path().join("large"), 5 << 20);
    let mut peer = Peer::of(&dir, |request| request.rules.dry_run = true);
    let report = peer.serve(create);
    let counts = (report.files, report.bytes, report.directories);
    assert_eq!(counts, (2, (5 << 20) + 3, 1));
    assert!(peer.contents.is_empty() && peer.alone.is_empty());
}

#[test]
fn what_fails_or_differs_at_the_receiver_is_told_with_its_text_escaped() {
    let dir = dir_of(["differs", "failed", "newer", "refused"].map(|name| (name, "1")));
    let mut peer = Peer::of(&dir, |request| request.rules.update = true);
    peer.take_until(|peer| peer.entries.len() == 5);
    // A failure may arrive before the verdict.
    peer.fail(Some(4), FailCode::Refused, "no\x1b[31m");
    peer.fail(None, FailCode::Io, "cannot delete");
    peer.decide(0, vec![Same, Exists, Create, Newer, Refused]);
    peer.take_until(|peer| peer.is_last);
    peer.fail(Some(2), FailCode::NoSpace, &"x".repeat(5000));
    peer.results(&[(0, 1)], vec![], vec![Name::parse(b"old/file").unwrap()]);
    let report = peer.report();
    let counts = (report.failed, report.newer, report.deleted, report.files);
    assert_eq!(counts, (4, 1, 1, 0));
    let failures = report.failures.iter();
    let failures: Vec<_> = failures
        .map(|failure| (&*failure.name, failure.code, &*failure.text))
        .collect();
    let expected = [
        ("refused", FailCode::Refused, "no\\u{1b}[31m"),
        ("", FailCode::Io, "cannot delete"),
        (
            "differs",
            FailCode::Exists,
            "\"differs\" exists and differs",
        ),
        ("failed", FailCode::NoSpace, &"x".repeat(1024)),
    ];
    assert_eq!(failures, expected);
    assert_eq!(
        peer.told(|outcome| *outcome == EntryOutcome::Deleted),
        ["old/file"]
    );
}

#[test]
fn a_file_that_failed_at_the_receiver_is_still_ended() {
    let dir = dir_of((0..300).map(|index| (index.to_string(), pattern(200_000))));
    let mut peer = Peer::of(&dir, |_| {});
    peer.take_until(|peer| peer.entries.len() == 301);
    peer.decide(0, vec![Create; 301]);
    (1..=300).for_each(|id| peer.fail(Some(id), FailCode::NoSpace, "full"));
    peer.take_until(|peer| peer.is_last);
    peer.done(0, 1);
    let report = peer.report();
    assert_eq!((report.failed, report.files), (300, 0));
    assert_eq!(peer.ended.len(), 301, "each file was finished or abandoned");
}

/// Also, a peer cannot report a copy as done without comparing digests, or before the file was sent.
#[test]
fn a_peer_that_speaks_of_what_it_cannot_know_or_have_breaks_the_protocol() {
    let dir = dir_of([("a", "1")]);
    large(&dir.path().join("b"), 5 << 20);
    type Case = (&'static str, fn(&Peer));
    let cases: [Case; 12] = [
        ("", |peer| peer.commit()),
        ("", |peer| {
            peer.decide(0, vec![Same, Refused, Refused]);
            thread::sleep(QUIET);
            peer.commit();
        }),
        ("", |peer| peer.decide(1, vec![Create])),
        ("", |peer| peer.decide(0, vec![Create; 4])),
        ("", |peer| peer.decide(u64::MAX, vec![Create; 2])),
        ("", |peer| peer.done(0, 1)),
        ("", |peer| peer.done(u64::MAX, 2)),
        ("", |peer| peer.fail(Some(3), FailCode::Io, "")),
        ("", |peer| (0..2).for_each(|_| peer.decide(0, vec![Create]))),
        ("which was not sent completely", |peer| {
            peer.decide(0, vec![Same, Same, Create]);
            peer.done(2, 1);
        }),
        ("which it refused", |peer| {
            peer.decide(0, vec![Same, Refused, Same]);
            peer.done(1, 1);
        }),
        ("not requested", |peer| {
            peer.decide(0, vec![Same, Newer, Newer]);
        }),
    ];
    for (index, (expected, case)) in cases.into_iter().enumerate() {
        let mut peer = Peer::of(&dir, |_| {});
        peer.take_until(|peer| peer.entries.len() == 3);
        case(&peer);
        let error = peer.end().unwrap_err();
        let text = crate::text::chain(&error);
        let is_expected = error.code == FailCode::Protocol && text.contains(expected);
        assert!(is_expected, "case {index}: {text}");
    }
}

#[test]
fn a_sender_that_is_stopped_or_not_listened_to_ends() {
    let dir = dir_of((0..1000).map(|index| (index.to_string(), pattern(1000))));
    let mut peer = Peer::of(&dir, |_| {});
    peer.take_until(|peer| !peer.entries.is_empty());
    peer.input(SenderInput::Stop);
    peer.thread.take().unwrap().join().unwrap();
    peer.take_all();
    assert!(peer.result.is_none());

    let mut peer = Peer::of(&dir, |_| {});
    peer.given = mpsc::channel().1;
    peer.thread.take().unwrap().join().unwrap();
}

#[test]
fn a_filter_that_is_none_ends_it_at_once() {
    let mut peer = Peer::of("/nonexistent", |request| {
        request.rules.filters = vec!["[z-a]".into()];
    });
    assert_eq!(peer.end().unwrap_err().code, FailCode::Refused);
}

#[test]
fn nothing_to_send_is_no_failure_and_a_source_that_is_missing_is_one() {
    let mut peer = Peer::start(SenderRequest::default());
    assert_eq!(peer.report(), TreeReport::default());
    assert!(peer.is_last);
    let report = Peer::of("/nonexistent", |_| {}).report();
    assert_eq!(report.failed, 1);
    let failure = &report.failures[0];
    assert_eq!(
        (failure.code, &*failure.name),
        (FailCode::NotFound, "/nonexistent/")
    );
}

#[test]
fn many_sources_of_many_directories_need_few_descriptors() {
    let files: Vec<String> = (0..300).map(|index| format!("{index}/f{index}")).collect();
    let dir = dir_of(files.iter().map(|file| (file, "1")));
    let sources = files
        .iter()
        .map(|file| SendSource::Path(dir.path().join(file)));
    let mut peer = Peer::of(&dir, |request| request.sources = sources.collect());
    peer.take_until(|peer| peer.entries.len() == 300);
    let open = fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let target = entry
            .as_ref()
            .ok()
            .and_then(|entry| fs::read_link(entry.path()).ok());
        target.is_some_and(|target| target.starts_with(&dir))
    });
    assert!(open.count() <= 65);
    assert_eq!(peer.serve(create).files, 300);
}

#[test]
fn progress_is_not_told_more_often_than_asked() {
    let dir = dir_of_many(2000);
    let begun = Instant::now();
    let mut peer = Peer::of(&dir, |request| request.list = false);
    let (mut told, mut last) = (0, WalkProgress::default());
    while peer.result.is_none() {
        let from = peer.entries.len();
        assert!(peer.take(DEADLINE));
        told += u32::from(peer.progress != last);
        last = peer.progress;
        if peer.entries.len() > from {
            peer.decide(from as u64, vec![Create; peer.entries.len() - from]);
        }
        if peer.is_last && peer.result.is_none() {
            peer.done(0, peer.entries.len() as u64);
            peer.commit();
        }
    }
    // The first, the last, and one per 50 ms.
    let took = begun.elapsed();
    assert!(
        told <= 2 + took.as_millis() as u32 / 50,
        "{told} in {took:?}"
    );
    let expected = WalkProgress {
        files: 2000,
        bytes: 2000,
        skipped_bytes: 0,
        files_done: 2000,
        complete: true,
    };
    assert_eq!(last, expected);
}

#[test]
fn whoever_swaps_a_directory_for_a_link_gets_nothing_out_from_beyond_it() {
    let files = (0..50).flat_map(|index| {
        [("t/d/e", "mine"), ("outside/e", "hers")]
            .map(|(dir, bytes)| (format!("{dir}/f{index}"), bytes))
    });
    let names = [
        ("t/d/e/mine".into(), "mine"),
        ("outside/e/hers".into(), "hers"),
    ];
    let dir = dir_of(files.chain(names));
    let t = dir.path().join("t");
    symlink(dir.path().join("outside"), t.join("link")).unwrap();
    let seconds = std::env::var("NICSTRIPE_RACE_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2);
    let until = Instant::now() + Duration::from_secs(seconds);
    let here = fs::File::open(&t).unwrap();
    let racer = thread::spawn(move || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        let mut swaps = 0;
        while Instant::now() < until {
            rustix::fs::renameat_with(&here, "d", &here, "link", flags).unwrap();
            swaps += 1;
        }
        swaps
    });
    let (mut sent, mut changed) = (0, 0);
    while Instant::now() < until {
        let mut peer = Peer::of(&t, |request| request.walk = CHANGING);
        let report = peer.serve(create);
        let is_mine = peer.contents.values().all(|content| content == b"mine");
        assert!(is_mine, "something from outside was sent");
        let mut names = peer.entries.iter().filter_map(|entry| entry.name.as_ref());
        let is_from_outside = names.any(|name| name.file_name() == b"hers");
        assert!(!is_from_outside, "an outside entry was announced");
        (sent, changed) = (sent + report.files, changed + report.failed);
    }
    let swaps = racer.join().unwrap();
    eprintln!("{sent} files sent, {changed} changed, {swaps} swaps");
    assert!(sent > 0);
}

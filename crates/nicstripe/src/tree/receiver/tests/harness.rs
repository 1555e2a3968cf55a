//! Simulated sender of a tree, and a channel that records the receiver's calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use minicbor::{Encode, Encoder, bytes::ByteVec, encode};
use nicstripe_proto::{
    FailCode, Name,
    frame::MAX_PAYLOAD,
    journal::Timestamp,
    tree::{
        BatchWriter, Content, Entry, EntryFailure, EntryId, LargeFile, Reason, Record, Special,
        TreeMessage, TreeRules, Trouble, Verdict, batch::RECORD_HEADER, message::MOST_MESSAGE,
    },
};

use super::super::{ReceiverRequest, run};
use crate::{
    file::{BufferPool, FileError, IoPool, Root},
    tree::{
        allowance::Receiving,
        channel::{ReceiverChannel, ReceiverInput, TreeChannel, WalkProgress},
        options::{EntryOutcome, TreeReport},
    },
};

/// Recorded call of the receiver on its channel.
pub(super) enum ChannelCall {
    Message(TreeMessage),
    Consumed,
    Standalone(EntryId),
    Entry(Name, EntryOutcome),
    Progress(WalkProgress),
    Finished(Result<TreeReport, FileError>),
}

struct FakeChannel(Sender<ChannelCall>);

impl FakeChannel {
    fn say(&self, told: ChannelCall) -> bool {
        self.0.send(told).is_ok()
    }
}

impl ReceiverChannel for FakeChannel {
    fn send(&mut self, message: TreeMessage) -> bool {
        assert!(minicbor::to_vec(&message).unwrap().len() <= MOST_MESSAGE);
        self.say(ChannelCall::Message(message))
    }

    fn consumed(&mut self) -> bool {
        self.say(ChannelCall::Consumed)
    }
}

impl TreeChannel for FakeChannel {
    fn start_standalone(&mut self, id: EntryId, _: u64) -> bool {
        self.say(ChannelCall::Standalone(id))
    }

    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool {
        self.say(ChannelCall::Entry(name.clone(), outcome))
    }

    fn progress(&mut self, progress: WalkProgress) -> bool {
        self.say(ChannelCall::Progress(progress))
    }

    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>) {
        self.say(ChannelCall::Finished(result));
    }
}

/// Simulated sender, with the inputs and the recorded output of a running receiver.
pub(super) struct Sending {
    pub(super) inputs: Sender<ReceiverInput>,
    told: Receiver<ChannelCall>,
    buffers: BufferPool,
    buffer: Vec<u8>,
    len: usize,
    next: u64,
    batches: usize,
    pub(super) consumed: usize,
    pub(super) verdicts: BTreeMap<u64, Verdict>,
    pub(super) done: BTreeSet<u64>,
    pub(super) failed: Vec<EntryFailure>,
    pub(super) deleted: Vec<String>,
    pub(super) alone: Vec<EntryId>,
    pub(super) listed: Vec<(String, EntryOutcome)>,
    pub(super) progress: WalkProgress,
    pub(super) result: Option<Result<TreeReport, FileError>>,
}

/// Returns the default rules with the changes that `set` makes.
pub(super) fn with(set: impl FnOnce(&mut TreeRules)) -> TreeRules {
    let mut rules = TreeRules::default();
    set(&mut rules);
    rules
}

/// Root directory of a received tree, in an outer directory that must stay unchanged. Each test
/// checks that it did.
pub(super) struct RootDir {
    outer: tempfile::TempDir,
    before: BTreeMap<PathBuf, String>,
}

impl Drop for RootDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_outside("at the end");
        }
    }
}

impl RootDir {
    pub(super) fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    /// Like `new`, but in memory (/dev/shm) if possible, so that hundreds of small trees do not
    /// wait for a disk.
    pub(super) fn quick() -> Self {
        Self::within(
            tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap(),
        )
    }

    fn within(outer: tempfile::TempDir) -> Self {
        fs::create_dir(outer.path().join("root")).unwrap();
        fs::create_dir_all(outer.path().join("outside/dir/inner")).unwrap();
        fs::write(outer.path().join("outside/dir/secret"), "secret").unwrap();
        fs::write(outer.path().join("outside/file"), "outside").unwrap();
        let mut ground = Self {
            outer,
            before: BTreeMap::new(),
        };
        ground.before = ground.snapshot();
        ground
    }

    pub(super) fn root(&self) -> PathBuf {
        self.outer.path().join("root")
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    pub(super) fn meta(&self, path: &str) -> fs::Metadata {
        fs::metadata(self.at(path)).unwrap()
    }

    pub(super) fn outside(&self) -> PathBuf {
        self.outer.path().join("outside")
    }

    /// Returns a request that receives all entries into the root directory, with hard links.
    pub(super) fn request(&self, rules: TreeRules) -> ReceiverRequest {
        ReceiverRequest {
            root: Arc::new(Root::open(&self.root()).unwrap()),
            target: None,
            as_name: false,
            rules: TreeRules {
                hard_links: true,
                ..rules
            },
            peer_key: [7; 32],
            append_only: false,
            privileged: true,
            list: true,
            promised: None,
            filters: crate::tree::filter::Filters::new(&[]).unwrap(),
            allowance: Receiving::OWN,
        }
    }

    pub(super) fn start(&self, rules: TreeRules) -> Sending {
        Sending::start(self.request(rules))
    }

    /// Starts a receiver into a directory, or under a name.
    pub(super) fn start_to(
        &self,
        target: Option<Name>,
        as_name: bool,
        rules: TreeRules,
    ) -> Sending {
        Sending::start(ReceiverRequest {
            target,
            as_name,
            ..self.request(rules)
        })
    }

    /// Checks that nothing outside the root directory has changed.
    pub(super) fn check_outside(&self, when: &str) {
        assert_eq!(self.snapshot(), self.before, "{when}");
    }

    /// Returns all files outside the root directory: type, mode, times, content.
    fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        note(&self.outside(), &mut found);
        let names = fs::read_dir(self.outer.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        found.insert(
            "names".into(),
            format!("{:?}", names.collect::<BTreeSet<_>>()),
        );
        found
    }

    /// Returns the names of all files beneath the root directory, including hidden ones.
    pub(super) fn names(&self) -> Vec<String> {
        let mut found = BTreeMap::new();
        note(&self.root(), &mut found);
        let relative = |path: PathBuf| {
            path.strip_prefix(self.root())
                .unwrap()
                .to_string_lossy()
                .into_owned()
        };
        found
            .into_keys()
            .map(relative)
            .filter(|name| !name.is_empty())
            .collect()
    }
}

fn note(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let content = if meta.is_file() {
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    } else {
        String::new()
    };
    let facts = (
        meta.mode(),
        meta.uid(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.nlink(),
        content,
    );
    found.insert(path.to_owned(), format!("{facts:?}"));
    if meta.is_dir() {
        fs::read_dir(path)
            .unwrap()
            .for_each(|entry| note(&entry.unwrap().path(), found));
    }
}

pub(super) const MTIME: Timestamp = Timestamp {
    seconds: 1_500_000_000,
    nanoseconds: 123_456_789,
};

pub(super) fn file(size: usize) -> Content {
    Content::File {
        size: size as u64,
        alone: false,
        digest: None,
    }
}

/// Returns the content of a standalone file.
pub(super) fn alone(size: u64) -> Content {
    Content::File {
        size,
        alone: true,
        digest: None,
    }
}

pub(super) fn hard_link(to: EntryId, path: &str) -> Content {
    Content::HardLink {
        to,
        path: name(path),
    }
}

pub(super) fn reason(code: FailCode, text: &str) -> Reason {
    Reason {
        code,
        text: text.into(),
    }
}

pub(super) fn symlink(target: &str) -> Content {
    Content::Symlink {
        target: target.as_bytes().to_vec(),
    }
}

pub(super) fn name(path: &str) -> Name {
    Name::parse(path.as_bytes()).unwrap()
}

impl Sending {
    pub(super) fn start(request: ReceiverRequest) -> Self {
        Self::start_on(IoPool::start().unwrap(), request)
    }

    /// Like `start`, with the jobs on the threads of `pool`.
    pub(super) fn start_on(pool: IoPool, request: ReceiverRequest) -> Self {
        let (inputs, receiver) = mpsc::channel();
        let (channel, told) = mpsc::channel();
        let handle = inputs.clone();
        std::thread::spawn(move || {
            run(
                request,
                receiver,
                handle,
                pool,
                Box::new(FakeChannel(channel)),
            );
        });
        Self {
            inputs,
            told,
            buffers: BufferPool::default(),
            buffer: vec![0; MAX_PAYLOAD],
            len: 0,
            next: 0,
            batches: 0,
            consumed: 0,
            verdicts: BTreeMap::new(),
            done: BTreeSet::new(),
            failed: Vec::new(),
            deleted: Vec::new(),
            alone: Vec::new(),
            listed: Vec::new(),
            progress: WalkProgress::default(),
            result: None,
        }
    }

    /// Returns an entry with default metadata.
    pub(super) fn plain(&self, parent: Option<EntryId>, own: &str, content: Content) -> Entry {
        let name = (!own.is_empty()).then(|| name(own));
        Entry {
            id: EntryId(self.next),
            parent,
            name,
            content,
            mode: 0o644,
            mtime: MTIME,
            owner: None,
            xattrs: None,
            owner_names: None,
            linked: true,
            inode_hash: None,
        }
    }

    /// Announces an entry named `own`, or without a name if `own` is empty.
    pub(super) fn entry(
        &mut self,
        parent: Option<EntryId>,
        name: &str,
        content: Content,
    ) -> EntryId {
        let entry = self.plain(parent, name, content);
        self.tell(entry)
    }

    pub(super) fn directory(&mut self, parent: Option<EntryId>, name: &str) -> EntryId {
        self.with_mode(0o755, parent, name, Content::Directory)
    }

    pub(super) fn with_mode(
        &mut self,
        mode: u32,
        parent: Option<EntryId>,
        name: &str,
        content: Content,
    ) -> EntryId {
        let entry = Entry {
            mode,
            ..self.plain(parent, name, content)
        };
        self.tell(entry)
    }

    pub(super) fn trouble(&mut self, name: Option<Name>, label: Option<&str>, reason: Reason) {
        let label = label.map(Into::into);
        self.push(&Record::Trouble(Box::new(Trouble {
            name,
            reason,
            label,
        })));
    }

    pub(super) fn special(&mut self, path: &str) {
        let name = name(path);
        self.push(&Record::Special(Box::new(Special { name, large: None })));
    }

    /// Announces a large file of 1,024 pieces.
    pub(super) fn large(&mut self, path: &str) {
        let pieces = (0..1024).collect();
        let large = LargeFile::new(64 << 30, Timestamp::default(), 0o644, pieces);
        assert!(large.is_some());
        let name = name(path);
        self.push(&Record::Special(Box::new(Special { name, large })));
    }

    pub(super) fn abandon(&mut self, id: EntryId) {
        let reason = reason(FailCode::SourceChanged, "it changed");
        self.push(&Record::Abandoned { id, reason });
    }

    pub(super) fn verdicts<const N: usize>(&self, ids: [EntryId; N]) -> [Verdict; N] {
        ids.map(|id| self.verdict(id))
    }

    pub(super) fn tell(&mut self, entry: Entry) -> EntryId {
        let id = entry.id;
        self.next = id.0 + 1;
        self.push(&Record::Entry(Box::new(entry)));
        id
    }

    pub(super) fn end(&mut self, id: EntryId) {
        self.push(&Record::EndDirectory { id, complete: true });
    }

    pub(super) fn piece(&mut self, id: EntryId, offset: u64, last: bool, bytes: &[u8]) {
        self.push(&Record::Piece {
            id,
            offset,
            last,
            bytes,
        });
    }

    pub(super) fn content(&mut self, id: EntryId, bytes: &[u8]) {
        if bytes.is_empty() {
            return self.piece(id, 0, true, bytes);
        }
        let mut offset = 0;
        for piece in bytes.chunks(200_000) {
            let end = offset + piece.len();
            self.piece(id, offset as u64, end == bytes.len(), piece);
            offset = end;
        }
    }

    pub(super) fn push(&mut self, record: &Record<'_>) {
        loop {
            let mut writer = BatchWriter::new(&mut self.buffer, self.len);
            if writer.push(record) {
                self.len = writer.len();
                return;
            }
            self.flush();
        }
    }

    /// Announces an entry with a name that a correct sender cannot encode.
    pub(super) fn raw(
        &mut self,
        id: u64,
        parent: Option<u64>,
        components: &[&[u8]],
        content: &RawContent,
    ) {
        let name = Some(RawName(
            components
                .iter()
                .map(|component| component.to_vec())
                .collect(),
        ));
        let body = minicbor::to_vec(RawEntry {
            id,
            parent,
            name,
            content: content.clone(),
            mode: 0o6777,
            mtime: MTIME,
        })
        .unwrap();
        if RECORD_HEADER + body.len() > self.buffer.len() - self.len {
            self.flush();
        }
        let header: Vec<u8> = [
            &[1u8, 0, 0, 0][..],
            &(body.len() as u32).to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .into_iter()
        .flatten()
        .copied()
        .collect();
        for bytes in [header, body] {
            self.buffer[self.len..self.len + bytes.len()].copy_from_slice(&bytes);
            self.len += bytes.len();
        }
    }

    pub(super) fn flush(&mut self) {
        if self.len > 0 {
            let mut batch = self.buffers.take();
            batch.bytes_mut(0);
            assert!(batch.append(&self.buffer[..self.len]));
            let _ = self.inputs.send(ReceiverInput::Batch(batch));
            self.batches += 1;
            self.len = 0;
        }
    }

    /// Sends the queued records, and waits until all entries have a verdict.
    pub(super) fn decide(&mut self) {
        self.flush();
        while (self.verdicts.len() as u64) < self.next && self.result.is_none() {
            self.hear();
        }
    }

    pub(super) fn verdict(&self, id: EntryId) -> Verdict {
        self.verdicts[&id.0]
    }

    pub(super) fn wait_done(&mut self, id: EntryId) {
        self.flush();
        while !self.done.contains(&id.0) {
            self.hear();
        }
    }

    pub(super) fn hear(&mut self) {
        match self.told.recv_timeout(Duration::from_secs(20)).unwrap() {
            ChannelCall::Message(TreeMessage::Verdicts { first, verdicts }) => {
                assert_eq!(first.0, self.verdicts.len() as u64, "verdicts have a gap");
                self.verdicts.extend((first.0..).zip(verdicts));
            }
            ChannelCall::Message(TreeMessage::Results {
                done,
                failed,
                deleted,
                ..
            }) => {
                for (first, count) in done {
                    for id in first.0..first.0 + count {
                        assert!(
                            self.verdicts[&id].is_wanted(),
                            "entry {id} was not requested and has a result"
                        );
                        assert!(self.done.insert(id), "entry {id} has two results");
                    }
                }
                let known = |failure: &EntryFailure| {
                    failure
                        .id
                        .is_none_or(|id| self.verdicts.contains_key(&id.0))
                };
                assert!(
                    failed.iter().all(known),
                    "a result arrived before the verdict"
                );
                self.failed.extend(failed);
                self.deleted.extend(deleted.iter().map(Name::to_string));
            }
            ChannelCall::Consumed => self.consumed += 1,
            ChannelCall::Standalone(id) => self.alone.push(id),
            ChannelCall::Entry(name, outcome) => self.listed.push((name.to_string(), outcome)),
            ChannelCall::Progress(progress) => self.progress = progress,
            ChannelCall::Finished(result) => self.result = Some(result),
        }
    }

    /// Ends the tree, and waits for the receiver's result.
    pub(super) fn wait(&mut self) -> &Result<TreeReport, FileError> {
        self.flush();
        let _ = self.inputs.send(ReceiverInput::End);
        while self.result.is_none() {
            self.hear();
        }
        self.result.as_ref().unwrap()
    }

    /// Waits for the end of a tree that must succeed, and returns its report.
    pub(super) fn report(&mut self) -> TreeReport {
        let report = self
            .wait()
            .as_ref()
            .map_err(FileError::one_line)
            .unwrap()
            .clone();
        assert_eq!(
            self.consumed, self.batches,
            "not all batches were processed"
        );
        report
    }

    /// Waits for the end of a tree whose sender has said all, or that the receiver ends.
    pub(super) fn ended(mut self) -> Result<TreeReport, FileError> {
        self.flush();
        while self.result.is_none() {
            self.hear();
        }
        self.result.unwrap()
    }

    /// Waits for the end of a tree that must fail with a protocol violation, and returns the error.
    pub(super) fn breach(&mut self) -> String {
        match self.wait() {
            Err(error) if error.code == FailCode::Protocol => error.one_line(),
            other => panic!("expected a protocol error, got {other:?}"),
        }
    }
}

/// Entry as encoded for the wire, with unchecked names.
#[derive(Encode)]
#[cbor(map)]
struct RawEntry {
    #[n(0)]
    id: u64,
    #[n(1)]
    parent: Option<u64>,
    #[n(2)]
    name: Option<RawName>,
    #[n(3)]
    content: RawContent,
    #[n(4)]
    mode: u32,
    #[n(5)]
    mtime: Timestamp,
}

/// Content of an entry as encoded for the wire, with unchecked paths.
#[derive(Encode, Clone)]
pub(super) enum RawContent {
    #[n(0)]
    File {
        #[n(0)]
        size: u64,
        #[n(1)]
        alone: bool,
    },
    #[n(1)]
    Directory,
    #[n(2)]
    Symlink {
        #[cbor(n(0), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    #[n(3)]
    HardLink {
        #[n(0)]
        to: u64,
        #[n(1)]
        path: RawName,
    },
}

#[derive(Clone)]
pub(super) struct RawName(pub(super) Vec<Vec<u8>>);

impl<C> Encode<C> for RawName {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        c: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        self.0
            .iter()
            .map(|component| ByteVec::from(component.clone()))
            .collect::<Vec<_>>()
            .encode(e, c)
    }
}

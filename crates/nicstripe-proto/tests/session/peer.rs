//! Scripted hostile peer of one session: the messages that it sends, and the session that is its
//! victim.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    Acceptance, ChainingValue, ChunkId, ChunkRange, DataHeader, Digest, Event, FailCode, Frame,
    Incoming, Message, Name, Offer, PathError, PathId, PathState, Role, Session, SessionConfig,
    SourceIdentity, TransferId, Transmit,
    message::{
        Accept, Committed, Complete, End, Fail, Get, GetTree, OfferKind, Put, PutOptions, PutTree,
        TreeBody, TreeSource, WalkRules, Window,
    },
    path::{Arrival, PathPlan},
    tree::{EntryId, TreeMessage, TreeRules, Verdict},
};

pub(crate) const P: PathId = PathId(0);
pub(crate) const T: TransferId = TransferId(1);
/// Bytes of a whole chunk.
pub(crate) const FULL: u32 = 1 << 18;
/// Bytes of the file that [`put`], [`get`] and [`offer`] name: eight chunks.
pub(crate) const SIZE: u64 = 8 << 18;

/// Step of a script: something that the peer sends.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "few, in tests")]
pub(crate) enum Says {
    Message(Message),
    Frame(Frame),
    /// Header of a data frame.
    Chunk(DataHeader),
}

impl From<Message> for Says {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

impl From<&Message> for Says {
    fn from(message: &Message) -> Self {
        Self::Message(message.clone())
    }
}

impl From<Frame> for Says {
    fn from(frame: Frame) -> Self {
        Self::Frame(frame)
    }
}

impl From<DataHeader> for Says {
    fn from(header: DataHeader) -> Self {
        Self::Chunk(header)
    }
}

/// Honest session with one open path. The test acts as the session's peer and sends arbitrary
/// frames.
pub(crate) struct Victim {
    pub(crate) session: Session,
    pub(crate) now: Instant,
    seq: u64,
}

impl Victim {
    pub(crate) fn new(role: Role) -> Self {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut session = Session::new(role, SessionConfig::default(), now);
        session.handle_arrived(P, plan(), &Arrival::default(), now);
        let mut victim = Self {
            session,
            now,
            seq: 0,
        };
        victim.drain();
        victim
    }

    /// Creates a daemon that received `request` and accepts it.
    pub(crate) fn accepting(request: Message, how: Acceptance) -> Self {
        let mut victim = Self::new(Role::Daemon);
        victim.say(request).unwrap();
        victim.session.accept(T, Vec::new(), how);
        victim.drain();
        victim
    }

    /// Creates a daemon that receives a file of eight chunks.
    pub(crate) fn receiving() -> Self {
        Self::accepting(Message::Put(put(T)), Acceptance::default())
    }

    /// Creates a client that offers a file of eight chunks.
    pub(crate) fn offering() -> Self {
        let mut victim = Self::new(Role::Client);
        victim.session.put(put(T)).unwrap();
        victim.drain();
        victim
    }

    /// Creates a client that offers a tree.
    pub(crate) fn offering_tree() -> Self {
        let mut victim = Self::new(Role::Client);
        victim.session.put_tree(tree(T));
        victim.drain();
        victim
    }

    /// Creates a client that sends a file of eight chunks. Two chunks are in flight.
    pub(crate) fn sending() -> Self {
        let mut victim = Self::offering();
        victim.say(accept(T)).unwrap();
        victim.say(credit(2)).unwrap();
        for chunk in victim.chunks() {
            assert!(victim.read(chunk).is_some());
        }
        victim
    }

    /// Delivers what the peer says, and returns the session's reply to it: a chunk's outcome, and
    /// [`Incoming::Drop`] for anything else that is accepted.
    pub(crate) fn hear(&mut self, says: impl Into<Says>) -> Result<Incoming, PathError> {
        let frame = match says.into() {
            Says::Message(message) => self.control(minicbor::to_vec(message).unwrap()),
            Says::Frame(frame) => frame,
            Says::Chunk(header) => return self.session.handle_chunk(P, &header, self.now),
        };
        self.session
            .handle_frame(P, frame, self.now)
            .map(|()| Incoming::Drop)
    }

    /// Like `hear`, for a script that does not depend on a chunk's outcome.
    pub(crate) fn say(&mut self, says: impl Into<Says>) -> Result<(), PathError> {
        self.hear(says).map(|_| ())
    }

    /// Asserts that the session answers what the peer says with the variant `kind` of
    /// [`PathError`], reports nothing of it to its driver, and keeps the path open.
    #[track_caller]
    pub(crate) fn refuses(&mut self, says: impl Into<Says>, kind: &str) {
        let says = says.into();
        let told = format!("{says:?}");
        while self.session.poll_event().is_some() {}
        let result = self.hear(says);
        assert!(
            result.as_ref().is_err_and(|error| is_kind(error, kind)),
            "{result:?} instead of {kind} in answer to {told}"
        );
        assert_eq!(self.session.poll_event(), None, "{told}");
        self.is_open();
    }

    /// Returns a control frame with the next sequence number.
    fn control(&mut self, body: Vec<u8>) -> Frame {
        self.seq += 1;
        Frame::Control {
            seq: self.seq - 1,
            body,
        }
    }

    /// Delivers the header of a data frame with `len` bytes of a chunk. `last` marks the final
    /// chunk of a stream.
    pub(crate) fn piece(
        &mut self,
        chunk: u64,
        len: u32,
        last: bool,
    ) -> Result<Incoming, PathError> {
        self.hear(header(chunk, len, last))
    }

    /// Delivers the header of a chunk, and asserts that it must be written.
    #[track_caller]
    pub(crate) fn takes(&mut self, chunk: u64, len: u32, last: bool) {
        let incoming = self.piece(chunk, len, last);
        assert!(
            matches!(incoming, Ok(Incoming::Write { .. })),
            "{incoming:?} in answer to chunk {chunk}"
        );
    }

    /// Delivers a chunk and reports it as verified and written. Returns true if the chunk is new.
    pub(crate) fn write(&mut self, chunk: u64, len: u32, last: bool) -> bool {
        self.takes(chunk, len, last);
        self.written(&header(chunk, len, last))
    }

    pub(crate) fn written(&mut self, header: &DataHeader) -> bool {
        self.session.handle_chunk_written(P, header, self.now)
    }

    /// Reads a chunk that the session assigned. Returns its header if the session sends it.
    pub(crate) fn read(&mut self, chunk: ChunkId) -> Option<DataHeader> {
        let value = ChainingValue([1; 32]);
        self.session.handle_chunk_read(P, T, chunk, value, self.now)
    }

    pub(crate) fn drain(&mut self) -> (Vec<Event>, Vec<Transmit>) {
        let events = std::iter::from_fn(|| self.session.poll_event()).collect();
        (
            events,
            std::iter::from_fn(|| self.session.poll_transmit(P, self.now))
                .take(1000)
                .collect(),
        )
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        self.drain().0
    }

    /// Returns the chunks that the session assigns to the path.
    pub(crate) fn chunks(&mut self) -> Vec<ChunkId> {
        let chunks = self
            .drain()
            .1
            .into_iter()
            .filter_map(|transmit| match transmit {
                Transmit::Chunk { chunk, .. } => Some(chunk),
                Transmit::Frame(_) | Transmit::Load(_) => None,
            });
        chunks.collect()
    }

    /// Begins to send all chunks that the session permits. Returns their number.
    pub(crate) fn send_chunks(&mut self) -> u64 {
        let chunks = self.chunks();
        let begun: Vec<DataHeader> = chunks
            .into_iter()
            .filter_map(|chunk| self.read(chunk))
            .collect();
        begun
            .iter()
            .for_each(|_| self.session.handle_chunk_flushed(P));
        begun.len() as u64
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.session.stats(T).delivered_bytes
    }

    /// Replaces the connection of the path.
    pub(crate) fn connect(&mut self) {
        self.session
            .handle_arrived(P, plan(), &Arrival::default(), self.now);
    }

    pub(crate) fn is_healthy(&mut self) {
        self.session
            .handle_timeout(self.now + Duration::from_millis(1));
        self.is_open();
    }

    #[track_caller]
    fn is_open(&self) {
        assert_eq!(
            self.session.paths().next().unwrap().1.state(),
            PathState::Open
        );
    }
}

fn plan() -> PathPlan {
    PathPlan::new("eth0".into(), ([10, 0, 0, 1], 7747).into())
}

/// Returns true if `kind` is the name of the variant.
fn is_kind(variant: &impl Debug, kind: &str) -> bool {
    let shown = format!("{variant:?}");
    shown.split(|c: char| !c.is_alphanumeric()).next() == Some(kind)
}

pub(crate) fn header(chunk: u64, len: u32, last: bool) -> DataHeader {
    DataHeader {
        transfer: T,
        chunk: ChunkId(chunk),
        value: ChainingValue([0; 32]),
        len,
        raw_len: 0,
        last,
    }
}

/// Returns the header of a chunk that is not the last.
pub(crate) fn chunk(chunk: u64, len: u32) -> DataHeader {
    header(chunk, len, false)
}

pub(crate) fn ack(first: u64, count: u64) -> Frame {
    Frame::Ack {
        transfer: T,
        ranges: vec![ChunkRange {
            first: ChunkId(first),
            count,
        }],
    }
}

pub(crate) fn credit(frames: u64) -> Frame {
    Frame::Credit { frames }
}

pub(crate) fn offer(transfer: TransferId) -> Offer {
    Offer {
        transfer,
        source: SourceIdentity {
            size: SIZE,
            ..SourceIdentity::default()
        },
        chunk_log2: 18,
        mode: 0o600,
        kind: None,
        data: None,
        object: None,
    }
}

pub(crate) fn put(transfer: TransferId) -> Put {
    Put {
        name: Name::new(["a"]).unwrap(),
        offer: offer(transfer),
        options: PutOptions::default(),
        into: None,
        entry: None,
        attributes: None,
    }
}

/// Returns a put whose offer is changed by `change`.
pub(crate) fn put_with(change: impl FnOnce(&mut Offer)) -> Message {
    let mut put = put(T);
    change(&mut put.offer);
    Message::Put(put)
}

/// Returns a put of something other than a file.
pub(crate) fn put_of(kind: OfferKind) -> Message {
    put_with(|offer| offer.kind = Some(kind))
}

pub(crate) fn get(transfer: TransferId) -> Message {
    let name = Name::new(["a"]).unwrap();
    Message::Get(Get {
        transfer,
        name,
        limit_bps: None,
        entry: None,
        compress: false,
        allow_changing: false,
        range: None,
    })
}

/// Returns the acceptance of a transfer without a window and without a delta.
pub(crate) fn acceptance(transfer: TransferId) -> Accept {
    Accept {
        transfer,
        have: Vec::new(),
        window: None,
        delta: None,
        memory: None,
    }
}

pub(crate) fn accept(transfer: TransferId) -> Message {
    Message::Accept(acceptance(transfer))
}

pub(crate) fn complete(transfer: TransferId, digest: Digest, end: Option<End>) -> Message {
    Message::Complete(Complete {
        transfer,
        digest,
        streams: Vec::new(),
        end,
        changing: false,
    })
}

/// Returns the end of a stream of `chunks` chunks and `size` bytes.
pub(crate) fn end(chunks: u64, size: u64) -> Message {
    complete(T, Digest::NONE, Some(End { chunks, size }))
}

pub(crate) fn committed(transfer: TransferId) -> Message {
    Message::Committed(Committed {
        transfer,
        digest: Digest([1; 32]),
        etag: None,
    })
}

pub(crate) fn cancel(transfer: TransferId) -> Fail {
    Fail {
        transfer,
        code: FailCode::Cancelled,
        text: String::new(),
        resumable: true,
    }
}

pub(crate) fn tree(transfer: TransferId) -> PutTree {
    PutTree {
        transfer,
        target: None,
        as_name: false,
        rules: TreeRules::default(),
        heeds_memory: false,
    }
}

pub(crate) fn put_tree(transfer: TransferId) -> Message {
    Message::PutTree(tree(transfer))
}

pub(crate) fn get_tree(transfer: TransferId, sources: Vec<TreeSource>) -> Message {
    Message::GetTree(GetTree {
        transfer,
        sources,
        walk: WalkRules::default(),
        rules: TreeRules::default(),
        limit_bps: None,
    })
}

/// Returns the messages of a receiver to the sender of a tree.
pub(crate) fn verdict(transfer: TransferId) -> Message {
    let message = TreeMessage::Verdicts {
        first: EntryId(0),
        verdicts: vec![Verdict::Create],
    };
    Message::Tree(TreeBody { transfer, message })
}

pub(crate) fn window(chunks: u64) -> Message {
    Message::Window(Window {
        transfer: T,
        chunks,
    })
}

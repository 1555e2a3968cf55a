//! Fuzz target: a session with a hostile peer, and with arbitrary results of the driver, the disk
//! and the connections.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::tape::Tape;
use crate::{
    Acceptance, ChainingValue, DataHeader, Event, FailCode, Frame, HoleMap, Incoming, Message,
    Offer, Offering, PathError, PathId, PathLoss, Request, Role, Session, SessionConfig, Subtree,
    TransferId, Transmit,
    extent::{ChunkId, Extent},
    frame::Piece,
    message::{
        Answer, AnswerKind, Ask, CloseCode, Committed, Get, GetTree, MOST_ASKS, ObjectEntry,
        OfferKind, Put, PutOptions, PutTree, TreeBody, TreeSource, WalkRules,
    },
    path::{Arrival, Cause, NotConnected, PathPlan},
    session::failure,
    tree::{TreeMessage, TreeRules},
};

/// Fuzz target: runs one session. The input determines the peer's messages, the loss of
/// connections, and the order of disk work.
///
/// The session must not panic, overflow its timers, or produce endless output. Buffered data from
/// the peer must not exceed the granted credit, and sent data must not exceed the received credit.
pub fn session(data: &[u8]) {
    let mut tape = Tape::new(data);
    let mut victim = Victim::new(&mut tape);
    for _ in 0..MOST_STEPS {
        if tape.is_empty() {
            break;
        }
        victim.step(&mut tape);
        victim.settle(&mut tape);
        victim.check();
    }
    victim.fade();
}

/// Maximum number of steps in a run. A step depends only on the few steps before it, so a longer
/// run finds nothing more.
const MOST_STEPS: usize = 150;

const PATHS: u16 = 3;

/// Number of polls after which a session's output counts as endless. The largest legal burst is 32
/// chunks of credit per path.
const MOST_CALLS: usize = 2_000;

/// Credit of both ends of one connection, in data frames.
#[derive(Default)]
struct Connection {
    /// Number of data frames that the session has granted to the peer, and number of those that
    /// have arrived.
    granted: u64,
    arrived: u64,
    /// Number of data frames that the peer has granted to the session, and number of those that
    /// have begun.
    credit: u64,
    begun: u64,
}

struct Victim {
    session: Session,
    role: Role,
    now: Instant,
    connections: [Option<Connection>; PATHS as usize],
    /// Next sequence number of the peer's control messages, and the numbers that arrived out of
    /// order.
    next: u64,
    early: BTreeSet<u64>,
    /// Number of control messages that the session has sent.
    sent: u64,
    /// Number of transfers that the session's driver has started.
    begun: u32,
    /// Chunks that are being written, chunks that [`Incoming::Later`] deferred, and chunks that are
    /// being read.
    writing: Vec<(PathId, DataHeader)>,
    later: Vec<(PathId, DataHeader)>,
    reading: Vec<(PathId, TransferId, ChunkId)>,
    /// Encoded control messages of the session. Each must decode.
    said: Vec<Vec<u8>>,
    committed: BTreeSet<TransferId>,
    /// Unanswered requests of the peer.
    asked: Vec<Ask>,
}

impl Victim {
    fn new(tape: &mut Tape<'_>) -> Self {
        // The start time does not matter, only the differences do.
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let role = if tape.is() {
            Role::Client
        } else {
            Role::Daemon
        };
        let config = SessionConfig {
            credit_window: 1 + tape.below(40),
            sync_bytes: 8192,
            ..SessionConfig::default()
        };
        let mut victim = Self {
            session: Session::new(role, config, now),
            role,
            now,
            connections: Default::default(),
            next: 0,
            early: BTreeSet::new(),
            sent: 0,
            begun: 0,
            writing: Vec::new(),
            later: Vec::new(),
            reading: Vec::new(),
            said: Vec::new(),
            committed: BTreeSet::new(),
            asked: Vec::new(),
        };
        victim.open(PathId(0));
        victim.settle(tape);
        victim
    }

    fn step(&mut self, tape: &mut Tape<'_>) {
        let (what, path) = (tape.below(20), PathId(tape.below(u64::from(PATHS)) as u16));
        match what {
            0..=5 => {
                let body =
                    minicbor::to_vec(tape.message()).expect("writing to a vector cannot fail");
                self.hear_control(path, body, tape);
            }
            6 => self.hear_control(path, tape.bytes(16).to_vec(), tape),
            7..=9 => self.hear_data(path, tape),
            10 | 11 => {
                let (transfer, ranges) = (
                    tape.transfer(),
                    (0..1 + tape.below(3)).map(|_| tape.range()).collect(),
                );
                self.hear(path, Frame::Ack { transfer, ranges });
            }
            12 => self.hear_other(path, tape),
            13 => match tape.below(5) {
                0 => self.lose(path, PathLoss::Reset),
                1 => self.retire(path),
                2 => self.session.handle_heard(path, self.now),
                _ => self.open(path),
            },
            14 | 15 => self.pass(Duration::from_millis(tape.number().min(5_000))),
            16 | 17 => self.finish_work(tape),
            _ => self.use_session(tape),
        }
    }

    fn connection(&mut self, path: PathId) -> Option<&mut Connection> {
        self.connections.get_mut(usize::from(path.0))?.as_mut()
    }

    fn open(&mut self, path: PathId) {
        self.connections[usize::from(path.0)] = Some(Connection::default());
        let plan = PathPlan::new("eth0".into(), ([10, 0, 0, 1], 7747).into());
        self.session
            .handle_arrived(path, plan, &Arrival::default(), self.now);
    }

    fn lose(&mut self, path: PathId, loss: PathLoss) {
        self.connections[usize::from(path.0)] = None;
        self.session.handle_path_lost(path, loss, self.now);
    }

    fn retire(&mut self, path: PathId) {
        self.connections[usize::from(path.0)] = None;
        self.session.retire_path(path, Cause::Replaced, self.now);
    }

    /// Delivers a frame from the peer in encoded form, as over a real connection.
    fn hear(&mut self, path: PathId, frame: Frame) {
        if self.connection(path).is_none() {
            return;
        }
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let (mut decoder, mut input) = (crate::frame::Decoder::new(), &bytes[..]);
        let Ok(Some(Piece::Frame(frame))) = decoder.next(&mut input) else {
            return;
        };
        let heard = self.session.handle_frame(path, frame, self.now);
        self.judge(path, heard);
    }

    /// Returns the value of a successful call. Otherwise closes the connection on which the peer
    /// violated the protocol, and returns `None`.
    fn judge<T>(&mut self, path: PathId, result: Result<T, PathError>) -> Option<T> {
        result
            .inspect_err(|error| drop(error.to_string()))
            .map_err(|_| self.lose(path, PathLoss::Protocol))
            .ok()
    }

    fn hear_control(&mut self, path: PathId, body: Vec<u8>, tape: &mut Tape<'_>) {
        if self.connection(path).is_none() || body.is_empty() {
            return;
        }
        let seq = match tape.byte() {
            0..=239 => self.next,
            ahead @ 240..=250 => self.next.wrapping_add(u64::from(ahead)).wrapping_sub(245),
            _ => tape.number(),
        };
        if seq >= self.next && seq < self.next.saturating_add(crate::path::reliable::WINDOW) {
            self.early.insert(seq);
        }
        while self.early.remove(&self.next) {
            self.next += 1;
        }
        self.hear(path, Frame::Control { seq, body });
    }

    fn hear_data(&mut self, path: PathId, tape: &mut Tape<'_>) {
        let header = tape.header();
        let Some(connection) = self.connection(path) else {
            return;
        };
        connection.arrived += 1;
        let permitted = connection.arrived <= connection.granted;
        let incoming = self.session.handle_chunk(path, &header, self.now);
        assert!(
            permitted || incoming.is_err(),
            "data beyond the credit is accepted"
        );
        self.on_incoming(path, header, incoming);
    }

    fn on_incoming(
        &mut self,
        path: PathId,
        header: DataHeader,
        incoming: Result<Incoming, PathError>,
    ) {
        match self.judge(path, incoming) {
            Some(Incoming::Write { grid, offset }) => {
                assert_eq!(
                    grid.extent_of(header.chunk).map(|extent| extent.offset),
                    Some(offset)
                );
                assert!(
                    offset + u64::from(header.chunk_len()) <= grid.size,
                    "a chunk beyond the end"
                );
                self.writing.push((path, header));
            }
            Some(Incoming::Later) => self.later.push((path, header)),
            Some(Incoming::Drop) | None => {}
        }
    }

    fn hear_other(&mut self, path: PathId, tape: &mut Tape<'_>) {
        let frame = match tape.below(8) {
            0..=2 => Frame::Credit {
                frames: tape.number(),
            },
            3 | 4 => Frame::Heartbeat {
                sent_us: tape.number(),
                echo_us: tape.number(),
            },
            5 => Frame::ControlAck {
                next: self.sent.wrapping_sub(tape.below(4)).wrapping_add(1),
            },
            6 => Frame::Close {
                code: tape.below(4) as u32,
            },
            _ => Frame::Hello(vec![0]),
        };
        if let (Frame::Credit { frames }, Some(connection)) = (&frame, self.connection(path)) {
            connection.credit = connection.credit.max(*frames);
        }
        self.hear(path, frame);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for _ in 0..8 {
            match self.session.poll_timeout() {
                Some(at) if at <= self.now => self.session.handle_timeout(self.now),
                _ => return,
            }
            // `settle` handles the timeout, but the clock must advance.
        }
        let timeout = self.session.poll_timeout();
        assert!(
            timeout.is_none_or(|at| at > self.now),
            "a timeout repeats without progress"
        );
    }

    /// Completes some of the pending disk work: with success, with failure, or with data that
    /// contradicts the peer's checksum.
    fn finish_work(&mut self, tape: &mut Tape<'_>) {
        let (what, which) = (tape.below(8), usize::from(tape.byte()));
        if what < 4 && !self.writing.is_empty() {
            let (path, header) = self.writing.swap_remove(which % self.writing.len());
            match what {
                0 | 1 => {
                    self.session
                        .handle_chunk_unwritten(path, header.transfer, header.chunk);
                    if what == 0 {
                        self.lose(path, PathLoss::Protocol);
                    } else {
                        self.fail(header.transfer, FailCode::Io);
                    }
                }
                _ => _ = self.session.handle_chunk_written(path, &header, self.now),
            }
            self.ask_again(&header);
        } else if !self.reading.is_empty() {
            let (path, transfer, chunk) = self.reading.swap_remove(which % self.reading.len());
            self.on_read(path, transfer, chunk, ChainingValue([chunk.0 as u8; 32]));
        }
    }

    /// Retries the chunks that were deferred until `written` was complete.
    fn ask_again(&mut self, written: &DataHeader) {
        let is_same = |header: &DataHeader| {
            (header.transfer, header.chunk) == (written.transfer, written.chunk)
        };
        let waited: Vec<_> = self
            .later
            .extract_if(.., |(_, header)| is_same(header))
            .collect();
        for (path, header) in waited {
            if self.session.is_under_way(header.transfer) {
                let incoming = self.session.handle_chunk_again(path, &header, self.now);
                self.on_incoming(path, header, incoming);
            } else {
                self.session
                    .handle_chunk_unwritten(path, header.transfer, header.chunk);
            }
        }
    }

    fn on_read(
        &mut self,
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        value: ChainingValue,
    ) {
        let Some(header) = self
            .session
            .handle_chunk_read(path, transfer, chunk, value, self.now)
        else {
            return;
        };
        assert!(header.len as usize <= crate::frame::MAX_PAYLOAD);
        let connection = self
            .connection(path)
            .expect("a chunk is only sent on a connection");
        connection.begun += 1;
        assert!(
            connection.begun <= connection.credit,
            "sent beyond the credit"
        );
        self.session.handle_chunk_flushed(path);
    }

    /// Makes an arbitrary call that a session's driver may make.
    fn use_session(&mut self, tape: &mut Tape<'_>) {
        let transfer = tape.transfer();
        match tape.below(14) {
            12 => self.session.end_run(),
            13 => _ = self.session.send_bench_message(tape.bench()),
            0..=3 if self.role == Role::Client => self.begin(tape),
            4 | 5 => {
                _ = self.session.give(
                    transfer,
                    1 + tape.below(4096) as u32,
                    tape.value(),
                    tape.is(),
                );
            }
            6 => self.session.close_source(transfer),
            7 => self.session.taken(transfer, tape.below(8)),
            8 => self.fail(transfer, FailCode::Cancelled),
            9 => {
                let message = TreeMessage::Results {
                    done: Vec::new(),
                    failed: Vec::new(),
                    deleted: Vec::new(),
                    stripped: None,
                };
                self.session.send_tree(TreeBody { transfer, message });
            }
            10 => _ = self.session.take_unsynced(transfer),
            11 if tape.byte() > 200 => self.session.close(CloseCode::Done),
            11 if self.role == Role::Client => _ = self.session.ask(tape.ask()),
            11 => {
                if let Some(ask) = self.asked.pop() {
                    self.session.answer(Answer {
                        id: ask.id,
                        answer: tape.answer(),
                    });
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, tape: &mut Tape<'_>) {
        self.begun += 1;
        let transfer = TransferId(self.begun);
        match tape.below(4) {
            0 => self.session.put_tree(PutTree {
                transfer,
                target: None,
                as_name: false,
                rules: TreeRules::default(),
                heeds_memory: false,
            }),
            1 => self.session.get_tree(GetTree {
                transfer,
                sources: vec![TreeSource {
                    name: None,
                    content: true,
                }],
                walk: WalkRules::default(),
                rules: TreeRules::default(),
                limit_bps: None,
            }),
            2 => self.session.get(Get {
                transfer,
                name: super::says::name(),
                limit_bps: None,
                entry: None,
                compress: false,
                allow_changing: false,
                range: None,
            }),
            _ => {
                let put = Put {
                    name: super::says::name(),
                    offer: self.offer(transfer, tape),
                    options: PutOptions::default(),
                    into: None,
                    entry: None,
                    attributes: None,
                };
                self.session.put(put).expect("an honest offer");
            }
        }
    }

    /// Fails a transfer, as its driver may do at any time.
    fn fail(&mut self, transfer: TransferId, code: FailCode) {
        let resumable = matches!(code, FailCode::Io | FailCode::Cancelled);
        self.session
            .fail(failure(transfer, code, "the driver ends it", resumable));
    }

    /// Returns an offer of a pipe, or of a file that may have holes.
    fn offer(&mut self, transfer: TransferId, tape: &mut Tape<'_>) -> Offer {
        let kind = [None, Some(OfferKind::Pipe)][usize::from(tape.byte() > 200)];
        let size = if kind.is_none() {
            4096 * tape.below(20) + tape.below(2)
        } else {
            0
        };
        let mut holes = HoleMap::default();
        for _ in 0..tape.below(3) {
            let hole = Extent {
                offset: 4096 * tape.below(20),
                len: 4096 * (1 + tape.below(4)),
            };
            // An invalid hole has no effect.
            let _ = holes.push(hole, size);
        }
        let data = (!holes.is_empty()).then(|| size - holes.bytes());
        self.session.prepare(
            transfer,
            Offering {
                holes,
                may_change: tape.is(),
            },
        );
        let source = crate::SourceIdentity {
            size,
            ..crate::SourceIdentity::default()
        };
        Offer {
            transfer,
            source,
            chunk_log2: 12,
            mode: 0o644,
            kind,
            data,
            object: None,
        }
    }

    /// Handles the session's events and transmits its output until neither remains. Panics if the
    /// output is endless.
    fn settle(&mut self, tape: &mut Tape<'_>) {
        for calls in 0.. {
            assert!(calls < MOST_CALLS, "events without end");
            let Some(event) = self.session.poll_event() else {
                break;
            };
            self.on_event(event, tape);
        }
        for path in (0..PATHS).map(PathId) {
            let mut calls = 0;
            while let Some(transmit) = self.session.poll_transmit(path, self.now) {
                calls += 1;
                assert!(calls < MOST_CALLS, "frames without end");
                self.on_transmit(path, transmit);
            }
        }
        self.hash_ahead(tape);
        self.said.drain(..).for_each(|body| {
            drop(
                minicbor::decode::<Message>(&body).expect("an honest session sends valid messages"),
            );
        });
    }

    /// Performs some of the pending hash work. Hashing a whole file of many terabytes would not
    /// end.
    fn hash_ahead(&mut self, tape: &mut Tape<'_>) {
        for _ in 0..tape.below(6) {
            if let Some((transfer, chunk)) = self.session.poll_hash() {
                self.session.handle_chunk_hashed(
                    transfer,
                    chunk,
                    ChainingValue([chunk.0 as u8 % 4; 32]),
                );
            }
            if let Some((transfer, grid, zeros)) = self.session.poll_zeros() {
                let subtree = Subtree {
                    first: zeros.first,
                    level: zeros.level,
                    value: ChainingValue([0; 32]),
                };
                assert!(subtree.chunks(grid).is_ok());
                self.session
                    .handle_zeros_hashed(transfer, subtree, self.now);
            }
            if let Some((transfer, chunk)) = self.session.poll_compare() {
                self.session.handle_compared(
                    transfer,
                    chunk,
                    tape.is().then_some(ChainingValue([chunk.0 as u8 % 4; 32])),
                );
            }
        }
    }

    fn on_transmit(&mut self, path: PathId, transmit: Transmit) {
        let connection = self
            .connection(path)
            .expect("something is only sent on a connection");
        match transmit {
            Transmit::Frame(Frame::Credit { frames }) => connection.granted = frames,
            Transmit::Frame(Frame::Control { seq, body }) => {
                self.sent = self.sent.max(seq + 1);
                self.said.push(body);
            }
            Transmit::Frame(frame) => {
                let mut bytes = Vec::new();
                frame.encode(&mut bytes);
            }
            Transmit::Chunk { transfer, chunk } => self.reading.push((path, transfer, chunk)),
            Transmit::Load(order) => {
                let run = self.session.run().map(|(run, _)| run.run);
                assert!(
                    order.is_none_or(|order| Some(order.run) == run),
                    "load of a run that has not begun"
                );
            }
        }
    }

    fn on_event(&mut self, event: Event, tape: &mut Tape<'_>) {
        match event {
            Event::Connect(path) if tape.is() => self.open(path),
            Event::Connect(path) => {
                let why = NotConnected::Other;
                self.session
                    .handle_not_connected(path, why, "refused".into(), self.now);
            }
            Event::Disconnect(path) => self.connections[usize::from(path.0)] = None,
            Event::Requested(Request::Put(put)) => {
                self.decide(put.offer.transfer, put.offer.data.is_some(), tape);
            }
            Event::Offered(offer) => self.decide(offer.transfer, offer.data.is_some(), tape),
            Event::Requested(Request::PutTree(put)) => {
                let how = Acceptance {
                    room: Some(1 + tape.below(64)),
                    ..Acceptance::default()
                };
                self.session.accept(put.transfer, Vec::new(), how);
            }
            Event::Requested(Request::Get(get)) => self.serve(get.transfer, false, tape),
            Event::Requested(Request::GetTree(get)) => self.serve(get.transfer, true, tape),
            Event::Sync { transfer, subtrees } => {
                assert!(!subtrees.is_empty(), "no data to sync");
                if tape.byte() < 200 {
                    self.session.handle_synced(transfer, self.now);
                }
            }
            Event::Holes { transfer, .. } => self.session.handle_holes_made(transfer),
            Event::SourceRead { transfer, .. } if tape.byte() < 200 => {
                self.session.complete(transfer, Vec::new());
            }
            Event::SourceRead { transfer, .. } => self.fail(transfer, FailCode::SourceChanged),
            Event::Commit { transfer, digest } => {
                assert!(self.committed.insert(transfer), "committed twice");
                self.session.committed(Committed {
                    transfer,
                    digest,
                    etag: None,
                });
            }
            Event::Asked(ask) => {
                assert!(
                    self.role == Role::Daemon && self.asked.iter().all(|other| other.id != ask.id),
                    "asked twice"
                );
                self.asked.push(ask);
                assert!(
                    self.asked.len() <= MOST_ASKS,
                    "more requests than the limit"
                );
            }
            Event::Answered(answer) => {
                let is_plain = |entry: &ObjectEntry| crate::Name::new([&entry.name[..]]).is_ok();
                assert!(self.role == Role::Client, "a daemon asks nothing");
                if let AnswerKind::Entries { entries, .. } = answer.answer {
                    assert!(
                        entries.iter().all(is_plain)
                            && entries.is_sorted_by(|one, next| one.name < next.name)
                    );
                }
            }
            Event::Mismatch {
                transfer,
                received,
                sent,
            } => {
                assert_ne!(received, sent);
                self.fail(transfer, FailCode::Digest);
            }
            _ => {}
        }
    }

    /// Accepts the transfer at its receiver, or fails it.
    fn decide(&mut self, transfer: TransferId, holes: bool, tape: &mut Tape<'_>) {
        if tape.byte() > 230 {
            return self.fail(transfer, FailCode::Exists);
        }
        let room = (tape.byte() > 200).then(|| 1 + tape.below(64));
        let delta = (tape.byte() > 128).then(|| tape.below(40));
        let have = |tape: &mut Tape<'_>| Subtree {
            first: ChunkId(tape.below(20)),
            level: tape.byte() % 4,
            value: tape.value(),
        };
        let have = (0..tape.below(3)).map(|_| have(tape)).collect();
        self.session.accept(
            transfer,
            have,
            Acceptance {
                room,
                holes,
                delta,
                memory: None,
            },
        );
    }

    /// Offers the source at the transfer's sender, or fails it.
    fn serve(&mut self, transfer: TransferId, tree: bool, tape: &mut Tape<'_>) {
        if tape.byte() > 230 {
            return self.fail(transfer, FailCode::NotFound);
        }
        let mut offer = self.offer(transfer, tape);
        if tree {
            offer.kind = Some(OfferKind::Batches);
        }
        self.session.offer(offer).expect("an honest offer");
    }

    fn check(&self) {
        for (path, known) in self.session.paths() {
            let held = self
                .writing
                .iter()
                .chain(&self.later)
                .filter(|(its, _)| *its == path)
                .count() as u64;
            assert_eq!(
                known.held_chunks(),
                held,
                "the buffer differs from its count"
            );
            assert!(held <= 40, "the buffer exceeds the window");
        }
        for transfer in (0..8).map(TransferId) {
            let stats = self.session.stats(transfer);
            let arrived = stats.resumed_bytes + stats.unsent_bytes + stats.delivered_bytes;
            assert!(
                stats.size == 0 || arrived <= stats.size,
                "received more than sent: {stats:?}"
            );
        }
    }

    /// Ends all input and lets time pass. Panics if the session produces events in a busy loop.
    fn fade(&mut self) {
        let mut nothing = Tape::new(&[]);
        for _ in 0..8 {
            let Some(at) = self.session.poll_timeout() else {
                break;
            };
            self.pass(at.saturating_duration_since(self.now));
            self.settle(&mut nothing);
        }
    }
}

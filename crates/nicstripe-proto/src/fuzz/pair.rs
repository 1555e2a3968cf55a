//! Fuzz target: two honest sessions with unreliable connections and corrupted bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::tape::Tape;
use crate::{
    ChainingValue, DataHeader, Digest, Event, FailCode, Grid, Incoming, Offer, PathId, PathLoss,
    Role, Session, SessionConfig, SourceIdentity, TransferId, Transmit,
    extent::ChunkId,
    frame::{Decoder, Piece},
    grid::ChunkSize,
    hash_tree::chunk_value,
    message::{Committed, Get, Put, PutOptions},
    session::failure,
};

/// Fuzz target: transfers a file of a few chunks between two sessions, in either direction. The
/// input determines the order of deliveries, disconnects (possibly noticed at one end only),
/// reconnects, writes, the passage of time, and damaged chunks.
///
/// The committed file must equal the source. Once faults cease, both ends must commit exactly once.
/// The second bit of the first byte also corrupts frames, like a faulty peer: the file may then
/// fail to arrive, but a committed one must match the digest sent.
pub fn sessions(data: &[u8]) {
    let mut tape = Tape::new(data);
    let mut pair = Pair::new(&mut tape);
    for _ in 0..MOST_STEPS {
        if tape.is_empty() {
            break;
        }
        pair.step(&mut tape);
    }
    pair.finish();
}

const MOST_STEPS: usize = 150;

const PATHS: u16 = 2;

/// Number of fault-free rounds of 0.1 s within which the file must have arrived. The longest timer
/// of a session is two seconds.
const ROUNDS: usize = 400;

const T: TransferId = TransferId(1);

enum Packet {
    Frame(Vec<u8>),
    /// Header of a chunk, and the byte with which the chunk is filled.
    Chunk(DataHeader, u8),
}

struct Side {
    session: Session,
    /// Packets in flight on each path; `None` if the path is not connected.
    wires: [Option<VecDeque<Packet>>; PATHS as usize],
    writing: Vec<(PathId, DataHeader, u8)>,
    later: Vec<(PathId, DataHeader, u8)>,
    written: BTreeMap<ChunkId, u8>,
    committed: u32,
    ended: bool,
}

struct Pair {
    sides: [Side; 2],
    now: Instant,
    grid: Grid,
    sender: usize,
    /// True if the fuzzer also corrupts frames.
    hostile: bool,
}

impl Pair {
    fn new(tape: &mut Tape<'_>) -> Self {
        // Only differences matter.
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let first = tape.byte();
        let (hostile, sender) = (first & 2 != 0, usize::from(first & 1));
        let grid = Grid::new(tape.below(9) * 4096 + tape.below(3), ChunkSize::MIN);
        let side = |role| {
            let config = SessionConfig {
                credit_window: 3,
                sync_bytes: 8192,
                ..SessionConfig::default()
            };
            Side {
                session: Session::new(role, config, now),
                wires: Default::default(),
                writing: Vec::new(),
                later: Vec::new(),
                written: BTreeMap::new(),
                committed: 0,
                ended: false,
            }
        };
        let mut pair = Self {
            sides: [side(Role::Client), side(Role::Daemon)],
            now,
            grid,
            sender,
            hostile,
        };
        (0..PATHS)
            .map(PathId)
            .for_each(|path| pair.sides[0].session.add_path(path, now));
        let name = super::says::name();
        match sender {
            0 => {
                let put = Put {
                    name,
                    offer: pair.offer(),
                    options: PutOptions::default(),
                    into: None,
                    entry: None,
                };
                pair.sides[0].session.put(put).expect("an honest offer");
            }
            _ => pair.sides[0].session.get(Get {
                transfer: T,
                name,
                limit_bps: None,
                entry: None,
                compress: false,
                allow_changing: false,
                range: None,
            }),
        }
        pair.connect(PathId(0));
        pair
    }

    fn offer(&self) -> Offer {
        let source = SourceIdentity {
            size: self.grid.size,
            ..SourceIdentity::default()
        };
        Offer {
            transfer: T,
            source,
            chunk_log2: self.grid.chunk_size.log2(),
            mode: 0o644,
            kind: None,
            data: None,
        }
    }

    fn step(&mut self, tape: &mut Tape<'_>) {
        let (what, path, side) = (
            tape.below(12),
            PathId(tape.below(u64::from(PATHS)) as u16),
            tape.below(2) as usize,
        );
        match what {
            0..=4 => {
                for _ in 0..=tape.below(4) {
                    self.deliver(side, path, Some(tape));
                }
            }
            5 => self.connect(path),
            6 => self.cut(side, path, PathLoss::Reset),
            7 => self.pass(Duration::from_millis(tape.number().min(3_000))),
            8 | 9 => self.write_one(side, usize::from(tape.byte())),
            10 => self.pass(Duration::from_millis(tape.below(200))),
            _ => self.sides[side].session.handle_heard(path, self.now),
        }
        self.settle();
    }

    fn connect(&mut self, path: PathId) {
        for side in &mut self.sides {
            side.wires[usize::from(path.0)] = Some(VecDeque::new());
            side.session.handle_path_open(path, self.now);
        }
        self.settle();
    }

    /// Disconnects one end. The other notices by silence or by the next connection.
    fn cut(&mut self, side: usize, path: PathId, loss: PathLoss) {
        self.sides[side].wires[usize::from(path.0)] = None;
        self.sides[side]
            .session
            .handle_path_lost(path, loss, self.now);
    }

    /// Delivers the oldest packet of a path, corrupted if `tape` says so.
    fn deliver(&mut self, from: usize, path: PathId, tape: Option<&mut Tape<'_>>) {
        let (index, to) = (usize::from(path.0), 1 - from);
        let Some(packet) = self.sides[from].wires[index]
            .as_mut()
            .and_then(VecDeque::pop_front)
        else {
            return;
        };
        if self.sides[to].wires[index].is_none() {
            return;
        }
        let harm = tape.map_or(0, Tape::byte);
        match packet {
            Packet::Frame(mut bytes) => {
                if self.hostile && harm > 220 {
                    let at = usize::from(harm) * 31 % bytes.len();
                    bytes[at] ^= 1 << (harm % 8);
                }
                self.hear(to, path, &bytes);
            }
            Packet::Chunk(header, content) => {
                let content = if harm > 240 { !content } else { content };
                let incoming = self.sides[to].session.handle_chunk(path, &header, self.now);
                self.on_incoming(to, path, header, content, incoming.ok());
            }
        }
        self.settle();
    }

    fn hear(&mut self, to: usize, path: PathId, bytes: &[u8]) {
        let (mut decoder, mut input) = (Decoder::new(), bytes);
        let heard = match decoder.next(&mut input) {
            Ok(Some(Piece::Frame(frame))) => self.sides[to]
                .session
                .handle_frame(path, frame, self.now)
                .is_ok(),
            _ => false,
        };
        assert!(heard || self.hostile, "an honest peer misbehaves");
        if !heard {
            self.cut(to, path, PathLoss::Protocol);
        }
    }

    fn on_incoming(
        &mut self,
        to: usize,
        path: PathId,
        header: DataHeader,
        content: u8,
        incoming: Option<Incoming>,
    ) {
        match incoming {
            Some(Incoming::Write { .. }) => self.sides[to].writing.push((path, header, content)),
            Some(Incoming::Later) => {
                assert!(
                    self.hostile,
                    "two versions of a chunk of a source that does not change"
                );
                self.sides[to].later.push((path, header, content));
            }
            Some(Incoming::Drop) => {}
            None => {
                assert!(self.hostile, "an honest peer misbehaves");
                self.cut(to, path, PathLoss::Protocol);
            }
        }
    }

    fn write_one(&mut self, side: usize, which: usize) {
        let (grid, now) = (self.grid, self.now);
        let end = &mut self.sides[side];
        if end.writing.is_empty() {
            return;
        }
        let (path, header, content) = end.writing.swap_remove(which % end.writing.len());
        if value(grid, header.chunk, content) == Some(header.value)
            && header.chunk_len() == header.len
        {
            end.written.insert(header.chunk, content);
            end.session.handle_chunk_written(path, &header, now);
        } else {
            end.session
                .handle_chunk_damaged(path, header.transfer, header.chunk);
            self.cut(side, path, PathLoss::Protocol);
        }
        let waited: Vec<_> = self.sides[side]
            .later
            .extract_if(.., |(_, other, _)| other.chunk == header.chunk)
            .collect();
        for (path, header, content) in waited {
            let incoming = self.sides[side]
                .session
                .handle_chunk_again(path, &header, now);
            self.on_incoming(side, path, header, content, incoming.ok());
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for side in 0..2 {
            for calls in 0.. {
                assert!(calls < 50, "timeouts without progress");
                match self.sides[side].session.poll_timeout() {
                    Some((at, _)) if at <= self.now => {
                        self.sides[side].session.handle_timeout(self.now);
                    }
                    _ => break,
                }
                self.settle();
            }
        }
    }

    fn settle(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.sides[side].session.poll_event() {
                self.on_event(side, event);
            }
            for path in (0..PATHS).map(PathId) {
                while self.sides[side].wires[usize::from(path.0)].is_some()
                    && let Some(transmit) = self.sides[side].session.poll_transmit(path, self.now)
                {
                    self.on_transmit(side, path, transmit);
                }
            }
            while let Some((transfer, chunk)) = self.sides[side].session.poll_hash() {
                let value = self.value_of(chunk);
                self.sides[side]
                    .session
                    .handle_chunk_hashed(transfer, chunk, value);
            }
        }
    }

    fn value_of(&self, chunk: ChunkId) -> ChainingValue {
        value(self.grid, chunk, source_byte(chunk)).expect("a chunk of the file")
    }

    fn on_transmit(&mut self, side: usize, path: PathId, transmit: Transmit) {
        let packet = match transmit {
            Transmit::Load(_) => None,
            Transmit::Frame(frame) => {
                let mut bytes = Vec::new();
                frame.encode(&mut bytes);
                Some(Packet::Frame(bytes))
            }
            Transmit::Chunk { transfer, chunk } => {
                let value = self.value_of(chunk);
                let header = self.sides[side]
                    .session
                    .handle_chunk_read(path, transfer, chunk, value, self.now);
                self.sides[side].session.handle_chunk_flushed(path);
                header.map(|header| Packet::Chunk(header, source_byte(chunk)))
            }
        };
        if let Some(wire) = &mut self.sides[side].wires[usize::from(path.0)] {
            wire.extend(packet);
        }
    }

    fn on_event(&mut self, side: usize, event: Event) {
        let (now, grid) = (self.now, self.grid);
        let offer = self.offer();
        let end = &mut self.sides[side];
        match event {
            Event::Disconnect(path) => end.wires[usize::from(path.0)] = None,
            Event::PutRequested(put) => end.session.accept(put.offer.transfer, Vec::new(), None),
            Event::Offered(offer) => end.session.accept(offer.transfer, Vec::new(), None),
            Event::GetRequested(get) => end
                .session
                .offer(Offer {
                    transfer: get.transfer,
                    ..offer
                })
                .expect("an honest offer"),
            Event::Sync { transfer, .. } => end.session.handle_synced(transfer, now),
            Event::SourceRead { transfer, .. } => end.session.complete(transfer, Vec::new()),
            Event::Commit { transfer, digest } => {
                let contents: Vec<u8> = end
                    .written
                    .iter()
                    .flat_map(|(chunk, byte)| bytes_of(grid, *chunk, *byte))
                    .collect();
                // A faulty peer may have offered another file.
                assert!(
                    self.hostile || digest == Digest(blake3::hash(&contents).into()),
                    "committed what was not sent"
                );
                end.committed += 1;
                end.ended = true;
                end.session.committed(Committed { transfer, digest });
            }
            Event::Mismatch { transfer, .. } => {
                assert!(self.hostile, "an honest file differs from the source");
                end.session.fail(failure(
                    transfer,
                    FailCode::Digest,
                    "differs from the source",
                    false,
                ));
            }
            Event::Committed { .. } => {
                end.committed += 1;
                end.ended = true;
            }
            Event::Failed(fail) => {
                assert!(self.hostile, "an honest transfer fails: {fail:?}");
                end.ended = true;
            }
            _ => {}
        }
    }

    /// Stops the faults: reconnects all paths and delivers everything.
    fn finish(&mut self) {
        // A transfer broken by a faulty peer stays unfinished.
        for _ in 0..if self.hostile { 5 } else { ROUNDS } {
            if self.sides.iter().all(|side| side.ended) {
                break;
            }
            for path in (0..PATHS).map(PathId) {
                if self
                    .sides
                    .iter()
                    .any(|side| side.wires[usize::from(path.0)].is_none())
                {
                    self.connect(path);
                }
                for from in 0..2 {
                    let waiting = self.sides[from].wires[usize::from(path.0)]
                        .as_ref()
                        .map_or(0, VecDeque::len);
                    (0..waiting).for_each(|_| self.deliver(from, path, None));
                }
            }
            for side in 0..2 {
                (0..self.sides[side].writing.len()).for_each(|_| self.write_one(side, 0));
            }
            self.settle();
            self.pass(Duration::from_millis(100));
        }
        assert!(
            self.sides.iter().all(|side| side.committed <= 1),
            "committed twice"
        );
        if !self.hostile {
            assert!(
                self.sides.iter().all(|side| side.committed == 1),
                "the file did not arrive"
            );
            let receiver = &self.sides[1 - self.sender];
            assert!(
                self.grid
                    .all_chunks()
                    .chunks()
                    .all(|chunk| receiver.written.get(&chunk) == Some(&source_byte(chunk)))
            );
        }
    }
}

fn source_byte(chunk: ChunkId) -> u8 {
    chunk.0 as u8 + 1
}

fn bytes_of(grid: Grid, chunk: ChunkId, byte: u8) -> Vec<u8> {
    vec![
        byte;
        grid.extent_of(chunk)
            .map_or(0, |extent| extent.len as usize)
    ]
}

fn value(grid: Grid, chunk: ChunkId, byte: u8) -> Option<ChainingValue> {
    chunk_value(grid, chunk, &bytes_of(grid, chunk, byte)).ok()
}

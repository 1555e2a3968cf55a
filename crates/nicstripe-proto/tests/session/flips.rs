//! Tests with a single bit flip in any frame or payload, between two sessions that transfer and
//! hash real bytes.
//!
//! On a real connection TLS detects all flips before a frame is decoded. These tests have no TLS,
//! which shows that the layers above it are safe without it. Damaged data is never written,
//! acknowledged or committed; it is retransmitted. Flips elsewhere cause no panic, and no wrong
//! file is ever committed. A million flips: `NICSTRIPE_FLIPS=1000000 cargo test --release -p
//! nicstripe-proto --test session flipped -- --nocapture`

use std::{
    collections::BTreeMap,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use nicstripe_proto::{
    ChunkId, ChunkSize, DataHeader, Decoder, Digest, Event, Frame, Grid, Incoming, Name, Offer,
    PathId, PathLoss, Piece, Role, Session, SessionConfig, SourceIdentity, TransferId, Transmit,
    frame::{DATA_HEADER_LEN, FrameType, HEADER_LEN},
    hash_tree::chunk_value,
    message::{Committed, Put, PutOptions},
};
use nicstripe_sim::Rng;
use nicstripe_testkit::trial::amount;

use crate::{
    harness::{Seed, ms},
    seeds::{number, run_all},
};

const FLIPS: u64 = 1_500;

/// Size of the file in bytes: three chunks of at most 4 KiB, the last of which is short.
const SIZE: usize = 2 * 4096 + 1000;

const T: TransferId = TransferId(2);

const PATHS: [PathId; 2] = [PathId(0), PathId(1)];

/// Number of session timeouts after which a transfer counts as stuck.
const TURNS: u32 = 600;

static FRAMES: LazyLock<u64> = LazyLock::new(|| {
    let mut pair = Pair::new(u64::MAX, Rng::new(0));
    assert!(pair.run(), "without a flip the file arrives");
    pair.frames
});

#[test]
fn a_flipped_bit_never_makes_a_wrong_file_and_data_come_again() {
    run_all(
        "a_flipped_bit",
        &[],
        number("NICSTRIPE_FLIPS").unwrap_or(amount(FLIPS, 20 * FLIPS)),
        run,
    );
    for (kind, counts) in FrameType::ALL.iter().zip(&TALLY) {
        let [refused, repeated, harmless, stuck] =
            counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        println!(
            "{kind:?}: {refused} refused, {repeated} found damaged, {harmless} changed nothing, {stuck} ended or stalled the transfer"
        );
    }
}

/// Number of flips by frame type and result: rejected, found damaged, harmless, stuck.
static TALLY: [[AtomicU64; 4]; FrameType::ALL.len()] =
    [const { [const { AtomicU64::new(0) }; 4] }; FrameType::ALL.len()];

fn run(seed: Seed) {
    let mut rng = Rng::new(seed.0);
    let mut pair = Pair::new(rng.below(*FRAMES), rng);
    let committed = pair.run();
    let kind = pair.flipped.unwrap();
    if kind == FrameType::Data {
        assert!(committed, "damaged data was not retransmitted");
    }
    let verdict = match () {
        () if pair.refused > 0 => 0,
        () if pair.damaged > 0 => 1,
        () if committed => 2,
        () => 3,
    };
    let row = FrameType::ALL.iter().position(|of| *of == kind).unwrap();
    TALLY[row][verdict].fetch_add(1, Ordering::Relaxed);
}

/// One end of the transfer, with the frames received partially on each path.
struct Half {
    session: Session,
    streams: BTreeMap<PathId, Incomplete>,
    /// Bytes of the chunks that were verified and written.
    written: BTreeMap<ChunkId, Vec<u8>>,
    committed: Option<Digest>,
}

#[derive(Default)]
struct Incomplete {
    decoder: Decoder,
    data: Option<(DataHeader, Vec<u8>)>,
}

/// Simulation of a client that uploads a file to a daemon over two paths without delay.
struct Pair {
    halves: [Half; 2],
    now: Instant,
    file: Vec<u8>,
    rng: Rng,
    /// Number of frames sent so far; the frame with the index `flip_at` gets a bit flip.
    frames: u64,
    flip_at: u64,
    flipped: Option<FrameType>,
    refused: u32,
    damaged: u32,
}

impl Pair {
    fn new(flip_at: u64, rng: Rng) -> Self {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let half = |role| {
            let session = Session::new(role, SessionConfig::default(), now);
            Half {
                session,
                streams: BTreeMap::new(),
                written: BTreeMap::new(),
                committed: None,
            }
        };
        let file = (0..SIZE).map(|at| (at * 7 + at / 251) as u8).collect();
        let halves = [half(Role::Client), half(Role::Daemon)];
        let mut pair = Self {
            halves,
            now,
            file,
            rng,
            frames: 0,
            flip_at,
            flipped: None,
            refused: 0,
            damaged: 0,
        };
        PATHS.into_iter().for_each(|path| pair.open(path));
        let source = SourceIdentity {
            size: SIZE as u64,
            ..SourceIdentity::default()
        };
        let offer = Offer {
            transfer: T,
            source,
            chunk_log2: ChunkSize::MIN.log2(),
            mode: 0o600,
            kind: None,
            data: None,
        };
        let put = Put {
            name: Name::new(["a"]).unwrap(),
            offer,
            options: PutOptions::default(),
            into: None,
            entry: None,
        };
        pair.halves[0].session.put(put).unwrap();
        pair
    }

    /// Runs until the sender learns of the commit, or the transfer is stuck. Returns true if the
    /// file was committed.
    fn run(&mut self) -> bool {
        for _ in 0..TURNS {
            while self.move_on() {}
            if self.halves[0].committed.is_some() {
                return true;
            }
            let next = self
                .halves
                .iter()
                .filter_map(|half| Some(half.session.poll_timeout()?.0))
                .min();
            self.now = next.map_or(self.now, |at| at.max(self.now + ms(1)));
            let now = self.now;
            self.halves
                .iter_mut()
                .for_each(|half| half.session.handle_timeout(now));
        }
        false
    }

    /// Handles pending events and delivers pending frames. Returns true if there were any.
    fn move_on(&mut self) -> bool {
        let mut any = false;
        for end in 0..2 {
            while let Some(event) = self.halves[end].session.poll_event() {
                any = true;
                self.on_event(end, event);
            }
            for path in PATHS {
                while let Some(transmit) = self.halves[end].session.poll_transmit(path, self.now) {
                    any = true;
                    self.transmit(end, path, transmit);
                }
            }
        }
        any
    }

    fn on_event(&mut self, end: usize, event: Event) {
        let half = &mut self.halves[end];
        match event {
            Event::Connect(path) => self.open(path),
            Event::Disconnect(path) => self.lose(1 - end, path, PathLoss::Reset),
            Event::PutRequested(put) => half.session.accept(put.offer.transfer, Vec::new(), None),
            Event::SourceRead { transfer, .. } => half.session.complete(transfer, Vec::new()),
            Event::Sync { transfer, .. } => half.session.handle_synced(transfer, self.now),
            Event::Commit { transfer, digest } => {
                let content: Vec<u8> = half.written.values().flatten().copied().collect();
                assert!(
                    content == self.file && digest.0 == *blake3::hash(&content).as_bytes(),
                    "a wrong file is committed"
                );
                half.committed = Some(digest);
                half.session.committed(Committed { transfer, digest });
            }
            Event::Committed { digest, .. } => {
                half.committed = Some(digest);
                assert_eq!(
                    self.halves[1].committed,
                    Some(digest),
                    "reported committed, but is not"
                );
            }
            Event::Mismatch { .. } | Event::Failed(_) => self.refused += 1,
            _ => {}
        }
    }

    fn open(&mut self, path: PathId) {
        for half in &mut self.halves {
            half.streams.insert(path, Incomplete::default());
            half.session.handle_path_open(path, self.now);
        }
    }

    fn lose(&mut self, end: usize, path: PathId, loss: PathLoss) {
        for (index, loss) in [(end, loss), (1 - end, PathLoss::Reset)] {
            self.halves[index].streams.remove(&path);
            self.halves[index]
                .session
                .handle_path_lost(path, loss, self.now);
        }
    }

    fn transmit(&mut self, end: usize, path: PathId, transmit: Transmit) {
        let mut bytes = Vec::new();
        match transmit {
            Transmit::Frame(frame) => frame.encode(&mut bytes),
            Transmit::Chunk { transfer, chunk } => {
                let grid = Grid::new(SIZE as u64, ChunkSize::MIN);
                let extent = grid.extent_of(chunk).unwrap();
                let payload = &self.file[extent.offset as usize..][..extent.len as usize];
                let value = chunk_value(grid, chunk, payload).unwrap();
                let session = &mut self.halves[end].session;
                let Some(header) =
                    session.handle_chunk_read(path, transfer, chunk, value, self.now)
                else {
                    return;
                };
                header.encode(&mut bytes);
                bytes.extend_from_slice(payload);
                session.handle_chunk_flushed(path);
            }
            Transmit::Load(_) => return,
        }
        if self.frames == self.flip_at {
            self.flip(&mut bytes);
        }
        self.frames += 1;
        self.deliver(1 - end, path, &bytes);
    }

    /// Flips one bit of a frame. In data frames, half of the flips hit the header.
    fn flip(&mut self, bytes: &mut [u8]) {
        let kind = FrameType::ALL
            .into_iter()
            .find(|kind| *kind as u8 == bytes[0])
            .unwrap();
        let head = HEADER_LEN + DATA_HEADER_LEN;
        let among = if kind == FrameType::Data && self.rng.below(2) == 0 {
            head
        } else {
            bytes.len()
        };
        let at = self.rng.below(among as u64) as usize;
        bytes[at] ^= 1 << self.rng.below(8);
        self.flipped = Some(kind);
    }

    fn deliver(&mut self, end: usize, path: PathId, bytes: &[u8]) {
        self.halves[end].session.handle_heard(path, self.now);
        let Some(mut stream) = self.halves[end].streams.remove(&path) else {
            return;
        };
        let mut input = bytes;
        loop {
            let step = match stream.decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Piece::Frame(frame))) => self.on_frame(end, path, frame),
                Ok(Some(Piece::DataStart(header))) => {
                    stream.data = Some((header, Vec::new()));
                    Ok(())
                }
                Ok(Some(Piece::DataBytes(more))) => {
                    stream.data.as_mut().unwrap().1.extend_from_slice(more);
                    Ok(())
                }
                Ok(Some(Piece::DataEnd)) => {
                    let (header, payload) = stream.data.take().unwrap();
                    self.on_data(end, path, header, payload)
                }
                // No bench runs here.
                Ok(Some(Piece::Load(_) | Piece::Echo(_) | Piece::Filler { .. })) | Err(_) => {
                    Err(PathLoss::Protocol)
                }
            };
            if let Err(loss) = step {
                *(if loss == PathLoss::Damaged {
                    &mut self.damaged
                } else {
                    &mut self.refused
                }) += 1;
                return self.lose(end, path, loss);
            }
        }
        self.halves[end].streams.insert(path, stream);
    }

    fn on_frame(&mut self, end: usize, path: PathId, frame: Frame) -> Result<(), PathLoss> {
        self.halves[end]
            .session
            .handle_frame(path, frame, self.now)
            .map_err(|_| PathLoss::Protocol)
    }

    fn on_data(
        &mut self,
        end: usize,
        path: PathId,
        header: DataHeader,
        payload: Vec<u8>,
    ) -> Result<(), PathLoss> {
        let half = &mut self.halves[end];
        let incoming = half
            .session
            .handle_chunk(path, &header, self.now)
            .map_err(|_| PathLoss::Protocol)?;
        let Incoming::Write { grid, offset } = incoming else {
            return Ok(());
        };
        // The driver would unpack a payload marked as packed, and detect that it is not.
        if header.raw_len != 0 || chunk_value(grid, header.chunk, &payload) != Ok(header.value) {
            half.session
                .handle_chunk_damaged(path, header.transfer, header.chunk);
            return Err(PathLoss::Damaged);
        }
        if self.flipped.is_none_or(|kind| kind == FrameType::Data) {
            assert_eq!(
                self.file
                    .get(offset as usize..offset as usize + payload.len()),
                Some(&payload[..]),
                "wrong bytes are written"
            );
        }
        half.written.insert(header.chunk, payload);
        half.session.handle_chunk_written(path, &header, self.now);
        Ok(())
    }
}

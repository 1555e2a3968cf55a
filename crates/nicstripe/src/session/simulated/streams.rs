//! Tests of streams: a program that produces the data of a put piece by piece, and one that
//! consumes the data of a get in order.

use std::{path::PathBuf, sync::Arc, time::Duration};

use nicstripe_proto::ChunkSize;
use nicstripe_sim::{End, Rng};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::sleep,
};

use super::{
    lab::{Copy, Direction, Lab, both_ways, download, ideal, in_virtual_time, mib, ms, secs},
    random::{LIMIT, add_faults, pick, random_links, seeds},
};
use crate::{
    file::BufferPool,
    session::{
        Tally,
        kind::{
            object::{self, FEED_CHUNKS, Read},
            stream::StreamItem,
        },
    },
};

const CHUNK: u64 = ChunkSize::DEFAULT.bytes();

/// Capacity of a client's reorder buffer, in bytes.
const WINDOW: u64 = 16 << 20;

/// Program at the client's end of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Program {
    /// Maximum pause before each chunk.
    pub(super) pause: Duration,
    /// Chunk before which the program stops, and for how long.
    pub(super) stop: Option<(u64, Duration)>,
}

impl Program {
    async fn wait(self, rng: &mut Rng, chunk: u64) {
        let pause = rng.below(self.pause.as_micros() as u64 + 1);
        sleep(Duration::from_micros(pause)).await;
        if let Some((_, pause)) = self.stop.filter(|(at, _)| *at == chunk) {
            sleep(pause).await;
        }
    }

    /// Produces the bytes of a file.
    async fn write(self, file: PathBuf, to: mpsc::Sender<StreamItem>) {
        let (bytes, buffers) = (std::fs::read(file).unwrap(), BufferPool::default());
        let mut rng = Rng::new(1);
        for (number, part) in (0..).zip(bytes.chunks(CHUNK as usize)) {
            self.wait(&mut rng, number).await;
            let mut buffer = buffers.take();
            buffer.bytes_mut(part.len()).copy_from_slice(part);
            to.send(StreamItem::Chunk(buffer)).await.unwrap();
        }
        to.send(StreamItem::End).await.unwrap();
    }

    /// Consumes a stream and writes it to a file.
    async fn read(self, file: PathBuf, mut from: mpsc::Receiver<Read>) {
        let (mut bytes, mut number) = (Vec::new(), 0);
        let mut rng = Rng::new(1);
        loop {
            self.wait(&mut rng, number).await;
            match from.recv().await {
                Some(Read::Chunk(buffer)) => {
                    bytes.extend_from_slice(buffer.bytes());
                    number += 1;
                }
                Some(Read::Begun(_)) => {}
                None => break,
            }
        }
        std::fs::write(file, bytes).unwrap();
    }
}

/// Stream that was started, and its program.
pub(super) struct Stream {
    copy: Copy,
    program: JoinHandle<()>,
}

impl Stream {
    /// Waits for the end of the stream, for at most `limit`, and then of the program. Returns the time of the stream's end and the statistics of the client.
    pub(super) async fn end(self, lab: &Lab, limit: Duration) -> (Duration, Tally) {
        let (_, tally) = self.copy.end(limit).await.unwrap();
        let ended = lab.now();
        self.program.await.unwrap();
        lab.assert_delivered();
        (ended, tally)
    }
}

impl Lab {
    /// Starts to stream `size` bytes from or to a program at the client.
    pub(super) async fn stream(
        &mut self,
        direction: Direction,
        size: u64,
        program: Program,
    ) -> Stream {
        self.write(direction.sender(), size);
        let ours = self.file(End::A);
        let (program, copy) = match direction {
            Direction::Put => {
                let (to, from) = mpsc::channel(FEED_CHUNKS);
                let source = object::source(from, self.upload());
                let program = tokio::spawn(program.write(ours, to));
                (program, self.begin(Box::new(source)).await)
            }
            Direction::Get => {
                let (to, from) = mpsc::channel(FEED_CHUNKS);
                let given = Arc::<Mutex<u64>>::default().lock_owned().await;
                let sink = object::sink(to, given, download());
                let program = tokio::spawn(program.read(ours, from));
                (program, self.begin(Box::new(sink)).await)
            }
        };
        Stream { copy, program }
    }
}

/// Streams `size` bytes and returns the duration and the client's statistics.
async fn stream(
    lab: &mut Lab,
    direction: Direction,
    size: u64,
    program: Program,
) -> (Duration, Tally) {
    let began = lab.now();
    let stream = lab.stream(direction, size, program).await;
    let (ended, tally) = stream.end(lab, secs(300)).await;
    assert_eq!(tally.stats.delivered_bytes, size, "{direction:?}");
    (ended - began, tally)
}

#[test]
fn a_program_that_is_slow_kills_no_path() {
    for direction in Direction::BOTH {
        for (pause, chunks) in [(secs(20), 5), (ms(40), 40)] {
            in_virtual_time(async move {
                let mut lab = Lab::new(5, &[100, 10]).await;
                let program = Program { pause, stop: None };
                let size = chunks * CHUNK + 1;
                let (took, tally) = stream(&mut lab, direction, size, program).await;
                assert_eq!(tally.failovers, 0, "{direction:?} {pause:?}");
                // On average, half of the longest pause.
                let most = (chunks as u32 + 2) * (pause * 2 / 3) + secs(1);
                assert!(took <= most, "{direction:?} {pause:?}: {took:?}");
            });
        }
    }
}

#[test]
fn a_stream_takes_the_sum_of_its_links_and_its_window_does_not_stand_still() {
    both_ways(async move |direction| {
        // A chunk takes 0.2 s at 10 Mbit/s, and all behind it wait in the window.
        for (rates, of, size, most) in [([100, 100], 200, 32, 1.02), ([1000, 10], 1000, 64, 2.0)] {
            let mut lab = Lab::new(1, &rates).await;
            let size = mib(size);
            let (took, _) = stream(&mut lab, direction, size, Program::default()).await;
            let (what, ideal) = (
                format!("{direction:?} {rates:?}: {took:?}"),
                ideal(of, size),
            );
            assert!(took <= ideal.mul_f64(most), "{what}, ideal {ideal:?}");
        }
    });
}

#[test]
fn a_reader_that_stops_for_half_a_minute_kills_no_path_and_its_window_is_kept() {
    in_virtual_time(async {
        let mut lab = Lab::new(2, &[100, 100]).await;
        let taken = 10;
        let program = Program {
            stop: Some((taken, secs(30))),
            ..Program::default()
        };
        let sent = lab.links.clone();
        let sent = tokio::spawn(async move {
            sleep(secs(20)).await;
            (0..2)
                .map(|index| sent.delivered(index, End::B))
                .sum::<u64>()
        });
        let (took, tally) = stream(&mut lab, Direction::Get, mib(32), program).await;
        let (sent, most) = (
            sent.await.unwrap(),
            taken * CHUNK + WINDOW + (FEED_CHUNKS as u64 + 1) * CHUNK,
        );
        assert!(sent <= most * 101 / 100, "{sent} bytes, at most {most}");
        assert_eq!(tally.failovers, 0);
        assert!(took <= ideal(200, mib(32)) + secs(30) + ms(300), "{took:?}");
    });
}

#[test]
fn whatever_happens_streams_arrive_once_and_whole() {
    for seed in seeds(20) {
        println!("seed {seed}");
        in_virtual_time(whatever_happens(seed));
    }
}

async fn whatever_happens(seed: u64) {
    let mut rng = Rng::new(!seed);
    let direction = Direction::BOTH[rng.below(2) as usize];
    let chunks = pick(&mut rng, &[0, 1, 2, 5, 20]);
    let size = (chunks * CHUNK).saturating_sub(rng.below(4096) * rng.below(2));
    let pause = Duration::from_micros(pick(&mut rng, &[0, 500, 100_000]));
    let mut lab = Lab::over_paths(seed, random_links(&mut rng)).await;
    add_faults(&lab, &mut rng, chunks);
    let program = Program { pause, stop: None };
    let stream = lab.stream(direction, size, program).await;
    let (_, tally) = stream.end(&lab, LIMIT).await;
    let delivered = tally.stats.delivered_bytes;
    // The last acknowledgements may be lost with their link, but not the end of the stream.
    match direction {
        Direction::Put => assert!(delivered <= size, "{delivered}"),
        Direction::Get => assert_eq!(delivered, size),
    }
    // Delivers what is still in flight, to check that the result stays.
    sleep(secs(3)).await;
    lab.assert_delivered();
}

//! Tests of batches, like those of a tree: pieces of any length, which their sink consumes in
//! order.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use nicstripe_proto::{
    Acceptance, Offer, Request, TransferId,
    message::{AnswerKind, AskKind, Expected, GetTree, Message, PutTree, WalkRules},
    tree::{EntryId, TreeMessage, TreeRules, Verdict},
};
use nicstripe_sim::{LinkConfig, Rng};
use tokio::{
    sync::{Semaphore, mpsc},
    time::sleep,
};

use super::{
    frames::{each_frame, message_in},
    lab::{Direction, Lab, in_virtual_time, link, ms, us},
    random::{LIMIT, add_faults, pick, random_links, seeds},
};
use crate::{
    file::ChunkBuffer,
    report::{
        error::Error,
        metrics::{Meters, TransferDirection},
    },
    session::{
        Pending, Serve, SessionHandle,
        inbox::{Input, IoResult, Said, Step},
        kind::{Kind, Opened, Scope, retransmit::ChunkSender, tree::TreeThread},
    },
};

/// Batches of one transfer, with the programs at both ends.
#[derive(Debug, Clone)]
struct Batches {
    /// Lengths in bytes.
    lens: Arc<[u32]>,
    /// Number of batches that the source may send before they are acknowledged.
    window: usize,
    /// Maximum pause before the source produces a batch, and before the sink consumes one.
    pause: Duration,
    /// Batches that the source may send before their verdicts arrive; `None` if it does not wait
    /// for verdicts.
    untold: Option<Arc<Semaphore>>,
    /// Batches that the sink has consumed.
    consumed: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Time that a verdict takes from one end to the other, or more.
const VERDICT_DELAY: Duration = ms(1);

/// Capacity of a sink's reorder buffer, in batches.
const ROOM: u64 = 64;

impl Batches {
    fn new(lens: Vec<u32>) -> Self {
        Self {
            lens: lens.into(),
            window: 64,
            pause: Duration::ZERO,
            untold: None,
            consumed: Arc::default(),
        }
    }

    /// Returns `count` batches of random lengths, most of them short.
    fn random(seed: u64, count: u64) -> Self {
        let mut rng = Rng::new(seed);
        let lens = (0..count).map(|_| {
            let most = if rng.below(4) == 0 { 64 << 10 } else { 300 };
            1 + rng.below(most) as u32
        });
        Self::new(lens.collect())
    }

    fn bytes_of(number: usize, len: u32) -> Vec<u8> {
        vec![number as u8; len as usize]
    }

    async fn wait(&self, rng: &mut Rng) {
        let pause = rng.below(self.pause.as_micros() as u64 + 1);
        sleep(Duration::from_micros(pause)).await;
    }

    async fn produce(self, mut chunks: ChunkSender) {
        let mut rng = Rng::new(1);
        for (number, len) in self.lens.iter().enumerate() {
            self.wait(&mut rng).await;
            if let Some(untold) = &self.untold {
                untold.acquire().await.unwrap().forget();
            }
            let mut buffer = chunks.buffer();
            buffer.append(&Self::bytes_of(number, *len));
            let value = chunks.hash(&buffer, false).unwrap();
            if !chunks.send_hashed(buffer, value, false).await {
                return;
            }
        }
        chunks.end(Ok(())).await;
    }

    async fn consume(
        self,
        transfer: TransferId,
        mut from: mpsc::UnboundedReceiver<Option<ChunkBuffer>>,
        inputs: mpsc::Sender<Input>,
    ) {
        let mut rng = Rng::new(2);
        while let Some(item) = from.recv().await {
            self.wait(&mut rng).await;
            let input = match item {
                Some(batch) => {
                    let number = self.push(&batch);
                    if self.untold.is_some() {
                        let _ = inputs.send(verdicts(transfer, number)).await;
                    }
                    Input::Said {
                        transfer,
                        said: Said::Consumed,
                    }
                }
                None => Input::Io(IoResult::Step {
                    transfer,
                    step: Step::Drained,
                    result: Ok(()),
                }),
            };
            let _ = inputs.send(input).await;
        }
    }

    /// Records a consumed batch and returns its number.
    fn push(&self, batch: &ChunkBuffer) -> u64 {
        let mut consumed = self.consumed.lock().unwrap();
        consumed.push(batch.bytes().to_vec());
        consumed.len() as u64 - 1
    }

    /// Lets the source send another batch after each verdict that the sink sends.
    fn heed_verdicts(&self, lab: &Lab) {
        let Some(untold) = self.untold.clone() else {
            return;
        };
        lab.links.network.intercept(move |_, _, frames| {
            each_frame(frames, |_, frame| {
                if let Some(Message::Tree(_)) = message_in(frame) {
                    let untold = untold.clone();
                    tokio::spawn(async move {
                        sleep(VERDICT_DELAY).await;
                        untold.add_permits(1);
                    });
                }
            });
        });
    }

    fn assert_consumed(&self) {
        let consumed = self.consumed.lock().unwrap();
        assert_eq!(consumed.len(), self.lens.len());
        for (number, (batch, len)) in consumed.iter().zip(&*self.lens).enumerate() {
            assert!(*batch == Self::bytes_of(number, *len), "batch {number}");
        }
    }

    /// Transfers the batches in a lab with this service, and returns the duration.
    async fn copy(&self, lab: &mut Lab, direction: Direction) -> Duration {
        let began = lab.now();
        let copy = match direction {
            Direction::Put => {
                let put = PutTree {
                    transfer: lab.next_transfer(),
                    target: None,
                    as_name: false,
                    rules: TreeRules::default(),
                    heeds_memory: false,
                };
                lab.begin(Box::new(BatchSource(self.clone(), Some(put))))
                    .await
            }
            Direction::Get => {
                let get = GetTree {
                    transfer: lab.next_transfer(),
                    sources: Vec::new(),
                    walk: WalkRules::default(),
                    rules: TreeRules::default(),
                    limit_bps: None,
                };
                lab.begin(Box::new(BatchSink::new(self, Some(get)))).await
            }
        };
        copy.end(LIMIT).await.unwrap();
        self.assert_consumed();
        lab.now() - began
    }

    /// Transfers the batches over links with these rates in Mbit/s, and returns the duration.
    fn copy_over(&self, direction: Direction, mbit: &[u64]) -> Duration {
        let mut took = Duration::ZERO;
        in_virtual_time(async {
            let links = mbit.iter().map(|mbit| link(*mbit)).collect();
            let mut lab = self.lab(7, links).await;
            self.heed_verdicts(&lab);
            took = self.copy(&mut lab, direction).await;
        });
        let bytes: u64 = self.lens.iter().map(|len| u64::from(*len)).sum();
        let ideal = bytes as f64 * 8.0 / (mbit.iter().sum::<u64>() as f64 * 1e6);
        println!(
            "{direction:?} over {mbit:?}, window {}: {took:?}, ideal {ideal:.4}",
            self.window
        );
        took
    }

    async fn lab(&self, seed: u64, links: Vec<LinkConfig>) -> Lab {
        self.consumed.lock().unwrap().clear();
        Lab::serving(seed, links, Arc::new(self.clone())).await
    }
}

/// Returns the verdicts of the entries in a batch, as a tree's receiver sends them.
fn verdicts(transfer: TransferId, batch: u64) -> Input {
    let message = TreeMessage::Verdicts {
        first: EntryId(batch),
        verdicts: vec![Verdict::Create; 3],
    };
    Input::Said {
        transfer,
        said: Said::Message(message),
    }
}

/// Source of batches, with the request of a client.
#[derive(Debug)]
struct BatchSource(Batches, Option<PutTree>);

impl Kind for BatchSource {
    fn direction(&self) -> TransferDirection {
        TransferDirection::Send
    }

    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        match self.1.take() {
            Some(put) => at.session.put_tree(put),
            None => at.offer_batches(),
        }
        Ok(())
    }

    fn on_accepted(&mut self, _memory: Option<u64>, at: &mut Scope<'_>) -> Result<(), Error> {
        let chunks = at.stream(self.0.window);
        tokio::spawn(self.0.clone().produce(chunks));
        Ok(())
    }
}

/// Sink of batches, with the request of a client.
#[derive(Debug)]
struct BatchSink {
    batches: Batches,
    get: Option<GetTree>,
    to: Option<mpsc::UnboundedSender<Option<ChunkBuffer>>>,
}

impl BatchSink {
    fn new(batches: &Batches, get: Option<GetTree>) -> Self {
        Self {
            batches: batches.clone(),
            get,
            to: None,
        }
    }

    fn start(&mut self, at: &mut Scope<'_>) {
        let (to, from) = mpsc::unbounded_channel();
        self.to = Some(to);
        let inputs = at.jobs.inputs();
        tokio::spawn(self.batches.clone().consume(at.transfer, from, inputs));
        at.accept(Acceptance {
            room: Some(ROOM),
            ..Acceptance::default()
        });
    }

    fn send(&self, item: Option<ChunkBuffer>) {
        self.to.as_ref().unwrap().send(item).unwrap();
    }
}

impl Kind for BatchSink {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        match self.get.take() {
            Some(get) => at.session.get_tree(get),
            None => self.start(at),
        }
        Ok(())
    }

    fn on_offered(&mut self, _: &Offer, at: &mut Scope<'_>) -> Result<(), Error> {
        self.start(at);
        Ok(())
    }

    fn take(&mut self, batch: ChunkBuffer, _: &mut Scope<'_>) -> Result<(), Error> {
        self.send(Some(batch));
        Ok(())
    }

    fn on_end(&mut self) -> Result<(), Error> {
        self.send(None);
        Ok(())
    }
}

/// Service of a daemon that sends and receives only batches.
impl Serve for Batches {
    fn open(
        self: Arc<Self>,
        request: Request,
        _: Option<TreeThread>,
        _: SessionHandle,
    ) -> Pending<Opened> {
        let kind: Box<dyn Kind> = match request {
            Request::GetTree(_) => Box::new(BatchSource((*self).clone(), None)),
            Request::PutTree(_) => Box::new(BatchSink::new(&self, None)),
            request => panic!("only batches are served: {request:?}"),
        };
        Box::pin(async { Ok((kind, Vec::new())) })
    }

    fn answer(&self, _: &AskKind) -> AnswerKind {
        AnswerKind::Done
    }

    fn expect(self: Arc<Self>, _: Vec<Expected>, _: SessionHandle) {}

    fn meters(&self) -> &Arc<Meters> {
        static METERS: std::sync::LazyLock<Arc<Meters>> = std::sync::LazyLock::new(Arc::default);
        &METERS
    }
}

impl crate::session::ServeBench for Batches {
    fn ask_bench(
        &self,
        _: &nicstripe_proto::message::BenchAsk,
        _: SessionHandle,
    ) -> Result<nicstripe_bench::Ticket<SessionHandle>, nicstripe_proto::message::BenchRefused>
    {
        panic!("only batches are served")
    }

    fn work_for_bench(
        &self,
        _: &nicstripe_proto::message::DiskOrder,
        _: &std::sync::atomic::AtomicBool,
    ) -> Result<nicstripe_proto::message::DiskDone, crate::file::FileError> {
        panic!("only batches are served")
    }
}

/// Returns 200 batches of 64 KiB, of a source with this window or one that waits for verdicts once
/// it has sent this many.
fn of_source(window: usize, untold: Option<usize>) -> Batches {
    Batches {
        window,
        untold: untold.map(|untold| Arc::new(Semaphore::new(untold))),
        ..Batches::new(vec![64 << 10; 200])
    }
}

#[test]
fn batches_of_a_source_that_waits_take_the_sum_of_the_links() {
    // Delayed acknowledgements, or one path that gets each batch while the other idles, would make
    // one link the bottleneck. 6 batches are what both links carry in 16 ms.
    let ideal = Duration::from_secs_f64((200 << 19) as f64 / 200e6);
    for (direction, (window, untold)) in each_way([(8, None), (64, Some(6))]) {
        let took = of_source(window, untold).copy_over(direction, &[100, 100]);
        assert!(
            took <= ideal.mul_f64(1.02),
            "{untold:?}: {took:?}, ideal {ideal:?}"
        );
    }
}

#[test]
fn batches_of_a_source_that_waits_wait_little_for_a_slow_link() {
    for (direction, (window, untold)) in each_way([(32, None), (64, Some(32))]) {
        let [took, alone] = [&[10, 100][..], &[100]]
            .map(|rates| of_source(window, untold).copy_over(direction, rates));
        let most = alone.mul_f64(1.1);
        assert!(
            took <= most,
            "{untold:?}: {took:?}, without the slow link {alone:?}"
        );
    }
}

fn each_way<T: Copy>(cases: [T; 2]) -> impl Iterator<Item = (Direction, T)> {
    let both = move |case| Direction::BOTH.map(|direction| (direction, case));
    cases.into_iter().flat_map(both)
}

#[test]
fn batches_of_any_length_arrive_in_order() {
    for direction in Direction::BOTH {
        for (count, window) in [(0, 64), (1, 64), (1, 1), (300, 64), (300, 1), (300, 7)] {
            let batches = Batches {
                window,
                pause: us(700),
                ..Batches::random(count, count)
            };
            batches.copy_over(direction, &[100, 10]);
        }
    }
}

#[test]
fn whatever_happens_batches_arrive_once_and_in_order() {
    for seed in seeds(20) {
        println!("seed {seed}");
        in_virtual_time(async {
            let mut rng = Rng::new(seed ^ 0xba7c);
            let direction = Direction::BOTH[rng.below(2) as usize];
            let count = pick(&mut rng, &[0, 1, 2, 40, 300]);
            let batches = Batches {
                window: pick(&mut rng, &[1, 2, 16, 64]) as usize,
                pause: us(pick(&mut rng, &[0, 500, 10_000])),
                ..Batches::random(seed, count)
            };
            let mut lab = batches.lab(seed, random_links(&mut rng)).await;
            add_faults(&lab, &mut rng, count);
            batches.copy(&mut lab, direction).await;
        });
    }
}

//! What a connection does of a bench by itself: it fills its socket, counts what comes, answers echoes and asks for them.
//!
//! None of it takes a trip through the session's loop, so that what is measured is the link and not our queues.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, Piece,
    frame::{EchoHeader, LoadHeader, MAX_ECHO, MAX_LOAD},
    load::{LoadError, LoadGate, LoadMeter, LoadOrder, Metered},
};

use crate::tls::{TlsError, TlsStream};

/// What a session's connections may count, as its loop has agreed on it.
#[derive(Debug, Default)]
pub(crate) struct SharedGate {
    /// 0: none.
    counted: AtomicU32,
    latest: AtomicU32,
    is_open: AtomicBool,
}

impl SharedGate {
    pub(crate) fn set(&self, gate: LoadGate) {
        self.counted.store(gate.counted.unwrap_or(0), Ordering::Release);
        self.latest.store(gate.latest, Ordering::Release);
        self.is_open.store(gate.is_open, Ordering::Release);
    }

    fn read(&self) -> LoadGate {
        LoadGate {
            counted: Some(self.counted.load(Ordering::Acquire)).filter(|run| *run != 0),
            latest: self.latest.load(Ordering::Acquire),
            is_open: self.is_open.load(Ordering::Acquire),
        }
    }
}

/// Filler that one path has carried, over all its connections and runs.
#[derive(Debug, Default)]
pub(crate) struct LoadCounters {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

/// What a connection shares with its session of a bench.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loads {
    pub(crate) gate: Arc<SharedGate>,
    pub(crate) counters: Arc<LoadCounters>,
}

/// Asks for messages that are sent one after the other, each when the one before was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PingOrder {
    /// How many.
    pub(crate) count: u32,
    /// Of so many bytes. Above [`MAX_ECHO`] they go as load frames of the run, and an empty echo tells when they have arrived.
    pub(crate) bytes: u64,
    /// The run under way.
    pub(crate) run: u32,
    /// No other is begun after so long.
    pub(crate) longest: Duration,
}

/// The bench's part of one connection.
#[derive(Debug, Default)]
pub(super) struct Bench {
    shared: Loads,
    meter: LoadMeter,
    loading: Option<Loading>,
    pinging: Option<Pinging>,
    next_token: u64,
}

#[derive(Debug)]
struct Loading {
    order: LoadOrder,
    /// When what was sent would have passed, where there is a limit.
    passed_at: Instant,
}

#[derive(Debug)]
struct Pinging {
    order: PingOrder,
    began: Instant,
    token: u64,
    sent_at: Instant,
    /// Load that is to go before the echo.
    left: u64,
    /// Whether the echo is on its way.
    asked: bool,
    times: Vec<Duration>,
}

/// What has come of a bench in one receipt.
#[derive(Debug, Default)]
pub(super) struct Came {
    counted: u64,
    asked: Vec<EchoHeader>,
    answered: Vec<EchoHeader>,
}

/// Encrypted bytes that may wait when an echo is answered. An honest peer has one question open.
const MOST_UNSENT: usize = 1 << 20;

/// Most load frames queued at once, where messages are small.
const FRAMES_AT_ONCE: usize = 64;

/// What may be sent at once after a pause, under a limit.
const BURST: Duration = Duration::from_millis(20);

impl Bench {
    pub(super) fn new(shared: Loads) -> Self {
        Self { shared, ..Self::default() }
    }

    /// What counts of what comes, at this moment.
    pub(super) fn gate(&self) -> LoadGate {
        self.shared.gate.read()
    }

    /// The part that takes in pieces, apart from the connection.
    pub(super) fn meter(&mut self) -> &mut LoadMeter {
        &mut self.meter
    }

    /// Loads from here on, or does not.
    pub(super) fn load(&mut self, order: Option<LoadOrder>) {
        self.loading = order.map(|order| Loading { order, passed_at: Instant::now() });
    }

    /// Sends nothing more by itself.
    pub(super) fn end(&mut self) {
        (self.loading, self.pinging) = (None, None);
    }

    /// Begins to ask, in place of what was asked before.
    pub(super) fn ping(&mut self, order: PingOrder, tls: &mut TlsStream) -> Result<(), TlsError> {
        let now = Instant::now();
        self.pinging = Some(Pinging { order, began: now, token: 0, sent_at: now, left: 0, asked: false, times: Vec::new() });
        self.ask(tls)
    }

    /// Whether there is something to fill the socket with at this moment.
    pub(super) fn is_due(&self) -> bool {
        self.is_message_due() || self.loading.as_ref().is_some_and(|loading| loading.wait(Instant::now()).is_none())
    }

    /// When a limit lets the next frame pass, if that is what it waits for.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.loading.as_ref().filter(|_| !self.is_message_due())?.wait(Instant::now())
    }

    fn is_message_due(&self) -> bool {
        self.pinging.as_ref().is_some_and(|pinging| !pinging.asked)
    }

    /// Queues filler until `enough` encrypted bytes wait.
    pub(super) fn fill(&mut self, tls: &mut TlsStream, enough: usize) -> Result<(), TlsError> {
        for _ in 0..FRAMES_AT_ONCE {
            if tls.queued() >= enough {
                break;
            }
            if self.is_message_due() {
                self.go_on_asking(tls)?;
            } else if let Some(loading) = self.loading.as_mut().filter(|loading| loading.wait(Instant::now()).is_none()) {
                let len = loading.frame_len();
                queue_load(tls, loading.order.run, len)?;
                loading.on_sent(len);
                self.shared.counters.sent.fetch_add(len as u64, Ordering::Relaxed);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Takes in what has come: counts, answers, goes on asking. Returns the times of a series that is over.
    pub(super) fn take(&mut self, came: &Came, tls: &mut TlsStream) -> Result<Option<Vec<Duration>>, BenchBreach> {
        if came.counted > 0 {
            self.shared.counters.received.fetch_add(came.counted, Ordering::Relaxed);
        }
        for asked in &came.asked {
            if tls.queued() > MOST_UNSENT {
                return Err(BenchBreach::Flood);
            }
            queue_echo(tls, EchoHeader { reply: true, ..*asked })?;
        }
        let mut done = None;
        for answer in &came.answered {
            let Some(pinging) = self.pinging.as_mut().filter(|pinging| pinging.asked && pinging.token == answer.token) else { continue };
            pinging.times.push(pinging.sent_at.elapsed());
            if pinging.is_over() {
                done = self.pinging.take().map(|pinging| pinging.times);
            } else {
                self.ask(tls)?;
            }
        }
        Ok(done)
    }

    /// Begins the next message.
    fn ask(&mut self, tls: &mut TlsStream) -> Result<(), TlsError> {
        self.next_token += 1;
        let Some(pinging) = &mut self.pinging else { return Ok(()) };
        let is_large = pinging.order.bytes > MAX_ECHO as u64;
        (pinging.token, pinging.sent_at, pinging.asked) = (self.next_token, Instant::now(), false);
        pinging.left = if is_large { pinging.order.bytes } else { 0 };
        self.go_on_asking(tls)
    }

    /// Queues the next frame of the message.
    fn go_on_asking(&mut self, tls: &mut TlsStream) -> Result<(), TlsError> {
        let Some(pinging) = &mut self.pinging else { return Ok(()) };
        if pinging.left > 0 {
            let len = pinging.left.min(MAX_LOAD as u64);
            queue_load(tls, pinging.order.run, len as usize)?;
            pinging.left -= len;
            self.shared.counters.sent.fetch_add(len, Ordering::Relaxed);
        }
        if pinging.left == 0 {
            let len = if pinging.order.bytes > MAX_ECHO as u64 { 0 } else { pinging.order.bytes as u32 };
            queue_echo(tls, EchoHeader { token: pinging.token, reply: false, len })?;
            pinging.asked = true;
        }
        Ok(())
    }
}

impl Pinging {
    fn is_over(&self) -> bool {
        self.times.len() >= self.order.count as usize || self.began.elapsed() >= self.order.longest
    }
}

impl Loading {
    /// When the next frame may be sent, if not now.
    fn wait(&self, now: Instant) -> Option<Instant> {
        self.order.rate?;
        let ready = self.passed_at.checked_sub(BURST).unwrap_or(now);
        (ready > now).then_some(ready)
    }

    /// Bytes of the next frame: under a limit, what may pass at once.
    fn frame_len(&self) -> usize {
        let message = (self.order.message_bytes as usize).clamp(1, MAX_LOAD);
        self.order.rate.map_or(message, |rate| message.min((rate.bytes_in(BURST) as usize).max(1024)))
    }

    fn on_sent(&mut self, len: usize) {
        if let Some(BitRate(bps)) = self.order.rate {
            self.passed_at = self.passed_at.max(Instant::now()) + BitRate(bps.max(1)).time_for(len as u64).min(Duration::from_secs(3600));
        }
    }
}

impl Came {
    /// Takes in a piece that may be of a bench.
    pub(super) fn on_piece(&mut self, meter: &mut LoadMeter, gate: LoadGate, piece: &Piece<'_>) -> Result<(), LoadError> {
        match meter.on_piece(piece, gate)? {
            Metered::Nothing => {}
            Metered::Counted(bytes) => self.counted += bytes,
            Metered::Asked(header) => self.asked.push(header),
            Metered::Answered(header) => self.answered.push(header),
        }
        Ok(())
    }
}

/// Why a connection that benches ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchBreach {
    #[error("peer asks for more echoes than it takes")]
    Flood,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn queue_load(tls: &mut TlsStream, run: u32, len: usize) -> Result<(), TlsError> {
    let mut header = Vec::with_capacity(16);
    LoadHeader { run, len: len as u32 }.encode(&mut header);
    tls.queue(&[&header, filler(len)])
}

fn queue_echo(tls: &mut TlsStream, echo: EchoHeader) -> Result<(), TlsError> {
    let mut header = Vec::with_capacity(24);
    echo.encode(&mut header);
    tls.queue(&[&header, filler(echo.len as usize)])
}

/// Bytes that repeat nowhere, the same for each frame: the cipher makes them differ on the wire.
fn filler(len: usize) -> &'static [u8] {
    static FILLER: OnceLock<Vec<u8>> = OnceLock::new();
    let all = FILLER.get_or_init(|| {
        let mut bytes = vec![0; MAX_LOAD];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    });
    all.get(..len).unwrap_or(all)
}

//! Benchmark part of a connection: sends load, counts received load, and measures round-trip times
//! with echoes.
//!
//! Does not pass through the session's event loop, so that the result measures the link and not
//! internal queues.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, Piece,
    frame::{EchoHeader, LoadHeader, MAX_ECHO, MAX_LOAD},
    load::{LoadError, LoadGate, LoadMeter, LoadOrder, Metered, PingOrder},
};
use tokio::sync::{oneshot, watch};

use super::StreamEnd;
use crate::wire::{
    clock,
    tls::{TlsError, TlsStream},
};

/// Benchmark load carried by one path in bytes, over all its connections and runs.
#[derive(Debug, Default)]
pub(crate) struct LoadCounters {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

/// Benchmark state that a connection shares with its session.
#[derive(Debug, Clone)]
pub(crate) struct Loads {
    /// Benchmark run whose load is counted, set by the session's event loop.
    pub(crate) gate: watch::Receiver<LoadGate>,
    pub(crate) counters: Arc<LoadCounters>,
}

/// State of running benchmarks on one connection: load and messages to send, and counters.
#[derive(Debug)]
pub(super) struct StreamLoad {
    shared: Loads,
    meter: LoadMeter,
    came: Came,
    loading: Option<Loading>,
    pinging: Option<Pinging>,
    next_token: u64,
}

#[derive(Debug)]
struct Loading {
    order: LoadOrder,
    /// Time at which all data queued so far would be sent at exactly the rate limit.
    passed_at: Instant,
}

#[derive(Debug)]
struct Pinging {
    order: PingOrder,
    /// Dropped with the connection, so that the benchmark sees that it is lost.
    reply: oneshot::Sender<Vec<Duration>>,
    began: Instant,
    token: u64,
    sent_at: Instant,
    /// Remaining load bytes of the current message, which precede its echo request.
    left: u64,
    /// True once the echo request of the current message is queued.
    has_asked: bool,
    times: Vec<Duration>,
}

/// Counted load bytes, echo requests and echo replies found in one receive.
#[derive(Debug, Default)]
struct Came {
    counted: u64,
    requests: Vec<EchoHeader>,
    answers: Vec<EchoHeader>,
}

/// Maximum encrypted bytes queued for the socket when an echo is answered. An honest peer has one
/// echo outstanding.
const MOST_UNSENT: usize = 1 << 20;

/// Maximum number of load frames queued per call, which limits the work for small messages.
const FRAMES_AT_ONCE: usize = 64;

/// Maximum burst of rate-limited load, as a duration at the rate limit.
const BURST: Duration = Duration::from_millis(20);

impl StreamLoad {
    pub(super) fn new(shared: Loads) -> Self {
        Self {
            shared,
            meter: LoadMeter::default(),
            came: Came::default(),
            loading: None,
            pinging: None,
            next_token: 0,
        }
    }

    /// Returns the run whose load is counted now.
    pub(super) fn gate(&self) -> LoadGate {
        *self.shared.gate.borrow()
    }

    /// Adds a received piece to the totals if it belongs to a benchmark frame.
    pub(super) fn on_piece(&mut self, piece: &Piece<'_>, gate: LoadGate) -> Result<(), LoadError> {
        match self.meter.on_piece(piece, gate)? {
            Metered::Nothing => {}
            Metered::Counted(bytes) => self.came.counted += bytes,
            Metered::Asked(header) => self.came.requests.push(header),
            Metered::Answered(header) => self.came.answers.push(header),
        }
        Ok(())
    }

    /// Starts sending load, or stops if `order` is `None`.
    pub(super) fn load(&mut self, order: Option<LoadOrder>) {
        self.loading = order.map(|order| Loading {
            order,
            passed_at: clock::now(),
        });
    }

    /// Stops sending load and messages, at the end of the connection.
    pub(super) fn end(&mut self) {
        (self.loading, self.pinging) = (None, None);
    }

    /// Starts measuring round-trip times, and abandons a measurement that is running.
    pub(super) fn ping(
        &mut self,
        order: PingOrder,
        reply: oneshot::Sender<Vec<Duration>>,
        tls: &mut TlsStream,
    ) -> Result<(), TlsError> {
        let now = clock::now();
        self.pinging = Some(Pinging {
            order,
            reply,
            began: now,
            token: 0,
            sent_at: now,
            left: 0,
            has_asked: false,
            times: Vec::new(),
        });
        self.ask(tls)
    }

    /// Returns true if load or a part of a message may be sent now.
    pub(super) fn is_due(&self) -> bool {
        self.is_message_due()
            || self
                .loading
                .as_ref()
                .is_some_and(|loading| loading.wait(clock::now()).is_none())
    }

    /// Returns the time at which the rate limit permits the next load frame; `None` if a frame may
    /// be sent now or there is no load to send.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.loading
            .as_ref()
            .filter(|_| !self.is_message_due())?
            .wait(clock::now())
    }

    fn is_message_due(&self) -> bool {
        self.pinging
            .as_ref()
            .is_some_and(|pinging| !pinging.has_asked)
    }

    /// Queues load and messages until `enough` encrypted bytes are queued for the socket.
    pub(super) fn fill(&mut self, tls: &mut TlsStream, enough: usize) -> Result<(), TlsError> {
        for _ in 0..FRAMES_AT_ONCE {
            if tls.queued() >= enough {
                break;
            }
            if self.is_message_due() {
                self.go_on_asking(tls)?;
            } else if let Some(loading) = self
                .loading
                .as_mut()
                .filter(|loading| loading.wait(clock::now()).is_none())
            {
                let len = loading.frame_len();
                queue_load(tls, loading.order.run, len)?;
                loading.on_sent(len);
                self.shared
                    .counters
                    .sent
                    .fetch_add(len as u64, Ordering::Relaxed);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Counts received load, answers echo requests, and after a reply sends the next message or
    /// reports the round-trip times.
    pub(super) fn answer(&mut self, tls: &mut TlsStream) -> Result<(), StreamEnd> {
        let came = std::mem::take(&mut self.came);
        if came.counted > 0 {
            self.shared
                .counters
                .received
                .fetch_add(came.counted, Ordering::Relaxed);
        }
        for request in came.requests {
            if tls.queued() > MOST_UNSENT {
                return Err(StreamEnd::Flood);
            }
            queue_echo(
                tls,
                EchoHeader {
                    reply: true,
                    ..request
                },
            )?;
        }
        for answer in came.answers {
            let Some(pinging) = self
                .pinging
                .as_mut()
                .filter(|pinging| pinging.has_asked && pinging.token == answer.token)
            else {
                continue;
            };
            pinging.times.push(clock::now() - pinging.sent_at);
            if !pinging.is_over() {
                self.ask(tls)?;
            } else if let Some(Pinging { reply, times, .. }) = self.pinging.take() {
                let _ = reply.send(times);
            }
        }
        Ok(())
    }

    /// Starts sending the next message of a measurement.
    fn ask(&mut self, tls: &mut TlsStream) -> Result<(), TlsError> {
        self.next_token += 1;
        let Some(pinging) = &mut self.pinging else {
            return Ok(());
        };
        let is_large = pinging.order.bytes > MAX_ECHO as u64;
        (pinging.token, pinging.sent_at, pinging.has_asked) =
            (self.next_token, clock::now(), false);
        pinging.left = if is_large { pinging.order.bytes } else { 0 };
        self.go_on_asking(tls)
    }

    /// Queues the next load frame of the current message, or its echo request.
    fn go_on_asking(&mut self, tls: &mut TlsStream) -> Result<(), TlsError> {
        let Some(pinging) = &mut self.pinging else {
            return Ok(());
        };
        if pinging.left > 0 {
            let len = pinging.left.min(MAX_LOAD as u64);
            queue_load(tls, pinging.order.run, len as usize)?;
            pinging.left -= len;
            self.shared.counters.sent.fetch_add(len, Ordering::Relaxed);
        }
        if pinging.left == 0 {
            let len = if pinging.order.bytes > MAX_ECHO as u64 {
                0
            } else {
                pinging.order.bytes as u32
            };
            queue_echo(
                tls,
                EchoHeader {
                    token: pinging.token,
                    reply: false,
                    len,
                },
            )?;
            pinging.has_asked = true;
        }
        Ok(())
    }
}

impl Pinging {
    fn is_over(&self) -> bool {
        self.times.len() >= self.order.count as usize
            || clock::now() - self.began >= self.order.longest
    }
}

impl Loading {
    /// Returns the time at which the rate limit permits the next frame; `None` if it may be sent
    /// now.
    fn wait(&self, now: Instant) -> Option<Instant> {
        self.order.rate?;
        let ready = self.passed_at.checked_sub(BURST).unwrap_or(now);
        (ready > now).then_some(ready)
    }

    /// Returns the size of the next load frame in bytes, at most one burst under a rate limit.
    fn frame_len(&self) -> usize {
        let message = (self.order.message_bytes as usize).clamp(1, MAX_LOAD);
        self.order.rate.map_or(message, |rate| {
            message.min((rate.bytes_in(BURST) as usize).max(1024))
        })
    }

    fn on_sent(&mut self, len: usize) {
        if let Some(BitRate(bps)) = self.order.rate {
            self.passed_at = self.passed_at.max(clock::now())
                + BitRate(bps.max(1))
                    .time_for(len as u64)
                    .min(Duration::from_secs(3600));
        }
    }
}

fn queue_load(tls: &mut TlsStream, run: u32, len: usize) -> Result<(), TlsError> {
    let mut header = Vec::with_capacity(16);
    LoadHeader {
        run,
        len: len as u32,
    }
    .encode(&mut header);
    tls.queue(&[&header, filler(len)])
}

fn queue_echo(tls: &mut TlsStream, echo: EchoHeader) -> Result<(), TlsError> {
    let mut header = Vec::with_capacity(24);
    echo.encode(&mut header);
    tls.queue(&[&header, filler(echo.len as usize)])
}

/// Returns `len` bytes of pseudo-random data, the same for each frame. Encryption makes the frames
/// differ on the wire.
fn filler(len: usize) -> &'static [u8] {
    static FILLER: OnceLock<Vec<u8>> = OnceLock::new();
    let all = FILLER.get_or_init(|| {
        let mut bytes = vec![0; MAX_LOAD];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    });
    all.get(..len).unwrap_or(all)
}

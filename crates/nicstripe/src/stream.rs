//! One connection: bytes of a socket to frames of a session and back. One task a connection, both directions.

mod load;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    DataHeader, Decoder, Frame, FrameError, Piece,
    frame::{MAX_LOAD, MAX_PAYLOAD},
    load::{LoadError, LoadGate, LoadMeter, LoadOrder},
};
use tokio::sync::mpsc;

use self::load::{Bench, BenchBreach, Came};
pub(crate) use self::load::{LoadCounters, Loads, PingOrder, SharedGate};
use crate::{
    daemon::Place,
    file::{BufferPool, ChunkBuffer},
    session::sleep_until,
    tls::{TlsError, TlsStream},
};

/// What a session wants on a connection.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Frame(Frame),
    Chunk {
        header: DataHeader,
        buffer: Arc<ChunkBuffer>,
    },
    /// Load from here on, or no more.
    Load(Option<LoadOrder>),
    /// Measure round trips.
    Ping(PingOrder),
}

/// What a connection tells its session.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// Something arrived, though no whole frame.
    Heard,
    Frame(Frame),
    Chunk {
        header: DataHeader,
        buffer: ChunkBuffer,
    },
    /// The kernel took so many chunks wholly.
    Flushed(u32),
    /// The round trips that were asked for; fewer where their time was over.
    Pinged(Vec<Duration>),
    /// The connection is over.
    Ended(StreamEnd),
}

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamEnd {
    #[error("the peer closed it")]
    Closed,
    #[error("the peer sent data before its session was known")]
    Early,
    #[error("the peer's greeting cannot be read: {0}")]
    Greeting(String),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("peer asks for more echoes than it takes")]
    Flood,
    /// A daemon's: there are as many connections as may be, and this key has the most.
    #[error("it gave way to a connection of another key")]
    GaveWay,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Where a connection's events go, marked with what their session calls it.
pub(crate) trait EventSink: Send + 'static {
    /// Hands over a batch; `false` when nobody listens any more.
    fn deliver(&mut self, events: Vec<StreamEvent>) -> impl Future<Output = bool> + Send;
}

/// Encrypted bytes that may wait for the kernel before the next frame is taken: one chunk, so that a chunk that was superseded meanwhile
/// can still be dropped.
const HIGH_WATER: usize = 256 * 1024;

/// Below so many waiting bytes a load's next frame is encrypted: what is left of the one before is moved to the front of the buffer then, and
/// both stay in the cache. The kernel has more to send meanwhile.
const LOW_WATER: usize = 64 * 1024;

/// From so many waiting bytes on, nothing is received. What an end says by itself is less than half of it ([`HIGH_WATER`] and the longest frame,
/// and one message of a bench), so two ends that both send never wait for each other; the rest is answers that the peer does not read.
const MOST_UNREAD: usize = 2 << 20;
const _: () = assert!(MOST_UNREAD > 2 * (HIGH_WATER + MAX_PAYLOAD + MAX_LOAD));

/// How often a connection that receives part of a chunk says that it lives.
const HEARD_INTERVAL: Duration = Duration::from_millis(50);

/// How long a connection that was let go may take to send its last bytes.
const LINGER: Duration = Duration::from_millis(300);

/// A connection on which hello and welcome were exchanged.
pub(crate) struct Greeted {
    tls: TlsStream,
    decoder: Decoder,
    /// Frames that came right behind the greeting.
    early: Vec<Frame>,
    /// The place that a daemon has for it.
    place: Option<Place>,
}

impl std::fmt::Debug for Greeted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Greeted").field("tcp", self.tls.tcp()).finish_non_exhaustive()
    }
}

impl Greeted {
    /// A connection whose peer's first frame is not waited for: to refuse it.
    pub(crate) fn unheard(tls: TlsStream) -> Self {
        Self { tls, decoder: Decoder::new(), early: Vec::new(), place: None }
    }

    /// Waits for the peer's first frame on a new connection. Not cancel safe: drop the connection.
    pub(crate) async fn first_frame(mut tls: TlsStream) -> Result<(Frame, Self), StreamEnd> {
        let mut decoder = Decoder::new();
        let mut frames = Vec::new();
        while frames.is_empty() {
            tls.ready(true, false).await?;
            let received = tls.try_receive(|mut plaintext| {
                while let Some(piece) = decoder.next(&mut plaintext)? {
                    match piece {
                        Piece::Frame(frame) => frames.push(frame),
                        // Nobody has given credit yet.
                        _ => return Err(StreamEnd::Early),
                    }
                }
                Ok(())
            })?;
            if received.peer_closed && frames.is_empty() {
                return Err(StreamEnd::Closed);
            }
        }
        let first = frames.remove(0);
        Ok((first, Self { tls, decoder, early: frames, place: None }))
    }

    pub(crate) fn tls(&self) -> &TlsStream {
        &self.tls
    }

    /// Keeps its place for as long as the connection lasts, which ends when another key gets the place.
    pub(crate) fn hold(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Sends one frame before the session takes over.
    pub(crate) async fn send(&mut self, frame: &Frame) -> Result<(), StreamEnd> {
        send_frame(&mut self.tls, frame).await
    }

    /// Ends the connection in order.
    pub(crate) async fn finish(self) {
        let _ = self.tls.finish(Instant::now() + LINGER).await;
    }
}

/// Sends one frame on a connection that no session has yet.
pub(crate) async fn send_frame(tls: &mut TlsStream, frame: &Frame) -> Result<(), StreamEnd> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    tls.queue(&[&bytes])?;
    while tls.queued() > 0 {
        tls.try_flush()?;
        if tls.queued() > 0 {
            tls.ready(false, true).await?;
        }
    }
    Ok(())
}

/// A connection that carries a session's path.
pub(crate) struct Stream<S> {
    tls: TlsStream,
    decoder: Decoder,
    early: Vec<Frame>,
    incoming: Option<(DataHeader, ChunkBuffer)>,
    buffers: BufferPool,
    outgoing: mpsc::Receiver<Outgoing>,
    sink: S,
    plain: Vec<u8>,
    /// For each chunk that the kernel has not taken wholly: where it ends, in encrypted bytes since the start.
    chunk_ends: VecDeque<u64>,
    heard_at: Instant,
    bench: Bench,
    place: Option<Place>,
}

impl<S: EventSink> Stream<S> {
    pub(crate) fn new(greeted: Greeted, buffers: BufferPool, outgoing: mpsc::Receiver<Outgoing>, loads: Loads, sink: S) -> Self {
        Self {
            tls: greeted.tls,
            decoder: greeted.decoder,
            early: greeted.early,
            incoming: None,
            buffers,
            outgoing,
            sink,
            plain: Vec::new(),
            chunk_ends: VecDeque::new(),
            heard_at: Instant::now(),
            bench: Bench::new(loads),
            place: greeted.place,
        }
    }

    /// Runs until the connection ends or its session lets go of it.
    pub(crate) async fn run(mut self) {
        let place = self.place.take();
        let gone = async {
            match &place {
                Some(place) => place.gone().await,
                None => std::future::pending().await,
            }
        };
        let carried = tokio::select! {
            carried = self.carry() => carried,
            () = gone => Err(StreamEnd::GaveWay),
        };
        let end = match carried {
            Ok(()) => {
                let _ = self.tls.finish(Instant::now() + LINGER).await;
                return;
            }
            Err(end) => end,
        };
        // TLS may have left a last word, which tells the peer why; it is not waited for.
        if let StreamEnd::Tls(_) = end {
            let _ = self.tls.try_flush();
        }
        tracing::debug!(end = %crate::logged::logged_error(&end), "connection ended");
        self.sink.deliver(vec![StreamEvent::Ended(end)]).await;
    }

    /// Returns when the session has let go; an error when the connection has ended.
    async fn carry(&mut self) -> Result<(), StreamEnd> {
        let early = std::mem::take(&mut self.early);
        if !early.is_empty() {
            self.deliver(early.into_iter().map(StreamEvent::Frame).collect()).await?;
        }
        loop {
            let pending = self.tls.queued();
            let room = pending < HIGH_WATER;
            let (loads, due_at) = (pending < LOW_WATER && self.bench.is_due(), self.bench.due_at());
            tokio::select! {
                biased;
                outgoing = self.outgoing.recv(), if room => match outgoing {
                    Some(outgoing) => self.take(outgoing)?,
                    None if pending == 0 => return Ok(()),
                    None => {
                        self.bench.end();
                        self.drain().await?;
                    }
                },
                ready = self.tls.ready(pending < MOST_UNREAD, pending > 0 || loads) => {
                    if ready?.is_readable() {
                        self.receive().await?;
                    }
                }
                () = sleep_until(due_at.map(Into::into)) => {}
            }
            self.bench.fill(&mut self.tls, LOW_WATER)?;
            self.flush().await?;
            if self.tls.is_cut() {
                // Only the peer's last words are waited for.
                self.bench.end();
            }
            // A socket that always has room would keep this thread, and with it perhaps the only one that looks what the kernel has to say.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Encrypts what the session wants sent, and whatever else it has ready.
    fn take(&mut self, first: Outgoing) -> Result<(), StreamEnd> {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Frame(frame) => frame.encode(&mut self.plain),
                Outgoing::Chunk { header, buffer } => {
                    header.encode(&mut self.plain);
                    self.encrypt(buffer.bytes())?;
                    self.chunk_ends.push_back(self.tls.total_sent() + self.tls.queued() as u64);
                }
                Outgoing::Load(order) => self.bench.load(order),
                Outgoing::Ping(order) => {
                    self.encrypt(&[])?;
                    self.bench.ping(order, &mut self.tls)?;
                }
            }
            next = if self.tls.queued() + self.plain.len() < HIGH_WATER { self.outgoing.try_recv().ok() } else { None };
        }
        Ok(self.encrypt(&[])?)
    }

    /// Encrypts the frames gathered in `plain`, and `payload` behind them.
    fn encrypt(&mut self, payload: &[u8]) -> Result<(), TlsError> {
        if !self.plain.is_empty() {
            self.tls.queue(&[&self.plain, payload])?;
            self.plain.clear();
        }
        Ok(())
    }

    /// The session has let go: sends what is left.
    async fn drain(&mut self) -> Result<(), StreamEnd> {
        while self.tls.queued() > 0 {
            self.tls.ready(false, true).await?;
            self.tls.try_flush()?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), StreamEnd> {
        if self.tls.queued() > 0 {
            self.tls.try_flush()?;
        }
        let sent = self.tls.total_sent();
        let flushed = self.chunk_ends.iter().take_while(|end| **end <= sent).count();
        if flushed > 0 {
            self.chunk_ends.drain(..flushed);
            self.deliver(vec![StreamEvent::Flushed(flushed as u32)]).await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), StreamEnd> {
        let mut events = Vec::new();
        let mut came = Came::default();
        let gate = self.bench.gate();
        let mut taking = Taking {
            decoder: &mut self.decoder,
            incoming: &mut self.incoming,
            buffers: &self.buffers,
            meter: self.bench.meter(),
            gate,
            came: &mut came,
            events: &mut events,
        };
        let received = self.tls.try_receive(|plaintext| taking.take(plaintext))?;
        let times = self.bench.take(&came, &mut self.tls).map_err(|breach| match breach {
            BenchBreach::Flood => StreamEnd::Flood,
            BenchBreach::Tls(error) => StreamEnd::Tls(error),
        })?;
        events.extend(times.map(StreamEvent::Pinged));
        if events.is_empty() && received.received > 0 && self.heard_at.elapsed() >= HEARD_INTERVAL {
            events.push(StreamEvent::Heard);
        }
        if !events.is_empty() {
            self.heard_at = Instant::now();
            self.deliver(events).await?;
        }
        if received.peer_closed { Err(StreamEnd::Closed) } else { Ok(()) }
    }

    async fn deliver(&mut self, events: Vec<StreamEvent>) -> Result<(), StreamEnd> {
        if self.sink.deliver(events).await { Ok(()) } else { Err(StreamEnd::Closed) }
    }
}

/// Takes plaintext apart; chunks are gathered in buffers of their own, loads are counted and dropped.
struct Taking<'a> {
    decoder: &'a mut Decoder,
    incoming: &'a mut Option<(DataHeader, ChunkBuffer)>,
    buffers: &'a BufferPool,
    meter: &'a mut LoadMeter,
    gate: LoadGate,
    came: &'a mut Came,
    events: &'a mut Vec<StreamEvent>,
}

impl Taking<'_> {
    fn take(&mut self, mut plaintext: &[u8]) -> Result<(), StreamEnd> {
        while let Some(piece) = self.decoder.next(&mut plaintext)? {
            match piece {
                Piece::Frame(frame) => self.events.push(StreamEvent::Frame(frame)),
                Piece::DataStart(header) => *self.incoming = Some((header, self.buffers.take())),
                Piece::DataBytes(bytes) => {
                    if let Some((_, buffer)) = self.incoming {
                        // The decoder has checked the length against the limit that buffers are made for.
                        buffer.append(bytes);
                    }
                }
                Piece::DataEnd => {
                    self.events.extend(self.incoming.take().map(|(header, buffer)| StreamEvent::Chunk { header, buffer }));
                }
                piece => self.came.on_piece(self.meter, self.gate, &piece)?,
            }
        }
        Ok(())
    }
}

//! One connection of a session, with a task that decodes received frames and encodes frames to
//! send.

mod load;
mod low_water;

use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    DataHeader, Decoder, Frame, FrameError, Piece,
    frame::{MAX_LOAD, MAX_PAYLOAD},
    load::{LoadError, LoadGate, LoadOrder, PingOrder},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(crate) use self::load::{LoadCounters, Loads};
use self::{load::StreamLoad, low_water::LowWater};
use super::{
    clock,
    tls::{Plaintext, Progress, Room, TlsError, TlsStream},
};
use crate::file::{BufferPool, ChunkBuffer, UNPACKS};

/// Command of a session to a connection.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Frame(Frame),
    Chunk {
        header: DataHeader,
        buffer: Arc<ChunkBuffer>,
    },
    /// Order to start sending benchmark load; `None` stops it.
    Load(Option<LoadOrder>),
    /// Order to measure round-trip times for a benchmark, and the channel for them: fewer than
    /// requested on timeout.
    Ping(PingOrder, oneshot::Sender<Vec<Duration>>),
}

/// Event that a connection reports to its session.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// Data arrived, but no complete frame. Reported at most once per [`HEARD_INTERVAL`].
    Heard,
    Frame(Frame),
    Chunk {
        header: DataHeader,
        buffer: ChunkBuffer,
    },
    /// Number of chunks written to the socket completely since the last such event.
    Flushed(u32),
    Ended(StreamEnd),
}

/// Reason why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamEnd {
    #[error("closed by the peer")]
    Closed,
    #[error("the peer sent data before the handshake")]
    Early,
    #[error("malformed hello from the peer: {0}")]
    Greeting(String),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("peer requested more echoes than it reads")]
    Flood,
    #[error("peer sent a compressed chunk, which this program does not support")]
    Compressed,
    #[error("peer sent a chunk beyond its credit")]
    Credit,
    /// At the daemon: the connection limit was reached, and this key had the most connections.
    #[error("evicted for a connection of another key")]
    Evicted,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Receiver of one connection's events. The implementation knows the path of the connection.
pub(crate) trait EventSink: Send + 'static {
    /// Delivers a batch of events; returns `false` if the session has ended.
    fn deliver(&mut self, events: Vec<StreamEvent>) -> impl Future<Output = bool> + Send;
}

/// Maximum encrypted data queued for the socket before the next frame is encoded, in bytes. One
/// chunk, so that a chunk superseded in the meantime can still be dropped.
const HIGH_WATER: usize = 256 * 1024;

/// Queued encrypted bytes below which the next frame of benchmark load is encrypted. At this size
/// the rest of the previous frame and the new one fit into the CPU cache, and the kernel still has
/// data to send.
const LOW_WATER: usize = 64 * 1024;

/// Queued encrypted bytes above which the connection stops receiving. The queue then consists of
/// replies that the peer does not read. Frames of the session take less than half of it
/// ([`HIGH_WATER`], the longest frame and one benchmark message), so that two peers that both send
/// never deadlock.
const MOST_UNREAD: usize = 2 << 20;
const _: () = assert!(MOST_UNREAD > 2 * (HIGH_WATER + MAX_PAYLOAD + MAX_LOAD));

/// Minimum interval between [`StreamEvent::Heard`] events while a chunk is being received.
const HEARD_INTERVAL: Duration = Duration::from_millis(50);

/// Slot in the daemon's connection limit, held by a connection until it ends.
pub(crate) trait Lease: fmt::Debug + Send + Sync {
    /// Returns the token that is cancelled when the daemon evicts this connection for another key.
    fn evicted(&self) -> &CancellationToken;
}

/// Maximum time for a released connection to send its remaining bytes and close.
const LINGER: Duration = Duration::from_millis(300);

/// Connection after the exchange of hello and welcome.
pub(crate) struct Greeted {
    tls: TlsStream,
    decoder: Decoder,
    /// Frames that arrived together with the peer's first frame.
    early: Vec<Frame>,
    /// Daemon only: slot of the connection in the connection limit.
    lease: Option<Box<dyn Lease>>,
}

impl fmt::Debug for Greeted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Greeted")
            .field("socket", self.tls.socket())
            .finish_non_exhaustive()
    }
}

impl Greeted {
    /// Wraps a connection on which no frame was received.
    pub(crate) fn unheard(tls: TlsStream) -> Self {
        Self {
            tls,
            decoder: Decoder::new(),
            early: Vec::new(),
            lease: None,
        }
    }

    /// Waits for the peer's first frame on a new connection. Not cancel safe: drop the connection.
    pub(crate) async fn first_frame(tls: TlsStream) -> Result<(Frame, Self), StreamEnd> {
        let mut greeted = Self::unheard(tls);
        while greeted.early.is_empty() {
            greeted.tls.ready(true, false).await?;
            let received = greeted.tls.try_receive(|mut plaintext: &[u8]| {
                while let Some(piece) = greeted.decoder.next(&mut plaintext)? {
                    match piece {
                        Piece::Frame(frame) => greeted.early.push(frame),
                        // No credit has been granted yet.
                        _ => return Err(StreamEnd::Early),
                    }
                }
                Ok(())
            })?;
            if received.peer_closed && greeted.early.is_empty() {
                return Err(StreamEnd::Closed);
            }
        }
        Ok((greeted.early.remove(0), greeted))
    }

    pub(crate) fn tls(&self) -> &TlsStream {
        &self.tls
    }

    /// Stores the connection's slot in the connection limit. The connection ends when the slot is
    /// given to another key.
    pub(crate) fn hold(&mut self, lease: impl Lease + 'static) {
        self.lease = Some(Box::new(lease));
    }

    /// Sends one frame, before the session takes over the connection.
    pub(crate) async fn send(&mut self, frame: &Frame) -> Result<(), StreamEnd> {
        send_frame(&mut self.tls, frame).await
    }

    /// Flushes and closes the connection, within [`LINGER`].
    pub(crate) async fn finish(self) {
        let _ = self.tls.finish(clock::now() + LINGER).await;
    }
}

/// Sends one frame on a connection without a session.
pub(crate) async fn send_frame(tls: &mut TlsStream, frame: &Frame) -> Result<(), StreamEnd> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    tls.queue(&[&bytes])?;
    Ok(tls.flush().await?)
}

/// Task state of one connection that carries a path of a session.
pub(crate) struct Stream<S> {
    greeted: Greeted,
    incoming: Option<(DataHeader, ChunkBuffer)>,
    credit: Credit,
    buffers: BufferPool,
    outgoing: mpsc::Receiver<Outgoing>,
    sink: S,
    plain: Vec<u8>,
    /// Position after each chunk that is not written to the socket completely, in encrypted bytes
    /// since the start of the connection.
    chunk_ends: VecDeque<u64>,
    heard_at: Instant,
    low_water: LowWater,
    bench: StreamLoad,
}

impl<S: EventSink> Stream<S> {
    pub(crate) fn new(
        greeted: Greeted,
        buffers: BufferPool,
        outgoing: mpsc::Receiver<Outgoing>,
        loads: Loads,
        sink: S,
    ) -> Self {
        Self {
            greeted,
            incoming: None,
            credit: Credit::default(),
            buffers,
            outgoing,
            sink,
            plain: Vec::new(),
            chunk_ends: VecDeque::new(),
            heard_at: clock::now(),
            low_water: LowWater::default(),
            bench: StreamLoad::new(loads),
        }
    }

    /// Runs the connection until it ends or the session releases it.
    pub(crate) async fn run(mut self) {
        let lease = self.greeted.lease.take();
        let evicted = async {
            match &lease {
                Some(lease) => lease.evicted().cancelled().await,
                None => std::future::pending().await,
            }
        };
        let carried = tokio::select! {
            carried = self.carry() => carried,
            () = evicted => Err(StreamEnd::Evicted),
        };
        let end = match carried {
            Ok(()) => {
                self.greeted.finish().await;
                return;
            }
            Err(end) => end,
        };
        // TLS may have queued an alert with the reason; do not wait for it.
        if let StreamEnd::Tls(_) = end {
            let _ = self.greeted.tls.try_flush();
        }
        tracing::debug!(end = %crate::text::logged::logged_error(&end), "connection ended");
        self.sink.deliver(vec![StreamEvent::Ended(end)]).await;
    }

    /// Sends and receives until the session releases the connection (`Ok`) or the connection fails
    /// (`Err`).
    async fn carry(&mut self) -> Result<(), StreamEnd> {
        let early = std::mem::take(&mut self.greeted.early);
        if !early.is_empty() {
            self.deliver(early.into_iter().map(StreamEvent::Frame).collect())
                .await?;
        }
        loop {
            let pending = self.greeted.tls.queued();
            let (room, reads) = (pending < HIGH_WATER, pending < MOST_UNREAD);
            let (loads, due_at) = (
                pending < LOW_WATER && self.bench.is_due(),
                self.bench.due_at(),
            );
            let lull_at = self.low_water.lull_at().filter(|_| reads);
            tokio::select! {
                biased;
                outgoing = self.outgoing.recv(), if room => match outgoing {
                    Some(outgoing) => self.take(outgoing)?,
                    None if pending == 0 => return Ok(()),
                    // Released by the session.
                    None => {
                        self.bench.end();
                        self.greeted.tls.flush().await?;
                    }
                },
                ready = self.greeted.tls.ready(reads, pending > 0 || loads) => {
                    if ready?.is_readable() {
                        self.receive().await?;
                    }
                }
                () = clock::sleep_until(lull_at.map(Into::into)) => self.receive().await?,
                () = clock::sleep_until(due_at.map(Into::into)) => {}
            }
            self.bench.fill(&mut self.greeted.tls, LOW_WATER)?;
            self.flush().await?;
            if self.greeted.tls.is_cut() {
                // Only the peer's last frames are still expected.
                self.bench.end();
            }
            // A socket that is always writable would monopolize this thread, possibly the only one
            // that polls the kernel.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Encodes a command of the session and further queued ones, up to [`HIGH_WATER`].
    fn take(&mut self, first: Outgoing) -> Result<(), StreamEnd> {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Frame(frame) => {
                    if let Frame::Credit { frames } = frame {
                        self.credit.granted = self.credit.granted.max(frames);
                    }
                    frame.encode(&mut self.plain);
                }
                Outgoing::Chunk { header, buffer } => {
                    header.encode(&mut self.plain);
                    self.encrypt(buffer.bytes())?;
                    self.chunk_ends.push_back(
                        self.greeted.tls.total_sent() + self.greeted.tls.queued() as u64,
                    );
                }
                Outgoing::Load(order) => self.bench.load(order),
                Outgoing::Ping(order, reply) => {
                    self.encrypt(&[])?;
                    self.bench.ping(order, reply, &mut self.greeted.tls)?;
                }
            }
            next = if self.greeted.tls.queued() + self.plain.len() < HIGH_WATER {
                self.outgoing.try_recv().ok()
            } else {
                None
            };
        }
        Ok(self.encrypt(&[])?)
    }

    /// Encrypts the frames gathered in `plain`, followed by `payload`.
    fn encrypt(&mut self, payload: &[u8]) -> Result<(), TlsError> {
        if !self.plain.is_empty() {
            self.greeted.tls.queue(&[&self.plain, payload])?;
            self.plain.clear();
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), StreamEnd> {
        if self.greeted.tls.queued() > 0 {
            self.greeted.tls.try_flush()?;
        }
        let sent = self.greeted.tls.total_sent();
        let flushed = self
            .chunk_ends
            .iter()
            .take_while(|end| **end <= sent)
            .count();
        if flushed > 0 {
            self.chunk_ends.drain(..flushed);
            self.deliver(vec![StreamEvent::Flushed(flushed as u32)])
                .await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), StreamEnd> {
        let mut events = Vec::new();
        let received = self.take_received(&mut events)?;
        self.low_water.on_received(
            received.received,
            self.incoming.as_ref().map(|(header, _)| header),
            &self.greeted.tls,
        );
        self.bench.answer(&mut self.greeted.tls)?;
        if events.is_empty()
            && received.received > 0
            && clock::now() - self.heard_at >= HEARD_INTERVAL
        {
            events.push(StreamEvent::Heard);
        }
        if !events.is_empty() {
            self.heard_at = clock::now();
            self.deliver(events).await?;
        }
        if received.peer_closed {
            Err(StreamEnd::Closed)
        } else {
            Ok(())
        }
    }

    /// Receives once and decodes the plaintext.
    fn take_received(&mut self, events: &mut Vec<StreamEvent>) -> Result<Progress, StreamEnd> {
        let Greeted { tls, decoder, .. } = &mut self.greeted;
        tls.try_receive(Intake {
            decoder,
            incoming: &mut self.incoming,
            credit: &mut self.credit,
            buffers: &self.buffers,
            gate: self.bench.gate(),
            bench: &mut self.bench,
            events,
        })
    }

    async fn deliver(&mut self, events: Vec<StreamEvent>) -> Result<(), StreamEnd> {
        if self.sink.deliver(events).await {
            Ok(())
        } else {
            Err(StreamEnd::Closed)
        }
    }
}

/// Chunks that the peer may send and has begun, since the start of the connection.
///
/// The session counts them too, but later: each chunk of one byte takes a buffer of 256 KiB, and
/// thousands fit into what is received before the session sees the first.
#[derive(Debug, Default)]
struct Credit {
    granted: u64,
    begun: u64,
}

impl Credit {
    fn begin(&mut self) -> Result<(), StreamEnd> {
        self.begun += 1;
        match self.begun <= self.granted {
            true => Ok(()),
            false => Err(StreamEnd::Credit),
        }
    }
}

/// Decoder of what a connection receives: collects each chunk in its own buffer, and counts and
/// discards benchmark load.
struct Intake<'a> {
    decoder: &'a mut Decoder,
    incoming: &'a mut Option<(DataHeader, ChunkBuffer)>,
    credit: &'a mut Credit,
    buffers: &'a BufferPool,
    bench: &'a mut StreamLoad,
    gate: LoadGate,
    events: &'a mut Vec<StreamEvent>,
}

impl Plaintext<StreamEnd> for Intake<'_> {
    fn room(&mut self) -> Option<Room<'_>> {
        let (_, buffer) = self.incoming.as_mut()?;
        match self.decoder.data_left() {
            0 => None,
            data => Some(Room {
                bytes: buffer.room(),
                data,
            }),
        }
    }

    fn filled(&mut self, len: usize) -> Result<(), StreamEnd> {
        self.decoder.skip_data(len);
        if let Some((_, buffer)) = self.incoming {
            buffer.fill(len);
        }
        self.take(&[])
    }

    fn take(&mut self, mut plaintext: &[u8]) -> Result<(), StreamEnd> {
        while let Some(piece) = self.decoder.next(&mut plaintext)? {
            match piece {
                Piece::Frame(frame) => self.events.push(StreamEvent::Frame(frame)),
                Piece::DataStart(header) if header.raw_len > 0 && !UNPACKS => {
                    return Err(StreamEnd::Compressed);
                }
                Piece::DataStart(header) => {
                    self.credit.begin()?;
                    *self.incoming = Some((header, self.buffers.take()));
                }
                Piece::DataBytes(bytes) => {
                    if let Some((_, buffer)) = self.incoming {
                        // The decoder has checked the length against the limit that buffers are
                        // made for.
                        buffer.append(bytes);
                    }
                }
                Piece::DataEnd => {
                    let chunk = self.incoming.take();
                    self.events.extend(
                        chunk.map(|(header, buffer)| StreamEvent::Chunk { header, buffer }),
                    );
                }
                piece => self.bench.on_piece(&piece, self.gate)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nicstripe_proto::{ChainingValue, ChunkId, TransferId};
    use tokio::sync::watch;

    use super::*;

    #[test]
    fn chunks_beyond_the_credit_take_no_buffer() {
        let loads = Loads {
            gate: watch::channel(LoadGate::default()).1,
            counters: Arc::default(),
        };
        let (mut bench, buffers) = (StreamLoad::new(loads), BufferPool::default());
        let mut credit = Credit {
            granted: 3,
            begun: 0,
        };
        let mut chunks = Vec::new();
        for index in 0..1000 {
            let header = DataHeader {
                transfer: TransferId(1),
                chunk: ChunkId(index),
                len: 1,
                raw_len: 0,
                value: ChainingValue([0; 32]),
                last: false,
            };
            header.encode(&mut chunks);
            chunks.push(7);
        }
        let mut events = Vec::new();
        let mut intake = Intake {
            decoder: &mut Decoder::new(),
            incoming: &mut None,
            credit: &mut credit,
            buffers: &buffers,
            gate: bench.gate(),
            bench: &mut bench,
            events: &mut events,
        };
        let end = intake.take(&chunks).unwrap_err();
        assert!(matches!(end, StreamEnd::Credit), "{end}");
        assert_eq!(events.len(), 3);
        let each = BufferPool::default();
        let _one = each.take();
        assert_eq!(buffers.bytes_in_use(), 3 * each.bytes_in_use());
    }
}

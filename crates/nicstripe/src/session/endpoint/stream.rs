//! Streams: sources that are read once from start to end, and sinks that take their chunks in
//! order.

use std::{fmt, io};

use nicstripe_proto::{
    Acceptance, ChunkSize, Offer, SourceIdentity, TransferId,
    message::{Get, Put},
};
use tokio::sync::mpsc;

use super::{
    Scope, Sink, Source, request,
    retransmit::{ChunkSender, RETRANSMIT_CHUNKS, RetransmitBuffer, stream},
};
use crate::{
    file::{ChunkBuffer, FileError, IoPool, options::PIPE_WINDOW},
    session::input::{Input, IoResult, Step},
};

/// Item of a stream.
#[derive(Debug)]
pub(crate) enum StreamItem {
    /// Chunk of the stream; only the last one may be shorter than the chunk size.
    Chunk(ChunkBuffer),
    /// End of the data.
    End,
}

/// Function that starts the thread or task of a source, which sends its chunks.
type Produce = Box<dyn FnOnce(ChunkSender, IoPool) -> io::Result<()> + Send>;

/// Function that starts the thread or task of a sink, which consumes the items of the transfer. The
/// file that the daemon has opened has this identity.
type Consume = Box<dyn FnOnce(SourceIdentity, Incoming) -> io::Result<()> + Send>;

/// Source of a stream that the peer is asked to store.
pub(crate) struct StreamSource {
    put: Box<Put>,
    /// Start of the source; `None` once it has started.
    produce: Option<Produce>,
}

impl StreamSource {
    pub(super) fn new(
        put: Box<Put>,
        produce: impl FnOnce(ChunkSender, IoPool) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self {
            put,
            produce: Some(Box::new(produce)),
        }
    }
}

impl Source for StreamSource {
    fn announce(&mut self, at: &mut Scope<'_>) {
        let mut put = self.put.clone();
        put.offer.transfer = at.transfer;
        let offered = at.session.put(*put);
        debug_assert!(offered.is_ok(), "{offered:?}");
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Option<RetransmitBuffer>> {
        let Some(produce) = self.produce.take() else {
            return Ok(None);
        };
        let (chunks, buffer) = stream(at.transfer, RETRANSMIT_CHUNKS, at.jobs);
        produce(chunks, at.jobs.pool.clone())?;
        Ok(Some(buffer))
    }
}

/// Sink of a stream that the peer is asked to send.
pub(crate) struct StreamSink {
    get: Box<Get>,
    /// Start of the consumer; `None` once it has started.
    consume: Option<Consume>,
    opened: SourceIdentity,
    /// Channel to the consumer; `None` before the start. The reorder buffer bounds the number of
    /// chunks in it.
    items: Option<mpsc::UnboundedSender<StreamItem>>,
}

impl StreamSink {
    pub(super) fn new(
        get: Box<Get>,
        consume: impl FnOnce(SourceIdentity, Incoming) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self {
            get,
            consume: Some(Box::new(consume)),
            opened: SourceIdentity::default(),
            items: None,
        }
    }

    fn send(&self, item: StreamItem) {
        // A consumer that has ended has reported why, or its reader is gone, which cancels the
        // transfer.
        if let Some(items) = &self.items {
            let _ = items.send(item);
        }
    }
}

impl Sink for StreamSink {
    fn request(&mut self, at: &mut Scope<'_>) {
        request(&self.get, at);
    }

    fn open(&mut self, offer: &Offer, _at: &mut Scope<'_>) -> bool {
        self.opened = offer.source;
        true
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Acceptance> {
        if let Some(consume) = self.consume.take() {
            let (items, received) = mpsc::unbounded_channel();
            self.items = Some(items);
            let incoming = Incoming {
                transfer: at.transfer,
                items: received,
                inputs: at.jobs.inputs.clone(),
            };
            consume(self.opened, incoming)?;
        }
        Ok(in_order())
    }

    fn size(&self) -> Option<u64> {
        Some(self.opened.size)
    }

    fn take(&mut self, chunk: ChunkBuffer) {
        self.send(StreamItem::Chunk(chunk));
    }

    fn end(&mut self) {
        self.send(StreamItem::End);
    }
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource")
            .field("name", &self.put.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StreamSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSink")
            .field("name", &self.get.name)
            .finish_non_exhaustive()
    }
}

/// Items of one received stream, and the channel on which their consumer reports.
pub(super) struct Incoming {
    transfer: TransferId,
    pub(super) items: mpsc::UnboundedReceiver<StreamItem>,
    pub(super) inputs: mpsc::Sender<Input>,
}

impl Incoming {
    /// Returns the input that reports one consumed chunk.
    pub(super) fn consumed(&self) -> Input {
        Input::Consumed {
            transfer: self.transfer,
            chunks: 1,
        }
    }

    /// Returns the input that reports the end of the consumer.
    pub(super) fn drained(&self, result: Result<(), FileError>) -> Input {
        Input::Io(IoResult::Step {
            transfer: self.transfer,
            step: Step::Drained,
            result,
        })
    }
}

/// Capacity of a stream's reorder buffer, in chunks.
const REORDER_CHUNKS: u64 = PIPE_WINDOW / ChunkSize::DEFAULT.bytes();

/// Returns the acceptance of a stream, with the capacity of its reorder buffer.
pub(super) fn in_order() -> Acceptance {
    Acceptance {
        room: Some(REORDER_CHUNKS),
        ..Acceptance::default()
    }
}

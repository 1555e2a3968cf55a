//! Streams: sources that are read once from start to end, and sinks that take their chunks in
//! order.

use std::{io, sync::Arc};

use nicstripe_proto::{
    Acceptance, ChunkSize, Offer, TransferId,
    message::{Get, OfferKind},
};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{
    Kind, Scope, Upload, check_batches, not_started,
    object::Begun,
    retransmit::{ChunkSender, RETRANSMIT_CHUNKS},
    stream_offer,
};
use crate::{
    file::{ChunkBuffer, FileError, IoPool, options::PIPE_WINDOW},
    report::{error::Error, metrics::TransferDirection},
    session::inbox::{Input, IoResult, Said, Step},
};

#[derive(Debug)]
pub(crate) enum StreamItem {
    /// Chunk of the stream; only the last one may be shorter than the chunk size.
    Chunk(ChunkBuffer),
    End,
}

/// Function that starts the thread or task of a source, which sends its chunks.
type Produce = Box<dyn FnOnce(ChunkSender, IoPool) -> io::Result<()> + Send>;

/// Function that starts the thread or task of a sink, which consumes the items of the transfer of the
/// file that the daemon has opened.
type Consume = Box<dyn FnOnce(Begun, Incoming) -> io::Result<()> + Send>;

/// Start of a reader or writer of the program, shared by all attempts of one transfer; `None` once
/// it has started.
type Start<F> = Arc<Mutex<Option<F>>>;

/// Source or sink of a stream. Its reader or writer is started when the peer has accepted the
/// transfer, and only once.
pub(crate) trait StartedOnce: Kind + 'static {
    /// Returns the source or sink for another attempt.
    fn again(&self) -> Self;

    /// Returns true if no attempt has started the reader or writer.
    fn is_unstarted(&self) -> bool;
}

/// Source of a stream that the peer is asked to store.
pub(crate) struct StreamSource {
    upload: Upload,
    produce: Start<Produce>,
}

impl StreamSource {
    pub(super) fn new(
        upload: Upload,
        produce: impl FnOnce(ChunkSender, IoPool) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self {
            upload,
            produce: Arc::new(Mutex::new(Some(Box::new(produce)))),
        }
    }
}

impl StartedOnce for StreamSource {
    fn again(&self) -> Self {
        Self {
            upload: self.upload.clone(),
            produce: self.produce.clone(),
        }
    }

    fn is_unstarted(&self) -> bool {
        self.produce.lock().is_some()
    }
}

impl Kind for StreamSource {
    fn direction(&self) -> TransferDirection {
        TransferDirection::Send
    }

    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        let offer = stream_offer(at.transfer, OfferKind::Pipe, 0o666);
        let offered = at.session.put(self.upload.put(offer));
        debug_assert!(offered.is_ok(), "{offered:?}");
        Ok(())
    }

    fn on_accepted(&mut self, _memory: Option<u64>, at: &mut Scope<'_>) -> Result<(), Error> {
        let produce = self.produce.lock().take();
        match produce {
            Some(produce) => {
                let chunks = at.stream(RETRANSMIT_CHUNKS);
                produce(chunks, at.jobs.pool.clone()).map_err(not_started)
            }
            None => Ok(()),
        }
    }
}

/// Sink of a stream that the peer is asked to send.
pub(crate) struct StreamSink {
    download: Get,
    consume: Start<Consume>,
    opened: Begun,
    items: Outlet,
}

impl StreamSink {
    pub(super) fn new(
        download: Get,
        consume: impl FnOnce(Begun, Incoming) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self {
            download,
            consume: Arc::new(Mutex::new(Some(Box::new(consume)))),
            opened: Begun::default(),
            items: Outlet::default(),
        }
    }
}

impl StartedOnce for StreamSink {
    fn again(&self) -> Self {
        Self {
            download: self.download.clone(),
            consume: self.consume.clone(),
            opened: Begun::default(),
            items: Outlet::default(),
        }
    }

    fn is_unstarted(&self) -> bool {
        self.consume.lock().is_some()
    }
}

impl Kind for StreamSink {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        at.get(&self.download);
        Ok(())
    }

    fn on_offered(&mut self, offer: &Offer, at: &mut Scope<'_>) -> Result<(), Error> {
        check_batches(offer, false)?;
        self.opened = Begun {
            found: offer.source,
            object: offer.object,
        };
        let consume = self.consume.lock().take();
        if let Some(consume) = consume {
            consume(self.opened, self.items.start(at)).map_err(not_started)?;
        }
        at.accept(in_order());
        Ok(())
    }

    fn size(&self) -> Option<u64> {
        Some(self.opened.found.size)
    }

    fn take(&mut self, chunk: ChunkBuffer, _at: &mut Scope<'_>) -> Result<(), Error> {
        self.items.send(StreamItem::Chunk(chunk));
        Ok(())
    }

    fn on_end(&mut self) -> Result<(), Error> {
        self.items.send(StreamItem::End);
        Ok(())
    }
}

/// Channel to the consumer of a stream, once that is started. The reorder buffer bounds the number
/// of chunks in it.
#[derive(Default)]
pub(super) struct Outlet(Option<mpsc::UnboundedSender<StreamItem>>);

impl Outlet {
    pub(super) fn start(&mut self, at: &Scope<'_>) -> Incoming {
        let (to, items) = mpsc::unbounded_channel();
        self.0 = Some(to);
        Incoming {
            transfer: at.transfer,
            items,
            inputs: at.jobs.inputs(),
        }
    }

    pub(super) fn send(&self, item: StreamItem) {
        // A consumer that has ended has reported why, or its reader is gone, which cancels the
        // transfer.
        if let Some(items) = &self.0 {
            let _ = items.send(item);
        }
    }
}

/// Items of one received stream, and the channel on which their consumer reports.
pub(super) struct Incoming {
    transfer: TransferId,
    pub(super) items: mpsc::UnboundedReceiver<StreamItem>,
    pub(super) inputs: mpsc::Sender<Input>,
}

impl Incoming {
    pub(super) fn consumed(&self) -> Input {
        Input::Said {
            transfer: self.transfer,
            said: Said::Consumed,
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

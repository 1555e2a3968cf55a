//! Objects that a program writes or reads in chunks over bounded channels.

use std::io;

use nicstripe_proto::{
    Acceptance, Offer, SourceIdentity, TransferId,
    message::{Get, Put},
};
use tokio::sync::mpsc;

use super::{
    Scope, Sink, Source, announce_stream,
    reorder::in_order,
    request,
    retransmit::{ChunkSender, RETRANSMIT_CHUNKS, RetransmitBuffer, stream},
};
use crate::{
    file::{ChunkBuffer, IoPool},
    session::{
        input::{Fault, Input},
        io_result::IoResult,
    },
};

/// Capacity of the channel between a session and a reader or writer, in chunks. The session buffers
/// further chunks.
pub(crate) const FEED_CHUNKS: usize = 2;

/// Item that the writer of an object passes to the session.
#[derive(Debug)]
pub(crate) enum Written {
    /// Chunk of the object; only the last one may be shorter than the chunk size.
    Chunk(ChunkBuffer),
    /// End of the data.
    End,
}

/// Item that the session passes to the reader of an object.
#[derive(Debug)]
pub(crate) enum Read {
    /// The daemon has opened the file with this identity. For a range, the size is that of the
    /// range.
    Begun(SourceIdentity),
    Chunk(ChunkBuffer),
}

/// Source of an object: takes chunks from its writer until the writer ends it.
#[derive(Debug)]
pub(crate) struct ObjectSource {
    put: Box<Put>,
    from: Option<mpsc::Receiver<Written>>,
}

impl ObjectSource {
    pub(crate) fn new(from: mpsc::Receiver<Written>, put: Box<Put>) -> Self {
        Self {
            put,
            from: Some(from),
        }
    }
}

impl Source for ObjectSource {
    fn announce(&mut self, at: &mut Scope<'_>) {
        announce_stream(&self.put, at);
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Option<RetransmitBuffer>> {
        let Some(from) = self.from.take() else {
            return Ok(None);
        };
        let (chunks, buffer) = stream(at.transfer, RETRANSMIT_CHUNKS, at.jobs);
        let (pool, fault) = (at.jobs.pool.clone(), Fault::of(&at.jobs.inputs));
        tokio::spawn(async move {
            let _fault = fault;
            send_all(chunks, from, pool).await;
        });
        Ok(Some(buffer))
    }
}

/// Sends the chunks of a writer until the object or the transfer ends.
async fn send_all(mut chunks: ChunkSender, mut from: mpsc::Receiver<Written>, pool: IoPool) {
    // Holds the latest chunk back until the next: a chunk's hash depends on whether it is the only
    // one.
    let mut held = None;
    loop {
        let written = tokio::select! {
            written = from.recv() => written,
            // The writer notices that its channel is closed.
            () = chunks.closed() => return,
        };
        let (chunk, is_end) = match written {
            Some(Written::Chunk(buffer)) => (held.replace(buffer), false),
            Some(Written::End) => (held.take(), true),
            // The writer is gone, which cancels the transfer.
            None => return,
        };
        if let Some(buffer) = chunk {
            let hashed = pool
                .call(move || chunks.hash(buffer, is_end).map(|hashed| (chunks, hashed)))
                .await
                .flatten();
            let Some((back, hashed)) = hashed else { return };
            chunks = back;
            if !chunks.send_hashed(hashed).await {
                return;
            }
        }
        if is_end {
            chunks.end_async().await;
            return;
        }
    }
}

/// Sink of an object: passes chunks to its reader in order.
#[derive(Debug)]
pub(crate) struct ObjectSink {
    get: Box<Get>,
    to: Option<mpsc::Sender<Read>>,
    opened: Option<SourceIdentity>,
    /// Channel to the task that feeds the reader; `None` before the start. The reorder buffer
    /// bounds the number of chunks in it.
    items: Option<mpsc::UnboundedSender<Item>>,
}

#[derive(Debug)]
enum Item {
    Chunk(ChunkBuffer),
    End,
}

impl ObjectSink {
    pub(crate) fn new(to: mpsc::Sender<Read>, get: Box<Get>) -> Self {
        Self {
            get,
            to: Some(to),
            opened: None,
            items: None,
        }
    }

    fn send(&self, item: Item) {
        // Fails if the reader is gone, which cancels the transfer.
        if let Some(items) = &self.items {
            let _ = items.send(item);
        }
    }
}

impl Sink for ObjectSink {
    fn request(&mut self, at: &mut Scope<'_>) {
        request(&self.get, at);
    }

    fn open(&mut self, offer: &Offer, _at: &mut Scope<'_>) -> bool {
        self.opened = Some(offer.source);
        true
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Acceptance> {
        let (items, received) = mpsc::unbounded_channel();
        self.items = Some(items);
        if let (Some(to), Some(opened)) = (self.to.take(), self.opened) {
            let (transfer, inputs) = (at.transfer, at.jobs.inputs.clone());
            tokio::spawn(async move {
                let _ = to.send(Read::Begun(opened)).await;
                give_all(transfer, received, to, inputs).await;
            });
        }
        Ok(in_order())
    }

    fn size(&self) -> Option<u64> {
        Some(self.opened.map_or(0, |opened| opened.size))
    }

    fn take(&mut self, chunk: ChunkBuffer) {
        self.send(Item::Chunk(chunk));
    }

    fn end(&mut self) {
        self.send(Item::End);
    }
}

/// Forwards chunks to a reader until the object or the transfer ends.
async fn give_all(
    transfer: TransferId,
    mut items: mpsc::UnboundedReceiver<Item>,
    to: mpsc::Sender<Read>,
    inputs: mpsc::Sender<Input>,
) {
    while let Some(item) = items.recv().await {
        let input = match item {
            Item::Chunk(buffer) => match to.send(Read::Chunk(buffer)).await {
                Ok(()) => Input::Consumed {
                    transfer,
                    chunks: 1,
                },
                Err(_) => return,
            },
            Item::End => Input::Io(IoResult::Drained {
                transfer,
                result: Ok(()),
            }),
        };
        if inputs.send(input).await.is_err() {
            return;
        }
    }
}

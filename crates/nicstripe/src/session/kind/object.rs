//! Objects that a program writes or reads in chunks over bounded channels.

use nicstripe_proto::{
    SourceIdentity,
    message::{Get, ObjectStat},
};
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::{
    Upload,
    retransmit::ChunkSender,
    stream::{Incoming, StreamItem, StreamSink, StreamSource},
};
use crate::{
    file::{ChunkBuffer, IoPool},
    session::jobs::Fault,
};

/// Capacity of the channel between a session and a reader or writer, in chunks. The session buffers
/// further chunks.
pub(crate) const FEED_CHUNKS: usize = 2;

/// Item that the session passes to the reader of an object.
#[derive(Debug)]
pub(crate) enum Read {
    /// The daemon has opened the file, again after a lost session.
    Begun(Begun),
    Chunk(ChunkBuffer),
}

/// File that the daemon has opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Begun {
    /// Identity of the file. For a range, the size is that of the range; after a lost session, of
    /// what is left.
    pub(crate) found: SourceIdentity,
    /// Metadata of the whole file; `None` if the daemon does not tell them.
    pub(crate) object: Option<ObjectStat>,
}

/// Returns the source of an object, which takes chunks from its writer until the writer ends it.
pub(crate) fn source(from: mpsc::Receiver<StreamItem>, upload: Upload) -> StreamSource {
    StreamSource::new(upload, |chunks, pool| {
        let fault = Fault::of(&chunks.inputs);
        tokio::spawn(async move {
            let _fault = fault;
            send_all(chunks, from, pool).await;
        });
        Ok(())
    })
}

/// Sends the chunks of a writer until the object or the transfer ends.
async fn send_all(mut chunks: ChunkSender, mut from: mpsc::Receiver<StreamItem>, pool: IoPool) {
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
            Some(StreamItem::Chunk(buffer)) => (held.replace(buffer), false),
            Some(StreamItem::End) => (held.take(), true),
            // The writer is gone, which cancels the transfer.
            None => return,
        };
        if let Some(buffer) = chunk {
            let hashed = pool
                .call(move || {
                    let value = chunks.hash(&buffer, is_end)?;
                    Some((chunks, buffer, value))
                })
                .await
                .flatten();
            let Some((back, buffer, value)) = hashed else {
                return;
            };
            chunks = back;
            if !chunks.send_hashed(buffer, value, is_end).await {
                return;
            }
        }
        if is_end {
            chunks.end(Ok(())).await;
            return;
        }
    }
}

/// Returns the sink of an object, which passes chunks to its reader in order and counts their bytes
/// in `given`.
pub(crate) fn sink(
    to: mpsc::Sender<Read>,
    given: OwnedMutexGuard<u64>,
    download: Get,
) -> StreamSink {
    StreamSink::new(download, |opened, incoming| {
        tokio::spawn(async move {
            let _ = to.send(Read::Begun(opened)).await;
            give_all(incoming, to, given).await;
        });
        Ok(())
    })
}

/// Forwards chunks to a reader until the object or the transfer ends.
async fn give_all(mut incoming: Incoming, to: mpsc::Sender<Read>, mut given: OwnedMutexGuard<u64>) {
    while let Some(item) = incoming.items.recv().await {
        let input = match item {
            StreamItem::Chunk(buffer) => {
                let bytes = buffer.bytes().len() as u64;
                if to.send(Read::Chunk(buffer)).await.is_err() {
                    return;
                }
                *given += bytes;
                incoming.consumed()
            }
            StreamItem::End => incoming.drained(Ok(())),
        };
        // Data that the session has received before its end is given all the same.
        let _ = incoming.inputs.send(input).await;
    }
}

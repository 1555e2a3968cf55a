//! Flow of bytes between a transfer's session and the reader or writer of an object, in order and
//! with backpressure.

use std::sync::Arc;

use nicstripe_proto::{SourceIdentity, TransferId};
use tokio::sync::{mpsc, oneshot};

use super::Inner;
use crate::{
    error::Error,
    file::ChunkBuffer,
    session::{ChunkSender, Input, IoResult, Outcome, ReadItem, SessionHandle, Tally},
};

/// Final result of a transfer.
pub(super) type Ending = Result<Result<(Outcome, Tally), Error>, oneshot::error::RecvError>;

/// Items for a reader.
#[derive(Debug)]
pub(super) enum Read {
    /// The daemon has opened this file. For a range, the size is that of the range.
    Begun(SourceIdentity),
    Chunk(ChunkBuffer),
}

/// Items from a writer.
#[derive(Debug)]
pub(super) enum Written {
    /// Full chunk, or a shorter last one.
    Chunk(ChunkBuffer),
    /// End of the data.
    End,
}

/// Chunks buffered between a session and a reader or writer, in addition to the session's own.
pub(super) const FEED_CHUNKS: usize = 2;

/// Flow of a transfer's bytes inside the program.
#[derive(Debug)]
pub(super) enum Feed {
    /// No flow: the session accesses files itself.
    None,
    /// From the session to a reader.
    Reader {
        from: mpsc::UnboundedReceiver<ReadItem>,
        to: mpsc::Sender<Read>,
    },
    /// From a writer to the session, which provides the chunk sender on acceptance.
    Writer {
        from: mpsc::Receiver<Written>,
        chunks: oneshot::Receiver<ChunkSender>,
    },
}

/// Forwards a session's chunks to a reader until the transfer ends.
pub(super) async fn to_reader(
    transfer: TransferId,
    session: &SessionHandle,
    mut from: mpsc::UnboundedReceiver<ReadItem>,
    to: mpsc::Sender<Read>,
    answer: oneshot::Receiver<Result<(Outcome, Tally), Error>>,
) -> Ending {
    while let Some(told) = from.recv().await {
        let input = match told {
            ReadItem::Begun(identity) => {
                let _ = to.send(Read::Begun(identity)).await;
                continue;
            }
            // Fails if the reader is gone, which cancels the transfer.
            ReadItem::Chunk(buffer) => match to.send(Read::Chunk(buffer)).await {
                Ok(()) => Input::Consumed {
                    transfer,
                    chunks: 1,
                },
                Err(_) => break,
            },
            ReadItem::End => Input::Io(IoResult::Drained {
                transfer,
                result: Ok(()),
            }),
        };
        let _ = session.inputs.send(input).await;
    }
    answer.await
}

/// Forwards a writer's chunks to the session until the transfer ends.
pub(super) async fn from_writer(
    inner: &Arc<Inner>,
    mut from: mpsc::Receiver<Written>,
    chunks: oneshot::Receiver<ChunkSender>,
    mut answer: oneshot::Receiver<Result<(Outcome, Tally), Error>>,
) -> Ending {
    let gave = async {
        // The daemon has rejected the transfer.
        let Ok(mut chunks) = chunks.await else { return };
        // Holds the latest chunk back until the next: a chunk's hash depends on whether it is the
        // only one.
        let mut held = None;
        while let Some(told) = from.recv().await {
            let (chunk, is_end) = match told {
                Written::Chunk(buffer) => (held.replace(buffer), false),
                Written::End => (held.take(), true),
            };
            if let Some(buffer) = chunk {
                let hashed = inner
                    .pool
                    .call(move || chunks.hash(buffer, is_end).map(|given| (chunks, given)))
                    .await
                    .flatten();
                let Some((back, given)) = hashed else { return };
                chunks = back;
                if !chunks.send_hashed(given).await {
                    return;
                }
            }
            if is_end {
                chunks.end_async().await;
                return;
            }
        }
    };
    tokio::select! {
        biased;
        result = &mut answer => return result,
        () = gave => {}
    }
    answer.await
}

//! Channels between a transfer's session and the reader or writer of an object, in order and with
//! backpressure.

use std::sync::Arc;

use nicstripe_proto::{SourceIdentity, TransferId};
use tokio::sync::{mpsc, oneshot};

use super::sessions::Inner;
use crate::{
    file::ChunkBuffer,
    report::error::Error,
    session::{ChunkSender, Input, IoResult, Outcome, ReadItem, SessionHandle, Tally},
};

/// Result of a transfer, or an error if the session has ended without one.
pub(super) type Ending = Result<Result<(Outcome, Tally), Error>, oneshot::error::RecvError>;

/// Item that the session passes to the reader of an object.
#[derive(Debug)]
pub(super) enum Read {
    /// The daemon has opened the file with this identity. For a range, the size is that of the
    /// range.
    Begun(SourceIdentity),
    Chunk(ChunkBuffer),
}

/// Item that the writer of an object passes to the session.
#[derive(Debug)]
pub(super) enum Written {
    /// Chunk of the object; only the last one may be shorter than the chunk size.
    Chunk(ChunkBuffer),
    /// End of the data.
    End,
}

/// Capacity of the channel between a session and a reader or writer, in chunks. The session buffers
/// further chunks.
pub(super) const FEED_CHUNKS: usize = 2;

/// Channels that carry the bytes of a transfer between the session and the program.
#[derive(Debug)]
pub(super) enum Feed {
    /// None: the session reads or writes a local file.
    None,
    /// Channels from the session to a reader.
    Reader {
        from: mpsc::UnboundedReceiver<ReadItem>,
        to: mpsc::Sender<Read>,
    },
    /// Channels from a writer to the session, which supplies the chunk sender once the daemon
    /// accepts.
    Writer {
        from: mpsc::Receiver<Written>,
        chunks: oneshot::Receiver<ChunkSender>,
    },
}

/// Forwards chunks from the session to a reader. Returns the result of the transfer.
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

/// Forwards chunks from a writer to the session. Returns the result of the transfer.
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

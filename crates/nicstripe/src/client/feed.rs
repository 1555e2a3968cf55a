//! What goes between a transfer's session and whoever reads or writes an object, in order and no faster than both.

use std::sync::Arc;

use nicstripe_proto::{SourceIdentity, TransferId};
use tokio::sync::{mpsc, oneshot};

use super::Inner;
use crate::{
    error::Error,
    file::ChunkBuffer,
    session::{Giver, Input, Outcome, SessionHandle, Tally, ToRead, WorkDone},
};

/// How a transfer is answered.
pub(super) type Ending = Result<Result<(Outcome, Tally), Error>, oneshot::error::RecvError>;

/// What a reader is handed.
#[derive(Debug)]
pub(super) enum Read {
    /// The file is open at the daemon, and is this: of a part, with the part's size.
    Begun(SourceIdentity),
    Chunk(ChunkBuffer),
}

/// What a writer hands over.
#[derive(Debug)]
pub(super) enum Written {
    /// A whole chunk, unless it is the last.
    Chunk(ChunkBuffer),
    /// All is written.
    End,
}

/// Chunks that wait between a session and a reader or writer, besides those of the session.
pub(super) const FEED_CHUNKS: usize = 2;

/// The way of a transfer's bytes within the program.
#[derive(Debug)]
pub(super) enum Feed {
    /// They need none.
    None,
    /// From the session to a reader.
    Reader { from: mpsc::UnboundedReceiver<ToRead>, to: mpsc::Sender<Read> },
    /// From a writer to the session, which says when it takes them.
    Writer { from: mpsc::Receiver<Written>, giver: oneshot::Receiver<Giver> },
}

/// Hands on what a session has for a reader, until the transfer has ended.
pub(super) async fn to_reader(
    transfer: TransferId,
    session: &SessionHandle,
    mut from: mpsc::UnboundedReceiver<ToRead>,
    to: mpsc::Sender<Read>,
    answer: oneshot::Receiver<Result<(Outcome, Tally), Error>>,
) -> Ending {
    while let Some(told) = from.recv().await {
        let input = match told {
            ToRead::Begun(identity) => {
                let _ = to.send(Read::Begun(identity)).await;
                continue;
            }
            // A reader that is gone has cancelled the transfer.
            ToRead::Chunk(buffer) => match to.send(Read::Chunk(buffer)).await {
                Ok(()) => Input::Taken { transfer, chunks: 1 },
                Err(_) => break,
            },
            ToRead::End => Input::Work(WorkDone::Emptied { transfer, result: Ok(()) }),
        };
        let _ = session.inputs.send(input).await;
    }
    answer.await
}

/// Gives a session what a writer writes, until the transfer has ended.
pub(super) async fn from_writer(
    inner: &Arc<Inner>,
    mut from: mpsc::Receiver<Written>,
    giver: oneshot::Receiver<Giver>,
    mut answer: oneshot::Receiver<Result<(Outcome, Tally), Error>>,
) -> Ending {
    let gave = async {
        // Nobody gives what the daemon does not take.
        let Ok(mut giver) = giver.await else { return };
        // The last one is held back until it is known that it is: whether a chunk is the only one goes into its hash.
        let mut held = None;
        while let Some(told) = from.recv().await {
            let (chunk, is_end) = match told {
                Written::Chunk(buffer) => (held.replace(buffer), false),
                Written::End => (held.take(), true),
            };
            if let Some(buffer) = chunk {
                let hashed = inner.pool.call(move || giver.hash(buffer, is_end).map(|given| (giver, given))).await.flatten();
                let Some((back, given)) = hashed else { return };
                giver = back;
                if !giver.give_hashed(given).await {
                    return;
                }
            }
            if is_end {
                giver.end_of_all().await;
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

//! Channels from the threads of tree transfers to their session.

use nicstripe_proto::{
    Name, TransferId,
    tree::{EntryId, TreeMessage},
};
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    input::{Fault, Input, StandaloneFiles, TreeOutput},
    retransmit::ChunkSender,
};
use crate::{
    file::{ChunkBuffer, FileError},
    report::event::Event,
    tree::{
        EntryOutcome, TreeReport,
        channel::{ReceiverChannel, SenderChannel, TreeChannel, WalkProgress},
    },
};

/// Channel from a tree's thread to its session and to the transfer's owner. `end` is the state of
/// the sender or receiver.
pub(super) struct SessionChannel<T> {
    pub(super) transfer: TransferId,
    pub(super) inputs: mpsc::Sender<Input>,
    /// Owner of the transfer; `None` in a daemon.
    pub(super) owner: Option<TransferOwner>,
    /// Token by which an ending session waits for the thread.
    pub(super) _running: TaskTrackerToken,
    /// Guard that ends the session if the thread panics.
    pub(super) _fault: Fault,
    pub(super) end: T,
}

/// State of a tree's receiver in the channel: none.
pub(super) struct ReceiverEnd;

/// State of a tree's sender in the channel.
pub(super) struct SenderEnd {
    pub(super) chunks: ChunkSender,
    /// Memory that the receiver has for entries, in bytes, if it announced one.
    pub(super) memory: Option<u64>,
}

/// Channels to the owner of a tree transfer.
pub(super) struct TransferOwner {
    pub(super) events: Option<mpsc::Sender<Event>>,
    pub(super) standalone: StandaloneFiles,
}

impl<T> SessionChannel<T> {
    fn say(&self, said: TreeOutput) -> bool {
        self.inputs
            .blocking_send(Input::Tree {
                transfer: self.transfer,
                said,
            })
            .is_ok()
    }
}

impl<T: Send> TreeChannel for SessionChannel<T> {
    fn start_standalone(&mut self, id: EntryId, size: u64) -> bool {
        self.owner
            .as_ref()
            .is_none_or(|owner| owner.standalone.send((id, size)).is_ok())
    }

    /// Sends the result of an entry to the owner. Blocks while the event channel is full, because
    /// the list of entries must be complete.
    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool {
        if let Some(events) = self.owner.as_ref().and_then(|owner| owner.events.as_ref()) {
            // Fails if the owner has stopped listening.
            let _ = events.blocking_send(Event::Entry {
                name: name.clone(),
                outcome,
            });
        }
        true
    }

    fn progress(&mut self, progress: WalkProgress) -> bool {
        self.owner.is_none() || self.say(TreeOutput::Walked(progress))
    }

    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>) {
        self.say(TreeOutput::Finished(result));
    }
}

impl SenderChannel for SessionChannel<SenderEnd> {
    fn receivers_memory(&self) -> Option<u64> {
        self.end.memory
    }

    fn buffer(&self) -> ChunkBuffer {
        self.end.chunks.buffer()
    }

    fn send(&mut self, batch: ChunkBuffer) -> bool {
        self.end.chunks.send(batch, false)
    }

    fn last(&mut self) -> bool {
        self.end.chunks.end(Ok(()))
    }
}

impl ReceiverChannel for SessionChannel<ReceiverEnd> {
    fn send(&mut self, message: TreeMessage) -> bool {
        self.say(TreeOutput::Message(message))
    }

    fn consumed(&mut self) -> bool {
        self.inputs
            .blocking_send(Input::Consumed {
                transfer: self.transfer,
                chunks: 1,
            })
            .is_ok()
    }
}

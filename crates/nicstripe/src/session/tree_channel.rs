//! Channels from tree threads to their session.

use nicstripe_proto::{
    Name, TransferId,
    tree::{EntryId, TreeMessage},
};
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    input::{Input, StandaloneFiles, TreeOutput},
    open_files::Fault,
    retransmit::ChunkSender,
};
use crate::{
    event::Event,
    file::{ChunkBuffer, FileError},
    tree::{
        EntryOutcome, TreeReport,
        channel::{ReceiverChannel, SenderChannel, TreeChannel, WalkProgress},
    },
};

/// Channel of a tree's thread: to its session and the transfer's owner, plus the state of its role
/// (`end`).
pub(super) struct SessionChannel<T> {
    pub(super) transfer: TransferId,
    pub(super) inputs: mpsc::Sender<Input>,
    /// Client only; a daemon's transfers have no local owner.
    pub(super) owner: Option<TransferOwner>,
    /// Held while the thread runs, so that an ending session waits for it.
    pub(super) _running: TaskTrackerToken,
    /// Reports a panic of the thread to the session.
    pub(super) _fault: Fault,
    pub(super) end: T,
}

/// Role of a tree's receiver, which has no state here.
pub(super) struct ReceiverEnd;

/// Role of a tree's sender.
pub(super) struct SenderEnd {
    pub(super) chunks: ChunkSender,
    /// Receiver's memory for entries in bytes, if announced.
    pub(super) memory: Option<u64>,
}

/// Subscriptions of a tree's owner.
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

    /// Blocks while the event channel is full, because the list of entries must be complete.
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

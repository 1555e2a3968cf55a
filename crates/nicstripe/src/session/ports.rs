//! How the threads of trees speak to their session.

use nicstripe_proto::{
    Name, TransferId,
    tree::{EntryId, TreeMessage},
};
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    input::{Alone, Input, TreeSaid},
    live::Giver,
    work::Fault,
};
use crate::{
    event::Event,
    file::{ChunkBuffer, FileError},
    tree::{
        EntryOutcome, TreeReport,
        port::{ReceiverPort, SenderPort, TreePort, WalkProgress},
    },
};

/// A tree's port: the session, whoever owns the transfer, and what only this end of the tree needs.
pub(super) struct Port<T> {
    pub(super) transfer: TransferId,
    pub(super) inputs: mpsc::Sender<Input>,
    /// A client's; a daemon's transfers belong to nobody here.
    pub(super) owner: Option<Owner>,
    /// Held as long as the thread runs: a session that ends waits for it.
    pub(super) _running: TaskTrackerToken,
    /// Tells the session if the thread panics.
    pub(super) _fault: Fault,
    pub(super) end: T,
}

/// The end of a tree's receiver, which needs nothing else.
pub(super) struct Receiving;

/// The end of a tree's sender.
pub(super) struct Giving {
    pub(super) giver: Giver,
    /// Bytes of memory that the receiver has for entries, where it says so.
    pub(super) memory: Option<u64>,
}

/// Who wants to know of a tree.
pub(super) struct Owner {
    pub(super) events: Option<mpsc::Sender<Event>>,
    pub(super) alone: Alone,
}

impl<T> Port<T> {
    fn say(&self, said: TreeSaid) -> bool {
        self.inputs.blocking_send(Input::Tree { transfer: self.transfer, said }).is_ok()
    }
}

impl<T: Send> TreePort for Port<T> {
    fn start_alone(&mut self, id: EntryId, size: u64) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner.alone.send((id, size)).is_ok())
    }

    /// Waits until there is room for the event: a list with gaps would be none.
    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool {
        if let Some(events) = self.owner.as_ref().and_then(|owner| owner.events.as_ref()) {
            // Nobody listens: nobody misses it.
            let _ = events.blocking_send(Event::Entry { name: name.clone(), outcome });
        }
        true
    }

    fn progress(&mut self, progress: WalkProgress) -> bool {
        self.owner.is_none() || self.say(TreeSaid::Walked(progress))
    }

    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>) {
        self.say(TreeSaid::Finished(result));
    }
}

impl SenderPort for Port<Giving> {
    fn receivers_memory(&self) -> Option<u64> {
        self.end.memory
    }

    fn buffer(&self) -> ChunkBuffer {
        self.end.giver.buffer()
    }

    fn send(&mut self, parcel: ChunkBuffer) -> bool {
        self.end.giver.give(parcel, false)
    }

    fn last(&mut self) -> bool {
        self.end.giver.end(Ok(()))
    }
}

impl ReceiverPort for Port<Receiving> {
    fn send(&mut self, message: TreeMessage) -> bool {
        self.say(TreeSaid::Message(message))
    }

    fn consumed(&mut self) -> bool {
        self.inputs.blocking_send(Input::Taken { transfer: self.transfer, chunks: 1 }).is_ok()
    }
}

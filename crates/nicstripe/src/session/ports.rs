//! How the threads of trees speak to their session.

use std::sync::PoisonError;

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
    client::EventSlot,
    event::Event,
    file::{ChunkBuffer, FileError},
    tree::{
        EntryOutcome, TreeReport,
        port::{ReceiverPort, SenderPort, WalkProgress},
    },
};

/// What both ports have: the session, and whoever owns the transfer.
pub(super) struct Line {
    pub(super) transfer: TransferId,
    pub(super) inputs: mpsc::Sender<Input>,
    /// A client's; a daemon's transfers belong to nobody here.
    pub(super) owner: Option<Owner>,
    /// Held as long as the thread runs: a session that ends waits for it.
    pub(super) _running: TaskTrackerToken,
    /// Tells the session if the thread panics.
    pub(super) _fault: Fault,
}

/// Who wants to know of a tree.
pub(super) struct Owner {
    pub(super) events: EventSlot,
    pub(super) alone: Alone,
}

impl Line {
    fn say(&self, said: TreeSaid) -> bool {
        self.inputs.blocking_send(Input::Tree { transfer: self.transfer, said }).is_ok()
    }

    fn start_alone(&self, id: EntryId, size: u64) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner.alone.send((id, size)).is_ok())
    }

    /// Waits until there is room for the event: a list with gaps would be none.
    fn tell(&self, name: &Name, outcome: EntryOutcome) -> bool {
        let events = self.owner.as_ref().and_then(|owner| owner.events.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if let Some(events) = events {
            // Nobody listens: nobody misses it.
            let _ = events.blocking_send(Event::Entry { name: name.clone(), outcome });
        }
        true
    }

    fn progress(&self, progress: WalkProgress) -> bool {
        self.owner.is_none() || self.say(TreeSaid::Walked(progress))
    }
}

/// The port of a tree's sender.
pub(super) struct Sending {
    pub(super) giver: Giver,
    pub(super) line: Line,
}

impl SenderPort for Sending {
    fn buffer(&self) -> ChunkBuffer {
        self.giver.buffer()
    }

    fn send(&mut self, parcel: ChunkBuffer) -> bool {
        self.giver.give(parcel, false)
    }

    fn last(&mut self) -> bool {
        self.giver.end(Ok(()))
    }

    fn start_alone(&mut self, id: EntryId, size: u64) -> bool {
        self.line.start_alone(id, size)
    }

    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool {
        self.line.tell(name, outcome)
    }

    fn progress(&mut self, progress: WalkProgress) -> bool {
        self.line.progress(progress)
    }

    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>) {
        self.line.say(TreeSaid::Finished(result));
    }
}

/// The port of a tree's receiver.
pub(super) struct Receiving {
    pub(super) line: Line,
}

impl ReceiverPort for Receiving {
    fn send(&mut self, message: TreeMessage) -> bool {
        self.line.say(TreeSaid::Message(message))
    }

    fn consumed(&mut self) -> bool {
        let Line { transfer, inputs, .. } = &self.line;
        inputs.blocking_send(Input::Taken { transfer: *transfer, chunks: 1 }).is_ok()
    }

    fn start_alone(&mut self, id: EntryId, size: u64) -> bool {
        self.line.start_alone(id, size)
    }

    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool {
        self.line.tell(name, outcome)
    }

    fn progress(&mut self, progress: WalkProgress) -> bool {
        self.line.progress(progress)
    }

    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>) {
        self.line.say(TreeSaid::Finished(result));
    }
}

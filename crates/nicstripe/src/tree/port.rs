//! Between a tree's threads and the session's loop.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use nicstripe_proto::{
    FailCode, Name, Offer, Subtree,
    message::PutOptions,
    tree::{EntryFailure, EntryId, TreeMessage},
};

use super::{
    EntryOutcome, TreeReport,
    allowance::{Receiving, Sending},
};
use crate::file::{ChunkBuffer, FileError, IoPool, Source, Target};

/// What both ends of a tree need of their session. Calls may wait; once one has returned `false` the transfer has ended.
pub(crate) trait TreePort: Send {
    /// A file that is wanted becomes a transfer of its own. Only a client's port does something: it starts the transfer, or asks for it.
    fn start_alone(&mut self, id: EntryId, size: u64) -> bool;
    /// Tells the owner what became of an entry; a daemon's port ignores it.
    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool;
    /// Tells how far it is: files and bytes that were found so far, and those that need not be sent; a daemon's port ignores it.
    fn progress(&mut self, progress: WalkProgress) -> bool;
    /// The tree is committed: everything has arrived and is durable; or this end cannot go on.
    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>);
}

/// What a tree's sender needs besides.
pub(crate) trait SenderPort: TreePort {
    /// Bytes of memory that the receiver has for entries, where it says so.
    fn receivers_memory(&self) -> Option<u64> {
        None
    }
    /// Returns an empty buffer for a parcel.
    fn buffer(&self) -> ChunkBuffer;
    /// Sends a parcel when there is room.
    fn send(&mut self, parcel: ChunkBuffer) -> bool;
    /// No parcel follows: the receiver is to be told that its input ends. Results may still come; after them, and when everything is durable,
    /// the receiver finishes, and the session says so with [`SenderInput::Committed`].
    fn last(&mut self) -> bool;
}

/// How far a walk is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WalkProgress {
    /// Regular files found.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Bytes of them that need not be sent.
    pub(crate) skipped_bytes: u64,
    /// Regular files that are in place or need not be sent.
    pub(crate) files_done: u64,
    /// Whether everything was found.
    pub(crate) complete: bool,
}

/// What a tree's sender is told.
pub(crate) enum SenderInput {
    /// The receiver says so.
    Message(Queued),
    /// Open this file, which is a transfer of its own, and answer.
    OpenAlone { id: EntryId, answer: Answer<Source> },
    /// That transfer has ended at this end.
    AloneEnded { id: EntryId, result: Result<(), EntryError> },
    /// The receiver has everything in place and durable, and has told all results: what it deleted, and failures, come without being waited for.
    Committed,
    /// A job of the sender's own is done; boxed, as its type is the sender's.
    Job(Box<dyn std::any::Any + Send>),
    /// The transfer has ended.
    Stop,
}

/// What a tree's receiver needs besides.
pub(crate) trait ReceiverPort: TreePort {
    /// Tells the sender something.
    fn send(&mut self, message: TreeMessage) -> bool;
    /// A parcel was taken in: another may come.
    fn consumed(&mut self) -> bool;
}

/// What a tree's receiver is told.
pub(crate) enum ReceiverInput {
    /// The next parcel, in order.
    Parcel(ChunkBuffer),
    /// That was the last.
    End,
    /// Open the target of this file, which is a transfer of its own, and answer.
    OpenAlone { id: EntryId, offer: Box<Offer>, options: PutOptions, answer: Answer<(Target, Vec<Subtree>)> },
    /// That transfer has ended at this end: the file is under its name, or failed.
    AloneEnded { id: EntryId, result: Result<(), EntryError> },
    /// A job of the receiver's own is done; boxed, as its type is the receiver's.
    Job(Box<dyn std::any::Any + Send>),
    /// The transfer has ended.
    Stop,
}

/// Bytes that messages of a peer take that its tree's thread has not taken in.
///
/// The thread may wait for room in the session while its peer goes on to tell: what it tells of entries is bounded by the entries that wait,
/// what it deletes is not.
#[derive(Debug, Clone)]
pub(crate) struct Backlog {
    bytes: Arc<AtomicUsize>,
    most: usize,
    /// Whether somebody at this end wants to know the names of what was deleted.
    names: bool,
}

/// A message that waits for its tree's thread.
pub(crate) struct Queued {
    message: TreeMessage,
    /// Things that were deleted, without their names.
    deleted: u64,
    weight: usize,
    backlog: Backlog,
}

impl Backlog {
    /// Takes up to `most` bytes of messages, with the names of what was deleted or without.
    pub(crate) fn new(most: usize, names: bool) -> Self {
        Self { bytes: Arc::default(), most, names }
    }

    /// Takes a message in; `None` where too much waits.
    pub(crate) fn queue(&self, mut message: TreeMessage) -> Option<Queued> {
        let unnamed = match &mut message {
            TreeMessage::Results { deleted, .. } if !self.names => std::mem::take(deleted).len() as u64,
            _ => 0,
        };
        let weight = weight_of(&message);
        let before = self.bytes.fetch_add(weight, Ordering::Relaxed);
        let queued = Queued { message, deleted: unnamed, weight, backlog: self.clone() };
        if before + weight > self.most {
            queued.take();
            return None;
        }
        Some(queued)
    }
}

impl Queued {
    /// Takes the message out, and how many things were deleted besides those that it names.
    pub(crate) fn take(self) -> (TreeMessage, u64) {
        self.backlog.bytes.fetch_sub(self.weight, Ordering::Relaxed);
        (self.message, self.deleted)
    }
}

/// Bytes of memory that a message takes, about.
fn weight_of(message: &TreeMessage) -> usize {
    let parts = match message {
        TreeMessage::Verdicts { verdicts, .. } => verdicts.len(),
        TreeMessage::Results { done, failed, deleted, .. } => {
            let failed: usize = failed.iter().map(|failure| size_of::<EntryFailure>() + failure.text.len()).sum();
            let name = |name: &Name| size_of::<Name>() + name.components().map(|part| size_of::<Vec<u8>>() + part.len()).sum::<usize>();
            size_of_val(&done[..]) + failed + deleted.iter().map(name).sum::<usize>()
        }
    };
    size_of::<SenderInput>() + parts
}

/// Where the answer to a question goes.
pub(crate) type Answer<T> = Box<dyn FnOnce(Result<T, FileError>) + Send>;

/// Why an entry failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryError {
    pub(crate) code: FailCode,
    /// In one line for people, escaped.
    pub(crate) text: String,
}

/// A tree's sender that waits for its session: what its thread runs.
pub(crate) struct SenderRun {
    pub(crate) allowance: Sending,
    run: Run<SenderInput, dyn SenderPort>,
}

/// A tree's receiver that waits for its session.
pub(crate) struct ReceiverRun {
    pub(crate) allowance: Receiving,
    run: Run<ReceiverInput, dyn ReceiverPort>,
}

type Run<I, P> = Box<dyn FnOnce(Inputs<I>, IoPool, Box<P>) + Send>;

/// Both ends of the channel that a tree's thread is told by: its jobs tell it as well.
pub(crate) struct Inputs<T> {
    pub(crate) sender: mpsc::Sender<T>,
    pub(crate) receiver: mpsc::Receiver<T>,
}

impl<T> Inputs<T> {
    fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver }
    }
}

impl SenderRun {
    pub(crate) fn new(allowance: Sending, run: impl FnOnce(Inputs<SenderInput>, IoPool, Box<dyn SenderPort>) + Send + 'static) -> Self {
        Self { allowance, run: Box::new(run) }
    }

    /// Starts the thread.
    pub(crate) fn start(self, pool: IoPool, port: Box<dyn SenderPort>) -> io::Result<mpsc::Sender<SenderInput>> {
        let inputs = Inputs::new();
        let sender = inputs.sender.clone();
        thread::Builder::new().name("nicstripe-send".into()).spawn(move || (self.run)(inputs, pool, port))?;
        Ok(sender)
    }
}

impl ReceiverRun {
    pub(crate) fn new(
        allowance: Receiving,
        run: impl FnOnce(Inputs<ReceiverInput>, IoPool, Box<dyn ReceiverPort>) + Send + 'static,
    ) -> Self {
        Self { allowance, run: Box::new(run) }
    }

    /// Starts the thread.
    pub(crate) fn start(self, pool: IoPool, port: Box<dyn ReceiverPort>) -> io::Result<mpsc::Sender<ReceiverInput>> {
        let inputs = Inputs::new();
        let sender = inputs.sender.clone();
        thread::Builder::new().name("nicstripe-receive".into()).spawn(move || (self.run)(inputs, pool, port))?;
        Ok(sender)
    }
}

impl fmt::Debug for SenderRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SenderRun")
    }
}

impl fmt::Debug for ReceiverRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiverRun")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_tells_without_end_is_refused_and_what_is_taken_in_makes_room() {
        let backlog = Backlog::new(64 << 20, true);
        let deleted = vec![Name::parse(b"dir/file").unwrap(); 256];
        let message = TreeMessage::Results { done: vec![], failed: vec![], deleted, stripped: None };
        let mut queued: Vec<Queued> = std::iter::from_fn(|| backlog.queue(message.clone())).take(1 << 20).collect();
        assert!((1000..10_000).contains(&queued.len()), "{} messages", queued.len());
        assert!(backlog.queue(message.clone()).is_none());
        queued.pop().unwrap().take();
        assert!(backlog.queue(message.clone()).is_some());

        // A daemon counts them only.
        let nameless = Backlog::new(64 << 20, false);
        let (taken, deleted) = nameless.queue(message).unwrap().take();
        assert!(deleted == 256 && matches!(taken, TreeMessage::Results { deleted, .. } if deleted.is_empty()));
    }

    #[test]
    fn empty_messages_count_as_well() {
        let backlog = Backlog::new(64 << 20, true);
        let message = || TreeMessage::Results { done: vec![], failed: vec![], deleted: vec![], stripped: None };
        assert!(std::iter::from_fn(|| backlog.queue(message())).take(4 << 20).count() < 4 << 20);
    }
}

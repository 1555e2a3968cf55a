//! Between a tree's threads and the session's loop.

use std::{fmt, io, sync::mpsc, thread};

use nicstripe_proto::{
    FailCode, Name, Offer, Subtree,
    message::PutOptions,
    tree::{EntryId, TreeMessage},
};

use super::{EntryOutcome, TreeReport};
use crate::file::{ChunkBuffer, FileError, IoPool, Source, Target};

/// What a tree's sender needs of its session. Calls may wait; once one has returned `false` the transfer has ended.
pub(crate) trait SenderPort: Send {
    /// Returns an empty buffer for a parcel.
    fn buffer(&self) -> ChunkBuffer;
    /// Sends a parcel when there is room.
    fn send(&mut self, parcel: ChunkBuffer) -> bool;
    /// No parcel follows: the receiver is to be told that its input ends. Results may still come; after them, and when everything is durable,
    /// the receiver finishes, and the session says so with [`SenderInput::Committed`].
    fn last(&mut self) -> bool;
    /// A file that is wanted becomes a transfer of its own. Only a client's port does something: it starts the transfer.
    fn start_alone(&mut self, id: EntryId, size: u64) -> bool;
    /// Tells the owner what became of an entry; a daemon's port ignores it.
    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool;
    /// Tells what is known so far of the walk: files and bytes that were found, and those that need not be sent.
    fn progress(&mut self, progress: WalkProgress) -> bool;
    /// The receiver has committed the tree, or this end cannot go on.
    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>);
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
    Message(TreeMessage),
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

/// What a tree's receiver needs of its session. Calls may wait; once one has returned `false` the transfer has ended.
pub(crate) trait ReceiverPort: Send {
    /// Tells the sender something.
    fn send(&mut self, message: TreeMessage) -> bool;
    /// A parcel was taken in: another may come.
    fn consumed(&mut self) -> bool;
    /// A file that is wanted becomes a transfer of its own. Only a client's port does something: it asks for it.
    fn start_alone(&mut self, id: EntryId, size: u64) -> bool;
    /// Tells the owner what became of an entry; a daemon's port ignores it.
    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool;
    /// Tells how far it is; a daemon's port ignores it.
    fn progress(&mut self, progress: WalkProgress) -> bool;
    /// Everything has arrived and is durable, or it cannot go on.
    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>);
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
pub(crate) struct SenderRun(Run<SenderInput, dyn SenderPort>);

/// A tree's receiver that waits for its session.
pub(crate) struct ReceiverRun(Run<ReceiverInput, dyn ReceiverPort>);

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
    pub(crate) fn new(run: impl FnOnce(Inputs<SenderInput>, IoPool, Box<dyn SenderPort>) + Send + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Starts the thread.
    pub(crate) fn start(self, pool: IoPool, port: Box<dyn SenderPort>) -> io::Result<mpsc::Sender<SenderInput>> {
        let inputs = Inputs::new();
        let sender = inputs.sender.clone();
        thread::Builder::new().name("nicstripe-send".into()).spawn(move || (self.0)(inputs, pool, port))?;
        Ok(sender)
    }
}

impl ReceiverRun {
    pub(crate) fn new(run: impl FnOnce(Inputs<ReceiverInput>, IoPool, Box<dyn ReceiverPort>) + Send + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Starts the thread.
    pub(crate) fn start(self, pool: IoPool, port: Box<dyn ReceiverPort>) -> io::Result<mpsc::Sender<ReceiverInput>> {
        let inputs = Inputs::new();
        let sender = inputs.sender.clone();
        thread::Builder::new().name("nicstripe-receive".into()).spawn(move || (self.0)(inputs, pool, port))?;
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

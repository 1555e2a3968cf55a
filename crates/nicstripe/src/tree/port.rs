//! Between a tree's threads and the session's loop.

use nicstripe_proto::{
    FailCode, Name, Offer, Subtree,
    message::PutOptions,
    tree::{EntryId, TreeMessage},
};

use super::{EntryOutcome, TreeReport};
use crate::file::{ChunkBuffer, FileError, Source, Target};

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

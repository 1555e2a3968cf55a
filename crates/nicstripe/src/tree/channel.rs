//! Channels between the threads of a tree copy and the session's loop.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use nicstripe_proto::{
    Digest, Name, Offer, Subtree,
    message::PutOptions,
    tree::{EntryFailure, EntryId, Reason, TreeMessage},
};

use super::{
    allowance::{Receiving, Sending},
    options::{EntryOutcome, TreeReport},
    receiver::completion::Completion,
};
use crate::file::{ChunkBuffer, FileError, IoPool, Source, Target};

/// Calls from the thread of a tree copy to its session. They may block. Those that return false do
/// so once the transfer has ended.
pub(crate) trait TreeChannel: Send {
    /// Starts the transfer of a standalone file, or requests it from the peer. A daemon's channel
    /// ignores this call.
    fn start_standalone(&mut self, id: EntryId, size: u64) -> bool;
    /// Reports the outcome of an entry to the local user; a daemon's channel ignores it.
    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool;
    /// Reports the progress of the walk to the local user; a daemon's channel ignores it.
    fn progress(&mut self, progress: WalkProgress) -> bool;
    /// Ends the tree copy. The result is a report if all entries are received and durable, or the
    /// error of this machine's sender or receiver.
    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>);
}

/// Calls from the sender of a tree to its session.
pub(crate) trait SenderChannel: TreeChannel {
    /// Returns the memory limit for entries that the receiver announced, in bytes; `None` without
    /// one.
    fn receivers_memory(&self) -> Option<u64> {
        None
    }
    fn buffer(&self) -> ChunkBuffer;
    /// Sends a batch of records; blocks while the retransmit buffer is full.
    fn send(&mut self, batch: ChunkBuffer) -> bool;
    /// Announces that no batch follows, so that the session closes the receiver's input.
    ///
    /// Results may still arrive. The receiver finishes after the last result, when all files are
    /// durable; the session then sends [`SenderInput::Committed`].
    fn last(&mut self) -> bool;
}

/// Minimum time between two progress reports to the session.
pub(super) const PROGRESS_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WalkProgress {
    /// Number of regular files found so far.
    pub(crate) files: u64,
    /// Total size in bytes of the regular files found so far.
    pub(crate) bytes: u64,
    /// Total size in bytes of the files that need not be sent.
    pub(crate) skipped_bytes: u64,
    /// Number of regular files that are complete at the receiver or need not be sent.
    pub(crate) files_done: u64,
    /// True once the walk of the sources has ended.
    pub(crate) complete: bool,
}

/// Event that the sender thread of a tree processes.
pub(crate) enum SenderInput {
    /// Message from the receiver of the tree, counted towards its backlog.
    Message(Queued),
    /// Request to open this standalone file and to answer with the source.
    OpenStandalone {
        id: EntryId,
        answer: OnOpened<Source>,
    },
    /// Notice that the transfer of this standalone file has ended locally.
    StandaloneEnded {
        id: EntryId,
        result: Result<(), Reason>,
    },
    /// Notice that the receiver has all files in place and durable, and has sent all results.
    /// Deletions and failures may still arrive.
    Committed,
    /// Result of a job of the sender on the I/O threads.
    Job(Done),
    /// Request to stop the thread, because the transfer has ended.
    Stop,
}

/// File of `size` bytes, as the walk found it, that was read.
pub(crate) struct ReadFile {
    pub(super) id: EntryId,
    pub(super) size: u64,
    pub(super) content: Result<Vec<u8>, FileError>,
}

/// Result of a read job.
pub(crate) enum Done {
    Content(ReadFile),
    Digest { id: EntryId, digest: Option<Digest> },
}

/// Calls from the receiver of a tree to its session.
pub(crate) trait ReceiverChannel: TreeChannel {
    fn send(&mut self, message: TreeMessage) -> bool;
    /// Reports that a batch was consumed, so that the sender may send another.
    fn consumed(&mut self) -> bool;
}

/// Event that the receiver thread of a tree processes.
pub(crate) enum ReceiverInput {
    /// Next batch of records, in the order sent.
    Batch(ChunkBuffer),
    /// End of the records: no batch follows.
    End,
    /// Request to open the target of this standalone file and to answer with it.
    OpenStandalone {
        id: EntryId,
        offer: Box<Offer>,
        options: PutOptions,
        answer: OnOpened<(Target, Vec<Subtree>)>,
    },
    /// Notice that the transfer of this standalone file has ended locally: the file is committed,
    /// or has failed.
    StandaloneEnded {
        id: EntryId,
        result: Result<(), Reason>,
    },
    /// Result of a job of the receiver on the I/O threads.
    Job(Completion),
    /// Request to stop the thread, because the transfer has ended.
    Stop,
}

/// Limit on the memory of a peer's messages that the tree's thread has not processed yet.
///
/// The thread may block on the session while its peer keeps sending messages. Pending entries bound
/// the messages about entries, but nothing bounds those about deletions.
#[derive(Debug, Clone)]
pub(crate) struct Backlog {
    bytes: Arc<AtomicUsize>,
    most: usize,
    /// True if the local user needs the names of deleted files.
    names: bool,
}

pub(crate) struct Queued {
    message: TreeMessage,
    /// Number of deletions in the message whose names were dropped.
    deleted: u64,
    weight: usize,
    backlog: Backlog,
}

impl Backlog {
    /// Creates a backlog of up to `most` bytes. `names` is false if the names of deleted files can
    /// be dropped.
    pub(crate) fn new(most: usize, names: bool) -> Self {
        Self {
            bytes: Arc::default(),
            most,
            names,
        }
    }

    /// Adds a message to the backlog; returns `None` if the backlog is full.
    pub(crate) fn queue(&self, mut message: TreeMessage) -> Option<Queued> {
        let unnamed = match &mut message {
            TreeMessage::Results { deleted, .. } if !self.names => {
                std::mem::take(deleted).len() as u64
            }
            _ => 0,
        };
        let weight = weight_of(&message);
        let before = self.bytes.fetch_add(weight, Ordering::Relaxed);
        let queued = Queued {
            message,
            deleted: unnamed,
            weight,
            backlog: self.clone(),
        };
        if before + weight > self.most {
            queued.take();
            return None;
        }
        Some(queued)
    }
}

impl Queued {
    /// Removes the message from the backlog. Returns it with the number of deletions whose names
    /// were dropped.
    pub(crate) fn take(self) -> (TreeMessage, u64) {
        self.backlog.bytes.fetch_sub(self.weight, Ordering::Relaxed);
        (self.message, self.deleted)
    }
}

/// Returns the approximate size of a message in memory, in bytes.
fn weight_of(message: &TreeMessage) -> usize {
    let parts = match message {
        TreeMessage::Verdicts { verdicts, .. } => verdicts.len(),
        TreeMessage::Results {
            done,
            failed,
            deleted,
            ..
        } => {
            let failed: usize = failed
                .iter()
                .map(|failure| size_of::<EntryFailure>() + failure.text.len())
                .sum();
            let name = |name: &Name| {
                size_of::<Name>()
                    + name
                        .components()
                        .map(|part| size_of::<Vec<u8>>() + part.len())
                        .sum::<usize>()
            };
            size_of_val(&done[..]) + failed + deleted.iter().map(name).sum::<usize>()
        }
    };
    size_of::<SenderInput>() + parts
}

pub(crate) type OnOpened<T> = Box<dyn FnOnce(Result<T, FileError>) + Send>;

/// Sender or receiver of a tree, ready to run on its thread. `A` is its allowance, `I` its input,
/// and `C` its channel to the session.
pub(crate) struct TreeRun<A, I, C: ?Sized> {
    pub(crate) allowance: A,
    thread: &'static str,
    run: Run<I, C>,
}

pub(crate) type SenderRun = TreeRun<Sending, SenderInput, dyn SenderChannel>;
pub(crate) type ReceiverRun = TreeRun<Receiving, ReceiverInput, dyn ReceiverChannel>;

/// Function of a tree's thread. Takes both halves of its input channel, because jobs on the I/O
/// threads send to it, too.
type Run<I, C> = Box<dyn FnOnce(mpsc::Receiver<I>, mpsc::Sender<I>, IoPool, Box<C>) + Send>;

impl<A, I: Send + 'static, C: TreeChannel + ?Sized + 'static> TreeRun<A, I, C> {
    /// Prepares `run` for a thread of the name `thread`, which drops `held` when the tree has ended.
    pub(super) fn new(
        allowance: A,
        thread: &'static str,
        held: impl Send + 'static,
        run: impl FnOnce(mpsc::Receiver<I>, mpsc::Sender<I>, IoPool, Box<C>) + Send + 'static,
    ) -> Self {
        Self {
            allowance,
            thread,
            run: Box::new(move |inputs, handle, pool, channel| {
                run(inputs, handle, pool, channel);
                drop(held);
            }),
        }
    }

    pub(crate) fn start(self, pool: IoPool, channel: Box<C>) -> io::Result<mpsc::Sender<I>> {
        let (sender, receiver) = mpsc::channel();
        let self_handle = sender.clone();
        thread::Builder::new()
            .name(self.thread.into())
            .spawn(move || (self.run)(receiver, self_handle, pool, channel))?;
        Ok(sender)
    }
}

impl<A, I, C: ?Sized> fmt::Debug for TreeRun<A, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_tells_without_end_is_refused_and_what_is_taken_in_makes_room() {
        let backlog = Backlog::new(64 << 20, true);
        let deleted = vec![Name::parse(b"dir/file").unwrap(); 256];
        let message = TreeMessage::Results {
            done: vec![],
            failed: vec![],
            deleted,
            stripped: None,
        };
        let mut queued: Vec<Queued> = std::iter::from_fn(|| backlog.queue(message.clone()))
            .take(1 << 20)
            .collect();
        assert!(
            (1000..10_000).contains(&queued.len()),
            "{} messages",
            queued.len()
        );
        assert!(backlog.queue(message.clone()).is_none());
        queued.pop().unwrap().take();
        assert!(backlog.queue(message.clone()).is_some());

        // A daemon only counts them.
        let nameless = Backlog::new(64 << 20, false);
        let (taken, deleted) = nameless.queue(message).unwrap().take();
        assert!(
            deleted == 256
                && matches!(taken, TreeMessage::Results { deleted, .. } if deleted.is_empty())
        );
    }

    #[test]
    fn empty_messages_count_as_well() {
        let backlog = Backlog::new(64 << 20, true);
        let message = || TreeMessage::Results {
            done: vec![],
            failed: vec![],
            deleted: vec![],
            stripped: None,
        };
        assert!(
            std::iter::from_fn(|| backlog.queue(message()))
                .take(4 << 20)
                .count()
                < 4 << 20
        );
    }
}

//! Trees as source and sink: batches of records between the threads of sender and receiver, and the
//! threads' channels to the session.

use std::{collections::BTreeMap, io, sync::mpsc as threads};

use nicstripe_proto::{
    Acceptance, FailCode, Name, TransferId,
    message::{EntryRef, GetTree, OfferKind, PutTree},
    tree::{EntryId, Reason, TreeMessage},
};
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    Scope, Sink, Source, offer_batches,
    retransmit::{ChunkSender, RetransmitBuffer, stream},
};
use crate::{
    file::{ChunkBuffer, FileError},
    report::event::Event,
    session::input::{Fault, Input, TreeOutput},
    tree::{
        EntryOutcome, TreeReport,
        channel::{
            Backlog, ReceiverChannel, ReceiverInput, ReceiverRun, SenderChannel, SenderInput,
            SenderRun, TreeChannel, WalkProgress,
        },
    },
};

/// Channel on which a tree announces its standalone files: entry and size in bytes.
pub(crate) type StandaloneFiles = mpsc::UnboundedSender<(EntryId, u64)>;

/// Source of a tree: files and directories that this machine sends.
#[derive(Debug)]
pub(crate) struct TreeSource {
    run: Option<SenderRun>,
    /// Request to store the tree; `None` in a daemon, whose peer has requested it.
    put: Option<Box<PutTree>>,
    /// Channel for the standalone files to a client's owner.
    standalone: Option<StandaloneFiles>,
}

impl TreeSource {
    /// Creates the source of trees that the peer has requested.
    pub(crate) fn requested(run: SenderRun) -> Self {
        Self {
            run: Some(run),
            put: None,
            standalone: None,
        }
    }

    /// Creates the source of a tree that the peer is asked to store.
    pub(crate) fn stored(run: SenderRun, put: Box<PutTree>, standalone: StandaloneFiles) -> Self {
        Self {
            run: Some(run),
            put: Some(put),
            standalone: Some(standalone),
        }
    }
}

impl Source for TreeSource {
    fn announce(&mut self, at: &mut Scope<'_>) {
        let transfer = at.transfer;
        match self.put.take() {
            Some(put) => at.session.put_tree(PutTree { transfer, ..*put }),
            None => offer_batches(at),
        }
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Option<RetransmitBuffer>> {
        let Some(run) = self.run.take() else {
            return Ok(None);
        };
        let (chunks, buffer) = stream(at.transfer, run.allowance.given, at.jobs);
        let standalone = self.standalone.take();
        // Only a client's owner requests the names of entries.
        let backlog = Backlog::new(run.allowance.messages, standalone.is_some());
        let end = SenderEnd {
            chunks,
            memory: at.memory,
        };
        let channel = SessionChannel::new(standalone, end, at);
        let inputs = run.start(at.jobs.pool.clone(), Box::new(channel))?;
        at.trees
            .0
            .insert(at.transfer, TreeThread::Sender(inputs, backlog));
        Ok(Some(buffer))
    }
}

/// Sink of a tree: files and directories that this machine receives.
#[derive(Debug)]
pub(crate) struct TreeSink {
    run: Option<ReceiverRun>,
    /// Request to send the trees; `None` in a daemon, whose peer sends without a request.
    get: Option<Box<GetTree>>,
    standalone: Option<StandaloneFiles>,
    batches: Option<threads::Sender<ReceiverInput>>,
}

impl TreeSink {
    /// Creates the sink of a tree that the peer sends without a request.
    pub(crate) fn announced(run: ReceiverRun) -> Self {
        Self {
            run: Some(run),
            get: None,
            standalone: None,
            batches: None,
        }
    }

    /// Creates the sink of trees that the peer is asked to send.
    pub(crate) fn fetched(
        run: ReceiverRun,
        get: Box<GetTree>,
        standalone: StandaloneFiles,
    ) -> Self {
        Self {
            get: Some(get),
            standalone: Some(standalone),
            ..Self::announced(run)
        }
    }

    fn send(&self, input: ReceiverInput) {
        // A thread that has ended has reported why.
        if let Some(batches) = &self.batches {
            let _ = batches.send(input);
        }
    }
}

impl Sink for TreeSink {
    fn request(&mut self, at: &mut Scope<'_>) {
        let transfer = at.transfer;
        if let Some(get) = self.get.take() {
            at.session.get_tree(GetTree { transfer, ..*get });
        }
    }

    fn takes(&self, kind: Option<OfferKind>) -> bool {
        kind == Some(OfferKind::Batches)
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Acceptance> {
        let Some(run) = self.run.take() else {
            return Ok(Acceptance::default());
        };
        let allowance = run.allowance;
        let channel = SessionChannel::new(self.standalone.take(), ReceiverEnd, at);
        let batches = run.start(at.jobs.pool.clone(), Box::new(channel))?;
        at.trees
            .0
            .insert(at.transfer, TreeThread::Receiver(batches.clone()));
        self.batches = Some(batches);
        Ok(Acceptance {
            room: Some(allowance.reordered),
            memory: allowance.announced,
            ..Acceptance::default()
        })
    }

    fn take(&mut self, chunk: ChunkBuffer) {
        self.send(ReceiverInput::Batch(chunk));
    }

    fn end(&mut self) {
        self.send(ReceiverInput::End);
    }
}

/// Running threads of a session's trees.
#[derive(Debug, Default)]
pub(crate) struct Trees(BTreeMap<TransferId, TreeThread>);

#[derive(Debug)]
enum TreeThread {
    Sender(threads::Sender<SenderInput>, Backlog),
    Receiver(threads::Sender<ReceiverInput>),
}

impl Trees {
    /// Returns the channel to the local sender of a tree.
    pub(crate) fn sender(&self, tree: TransferId) -> Option<threads::Sender<SenderInput>> {
        match self.0.get(&tree)? {
            TreeThread::Sender(sender, _) => Some(sender.clone()),
            TreeThread::Receiver(_) => None,
        }
    }

    /// Returns the channel to the local receiver of a tree.
    pub(crate) fn receiver(&self, tree: TransferId) -> Option<threads::Sender<ReceiverInput>> {
        match self.0.get(&tree)? {
            TreeThread::Receiver(receiver) => Some(receiver.clone()),
            TreeThread::Sender(..) => None,
        }
    }

    /// Passes a message from the receiver of a tree to the local sender.
    ///
    /// # Errors
    ///
    /// The peer sends more messages than allowed.
    pub(crate) fn on_message(
        &self,
        tree: TransferId,
        message: TreeMessage,
    ) -> Result<(), FileError> {
        if let Some(TreeThread::Sender(sender, backlog)) = self.0.get(&tree) {
            // A thread that has ended has reported why.
            let _ = sender.send(SenderInput::Message(
                backlog.queue(message).ok_or_else(flooded)?,
            ));
        }
        Ok(())
    }

    /// Tells the local sender of a tree that the receiver has everything. Returns false if the
    /// transfer has no such sender.
    pub(crate) fn on_committed(&self, tree: TransferId) -> bool {
        let sender = self.sender(tree);
        // A thread that has ended has reported why.
        sender.is_some_and(|sender| {
            let _ = sender.send(SenderInput::Committed);
            true
        })
    }

    /// Reports the end of a standalone file to the thread of its tree, if that has not ended.
    pub(crate) fn standalone_ended(&self, entry: EntryRef, result: Result<(), Reason>) {
        let id = entry.id;
        match self.0.get(&entry.tree) {
            Some(TreeThread::Sender(sender, _)) => {
                drop(sender.send(SenderInput::StandaloneEnded { id, result }));
            }
            Some(TreeThread::Receiver(receiver)) => {
                drop(receiver.send(ReceiverInput::StandaloneEnded { id, result }));
            }
            None => {}
        }
    }

    /// Stops the thread of a tree if the ended transfer is one. Returns true if it is.
    pub(crate) fn stop(&mut self, transfer: TransferId) -> bool {
        self.0.remove(&transfer).is_some()
    }

    pub(crate) fn stop_all(&mut self) {
        self.0.clear();
    }
}

impl Drop for TreeThread {
    fn drop(&mut self) {
        match self {
            Self::Sender(sender, _) => drop(sender.send(SenderInput::Stop)),
            Self::Receiver(receiver) => drop(receiver.send(ReceiverInput::Stop)),
        }
    }
}

fn flooded() -> FileError {
    let cause = io::Error::other("peer sent more messages than the limit");
    FileError::new("send", "the tree", cause).with_code(FailCode::Protocol)
}

pub(crate) fn no_tree() -> FileError {
    let cause = io::Error::other("its tree is not in progress");
    FileError::new("copy", "an entry", cause).with_code(FailCode::Protocol)
}

/// Channel from a tree's thread to its session and to the transfer's owner. `end` is the state of
/// the sender or receiver.
struct SessionChannel<T> {
    transfer: TransferId,
    inputs: mpsc::Sender<Input>,
    /// Channels to the owner of the transfer; `None` in a daemon.
    events: Option<mpsc::Sender<Event>>,
    standalone: Option<StandaloneFiles>,
    /// Token by which an ending session waits for the thread.
    _running: TaskTrackerToken,
    /// Guard that ends the session if the thread panics.
    _fault: Fault,
    end: T,
}

/// Receiver's state in a [`SessionChannel`]; empty.
struct ReceiverEnd;

/// Sender's state in a [`SessionChannel`].
struct SenderEnd {
    chunks: ChunkSender,
    /// Memory that the receiver has for entries, in bytes, if it announced one.
    memory: Option<u64>,
}

impl<T> SessionChannel<T> {
    fn new(standalone: Option<StandaloneFiles>, end: T, at: &Scope<'_>) -> Self {
        Self {
            transfer: at.transfer,
            inputs: at.jobs.inputs.clone(),
            events: at.events.clone(),
            standalone,
            _running: at.jobs.threads.token(),
            _fault: Fault::of(&at.jobs.inputs),
            end,
        }
    }

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
        self.standalone
            .as_ref()
            .is_none_or(|standalone| standalone.send((id, size)).is_ok())
    }

    /// Sends the result of an entry to the owner. Blocks while the event channel is full, because
    /// the list of entries must be complete.
    fn tell(&mut self, name: &Name, outcome: EntryOutcome) -> bool {
        if let Some(events) = &self.events {
            // Fails if the owner has stopped listening.
            let _ = events.blocking_send(Event::Entry {
                name: name.clone(),
                outcome,
            });
        }
        true
    }

    fn progress(&mut self, progress: WalkProgress) -> bool {
        self.standalone.is_none() || self.say(TreeOutput::Walked(progress))
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
        self.end.chunks.end_blocking(Ok(()))
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

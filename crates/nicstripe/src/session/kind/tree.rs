//! Trees: batches of records between the threads of sender and receiver, and the threads' channels
//! to the session.

use std::sync::mpsc as threads;

use nicstripe_proto::{
    Acceptance, Name, Offer, TransferId,
    message::{GetTree, PutTree},
    tree::{EntryId, Reason, TreeMessage},
};
use tokio::sync::mpsc;

use super::{Kind, Scope, check_batches, not_started, retransmit::ChunkSender};
use crate::{
    file::{ChunkBuffer, FileError},
    report::{error::Error, event::Event, metrics::TransferDirection},
    session::{
        inbox::{Input, Said},
        jobs::Fault,
    },
    tree::{
        EntryOutcome, TreeReport,
        channel::{
            Backlog, ReceiverChannel, ReceiverInput, ReceiverRun, SenderChannel, SenderInput,
            SenderRun, TreeChannel, WalkProgress,
        },
    },
    wire::tasks::TaskToken,
};

/// Channel on which a tree announces its standalone files: entry and size in bytes.
pub(crate) type StandaloneFiles = mpsc::UnboundedSender<(EntryId, u64)>;

/// Source of a tree: files and directories that this machine sends.
#[derive(Debug)]
pub(crate) struct TreeSource {
    run: Option<SenderRun>,
    /// Where the peer is asked to store the tree; `None` in a daemon, whose peer has requested it.
    upload: Option<PutTree>,
    /// Channel for the standalone files to a client's owner.
    standalone: Option<StandaloneFiles>,
    thread: Option<TreeThread>,
    backlog: Backlog,
}

impl TreeSource {
    /// Creates the source of a tree that the peer is asked to store, or has requested (`None`).
    pub(crate) fn new(run: SenderRun, asked: Option<(PutTree, StandaloneFiles)>) -> Self {
        let (upload, standalone) = asked.unzip();
        Self {
            // Only a client's owner requests the names of entries.
            backlog: Backlog::new(run.allowance.messages, standalone.is_some()),
            run: Some(run),
            upload,
            standalone,
            thread: None,
        }
    }
}

impl Kind for TreeSource {
    fn direction(&self) -> TransferDirection {
        TransferDirection::Send
    }

    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        match self.upload.take() {
            Some(upload) => at.session.put_tree(PutTree {
                transfer: at.transfer,
                ..upload
            }),
            None => at.offer_batches(),
        }
        Ok(())
    }

    fn on_accepted(&mut self, memory: Option<u64>, at: &mut Scope<'_>) -> Result<(), Error> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        let chunks = at.stream(run.allowance.given);
        let end = SenderEnd { chunks, memory };
        let channel = SessionChannel::new(self.standalone.take(), end, at);
        let inputs = run
            .start(at.jobs.pool.clone(), Box::new(channel))
            .map_err(not_started)?;
        self.thread = Some(TreeThread::Sender(inputs));
        Ok(())
    }

    /// Passes a message to the thread. Fails if the peer sends more than allowed.
    fn hear(&mut self, message: TreeMessage) -> Result<(), Error> {
        if let Some(TreeThread::Sender(sender)) = &self.thread {
            let message = self.backlog.queue(message).ok_or_else(flooded)?;
            // A thread that has ended has reported why.
            let _ = sender.send(SenderInput::Message(message));
        }
        Ok(())
    }

    /// The thread ends the transfer after the messages before.
    fn on_committed(&mut self) -> bool {
        if let Some(TreeThread::Sender(sender)) = &self.thread {
            let _ = sender.send(SenderInput::Committed);
        }
        self.thread.is_some()
    }

    fn tree(&self) -> Option<&TreeThread> {
        self.thread.as_ref()
    }
}

/// Sink of a tree: files and directories that this machine receives.
#[derive(Debug)]
pub(crate) struct TreeSink {
    run: Option<ReceiverRun>,
    /// Trees to request; `None` in a daemon, whose peer sends without a request.
    download: Option<GetTree>,
    standalone: Option<StandaloneFiles>,
    thread: Option<TreeThread>,
}

impl TreeSink {
    /// Creates the sink of trees that the peer is asked to send, or sends without a request (`None`).
    pub(crate) fn new(run: ReceiverRun, asked: Option<(GetTree, StandaloneFiles)>) -> Self {
        let (download, standalone) = asked.unzip();
        Self {
            run: Some(run),
            download,
            standalone,
            thread: None,
        }
    }

    fn start(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        let allowance = run.allowance;
        let channel = SessionChannel::new(self.standalone.take(), ReceiverEnd, at);
        let batches = run
            .start(at.jobs.pool.clone(), Box::new(channel))
            .map_err(not_started)?;
        self.thread = Some(TreeThread::Receiver(batches));
        at.accept(Acceptance {
            room: Some(allowance.reordered),
            memory: allowance.announced,
            ..Acceptance::default()
        });
        Ok(())
    }

    fn send(&self, input: ReceiverInput) {
        // A thread that has ended has reported why.
        if let Some(TreeThread::Receiver(batches)) = &self.thread {
            let _ = batches.send(input);
        }
    }
}

impl Kind for TreeSink {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        let Some(download) = self.download.take() else {
            return self.start(at);
        };
        at.session.get_tree(GetTree {
            transfer: at.transfer,
            ..download
        });
        Ok(())
    }

    fn on_offered(&mut self, offer: &Offer, at: &mut Scope<'_>) -> Result<(), Error> {
        check_batches(offer, true)?;
        self.start(at)
    }

    fn take(&mut self, chunk: ChunkBuffer, _at: &mut Scope<'_>) -> Result<(), Error> {
        self.send(ReceiverInput::Batch(chunk));
        Ok(())
    }

    fn on_end(&mut self) -> Result<(), Error> {
        self.send(ReceiverInput::End);
        Ok(())
    }

    fn tree(&self) -> Option<&TreeThread> {
        self.thread.as_ref()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum TreeThread {
    Sender(threads::Sender<SenderInput>),
    Receiver(threads::Sender<ReceiverInput>),
}

impl TreeThread {
    pub(in crate::session) fn standalone_ended(&self, id: EntryId, result: Result<(), Reason>) {
        match self {
            Self::Sender(to) => drop(to.send(SenderInput::StandaloneEnded { id, result })),
            Self::Receiver(to) => drop(to.send(ReceiverInput::StandaloneEnded { id, result })),
        }
    }

    fn stop(&self) {
        match self {
            Self::Sender(sender) => drop(sender.send(SenderInput::Stop)),
            Self::Receiver(receiver) => drop(receiver.send(ReceiverInput::Stop)),
        }
    }
}

impl Drop for TreeSource {
    fn drop(&mut self) {
        self.thread.iter().for_each(TreeThread::stop);
    }
}

impl Drop for TreeSink {
    fn drop(&mut self) {
        self.thread.iter().for_each(TreeThread::stop);
    }
}

fn flooded() -> FileError {
    let why = "peer sent more messages than the limit";
    FileError::violated("send", "the tree", why)
}

pub(crate) fn no_tree() -> FileError {
    FileError::violated("copy", "an entry", "its tree is not in progress")
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
    _running: TaskToken,
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
            inputs: at.jobs.inputs(),
            events: at.events.cloned(),
            standalone,
            _running: at.jobs.threads.token(),
            _fault: at.jobs.fault(),
            end,
        }
    }

    fn say(&self, said: Said) -> bool {
        let transfer = self.transfer;
        let input = Input::Said { transfer, said };
        self.inputs.blocking_send(input).is_ok()
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
        self.standalone.is_none() || self.say(Said::Walked(progress))
    }

    fn finish(self: Box<Self>, result: Result<TreeReport, FileError>) {
        self.say(Said::Finished(result));
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
        self.say(Said::Message(message))
    }

    fn consumed(&mut self) -> bool {
        self.say(Said::Consumed)
    }
}

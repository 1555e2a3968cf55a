//! Inputs of a session's event loop, and its news for the path planner.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use nicstripe_proto::{
    PathId, PathLoss, TransferId,
    message::{
        AnswerKind, Ask, AskKind, BenchBody, CloseCode, EntryRef, Expected, Get, GetTree,
        OpenTunnels, PeerInterface, Put, PutOptions, PutTree,
    },
    tree::{EntryId, TreeMessage},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    driver::{AskReply, BenchCommand},
    open_files::{IoResult, LocalTarget},
    path_connection::{Established, PathPlan},
    reorder::ReadItem,
    retransmit::{ChunkSender, Produced},
    waiters::Waiter,
};
use crate::{
    error::Error,
    file::{FileError, Source},
    stream::StreamEvent,
    tree::{
        TreeReport,
        channel::{ReceiverRun, SenderRun, WalkProgress},
    },
    tunnel::TunnelMux,
};

#[derive(Debug)]
pub(crate) enum Input {
    /// A path has connected.
    Connected {
        path: PathId,
        plan: Option<PathPlan>,
        established: Box<Established>,
    },
    /// A connection attempt failed.
    NotConnected {
        path: PathId,
        loss: PathLoss,
        error: Box<Error>,
    },
    /// Events of a connection.
    Stream {
        path: PathId,
        generation: u64,
        events: Vec<StreamEvent>,
    },
    /// Result of an I/O job.
    Io(IoResult),
    /// Item of a streamed source.
    Produced {
        transfer: TransferId,
        produced: Produced,
    },
    /// A sink has consumed chunks.
    Consumed { transfer: TransferId, chunks: u64 },
    /// Message of a tree's thread.
    Tree {
        transfer: TransferId,
        said: TreeOutput,
    },
    /// Daemon: a tree put or requested by the peer is admitted or rejected.
    TreeReady {
        transfer: TransferId,
        result: Result<TreeRun, FileError>,
    },
    /// A tree's sender has opened a standalone file, or failed to.
    StandaloneOpened {
        transfer: TransferId,
        options: PutOptions,
        result: Result<Source, FileError>,
    },
    /// Daemon: answer to a name request. `ends_changes` marks the last change of a batch.
    Done {
        ask: Ask,
        answer: AnswerKind,
        ends_changes: bool,
    },
    /// Command of the session's owner.
    Command(Command),
    /// An interface lost or regained its carrier.
    Carrier { interface: String, up: bool },
}

#[derive(Debug)]
pub(crate) enum Command {
    /// Client: add paths and connect them.
    AddPaths(Vec<(PathId, PathPlan)>),
    /// Client: put a file, pipe or tree.
    Put {
        transfer: TransferId,
        from: PutFrom,
        waiter: Waiter,
    },
    /// Client: get a file, pipe or tree.
    Get {
        transfer: TransferId,
        into: GetInto,
        waiter: Waiter,
    },
    /// Client: send a name request.
    Ask { ask: AskKind, reply: AskReply },
    /// Client: request tunnels.
    OpenMux {
        asked: OpenTunnels,
        mux: Arc<TunnelMux>,
    },
    /// Client: cancel a transfer in a way that allows a resume.
    Cancel(TransferId),
    /// Close the session and send the peer the reason.
    Close(CloseCode),
    /// Daemon: end the session if it has no connection.
    Evict,
    /// Client: retire a path permanently.
    Retire(PathId),
    /// Client: retire a path because its interface has vanished.
    Gone(PathId),
    /// Client: announce the coming connections to the daemon.
    Expect(Vec<Expected>),
    /// Client: end the session with an error because no permitted link works.
    GiveUp(Box<Error>),
    /// Client: benchmark command.
    Bench(BenchCommand),
    /// Daemon: send a benchmark answer to the client.
    AnswerBench(BenchBody),
    /// Daemon: send the client the current local interfaces.
    SendInterfaces(Vec<PeerInterface>),
    /// Panic in the loop, for a test.
    #[cfg(test)]
    Panic,
}

/// Source of a client's put.
pub(crate) enum PutFrom {
    /// Local file.
    File { source: Arc<Source>, put: Box<Put> },
    /// Reader, read until its end.
    Pipe {
        reader: Box<dyn io::Read + Send>,
        put: Box<Put>,
    },
    /// Chunk sender, handed out through the channel when the daemon accepts.
    Writer {
        chunks: oneshot::Sender<ChunkSender>,
        put: Box<Put>,
    },
    /// Tree. Standalone files are announced on `alone`.
    Tree {
        run: SenderRun,
        put: Box<PutTree>,
        standalone: StandaloneFiles,
    },
    /// Entry of a tree that is being sent.
    Entry {
        entry: EntryRef,
        options: PutOptions,
    },
}

/// Sink of a client's get.
pub(crate) enum GetInto {
    /// Local file.
    File { get: Box<Get>, target: LocalTarget },
    /// Writer that receives the bytes in order.
    Pipe {
        get: Box<Get>,
        writer: Box<dyn io::Write + Send>,
    },
    /// Channel that receives chunks in order; its reader reports each as consumed.
    Reader {
        get: Box<Get>,
        reader: mpsc::UnboundedSender<ReadItem>,
    },
    /// Tree. Standalone files are announced on `alone`.
    Tree {
        run: ReceiverRun,
        get: Box<GetTree>,
        standalone: StandaloneFiles,
    },
    /// Entry of a tree that is being received.
    Entry {
        entry: EntryRef,
        options: PutOptions,
        allow_changing: bool,
    },
}

impl PutFrom {
    pub(super) fn tree(&self) -> Option<TransferId> {
        match self {
            Self::Entry { entry, .. } => Some(entry.tree),
            _ => None,
        }
    }
}

impl GetInto {
    pub(super) fn tree(&self) -> Option<TransferId> {
        match self {
            Self::Entry { entry, .. } => Some(entry.tree),
            _ => None,
        }
    }
}

/// Tree that a daemon is ready to send or receive.
#[derive(Debug)]
pub(crate) enum TreeRun {
    Sender(SenderRun),
    Receiver(ReceiverRun),
}

/// Channel on which a tree announces its standalone files, with their sizes.
pub(crate) type StandaloneFiles = mpsc::UnboundedSender<(EntryId, u64)>;

/// Messages of a tree's thread to its session.
#[derive(Debug)]
pub(crate) enum TreeOutput {
    /// Message for the sender, at the peer.
    Message(TreeMessage),
    /// Progress of the walk.
    Walked(WalkProgress),
    /// Result, after which the thread ends.
    Finished(Result<TreeReport, FileError>),
}

impl fmt::Debug for PutFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File { .. } => "PutFrom::File",
            Self::Pipe { .. } => "PutFrom::Pipe",
            Self::Writer { .. } => "PutFrom::Writer",
            Self::Tree { .. } => "PutFrom::Tree",
            Self::Entry { .. } => "PutFrom::Entry",
        })
    }
}

impl fmt::Debug for GetInto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File { .. } => "GetInto::File",
            Self::Pipe { .. } => "GetInto::Pipe",
            Self::Reader { .. } => "GetInto::Reader",
            Self::Tree { .. } => "GetInto::Tree",
            Self::Entry { .. } => "GetInto::Entry",
        })
    }
}

/// Path events of a client, for the planner.
#[derive(Debug)]
pub(crate) enum LinkNews {
    /// A path has connected. `verified` is true if it reached the intended interface, `None` if
    /// unknown.
    Opened {
        path: PathId,
        verified: Option<bool>,
        path_mtu: Option<u32>,
    },
    /// A connection attempt failed, or a connection was lost.
    Lost { path: PathId, why: String },
    /// A path was ended because it reached another interface of the peer, or another machine if
    /// `arrived` is `None`.
    Astray {
        path: PathId,
        arrived: Option<String>,
        why: String,
    },
    /// The peer's interfaces have changed.
    PeerInterfaces(Vec<PeerInterface>),
}

/// Connection state of a session, shared with other tasks.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// True if any path is connected.
    pub(crate) is_connected: AtomicBool,
    arriving: AtomicUsize,
}

/// Token for a connection on its way to its session. The peer may already use it and have closed
/// all others in its favour.
#[derive(Debug)]
pub(crate) struct Arriving(Arc<Presence>);

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) presence: Arc<Presence>,
    /// Cancelled when the session has ended and released its files.
    pub(crate) ended: CancellationToken,
}

impl SessionHandle {
    pub(crate) async fn command(&self, command: Command) -> bool {
        self.inputs.send(Input::Command(command)).await.is_ok()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inputs.same_channel(&other.inputs)
    }

    /// Returns true if the session has no connection and none is about to arrive.
    pub(crate) fn is_idle(&self) -> bool {
        !self.presence.is_connected.load(Ordering::Acquire) && !self.is_awaiting()
    }

    /// Returns true if a connection is about to arrive.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.presence.arriving.load(Ordering::Acquire) > 0
    }

    /// Announces a connection. Drop the token when the session has it.
    pub(crate) fn await_connection(&self) -> Arriving {
        self.presence.arriving.fetch_add(1, Ordering::AcqRel);
        Arriving(self.presence.clone())
    }

    /// Asks the session to end if it has no connection. A session with a full queue is taken to
    /// have one.
    pub(crate) fn evict(&self) {
        let _ = self.inputs.try_send(Input::Command(Command::Evict));
    }
}

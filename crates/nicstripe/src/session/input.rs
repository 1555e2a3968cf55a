//! What goes into a session's loop, and what comes out of it for whoever plans its paths.

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
        AnswerKind, Ask, AskKind, BenchBody, CloseCode, EntryRef, Expected, Get, GetTree, PeerInterface, Put, PutOptions, PutTree,
        Trunk as AskedTrunk,
    },
    tree::{EntryId, TreeMessage},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    driver::{AskReply, BenchCommand},
    kept::ToRead,
    live::{Given, Giver},
    slot::{Established, PathPlan},
    waiters::Waiter,
    work::{LocalTarget, WorkDone},
};
use crate::{
    error::Error,
    file::{FileError, Source},
    stream::StreamEvent,
    tree::{
        TreeReport,
        port::{ReceiverRun, SenderRun, WalkProgress},
    },
    tunnel::Trunk,
};

/// What the loop is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// A path has a connection.
    Connected { path: PathId, plan: Option<PathPlan>, established: Box<Established> },
    /// A path could not be connected.
    NotConnected { path: PathId, loss: PathLoss, error: Box<Error> },
    /// A connection has something to tell.
    Stream { path: PathId, generation: u64, events: Vec<StreamEvent> },
    /// The I/O threads have done something.
    Work(WorkDone),
    /// A source that is no file gives something.
    Given { transfer: TransferId, given: Given },
    /// Chunks that were kept in memory were taken.
    Taken { transfer: TransferId, chunks: u64 },
    /// The thread of a tree says something.
    Tree { transfer: TransferId, said: TreeSaid },
    /// A daemon can receive the tree that its peer puts, or may not.
    TreeReady { transfer: TransferId, result: Result<TreeRun, FileError> },
    /// A tree's sender has opened a file for a transfer of its own, or could not.
    AloneOpened { transfer: TransferId, options: PutOptions, result: Result<Source, FileError> },
    /// What the peer asked is done, or could not be; it may be the last of the changes under way.
    Done { ask: Ask, answer: AnswerKind, ends_changes: bool },
    /// The session's owner wants something.
    Command(Command),
    /// An interface has lost or got its carrier.
    Carrier { interface: String, up: bool },
}

/// What a session's owner may want.
#[derive(Debug)]
pub(crate) enum Command {
    /// Client: add these paths and connect them.
    AddPaths(Vec<(PathId, PathPlan)>),
    /// Client: tell the daemon to take something.
    Put { transfer: TransferId, from: PutFrom, waiter: Waiter },
    /// Client: ask the daemon for something.
    Get { transfer: TransferId, into: GetInto, waiter: Waiter },
    /// Client: ask the daemon something about names.
    Ask { ask: AskKind, reply: AskReply },
    /// Client: ask the daemon for tunnels.
    OpenTrunk { asked: AskedTrunk, trunk: Arc<Trunk> },
    /// Client: interrupt a transfer, so that another attempt goes on with what was written.
    Cancel(TransferId),
    /// End, telling the peer why.
    Close(CloseCode),
    /// Daemon: end if there is no connection.
    GiveWay,
    /// Client: end a path for good.
    Retire(PathId),
    /// Client: the same, because its interface is not there any more.
    Gone(PathId),
    /// Client: tell the daemon which connections will come.
    Expect(Vec<Expected>),
    /// Client: end because of this; no link that may be used works.
    GiveUp(Box<Error>),
    /// Client: something of a bench.
    Bench(BenchCommand),
    /// Daemon: tell the client this of its bench.
    AnswerBench(BenchBody),
    /// Daemon: tell the client that these are our interfaces now.
    TellInterfaces(Vec<PeerInterface>),
    /// A fault of the loop's.
    #[cfg(test)]
    Panic,
}

/// Where what a client puts comes from.
pub(crate) enum PutFrom {
    /// A file.
    File { source: Arc<Source>, put: Box<Put> },
    /// Whatever this gives, until its end.
    Pipe { reader: Box<dyn io::Read + Send>, put: Box<Put> },
    /// What is given, by whom this is sent to when the daemon takes it.
    Writer { giver: oneshot::Sender<Giver>, put: Box<Put> },
    /// A tree; what becomes a transfer of its own is told.
    Tree { run: SenderRun, put: Box<PutTree>, alone: Alone },
    /// An entry of a tree that is being sent.
    Entry { entry: EntryRef, options: PutOptions },
}

/// Where what a client gets goes.
pub(crate) enum GetInto {
    /// A file.
    File { get: Box<Get>, target: LocalTarget },
    /// This, in order.
    Pipe { get: Box<Get>, writer: Box<dyn io::Write + Send> },
    /// Whoever takes it, in order, and says so.
    Reader { get: Box<Get>, reader: mpsc::UnboundedSender<ToRead> },
    /// A tree; what becomes a transfer of its own is told.
    Tree { run: ReceiverRun, get: Box<GetTree>, alone: Alone },
    /// An entry of a tree that is being received.
    Entry { entry: EntryRef, options: PutOptions, allow_changing: bool },
}

impl PutFrom {
    /// The tree that it belongs to.
    pub(super) fn tree(&self) -> Option<TransferId> {
        match self {
            Self::Entry { entry, .. } => Some(entry.tree),
            _ => None,
        }
    }
}

impl GetInto {
    /// The tree that it belongs to.
    pub(super) fn tree(&self) -> Option<TransferId> {
        match self {
            Self::Entry { entry, .. } => Some(entry.tree),
            _ => None,
        }
    }
}

/// A tree that a daemon is ready for.
#[derive(Debug)]
pub(crate) enum TreeRun {
    Sender(SenderRun),
    Receiver(ReceiverRun),
}

/// Where the entries of a tree are told that become transfers of their own, with their sizes.
pub(crate) type Alone = mpsc::UnboundedSender<(EntryId, u64)>;

/// What the thread of a tree says.
#[derive(Debug)]
pub(crate) enum TreeSaid {
    /// To the sender, at the peer.
    Message(TreeMessage),
    /// How far it is.
    Walked(WalkProgress),
    /// It has done all it can.
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

/// What happens to a client's paths, for whoever plans them.
#[derive(Debug)]
pub(crate) enum LinkNews {
    /// A path has a connection, which arrived where it was aimed at if that could be told.
    Opened { path: PathId, verified: Option<bool>, path_mtu: Option<u32> },
    /// A path could not be connected, or lost its connection.
    Lost { path: PathId, why: String },
    /// A path's packets arrived at another interface of the peer than they were aimed at, or, without one, at another machine; it is ended.
    Astray { path: PathId, arrived: Option<String>, why: String },
    /// The peer's interfaces have changed.
    PeerInterfaces(Vec<PeerInterface>),
}

/// Whether a session's peer is there.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Whether some path has a connection.
    pub(crate) is_connected: AtomicBool,
    arriving: AtomicUsize,
}

/// A connection that its session does not have yet. The peer may have it already, and have closed all others for it.
#[derive(Debug)]
pub(crate) struct Arriving(Arc<Presence>);

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The way to a running session.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) presence: Arc<Presence>,
    /// Cancelled when the session has ended and let go of its files.
    pub(crate) ended: CancellationToken,
}

impl SessionHandle {
    pub(crate) async fn command(&self, command: Command) -> bool {
        self.inputs.send(Input::Command(command)).await.is_ok()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inputs.same_channel(&other.inputs)
    }

    /// Whether it has no connection, and is not about to get one.
    pub(crate) fn is_idle(&self) -> bool {
        !self.presence.is_connected.load(Ordering::Acquire) && !self.is_awaiting()
    }

    /// Whether it is about to get a connection.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.presence.arriving.load(Ordering::Acquire) > 0
    }

    /// Announces a connection, which has arrived when the token is dropped.
    pub(crate) fn await_connection(&self) -> Arriving {
        self.presence.arriving.fetch_add(1, Ordering::AcqRel);
        Arriving(self.presence.clone())
    }

    /// Asks it to end if it has no connection any more. One that is too busy to be asked has one.
    pub(crate) fn give_way(&self) {
        let _ = self.inputs.try_send(Input::Command(Command::GiveWay));
    }
}

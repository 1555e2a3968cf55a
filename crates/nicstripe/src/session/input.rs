//! What goes into a session's loop, and what comes out of it for whoever plans its paths.

use std::sync::{Arc, atomic::AtomicBool};

use nicstripe_proto::{
    PathId, PathLoss,
    message::{CloseCode, Expected, Get, PeerInterface, Put},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    slot::{Established, PathPlan},
    tally::Tally,
    work::{LocalTarget, Outcome, WorkDone},
};
use crate::{error::Error, file::Source, stream::StreamEvent};

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
    /// Client: tell the daemon to take a file.
    Put { source: Arc<Source>, put: Box<Put>, reply: Reply },
    /// Client: ask the daemon for a file.
    Get { get: Box<Get>, target: LocalTarget, reply: Reply },
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
    /// Daemon: tell the client that these are our interfaces now.
    TellInterfaces(Vec<PeerInterface>),
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

pub(crate) type Reply = oneshot::Sender<Result<(Outcome, Tally), Error>>;

/// The way to a running session.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    pub(crate) inputs: mpsc::Sender<Input>,
    /// Whether some path has a connection.
    pub(crate) connected: Arc<AtomicBool>,
    /// Cancelled when the session has ended and let go of its files.
    pub(crate) ended: CancellationToken,
}

impl SessionHandle {
    pub(crate) async fn command(&self, command: Command) -> bool {
        self.inputs.send(Input::Command(command)).await.is_ok()
    }
}

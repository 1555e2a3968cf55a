//! Inputs of a session's event loop: from connections, from owners, and from its jobs. Also its
//! events for the path planner.

use nicstripe_proto::{
    ChainingValue, ChunkId, DataHeader, Digest, PathId, PathLoss, Subtree, TransferId,
    message::{AnswerKind, Ask, AskKind, CloseCode, Expected, PeerInterface},
    pairing::Obstacle,
    tree::TreeMessage,
};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{
    kind::{Kind, Opened, retransmit::Produced},
    path_connection::{Established, PathPlan},
    waiters::Starter,
};
use crate::{
    file::{Arrived, ChunkBuffer, FileError, WriteError},
    report::error::Error,
    tree::{TreeReport, channel::WalkProgress},
    wire::stream::{EventSink, StreamEvent},
};

#[derive(Debug)]
pub(crate) enum Input {
    /// A path has connected and authenticated.
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
    /// A connection has received frames or chunks, or has ended.
    Stream {
        path: PathId,
        generation: u64,
        events: Vec<StreamEvent>,
    },
    /// An I/O job has finished.
    Io(IoResult),
    /// A thread or task of a transfer has said something.
    Said { transfer: TransferId, said: Said },
    /// Daemon: the answer to a name request is ready. `ends_changes` is true for the last of the
    /// changes that one I/O job makes in sequence.
    Done {
        ask: Ask,
        answer: AnswerKind,
        ends_changes: bool,
    },
    /// The owner of the session has given a command.
    Command(Command),
    /// An interface lost or regained its carrier.
    Carrier { interface: String, up: bool },
}

#[derive(Debug)]
pub(crate) enum Command {
    /// Client: add paths to the session and connect them.
    AddPaths(Vec<(PathId, PathPlan)>),
    /// Client: start a transfer.
    Start {
        transfer: TransferId,
        kind: Box<dyn Kind>,
        starter: Starter,
    },
    /// Client: send a name request, such as list or remove.
    Ask { ask: AskKind, reply: AskReply },
    /// Client: cancel a transfer; it can be resumed later.
    Cancel(TransferId),
    /// Close the session and send the reason to the peer.
    Close(CloseCode),
    /// Daemon: end the session if it has no connection.
    EndIfIdle,
    /// Client: close a path and do not reconnect it.
    Retire(PathId),
    /// Client: close a path whose interface has vanished, and do not reconnect it.
    Gone(PathId),
    /// Client: announce connections to the daemon before they are attempted.
    Expect(Vec<Expected>),
    /// Client: end the session with this error, because no permitted link works.
    GiveUp(Box<Error>),
    /// Client: command of a benchmark to this session. Daemon: benchmark message to the client.
    Bench(BenchInput),
    /// Daemon: send the client the current local interfaces.
    SendInterfaces(Vec<PeerInterface>),
    /// Test only: call a function with the protocol's state, in the event loop.
    #[cfg(test)]
    Inspect(Box<dyn Inspect>),
}

/// Function that looks at the protocol's state.
#[cfg(test)]
pub(crate) trait Inspect: FnOnce(&nicstripe_proto::Session) + Send {}

#[cfg(test)]
impl<F: FnOnce(&nicstripe_proto::Session) + Send> Inspect for F {}

#[cfg(test)]
impl std::fmt::Debug for dyn Inspect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inspect")
    }
}

/// Sender of the answer to a name request.
pub(crate) type AskReply = oneshot::Sender<Result<AnswerKind, Error>>;

/// What a thread or task of a transfer says to its session.
#[derive(Debug)]
pub(crate) enum Said {
    /// Its end is open, or cannot be opened.
    Opened(Result<Opened, FileError>),
    /// A streamed source, such as a pipe, has produced a chunk, ended or failed.
    Produced(Produced),
    /// It has consumed one chunk of the reorder buffer.
    Consumed,
    /// Message of a tree's receiver to the sender at the peer.
    Message(TreeMessage),
    /// Progress of the directory walk.
    Walked(WalkProgress),
    /// Result of a tree; the last message of its thread.
    Finished(Result<TreeReport, FileError>),
}

/// Result of a job on an I/O thread.
#[derive(Debug)]
pub(crate) enum IoResult {
    Read {
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        result: Result<(ChainingValue, ChunkBuffer), FileError>,
    },
    Hashed {
        transfer: TransferId,
        chunk: ChunkId,
        result: Result<ChainingValue, FileError>,
    },
    ZerosHashed {
        transfer: TransferId,
        result: Result<Subtree, FileError>,
    },
    Compared {
        transfer: TransferId,
        chunk: ChunkId,
        result: Result<Option<ChainingValue>, FileError>,
    },
    Written {
        path: PathId,
        header: DataHeader,
        result: Result<(), WriteError>,
    },
    Verified {
        arrived: Arrived,
        result: Result<(), WriteError>,
    },
    Step {
        transfer: TransferId,
        step: Step,
        result: Result<(), FileError>,
    },
    /// A failed transfer's written data is synced, as far as possible.
    Flushed {
        transfer: TransferId,
        error: Box<Error>,
    },
}

/// Step of a transfer that succeeds or fails without a value.
#[derive(Debug)]
pub(crate) enum Step {
    HolesMade,
    /// A sink has consumed all data, or failed.
    Drained,
    Synced,
    /// The source has not changed since it was opened.
    Checked,
    Committed(Digest),
}

/// Input from a benchmark to its session.
#[derive(Debug)]
pub(crate) enum BenchInput {
    /// Client: command of the running benchmark.
    Command(nicstripe_bench::BenchCommand),
    /// Daemon: send this message to the client.
    Message(nicstripe_proto::message::BenchBody),
}

/// Event of a path that a client's session reports to the path planner.
#[derive(Debug)]
pub(crate) enum LinkNews {
    /// A path has connected. `verified` is true if it reached the intended interface of the peer,
    /// `None` if unknown.
    Opened {
        path: PathId,
        verified: Option<bool>,
        path_mtu: Option<u32>,
    },
    /// A connection attempt failed, or a connection was lost.
    Lost {
        path: PathId,
        why: String,
        obstacle: Obstacle,
    },
    /// A path was closed because it reached another interface of the peer (`arrived`), or another
    /// machine if `arrived` is `None`.
    Astray {
        path: PathId,
        arrived: Option<String>,
        why: String,
    },
    /// The peer's interfaces have changed.
    PeerInterfaces(Vec<PeerInterface>),
}

/// Sends an input from an I/O job. Blocks while the session's input queue is full. Returns false if
/// the session has ended.
pub(super) fn report(inputs: &mpsc::Sender<Input>, input: Input) -> bool {
    match inputs.try_send(input) {
        Err(TrySendError::Full(input)) => inputs.blocking_send(input).is_ok(),
        sent => sent.is_ok(),
    }
}

/// Event sink of one connection. Sends the events to the session with the path and the connection's
/// sequence number.
pub(super) struct PathSink {
    pub(super) path: PathId,
    pub(super) generation: u64,
    pub(super) inputs: mpsc::Sender<Input>,
}

impl EventSink for PathSink {
    async fn deliver(&mut self, events: Vec<StreamEvent>) -> bool {
        self.inputs
            .send(Input::Stream {
                path: self.path,
                generation: self.generation,
                events,
            })
            .await
            .is_ok()
    }
}

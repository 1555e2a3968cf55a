//! Inputs of a session's event loop: from connections, from owners, and from its jobs.

use std::{collections::BTreeSet, sync::Arc};

use nicstripe_proto::{
    ChainingValue, ChunkId, DataHeader, Digest, PathId, Subtree, TransferId,
    message::{AnswerKind, Ask, AskKind, CloseCode, Expected, PeerInterface},
    pairing::{CandidateId, Obstacle, Pairing},
    path::PathPlan,
    session::{LinkTerms, LinksView, Routed},
    tree::TreeMessage,
};
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{
    kind::{Kind, Opened, retransmit::Produced},
    path_connection::Established,
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
    /// A connection attempt of a path has ended.
    Connected {
        path: PathId,
        made: Box<Result<Established, Error>>,
    },
    /// A connection has arrived and is authenticated: any of a daemon's.
    Arrived {
        path: PathId,
        plan: Box<PathPlan>,
        established: Box<Established>,
    },
    /// Client: a probe was answered, or this stood against it.
    Probed {
        candidate: CandidateId,
        answer: Result<(), Obstacle>,
    },
    /// Client: the host routes of paths are installed, or a mandatory one cannot be.
    Routed {
        paths: Vec<PathId>,
        result: Result<Vec<(PathId, Routed)>, Error>,
    },
    /// Client: connections to announce to the daemon, some with the tokens that prove an address.
    Expected(Vec<Expected>),
    /// Client: the interfaces of this machine, and the names of all.
    Interfaces {
        interfaces: Vec<PeerInterface>,
        names: BTreeSet<String>,
    },
    /// Client: an interface lost or regained its carrier.
    Carrier {
        interface: String,
        up: bool,
    },
    /// A thread or task of the session has panicked.
    Fault,
    /// A connection has received frames or chunks, or has ended.
    Stream {
        path: PathId,
        generation: u64,
        events: Vec<StreamEvent>,
        /// Place of the connection in the queue, until the events are handled.
        place: OwnedSemaphorePermit,
    },
    /// An I/O job has finished.
    Io(IoResult),
    /// A thread or task of a transfer has said something.
    Said {
        transfer: TransferId,
        said: Said,
    },
    /// Daemon: the answer to a name request is ready. `ends_changes` is true for the last of the
    /// changes that one I/O job makes in sequence.
    Done {
        ask: Ask,
        answer: AnswerKind,
        ends_changes: bool,
    },
    Command(Command),
}

#[derive(Debug)]
pub(crate) enum Command {
    /// Client: begin with the first connection, and plan the links.
    Begin(Box<Begin>),
    /// Client: tell what is known of the links.
    Survey(oneshot::Sender<LinksView>),
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
    /// Client: command of a benchmark to this session. Daemon: benchmark message to the client.
    #[cfg(feature = "bench")]
    Bench(BenchInput),
    /// Daemon: send the client the current local interfaces.
    SendInterfaces(Vec<PeerInterface>),
    /// Test only: call a function with the protocol's state, in the event loop.
    #[cfg(test)]
    Inspect(Box<dyn Inspect>),
}

/// Beginning of a client's session.
#[derive(Debug)]
pub(crate) struct Begin {
    /// Plan of the first connection, and the connection.
    pub(crate) first: (PathPlan, Established),
    pub(crate) terms: LinkTerms,
    pub(crate) pairing: Pairing,
    pub(crate) named: Vec<PathPlan>,
    /// Told once the host routes of the first links are installed.
    pub(crate) reply: oneshot::Sender<Result<(), Error>>,
}

/// Function that looks at the protocol's state.
#[cfg(test)]
pub(crate) trait Inspect: FnOnce(&mut nicstripe_proto::Session) + Send {}

#[cfg(test)]
impl<F: FnOnce(&mut nicstripe_proto::Session) + Send> Inspect for F {}

#[cfg(test)]
impl std::fmt::Debug for dyn Inspect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inspect")
    }
}

pub(crate) type AskReply = oneshot::Sender<Result<AnswerKind, Unanswered>>;

/// End of a request about names without an answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: Error,
    /// False if the request was never sent: it has not been carried out.
    pub(crate) is_sent: bool,
}

impl Unanswered {
    pub(crate) fn unsent(error: Error) -> Self {
        let is_sent = false;
        Self { error, is_sent }
    }
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        let is_sent = true;
        Self { error, is_sent }
    }
}

impl From<Unanswered> for Error {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

/// Message of a thread or task of a transfer to its session.
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
    /// A failed transfer's written data is synced if possible.
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

#[cfg(feature = "bench")]
#[derive(Debug)]
pub(crate) enum BenchInput {
    /// Client: command of the running benchmark.
    Command(nicstripe_bench::BenchCommand),
    /// Daemon: send this message to the client.
    Message(nicstripe_proto::message::BenchBody),
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
    path: PathId,
    generation: u64,
    inputs: mpsc::Sender<Input>,
    /// Permits for [`MOST_WAITING`] deliveries.
    places: Arc<Semaphore>,
}

/// Maximum number of one connection's deliveries in the session's queue. Each holds what was received
/// at once, at most 256 KiB, which small frames blow up to a few MiB.
const MOST_WAITING: usize = 8;

impl PathSink {
    pub(super) fn new(path: PathId, generation: u64, inputs: mpsc::Sender<Input>) -> Self {
        Self {
            path,
            generation,
            inputs,
            places: Arc::new(Semaphore::new(MOST_WAITING)),
        }
    }
}

impl EventSink for PathSink {
    async fn deliver(&mut self, events: Vec<StreamEvent>) -> bool {
        let Ok(place) = self.places.clone().acquire_owned().await else {
            return false;
        };
        self.inputs
            .send(Input::Stream {
                path: self.path,
                generation: self.generation,
                events,
                place,
            })
            .await
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_while_eight_deliveries_are_in_the_queue() {
        let (inputs, mut session) = mpsc::channel(1000);
        let mut sink = PathSink::new(PathId(0), 1, inputs);
        for _ in 0..MOST_WAITING {
            assert!(sink.deliver(vec![StreamEvent::Heard]).await);
        }
        let second = Duration::from_secs(1);
        let next = tokio::time::timeout(second, sink.deliver(Vec::new())).await;
        assert!(next.is_err());
        drop(session.recv().await);
        assert!(sink.deliver(Vec::new()).await);
    }
}

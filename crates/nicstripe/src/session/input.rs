//! Inputs of a session's event loop: from connections, from owners, and from its jobs on I/O threads
//! and in tasks. Also its events for the path planner.

use std::{
    convert::Infallible,
    io,
    ops::{ControlFlow, Deref},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, DataHeader, Digest, Grid, PathId, PathLoss, Subtree,
    TransferId, Zeros,
    hash_tree::zeros_subtree,
    message::{AnswerKind, Ask, AskKind, CloseCode, Expected, PeerInterface},
    pairing::Obstacle,
    tree::TreeMessage,
};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use super::{
    kind::{Kind, Opened, retransmit::Produced},
    path_connection::{Arriving, Established, PathPlan},
    waiters::Starter,
};
use crate::{
    file::{self, Arrived, BufferPool, ChunkBuffer, CommitStage, FileError, IoPool, WriteError},
    report::error::Error,
    storage::Target,
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

/// Handle to a session, which ends when no handle, connection or job is left.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    pub(crate) inputs: mpsc::Sender<Input>,
    signals: SessionSignals,
}

impl Deref for SessionHandle {
    type Target = SessionSignals;

    fn deref(&self) -> &SessionSignals {
        &self.signals
    }
}

/// Signals between a session and its handles. They do not keep it from ending.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionSignals {
    /// True if any path of the session is connected.
    is_connected: Arc<AtomicBool>,
    /// True if anything has arrived since [`forget_heard`](Self::forget_heard).
    is_heard: Arc<AtomicBool>,
    /// Tracker of new connections that the session has not received yet.
    arriving: TaskTracker,
    /// Cancelled when the session has ended and released its files.
    pub(crate) ended: CancellationToken,
    /// Cancelled by [`stop`](Self::stop).
    pub(super) stopped: CancellationToken,
    /// True once the session ends: its long jobs stop after their turn.
    is_stopped: Arc<AtomicBool>,
}

impl SessionSignals {
    /// Ends the session before its next input, and its jobs after their turn. Does not wait, so
    /// that a destructor may call it.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.stopped.cancel();
    }

    /// Returns true if any path of the session is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Acquire)
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Release);
    }

    pub(super) fn set_heard(&self) {
        // Read first: a write takes the cache line from other processors.
        if !self.is_heard() {
            self.is_heard.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if anything has arrived since [`forget_heard`](Self::forget_heard).
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_heard(&self) {
        self.is_heard.store(false, Ordering::Relaxed);
    }

    /// Returns true if the session has no connection and none is being passed to it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_connected() && !self.is_awaiting()
    }

    /// Returns true if a new connection is being passed to the session.
    pub(crate) fn is_awaiting(&self) -> bool {
        !self.arriving.is_empty()
    }

    /// Counts a new connection that will be passed to the session. The caller drops the guard once
    /// the session has received the connection.
    pub(crate) fn await_connection(&self) -> Arriving {
        self.arriving.token()
    }
}

/// Sends an input from an I/O job. Blocks while the session's input queue is full. Returns false if
/// the session has ended.
pub(super) fn report(inputs: &mpsc::Sender<Input>, input: Input) -> bool {
    match inputs.try_send(input) {
        Err(TrySendError::Full(input)) => inputs.blocking_send(input).is_ok(),
        sent => sent.is_ok(),
    }
}

impl SessionHandle {
    pub(crate) fn new(inputs: mpsc::Sender<Input>, signals: SessionSignals) -> Self {
        Self { inputs, signals }
    }

    pub(crate) async fn command(&self, command: Command) -> bool {
        self.inputs.send(Input::Command(command)).await.is_ok()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inputs.same_channel(&other.inputs)
    }

    /// Asks the session to end if it has no connection. Does nothing if the session's input queue
    /// is full, because such a busy session has a connection.
    pub(crate) fn end_if_idle(&self) {
        let _ = self.inputs.try_send(Input::Command(Command::EndIfIdle));
    }
}

/// Guard that ends the session if its thread or task panics. Without it, the session would wait
/// forever for the result. Other sessions are not affected.
pub(crate) struct Fault(mpsc::Sender<Input>);

impl Fault {
    pub(crate) fn of(session: &mpsc::Sender<Input>) -> Self {
        Self(session.clone())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let source = io::Error::other("internal error");
            let error = Error::system("continue the session", source);
            let (session, input) = (
                self.0.clone(),
                Input::Command(Command::GiveUp(Box::new(error))),
            );
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(async move { drop(session.send(input).await) })),
                Err(_) => drop(session.blocking_send(input)),
            }
        }
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

/// Threads, buffers and input channel of one session, for the jobs of its transfers.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// I/O threads. A job that runs there directly reports its result itself.
    pub(super) pool: IoPool,
    pub(super) buffers: BufferPool,
    /// Does not keep the session from ending; each running job does.
    inputs: mpsc::WeakSender<Input>,
    /// Tracker of the running tree threads, for which an ending session waits.
    pub(crate) threads: TaskTracker,
    signals: SessionSignals,
}

/// Target that an I/O job uses. An ending session waits for the jobs of a target, and each drops its
/// lease after it has reported its result.
#[derive(Debug)]
pub(crate) struct TargetLease {
    target: Arc<Target>,
    _job: TaskTrackerToken,
}

impl TargetLease {
    pub(super) fn new(target: Arc<Target>, jobs: &TaskTracker) -> Self {
        let _job = jobs.token();
        Self { target, _job }
    }
}

impl Deref for TargetLease {
    type Target = Arc<Target>;

    fn deref(&self) -> &Arc<Target> {
        &self.target
    }
}

impl Jobs {
    pub(super) fn new(pool: IoPool, buffers: BufferPool, session: &SessionHandle) -> Self {
        Self {
            pool,
            buffers,
            inputs: session.inputs.downgrade(),
            threads: TaskTracker::new(),
            signals: session.signals.clone(),
        }
    }

    /// Returns a handle to the session, for a job.
    pub(super) fn handle(&self) -> SessionHandle {
        SessionHandle::new(self.inputs(), self.signals.clone())
    }

    /// Returns the input channel, for a job. Inputs go nowhere once the session has ended.
    pub(crate) fn inputs(&self) -> mpsc::Sender<Input> {
        self.inputs.upgrade().unwrap_or_else(|| mpsc::channel(1).0)
    }

    /// Returns the guard of a thread or task.
    pub(crate) fn fault(&self) -> Fault {
        Fault(self.inputs())
    }

    /// Runs a job in an I/O thread and reports its result to the session.
    pub(crate) fn run(&self, job: impl FnOnce() -> IoResult + Send + 'static) {
        self.pool
            .run(self.reporting((), move |()| Input::Io(job())));
    }

    /// Runs a step of a transfer in an I/O thread and reports its result to the session.
    pub(crate) fn step<T: Send + 'static>(
        &self,
        transfer: TransferId,
        step: Step,
        used: T,
        job: impl FnOnce(&T) -> Result<(), FileError> + Send + 'static,
    ) {
        self.pool.run(self.reporting(used, move |used| {
            Input::Io(IoResult::Step {
                transfer,
                step,
                result: job(used),
            })
        }));
    }

    /// Opens this machine's end of a transfer in a task, which then passes it to the session. Hashes
    /// its file first if an earlier attempt has completed that.
    pub(crate) fn open(
        &self,
        transfer: TransferId,
        opening: impl Future<Output = Result<Opened, FileError>> + Send + 'static,
    ) {
        let (pool, is_stopped) = (self.pool.clone(), self.signals.is_stopped.clone());
        self.spawn(async move {
            let result = match opening.await {
                Ok((kind, have)) => {
                    let target = kind.target().cloned();
                    let have = durable(pool, is_stopped, target, have).await;
                    have.map(|have| (kind, have))
                }
                Err(error) => Err(error),
            };
            let said = Said::Opened(result);
            Input::Said { transfer, said }
        });
    }

    /// Runs a task and sends its result to the session as an input. Ends the session if the task
    /// panics.
    pub(super) fn spawn(&self, task: impl Future<Output = Input> + Send + 'static) {
        let (inputs, fault) = (self.inputs(), self.fault());
        tokio::spawn(async move {
            let _fault = fault;
            let _ = inputs.send(task.await).await;
        });
    }

    /// Hashes an extent of zeros, which is not sent. Runs at low priority, because a peer can
    /// announce terabytes of zeros.
    pub(crate) fn hash_zeros(&self, transfer: TransferId, grid: Grid, zeros: Zeros) {
        self.pool.run_in_background(self.reporting((), move |()| {
            let result = zeros_subtree(grid, zeros).map_err(|error| {
                let cause = io::Error::other(error);
                FileError::new("hash the holes of", transfer.0, cause)
            });
            Input::Io(IoResult::ZerosHashed { transfer, result })
        }));
    }

    /// Reads a chunk of a file, to be sent on `path`. Compresses it if that increases the rate over
    /// the links' total `rate`.
    pub(crate) fn read(
        &self,
        path: PathId,
        (transfer, chunk): (TransferId, ChunkId),
        file: Arc<file::Source>,
        rate: Option<BitRate>,
    ) {
        let buffers = self.buffers.clone();
        self.run(move || IoResult::Read {
            path,
            transfer,
            chunk,
            result: file.read_to_send(file.grid(), chunk, &buffers, rate),
        });
    }

    /// Reads and hashes a chunk of a file that the receiver already has, because the digest covers
    /// it too.
    pub(crate) fn hash(&self, transfer: TransferId, chunk: ChunkId, file: Arc<file::Source>) {
        let buffers = self.buffers.clone();
        self.run(move || IoResult::Hashed {
            transfer,
            chunk,
            result: file.read_chunk(file.grid(), chunk, &mut buffers.take()),
        });
    }

    /// Copies a chunk of the existing file into the new file and hashes it, for a delta transfer.
    pub(crate) fn compare(&self, transfer: TransferId, chunk: ChunkId, target: TargetLease) {
        let buffers = self.buffers.clone();
        self.pool.run(self.reporting(target, move |target| {
            Input::Io(IoResult::Compared {
                transfer,
                chunk,
                result: target.compare_chunk(chunk, &mut buffers.take()),
            })
        }));
    }

    /// Commits the file of a transfer in turns, and reports the result to the session.
    pub(crate) fn commit(&self, transfer: TransferId, digest: Digest, target: TargetLease) {
        let (inputs, fault) = (self.inputs(), self.fault());
        let (is_stopped, stopped) = (self.signals.is_stopped.clone(), target.stopped());
        let mut stage = CommitStage::default();
        let file = target.target.clone();
        self.pool.run_in_turns(
            is_stopped,
            move || file.commit_turn(digest, &mut stage),
            move |result| {
                let (_fault, _target) = (fault, target);
                let result = result.unwrap_or(Err(stopped));
                let step = Step::Committed(digest);
                report(
                    &inputs,
                    Input::Io(IoResult::Step {
                        transfer,
                        step,
                        result,
                    }),
                );
            },
        );
    }

    /// Verifies and writes a received chunk. Continues when the session ends, which then makes the
    /// data durable.
    pub(crate) fn write(&self, target: TargetLease, arrived: Arrived) {
        let (inputs, fault) = (self.inputs(), self.fault());
        let written = move |arrived: Arrived, result: Result<(), WriteError>| {
            let Arrived { path, header, .. } = arrived;
            report(
                &inputs,
                Input::Io(IoResult::Written {
                    path,
                    header,
                    result,
                }),
            );
        };
        let mut arrived = Some(arrived);
        let turn = move || {
            let is_left = match arrived.take() {
                Some(arrived) => target.write_chunk(arrived, &written),
                None => target.write_queued(&written),
            };
            Ok::<_, Infallible>(if is_left {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        };
        self.pool
            .run_in_turns(Arc::default(), turn, move |_| drop(fault));
    }

    /// Wraps a job so that it reports its result to the session, and ends the session if it panics.
    /// What it uses is dropped after the report.
    fn reporting<T: Send + 'static>(
        &self,
        used: T,
        job: impl FnOnce(&T) -> Input + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let (inputs, fault) = (self.inputs(), self.fault());
        move || {
            let _fault = fault;
            report(&inputs, job(&used));
        }
    }
}

/// Returns the durable subtrees of an opened target. Hashes the file if an earlier attempt has
/// completed it.
async fn durable(
    pool: IoPool,
    is_stopped: Arc<AtomicBool>,
    target: Option<Arc<Target>>,
    have: Vec<Subtree>,
) -> Result<Vec<Subtree>, FileError> {
    let Some((target, mut rehash)) = target.and_then(|target| {
        let rehash = target.rehash()?;
        Some((target, rehash))
    }) else {
        return Ok(have);
    };
    let stopped = target.stopped();
    let turn = move || target.rehash_turn(&mut rehash);
    let found = pool.call_in_turns(is_stopped, turn).await;
    found.unwrap_or(Err(stopped))
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

/// Verifies a received chunk of a stream against its header.
pub(crate) fn verified(grid: Grid, mut arrived: Arrived) -> IoResult {
    let result = arrived.verify(grid);
    IoResult::Verified { arrived, result }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe_proto::{FailCode, Offer, SourceIdentity, message::PutOptions};
    use tokio::time::timeout;

    use super::*;
    use crate::file::TargetRequest;

    #[tokio::test]
    async fn a_session_that_has_ended_commits_no_further() {
        let dir = tempfile::tempdir().unwrap();
        let request = TargetRequest {
            dir: std::fs::File::open(dir.path()).unwrap().into(),
            name: "target".into(),
            offer: Offer {
                transfer: TransferId(1),
                source: SourceIdentity {
                    size: 1 << 20,
                    ..SourceIdentity::default()
                },
                chunk_log2: 18,
                mode: 0o600,
                kind: None,
                data: None,
            },
            options: PutOptions::default(),
            peer_key: [7; 32],
            attributes: None,
        };
        let (target, _) = file::Target::open(request).unwrap();
        let (inputs, mut session) = mpsc::channel(1);
        let pool = IoPool::start().unwrap();
        let handle = SessionHandle::new(inputs, SessionSignals::default());
        let jobs = Jobs::new(pool, BufferPool::default(), &handle);
        handle.stop();
        let target = TargetLease::new(Arc::new(target.into()), &TaskTracker::new());
        jobs.commit(TransferId(1), Digest([0; 32]), target);
        let input = timeout(Duration::from_secs(20), session.recv()).await;
        let Ok(Some(Input::Io(IoResult::Step { result, .. }))) = input else {
            panic!("{input:?}")
        };
        assert_eq!(result.unwrap_err().code, FailCode::Cancelled);
        assert!(!dir.path().join("target").exists());
    }
}

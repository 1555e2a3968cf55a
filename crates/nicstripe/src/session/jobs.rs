//! Jobs of a session's transfers, on I/O threads and in tasks. Each reports its result to the session
//! as an input.

use std::{
    convert::Infallible,
    io,
    ops::{ControlFlow, Deref},
    sync::{Arc, atomic::AtomicBool},
};

use nicstripe_proto::{
    BitRate, ChunkId, Digest, Grid, PathId, Subtree, TransferId, Zeros, hash_tree::zeros_subtree,
};
use tokio::sync::mpsc;

use super::{
    handle::{SessionHandle, SessionSignals},
    inbox::{Input, IoResult, Said, Step, report},
    kind::Opened,
};
use crate::{
    file::{self, Arrived, BufferPool, CommitStage, FileError, IoPool, WriteError},
    storage::Target,
    wire::tasks::{TaskToken, TaskTracker},
};

/// Threads, buffers and input channel of one session, for the jobs of its transfers.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// I/O threads. A job that runs there directly reports its result itself.
    pub(super) pool: IoPool,
    pub(super) buffers: BufferPool,
    /// True if the peer accepts compressed chunks.
    packs: bool,
    /// Does not keep the session from ending; each running job does.
    inputs: mpsc::WeakSender<Input>,
    /// Tracker of the running tree threads, for which an ending session waits.
    pub(crate) threads: TaskTracker,
    signals: SessionSignals,
}

impl Jobs {
    /// Returns the jobs of a session. `packs` is true if the peer accepts compressed chunks.
    pub(super) fn new(
        pool: IoPool,
        buffers: BufferPool,
        packs: bool,
        session: &SessionHandle,
    ) -> Self {
        Self {
            pool,
            buffers,
            packs,
            inputs: session.inputs.downgrade(),
            threads: TaskTracker::default(),
            signals: session.signals.clone(),
        }
    }

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
    /// the links' total `rate`, and the peer accepts it.
    pub(crate) fn read(
        &self,
        path: PathId,
        (transfer, chunk): (TransferId, ChunkId),
        file: Arc<file::Source>,
        rate: Option<BitRate>,
    ) {
        let (buffers, packs) = (self.buffers.clone(), self.packs);
        self.run(move || IoResult::Read {
            path,
            transfer,
            chunk,
            result: match packs {
                true => file.read_to_send(file.grid(), chunk, &buffers, rate),
                false => {
                    let mut buffer = buffers.take();
                    let value = file.read_chunk(file.grid(), chunk, &mut buffer);
                    value.map(|value| (value, buffer))
                }
            },
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
    /// Its values are dropped after the report.
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

/// Target that an I/O job uses. An ending session waits for the jobs of a target, and each drops its
/// lease after it has reported its result.
#[derive(Debug)]
pub(crate) struct TargetLease {
    target: Arc<Target>,
    _job: TaskToken,
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

/// Verifies a received chunk of a stream against its header.
pub(crate) fn verified(grid: Grid, mut arrived: Arrived) -> IoResult {
    let result = arrived.verify(grid);
    IoResult::Verified { arrived, result }
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
            let (session, input) = (self.0.clone(), Input::Fault);
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(async move { drop(session.send(input).await) })),
                Err(_) => drop(session.blocking_send(input)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe_proto::{FailCode, Offer, SourceIdentity, message::PutOptions};
    use tokio::time::timeout;

    use super::*;
    use crate::file::{Sidecar, TargetRequest};

    /// Starts jobs of a session that this receiver stands for.
    fn started(packs: bool) -> (Jobs, SessionHandle, mpsc::Receiver<Input>) {
        let (inputs, session) = mpsc::channel(1);
        let handle = SessionHandle::new(inputs, SessionSignals::default());
        let pool = IoPool::start().unwrap();
        let jobs = Jobs::new(pool, BufferPool::default(), packs, &handle);
        (jobs, handle, session)
    }

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
                object: None,
            },
            options: PutOptions::default(),
            peer_key: [7; 32],
            attributes: None,
            sidecar: Sidecar::None,
        };
        let (target, _) = file::Target::open(request).unwrap();
        let (jobs, handle, mut session) = started(true);
        handle.stop();
        let target = TargetLease::new(Arc::new(target.into()), &TaskTracker::default());
        jobs.commit(TransferId(1), Digest([0; 32]), target);
        let input = timeout(Duration::from_secs(20), session.recv()).await;
        let Ok(Some(Input::Io(IoResult::Step { result, .. }))) = input else {
            panic!("{input:?}")
        };
        assert_eq!(result.unwrap_err().code, FailCode::Cancelled);
        assert!(!dir.path().join("target").exists());
    }

    #[tokio::test]
    async fn chunks_are_compressed_only_for_a_peer_that_accepts_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, "text ".repeat(1000)).unwrap();
        for packs in [true, false] {
            let options = file::ReadOptions {
                compress: true,
                ..file::ReadOptions::default()
            };
            let file = Arc::new(file::Source::open(&path, options).unwrap());
            let (jobs, _handle, mut session) = started(packs);
            let (chunk, rate) = ((TransferId(1), ChunkId(0)), BitRate::from_mbit(10));
            jobs.read(PathId(0), chunk, file, Some(rate));
            let input = timeout(Duration::from_secs(20), session.recv()).await;
            let Ok(Some(Input::Io(IoResult::Read { result, .. }))) = input else {
                panic!("{input:?}")
            };
            let (_, buffer) = result.unwrap();
            assert_eq!(buffer.bytes().len() < 5000, packs);
        }
    }
}

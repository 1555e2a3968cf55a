//! Jobs of a session on I/O threads and in tasks, which report their results to the session.

use std::sync::Arc;

use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, DataHeader, Digest, Grid, PathId, Subtree, TransferId, Zeros,
    hash_tree::zeros_subtree,
};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::{SinkOpened, Source};
use crate::{
    file::{self, Arrived, BufferPool, ChunkBuffer, FileError, IoPool, WriteError},
    report::error::Error,
    session::input::{Fault, Input, report},
    storage::Target,
};

/// Threads, buffers and input channel of one session, for the jobs of its transfers.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(super) pool: IoPool,
    pub(super) buffers: BufferPool,
    pub(in crate::session) inputs: mpsc::Sender<Input>,
    /// Tracker of the running tree threads, for which an ending session waits.
    pub(crate) threads: TaskTracker,
}

impl Jobs {
    pub(crate) fn new(pool: IoPool, buffers: BufferPool, inputs: mpsc::Sender<Input>) -> Self {
        Self {
            pool,
            buffers,
            inputs,
            threads: TaskTracker::new(),
        }
    }

    /// Runs a job in an I/O thread and reports its result to the session.
    pub(crate) fn run(&self, job: impl FnOnce() -> IoResult + Send + 'static) {
        self.pool.run(self.reporting(move || Input::Io(job())));
    }

    /// Runs a job in an I/O thread. The job itself reports its result to the session.
    pub(crate) fn aside(&self, job: impl FnOnce() + Send + 'static) {
        self.pool.run(job);
    }

    /// Opens a source in a task, which then passes it to the session.
    pub(crate) fn open_source(
        &self,
        transfer: TransferId,
        opening: impl Future<Output = Result<Box<dyn Source>, FileError>> + Send + 'static,
    ) {
        self.spawn(async move {
            let result = opening.await;
            Input::SourceOpened { transfer, result }
        });
    }

    /// Returns a function that reports an opened source to the session. It blocks its thread while
    /// the session's input queue is full.
    pub(super) fn source_opened(
        &self,
        transfer: TransferId,
    ) -> impl FnOnce(Result<Box<dyn Source>, FileError>) + Send + use<> {
        let inputs = self.inputs.clone();
        move |result| {
            report(&inputs, Input::SourceOpened { transfer, result });
        }
    }

    /// Opens a sink in a task, which then passes it to the session.
    pub(crate) fn open_sink(
        &self,
        transfer: TransferId,
        opening: impl Future<Output = Result<SinkOpened, FileError>> + Send + 'static,
    ) {
        self.spawn(async move {
            let result = opening.await;
            Input::SinkOpened { transfer, result }
        });
    }

    /// Runs a task and sends its result to the session as an input. Ends the session if the task
    /// panics.
    fn spawn(&self, task: impl Future<Output = Input> + Send + 'static) {
        let (inputs, fault) = (self.inputs.clone(), Fault::of(&self.inputs));
        tokio::spawn(async move {
            let _fault = fault;
            let _ = inputs.send(task.await).await;
        });
    }

    /// Hashes an extent of zeros, which is not sent. Runs at low priority, because a peer can
    /// announce terabytes of zeros.
    pub(crate) fn hash_zeros(&self, transfer: TransferId, grid: Grid, zeros: Zeros) {
        self.pool.run_in_background(self.reporting(move || {
            let result = zeros_subtree(grid, zeros).map_err(|error| {
                let cause = std::io::Error::other(error);
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
    pub(crate) fn compare(&self, transfer: TransferId, chunk: ChunkId, target: Arc<Target>) {
        let buffers = self.buffers.clone();
        self.run(move || IoResult::Compared {
            transfer,
            chunk,
            result: target.compare_chunk(chunk, &mut buffers.take()),
        });
    }

    /// Verifies and writes a received chunk.
    pub(crate) fn write(&self, target: Arc<Target>, arrived: Arrived) {
        let (inputs, fault) = (self.inputs.clone(), Fault::of(&self.inputs));
        self.pool.run(move || {
            let _fault = fault;
            target.write_chunk(arrived, |Arrived { path, header, .. }, result| {
                report(
                    &inputs,
                    Input::Io(IoResult::Written {
                        path,
                        header,
                        result,
                    }),
                );
            });
        });
    }

    /// Wraps a job so that it reports its result to the session, and ends the session if it panics.
    fn reporting(
        &self,
        job: impl FnOnce() -> Input + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let (inputs, fault) = (self.inputs.clone(), Fault::of(&self.inputs));
        move || {
            let _fault = fault;
            report(&inputs, job());
        }
    }
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
    HolesMade {
        transfer: TransferId,
        result: Result<(), FileError>,
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
        path: PathId,
        header: DataHeader,
        buffer: ChunkBuffer,
        result: Result<(), WriteError>,
    },
    /// A sink has consumed all data, or failed.
    Drained {
        transfer: TransferId,
        result: Result<(), FileError>,
    },
    Synced {
        transfer: TransferId,
        result: Result<(), FileError>,
    },
    Checked {
        transfer: TransferId,
        result: Result<(), FileError>,
    },
    Committed {
        transfer: TransferId,
        digest: Digest,
        result: Result<(), FileError>,
    },
    /// A failed transfer's written data is synced, as far as possible.
    Flushed {
        transfer: TransferId,
        error: Box<Error>,
    },
}

/// Verifies a received chunk of a stream against its header.
pub(crate) fn verified(grid: Grid, mut arrived: Arrived) -> IoResult {
    let result = arrived.verify(grid);
    let Arrived {
        path,
        header,
        buffer,
    } = arrived;
    IoResult::Verified {
        path,
        header,
        buffer,
        result,
    }
}

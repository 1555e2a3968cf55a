//! Open files of a session's transfers, and the I/O jobs on them.

use std::{collections::BTreeMap, os::unix::fs::FileTypeExt, path::PathBuf, sync::Arc};

use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, ChunkSize, DataHeader, Digest, Grid, HoleMap, Name, Offer,
    PathId, Subtree, TransferId, Zeros, hash_tree::zeros_subtree, message::PutOptions,
};
use tokio::sync::mpsc;

use super::{
    input::{Fault, Input, SessionHandle, report},
    reorder::ReorderBuffer,
    retransmit::RetransmitBuffer,
};
use crate::{
    daemon::Service,
    file::{
        self, Arrived, BufferPool, ChunkBuffer, FileError, IoPool, OF_SOURCE, ReadOptions, Source,
        TargetRequest, WriteError, make_parents, open_parent,
    },
    report::error::Error,
    storage::Target,
};

/// Rights of the peer to files of this machine.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// No rights: this end is the client.
    Client,
    /// Rights granted by the daemon's service for this peer.
    Daemon(Arc<Service>),
}

/// Open source or target of a transfer.
#[derive(Debug)]
pub(super) enum OpenFile {
    Source(Arc<Source>, Grid),
    Target(Arc<Target>),
    Retransmit(RetransmitBuffer),
    Reorder(ReorderBuffer, Expected),
}

/// Size and digest expected of a transfer with a reorder buffer.
#[derive(Debug)]
pub(super) struct Expected {
    size: u64,
    /// Digest that both ends agreed on; `None` until all data has arrived.
    digest: Option<Digest>,
}

#[derive(Debug)]
pub(crate) enum IoResult {
    SourceOpened {
        transfer: TransferId,
        result: Result<(Arc<Source>, Offer), FileError>,
    },
    TargetOpened {
        transfer: TransferId,
        result: Result<(Arc<Target>, Vec<Subtree>), FileError>,
    },
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

/// Local target of a file that a client fetches.
#[derive(Debug, Clone)]
pub(crate) struct LocalTarget {
    pub(crate) path: PathBuf,
    pub(crate) options: PutOptions,
    pub(crate) peer_key: [u8; 32],
}

/// Open files of one session, with the I/O threads that work on them.
#[derive(Debug)]
pub(super) struct OpenFiles {
    open: BTreeMap<TransferId, OpenFile>,
    pool: IoPool,
    buffers: BufferPool,
    done: mpsc::Sender<Input>,
}

impl OpenFiles {
    pub(super) fn new(pool: IoPool, buffers: BufferPool, done: mpsc::Sender<Input>) -> Self {
        Self {
            open: BTreeMap::new(),
            pool,
            buffers,
            done,
        }
    }

    pub(super) fn insert_source(&mut self, transfer: TransferId, source: Arc<Source>, size: u64) {
        self.open.insert(
            transfer,
            OpenFile::Source(source, Grid::new(size, ChunkSize::DEFAULT)),
        );
    }

    pub(super) fn insert_retransmit(&mut self, transfer: TransferId, buffer: RetransmitBuffer) {
        self.open.insert(transfer, OpenFile::Retransmit(buffer));
    }

    pub(super) fn insert_reorder(
        &mut self,
        transfer: TransferId,
        buffer: ReorderBuffer,
        size: u64,
    ) {
        self.open.insert(
            transfer,
            OpenFile::Reorder(buffer, Expected { size, digest: None }),
        );
    }

    pub(super) fn retransmit_mut(&mut self, transfer: TransferId) -> Option<&mut RetransmitBuffer> {
        match self.open.get_mut(&transfer) {
            Some(OpenFile::Retransmit(buffer)) => Some(buffer),
            _ => None,
        }
    }

    pub(super) fn reorder_mut(&mut self, transfer: TransferId) -> Option<&mut ReorderBuffer> {
        match self.open.get_mut(&transfer) {
            Some(OpenFile::Reorder(buffer, _)) => Some(buffer),
            _ => None,
        }
    }

    fn source(&self, transfer: TransferId) -> Option<(Arc<Source>, Grid)> {
        match self.open.get(&transfer) {
            Some(OpenFile::Source(source, grid)) => Some((source.clone(), *grid)),
            _ => None,
        }
    }

    /// Returns the agreed digest of a stream whose sink has consumed all data.
    pub(super) fn ending(&self, transfer: TransferId) -> Result<Digest, FileError> {
        match self.open.get(&transfer) {
            Some(OpenFile::Reorder(
                _,
                Expected {
                    digest: Some(digest),
                    ..
                },
            )) => Ok(*digest),
            _ => Err(FileError::new(
                "write",
                "standard output",
                std::io::ErrorKind::UnexpectedEof.into(),
            )),
        }
    }

    pub(super) fn insert_target(&mut self, transfer: TransferId, target: Arc<Target>) {
        self.open.insert(transfer, OpenFile::Target(target));
    }

    pub(super) fn remove(&mut self, transfer: TransferId) -> Option<OpenFile> {
        self.open.remove(&transfer)
    }

    pub(super) fn target(&self, transfer: TransferId) -> Option<&Arc<Target>> {
        match self.open.get(&transfer) {
            Some(OpenFile::Target(target)) => Some(target),
            _ => None,
        }
    }

    /// Deletes the received data of a transfer of unknown size. It cannot be resumed, because its
    /// source cannot be read again.
    pub(super) fn discard_unfinishable(&self, transfer: TransferId) {
        if let Some(target) = self
            .target(transfer)
            .filter(|target| target.is_open_ended())
        {
            target.discard();
        }
    }

    /// Drops all streamed sources. Source threads that wait for the send window fail.
    pub(super) fn close_sources(&mut self) {
        self.open
            .retain(|_, file| !matches!(file, OpenFile::Retransmit(_)));
    }

    pub(super) fn targets(&self) -> Vec<TransferId> {
        self.open
            .iter()
            .filter(|(_, file)| matches!(file, OpenFile::Target(_)))
            .map(|(id, _)| *id)
            .collect()
    }

    pub(super) fn size(&self, transfer: TransferId) -> Option<u64> {
        self.open.get(&transfer).map(|file| match file {
            OpenFile::Source(_, grid) => grid.size,
            OpenFile::Target(target) => target.size(),
            OpenFile::Retransmit(_) => 0,
            OpenFile::Reorder(_, expected) => expected.size,
        })
    }

    /// Reads a chunk to be sent on `path`, and compresses it if that increases the rate over the
    /// links' total `rate`. Returns a chunk of the retransmit buffer directly. Reads other chunks
    /// in an I/O thread, which reports to the session.
    pub(super) fn read(
        &self,
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        rate: Option<BitRate>,
    ) -> Option<(Arc<ChunkBuffer>, ChainingValue)> {
        if let Some(OpenFile::Retransmit(buffer)) = self.open.get(&transfer) {
            return buffer
                .chunks
                .get(&chunk)
                .map(|chunk| (chunk.buffer.clone(), chunk.value));
        }
        let (source, grid) = self.source(transfer)?;
        let buffers = self.buffers.clone();
        self.run(move || IoResult::Read {
            path,
            transfer,
            chunk,
            result: source.read_to_send(grid, chunk, &buffers, rate),
        });
        None
    }

    /// Hashes zeros that are not sent, at low priority. A peer can announce terabytes of zeros.
    pub(super) fn hash_zeros(&self, transfer: TransferId, grid: Grid, zeros: Zeros) {
        self.pool.run_in_background(self.reporting(move || {
            let result = zeros_subtree(grid, zeros);
            let result = result.map_err(|error| {
                FileError::new(
                    "hash the holes of",
                    transfer.0,
                    std::io::Error::other(error),
                )
            });
            IoResult::ZerosHashed { transfer, result }
        }));
    }

    /// Punches the holes that the sender announced into the target.
    pub(super) fn make_holes(&self, transfer: TransferId, holes: HoleMap) {
        let Some(target) = self.target(transfer).cloned() else {
            return;
        };
        self.run(move || IoResult::HolesMade {
            transfer,
            result: target.make_holes(holes),
        });
    }

    /// Copies a chunk of the existing file into the new file and hashes it, for a delta transfer.
    /// Returns false if no target is open.
    pub(super) fn compare(&self, transfer: TransferId, chunk: ChunkId) -> bool {
        let Some(target) = self.target(transfer).cloned() else {
            return false;
        };
        let buffers = self.buffers.clone();
        self.run(move || IoResult::Compared {
            transfer,
            chunk,
            result: target.compare_chunk(chunk, &mut buffers.take()),
        });
        true
    }

    /// Reads and hashes a chunk that the receiver already has, because the digest covers it too.
    /// Returns false if no source is open.
    pub(super) fn hash(&self, transfer: TransferId, chunk: ChunkId) -> bool {
        let Some((source, grid)) = self.source(transfer) else {
            return false;
        };
        let buffers = self.buffers.clone();
        self.run(move || IoResult::Hashed {
            transfer,
            chunk,
            result: source.read_chunk(grid, chunk, &mut buffers.take()),
        });
        true
    }

    /// Verifies and writes a chunk received on `path`. Only verifies it if it is for a reorder
    /// buffer.
    pub(super) fn write(&self, path: PathId, grid: Grid, header: DataHeader, buffer: ChunkBuffer) {
        let done = self.done.clone();
        match self.open.get(&header.transfer) {
            Some(OpenFile::Target(target)) => {
                let target = target.clone();
                let fault = Fault::of(&done);
                self.pool.run(move || {
                    let _fault = fault;
                    target.write_chunk(
                        Arrived {
                            path,
                            header,
                            buffer,
                        },
                        |Arrived { path, header, .. }, result| {
                            report(
                                &done,
                                Input::Io(IoResult::Written {
                                    path,
                                    header,
                                    result,
                                }),
                            );
                        },
                    );
                });
            }
            Some(OpenFile::Reorder(..)) => self.run(move || verified(path, grid, header, buffer)),
            _ => {}
        }
    }

    /// Returns true if a chunk is for a reorder buffer and too short to be worth passing to an I/O
    /// thread.
    pub(super) fn is_verified_at_once(&self, header: &DataHeader) -> bool {
        header.chunk_len() <= AT_ONCE
            && matches!(self.open.get(&header.transfer), Some(OpenFile::Reorder(..)))
    }

    pub(super) fn sync(&self, transfer: TransferId, subtrees: Vec<Subtree>) {
        let Some(target) = self.target(transfer).cloned() else {
            return;
        };
        self.run(move || IoResult::Synced {
            transfer,
            result: target.sync(subtrees),
        });
    }

    /// Checks in an I/O thread that the source has not changed. Returns false if no source is open.
    pub(super) fn check(&self, transfer: TransferId) -> bool {
        let Some((source, _)) = self.source(transfer) else {
            return false;
        };
        self.run(move || IoResult::Checked {
            transfer,
            result: source.check_unchanged(),
        });
        true
    }

    /// Completes a transfer whose data has all arrived: commits the file, or signals the end to the
    /// sink.
    pub(super) fn commit(&mut self, transfer: TransferId, digest: Digest) {
        match self.open.get_mut(&transfer) {
            Some(OpenFile::Target(target)) => {
                let target = target.clone();
                self.run(move || IoResult::Committed {
                    transfer,
                    digest,
                    result: target.commit(digest),
                });
            }
            Some(OpenFile::Reorder(buffer, expected)) => {
                expected.digest = Some(digest);
                buffer.end();
            }
            _ => {}
        }
    }

    /// Opens a client's local target, with the rights of the local user.
    pub(super) fn open_local(&self, wanted: LocalTarget, offer: Offer, journal_id: [u8; 16]) {
        self.run(move || {
            let transfer = offer.transfer;
            // A device may be named by a symlink (/dev/disk). Other symlinks are replaced and not
            // followed.
            let is_device = std::fs::metadata(&wanted.path)
                .is_ok_and(|found| found.file_type().is_block_device());
            let device = is_device.then(|| wanted.path.canonicalize().ok()).flatten();
            let path = device.as_ref().unwrap_or(&wanted.path);
            let made = if wanted.options.parents {
                make_parents(path)
            } else {
                Ok(())
            };
            let opened = made
                .and_then(|()| open_parent(path))
                .and_then(|(dir, name)| {
                    let LocalTarget {
                        options, peer_key, ..
                    } = wanted;
                    file::Target::open(TargetRequest {
                        dir,
                        name,
                        offer: &offer,
                        options,
                        peer_key,
                        journal_id,
                        attributes: None,
                    })
                });
            IoResult::TargetOpened {
                transfer,
                result: opened.map(|(target, have)| (Arc::new(target.into()), have)),
            }
        });
    }

    /// Opens a file below the daemon's root that the peer fetches.
    pub(super) fn open_served(
        &self,
        service: Arc<Service>,
        session: SessionHandle,
        transfer: TransferId,
        name: Name,
        options: ReadOptions,
    ) {
        let pool = self.pool.clone();
        tokio::spawn(async move {
            let opened = async {
                let lease = service.lease_files(OF_SOURCE, &session).await?;
                let open = move || {
                    service
                        .open_source(&name, options)
                        .map(|source| source.keep(lease))
                };
                pool.call(open).await.unwrap_or_else(|| {
                    Err(FileError::new(
                        "open",
                        "a file",
                        std::io::Error::other("internal error"),
                    ))
                })
            };
            let result = opened.await.map(|source| {
                let offer = offer_of(transfer, &source);
                (Arc::new(source), offer)
            });
            let _ = session
                .inputs
                .send(Input::Io(IoResult::SourceOpened { transfer, result }))
                .await;
        });
    }

    /// Runs a job in an I/O thread that reports its result itself.
    pub(super) fn aside(&self, job: impl FnOnce() + Send + 'static) {
        self.pool.run(job);
    }

    /// Runs a job in an I/O thread and reports its result to the session.
    pub(super) fn run(&self, job: impl FnOnce() -> IoResult + Send + 'static) {
        self.pool.run(self.reporting(job));
    }

    /// Wraps a job so that it reports its result to the session, and ends the session if it panics.
    fn reporting(
        &self,
        job: impl FnOnce() -> IoResult + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let done = self.done.clone();
        let fault = Fault::of(&done);
        move || {
            let _fault = fault;
            report(&done, Input::Io(job()));
        }
    }
}

/// Verifies a received chunk for a reorder buffer against its header.
pub(super) fn verified(
    path: PathId,
    grid: Grid,
    header: DataHeader,
    buffer: ChunkBuffer,
) -> IoResult {
    let mut arrived = Arrived {
        path,
        header,
        buffer,
    };
    let result = arrived.verify(grid);
    IoResult::Verified {
        path,
        header,
        buffer: arrived.buffer,
        result,
    }
}

/// Maximum length of a chunk that the session's task verifies itself, in bytes. Takes about 10 µs,
/// as long as passing it to a thread.
const AT_ONCE: u32 = 64 << 10;

pub(crate) fn offer_of(transfer: TransferId, source: &Source) -> Offer {
    Offer {
        transfer,
        source: source.identity(),
        chunk_log2: ChunkSize::DEFAULT.log2(),
        mode: source.mode() & 0o777,
        kind: None,
        data: source.data(),
    }
}

//! The files of a session's transfers: what its machine asks for, done on the I/O threads.

use std::{collections::BTreeMap, os::unix::fs::FileTypeExt, path::PathBuf, sync::Arc};

use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, ChunkSize, DataHeader, Digest, Grid, HoleMap, Name, Offer, PathId, Subtree, TransferId, Zeros,
    hash_tree::zeros_subtree, message::PutOptions,
};
use tokio::sync::mpsc;

use super::{Command, Input, SessionHandle, kept::Kept, live::Live};
use crate::{
    daemon::Service,
    error::Error,
    file::{
        self, Arrived, BufferPool, ChunkBuffer, FileError, IoPool, OF_SOURCE, ReadOptions, Source, TargetRequest, WriteError, make_parents,
        open_parent,
    },
    storage::Target,
    tree::TreeReport,
};

/// What the peer may ask of this end.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Nothing: this end asks.
    Client,
    /// What a daemon's service allows.
    Daemon(Arc<Service>),
}

/// A file that a transfer has open.
#[derive(Debug)]
pub(super) enum Work {
    Source(Arc<Source>, Grid),
    Target(Arc<Target>),
    Live(Live),
    Kept(Kept, Keeping),
}

/// What is known of what is kept in memory.
#[derive(Debug)]
pub(super) struct Keeping {
    size: u64,
    /// What both ends agreed on, once everything has arrived.
    digest: Option<Digest>,
}

/// Something that was done on the I/O threads.
#[derive(Debug)]
pub(crate) enum WorkDone {
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
    /// A writer has written everything, or cannot.
    Emptied {
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
    /// What was written of a transfer that failed elsewhere is durable, as far as that goes.
    LetGo {
        transfer: TransferId,
        error: Box<Error>,
    },
}

/// How a transfer ended well.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// A tree has none.
    pub(crate) digest: Option<Digest>,
    pub(crate) size: u64,
    pub(crate) tree: Option<TreeReport>,
}

/// Where a client wants a file that it gets.
#[derive(Debug, Clone)]
pub(crate) struct LocalTarget {
    pub(crate) path: PathBuf,
    pub(crate) options: PutOptions,
    pub(crate) peer_key: [u8; 32],
}

/// The open files of one session, and the threads that work on them.
#[derive(Debug)]
pub(super) struct Works {
    open: BTreeMap<TransferId, Work>,
    pool: IoPool,
    buffers: BufferPool,
    done: mpsc::Sender<Input>,
}

impl Works {
    pub(super) fn new(pool: IoPool, buffers: BufferPool, done: mpsc::Sender<Input>) -> Self {
        Self { open: BTreeMap::new(), pool, buffers, done }
    }

    pub(super) fn insert_source(&mut self, transfer: TransferId, source: Arc<Source>, size: u64) {
        self.open.insert(transfer, Work::Source(source, Grid::new(size, ChunkSize::DEFAULT)));
    }

    pub(super) fn insert_live(&mut self, transfer: TransferId, live: Live) {
        self.open.insert(transfer, Work::Live(live));
    }

    pub(super) fn insert_kept(&mut self, transfer: TransferId, kept: Kept, size: u64) {
        self.open.insert(transfer, Work::Kept(kept, Keeping { size, digest: None }));
    }

    pub(super) fn live_mut(&mut self, transfer: TransferId) -> Option<&mut Live> {
        match self.open.get_mut(&transfer) {
            Some(Work::Live(live)) => Some(live),
            _ => None,
        }
    }

    pub(super) fn kept_mut(&mut self, transfer: TransferId) -> Option<&mut Kept> {
        match self.open.get_mut(&transfer) {
            Some(Work::Kept(kept, _)) => Some(kept),
            _ => None,
        }
    }

    fn source(&self, transfer: TransferId) -> Option<(Arc<Source>, Grid)> {
        match self.open.get(&transfer) {
            Some(Work::Source(source, grid)) => Some((source.clone(), *grid)),
            _ => None,
        }
    }

    /// What both ends agreed on of something that a writer has written.
    pub(super) fn ending(&self, transfer: TransferId) -> Result<Digest, FileError> {
        match self.open.get(&transfer) {
            Some(Work::Kept(_, Keeping { digest: Some(digest), .. })) => Ok(*digest),
            _ => Err(FileError::new("write", "standard output", std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    pub(super) fn insert_target(&mut self, transfer: TransferId, target: Arc<Target>) {
        self.open.insert(transfer, Work::Target(target));
    }

    pub(super) fn remove(&mut self, transfer: TransferId) -> Option<Work> {
        self.open.remove(&transfer)
    }

    pub(super) fn target(&self, transfer: TransferId) -> Option<&Arc<Target>> {
        match self.open.get(&transfer) {
            Some(Work::Target(target)) => Some(target),
            _ => None,
        }
    }

    /// Removes what was received where no other attempt could go on from it, as its source cannot be read again.
    pub(super) fn discard_unfinishable(&self, transfer: TransferId) {
        if let Some(target) = self.target(transfer).filter(|target| target.is_open_ended()) {
            target.discard();
        }
    }

    /// Lets go of sources that are no files: those that wait for room are told that there will be none.
    pub(super) fn close_sources(&mut self) {
        self.open.retain(|_, work| !matches!(work, Work::Live(_)));
    }

    /// The transfers whose target is open.
    pub(super) fn targets(&self) -> Vec<TransferId> {
        self.open.iter().filter(|(_, work)| matches!(work, Work::Target(_))).map(|(id, _)| *id).collect()
    }

    pub(super) fn size(&self, transfer: TransferId) -> Option<u64> {
        self.open.get(&transfer).map(|work| match work {
            Work::Source(_, grid) => grid.size,
            Work::Target(target) => target.size(),
            Work::Live(_) => 0,
            Work::Kept(_, keeping) => keeping.size,
        })
    }

    /// Has a chunk read that is to be sent on `path`, compressed where that pays on links of `rate` together: then its buffer holds less than
    /// the chunk. Returns one that needs no reading.
    pub(super) fn read(
        &self,
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        rate: Option<BitRate>,
    ) -> Option<(Arc<ChunkBuffer>, ChainingValue)> {
        if let Some(Work::Live(live)) = self.open.get(&transfer) {
            return live.chunks.get(&chunk).map(|chunk| (chunk.buffer.clone(), chunk.value));
        }
        let (source, grid) = self.source(transfer)?;
        let buffers = self.buffers.clone();
        self.run(move || WorkDone::Read { path, transfer, chunk, result: source.read_to_send(grid, chunk, &buffers, rate) });
        None
    }

    /// Hashes zeros that are not sent. A peer's word is enough to make terabytes of them, so whatever is known to be data goes before.
    pub(super) fn hash_zeros(&self, transfer: TransferId, grid: Grid, zeros: Zeros) {
        self.pool.run_in_background(self.reporting(move || {
            let result = zeros_subtree(grid, zeros);
            let result = result.map_err(|error| FileError::new("hash the holes of", transfer.0, std::io::Error::other(error)));
            WorkDone::ZerosHashed { transfer, result }
        }));
    }

    /// Makes the holes that the sender told.
    pub(super) fn make_holes(&self, transfer: TransferId, holes: HoleMap) {
        let Some(target) = self.target(transfer).cloned() else { return };
        self.run(move || WorkDone::HolesMade { transfer, result: target.make_holes(holes) });
    }

    /// Reads a chunk of what is there, and copies it to where the new file has it; says whether there is a target.
    pub(super) fn compare(&self, transfer: TransferId, chunk: ChunkId) -> bool {
        let Some(target) = self.target(transfer).cloned() else { return false };
        let buffers = self.buffers.clone();
        self.run(move || WorkDone::Compared { transfer, chunk, result: target.compare_chunk(chunk, &mut buffers.take()) });
        true
    }

    /// Reads a chunk that the receiver has, for the digest only; says whether there is a source to read it from.
    pub(super) fn hash(&self, transfer: TransferId, chunk: ChunkId) -> bool {
        let Some((source, grid)) = self.source(transfer) else { return false };
        let buffers = self.buffers.clone();
        self.run(move || WorkDone::Hashed { transfer, chunk, result: source.read_chunk(grid, chunk, &mut buffers.take()) });
        true
    }

    /// Verifies and writes a chunk that came by `path`, of a transfer of this grid; what is kept in memory is verified only.
    pub(super) fn write(&self, path: PathId, grid: Grid, header: DataHeader, buffer: ChunkBuffer) {
        let done = self.done.clone();
        match self.open.get(&header.transfer) {
            Some(Work::Target(target)) => {
                let target = target.clone();
                let fault = Fault::of(&done);
                self.pool.run(move || {
                    let _fault = fault;
                    target.write_chunk(Arrived { path, header, buffer }, |Arrived { path, header, .. }, result| {
                        drop(done.blocking_send(Input::Work(WorkDone::Written { path, header, result })));
                    });
                });
            }
            Some(Work::Kept(..)) => self.run(move || verified(path, grid, header, buffer)),
            _ => {}
        }
    }

    /// Whether a chunk is kept in memory and so short that a thread of its own to verify it would take longer than that does.
    pub(super) fn is_verified_at_once(&self, header: &DataHeader) -> bool {
        header.chunk_len() <= AT_ONCE && matches!(self.open.get(&header.transfer), Some(Work::Kept(..)))
    }

    pub(super) fn sync(&self, transfer: TransferId, subtrees: Vec<Subtree>) {
        let Some(target) = self.target(transfer).cloned() else { return };
        self.run(move || WorkDone::Synced { transfer, result: target.sync(subtrees) });
    }

    /// Asks whether the source is what it was; says whether there is one to look at.
    pub(super) fn check(&self, transfer: TransferId) -> bool {
        let Some((source, _)) = self.source(transfer) else { return false };
        self.run(move || WorkDone::Checked { transfer, result: source.check_unchanged() });
        true
    }

    /// Everything has arrived: a file is made durable, whoever takes what is kept in memory is told.
    pub(super) fn commit(&mut self, transfer: TransferId, digest: Digest) {
        match self.open.get_mut(&transfer) {
            Some(Work::Target(target)) => {
                let target = target.clone();
                self.run(move || WorkDone::Committed { transfer, digest, result: target.commit(digest) });
            }
            Some(Work::Kept(kept, keeping)) => {
                keeping.digest = Some(digest);
                kept.end();
            }
            _ => {}
        }
    }

    /// Opens a target of our user.
    pub(super) fn open_local(&self, wanted: LocalTarget, offer: Offer, journal_id: [u8; 16]) {
        self.run(move || {
            let transfer = offer.transfer;
            // A device may be named by a link, as in /dev/disk; elsewhere a link is replaced and not followed.
            let is_device = std::fs::metadata(&wanted.path).is_ok_and(|found| found.file_type().is_block_device());
            let device = is_device.then(|| wanted.path.canonicalize().ok()).flatten();
            let path = device.as_ref().unwrap_or(&wanted.path);
            let made = if wanted.options.parents { make_parents(path) } else { Ok(()) };
            let opened = made.and_then(|()| open_parent(path)).and_then(|(dir, name)| {
                let LocalTarget { options, peer_key, .. } = wanted;
                file::Target::open(TargetRequest { dir, name, offer: &offer, options, peer_key, journal_id, attributes: None })
            });
            WorkDone::TargetOpened { transfer, result: opened.map(|(target, have)| (Arc::new(target.into()), have)) }
        });
    }

    /// Opens a source beneath a daemon's root, for the peer.
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
                let open = move || service.open_source(&name, options).map(|source| source.keep(lease));
                pool.call(open)
                    .await
                    .unwrap_or_else(|| Err(FileError::new("open", "a file", std::io::Error::other("a fault in this program"))))
            };
            let result = opened.await.map(|source| {
                let offer = offer_of(transfer, &source);
                (Arc::new(source), offer)
            });
            let _ = session.inputs.send(Input::Work(WorkDone::SourceOpened { transfer, result })).await;
        });
    }

    /// Runs what says for itself when it is done.
    pub(super) fn aside(&self, job: impl FnOnce() + Send + 'static) {
        self.pool.run(job);
    }

    /// Runs work that is not about an open file of this session.
    pub(super) fn run(&self, job: impl FnOnce() -> WorkDone + Send + 'static) {
        self.pool.run(self.reporting(job));
    }

    /// The same job, which then tells its session what it did.
    fn reporting(&self, job: impl FnOnce() -> WorkDone + Send + 'static) -> impl FnOnce() + Send + 'static {
        let done = self.done.clone();
        let fault = Fault::of(&done);
        move || {
            let _fault = fault;
            // Nobody listens any more when the session has ended: then what was done does not matter either.
            drop(done.blocking_send(Input::Work(job())));
        }
    }
}

/// Verifies a chunk that is kept in memory.
pub(super) fn verified(path: PathId, grid: Grid, header: DataHeader, buffer: ChunkBuffer) -> WorkDone {
    let mut arrived = Arrived { path, header, buffer };
    let result = arrived.verify(grid);
    WorkDone::Verified { path, header, buffer: arrived.buffer, result }
}

/// Longest chunk that is verified in the session's own task, in bytes: some 10 µs, as long as it takes to have a thread do it.
const AT_ONCE: u32 = 64 << 10;

/// Tells a session of work for it, on a thread or in a task, that panicked and of which it would hear nothing: it ends, and no other.
pub(crate) struct Fault(mpsc::Sender<Input>);

impl Fault {
    pub(crate) fn of(session: &mpsc::Sender<Input>) -> Self {
        Self(session.clone())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let source = std::io::Error::other("a fault in this program");
            let error = Error::System { what: "go on with the session", source };
            let (session, told) = (self.0.clone(), Input::Command(Command::GiveUp(Box::new(error))));
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(async move { drop(session.send(told).await) })),
                Err(_) => drop(session.blocking_send(told)),
            }
        }
    }
}

/// Returns the offer of an open source.
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

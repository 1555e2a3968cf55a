//! Target of a received file: in the file system, or in a [`Storage`].

use std::{
    io,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use nicstripe_proto::{
    ChainingValue, ChunkId, Digest, ETag, Extent, FailCode, Grid, HoleMap, Name, ObjectAttributes,
    Offer, Subtree,
    message::{OfferKind, PutOptions},
};
use parking_lot::Mutex;

use super::backend::{PartRequest, Replace, Storage, StoredPart};
use crate::{
    file::{
        self, Arrived, COPIED_AT_ONCE, ChunkBuffer, CommitStage, FileError, Hashing, Lease, Rehash,
        Source, WriteError, grid_of, mode_of, umask,
    },
    trust::PublicKey,
};

/// Opened target, with the subtrees of the file that are already durable.
pub(crate) type TargetOpened = (Target, Vec<Subtree>);

/// File that is being received, not yet complete under its name.
#[derive(Debug)]
pub(crate) struct Target {
    /// Name of the file for display.
    pub(crate) shown: String,
    pub(crate) grid: Grid,
    /// True if the sender will announce holes.
    pub(crate) awaits_holes: bool,
    data: Data,
    /// Leases of descriptors and memory. Declared last, so that they are released after the files
    /// are closed.
    leases: Vec<Lease>,
}

/// Destination of the received data.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a transfer, and the large one is the usual one"
)]
enum Data {
    /// File in the file system; supports holes, delta and in-place writes.
    File(file::Target),
    /// File in a [`Storage`]. It need not create holes, since unwritten bytes read as zeros.
    Stored(StoredTarget),
}

impl From<file::Target> for Target {
    fn from(target: file::Target) -> Self {
        Self {
            shown: target.shown.clone(),
            grid: target.grid,
            awaits_holes: target.awaits_holes(),
            data: Data::File(target),
            leases: Vec::new(),
        }
    }
}

/// File that is being received into a [`Storage`], with its state in the session.
#[derive(Debug)]
struct StoredTarget {
    part: Box<dyn StoredPart>,
    shown: String,
    grid: Grid,
    /// True to read the content back and compare its hash before the commit.
    verify: bool,
    /// Greatest end offset of the data written so far, in bytes.
    end: AtomicU64,
    /// Lock that serializes syncs and the commit; true once the part is committed or discarded.
    /// Later syncs then have no effect.
    is_closed: Mutex<bool>,
    /// True once a sync has failed: the data is no longer trusted.
    poisoned: AtomicBool,
    /// True if the storage has durable data from which a transfer can resume.
    has_durable: AtomicBool,
    /// Entity tag of the committed file.
    etag: Mutex<Option<ETag>>,
}

impl Target {
    /// Starts or resumes the reception of a file into a [`Storage`].
    pub(super) fn begin(
        storage: &dyn Storage,
        name: &Name,
        offer: &Offer,
        options: PutOptions,
        attributes: Option<&ObjectAttributes>,
        peer: PublicKey,
    ) -> Result<TargetOpened, FileError> {
        if options.slice.is_some() {
            let why = "this daemon's storage writes no ranges of files";
            return Err(FileError::refused("receive", name, why));
        }
        if attributes.is_some() && !storage.keeps_attributes() {
            let why = "this daemon's storage keeps no attributes";
            return Err(FileError::refused("receive", name, why));
        }
        let grid = grid_of(offer);
        let request = PartRequest {
            name,
            peer,
            size: (!grid.is_open()).then_some(grid.size),
            origin: origin_of(offer, grid, peer),
            // Neither delta nor in-place writes are supported: the whole file replaces the existing
            // one.
            replace: match options.only_if {
                Some(tag) => Replace::IfTag(tag),
                None if options.replace || options.delta || options.in_place => Replace::Always,
                None => Replace::Never,
            },
            restart: options.restart || grid.is_open(),
            mode: mode_of(offer, options, umask()),
            attributes,
            modified: (options.preserve || options.times)
                .then(|| offer.source.mtime.to_system_time())
                .flatten(),
        };
        let (part, have) = storage.begin(&request)?;
        let target = StoredTarget {
            part,
            shown: name.to_string(),
            grid,
            verify: options.verify,
            end: AtomicU64::new(0),
            is_closed: Mutex::default(),
            poisoned: AtomicBool::new(false),
            has_durable: AtomicBool::new(!have.is_empty()),
            etag: Mutex::default(),
        };
        let target = Self {
            shown: target.shown.clone(),
            grid,
            awaits_holes: offer.data.is_some(),
            data: Data::Stored(target),
            leases: Vec::new(),
        };
        Ok((target, have))
    }

    /// Attaches leases of descriptors and memory, which are released when the target is closed.
    pub(crate) fn keep(mut self, leases: impl IntoIterator<Item = Lease>) -> Self {
        self.leases.extend(leases);
        self
    }

    /// Returns the number of leading chunks to compare with the existing file in a delta transfer;
    /// `None` for other transfers.
    pub(crate) fn delta(&self) -> Option<u64> {
        self.file()?.delta()
    }

    /// Makes the announced holes read as zeros.
    pub(crate) fn make_holes(&self, holes: HoleMap) -> Result<(), FileError> {
        self.file().map_or(Ok(()), |file| file.make_holes(holes))
    }

    /// Copies a chunk of the existing file into the new one and returns its hash. Returns `None` if
    /// the chunk cannot be read.
    pub(crate) fn compare_chunk(
        &self,
        chunk: ChunkId,
        buffer: &mut ChunkBuffer,
    ) -> Result<Option<ChainingValue>, FileError> {
        self.file()
            .map_or(Ok(None), |file| file.compare_chunk(chunk, buffer))
    }

    /// Verifies a chunk against its header, writes it and reports the result. May also report other
    /// chunks that arrived meanwhile. Returns true if the caller must continue with
    /// [`Target::write_queued`], after other jobs.
    pub(crate) fn write_chunk(
        &self,
        arrived: Arrived,
        report: impl Fn(Arrived, Result<(), WriteError>),
    ) -> bool {
        match &self.data {
            Data::File(target) => target.write_chunk(arrived, report),
            Data::Stored(target) => {
                let mut arrived = arrived;
                let result = target.write_chunk(&mut arrived);
                report(arrived, result);
                false
            }
        }
    }

    /// Writes chunks that arrived meanwhile. Returns true if the caller must continue, after other
    /// jobs.
    pub(crate) fn write_queued(&self, report: impl Fn(Arrived, Result<(), WriteError>)) -> bool {
        self.file().is_some_and(|file| file.write_queued(report))
    }

    /// Makes all written data durable, then records `subtrees` as durable.
    pub(crate) fn sync(&self, subtrees: Vec<Subtree>) -> Result<(), FileError> {
        match &self.data {
            Data::File(target) => target.sync(subtrees),
            Data::Stored(target) => target.sync(&subtrees),
        }
    }

    /// Begins to hash a file that an earlier attempt has completed; `None` for other targets.
    pub(crate) fn rehash(&self) -> Option<Rehash> {
        self.file()?.rehash()
    }

    /// Continues to hash a complete file. Returns the durable subtrees at its end.
    pub(crate) fn rehash_turn(
        &self,
        rehash: &mut Rehash,
    ) -> Result<ControlFlow<Vec<Subtree>>, FileError> {
        match self.file() {
            Some(file) => file.rehash_turn(rehash),
            None => Ok(ControlFlow::Break(Vec::new())),
        }
    }

    /// Copies bytes of `source` to the offset `to` of this target. Returns their number, at least 1.
    pub(crate) fn copy_from(
        &self,
        source: &Source,
        extent: Extent,
        to: u64,
    ) -> Result<u64, FileError> {
        match &self.data {
            Data::File(target) => target.copy_from(source, extent, to),
            Data::Stored(target) => target.copy_from(source, extent, to),
        }
    }

    /// Writes bytes that no session has received, at the offset `at`.
    pub(crate) fn write_all_at(&self, bytes: &[u8], at: u64) -> Result<(), FileError> {
        match &self.data {
            Data::File(target) => target
                .write_all_at(bytes, at)
                .map_err(|cause| FileError::new("write", &self.shown, cause)),
            Data::Stored(target) => target.write_all_at(bytes, at),
        }
    }

    /// Syncs what was copied so far, so that the commit has less to sync. A storage syncs on its own.
    pub(crate) fn sync_copied(&self) -> Result<(), FileError> {
        self.file().map_or(Ok(()), file::Target::sync_copied)
    }

    /// Continues to make the complete file durable under its name. `digest` is the hash that both
    /// ends computed.
    pub(crate) fn commit_turn(
        &self,
        digest: Digest,
        stage: &mut CommitStage,
    ) -> Result<ControlFlow<()>, FileError> {
        match &self.data {
            Data::File(target) => target.commit_turn(digest, stage),
            Data::Stored(target) => target.commit_turn(digest, stage),
        }
    }

    /// Runs all turns of the commit of a file that was filled here, with its digest if that is known.
    /// Nothing compares it without `verify`. Returns the entity tag.
    pub(crate) fn commit(&self, digest: Option<Digest>) -> Result<Option<ETag>, FileError> {
        let digest = digest.unwrap_or(Digest::NONE);
        let mut stage = CommitStage::default();
        while self.commit_turn(digest, &mut stage)?.is_continue() {}
        Ok(self.etag())
    }

    /// Returns the entity tag of a committed file; `None` if it is unknown.
    pub(crate) fn etag(&self) -> Option<ETag> {
        match &self.data {
            Data::File(target) => target.etag(),
            Data::Stored(target) => *target.etag.lock(),
        }
    }

    fn file(&self) -> Option<&file::Target> {
        match &self.data {
            Data::File(file) => Some(file),
            Data::Stored(_) => None,
        }
    }

    /// Returns the error of an operation that ends with its session.
    pub(crate) fn stopped(&self) -> FileError {
        let cause = io::Error::other("the session has ended");
        FileError::new("receive", &self.shown, cause)
            .with_code(FailCode::Cancelled)
            .resumable_if(self.is_resumable())
    }

    pub(crate) fn discard(&self) {
        match &self.data {
            Data::File(target) => target.discard(),
            Data::Stored(target) => target.discard(&mut target.is_closed.lock()),
        }
    }

    /// Returns true if a later transfer can resume from the durable data.
    pub(crate) fn is_resumable(&self) -> bool {
        match &self.data {
            Data::File(target) => target.is_resumable(),
            Data::Stored(target) => target.is_resumable(),
        }
    }
}

impl StoredTarget {
    fn copy_from(&self, source: &Source, extent: Extent, to: u64) -> Result<u64, FileError> {
        let mut bytes = vec![0; extent.len.min(COPIED_AT_ONCE) as usize];
        source.read_exact_at(&mut bytes, extent.offset)?;
        self.write_all_at(&bytes, to)?;
        Ok(bytes.len() as u64)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> Result<(), FileError> {
        self.part
            .write_all_at(bytes, at)
            .map_err(|cause| self.failed("write", cause))?;
        let end = at + bytes.len() as u64;
        self.end.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    fn write_chunk(&self, arrived: &mut Arrived) -> Result<(), WriteError> {
        arrived.verify(self.grid)?;
        let bytes = arrived.buffer.bytes();
        let Some(extent) = self.grid.extent_of(arrived.header.chunk) else {
            return Err(WriteError::Damaged);
        };
        self.write_all_at(bytes, extent.offset)?;
        Ok(())
    }

    fn sync(&self, subtrees: &[Subtree]) -> Result<(), FileError> {
        let mut is_closed = self.is_closed.lock();
        if *is_closed || subtrees.is_empty() {
            return Ok(());
        }
        self.part.sync(subtrees).map_err(|cause| {
            self.poisoned.store(true, Ordering::Release);
            self.discard(&mut is_closed);
            self.error("sync", cause)
        })?;
        self.has_durable.store(true, Ordering::Release);
        Ok(())
    }

    fn commit_turn(
        &self,
        digest: Digest,
        stage: &mut CommitStage,
    ) -> Result<ControlFlow<()>, FileError> {
        let mut is_closed = self.is_closed.lock();
        if *is_closed || self.poisoned.load(Ordering::Acquire) {
            return Err(self.error("name", io::Error::other("it was discarded before")));
        }
        let size = if self.grid.is_open() {
            self.end.load(Ordering::Acquire)
        } else {
            self.grid.size
        };
        if self.verify && matches!(stage, CommitStage::Begun) {
            *stage = CommitStage::Verifying(Box::new(Hashing::of(size)));
        }
        if let CommitStage::Verifying(hashing) = stage {
            match self.read_back(hashing)? {
                ControlFlow::Continue(()) => return Ok(ControlFlow::Continue(())),
                ControlFlow::Break(found) if found == digest => {}
                ControlFlow::Break(_) => {
                    self.discard(&mut is_closed);
                    let cause =
                        io::Error::other("the storage does not return what was written to it");
                    return Err(self.error("verify", cause).with_code(FailCode::Digest));
                }
            }
        }
        let identity = self.part.commit(size)?;
        *is_closed = true;
        *self.etag.lock() = identity.map(|identity| identity.etag());
        Ok(ControlFlow::Break(()))
    }

    fn read_back(&self, hashing: &mut Hashing) -> Result<ControlFlow<Digest>, FileError> {
        hashing
            .turn(|bytes, offset| self.part.read_exact_at(bytes, offset))
            .map_err(|cause| self.failed("read back", cause))
    }

    fn discard(&self, is_closed: &mut bool) {
        if !std::mem::replace(is_closed, true) {
            self.part.discard();
        }
    }

    fn is_resumable(&self) -> bool {
        !self.grid.is_open() && !self.poisoned.load(Ordering::Acquire)
    }

    /// Returns the error of an operation after which a later attempt may resume.
    fn failed(&self, operation: &'static str, cause: io::Error) -> FileError {
        self.error(operation, cause)
            .resumable_if(self.is_resumable())
    }

    fn error(&self, operation: &'static str, cause: io::Error) -> FileError {
        FileError::new(operation, &self.shown, cause)
    }
}

/// Discards the data if no later transfer can resume from it.
impl Drop for StoredTarget {
    fn drop(&mut self) {
        if self.grid.is_open() || !self.has_durable.load(Ordering::Acquire) {
            self.discard(&mut self.is_closed.lock());
        }
    }
}

/// Returns a hash of all properties of source, chunk grid and peer that must be equal to resume a
/// part.
fn origin_of(offer: &Offer, grid: Grid, peer: PublicKey) -> [u8; 32] {
    let source = &offer.source;
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(b"nicstripe origin of a part 1")
        .update(peer.as_bytes());
    let numbers = [
        source.mtime.seconds as u64,
        source.ctime.seconds as u64,
        grid.size,
        grid.chunk_size.bytes(),
        source.size,
        source.mtime.nanoseconds.into(),
        source.ctime.nanoseconds.into(),
        source.inode,
        source.device,
        u64::from(offer.kind == Some(OfferKind::Pipe)),
    ];
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

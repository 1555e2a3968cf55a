//! Disk stages of a copy, measured separately: reads a source without sending it, and writes a
//! target from memory.
//!
//! Both use the code and the thread count of copies: the hashing reader, and the target with part
//! file, journal, direct writes and syncs. The functions block the calling thread. Files have no
//! name while they are written, so that a killed process leaves none.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    num::NonZero,
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Instant,
};

use nicstripe_bench::Moved;
use nicstripe_link::file_system;
use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkSize, DataHeader, FailCode, Grid, Name, Offer, PathId,
    SessionConfig, SourceIdentity, Subtree, TransferId,
    hash_tree::chunk_value,
    message::{DiskDone, DiskOrder, PutOptions},
};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Advice, fadvise};

use super::{
    arrived::{Arrived, WriteError},
    attributes::Attributes,
    buffer::BufferPool,
    error::FileError,
    root::Root,
    source::{ReadOptions, SOURCE_FLAGS, Source, open_here},
    target::{Sidecar, Target, TargetRequest, grid_of, open_parent},
};

/// Runs the disk stage that a client ordered, beneath the daemon's root. Writes at most 64 GiB.
pub(crate) fn serve(
    root: &Root,
    peer_key: [u8; 32],
    order: &DiskOrder,
    stop: &AtomicBool,
) -> Result<DiskDone, FileError> {
    let moved = match (&order.name, order.read) {
        (Some(name), true) => read_stage_beneath(root, name, order.bytes, stop)?,
        (None, true) => return Err(failed("measure", "no source file named")),
        (name, false) => {
            // As for a copy, the file goes into an existing directory.
            let into = name.as_ref().filter(|name| root.is_directory(name));
            let named = name.as_ref().filter(|_| into.is_none());
            let no_name = || Ok((root.open_directory(into)?, OsStr::new(NO_NAME)));
            let parent = named.map_or_else(no_name, |name| root.open_parent_for_new(name));
            let (dir, name) =
                parent.map_err(|error| FileError::new("open", "the target directory", error))?;
            let bytes = order.bytes.min(MOST_WRITTEN);
            write_stage(stage_request(dir, name, peer_key, bytes), stop)?
        }
    };
    Ok(DiskDone {
        number: order.number,
        bytes: moved.bytes,
        micros: u64::try_from(moved.elapsed.as_micros()).unwrap_or(u64::MAX),
        file_system: moved.file_system,
        error: None,
    })
}

/// Reads the first `bytes` of a local file or block device, or all of a shorter one, bypassing the
/// page cache.
///
/// Evicts its pages from the page cache before and after. Pages that other processes have open or
/// mapped may remain, and the files of a tmpfs exist only in memory.
///
/// # Errors
///
/// The file is unreadable or empty. The source is [`io::ErrorKind::Interrupted`] if `stop` was set.
pub(crate) fn read_stage(path: &Path, bytes: u64, stop: &AtomicBool) -> Result<Moved, FileError> {
    let (file, name) = open_here(path)?;
    read_source(&file, name, bytes, stop)
}

/// Like [`read_stage`], for a file beneath a daemon's root.
pub(crate) fn read_stage_beneath(
    root: &Root,
    name: &Name,
    bytes: u64,
    stop: &AtomicBool,
) -> Result<Moved, FileError> {
    let file = root
        .open_file(name, SOURCE_FLAGS)
        .map_err(|error| FileError::new("open", name, error))?;
    read_source(&file.into(), name.to_string(), bytes, stop)
}

/// Reads and hashes the first `bytes` of an open file; `name` is for display.
fn read_source(
    file: &File,
    name: String,
    bytes: u64,
    stop: &AtomicBool,
) -> Result<Moved, FileError> {
    let handle = file
        .try_clone()
        .map_err(|error| FileError::new("open", &name, error))?;
    let source = Source::of(handle, name, ReadOptions::default())?;
    let size = source.identity.size.min(bytes);
    if size == 0 {
        return Err(failed("measure", "the file is empty"));
    }
    // The grid covers the whole file: reading part of the last chunk would change how it is hashed,
    // unlike in a copy.
    let grid = Grid::new(source.identity.size, ChunkSize::DEFAULT);
    // Dirty pages cannot be dropped.
    let _ = file.sync_data();
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    let chunks = size.div_ceil(ChunkSize::DEFAULT.bytes());
    let buffers = BufferPool::default();
    let read = AtomicU64::new(0);
    let began = Instant::now();
    side_by_side(chunks, stop, |chunk| {
        let mut buffer = buffers.take();
        source.read_chunk(grid, chunk, &mut buffer)?;
        read.fetch_add(buffer.bytes().len() as u64, Ordering::Relaxed);
        Ok(())
    })?;
    let elapsed = began.elapsed();
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    Ok(Moved {
        bytes: read.into_inner(),
        elapsed,
        file_system: file_system(file),
    })
}

/// Writes random data like a receiver, syncs it and deletes the file. The measured time ends when
/// the data is durable.
///
/// Before the first write, part file and journal briefly have the names of this peer's copy to this
/// name. A kill at that moment leaves them empty; the next copy or write stage of that name removes
/// them.
///
/// # Errors
///
/// The file system has too little space, or the name is a directory. Another transfer is writing to
/// that name, or an interrupted copy to it would lose its resume state. The source is
/// [`io::ErrorKind::Interrupted`] if `stop` was set.
fn write_stage(request: TargetRequest, stop: &AtomicBool) -> Result<Moved, FileError> {
    let bytes = request.offer.source.size;
    if bytes == 0 {
        return Err(failed("measure", "nothing to write"));
    }
    let file_system = file_system(&request.dir);
    let writer = Writer::open(request, stop)?;
    let began = Instant::now();
    writer.write(stop)?;
    Ok(Moved {
        bytes,
        elapsed: began.elapsed(),
        file_system,
    })
}

/// Writes `bytes` of random data like [`write_stage`], to a local file or directory.
pub(crate) fn write_stage_here(
    file: &Path,
    bytes: u64,
    stop: &AtomicBool,
) -> Result<Moved, FileError> {
    let into = file.join(NO_NAME);
    let (dir, name) = open_parent(if file.is_dir() { &into } else { file })?;
    write_stage(stage_request(dir, name, [0; 32], bytes), stop)
}

/// Copy target that is written from memory, and the progress of its writes.
struct Writer {
    target: Target,
    /// Random content of each chunk, so that no file system compresses it.
    block: Vec<u8>,
    /// Hash of each chunk, as a sender would provide it.
    values: Vec<ChainingValue>,
    buffers: BufferPool,
    progress: Mutex<Progress>,
    changed: Condvar,
    /// Start of the last sync, locked during a sync.
    sync_began: Mutex<Instant>,
}

#[derive(Default)]
struct Progress {
    /// Number of chunks that are being written or queued for writing.
    under_way: usize,
    /// Chunks written since the last sync began, with their hashes.
    unsynced: Vec<Subtree>,
    error: Option<FileError>,
}

/// Returns the request of a stage to write `bytes` bytes. Name and key also identify an interrupted
/// copy of the peer. An existing file of that name is not modified.
fn stage_request(dir: OwnedFd, name: &OsStr, peer_key: [u8; 32], bytes: u64) -> TargetRequest {
    TargetRequest {
        dir,
        name: name.to_owned(),
        offer: Offer {
            transfer: TRANSFER,
            source: SourceIdentity {
                size: bytes,
                ..SourceIdentity::default()
            },
            chunk_log2: CHUNK_LOG2,
            mode: 0o600,
            kind: None,
            data: None,
            object: None,
        },
        options: PutOptions {
            replace: true,
            restart: true,
            trial: true,
            ..PutOptions::default()
        },
        peer_key,
        // Opened as part of a tree, which rejects a device of that name.
        attributes: Some(Attributes::default()),
        sidecar: Sidecar::None,
    }
}

impl Writer {
    fn open(request: TargetRequest, stop: &AtomicBool) -> Result<Self, FileError> {
        let grid = grid_of(&request.offer);
        let (target, _) = Target::open(request)?;
        let mut block = Vec::with_capacity(CHUNK_LEN);
        while block.len() < CHUNK_LEN {
            block.extend(crate::trust::random::random_bytes::<4096>());
        }
        let value = |number| {
            if stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let len = grid
                .extent_of(ChunkId(number))
                .map_or(0, |extent| extent.len as usize);
            chunk_value(grid, ChunkId(number), &block[..len])
                .map_err(|cause| FileError::new("measure", "the target", io::Error::other(cause)))
        };
        let values = (0..grid.chunk_count())
            .map(value)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            target,
            block,
            values,
            buffers: BufferPool::default(),
            progress: Mutex::default(),
            changed: Condvar::new(),
            sync_began: Mutex::new(Instant::now()),
        })
    }

    /// Writes all chunks to the target and makes them durable.
    fn write(&self, stop: &AtomicBool) -> Result<(), FileError> {
        side_by_side(self.values.len() as u64, stop, |chunk| {
            self.write_chunk(chunk)?;
            self.sync_if_due()
        })?;
        let mut progress = self.progress.lock();
        if let Some(error) = progress.error.take() {
            return Err(error);
        }
        self.target.sync(std::mem::take(&mut progress.unsynced))
    }

    fn write_chunk(&self, chunk: ChunkId) -> Result<(), FileError> {
        let index = usize::try_from(chunk.0).unwrap_or(usize::MAX);
        let Some(value) = self.values.get(index).copied() else {
            return Ok(());
        };
        {
            let mut progress = self.progress.lock();
            self.changed.wait_while(&mut progress, |progress| {
                progress.under_way >= MOST_UNDER_WAY
            });
            if let Some(error) = progress.error.take() {
                return Err(error);
            }
            progress.under_way += 1;
        }
        let rest = self.target.grid.size - chunk.0 * CHUNK_LEN as u64;
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(CHUNK_LEN);
        let mut buffer = self.buffers.take();
        buffer.bytes_mut(len).copy_from_slice(&self.block[..len]);
        let header = DataHeader {
            transfer: TRANSFER,
            chunk,
            value,
            len: len as u32,
            raw_len: 0,
            last: false,
        };
        let report = |arrived: Arrived, result: Result<(), WriteError>| {
            let mut progress = self.progress.lock();
            progress.under_way -= 1;
            match result {
                Ok(()) => progress.unsynced.push(Subtree::of_chunk(
                    arrived.header.chunk,
                    arrived.header.value,
                )),
                Err(WriteError::File(error)) => progress.error = Some(error),
                Err(WriteError::Damaged) => {
                    progress.error = Some(failed("write", "a chunk changed in memory"));
                }
            }
            drop(progress);
            self.changed.notify_all();
        };
        let arrived = Arrived {
            path: PathId(0),
            header,
            buffer,
        };
        let mut is_left = self.target.write_chunk(arrived, report);
        while is_left {
            is_left = self.target.write_queued(report);
        }
        Ok(())
    }

    /// Syncs the target like a session: when `sync_bytes` were written or `sync_interval` has
    /// elapsed since the last sync began, one sync at a time.
    fn sync_if_due(&self) -> Result<(), FileError> {
        let config = SessionConfig::default();
        let Some(mut began) = self.sync_began.try_lock() else {
            return Ok(());
        };
        let mut progress = self.progress.lock();
        let unsynced = (progress.unsynced.len() * CHUNK_LEN) as u64;
        if unsynced < config.sync_bytes && began.elapsed() < config.sync_interval {
            return Ok(());
        }
        let batch = std::mem::take(&mut progress.unsynced);
        drop(progress);
        *began = Instant::now();
        if batch.is_empty() {
            return Ok(());
        }
        self.target.sync(batch)
    }
}

/// Runs `work` for each chunk index below `count` on several threads, in approximate order. Returns
/// the first error.
fn side_by_side(
    count: u64,
    stop: &AtomicBool,
    work: impl Fn(ChunkId) -> Result<(), FileError> + Sync,
) -> Result<(), FileError> {
    let next = AtomicU64::new(0);
    let each = || -> Result<(), FileError> {
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= count {
                return Ok(());
            }
            let done = if stop.load(Ordering::Relaxed) {
                Err(stopped())
            } else {
                work(ChunkId(chunk))
            };
            // Ends the other threads as well.
            done.inspect_err(|_| next.store(count, Ordering::Relaxed))?;
        }
    };
    let threads = thread::available_parallelism()
        .map_or(FEWEST_THREADS, NonZero::get)
        .clamp(FEWEST_THREADS, MOST_THREADS);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(each)).collect();
        let ended = running.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(failed("measure", "internal error")))
        });
        // Collecting joins all threads.
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

fn failed(operation: &'static str, why: &'static str) -> FileError {
    FileError::new(operation, "the disk", io::Error::other(why))
}

fn stopped() -> FileError {
    FileError::new("measure", "the disk", io::ErrorKind::Interrupted.into())
        .with_code(FailCode::Cancelled)
}

/// Name of the target file if the client's order names a directory or nothing.
const NO_NAME: &str = "nicstripe-bench";
/// Maximum number of bytes that a client can make the daemon write.
const MOST_WRITTEN: u64 = 64 << 30;
const TRANSFER: TransferId = TransferId(0);
const CHUNK_LOG2: u8 = 18;
const CHUNK_LEN: usize = 1 << CHUNK_LOG2;
/// Maximum number of chunks in flight: the credit of one path.
const MOST_UNDER_WAY: usize = 32;
/// Minimum number of threads per stage, as for copies: see [`crate::file::IoPool`].
const FEWEST_THREADS: usize = 2;
const MOST_THREADS: usize = 8;

#[cfg(test)]
mod tests;

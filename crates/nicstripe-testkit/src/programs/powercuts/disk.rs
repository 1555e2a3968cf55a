//! Simulated disk that logs its writes and flushes: one file, served by FUSE, below a loop device.
//!
//! After logging, [`Disk::lose_power`] can simulate any number of power failures. It sets the
//! disk's content to the state after a failure at a given log position. Writes before the last
//! flush are durable. [`Loss`] defines which of the later writes the disk keeps. Each simulated
//! failure discards everything written after the one before it.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use crate::bench::Result;

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use nicstripe_sim::Rng;

/// Simulated disk. Dropping it unmounts its FUSE file system, which must not be in use by then.
pub struct Disk {
    shared: Arc<Shared>,
    path: PathBuf,
    _session: BackgroundSession,
}

/// Part of the writes since the last flush that a power failure loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Loses all writes since the last flush.
    All,
    /// Loses the writes after a random moment, and a part of the write in progress.
    Tail,
    /// Loses about half of the blocks of 4 KiB, at random: a disk's cache does not preserve order.
    ///
    /// The unit is not the sector of 512 bytes: ext4 and btrfs do not always survive the loss of
    /// single sectors, and then cannot be mounted.
    Blocks,
}

/// Position in the log: the number of preceding entries (writes and flushes).
pub type Position = usize;

impl Disk {
    /// Serves `image` as the only file of a FUSE file system mounted on `folder`. Starts logging.
    pub fn serve(image: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let image = File::options().read(true).write(true).open(image)?;
        let size = image.metadata()?.len();
        let state = State {
            image,
            overlay: HashMap::new(),
            log: Vec::new(),
            logged_bytes: 0,
            is_logging: true,
            applied: 0,
            users: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            released: Condvar::new(),
            size,
        });
        let session = fuser::spawn_mount(Server(Arc::clone(&shared)), folder, &Config::default())
            .map_err(|error| format!("cannot mount a FUSE file system: {error}"))?;
        Ok(Self {
            shared,
            path: folder.join(NAME),
            _session: session,
        })
    }

    /// Returns the path of the served file, to which a loop device can be attached.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the position of the log's end.
    pub fn position(&self) -> Position {
        self.shared.lock().log.len()
    }

    /// Returns the number of bytes written while logging.
    pub fn logged_bytes(&self) -> u64 {
        self.shared.lock().logged_bytes
    }

    /// Stops logging, and returns the position of the log's end.
    pub fn stop_logging(&self) -> Position {
        let mut state = self.shared.lock();
        state.is_logging = false;
        state.log.len()
    }

    /// Sets the disk's content to the state after a power failure at `position`. Positions must not
    /// decrease between calls.
    ///
    /// Waits until the loop device is released. Returns the number of lost blocks.
    pub fn lose_power(&self, position: Position, loss: Loss, rng: &mut Rng) -> Result<Lost> {
        let mut state = self.released()?;
        state.overlay.clear();
        let is_flush = |entry: &Entry| matches!(entry, Entry::Flush);
        let flushed = state.log[..position]
            .iter()
            .rposition(is_flush)
            .unwrap_or(0);
        if flushed < state.applied {
            return Err(format!("cut at {position} after a later one at {}", state.applied).into());
        }
        for entry in &state.log[state.applied..flushed] {
            if let Entry::Write { offset, bytes } = entry {
                state.image.write_all_at(bytes, *offset)?;
            }
        }
        state.applied = flushed;
        let cached: Vec<Piece> = state.log[flushed..position]
            .iter()
            .enumerate()
            .flat_map(|(at, entry)| pieces(flushed + at, entry))
            .collect();
        let kept = match loss {
            Loss::All => Vec::new(),
            Loss::Tail => cached[..rng.below(cached.len() as u64 + 1) as usize].to_vec(),
            Loss::Blocks => cached
                .iter()
                .filter(|_| rng.below(2) == 0)
                .cloned()
                .collect(),
        };
        for Piece { entry, range } in &kept {
            let state = &mut *state;
            if let Entry::Write { offset, bytes } = &state.log[*entry] {
                write_over(
                    &state.image,
                    &mut state.overlay,
                    offset + range.start as u64,
                    &bytes[range.clone()],
                )?;
            }
        }
        Ok(Lost {
            lost: cached.len() - kept.len(),
            of: cached.len(),
        })
    }

    /// Waits until the loop device is released, because its cache would hide the changed content.
    fn released(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.shared.lock();
        let (state, timeout) = self
            .shared
            .released
            .wait_timeout_while(state, RELEASE_TIMEOUT, |state| state.users > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            Err("the loop device is still in use".into())
        } else {
            Ok(state)
        }
    }

    /// Formats the number of logged writes and flushes, and the MiB written.
    pub fn summary(&self) -> String {
        let state = self.shared.lock();
        let flushes = state
            .log
            .iter()
            .filter(|entry| matches!(entry, Entry::Flush))
            .count();
        format!(
            "{} writes of {} MiB, {flushes} flushes",
            state.log.len() - flushes,
            state.logged_bytes >> 20
        )
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Number of blocks that a power failure lost, and number of blocks at risk.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Number of blocks that the power failure lost.
    pub lost: usize,
    /// Number of blocks at risk: written since the last flush.
    pub of: usize,
}

/// Part of a logged write within one block, which a power failure keeps or loses as a whole.
#[derive(Clone, Debug)]
struct Piece {
    entry: Position,
    range: std::ops::Range<usize>,
}

/// Splits a logged write at block boundaries. Returns nothing for a flush.
fn pieces(entry: Position, logged: &Entry) -> Vec<Piece> {
    let Entry::Write { offset, bytes } = logged else {
        return Vec::new();
    };
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let at = (offset + start as u64) as usize % BLOCK;
        let end = (start + BLOCK - at).min(bytes.len());
        pieces.push(Piece {
            entry,
            range: start..end,
        });
        start = end;
    }
    pieces
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
    size: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0),
            FILE => (FileType::RegularFile, self.size),
            _ => return None,
        };
        let epoch = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / SECTOR,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        })
    }
}

#[derive(Debug)]
struct State {
    /// Image with the durable content: all writes before the flush at log position `applied`.
    image: File,
    /// Blocks whose current content differs from the image.
    overlay: Overlay,
    log: Vec<Entry>,
    logged_bytes: u64,
    is_logging: bool,
    applied: Position,
    /// Number of open handles of the disk's file.
    users: u32,
}

/// Content of blocks that differ from the image, by block index.
type Overlay = HashMap<u64, Box<[u8]>>;

#[derive(Debug)]
enum Entry {
    Write { offset: u64, bytes: Box<[u8]> },
    Flush,
}

/// Writes bytes to the overlay and leaves the image unchanged.
fn write_over(image: &File, overlay: &mut Overlay, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let (block, start) = block_and_start(offset + done as u64);
        let len = (BLOCK - start).min(bytes.len() - done);
        let content = match overlay.entry(block) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut content = vec![0; BLOCK];
                image.read_exact_at(&mut content, block * BLOCK as u64)?;
                entry.insert(content.into())
            }
        };
        content[start..start + len].copy_from_slice(&bytes[done..done + len]);
        done += len;
    }
    Ok(())
}

/// Returns the index of the block that contains `offset`, and the offset within the block.
fn block_and_start(offset: u64) -> (u64, usize) {
    (offset / BLOCK as u64, (offset % BLOCK as u64) as usize)
}

impl State {
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.image.read_exact_at(&mut bytes, offset)?;
        let mut done = 0;
        while done < len {
            let (block, start) = block_and_start(offset + done as u64);
            let part = (BLOCK - start).min(len - done);
            if let Some(content) = self.overlay.get(&block) {
                bytes[done..done + part].copy_from_slice(&content[start..start + part]);
            }
            done += part;
        }
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_over(&self.image, &mut self.overlay, offset, bytes)?;
        if self.is_logging {
            self.logged_bytes += bytes.len() as u64;
            self.log.push(Entry::Write {
                offset,
                bytes: bytes.into(),
            });
        }
        Ok(())
    }
}

/// FUSE server of the disk's file. Hole punching and similar operations are unsupported; the loop
/// device does not need them.
struct Server(Arc<Shared>);

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self
            .0
            .attributes(FILE)
            .filter(|_| parent == INodeNo::ROOT && name == NAME)
        {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attributes(inode) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.0.lock().users += 1;
        // Bypasses the page cache, so that each write arrives at once as a FUSE message.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
        self.0.lock().users -= 1;
        self.0.released.notify_all();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = u64::from(len).min(self.0.size.saturating_sub(at));
        match self.0.lock().read(at, len as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let fits = offset
            .checked_add(bytes.len() as u64)
            .is_some_and(|end| end <= self.0.size);
        match if fits {
            self.0.lock().write(offset, bytes)
        } else {
            Err(io::ErrorKind::StorageFull.into())
        } {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.0.lock();
        if state.is_logging {
            state.log.push(Entry::Flush);
        }
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // FUSE sends this on close(2), from which programs do not expect durability.
        reply.ok();
    }
}

const FILE: INodeNo = INodeNo(2);
const NAME: &str = "disk";

/// Time for which the kernel may cache attributes, which never change.
const TTL: Duration = Duration::from_secs(3600);

/// Size of a block in bytes. A power failure keeps or loses a write to a block as a whole.
const BLOCK: usize = 4096;

/// Unit of `st_blocks` in stat(2), in bytes.
const SECTOR: u64 = 512;

/// Timeout for the release of the loop device by a kernel thread. A release takes milliseconds.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

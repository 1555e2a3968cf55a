//! Files being received: hidden until complete, durable and verified.
//!
//! In the target's directory, for a file `a.bin`:
//!
//! ```text
//! .a.bin.<peer>.nicstripe-journal    durable extents; locked by the transfer that writes it
//! .a.bin.<journal>.nicstripe-part    data; one part file per journal, so the two always match
//! ```
//!
//! A file written in place, and a block device, has neither: see [`TargetState`].
//!
//! Order of a commit: data durable → mode and times → fsync → rename → fsync of the directory →
//! acknowledgement. A failed fsync is never retried, because the kernel drops pages it could not
//! write: the part file is then worthless.

mod commit;
mod copying;
mod named;
mod slice;
mod spare;

pub(crate) use self::{commit::CommitStage, copying::COPIED_AT_ONCE, named::Rehash};
use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt as _, MetadataExt, OpenOptionsExt},
        },
    },
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use nicstripe_proto::{
    ChunkSize, Extent, FailCode, Grid, ObjectAttributes, Offer, Subtree,
    journal::{Header, JournalId, Replayed},
    message::{OfferKind, PutOptions, Slice},
    name::escaped,
};
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, Stat, fallocate, fchmod, fstat, fstatvfs,
    openat, statat, unlinkat,
};

use self::{
    named::find_named,
    spare::{Basis, Spared},
};
use super::{
    arrived::{Arrived, WriteError},
    attributes::{Attributes, SET_ID_BITS, creation_mask, mode_of, umask},
    beneath::{Inode, inode_of, is_tmpfs, open_entry},
    disk,
    error::FileError,
    hidden::hidden_name,
    journal::{JournalFile, earlier_source, remove_earlier},
    kept,
    lock::Locked,
    names::NameChange,
    ours::Others,
    pool::TURN,
    root::exists,
};
use crate::trust::random::random_bytes;

/// File to receive into a directory.
#[derive(Debug)]
pub(crate) struct TargetRequest {
    pub(crate) dir: OwnedFd,
    pub(crate) name: OsString,
    pub(crate) offer: Offer,
    pub(crate) options: PutOptions,
    pub(crate) peer_key: [u8; 32],
    /// Attributes of a file in a tree; `None` takes them from offer and options.
    pub(crate) attributes: Option<Attributes>,
    pub(crate) sidecar: Sidecar,
}

/// Data kept next to a finished file.
#[derive(Debug)]
pub(crate) enum Sidecar {
    None,
    /// Its digest, and attributes if it shall have any.
    Kept(Option<ObjectAttributes>),
}

impl TargetRequest {
    fn error(&self, operation: &'static str) -> impl Fn(io::Error) -> FileError {
        move |cause| FileError::new(operation, escaped(self.name.as_bytes()), cause)
    }

    /// Returns the error of an operation that another user of the target prevents.
    fn busy(&self, operation: &'static str, why: &'static str) -> FileError {
        self.error(operation)(io::Error::other(why)).with_code(FailCode::Busy)
    }

    /// Removes from an existing file, which gets new content, what belongs to the old one: set-ID
    /// bits, which the kernel keeps when root writes, and the hash.
    fn forget_content(&self, part: &File, stat: &Stat) -> Result<(), FileError> {
        if stat.st_mode & SET_ID_BITS != 0 {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 & !SET_ID_BITS);
            fchmod(part, mode).map_err(|cause| self.error("set the mode of")(cause.into()))?;
        }
        kept::forget(part).map_err(self.error("forget the hash of"))
    }

    fn mask(&self) -> u32 {
        creation_mask(&self.dir, umask())
    }

    /// Returns the permission bits of the finished file; `None` keeps those of the existing file.
    fn final_mode(&self) -> Option<u32> {
        match &self.attributes {
            Some(attributes) => attributes.mode,
            None => Some(mode_of(&self.offer, self.options, self.mask())),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Target {
    /// Request with the attributes of the finished file; `None` keeps those of the existing file.
    request: TargetRequest,
    /// Name of the target for display, escaped.
    pub(crate) shown: String,
    pub(crate) grid: Grid,
    files: Files,
    /// Second descriptor of the part file with `O_DIRECT`, if the file system supports it.
    direct: Option<File>,
    /// True once a sync failed: the part file is no longer trusted.
    poisoned: AtomicBool,
    /// State of the syncs, locked during a sync. The kernel reports a failure only once, so
    /// concurrent syncs must learn of it from this field.
    syncs: Mutex<Syncs>,
    /// Number of bytes written since the last sync began.
    unsynced: AtomicU64,
    /// True while no data is durable. The part file is then deleted on drop, because no transfer
    /// could resume it.
    is_void: AtomicBool,
    /// Chunks queued for the thread that writes through the page cache; `None` if no thread is
    /// writing and none will continue.
    writer: Mutex<Option<VecDeque<Arrived>>>,
}

#[derive(Debug)]
struct Files {
    part: File,
    /// Lock of a file that is written in place; otherwise the journal is locked.
    _lock: Option<Locked>,
    /// Name of the hidden part file; `None` if the data has another place.
    part_name: Option<OsString>,
    /// Name of the journal; `None` for in-place targets.
    journal_name: Option<OsString>,
    /// Journal of durable chunks; `None` for in-place targets, whose data is found by comparison.
    journal: Option<JournalFile>,
    state: TargetState,
    spared: Spared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Syncs {
    #[default]
    Open,
    /// The journal could not be written. The transfer will fail; until then the file must not be
    /// renamed.
    Broken,
    /// All data is durable and the file is about to be renamed: a late sync must not fail the
    /// transfer.
    Closed,
}

/// Location of a target's data while it is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetState {
    /// The data is in a hidden part file, renamed when complete.
    Part,
    /// The data is in an unlinked file of a write benchmark, deleted when closed, even after a
    /// kill.
    Unnamed,
    /// The complete file already has its final name and only needs a sync.
    Named,
    /// The data overwrites the existing file in place.
    File,
    /// The data overwrites a block device in place.
    Device,
    /// The data overwrites a range of a file that other transfers write too.
    Slice(Slice),
}

impl Target {
    /// Opens part file and journal of a target, and returns it with the durable hash-tree nodes.
    ///
    /// Resumes an earlier attempt of the same peer with the same source; otherwise starts from
    /// zero. If that attempt has completed the file, [`Target::rehash`] finds the nodes.
    pub(crate) fn open(mut request: TargetRequest) -> Result<(Self, Vec<Subtree>), FileError> {
        let trial = request.options.trial;
        if trial {
            refuse_interrupted(&request)?;
        }
        let grid = grid_of(&request.offer);
        if let Some(slice) = request.options.slice {
            return slice::open(request, slice, grid);
        }
        let named = find_named(&request, grid).map_err(request.error("look at"))?;
        if let Some(files) = named {
            return Ok((Self::new(request, files, false), Vec::new()));
        }
        if let Some(tag) = request.options.only_if {
            let (dir, name) = (&request.dir, &request.name);
            let shown = escaped(name.as_bytes());
            // The commit checks it again.
            NameChange::of_file(dir, name, Some(tag), "replace", &shown)?;
            request.options.replace = true;
        }
        let existing = refuse_existing(&request)?;
        match existing {
            // In a tree a device is an ordinary name: copying a directory must not overwrite disks.
            Some(FileType::BlockDevice) if request.attributes.is_none() && !trial => {
                return Self::open_in_place(request, TargetState::Device);
            }
            Some(FileType::RegularFile)
                if request.options.in_place && !grid.is_open() && has_one_name(&request)? =>
            {
                return Self::open_in_place(request, TargetState::File);
            }
            // A delta replaces the file present when it began, not one that appears later.
            found => request.options.replace |= found.is_some(),
        }
        let (files, have) = open_hidden(&request, grid)?;
        let mut target = Self::new(request, files, have.is_empty());
        if trial {
            target.discard();
            target.files.state = TargetState::Unnamed;
        }
        let durable = &target.files.spared.durable;
        let extents = durable
            .ranges()
            .filter_map(|range| target.grid.extent_of_range(range));
        let durable = extents.map(|extent| extent.len).sum();
        // An earlier attempt has already allocated this space, used or not.
        let part = target.files.part.metadata();
        let taken = part.map_or(0, |found| found.blocks() * 512).max(durable);
        match target.reserve(target.needed().saturating_sub(taken)) {
            Err(error) if durable > 0 => Err(error.resumable()),
            reserved => reserved.map(|()| (target, have)),
        }
    }

    /// Opens the existing file for overwriting in place. Its data is compared first only if the
    /// options require that.
    fn open_in_place(
        request: TargetRequest,
        state: TargetState,
    ) -> Result<(Self, Vec<Subtree>), FileError> {
        let (part, lock, size) = match state {
            TargetState::Device => {
                let (part, size) = open_device(&request)?;
                (part, None, size)
            }
            _ => open_existing(&request)?,
        };
        let compares = request.options.delta || request.options.in_place;
        let basis = compares.then(|| Basis::of_itself(grid_of(&request.offer), size));
        let files = Files {
            part,
            _lock: lock,
            part_name: None,
            journal_name: None,
            journal: None,
            state,
            spared: Spared {
                basis,
                ..Spared::default()
            },
        };
        let target = Self::new(request, files, false);
        if state == TargetState::File {
            target.check_space(target.needed().saturating_sub(size))?;
        }
        Ok((target, Vec::new()))
    }

    fn new(mut request: TargetRequest, files: Files, is_void: bool) -> Self {
        let direct = match files.state {
            TargetState::Named => None,
            _ => {
                let name = files.part_name.as_ref().unwrap_or(&request.name);
                open_direct(&request.dir, name, &files)
            }
        };
        // A device keeps its mode and times. So does a file written in place, unless the source's
        // were requested.
        let keeps = matches!(files.state, TargetState::Device | TargetState::Slice(_))
            || (files.state == TargetState::File && !request.options.preserve);
        if request.attributes.is_none() && !keeps {
            let (offer, options) = (&request.offer, request.options);
            request.attributes = Some(Attributes::of_offer(offer, options, request.mask()));
        }
        if files.state == TargetState::File {
            request.attributes = request.attributes.map(Attributes::of_existing);
        }
        Self {
            shown: escaped(request.name.as_bytes()),
            grid: grid_of(&request.offer),
            request,
            files,
            direct,
            poisoned: AtomicBool::new(false),
            syncs: Mutex::default(),
            unsynced: AtomicU64::new(0),
            is_void: AtomicBool::new(is_void),
            writer: Mutex::default(),
        }
    }

    /// Returns the inode that holds the data, also after the commit.
    pub(crate) fn inode(&self) -> io::Result<Inode> {
        Ok(inode_of(&fstat(&self.files.part)?))
    }

    /// Returns the space that the whole file needs in bytes, without blocks shared with another
    /// file.
    fn needed(&self) -> u64 {
        if self.files.state == TargetState::Part && self.files.spared.is_clone() {
            return 0;
        }
        let size = self.grid.known_size();
        self.request.offer.data.unwrap_or(size).min(size)
    }

    /// Verifies a chunk against its header, writes it to the file, and reports the result. May also
    /// write chunks queued by other threads. Returns true if the caller must continue with
    /// [`Target::write_queued`], after other jobs.
    ///
    /// Direct writes run in parallel. Through the page cache the kernel lets only one thread write
    /// to a file, while others spin. Therefore other threads queue their chunk for the writing
    /// thread and continue verifying.
    pub(crate) fn write_chunk(
        &self,
        mut arrived: Arrived,
        report: impl Fn(Arrived, Result<(), WriteError>),
    ) -> bool {
        if let Err(damaged) = arrived.verify(self.grid) {
            report(arrived, Err(damaged));
            return false;
        }
        if self.direct.is_some() {
            let result = self.write_verified(&arrived);
            report(arrived, result);
            return false;
        }
        {
            let mut waiting = self.writer.lock();
            if let Some(queue) = &mut *waiting {
                queue.push_back(arrived);
                return false;
            }
            *waiting = Some(VecDeque::from([arrived]));
        }
        self.write_queued(report)
    }

    /// Writes queued chunks, up to [`TURN`] bytes. Returns true if the caller must continue, after
    /// other jobs.
    pub(crate) fn write_queued(&self, report: impl Fn(Arrived, Result<(), WriteError>)) -> bool {
        let mut written = 0;
        while written < TURN {
            let next = {
                let mut waiting = self.writer.lock();
                let next = waiting.as_mut().and_then(VecDeque::pop_front);
                if next.is_none() {
                    *waiting = None;
                }
                next
            };
            let Some(arrived) = next else {
                return false;
            };
            written += arrived.buffer.bytes().len() as u64;
            let result = self.write_verified(&arrived);
            report(arrived, result);
        }
        true
    }

    fn write_verified(&self, arrived: &Arrived) -> Result<(), WriteError> {
        let bytes = arrived.buffer.bytes();
        let Some(extent) = self.grid.extent_of(arrived.header.chunk) else {
            return Err(WriteError::Damaged);
        };
        // The last chunk of a stream of unknown length is shorter than its slot.
        let extent = Extent {
            len: bytes.len() as u64,
            ..extent
        };
        self.pace(extent.len);
        self.store_parts(
            self.parts_to_write(arrived.header.chunk, extent, bytes),
            extent,
            bytes,
        )?;
        Ok(())
    }

    /// Writes bytes that no session has received.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.pace(bytes.len() as u64);
        self.store(bytes, offset)
    }

    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.files.part.read_exact_at(bytes, offset)
    }

    /// Counts bytes that are about to be written. Waits for a running sync if there are many, to bound
    /// the data lost in a crash.
    fn pace(&self, bytes: u64) {
        if self.unsynced.fetch_add(bytes, Ordering::AcqRel) >= MOST_UNSYNCED {
            drop(self.syncs.lock());
        }
    }

    /// Writes bytes of a chunk buffer to the file at `offset`, with direct I/O if possible.
    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.files.state == TargetState::Named {
            return Err(io::Error::other("it is complete already"));
        }
        let offset = match self.files.state {
            TargetState::Slice(slice) => slice::position(slice, offset, bytes.len())?,
            _ => offset,
        };
        let is_aligned = |number: u64| number.is_multiple_of(DIRECT_ALIGNMENT);
        let aligned = is_aligned(bytes.len() as u64)
            && is_aligned(offset)
            && is_aligned(bytes.as_ptr().addr() as u64);
        let file = self
            .direct
            .as_ref()
            .filter(|_| aligned)
            .unwrap_or(&self.files.part);
        disk::write_all_at(file, bytes, offset)
    }

    /// Checks that the file system has `needed` bytes free, and allocates the space if that is
    /// cheap.
    fn reserve(&self, needed: u64) -> Result<(), FileError> {
        self.check_space(needed)?;
        // Files with holes or shared blocks must not allocate their full size.
        if self.awaits_holes() || self.files.spared.is_clone() {
            return Ok(());
        }
        // A tmpfs would allocate and clear every page: 0.3 s per GiB before the first byte is sent.
        if is_tmpfs(&self.files.part) || self.grid.known_size() == 0 {
            return Ok(());
        }
        match fallocate(&self.files.part, FallocateFlags::empty(), 0, self.grid.size) {
            Err(rustix::io::Errno::NOSPC) => {
                Err(self.no_space(format!("{needed} bytes needed, disk is full")))
            }
            // Not supported by every file system.
            _ => Ok(()),
        }
    }

    fn check_space(&self, needed: u64) -> Result<(), FileError> {
        let stat = fstatvfs(&self.files.part)
            .map_err(|cause| self.error("find the free space for", cause.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < needed {
            return Err(self.no_space(format!("{needed} bytes needed, {free} free")));
        }
        Ok(())
    }

    fn no_space(&self, text: impl Into<String>) -> FileError {
        self.error("receive", io::Error::other(text.into()))
            .with_code(FailCode::NoSpace)
    }

    fn error(&self, operation: &'static str, cause: io::Error) -> FileError {
        FileError::new(operation, &self.shown, cause)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_void.load(Ordering::Acquire) {
            self.discard();
        }
    }
}

/// Returns the type of an existing file with the target's name. Fails if the options allow neither
/// replacing nor overwriting it.
fn refuse_existing(request: &TargetRequest) -> Result<Option<FileType>, FileError> {
    let found = exists(&request.dir, &request.name).map_err(request.error("look for"))?;
    let Some(kind) = found else { return Ok(None) };
    let options = &request.options;
    let why = match kind {
        FileType::RegularFile if options.replace || options.delta || options.in_place => {
            return Ok(found);
        }
        FileType::Symlink if options.force => return Ok(found),
        // The data of a trial never gets the name.
        kind if options.trial && kind != FileType::Directory => return Ok(found),
        // Attributes are those of a tree's entry, or, at the commit, of a file that gets the name.
        FileType::BlockDevice if options.force && request.attributes.is_none() => {
            return Ok(found);
        }
        FileType::RegularFile => "a file of that name exists",
        FileType::Symlink => "it is a symbolic link",
        FileType::BlockDevice => "it is a block device",
        FileType::Directory => "it is a directory",
        FileType::Fifo => "it is a FIFO",
        FileType::Socket => "it is a socket",
        _ => "it is a device",
    };
    let code = match kind {
        FileType::RegularFile | FileType::Symlink | FileType::BlockDevice => FailCode::Exists,
        _ => FailCode::Occupied,
    };
    let cause = io::Error::new(io::ErrorKind::AlreadyExists, why);
    Err(request.error("replace")(cause).with_code(code))
}

/// Opens the journal and part file of a new file. Returns them with the durable hash-tree nodes.
fn open_hidden(request: &TargetRequest, grid: Grid) -> Result<(Files, Vec<Subtree>), FileError> {
    let remove = |name: &OsString| {
        let _ = unlinkat(&request.dir, name, AtFlags::empty());
    };
    let journal_name = hidden_name(&request.name, &request.peer_key, "journal");
    let file = lock_journal(request, &journal_name)?;
    let earlier = JournalFile::replay(&file).map_err(request.error("read the journal of"))?;
    let earlier_part = earlier
        .as_ref()
        .map(|replayed| hidden_name(&request.name, &replayed.header.id.0, "part"));
    // A stream of unknown length cannot be read again.
    let usable = earlier.filter(|replayed| {
        !request.options.restart && !grid.is_open() && is_same(replayed, grid, request)
    });

    let resumed = usable
        .zip(earlier_part.clone())
        .and_then(|(replayed, name)| {
            let part = reopen_part(request, &name).ok()??;
            (part.metadata().ok()?.len() == grid.size).then_some((replayed, name, part))
        });
    let is_new = resumed.is_none();
    let (part, part_name, journal, have) = match resumed {
        Some((replayed, name, part)) => {
            let journal = JournalFile::resume(file, &replayed)
                .map_err(request.error("write the journal of"))?;
            (part, name, journal, replayed.subtrees())
        }
        None => {
            if let Some(name) = earlier_part {
                remove(&name);
            }
            let (part, name, journal) =
                begin(request, grid, file).inspect_err(|_| remove(&journal_name))?;
            (part, name, journal, Vec::new())
        }
    };
    let wants_delta = (request.options.delta || request.options.in_place) && !grid.is_open();
    let basis = wants_delta
        .then(|| Basis::open(request, grid, &part, is_new))
        .flatten();
    if is_new && !grid.is_open() {
        part.set_len(grid.size)
            .map_err(request.error("size"))
            .inspect_err(|_| [&part_name, &journal_name].into_iter().for_each(remove))?;
    }
    let durable = have
        .iter()
        .filter_map(|subtree| subtree.chunks(grid).ok())
        .collect();
    let files = Files {
        part,
        _lock: None,
        part_name: Some(part_name),
        journal_name: Some(journal_name),
        journal: Some(journal),
        state: TargetState::Part,
        spared: Spared {
            basis,
            durable,
            is_new,
            ..Spared::default()
        },
    };
    Ok((files, have))
}

/// Creates the journal and then the part file: a part file without a journal would never be
/// deleted.
fn begin(
    request: &TargetRequest,
    grid: Grid,
    file: Locked,
) -> Result<(File, OsString, JournalFile), FileError> {
    let id = JournalId(random_bytes());
    let header = Header {
        grid,
        source: request.offer.source,
        peer_key: request.peer_key,
        id,
    };
    let journal =
        JournalFile::start(file, header).map_err(request.error("write the journal of"))?;
    let name = hidden_name(&request.name, &id.0, "part");
    let part = open_part(&request.dir, &name, OFlags::CREATE | OFlags::EXCL)
        .map_err(request.error("create"))?;
    Ok((part, name, journal))
}

fn lock_journal(request: &TargetRequest, name: &OsStr) -> Result<Locked, FileError> {
    JournalFile::lock(&request.dir, name).map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock => request.busy("receive", "another transfer is writing it"),
        _ => request.error("create")(cause),
    })
}

/// Opens a block device that is large enough for the offer. Returns it with its size in bytes.
fn open_device(request: &TargetRequest) -> Result<(File, u64), FileError> {
    let grid = grid_of(&request.offer);
    // Exclusive: the kernel rejects a device that is mounted or otherwise in use.
    let part = open_part(&request.dir, &request.name, OFlags::EXCL);
    let part = part.map_err(|cause| match cause.kind() {
        io::ErrorKind::ResourceBusy => {
            let why = "the device is in use (mounted, or part of another)";
            request.busy("write", why)
        }
        _ => request.error("open")(cause),
    })?;
    let size = disk::device_size(&part).map_err(request.error("find the size of"))?;
    if grid.is_open() || size < grid.size {
        let cause = io::Error::other(format!("the device has {size} bytes, {} needed", grid.size));
        return Err(request.error("receive")(cause).with_code(FailCode::NoSpace));
    }
    Ok((part, size))
}

/// Returns true if the existing file has no other name. One that has is replaced instead of
/// overwritten, because the other name may belong to another file of the source.
fn has_one_name(request: &TargetRequest) -> Result<bool, FileError> {
    let stat = statat(&request.dir, &request.name, AtFlags::SYMLINK_NOFOLLOW);
    let stat = stat.map_err(|cause| request.error("look at")(cause.into()))?;
    Ok(stat.st_nlink == 1)
}

/// Opens the existing file with an exclusive lock. Returns it with its size in bytes.
fn open_existing(request: &TargetRequest) -> Result<(File, Option<Locked>, u64), FileError> {
    let written = || request.busy("write", "another transfer is writing it");
    let part =
        open_part(&request.dir, &request.name, OFlags::empty()).map_err(request.error("open"))?;
    let lock = part.try_clone().map_err(request.error("open"))?;
    let lock = Locked::new(lock).map_err(|_| written())?;
    remove_earlier(&request.dir, &request.name, &request.peer_key).map_err(|_| written())?;
    let stat = fstat(&part).map_err(|cause| request.error("stat")(cause.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
        let cause = io::Error::other("it is no longer a regular file with one name");
        return Err(request.error("write")(cause).with_code(FailCode::NotAFile));
    }
    request.forget_content(&part, &stat)?;
    Ok((part, Some(lock), stat.st_size as u64))
}

/// Rejects a write benchmark if an interrupted copy of this name exists, because both use the same
/// part file name.
fn refuse_interrupted(request: &TargetRequest) -> Result<(), FileError> {
    if earlier_source(&request.dir, &request.name, &request.peer_key).is_none() {
        return Ok(());
    }
    let why = "an interrupted copy to that name can be resumed";
    Err(request.error("try to receive")(io::Error::other(why)).with_code(FailCode::Exists))
}

fn is_same(replayed: &Replayed, grid: Grid, request: &TargetRequest) -> bool {
    let header = &replayed.header;
    header.grid == grid
        && header.source == request.offer.source
        && header.peer_key == request.peer_key
}

/// Returns the grid of chunks of an offered file. The session has validated the chunk size; the
/// default is never used.
pub(crate) fn grid_of(offer: &Offer) -> Grid {
    let chunk_size = ChunkSize::from_log2(offer.chunk_log2).unwrap_or(ChunkSize::DEFAULT);
    match offer.kind {
        Some(OfferKind::Pipe) => Grid::open(chunk_size),
        _ => Grid::new(offer.source.size, chunk_size),
    }
}

fn open_part(dir: &OwnedFd, name: &OsStr, more: OFlags) -> io::Result<File> {
    Ok(open_entry(dir, name, OFlags::RDWR | more)?)
}

/// Opens the part file of an earlier attempt, which may already have its final owner and mode.
/// Returns `None` if users can write to it who could not write to the finished file.
fn reopen_part(request: &TargetRequest, name: &OsStr) -> io::Result<Option<File>> {
    let owner = request
        .attributes
        .as_ref()
        .and_then(|attributes| attributes.owner)
        .map(|owner| owner.uid);
    let others = Others {
        owner,
        bits: request.final_mode().unwrap_or_default(),
    };
    let ours = |file: File| Ok(others.are_all(&request.dir, &file)?.then_some(file));
    match open_part(&request.dir, name, OFlags::empty()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let Some(file) = ours(open_entry(&request.dir, name, OFlags::RDONLY)?)? else {
                return Ok(None);
            };
            fchmod(file, Mode::RUSR | Mode::WUSR)?;
            ours(open_part(&request.dir, name, OFlags::empty())?)
        }
        opened => ours(opened?),
    }
}

/// Opens the part file a second time, for direct writes.
///
/// Measured with 2 GiB over an unshaped link to ext4, durable at the end (3 interleaved runs):
/// direct I/O took 1.4 to 1.8 s and 0.42 CPU s/GB at the receiver, the page cache 2.4 to 3.0 s and
/// 1.05 CPU s/GB.
fn open_direct(dir: &OwnedFd, name: &OsStr, files: &Files) -> Option<File> {
    // A tmpfs accepts O_DIRECT since Linux 6.6 without benefit. A device's node lies on one, its
    // data does not.
    let is_tmpfs = files.state != TargetState::Device && is_tmpfs(&files.part);
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let direct = (!is_tmpfs)
        .then(|| openat(dir, name, flags, Mode::empty()).ok().map(File::from))
        .flatten();
    // The name may have become another file's meanwhile.
    direct.filter(|direct| is_same_file(direct, &files.part).unwrap_or(false))
}

fn is_same_file(one: &File, other: &File) -> rustix::io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok(inode_of(&one) == inode_of(&other))
}

/// Maximum number of bytes written while a sync runs. The sync itself covers as many. A crash
/// therefore loses at most 64 MiB plus the data in flight, even if the disk is slower than the
/// links.
const MOST_UNSYNCED: u64 = 32 << 20;

/// Alignment and granularity of direct writes in bytes, see [`super::buffer`].
const DIRECT_ALIGNMENT: u64 = 4096;

/// Opens the parent directory of a local path. Returns it with the file name.
pub(crate) fn open_parent(path: &Path) -> Result<(OwnedFd, &OsStr), FileError> {
    let shown = escaped(path.as_os_str().as_bytes());
    let name = path.file_name().ok_or_else(|| {
        FileError::new("write", &shown, io::Error::other("it has no file name"))
            .with_code(FailCode::NotAFile)
    })?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let dir = File::options()
        .read(true)
        .custom_flags(OFlags::DIRECTORY.bits() as i32)
        .open(parent);
    Ok((
        dir.map_err(|cause| FileError::new("open directory", parent.display(), cause))?
            .into(),
        name,
    ))
}

pub(crate) fn make_parents(path: &Path) -> Result<(), FileError> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(parent).map_err(|cause| {
        FileError::new(
            "make directory",
            escaped(parent.as_os_str().as_bytes()),
            cause,
        )
    })
}

#[cfg(test)]
mod tests;

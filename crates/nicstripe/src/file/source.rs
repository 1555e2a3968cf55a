//! The file that is sent.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
};

use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, FailCode, Grid, HoleMap, Name, Offering, SourceIdentity, grid::MOST_SIZE, hash_tree::chunk_value,
    message::GetRange, name::escaped,
};
use rustix::fs::{Advice, CWD, FileType, Mode, OFlags, Stat, fadvise, fstat, fstatfs, openat};

use super::{BufferPool, ChunkBuffer, FileError, Lease, Root, compress::Packer, device, holes::find_holes, identity_of};
use crate::storage::StoredFile;

/// An open source and what it was when it was opened.
#[derive(Debug)]
pub(crate) struct Source {
    content: Content,
    name: String,
    /// Of a part of the file, with the part's size.
    identity: SourceIdentity,
    /// Where the part begins.
    start: u64,
    /// Bytes of the whole file.
    whole: u64,
    mode: u32,
    offering: Offering,
    packer: Packer,
    /// Goes after the file is closed.
    lease: Option<Lease>,
}

/// Where a source's bytes are.
#[derive(Debug)]
enum Content {
    File(File),
    Stored(Box<dyn StoredFile>),
}

/// How a source is read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadOptions {
    /// Send what was read although the file changes meanwhile.
    pub(crate) allow_changing: bool,
    /// Compress where that pays.
    pub(crate) compress: bool,
    /// Read only this part.
    pub(crate) range: Option<GetRange>,
}

/// A file of our user that was opened to be sent.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Its size is known.
    Sized(Box<Source>),
    /// It has to be read to its end, as those of proc(5): where that is tells its size.
    Unsized(File),
}

impl Opened {
    /// Opens a file or block device of our user.
    pub(crate) fn open(path: &Path, options: ReadOptions) -> Result<Self, FileError> {
        let (file, name) = open_here(path)?;
        if is_unsized(&file) {
            Ok(Self::Unsized(file))
        } else {
            Source::of(file, name, options).map(|source| Self::Sized(Box::new(source)))
        }
    }
}

impl Source {
    /// Opens a file or block device of our user, of a size that is known.
    pub(crate) fn open(path: &Path, options: ReadOptions) -> Result<Self, FileError> {
        let (file, name) = open_here(path)?;
        Self::of(file, name, options)
    }

    /// Opens a file beneath a daemon's root.
    pub(crate) fn open_beneath(root: &Root, name: &Name, options: ReadOptions) -> Result<Self, FileError> {
        let file = root.open_file(name, FLAGS).map_err(|error| FileError::new("open", name, error))?;
        Self::of(file.into(), name.to_string(), options)
    }

    /// Takes an open file; `name` is for people.
    pub(crate) fn of(file: File, name: String, options: ReadOptions) -> Result<Self, FileError> {
        let stat = fstat(&file).map_err(|error| FileError::new("stat", &name, error.into()))?;
        let identity = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => identity_of(&stat),
            FileType::BlockDevice => device_identity(&file, &stat).map_err(|error| FileError::new("find the size of", &name, error))?,
            other => {
                let what = if other == FileType::Directory { "a directory" } else { "neither a regular file nor a block device" };
                let error = io::Error::other(format!("it is {what}"));
                return Err(FileError::new("send", &name, error).with_code(FailCode::NotAFile));
            }
        };
        check_size(identity.size, &name)?;
        if is_unsized(&file) {
            return Err(FileError::new("send", &name, unknown_size()));
        }
        // A hint only: assignments are read in order, so the kernel may read ahead further.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        let whole = identity.size;
        let (start, size) = part_of(options.range, whole, &name)?;
        // Those of a part are not where the file has them.
        let holes = if options.range.is_none() { find_holes(&file, &stat) } else { HoleMap::default() };
        let offering = Offering { holes, may_change: options.allow_changing };
        let packer = Packer::new(options.compress);
        let identity = SourceIdentity { size, ..identity };
        let content = Content::File(file);
        Ok(Self { content, name, identity, start, whole, mode: stat.st_mode & 0o7777, offering, packer, lease: None })
    }

    /// Takes an open file of a storage; `name` is for people.
    pub(crate) fn of_stored(file: Box<dyn StoredFile>, name: String, options: ReadOptions) -> Result<Self, FileError> {
        let identity = file.identity().map_err(|error| FileError::new("stat", &name, error))?.as_source();
        check_size(identity.size, &name)?;
        let whole = identity.size;
        let (start, size) = part_of(options.range, whole, &name)?;
        let offering = Offering { may_change: options.allow_changing, ..Offering::default() };
        let (mode, packer) = (file.mode() & 0o7777, Packer::new(options.compress));
        let identity = SourceIdentity { size, ..identity };
        Ok(Self { content: Content::Stored(file), name, identity, start, whole, mode, offering, packer, lease: None })
    }

    /// Keeps descriptors for as long as the file is open.
    pub(crate) fn keep(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    pub(crate) fn identity(&self) -> SourceIdentity {
        self.identity
    }

    /// Permission bits.
    pub(crate) fn mode(&self) -> u32 {
        self.mode
    }

    /// Its holes, and whether it may change.
    pub(crate) fn offering(&self) -> &Offering {
        &self.offering
    }

    /// Bytes outside of holes, if it has any.
    pub(crate) fn data(&self) -> Option<u64> {
        let holes = &self.offering.holes;
        (!holes.is_empty()).then(|| self.identity.size - holes.bytes())
    }

    /// Reads a chunk into `buffer` and hashes what was read.
    pub(crate) fn read_chunk(&self, grid: Grid, chunk: ChunkId, buffer: &mut ChunkBuffer) -> Result<ChainingValue, FileError> {
        let error = |error| FileError::new("read", &self.name, error);
        let extent = grid.extent_of(chunk).ok_or_else(|| error(io::ErrorKind::UnexpectedEof.into()))?;
        let bytes = buffer.bytes_mut(extent.len as usize);
        self.content.read_exact_at(bytes, self.start + extent.offset).map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => {
                error(io::Error::other("it became shorter while it was read")).with_code(FailCode::SourceChanged)
            }
            _ => error(cause).resumable(),
        })?;
        chunk_value(grid, chunk, bytes).map_err(|cause| error(io::Error::other(cause)))
    }

    /// Reads a chunk to be sent, compressed where that pays on links of `rate` together: then the buffer holds less than the chunk.
    pub(crate) fn read_to_send(
        &self,
        grid: Grid,
        chunk: ChunkId,
        buffers: &BufferPool,
        rate: Option<BitRate>,
    ) -> Result<(ChainingValue, ChunkBuffer), FileError> {
        let mut buffer = buffers.take();
        let value = self.read_chunk(grid, chunk, &mut buffer)?;
        let has_zeros = grid.extent_of(chunk).is_some_and(|extent| self.offering.holes.within(extent).next().is_some());
        let packed = self.packer.pack(buffer.bytes(), buffers, rate, has_zeros);
        Ok((value, packed.unwrap_or(buffer)))
    }

    /// Compares the file with what it was when it was opened; one that may change must only not have become shorter.
    pub(crate) fn check_unchanged(&self) -> Result<(), FileError> {
        let changed = |cause| FileError::new("send", &self.name, cause).with_code(FailCode::SourceChanged);
        let found = self.content.identity().map_err(|error| FileError::new("stat", &self.name, error))?;
        // Nothing tells whether a device was written to.
        let Some(found) = found else { return Ok(()) };
        if self.offering.may_change && found.size >= self.start + self.identity.size {
            return Ok(());
        }
        if self.offering.may_change {
            return Err(changed(io::Error::other("it became shorter while it was read")));
        }
        let whole = SourceIdentity { size: self.whole, ..self.identity };
        whole.check(&found).map_err(|cause| changed(io::Error::other(cause)))
    }
}

impl Content {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(bytes, offset),
            Self::Stored(file) => file.read_exact_at(bytes, offset),
        }
    }

    /// What it is now; nothing for a device.
    fn identity(&self) -> io::Result<Option<SourceIdentity>> {
        match self {
            Self::File(file) => {
                let stat = fstat(file)?;
                Ok((FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice).then(|| identity_of(&stat)))
            }
            Self::Stored(file) => file.identity().map(|identity| Some(identity.as_source())),
        }
    }
}

fn open_here(path: &Path) -> Result<(File, String), FileError> {
    let name = escaped(path.as_os_str().as_encoded_bytes());
    let file = openat(CWD, path, FLAGS, Mode::empty()).map_err(|error| FileError::new("open", &name, error.into()))?;
    Ok((file.into(), name))
}

/// Whether a regular file's size says nothing of its content: it is made when it is read.
fn is_unsized(file: &File) -> bool {
    let is_regular = fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    is_regular && tells_no_sizes(file)
}

/// Whether the files of a file system are made when they are read, and have sizes that say nothing (statfs(2), linux/magic.h).
pub(crate) fn tells_no_sizes(file: impl AsFd) -> bool {
    const PROC: u32 = 0x9fa0;
    const SYSFS: u32 = 0x6265_6572;
    const DEBUGFS: u32 = 0x6462_6720;
    const TRACEFS: u32 = 0x7472_6163;
    const SECURITYFS: u32 = 0x7363_6673;
    const CGROUP2: u32 = 0x6367_7270;
    let kinds = [PROC, SYSFS, DEBUGFS, TRACEFS, SECURITYFS, CGROUP2];
    // The field's type differs between architectures; the numbers have 32 bits.
    fstatfs(file).is_ok_and(|stat| kinds.contains(&(stat.f_type as u32)))
}

/// Why a file of such a file system is not sent where its size has to be known.
fn unknown_size() -> io::Error {
    io::Error::other("its size is not known before it is read to its end")
}

/// Returns where what is wanted of a file begins and how many bytes of it there are.
fn part_of(range: Option<GetRange>, size: u64, name: &str) -> Result<(u64, u64), FileError> {
    let Some(range) = range else { return Ok((0, size)) };
    let rest = size.checked_sub(range.offset).ok_or_else(|| {
        let why = format!("it has {size} bytes, and what is wanted of it begins at {}", range.offset);
        FileError::new("send", name, io::Error::other(why)).with_code(FailCode::Refused)
    })?;
    Ok((range.offset, range.len.min(rest)))
}

fn check_size(size: u64, name: &str) -> Result<(), FileError> {
    if size < MOST_SIZE {
        return Ok(());
    }
    let error = io::Error::other(format!("it has {size} bytes, fewer than {MOST_SIZE} can be sent"));
    Err(FileError::new("send", name, error).with_code(FailCode::Refused))
}

/// A device is told by its number; its node's times say nothing of its content.
fn device_identity(file: &File, stat: &Stat) -> io::Result<SourceIdentity> {
    Ok(SourceIdentity { size: device::size(file)?, device: stat.st_rdev, ..SourceIdentity::default() })
}

/// Not blocking, so that a FIFO is refused instead of waited for.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

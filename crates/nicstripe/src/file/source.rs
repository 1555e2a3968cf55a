//! Sources: files, block devices and storage objects to be sent.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
};

use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, ChunkSize, ETag, FailCode, Grid, HoleMap, Name,
    ObjectAttributes, Offering, SourceIdentity,
    grid::MOST_SIZE,
    hash_tree::chunk_value,
    message::{GetRange, ObjectKind, ObjectStat},
    name::escaped,
    tree::PACKED_MOST,
};
use rustix::fs::{Advice, CWD, FileType, Mode, OFlags, Stat, fadvise, fstat, openat};

use super::{
    beneath::is_on,
    buffer::{BufferPool, ChunkBuffer},
    compress::Packer,
    disk,
    error::FileError,
    holes::find_holes,
    kept::{attributes_of, kept},
    quota::Lease,
    root::Root,
    stored::{StoredFile, identity_of},
};

/// Open source of a transfer, with its identity at the time of opening.
#[derive(Debug)]
pub(crate) struct Source {
    content: Content,
    name: String,
    /// Identity of the file when it was opened; the size is that of the requested range.
    pub(crate) identity: SourceIdentity,
    chunk_size: ChunkSize,
    start: u64,
    /// Size of the whole file in bytes.
    whole: u64,
    /// True if the identity reveals each change of the content.
    is_tagged: bool,
    /// Permission and set-ID bits.
    pub(crate) mode: u32,
    pub(crate) offering: Offering,
    packer: Packer,
    /// Lease for the open descriptors. Declared last, so that it is dropped after the file is
    /// closed.
    leases: Vec<Lease>,
}

/// Data behind a source: a local file, or an object in a storage.
#[derive(Debug)]
enum Content {
    File(File),
    /// File whose content the kernel generates on read, such as one in `/proc`.
    Made(File),
    Stored(Box<dyn StoredFile>),
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadOptions {
    /// True to send the bytes read even if the file changes during the transfer.
    pub(crate) allow_changing: bool,
    /// True to compress chunks if that pays off.
    pub(crate) compress: bool,
    /// Range of the file to read; `None` reads all of it.
    pub(crate) range: Option<GetRange>,
}

/// Local file opened for sending, of known or unknown size.
#[derive(Debug)]
pub(crate) enum Opened {
    Sized(Box<Source>),
    /// File that must be read to its end to learn its size, such as one in `/proc`.
    Unsized(File),
}

impl Opened {
    /// Opens a local file or block device for sending.
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
    /// Opens a local file or block device of known size for sending.
    #[cfg(test)]
    pub(crate) fn open(path: &Path, options: ReadOptions) -> Result<Self, FileError> {
        let (file, name) = open_here(path)?;
        Self::of(file, name, options)
    }

    pub(crate) fn open_beneath(
        root: &Root,
        name: &Name,
        options: ReadOptions,
    ) -> Result<Self, FileError> {
        let file = root
            .open_file(name, SOURCE_FLAGS)
            .map_err(|error| FileError::new("open", name, error))?;
        Self::of(file.into(), name.to_string(), options)
    }

    /// Creates a source from an open file; `name` is for display.
    pub(crate) fn of(file: File, name: String, options: ReadOptions) -> Result<Self, FileError> {
        let stat = fstat(&file).map_err(|error| FileError::new("stat", &name, error.into()))?;
        let identity = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => identity_of(&stat),
            FileType::BlockDevice => device_identity(&file, &stat)
                .map_err(|error| FileError::new("find the size of", &name, error))?,
            other => {
                let what = if other == FileType::Directory {
                    "a directory"
                } else {
                    "neither a regular file nor a block device"
                };
                let error = io::Error::other(format!("it is {what}"));
                return Err(FileError::new("send", &name, error).with_code(FailCode::NotAFile));
            }
        };
        let is_made = is_unsized(&file);
        let size = if is_made {
            made_size(&file)
        } else {
            Ok(identity.size)
        };
        let identity = SourceIdentity {
            size: size.map_err(|error| FileError::new("send", &name, error))?,
            ..identity
        };
        // A hint only: assignments are read in order, so the kernel may read ahead further.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        // Holes of a range would be at other offsets than in the file.
        let holes = if options.range.is_none() && !is_made {
            find_holes(&file, &stat)
        } else {
            HoleMap::default()
        };
        let content = if is_made {
            Content::Made(file)
        } else {
            Content::File(file)
        };
        Self::with(content, name, identity, stat.st_mode, holes, options)
    }

    /// Creates a source from an open file of a storage; `name` is for display.
    pub(crate) fn of_stored(
        file: Box<dyn StoredFile>,
        name: String,
        options: ReadOptions,
    ) -> Result<Self, FileError> {
        let identity = file
            .identity()
            .map_err(|error| FileError::new("stat", &name, error))?
            .as_source();
        let mode = file.mode();
        let content = Content::Stored(file);
        Self::with(content, name, identity, mode, HoleMap::default(), options)
    }

    fn with(
        content: Content,
        name: String,
        identity: SourceIdentity,
        mode: u32,
        holes: HoleMap,
        options: ReadOptions,
    ) -> Result<Self, FileError> {
        let whole = identity.size;
        let is_tagged = match &content {
            // A device has no inode in its identity.
            Content::File(_) => identity.inode != 0,
            Content::Made(_) => false,
            Content::Stored(_) => true,
        };
        check_size(whole, &name)?;
        let (start, size) = part_of(options.range, whole, &name)?;
        Ok(Self {
            content,
            name,
            identity: SourceIdentity { size, ..identity },
            chunk_size: ChunkSize::DEFAULT,
            start,
            whole,
            is_tagged,
            mode: mode & 0o7777,
            offering: Offering {
                holes,
                may_change: options.allow_changing,
            },
            packer: Packer::new(options.compress),
            leases: Vec::new(),
        })
    }

    /// Returns the metadata of the whole file when it was opened; `None` for what is no regular file.
    pub(crate) fn object(&self) -> Option<ObjectStat> {
        let whole = SourceIdentity {
            size: self.whole,
            ..self.identity
        };
        self.is_tagged.then(|| ObjectStat {
            kind: ObjectKind::File,
            size: self.whole,
            mtime: whole.mtime,
            etag: Some(ETag::of(&whole)),
            digest: match &self.content {
                Content::File(file) => kept(file, &whole),
                Content::Made(_) | Content::Stored(_) => None,
            },
            has_attributes: self.attributes().is_some(),
        })
    }

    fn unread(&self, cause: io::Error) -> FileError {
        let error = |cause| FileError::new("read", &self.name, cause);
        match cause.kind() {
            io::ErrorKind::UnexpectedEof => {
                error(io::Error::other("it was truncated while being read"))
                    .with_code(FailCode::SourceChanged)
            }
            _ => error(cause).resumable(),
        }
    }

    /// Returns the attributes of the file; `None` if it has none.
    pub(crate) fn attributes(&self) -> Option<ObjectAttributes> {
        match &self.content {
            Content::File(file) => attributes_of(file),
            Content::Made(_) => None,
            Content::Stored(file) => {
                Some(file.attributes()).filter(|attributes| !attributes.is_empty())
            }
        }
    }

    /// Drops what the page cache has of the file, unless it is in use, so that reads read the disk.
    pub(crate) fn drop_cache(&self) {
        if let Content::File(file) = &self.content {
            let _ = fadvise(file, 0, None, Advice::DontNeed);
        }
    }

    /// Attaches a lease of descriptors or memory, held while the file is open.
    pub(crate) fn keep(mut self, lease: Lease) -> Self {
        self.leases.push(lease);
        self
    }

    pub(crate) fn grid(&self) -> Grid {
        Grid::new(self.identity.size, self.chunk_size)
    }

    /// Sets the chunk size, so that a simulation can send few bytes in many chunks.
    #[cfg(test)]
    pub(crate) fn in_chunks_of(mut self, chunk_size: ChunkSize) -> Self {
        self.chunk_size = chunk_size;
        self
    }

    /// Returns the memory of the map of holes in bytes.
    pub(crate) fn hole_memory(&self) -> usize {
        self.offering.holes.memory()
    }

    /// Returns the number of bytes outside of holes; `None` if the file has no holes.
    pub(crate) fn data(&self) -> Option<u64> {
        let holes = &self.offering.holes;
        (!holes.is_empty()).then(|| self.identity.size - holes.bytes())
    }

    /// Reads a chunk of the source into `buffer` and returns its hash.
    pub(crate) fn read_chunk(
        &self,
        grid: Grid,
        chunk: ChunkId,
        buffer: &mut ChunkBuffer,
    ) -> Result<ChainingValue, FileError> {
        let error = |error| FileError::new("read", &self.name, error);
        let extent = grid
            .extent_of(chunk)
            .ok_or_else(|| error(io::ErrorKind::UnexpectedEof.into()))?;
        let bytes = buffer.bytes_mut(extent.len as usize);
        self.content
            .read_exact_at(bytes, self.start + extent.offset)
            .map_err(|cause| self.unread(cause))?;
        chunk_value(grid, chunk, bytes).map_err(|cause| error(io::Error::other(cause)))
    }

    /// Returns the open file, if its bytes are at the offsets of this source.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.content {
            Content::File(file) if self.start == 0 => Some(file),
            _ => None,
        }
    }

    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), FileError> {
        let read = self.content.read_exact_at(bytes, self.start + offset);
        read.map_err(|cause| self.unread(cause))
    }

    /// Reads a chunk of the source to send it. Compresses it if that pays off at the links' total
    /// `rate`; the buffer is then shorter than the chunk.
    pub(crate) fn read_to_send(
        &self,
        grid: Grid,
        chunk: ChunkId,
        buffers: &BufferPool,
        rate: Option<BitRate>,
    ) -> Result<(ChainingValue, ChunkBuffer), FileError> {
        let mut buffer = buffers.take();
        let value = self.read_chunk(grid, chunk, &mut buffer)?;
        let has_zeros = grid
            .extent_of(chunk)
            .is_some_and(|extent| self.offering.holes.within(extent).next().is_some());
        let packed = self.packer.pack(buffer.bytes(), buffers, rate, has_zeros);
        Ok((value, packed.unwrap_or(buffer)))
    }

    /// Checks that the file has not changed since it was opened. With `allow_changing`, only checks
    /// that it has not shrunk.
    pub(crate) fn check_unchanged(&self) -> Result<(), FileError> {
        let changed =
            |cause| FileError::new("send", &self.name, cause).with_code(FailCode::SourceChanged);
        let found = self
            .content
            .identity()
            .map_err(|error| FileError::new("stat", &self.name, error))?;
        // Writes to a device cannot be detected.
        let Some(found) = found else { return Ok(()) };
        if self.offering.may_change && found.size >= self.start + self.identity.size {
            return Ok(());
        }
        if self.offering.may_change {
            return Err(changed(io::Error::other(
                "it was truncated while being read",
            )));
        }
        let whole = SourceIdentity {
            size: self.whole,
            ..self.identity
        };
        // A file that was replaced or removed meanwhile has lost its name and is otherwise the same. The
        // kernel counts that as a change of its attributes.
        let found = match self.content.is_unlinked() {
            true => SourceIdentity {
                ctime: whole.ctime,
                ..found
            },
            false => found,
        };
        whole
            .check(&found)
            .map_err(|cause| changed(io::Error::other(cause)))
    }
}

impl Content {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) | Self::Made(file) => disk::read_exact_at(file, bytes, offset),
            Self::Stored(file) => file.read_exact_at(bytes, offset),
        }
    }

    /// Returns true for a file of the file system that has no name any more.
    fn is_unlinked(&self) -> bool {
        match self {
            Self::File(file) => fstat(file).is_ok_and(|stat| stat.st_nlink == 0),
            Self::Made(_) | Self::Stored(_) => false,
        }
    }

    /// Returns the current identity of the content; `None` for a block device.
    fn identity(&self) -> io::Result<Option<SourceIdentity>> {
        match self {
            Self::File(file) => {
                let stat = fstat(file)?;
                Ok(
                    (FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice)
                        .then(|| identity_of(&stat)),
                )
            }
            // Its times do not reveal a change of content; only a change of size is detected.
            Self::Made(file) => Ok(Some(SourceIdentity {
                size: made_size(file)?,
                ..identity_of(&fstat(file)?)
            })),
            Self::Stored(file) => file.identity().map(|identity| Some(identity.as_source())),
        }
    }
}

/// Opens a local file for reading. Returns it with its name for display.
pub(super) fn open_here(path: &Path) -> Result<(File, String), FileError> {
    let name = escaped(path.as_os_str().as_encoded_bytes());
    let file = openat(CWD, path, SOURCE_FLAGS, Mode::empty())
        .map_err(|error| FileError::new("open", &name, error.into()))?;
    Ok((file.into(), name))
}

/// Returns true if a file is generated on read, so that its reported size is meaningless.
fn is_unsized(file: &File) -> bool {
    let is_regular = fstat(file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    is_regular && tells_no_sizes(file)
}

/// Returns true if a file system generates files on read and reports meaningless sizes.
pub(crate) fn tells_no_sizes(file: impl AsFd) -> bool {
    const PROC: u32 = 0x9fa0;
    const SYSFS: u32 = 0x6265_6572;
    const DEBUGFS: u32 = 0x6462_6720;
    const TRACEFS: u32 = 0x7472_6163;
    const SECURITYFS: u32 = 0x7363_6673;
    const CGROUP2: u32 = 0x6367_7270;
    let kinds = [PROC, SYSFS, DEBUGFS, TRACEFS, SECURITYFS, CGROUP2];
    is_on(file, &kinds)
}

/// Reads a generated file to its end to learn its size; at most [`PACKED_MOST`] bytes.
fn made_size(file: &File) -> io::Result<u64> {
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    while size <= PACKED_MOST {
        match file.read_at(&mut buffer, size) {
            Ok(0) => return Ok(size),
            Ok(read) => size += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(too_much_made())
}

/// Creates the error for a generated file that is too large to determine its size.
pub(crate) fn too_much_made() -> io::Error {
    io::Error::other(format!(
        "size unknown before the end, and it exceeds {PACKED_MOST} bytes"
    ))
}

/// Returns the offset and length of the requested part of a file of `size` bytes, in bytes.
fn part_of(range: Option<GetRange>, size: u64, name: &str) -> Result<(u64, u64), FileError> {
    let Some(range) = range else {
        return Ok((0, size));
    };
    let rest = size.checked_sub(range.offset).ok_or_else(|| {
        let why = format!("requested range starts at {} of {size} bytes", range.offset);
        FileError::refused("send", name, why).with_code(FailCode::Range)
    })?;
    Ok((range.offset, range.len.min(rest)))
}

fn check_size(size: u64, name: &str) -> Result<(), FileError> {
    if size < MOST_SIZE {
        return Ok(());
    }
    let why = format!("{size} bytes exceed the limit of {MOST_SIZE}");
    Err(FileError::refused("send", name, why))
}

/// Returns the identity of a block device, by its device number: the times of its node do not
/// reflect its content.
fn device_identity(file: &File, stat: &Stat) -> io::Result<SourceIdentity> {
    Ok(SourceIdentity {
        size: disk::device_size(file)?,
        device: stat.st_rdev,
        ..SourceIdentity::default()
    })
}

/// Flags to open a source. Non-blocking, so that a FIFO is rejected instead of blocking `open`.
pub(crate) const SOURCE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_the_kernel_makes_has_the_size_that_it_is_read_with_and_must_keep_it() {
        const NAME: &str = "/proc/thread-self/comm";
        fs::write(NAME, "short").unwrap();
        let open = |allow_changing| {
            Source::open(
                Path::new(NAME),
                ReadOptions {
                    allow_changing,
                    ..ReadOptions::default()
                },
            )
            .unwrap()
        };
        let (source, changing) = (open(false), open(true));
        assert_eq!(source.identity.size, 6);
        let mut buffer = BufferPool::default().take();
        source
            .read_chunk(Grid::new(6, ChunkSize::DEFAULT), ChunkId(0), &mut buffer)
            .unwrap();
        assert_eq!(buffer.bytes(), b"short\n");
        source.check_unchanged().unwrap();
        fs::write(NAME, "longer").unwrap();
        assert_eq!(
            source.check_unchanged().unwrap_err().code,
            FailCode::SourceChanged
        );
        changing.check_unchanged().unwrap();
        fs::write(NAME, "less").unwrap();
        assert_eq!(
            changing.check_unchanged().unwrap_err().code,
            FailCode::SourceChanged
        );
        let error =
            Source::open(Path::new("/proc/self/pagemap"), ReadOptions::default()).unwrap_err();
        assert!(
            error.source.to_string().ends_with("exceeds 4194304 bytes"),
            "{error:?}"
        );
    }
}

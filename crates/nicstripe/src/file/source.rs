//! The file that is sent.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use nicstripe_proto::{ChainingValue, ChunkId, FailCode, Grid, Name, SourceIdentity, hash_tree::chunk_value, name::escaped};
use rustix::fs::{Advice, CWD, FileType, Mode, OFlags, fadvise, fstat, openat};

use super::{ChunkBuffer, FileError, Root, identity_of};

/// An open source and what it was when it was opened.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    name: String,
    identity: SourceIdentity,
    mode: u32,
}

impl Source {
    /// Opens a file of our user.
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let name = escaped(path.as_os_str().as_encoded_bytes());
        let file = openat(CWD, path, FLAGS, Mode::empty()).map_err(|error| FileError::new("open", &name, error.into()))?;
        Self::of(file.into(), name)
    }

    /// Opens a file beneath a daemon's root.
    pub(crate) fn open_beneath(root: &Root, name: &Name) -> Result<Self, FileError> {
        let file = root.open_file(name, FLAGS).map_err(|error| FileError::new("open", name, error))?;
        Self::of(file.into(), name.to_string())
    }

    /// Takes an open file; `name` is for people.
    pub(crate) fn of(file: File, name: String) -> Result<Self, FileError> {
        let stat = fstat(&file).map_err(|error| FileError::new("stat", &name, error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let what = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { "a directory" } else { "not a regular file" };
            let error = io::Error::other(format!("it is {what}, expected a regular file"));
            return Err(FileError::new("send", &name, error).with_code(FailCode::NotAFile));
        }
        // A hint only: assignments are read in order, so the kernel may read ahead further.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(Self { file, name, identity: identity_of(&stat), mode: stat.st_mode & 0o7777 })
    }

    pub(crate) fn identity(&self) -> SourceIdentity {
        self.identity
    }

    /// Permission bits.
    pub(crate) fn mode(&self) -> u32 {
        self.mode
    }

    /// Reads a chunk into `buffer` and hashes what was read.
    pub(crate) fn read_chunk(&self, grid: Grid, chunk: ChunkId, buffer: &mut ChunkBuffer) -> Result<ChainingValue, FileError> {
        let error = |error| FileError::new("read", &self.name, error);
        let extent = grid.extent_of(chunk).ok_or_else(|| error(io::ErrorKind::UnexpectedEof.into()))?;
        let bytes = buffer.bytes_mut(extent.len as usize);
        self.file.read_exact_at(bytes, extent.offset).map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => {
                error(io::Error::other("it became shorter while it was read")).with_code(FailCode::SourceChanged)
            }
            _ => error(cause).resumable(),
        })?;
        chunk_value(grid, chunk, bytes).map_err(|cause| error(io::Error::other(cause)))
    }

    /// Compares the file with what it was when it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), FileError> {
        let stat = fstat(&self.file).map_err(|error| FileError::new("stat", &self.name, error.into()))?;
        self.identity
            .check(&identity_of(&stat))
            .map_err(|changed| FileError::new("send", &self.name, io::Error::other(changed)).with_code(FailCode::SourceChanged))
    }
}

/// Not blocking, so that a FIFO is refused instead of waited for.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

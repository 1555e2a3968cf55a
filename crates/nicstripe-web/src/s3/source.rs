//! Local file to upload: its parts, and its hashes.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use crc_fast::{CrcAlgorithm, checksum, checksum_combine};
use nicstripe::{
    Digest, FileError,
    storage::{ChunkSize, Grid, Subtree},
};
use nicstripe_proto::{ChunkId, HashTree, deal::Pieces, hash_tree::chunk_value};
use parking_lot::Mutex;
use tokio_util::{bytes::Bytes, sync::CancellationToken};

use crate::error::WebError;

/// Open file with what it was when it was opened.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    path: PathBuf,
    found: Found,
    pub(crate) pieces: Pieces,
}

/// Identity of a file and of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) size: u64,
    pub(crate) modified: (i64, i64),
    changed: (i64, i64),
    inode: (u64, u64),
    pub(crate) mode: u32,
}

impl Found {
    fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: (metadata.dev(), metadata.ino()),
            mode: metadata.mode(),
        }
    }
}

impl Source {
    /// Opens a regular file. `part` is the least number of bytes of a part.
    pub(crate) fn open(path: &Path, part: u64) -> Result<Self, WebError> {
        let failed = |error| FileError::new("open", path.display(), error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("not a regular file")).into());
        }
        let size = metadata.len();
        Ok(Self {
            file,
            path: path.to_owned(),
            found: Found::of(&metadata),
            pieces: Pieces {
                size,
                each: part_size(size, part),
            },
        })
    }

    pub(crate) fn found(&self) -> Found {
        self.found
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(&self, part: ChunkId) -> Result<Bytes, WebError> {
        let length = self.pieces.len(part.into());
        let mut bytes = vec![0; length as usize];
        let read = self
            .file
            .read_exact_at(&mut bytes, part.0 * self.pieces.each);
        match read {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.changed()),
            Err(error) => Err(FileError::new("read", self.path.display(), error).into()),
        }
    }

    /// Returns an error if the file is another one than at the start.
    pub(crate) fn check(&self) -> Result<(), WebError> {
        let metadata = self.file.metadata();
        match metadata.is_ok_and(|metadata| Found::of(&metadata) == self.found) {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    fn changed(&self) -> WebError {
        WebError::SourceChanged {
            path: self.path.display().to_string(),
        }
    }

    /// Returns the BLAKE3 hash of the file, computed on all processors. `None` if it was stopped.
    pub(crate) fn hash(&self, stop: &CancellationToken) -> Result<Option<Digest>, WebError> {
        let size = self.pieces.size;
        let grid = Grid::new(
            size,
            ChunkSize::from_log2(CHUNK_LOG2).unwrap_or(ChunkSize::DEFAULT),
        );
        let chunks = grid.chunk_count();
        let next = AtomicU64::new(0);
        let done = Mutex::new((HashTree::new(grid), None));
        let work = || {
            let mut buffer = vec![0; grid.chunk_size.bytes() as usize];
            loop {
                let chunk = ChunkId(next.fetch_add(1, Ordering::Relaxed));
                let Some(extent) = grid.extent_of(chunk).filter(|_| !stop.is_cancelled()) else {
                    return;
                };
                let bytes = &mut buffer[..extent.len as usize];
                let hashed = self
                    .file
                    .read_exact_at(bytes, extent.offset)
                    .and_then(|()| chunk_value(grid, chunk, bytes).map_err(io::Error::other));
                let mut done = done.lock();
                match hashed {
                    Ok(value) => {
                        // A chunk is hashed once.
                        let _ = done.0.insert(Subtree::of_chunk(chunk, value));
                    }
                    Err(error) => {
                        done.1.get_or_insert(error);
                        return;
                    }
                }
            }
        };
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MOST_THREADS);
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let (tree, error) = done.into_inner();
        match error {
            Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.changed());
            }
            Some(error) => {
                return Err(FileError::new("read", self.path.display(), error).into());
            }
            None if stop.is_cancelled() => return Ok(None),
            None => {}
        }
        Ok(match chunks {
            0 => Some(Digest(*blake3::hash(b"").as_bytes())),
            _ => tree.root(),
        })
    }
}

/// Returns the bytes of a part: at least `least`, and few enough parts for the longest object.
fn part_size(size: u64, least: u64) -> u64 {
    let needed = size.div_ceil(MOST_PARTS);
    needed.next_multiple_of(1 << 20).clamp(least, MOST_PART)
}

/// Returns a CRC-64/NVME as headers have it.
pub(crate) fn base64(crc: u64) -> String {
    STANDARD.encode(crc.to_be_bytes())
}

/// Reads a CRC-64/NVME of a header.
pub(crate) fn of_base64(text: &str) -> Option<u64> {
    let bytes = STANDARD.decode(text).ok()?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Returns the CRC of two runs of bytes from those of each.
pub(crate) fn joined(first: u64, second: u64, second_length: u64) -> u64 {
    checksum_combine(CrcAlgorithm::Crc64Nvme, first, second, second_length)
}

const CHUNK_LOG2: u8 = 20;

/// Threads that hash: more would wait for memory.
const MOST_THREADS: usize = 4;

/// Parts of an object, and bytes of a part, at most (limits of S3).
const MOST_PARTS: u64 = 10_000;
const MOST_PART: u64 = 5 << 30;

#[cfg(test)]
mod tests {
    use nicstripe_proto::ChunkRange;

    use super::*;

    #[test]
    fn parts_are_few_enough_and_large_enough() {
        for (size, expected) in [
            (0, 8 << 20),
            (1, 8 << 20),
            (80_000 << 20, 8 << 20),
            ((80_000 << 20) + 1, 9 << 20),
            (5 << 40, 525 << 20),
        ] {
            let each = part_size(size, 8 << 20);
            assert_eq!(each, expected, "{size}");
            assert!(Pieces { size, each }.count() <= MOST_PARTS);
        }
    }

    #[test]
    fn hashes_are_those_of_the_whole() {
        for length in [0, 1, (1 << 20) + 1, (9 << 20) + 12_345] {
            let mut bytes = vec![0; length];
            blake3::Hasher::new().finalize_xof().fill(&mut bytes);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            let source = Source::open(file.path(), 8 << 20).unwrap();
            let digest = source.hash(&CancellationToken::new()).unwrap().unwrap();
            assert_eq!(digest.0, *blake3::hash(&bytes).as_bytes());
            let all = ChunkRange::new(ChunkId(0), source.pieces.count());
            let parts = all.chunks().map(|part| source.read(part).unwrap());
            let whole: Vec<u8> = parts.flatten().collect();
            assert!(whole == bytes);
            source.check().unwrap();
            std::fs::write(file.path(), b"other").unwrap();
            assert!(matches!(
                source.check(),
                Err(WebError::SourceChanged { .. })
            ));
        }
        // The check value of the catalogue of CRCs.
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }
}

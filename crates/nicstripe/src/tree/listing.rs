//! Digest and totals of the files of a tree, by which several machines know that they list the same ones.

use nicstripe_proto::Digest;
use rustix::fs::FileType;

/// Files, symbolic links and special files of a tree, without its directories.
#[derive(Debug, Default)]
pub struct Listing {
    hasher: Box<blake3::Hasher>,
    files: u64,
    bytes: u64,
}

impl Listing {
    /// Adds a file, in the order of the walk, which is that of the names.
    pub(super) fn add(&mut self, path: &[u8], kind: FileType, size: u64) {
        self.hasher.update(&(path.len() as u64).to_le_bytes());
        self.hasher.update(path);
        self.hasher.update(&kind.as_raw_mode().to_le_bytes());
        self.hasher.update(&size.to_le_bytes());
        self.files += 1;
        self.bytes += size;
    }

    /// Returns the BLAKE3 hash of all paths relative to their source, types and sizes.
    pub fn digest(&self) -> Digest {
        Digest(*self.hasher.finalize().as_bytes())
    }

    /// Returns the number of files.
    pub const fn files(&self) -> u64 {
        self.files
    }

    /// Returns the sum of the sizes in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

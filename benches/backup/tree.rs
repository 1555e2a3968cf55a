//! Source tree of the backups, and the changes between backups.

use std::{
    fs,
    path::{Path, PathBuf},
};

use blake3::Hasher;
use nicstripe_testkit::bench::{Result, Shape};

/// Source tree of the backups. Each file has 1 MiB.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    shape: Shape,
}

impl Tree {
    /// Creates a tree in `root`. The tree has `size` bytes, rounded down to whole files, but at
    /// least one file.
    pub(crate) fn plant(root: &Path, size: u64) -> Result<Self> {
        let shape = Shape {
            files: (size / FILE).max(1),
            size: FILE,
            per_directory: 64,
        };
        shape.plant(root)?;
        Ok(Self {
            root: root.to_owned(),
            shape,
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the total size of all files in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.shape.files * self.shape.size
    }

    /// Rewrites one file in a hundred with new content. `number` determines the files and the
    /// content.
    pub(crate) fn change(&self, number: u32) -> Result<()> {
        let first = u64::from(number) % PART;
        for index in (first..self.shape.files).step_by(PART as usize) {
            let mut bytes = vec![0; self.shape.size as usize];
            Hasher::new()
                .update(&number.to_le_bytes())
                .update(&index.to_le_bytes())
                .finalize_xof()
                .fill(&mut bytes);
            fs::write(
                self.root.join(format!(
                    "{:04}/{index:07}",
                    index / self.shape.per_directory
                )),
                bytes,
            )?;
        }
        Ok(())
    }
}

/// Returns a pseudo-random number that depends only on seed and round.
pub(crate) fn random(seed: u32, round: u32) -> u32 {
    let hash = blake3::hash(&[seed.to_le_bytes(), round.to_le_bytes()].concat());
    let [a, b, c, d, ..] = *hash.as_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Size of each file in bytes.
const FILE: u64 = 1 << 20;

/// Ratio of all files to the files that a change rewrites.
const PART: u64 = 100;

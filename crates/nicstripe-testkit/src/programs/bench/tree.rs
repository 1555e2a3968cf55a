//! Creation and size of directory trees.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use blake3::Hasher;

use super::error::Result;

/// Shape of a generated tree: number and size of the files, and files per directory.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub files: u64,
    /// Size of each file in bytes. No content repeats within the tree.
    pub size: u64,
    pub per_directory: u64,
}

impl Shape {
    /// Creates the tree in `root`. The tree is identical in each run, except for the modification
    /// times.
    pub fn plant(self, root: &Path) -> Result<()> {
        fs::create_dir_all(root)?;
        let mut stream = Hasher::new().finalize_xof();
        let mut bytes = vec![0; usize::try_from(self.size)?];
        for index in 0..self.files {
            let directory = root.join(format!("{:04}", index / self.per_directory));
            if index % self.per_directory == 0 {
                fs::create_dir(&directory)?;
            }
            stream.fill(&mut bytes);
            fs::write(directory.join(format!("{index:07}")), &bytes)?;
        }
        Ok(())
    }

    /// Returns an upper bound of the tree's disk usage in bytes: blocks of 4 KiB and directory
    /// entries.
    pub fn room(self) -> u64 {
        self.files * (self.size.next_multiple_of(4096) + 1024)
    }
}

/// Number and total size of the files of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contents {
    /// Number of regular files. Each hard link counts.
    pub files: u64,
    /// Total size of the regular files in bytes. A file with several hard links counts once.
    pub bytes: u64,
}

impl Contents {
    /// Counts the regular files below `root` and their bytes.
    pub fn of(root: &Path) -> Result<Self> {
        let mut contents = Self::default();
        contents.add(root, &mut BTreeMap::new())?;
        Ok(contents)
    }

    fn add(&mut self, path: &Path, seen: &mut BTreeMap<(u64, u64), ()>) -> Result<()> {
        let metadata = describe(path)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(path)? {
                self.add(&entry?.path(), seen)?;
            }
        } else if metadata.is_file() {
            self.files += 1;
            let is_new = metadata.nlink() == 1
                || seen.insert((metadata.dev(), metadata.ino()), ()).is_none();
            self.bytes += if is_new { metadata.len() } else { 0 };
        }
        Ok(())
    }
}

fn describe(path: &Path) -> Result<Metadata> {
    fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

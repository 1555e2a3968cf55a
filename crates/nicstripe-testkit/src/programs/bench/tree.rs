//! Creation and comparison of directory trees.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Metadata},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use blake3::Hasher;
use rustix::fs::{lgetxattr, llistxattr};

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

/// Returns the first differences of two trees: names, types, contents, sizes, modes, owners, times,
/// extended attributes and hard links. The comparison stops after about `MOST_SHOWN` differences.
pub fn differences(one: &Path, other: &Path) -> Result<Vec<String>> {
    let mut comparison = Comparison {
        found: Vec::new(),
        first_names: [BTreeMap::new(), BTreeMap::new()],
        blocks: [vec![0; BLOCK], vec![0; BLOCK]],
    };
    comparison.compare(Path::new(""), [one, other])?;
    Ok(comparison.found)
}

struct Comparison {
    found: Vec<String>,
    /// First path of each hard-linked file, by device and inode, for each of the two trees.
    first_names: [BTreeMap<(u64, u64), PathBuf>; 2],
    blocks: [Vec<u8>; 2],
}

impl Comparison {
    fn compare(&mut self, path: &Path, roots: [&Path; 2]) -> Result<()> {
        if self.found.len() >= MOST_SHOWN {
            return Ok(());
        }
        let full = roots.map(|root| {
            if path.as_os_str().is_empty() {
                root.to_owned()
            } else {
                root.join(path)
            }
        });
        let [one, other] = [describe(&full[0])?, describe(&full[1])?];
        for (what, [ours, theirs]) in properties(&one, &other) {
            if ours != theirs {
                self.found
                    .push(format!("{}: {what} {ours} and {theirs}", path.display()));
            }
        }
        self.compare_attributes(path, &full)?;
        if one.is_dir() && other.is_dir() {
            return self.compare_entries(path, roots, &full);
        }
        if one.is_symlink()
            && other.is_symlink()
            && fs::read_link(&full[0])? != fs::read_link(&full[1])?
        {
            self.found
                .push(format!("{}: link to elsewhere", path.display()));
        }
        if one.is_file() && other.is_file() {
            self.compare_files(path, &full, [&one, &other])?;
        }
        Ok(())
    }

    fn compare_entries(
        &mut self,
        path: &Path,
        roots: [&Path; 2],
        full: &[PathBuf; 2],
    ) -> Result<()> {
        let (ours, theirs) = (names(&full[0])?, names(&full[1])?);
        let missing = ours
            .iter()
            .filter(|name| theirs.binary_search(name).is_err())
            .map(|name| ("only in the first", name));
        let extra = theirs
            .iter()
            .filter(|name| ours.binary_search(name).is_err())
            .map(|name| ("only in the second", name));
        self.found.extend(
            missing
                .chain(extra)
                .map(|(what, name)| format!("{}: {what}", path.join(name).display())),
        );
        for name in ours
            .iter()
            .filter(|name| theirs.binary_search(name).is_ok())
        {
            self.compare(&path.join(name), roots)?;
        }
        Ok(())
    }

    fn compare_attributes(&mut self, path: &Path, full: &[PathBuf; 2]) -> Result<()> {
        if attributes(&full[0])? != attributes(&full[1])? {
            self.found
                .push(format!("{}: extended attributes", path.display()));
        }
        Ok(())
    }

    fn compare_files(
        &mut self,
        path: &Path,
        full: &[PathBuf; 2],
        metadata: [&Metadata; 2],
    ) -> Result<()> {
        let [ours, theirs] = [0, 1].map(|end| {
            let inode = (metadata[end].dev(), metadata[end].ino());
            let is_shared = metadata[end].nlink() > 1;
            is_shared.then(|| {
                self.first_names[end]
                    .entry(inode)
                    .or_insert_with(|| path.to_owned())
                    .clone()
            })
        });
        // Ignores hard links from outside the tree.
        if ours.as_deref().unwrap_or(path) != theirs.as_deref().unwrap_or(path) {
            self.found.push(format!("{}: hard links", path.display()));
        }
        if metadata[0].len() == metadata[1].len() && !self.have_same_content(full)? {
            self.found.push(format!("{}: content", path.display()));
        }
        Ok(())
    }

    fn have_same_content(&mut self, full: &[PathBuf; 2]) -> Result<bool> {
        let [mut one, mut other] = [File::open(&full[0])?, File::open(&full[1])?];
        let [ours, theirs] = &mut self.blocks;
        loop {
            let read = one.read(ours)?;
            if read == 0 {
                return Ok(other.read(theirs)? == 0);
            }
            if other.read_exact(&mut theirs[..read]).is_err() || ours[..read] != theirs[..read] {
                return Ok(false);
            }
        }
    }
}

fn describe(path: &Path) -> Result<Metadata> {
    fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Returns mode, owner, modification time and size of two entries as text.
fn properties(one: &Metadata, other: &Metadata) -> [(&'static str, [String; 2]); 4] {
    let both = |text: fn(&Metadata) -> String| [text(one), text(other)];
    // The size of a directory depends on the file system.
    let size = |metadata: &Metadata| {
        if metadata.is_dir() {
            String::new()
        } else {
            metadata.len().to_string()
        }
    };
    [
        ("mode", both(|metadata| format!("{:o}", metadata.mode()))),
        (
            "owner",
            both(|metadata| format!("{}:{}", metadata.uid(), metadata.gid())),
        ),
        (
            "time",
            both(|metadata| format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec())),
        ),
        ("size", both(size)),
    ]
}

/// Returns the entry names of a directory, sorted.
fn names(path: &Path) -> Result<Vec<OsString>> {
    let mut names = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Returns the user extended attributes and ACLs of a file. Empty if the file system supports none.
fn attributes(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // Most files have no attributes and need no buffer.
    if llistxattr(path, &mut [0_u8; 0]).unwrap_or(0) == 0 {
        return Ok(BTreeMap::new());
    }
    let mut names = vec![0; ATTRIBUTES];
    let len = llistxattr(path, &mut names)?;
    let names = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user.") || name.starts_with(b"system."));
    names
        .map(|name| {
            let mut value = vec![0; ATTRIBUTES];
            let len = lgetxattr(path, name, &mut value)?;
            value.truncate(len);
            Ok((name.to_vec(), value))
        })
        .collect()
}

const BLOCK: usize = 1 << 20;

/// Number of differences after which a comparison stops.
const MOST_SHOWN: usize = 10;

/// Buffer size in bytes: Linux's limit for a list of attribute names and for a value
/// (`XATTR_LIST_MAX`).
const ATTRIBUTES: usize = 64 << 10;

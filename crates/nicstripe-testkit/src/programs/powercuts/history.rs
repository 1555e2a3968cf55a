//! History of the copies, and the file system content that they permit after a power cut.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::disk::Position;
use crate::bench::Way;

/// Content of a path: a file, a directory, a symbolic link or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// No file at this path.
    Absent,
    Directory,
    Link(PathBuf),
    File {
        len: u64,
        digest: blake3::Hash,
        /// Modification time in seconds and nanoseconds; `None` if the copy does not preserve the
        /// time.
        mtime: Option<(i64, i64)>,
    },
}

impl Thing {
    /// Reads the state of a path. For a file: digest, length and modification time.
    pub fn at(path: &Path) -> io::Result<Self> {
        let metadata = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Absent),
            other => other?,
        };
        if metadata.is_dir() {
            return Ok(Self::Directory);
        }
        if metadata.is_symlink() {
            return Ok(Self::Link(fs::read_link(path)?));
        }
        let digest = blake3::hash(&fs::read(path)?);
        Ok(Self::File {
            len: metadata.len(),
            digest,
            mtime: Some((metadata.mtime(), metadata.mtime_nsec())),
        })
    }

    /// Removes the modification time, for a copy that does not preserve times.
    pub fn without_time(self) -> Self {
        match self {
            Self::File { len, digest, .. } => Self::File {
                len,
                digest,
                mtime: None,
            },
            other => other,
        }
    }

    /// Returns true if `found` equals `self`. Ignores the time if `self` has none.
    pub fn is(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::File { mtime: None, .. }, found) => *self == found.clone().without_time(),
            _ => self == found,
        }
    }
}

/// Run of `nicstripe cp`.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Index of the worker that ran the copy. A worker runs its copies one after the other, on
    /// paths that no other worker uses.
    pub worker: usize,
    pub way: Way,
    /// Options of `cp`, without addresses and ports.
    pub options: Vec<String>,
    /// Path relative to the source folder. A trailing slash selects the content of a directory.
    pub source: String,
    /// Path of the copy, relative to the target folder.
    pub target: String,
    /// Expected state of each path after success, relative to the target folder.
    pub things: Vec<(PathBuf, Thing)>,
    /// True for `--inplace`, which may leave mixed content when interrupted.
    pub is_in_place: bool,
    pub started: Position,
    /// Log position at which the client reported success; `None` if the copy was killed.
    pub acknowledged: Option<Position>,
}

impl Copy {
    /// Returns true if the client reported the copy's success before the power cut.
    fn is_acknowledged_at(&self, cut: Position) -> bool {
        self.acknowledged
            .is_some_and(|acknowledged| acknowledged <= cut)
    }
}

/// Copies made on a simulated disk, in the order in which they started.
#[derive(Clone, Debug, Default)]
pub struct History {
    copies: Vec<Copy>,
}

/// Permitted states of a path after a power cut.
#[derive(Debug)]
pub struct Expected<'a> {
    /// Result of the last acknowledged copy; `Absent` if no copy was acknowledged.
    pub durable: &'a Thing,
    pub is_acknowledged: bool,
    /// Earlier states of the path, which must not reappear.
    pub earlier: Vec<&'a Thing>,
    /// Results of copies that were not acknowledged before the cut.
    pub pending: Vec<&'a Thing>,
    /// True if an unacknowledged copy writes in place.
    pub may_be_mixed: bool,
}

impl History {
    pub fn new(mut copies: Vec<Copy>) -> Self {
        copies.sort_by_key(|copy| copy.started);
        Self { copies }
    }

    /// Returns the log positions at which copies were acknowledged.
    pub fn acknowledgements(&self) -> Vec<Position> {
        self.copies
            .iter()
            .filter_map(|copy| copy.acknowledged)
            .collect()
    }

    /// Returns the permitted states of each path after a power cut at `cut`.
    pub fn expected(&self, cut: Position) -> BTreeMap<&Path, Expected<'_>> {
        let mut expected = BTreeMap::new();
        for copy in self.copies.iter().filter(|copy| copy.started <= cut) {
            for (path, thing) in &copy.things {
                let entry = expected
                    .entry(path.as_path())
                    .or_insert_with(Expected::nothing);
                if copy.is_acknowledged_at(cut) {
                    entry.acknowledge(thing);
                } else {
                    entry.pending.push(thing);
                    entry.may_be_mixed |= copy.is_in_place;
                }
            }
        }
        expected
    }

    /// Returns the copies that a power cut interrupted: the last copy of each worker, unless
    /// acknowledged.
    pub fn interrupted(&self, cut: Position) -> Vec<&Copy> {
        let mut last = BTreeMap::new();
        for copy in self.copies.iter().filter(|copy| copy.started <= cut) {
            last.insert(copy.worker, copy);
        }
        last.into_values()
            .filter(|copy| !copy.is_acknowledged_at(cut))
            .collect()
    }
}

impl<'a> Expected<'a> {
    fn nothing() -> Self {
        Self {
            durable: &Thing::Absent,
            is_acknowledged: false,
            earlier: Vec::new(),
            pending: Vec::new(),
            may_be_mixed: false,
        }
    }

    fn acknowledge(&mut self, thing: &'a Thing) {
        self.earlier.push(self.durable);
        self.earlier.append(&mut self.pending);
        (self.durable, self.is_acknowledged, self.may_be_mixed) = (thing, true, false);
    }

    /// Compares the state `found` with the permitted states.
    pub fn judge(&self, found: &Thing) -> Verdict {
        let is_allowed = self.durable.is(found) || self.pending.iter().any(|thing| thing.is(found));
        if is_allowed || (self.may_be_mixed && *found != Thing::Absent) {
            return Verdict::Right;
        }
        if self.is_acknowledged
            && (*found == Thing::Absent || self.earlier.iter().any(|thing| thing.is(found)))
        {
            return Verdict::Lost;
        }
        if self.is_acknowledged && self.pending.is_empty() {
            Verdict::Wrong
        } else {
            Verdict::Partial
        }
    }
}

/// Result of comparing the state of a path with the permitted states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// The result of an acknowledged copy is missing, or the object that it replaced has
    /// reappeared.
    Lost,
    /// The path of an acknowledged copy has content that no copy wrote to it.
    Wrong,
    /// The path has content that no copy wrote to it, and a copy was in progress at the power cut.
    Partial,
}

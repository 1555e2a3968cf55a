//! What was copied when, and what must therefore be there after a power cut.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{bench_support::Way, disk::Position};

/// What has a name, or that nothing has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// Nothing has the name.
    Absent,
    Directory,
    Link(PathBuf),
    File {
        len: u64,
        digest: blake3::Hash,
        /// Seconds and nanoseconds; `None` where a copy does not keep it.
        mtime: Option<(i64, i64)>,
    },
}

impl Thing {
    /// Looks at what has a name; with its time.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
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
        Ok(Self::File { len: metadata.len(), digest, mtime: Some((metadata.mtime(), metadata.mtime_nsec())) })
    }

    /// The same for a copy that does not keep times.
    pub(crate) fn without_time(self) -> Self {
        match self {
            Self::File { len, digest, .. } => Self::File { len, digest, mtime: None },
            other => other,
        }
    }

    /// Whether what was found is this.
    pub(crate) fn is(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::File { mtime: None, .. }, found) => *self == found.clone().without_time(),
            _ => self == found,
        }
    }
}

/// One run of `cp`.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// Who ran it: a worker runs one after the other, and on names of its own.
    pub(crate) worker: usize,
    pub(crate) way: Way,
    /// Its words but for addresses and ports.
    pub(crate) options: Vec<String>,
    /// Beneath the folder of sources; with a slash at its end for what is in a directory.
    pub(crate) source: String,
    /// Beneath the folder of targets.
    pub(crate) target: String,
    /// What it makes of names beneath that folder.
    pub(crate) things: Vec<(PathBuf, Thing)>,
    /// Whether it may leave a mixture when it is interrupted.
    pub(crate) is_in_place: bool,
    pub(crate) started: Position,
    /// When its success was known; never, where it was killed.
    pub(crate) acknowledged: Option<Position>,
}

impl Copy {
    /// Whether its success was known before a power cut.
    fn is_acknowledged_at(&self, cut: Position) -> bool {
        self.acknowledged.is_some_and(|acknowledged| acknowledged <= cut)
    }
}

/// All that was copied, in the order of the starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    copies: Vec<Copy>,
}

/// What may have a name after a power cut.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    /// What the last acknowledged copy made of it, and whether there was one.
    pub(crate) durable: &'a Thing,
    pub(crate) is_acknowledged: bool,
    /// What it was before that.
    pub(crate) earlier: Vec<&'a Thing>,
    /// What copies that were not acknowledged would make of it.
    pub(crate) pending: Vec<&'a Thing>,
    /// Whether one of those writes in place.
    pub(crate) may_be_mixed: bool,
}

impl History {
    pub(crate) fn new(mut copies: Vec<Copy>) -> Self {
        copies.sort_by_key(|copy| copy.started);
        Self { copies }
    }

    /// When successes were known.
    pub(crate) fn acknowledgements(&self) -> Vec<Position> {
        self.copies.iter().filter_map(|copy| copy.acknowledged).collect()
    }

    /// What may have which name when the power fails at `cut`.
    pub(crate) fn expected(&self, cut: Position) -> BTreeMap<&Path, Expected<'_>> {
        let mut expected = BTreeMap::new();
        for copy in self.copies.iter().filter(|copy| copy.started <= cut) {
            for (path, thing) in &copy.things {
                let entry = expected.entry(path.as_path()).or_insert_with(Expected::nothing);
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

    /// The copies that the power cut interrupted: the last of each worker, unless it was acknowledged.
    pub(crate) fn interrupted(&self, cut: Position) -> Vec<&Copy> {
        let mut last = BTreeMap::new();
        for copy in self.copies.iter().filter(|copy| copy.started <= cut) {
            last.insert(copy.worker, copy);
        }
        last.into_values().filter(|copy| !copy.is_acknowledged_at(cut)).collect()
    }
}

impl<'a> Expected<'a> {
    fn nothing() -> Self {
        Self { durable: &Thing::Absent, is_acknowledged: false, earlier: Vec::new(), pending: Vec::new(), may_be_mixed: false }
    }

    fn acknowledge(&mut self, thing: &'a Thing) {
        self.earlier.push(self.durable);
        self.earlier.append(&mut self.pending);
        (self.durable, self.is_acknowledged, self.may_be_mixed) = (thing, true, false);
    }

    /// Judges what was found.
    pub(crate) fn judge(&self, found: &Thing) -> Verdict {
        let is_allowed = self.durable.is(found) || self.pending.iter().any(|thing| thing.is(found));
        if is_allowed || (self.may_be_mixed && *found != Thing::Absent) {
            return Verdict::Right;
        }
        if self.is_acknowledged && (*found == Thing::Absent || self.earlier.iter().any(|thing| thing.is(found))) {
            return Verdict::Lost;
        }
        if self.is_acknowledged && self.pending.is_empty() { Verdict::Wrong } else { Verdict::Partial }
    }
}

/// How what was found compares with what may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    /// An acknowledged copy is gone, or what it replaced is back.
    Lost,
    /// Under the name of an acknowledged copy there is something that never was copied there.
    Wrong,
    /// The same while it was being copied, or replaced.
    Partial,
}

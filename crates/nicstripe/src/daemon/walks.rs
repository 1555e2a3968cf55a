//! Listings of a directory, or of all names below it, in the order of their keys, page by page.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use nicstripe_proto::{
    FailCode, Name,
    message::{ObjectEntry, ObjectKind, ObjectStat, walk_key},
};
use rustix::fs::FileType;

use super::objects::{Page, PageRequest, described, find};
use crate::{
    file::{FileError, Lease, entries_of, is_hidden_name, stat_entry},
    storage::{Served, Storage},
};

/// Partly sent walks, so that the daemon reads a directory once and not for each page.
#[derive(Debug, Default)]
pub(super) struct Walks(VecDeque<(Walk, Lease)>);

/// Walk through a directory, and if it is deep through those below it.
#[derive(Debug)]
pub(super) struct Walk {
    dir: Option<Name>,
    is_deep: bool,
    /// Key of the last entry sent to the peer.
    last_sent: Option<Vec<u8>>,
    /// Directories whose names are not all sent, outermost first. The last one is read.
    levels: Vec<Level>,
}

/// Directory that is partly sent.
#[derive(Debug, Default)]
struct Level {
    /// Its name below the root; `None` for the root.
    name: Option<Name>,
    /// Its name below the directory where the walk began, with a `/` at its end; empty for that one.
    prefix: Vec<u8>,
    /// Keys of names that are read and not sent. A storage sends the metadata with the names.
    names: BTreeMap<Vec<u8>, Option<ObjectStat>>,
    /// Greatest key that was read; greater ones in the directory are unread.
    read_to: Option<Vec<u8>>,
    is_complete: bool,
    /// The open directory, only while a page is made of it.
    open: Option<OwnedFd>,
}

/// Maximum number of partly sent walks of a session.
const MOST_WALKS: usize = 4;

/// Maximum number of names in memory of the directory that is read: about 10 MiB. A larger one is read
/// again after that many.
const MOST_NAMES: usize = 65_536;

impl Walks {
    /// Removes and returns the walk that the request continues.
    pub(super) fn take(&mut self, request: PageRequest<'_>) -> Option<Walk> {
        let PageRequest { dir, after, .. } = request;
        let is_it = |(walk, _): &(Walk, Lease)| {
            let place = (walk.dir.as_ref(), walk.last_sent.as_deref());
            after.is_some() && walk.is_deep == request.is_deep && place == (dir, after)
        };
        let known = self.0.iter().position(is_it)?;
        self.0.remove(known).map(|(walk, _)| walk)
    }

    /// Keeps a partly sent walk for its next page, with the lease of its memory.
    pub(super) fn keep(&mut self, walk: Walk, lease: Lease) {
        if self.0.len() >= MOST_WALKS {
            self.0.pop_front();
        }
        self.0.push_back((walk, lease));
    }
}

impl Walk {
    /// Begins behind a key, in the directories that lead there.
    pub(super) fn from(request: PageRequest<'_>, served: &Served) -> Result<Self, FileError> {
        let PageRequest {
            dir,
            after,
            is_deep,
            ..
        } = request;
        let mut walk = Self {
            dir: dir.cloned(),
            is_deep,
            last_sent: after.map(<[u8]>::to_vec),
            levels: vec![Level {
                name: dir.cloned(),
                ..Level::default()
            }],
        };
        if !is_deep {
            walk.levels[0].read_to = walk.last_sent.clone();
            return Ok(walk);
        }
        let mut components = after
            .unwrap_or_default()
            .split(|byte| *byte == b'/')
            .peekable();
        while let Some(component) = components.next() {
            let Some(level) = walk.levels.last_mut() else {
                break;
            };
            // Behind a directory, whose names follow it.
            if component.is_empty() {
                break;
            }
            let is_dir = components.peek().is_some();
            let kind = if is_dir {
                ObjectKind::Dir
            } else {
                ObjectKind::File
            };
            level.read_to = Some(walk_key(component, kind));
            if is_dir {
                let below = level.below(component);
                let below = below.map_err(|error| {
                    let shown = String::from_utf8_lossy(after.unwrap_or_default()).into_owned();
                    FileError::refused("list behind", shown, error)
                })?;
                if !below.is_directory(served)? {
                    break;
                }
                walk.levels.push(below);
            }
        }
        Ok(walk)
    }

    /// Returns the memory of the names in bytes.
    pub(super) fn memory(&self) -> usize {
        let of_level = |level: &Level| {
            let names = level.names.keys().map(|name| name.len() + OF_NAME);
            level.prefix.len() + OF_NAME + names.sum::<usize>()
        };
        self.levels.iter().map(of_level).sum()
    }

    /// Adds entries to the page until it is full. Returns true if more follow.
    pub(super) fn fill(&mut self, page: &mut Page, served: &Served) -> Result<bool, FileError> {
        let more = self.fill_open(page, served);
        self.levels.iter_mut().for_each(|level| level.open = None);
        more
    }

    /// Forgets names of the outermost directories, which are read again, while all are too many.
    fn forget_names(&mut self) {
        let mut count: usize = self.levels.iter().map(|level| level.names.len()).sum();
        for index in 0..self.levels.len().saturating_sub(1) {
            if count <= MOST_KEPT {
                return;
            }
            let [level, below, ..] = &mut self.levels[index..] else {
                return;
            };
            count -= level.names.len();
            level.names.clear();
            level.is_complete = false;
            level.read_to = below.prefix.get(level.prefix.len()..).map(<[u8]>::to_vec);
        }
    }

    fn fill_open(&mut self, page: &mut Page, served: &Served) -> Result<bool, FileError> {
        while let Some(level) = self.levels.last_mut() {
            let Some((key, stat)) = level.names.pop_first() else {
                if level.is_complete {
                    self.levels.pop();
                } else if level.read(self.is_deep, served)? {
                    self.forget_names();
                } else {
                    // Removed meanwhile, or what was a directory is none.
                    self.levels.pop();
                }
                continue;
            };
            let component = key.strip_suffix(b"/").unwrap_or(&key);
            let Some(stat) = level.stat(component, stat, served, page)? else {
                continue;
            };
            // Replaced by something of another kind since it was read: its key is another one.
            if self.is_deep && walk_key(component, stat.kind) != key {
                continue;
            }
            let name = [&level.prefix[..], component].concat();
            let Ok(below) = level.below(component) else {
                // Longer than a name may be: nothing can be asked for by it.
                continue;
            };
            let entry = ObjectEntry { name, stat };
            if page.push(entry).is_err() {
                level.names.insert(key, Some(stat));
                return Ok(true);
            }
            self.last_sent = page.last().map(|last| match self.is_deep {
                true => walk_key(&last.name, last.stat.kind),
                false => last.name.clone(),
            });
            if self.is_deep && stat.kind == ObjectKind::Dir {
                level.open = None;
                self.levels.push(below);
            }
        }
        Ok(false)
    }
}

impl Level {
    fn below(&self, component: &[u8]) -> Result<Self, nicstripe_proto::NameError> {
        let name = match &self.name {
            Some(name) => name.join(component)?,
            None => Name::new([component])?,
        };
        Ok(Self {
            name: Some(name),
            prefix: [&self.prefix[..], component, b"/"].concat(),
            ..Self::default()
        })
    }

    /// Returns false if a directory that the peer has named is something else, such as a link: a walk
    /// follows none. A storage has no links.
    fn is_directory(&self, served: &Served) -> Result<bool, FileError> {
        let (Some(name), Served::Files(root)) = (&self.name, served) else {
            return Ok(true);
        };
        match find(root, name, "list") {
            Ok((.., stat)) => Ok(stat.kind == ObjectKind::Dir),
            Err(error) if error.code == FailCode::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn error(&self) -> impl Fn(io::Error) -> FileError + use<> {
        let shown = self
            .name
            .as_ref()
            .map_or_else(|| ".".to_owned(), ToString::to_string);
        move |cause| FileError::new("list", &shown, cause)
    }

    /// Opens the directory; returns `None` if it is gone.
    fn opened(&mut self, served: &Served) -> Result<Option<&OwnedFd>, FileError> {
        if let (None, Served::Files(root)) = (&self.open, served) {
            match root.open_directory(self.name.as_ref()) {
                Ok(open) => self.open = Some(open),
                // The directory of the request must exist; those below it may go.
                Err(cause) if !self.prefix.is_empty() && is_gone(&cause) => return Ok(None),
                Err(cause) => return Err(self.error()(cause)),
            }
        }
        Ok(self.open.as_ref())
    }

    /// Reads the smallest keys that are greater than the last one read, at most [`MOST_NAMES`].
    /// Returns false if the directory is gone.
    fn read(&mut self, is_deep: bool, served: &Served) -> Result<bool, FileError> {
        let mut found = Smallest::behind(self.read_to.take());
        match served {
            Served::Files(_) => {
                let error = self.error();
                let Some(open) = self.opened(served)? else {
                    return Ok(false);
                };
                for entry in entries_of(open).map_err(|cause| error(cause.into()))? {
                    let entry = entry.map_err(|cause| error(cause.into()))?;
                    let name = entry.file_name().to_bytes();
                    if is_hidden_name(name) {
                        continue;
                    }
                    if !is_deep {
                        found.add(name.to_vec(), None);
                        continue;
                    }
                    let kind = match entry.file_type() {
                        FileType::Directory => ObjectKind::Dir,
                        FileType::Unknown => {
                            let stat = stat_entry(open, OsStr::from_bytes(name))
                                .map_err(|cause| error(cause.into()))?;
                            stat.map_or(ObjectKind::Other, |stat| described(&stat).kind)
                        }
                        _ => ObjectKind::File,
                    };
                    found.add(walk_key(name, kind), None);
                }
            }
            Served::Other(stored) => {
                let storage = stored.to_find("list", self.name.as_ref())?;
                match add_stored(storage, self.name.as_ref(), &mut found) {
                    Err(error) if error.code == FailCode::NotFound && !self.prefix.is_empty() => {
                        return Ok(false);
                    }
                    added => added?,
                }
            }
        }
        (self.names, self.is_complete) = (found.keys, found.is_complete);
        self.read_to = self.names.last_key_value().map(|(key, _)| key.clone());
        Ok(true)
    }

    /// Returns the metadata of a name in this directory; `None` if it is gone.
    fn stat(
        &mut self,
        component: &[u8],
        known: Option<ObjectStat>,
        served: &Served,
        page: &Page,
    ) -> Result<Option<ObjectStat>, FileError> {
        if known.is_some() || !matches!(served, Served::Files(_)) {
            return Ok(known);
        }
        let error = self.error();
        let Some(open) = self.opened(served)? else {
            return Ok(None);
        };
        let component = OsStr::from_bytes(component);
        let stat = stat_entry(open, component).map_err(|cause| error(cause.into()))?;
        Ok(stat.map(|stat| page.described(open, component, &stat)))
    }
}

/// Smallest keys of a directory, at most [`MOST_NAMES`], behind a certain one.
struct Smallest {
    keys: BTreeMap<Vec<u8>, Option<ObjectStat>>,
    behind: Option<Vec<u8>>,
    is_complete: bool,
}

impl Smallest {
    fn behind(key: Option<Vec<u8>>) -> Self {
        Self {
            keys: BTreeMap::new(),
            behind: key,
            is_complete: true,
        }
    }

    fn add(&mut self, key: Vec<u8>, stat: Option<ObjectStat>) {
        if self.behind.as_ref().is_some_and(|behind| key <= *behind) {
            return;
        }
        self.keys.insert(key, stat);
        if self.keys.len() > MOST_NAMES {
            self.keys.pop_last();
            self.is_complete = false;
        }
    }
}

fn add_stored(
    storage: &dyn Storage,
    dir: Option<&Name>,
    found: &mut Smallest,
) -> Result<(), FileError> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let listed = storage.list(dir, after.as_deref(), MOST_LISTED)?;
        let last = listed.entries.last().map(|(name, _)| name.clone());
        let goes_on = listed.more && last > after;
        for (name, stat) in listed.entries {
            let stat = stat.on_wire();
            found.add(walk_key(&name, stat.kind), Some(stat));
        }
        if !goes_on {
            return Ok(());
        }
        after = last;
    }
}

fn is_gone(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Memory of a name besides its bytes: its place in the map.
const OF_NAME: usize = 96;

/// Maximum number of names of a walk in memory, besides those of the directory that is read.
const MOST_KEPT: usize = 2 * MOST_NAMES;

/// Number of entries that a storage is asked for at once.
const MOST_LISTED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Quota;

    #[test]
    fn a_directory_with_more_names_than_are_kept_is_read_piece_by_piece() {
        let names: Vec<Vec<u8>> = (0..=MOST_NAMES).map(|n| format!("{n:06}").into()).collect();
        let read = |behind: Option<&[u8]>| {
            let mut found = Smallest::behind(behind.map(<[u8]>::to_vec));
            let mut names = names.iter().rev();
            names
                .by_ref()
                .for_each(|name| found.add(name.clone(), None));
            (
                found.keys.into_keys().collect::<Vec<_>>(),
                found.is_complete,
            )
        };
        let (first, last) = names.split_at(MOST_NAMES);
        assert!(read(None) == (first.to_vec(), false));
        assert!(read(Some(&names[MOST_NAMES - 1])) == (last.to_vec(), true));
        assert!(read(Some(b"~")) == (Vec::new(), true));
    }

    #[test]
    fn a_listing_continues_where_it_was_and_no_more_than_four_are_kept() {
        let names = ["a", "b", "c", "d", "e"].map(|text| Name::parse(text.as_bytes()).unwrap());
        let request = |index: usize, after: Option<&'static [u8]>, is_deep| PageRequest {
            dir: Some(&names[index]),
            after,
            most: 1,
            digests: false,
            is_deep,
        };
        let mut walks = Walks::default();
        for name in &names {
            let walk = Walk {
                dir: Some(name.clone()),
                is_deep: false,
                last_sent: Some(b"x".to_vec()),
                levels: Vec::new(),
            };
            let lease = Quota::new(1000).try_lease(walk.memory()).unwrap();
            walks.keep(walk, lease);
        }
        for (index, after, is_deep, is_kept) in [
            (0, Some(&b"x"[..]), false, false),
            (1, Some(b"w"), false, false),
            (1, None, false, false),
            (1, Some(b"x"), true, false),
            (1, Some(b"x"), false, true),
            (1, Some(b"x"), false, false),
            (4, Some(b"x"), false, true),
        ] {
            let taken = walks.take(request(index, after, is_deep));
            assert_eq!(taken.is_some(), is_kept, "{index} {after:?} {is_deep}");
        }
    }
}

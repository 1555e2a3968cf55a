//! Name requests (list, stat, remove, rename, mkdir) of a peer, below its root. The calls block and
//! run on the I/O threads.

use std::{
    collections::{BinaryHeap, VecDeque},
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    sync::{Mutex, PoisonError},
};

use nicstripe_proto::{
    FailCode, Name,
    journal::Timestamp,
    message::{AnswerKind, AskKind, MOST_ANSWER, ObjectEntry, ObjectKind, ObjectStat},
};
use rustix::fs::{
    AtFlags, FileType, RenameFlags, Stat, fsync, renameat, renameat_with, statat, unlinkat,
};

use super::service::Service;
use crate::{
    file::{FileError, Root, entries_of, is_hidden_name},
    storage::{Served, Storage},
    trust::Access,
};

impl Service {
    /// Carries out a name request and returns the answer.
    pub(super) fn carry_out(&self, ask: &AskKind) -> AnswerKind {
        let done = |()| AnswerKind::Done;
        let answered = match ask {
            AskKind::List { dir, after, most } => self
                .list(dir.as_ref(), after.as_deref(), *most as usize)
                .map(|(entries, more)| AnswerKind::Entries { entries, more }),
            AskKind::Stat { name } => self.stat(name).map(|stat| AnswerKind::Stat { stat }),
            AskKind::Remove { name } => self.remove(name).map(done),
            AskKind::Rename { from, to, replace } => self.rename(from, to, *replace).map(done),
            AskKind::MakeDir { name } => self.make_dir(name).map(done),
        };
        answered.unwrap_or_else(|error| AnswerKind::Failed {
            code: error.code,
            text: error.one_line(),
        })
    }

    /// Returns at most `most` entries of a directory (`None`: the root) in byte order of their
    /// names, starting after the name `after`; and true if more follow.
    pub(crate) fn list(
        &self,
        dir: Option<&Name>,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<(Vec<ObjectEntry>, bool), FileError> {
        let shown = || dir.map_or_else(|| ".".to_owned(), ToString::to_string);
        let error = |cause: io::Error| FileError::new("list", shown(), cause);
        let root = match self.served() {
            Served::Files(root) => root,
            Served::Other(stored) => {
                return stored_page(stored.to_find("list", dir)?, dir, after, most);
            }
        };
        let opened = root.open_directory(dir).map_err(error)?;
        let mut listing = self.listings().take(dir, after);
        let mut page = Page {
            entries: Vec::new(),
            weight: 0,
            most,
        };
        loop {
            while let Some(name) = listing.names.pop_front() {
                let Some(stat) = looked_up(&opened, OsStr::from_bytes(&name)).map_err(error)?
                else {
                    continue;
                };
                if let Err(ObjectEntry { name, .. }) = page.push(ObjectEntry { name, stat }) {
                    listing.names.push_front(name);
                    listing.told = page.entries.last().map(|last| last.name.clone());
                    self.listings().keep(listing);
                    return Ok((page.entries, true));
                }
            }
            if listing.is_complete {
                return Ok((page.entries, false));
            }
            listing.fill(&opened, MOST_NAMES).map_err(error)?;
        }
    }

    /// Returns the kind, size and modification time of a name. Does not follow a symlink at the
    /// last component.
    pub(crate) fn stat(&self, name: &Name) -> Result<ObjectStat, FileError> {
        match self.served() {
            Served::Files(root) => find(root, name, "look at").map(|(.., stat)| stat),
            Served::Other(stored) => stored
                .to_find("look at", Some(name))?
                .stat(name)
                .map(ObjectStat::from),
        }
    }

    /// Removes a file or an empty directory, durably.
    pub(crate) fn remove(&self, name: &Name) -> Result<(), FileError> {
        self.check_writable(name)?;
        let root = match self.served() {
            Served::Files(root) => root,
            Served::Other(stored) => {
                let storage = stored.to_find("remove", Some(name))?;
                self.check_removable(name, &storage.stat(name)?.into())?;
                return storage.remove(name);
            }
        };
        let (parent, leaf, stat) = find(root, name, "remove")?;
        self.check_removable(name, &stat)?;
        let flags = if stat.kind == ObjectKind::Dir {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        let removed = unlinkat(&parent, leaf, flags).map_err(io::Error::from);
        removed.map_err(|cause| failed("remove", name, cause))?;
        synced(&parent, name)
    }

    /// Renames a file or directory, durably.
    pub(crate) fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), FileError> {
        self.check_writable(from)?;
        let may_rename = || {
            if self.access() == Access::AppendOnly {
                Err(only_appends("rename", from))
            } else {
                Ok(())
            }
        };
        let root = match self.served() {
            Served::Files(root) => root,
            Served::Other(stored) => {
                stored.to_find("rename", Some(from))?.stat(from)?;
                may_rename()?;
                return stored.to_name("rename to", to)?.rename(from, to, replace);
            }
        };
        let (old, old_name, _) = find(root, from, "rename")?;
        may_rename()?;
        let (new, new_name) = root
            .open_place_for(to)
            .map_err(|cause| failed("open the directory of", to, cause))?;
        let renamed = match replace {
            true => renameat(&old, old_name, &new, new_name),
            false => renameat_with(&old, old_name, &new, new_name, RenameFlags::NOREPLACE),
        };
        renamed.map_err(|cause| failed("rename to", to, cause.into()))?;
        synced(&new, to)?;
        synced(&old, from)
    }

    /// Creates a directory and its missing parents, durably. Succeeds if it exists.
    pub(crate) fn make_dir(&self, name: &Name) -> Result<(), FileError> {
        self.check_writable(name)?;
        match self.served() {
            Served::Files(root) => root
                .make_directory(name)
                .map_err(|cause| failed("make directory", name, cause)),
            Served::Other(stored) => stored.to_name("make directory", name)?.make_dir(name),
        }
    }

    pub(super) fn make_parents(&self, name: &Name) -> Result<(), FileError> {
        let mut components: Vec<&[u8]> = name.components().collect();
        components.pop();
        match Name::new(components) {
            Ok(parent) => self.make_dir(&parent),
            // The name has no parent below the root.
            Err(_) => Ok(()),
        }
    }

    /// Checks that a peer may remove this file. An append-only peer may only remove a restic lock.
    /// Its [`Root`] follows no symlinks, so the last directory of the name really is `locks`.
    fn check_removable(&self, name: &Name, stat: &ObjectStat) -> Result<(), FileError> {
        if self.access() == Access::AppendOnly && !(stat.kind == ObjectKind::File && is_lock(name))
        {
            return Err(only_appends("remove", name));
        }
        Ok(())
    }
}

/// Opens the parent directory of a name. Returns it with the last component and the metadata of the
/// name. `operation` describes the call in errors.
fn find<'a>(
    root: &Root,
    name: &'a Name,
    operation: &'static str,
) -> Result<(OwnedFd, &'a OsStr, ObjectStat), FileError> {
    let found = root.open_parent_of(name).and_then(|(parent, leaf)| {
        let stat = looked_up(&parent, leaf)?;
        Ok((parent, leaf, stat.ok_or(io::ErrorKind::NotFound)?))
    });
    found.map_err(|cause| failed(operation, name, cause))
}

/// Returns up to `most` entries of a [`Storage`]'s directory that fit into one message, and true if
/// more follow.
fn stored_page(
    storage: &dyn Storage,
    dir: Option<&Name>,
    after: Option<&[u8]>,
    most: usize,
) -> Result<(Vec<ObjectEntry>, bool), FileError> {
    let (listed, more) = storage.list(dir, after, most)?;
    // A client continues after the last entry, so an empty page must end the listing.
    let more = more && !listed.is_empty();
    let mut page = Page {
        entries: Vec::new(),
        weight: 0,
        most,
    };
    for (name, stat) in listed {
        if page
            .push(ObjectEntry {
                name,
                stat: stat.into(),
            })
            .is_err()
        {
            return Ok((page.entries, true));
        }
    }
    Ok((page.entries, more))
}

/// Entries of one answer to a list request, limited in number and message size.
struct Page {
    entries: Vec<ObjectEntry>,
    weight: usize,
    most: usize,
}

impl Page {
    /// Adds an entry, or returns it as an error if the page is full.
    fn push(&mut self, entry: ObjectEntry) -> Result<(), ObjectEntry> {
        let weight = self.weight + entry.weight();
        if self.entries.len() >= self.most || weight > MOST_ANSWER {
            return Err(entry);
        }
        self.weight = weight;
        self.entries.push(entry);
        Ok(())
    }
}

/// Partly listed directories, so that the daemon reads a directory once and not for each page.
#[derive(Debug, Default)]
pub(super) struct Listings(VecDeque<Listing>);

#[derive(Debug, Default)]
pub(super) struct Listing {
    dir: Option<Name>,
    /// Name of the last entry sent to the peer.
    told: Option<Vec<u8>>,
    /// Names read from the directory and not yet sent, in byte order.
    names: VecDeque<Vec<u8>>,
    /// Greatest name read so far; greater ones in the directory are unread.
    read_to: Option<Vec<u8>>,
    is_complete: bool,
}

/// Maximum number of partly listed directories cached per session.
const MOST_LISTINGS: usize = 2;

/// Maximum number of names cached per directory: 4 MiB at 64 bytes each. A larger directory is read
/// again after that many names.
const MOST_NAMES: usize = 65_536;

impl Listings {
    /// Removes and returns the cached listing whose next entry follows `after`, or creates one.
    fn take(&mut self, dir: Option<&Name>, after: Option<&[u8]>) -> Listing {
        let known = self.0.iter().position(|known| {
            after.is_some() && known.dir.as_ref() == dir && known.told.as_deref() == after
        });
        let known = known.and_then(|index| self.0.remove(index));
        known.unwrap_or_else(|| Listing {
            dir: dir.cloned(),
            read_to: after.map(<[u8]>::to_vec),
            ..Listing::default()
        })
    }

    /// Caches a partly sent listing for its next page. Evicts the least recently used one.
    fn keep(&mut self, listing: Listing) {
        if self.0.len() >= MOST_LISTINGS {
            self.0.pop_front();
        }
        self.0.push_back(listing);
    }
}

impl Listing {
    /// Reads the `most` smallest names of the directory that are greater than the last one read.
    fn fill(&mut self, dir: &OwnedFd, most: usize) -> io::Result<()> {
        let mut first: BinaryHeap<Vec<u8>> = BinaryHeap::new();
        self.is_complete = true;
        for entry in entries_of(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if is_hidden_name(name) || self.read_to.as_deref().is_some_and(|read| name <= read) {
                continue;
            }
            if first.len() < most {
                first.push(name.to_vec());
                continue;
            }
            self.is_complete = false;
            if let Some(mut last) = first.peek_mut().filter(|last| name < last.as_slice()) {
                *last = name.to_vec();
            }
        }
        let names = first.into_sorted_vec();
        self.read_to = names.last().cloned().or(self.read_to.take());
        self.names = names.into();
        Ok(())
    }
}

/// Partly listed directories of a session; see [`Listings`].
#[derive(Debug, Default)]
pub(super) struct KeptListings(Mutex<Listings>);

impl KeptListings {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Listings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the metadata of a name in a directory, or `None` if it does not exist.
fn looked_up(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<ObjectStat>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(described(&stat))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn described(stat: &Stat) -> ObjectStat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => ObjectKind::File,
        FileType::Directory => ObjectKind::Dir,
        _ => ObjectKind::Other,
    };
    let mtime = Timestamp {
        seconds: stat.st_mtime,
        nanoseconds: stat.st_mtime_nsec as u32,
    };
    ObjectStat {
        kind,
        size: stat.st_size as u64,
        mtime,
    }
}

/// Returns true if the name is that of a restic lock: 64 hex digits in a directory `locks`.
///
/// restic cannot work without removing its own locks. Its rest-server permits that in append-only
/// mode, too.
fn is_lock(name: &Name) -> bool {
    let mut components = name.components().rev();
    let is_id = |id: &[u8]| id.len() == 64 && id.iter().all(u8::is_ascii_hexdigit);
    components.next().is_some_and(is_id) && components.next() == Some(b"locks")
}

fn only_appends(operation: &'static str, name: &Name) -> FileError {
    let why = "this peer may only add files";
    FileError::new(
        operation,
        name,
        io::Error::new(io::ErrorKind::PermissionDenied, why),
    )
    .with_code(FailCode::Refused)
}

fn failed(operation: &'static str, name: &Name, cause: io::Error) -> FileError {
    let code = match cause.kind() {
        // A parent is a file, so the name cannot exist.
        io::ErrorKind::NotADirectory => Some(FailCode::NotFound),
        io::ErrorKind::DirectoryNotEmpty => Some(FailCode::Exists),
        io::ErrorKind::PermissionDenied => Some(FailCode::Refused),
        _ => None,
    };
    let error = FileError::new(operation, name, cause);
    match code {
        Some(code) => error.with_code(code),
        None => error,
    }
}

fn synced(dir: &OwnedFd, name: &Name) -> Result<(), FileError> {
    fsync(dir).map_err(|cause| FileError::new("sync the directory of", name, cause.into()))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;

    fn directory(names: &[&str]) -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        names
            .iter()
            .for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
        let opened = openat(
            CWD,
            dir.path(),
            OFlags::DIRECTORY | OFlags::RDONLY,
            Mode::empty(),
        )
        .unwrap();
        (dir, opened)
    }

    fn filled(listing: &mut Listing, dir: &OwnedFd) -> Vec<String> {
        listing.fill(dir, 2).unwrap();
        listing
            .names
            .drain(..)
            .map(|name| String::from_utf8(name).unwrap())
            .collect()
    }

    #[test]
    fn a_directory_with_more_names_than_are_kept_is_read_piece_by_piece() {
        let (_dir, opened) = directory(&["e", "a", ".x.01234567.nicstripe-journal", "d", "b", "c"]);
        let mut listing = Listing::default();
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec!["a".into(), "b".into()], false)
        );
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec!["c".into(), "d".into()], false)
        );
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec!["e".into()], true)
        );
        assert_eq!(
            (filled(&mut listing, &opened), listing.is_complete),
            (vec![], true)
        );
        let mut behind = Listing {
            read_to: Some(b"c".to_vec()),
            ..Listing::default()
        };
        assert_eq!(
            (filled(&mut behind, &opened), behind.is_complete),
            (vec!["d".into(), "e".into()], true)
        );
    }

    #[test]
    fn listings_are_gone_on_with_where_they_were_and_no_more_than_two_are_kept() {
        let name = |text: &str| Name::parse(text.as_bytes()).unwrap();
        let mut listings = Listings::default();
        for dir in ["a", "b", "c"] {
            let names = VecDeque::from([b"y".to_vec()]);
            listings.keep(Listing {
                dir: Some(name(dir)),
                told: Some(b"x".to_vec()),
                names,
                ..Listing::default()
            });
        }
        let left = |listings: &mut Listings, dir: &str, after: Option<&[u8]>| {
            listings.take(Some(&name(dir)), after).names.len()
        };
        assert_eq!(
            left(&mut listings, "a", Some(b"x")),
            0,
            "it ended when the third arrived"
        );
        assert_eq!(left(&mut listings, "b", Some(b"w")), 0, "from elsewhere on");
        assert_eq!(left(&mut listings, "b", None), 0, "from the beginning");
        assert_eq!(left(&mut listings, "b", Some(b"x")), 1);
        assert_eq!(left(&mut listings, "b", Some(b"x")), 0, "it was taken");
        assert_eq!(left(&mut listings, "c", Some(b"x")), 1);
    }

    #[test]
    fn locks_are_files_of_64_digits_in_a_directory_of_locks() {
        let id = "0aF".repeat(22)[..64].to_owned();
        let lock = |text: String| is_lock(&Name::parse(text.as_bytes()).unwrap());
        assert!(lock(format!("locks/{id}")) && lock(format!("a/b/locks/{id}")));
        for other in [
            id.clone(),
            format!("data/{id}"),
            format!("locks/x/{id}"),
            format!("locks/{id}0"),
            format!("locks/{}", &id[1..]),
        ] {
            assert!(!lock(other.clone()), "{other}");
        }
        assert!(!lock(format!("locks/{}g", &id[1..])) && !lock("locks".into()));
    }
}

//! Requests of a peer about names below its root: list, stat, remove, rename, mkdir. The calls
//! block and run on the I/O threads.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use nicstripe_proto::{
    FailCode, Name,
    journal::Timestamp,
    message::{MOST_ANSWER, ObjectEntry, ObjectKind, ObjectStat},
};
use rustix::fs::{
    AtFlags, FileType, RenameFlags, Stat, fsync, renameat, renameat_with, statat, unlinkat,
};

use super::{listings::MOST_NAMES, service::Service};
use crate::{
    file::{FileError, Root},
    storage::{Served, Storage},
    trust::Access,
};

impl Service {
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
        let root = match &self.served {
            Served::Files(root) => root,
            Served::Other(stored) => {
                return stored_page(stored.to_find("list", dir)?, dir, after, most);
            }
        };
        let opened = root.open_directory(dir).map_err(error)?;
        let mut listing = self.listings.lock().take(dir, after);
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
                    listing.last_sent = page.entries.last().map(|last| last.name.clone());
                    self.listings.lock().keep(listing);
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
        match &self.served {
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
        let root = match &self.served {
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
            if self.access == Access::AppendOnly {
                Err(only_appends("rename", from))
            } else {
                Ok(())
            }
        };
        let root = match &self.served {
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
            .open_parent_for_new(to)
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
        match &self.served {
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
    /// Its [`Root`] follows no symlinks, so the parent directory really is `locks`.
    fn check_removable(&self, name: &Name, stat: &ObjectStat) -> Result<(), FileError> {
        if self.access == Access::AppendOnly && !(stat.kind == ObjectKind::File && is_lock(name)) {
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
    use super::*;

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

//! Requests of a peer about names below its root: list, stat, remove, rename, mkdir. The calls
//! block and run on the I/O threads.

use std::{ffi::OsStr, io, os::fd::OwnedFd, sync::Arc};

use nicstripe_proto::{
    Digest, ETag, FailCode, Name, ObjectAttributes,
    journal::Timestamp,
    message::{
        AnswerKind, MOST_ANSWER, NotRemoved, ObjectEntry, ObjectKind, ObjectStat, are_listed,
    },
};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Stat, fstat, renameat, unlinkat};

use super::{
    concats::{Concat, ConcatRequest},
    hashes::Hash,
    served_peer::{ServedPeer, failed, only_appends},
    unfinished::Unfinished,
    walks::{Walk, Walks},
};
use crate::{
    file::{
        FileError, Inode, NameChange, Root, attributes_in, etag_of, identity_of, inode_of, kept_in,
        rename_to_free, stat_entry, sync_names,
    },
    storage::{Listed, Served, Storage},
    trust::Access,
};

#[derive(Debug, Clone, Copy)]
pub(super) struct PageRequest<'a> {
    /// Directory; `None` for the root.
    pub(super) dir: Option<&'a Name>,
    /// Name or key behind which the page begins.
    pub(super) after: Option<&'a [u8]>,
    pub(super) most: usize,
    pub(super) digests: bool,
    /// True for all names below the directory, by their keys, instead of those in it.
    pub(super) is_deep: bool,
}

/// Names below a peer's root.
#[derive(Debug)]
pub(super) struct Objects {
    peer: Arc<ServedPeer>,
    /// Cache of the session's partly sent listings and walks.
    walks: Mutex<Walks>,
    hashes: Mutex<Unfinished<Hash>>,
    concats: Mutex<Unfinished<Concat>>,
}

impl Objects {
    pub(super) fn new(peer: &Arc<ServedPeer>) -> Self {
        Self {
            peer: peer.clone(),
            walks: Mutex::default(),
            hashes: Mutex::default(),
            concats: Mutex::default(),
        }
    }

    /// Returns entries of a directory in byte order of their names, or of a deep request those below it
    /// ascending by their keys, and true if more follow.
    pub(super) fn list(
        &self,
        request: PageRequest<'_>,
    ) -> Result<(Vec<ObjectEntry>, bool), FileError> {
        let peer = self.permitted()?;
        if let (Served::Other(stored), false) = (&peer.served, request.is_deep) {
            return stored_page(stored.to_find("list", request.dir)?, request);
        }
        let known = self.walks.lock().take(request);
        let mut walk = match known {
            Some(walk) => walk,
            None => Walk::from(request, &peer.served)?,
        };
        let mut page = Page::of(request);
        let more = walk.fill(&mut page, &peer.served)?;
        // Read again for the next page if the peer's share of memory is used up.
        if more && let Some(lease) = peer.memory().try_lease(walk.memory()) {
            self.walks.lock().keep(walk, lease);
        }
        Ok((page.entries, more))
    }

    /// Begins a file that is made of others (without an offset), or takes the one that has `offset`
    /// bytes.
    fn concat_at(
        &self,
        request: ConcatRequest<'_>,
        offset: Option<u64>,
    ) -> Result<Concat, FileError> {
        let peer = self.permitted()?;
        let Some(offset) = offset else {
            // One that the client has given up would hold the name.
            self.concats.lock().end(|one| one.is_to(request.to));
            return Concat::begin(peer, request);
        };
        self.concats.lock().take_concat(request, offset)
    }

    /// Appends the next bytes of the file `part` to a new one, which has `offset` bytes (`None` before
    /// it begins), or commits that without a `part`. A copy is committed with the end of its file.
    pub(super) fn concat(
        &self,
        request: ConcatRequest<'_>,
        offset: Option<u64>,
        part: Option<(&Name, u64)>,
    ) -> Result<AnswerKind, FileError> {
        let mut concat = self.concat_at(request, offset)?;
        if let Some((name, from)) = part {
            let appended = concat.append(self.permitted()?, name, from)?;
            if request.from.is_none() || appended.is_none() {
                let progress = concat.progress(appended);
                self.concats.lock().keep(concat);
                return Ok(progress);
            }
        }
        let etag = concat.commit()?;
        let stat = self.stat(request.to)?;
        Ok(AnswerKind::Copied {
            upto: stat.size,
            copy: Some(ObjectStat { etag, ..stat }),
        })
    }

    /// Reads the next part of a file, from `offset` on, for its digest.
    pub(super) fn hash(
        &self,
        asked: (&Name, Option<Digest>),
        offset: u64,
    ) -> Result<AnswerKind, FileError> {
        let peer = self.permitted()?;
        let hash = match offset {
            0 => {
                let hash = Hash::begin(peer, asked)?;
                // A call that was given up may have read a file that the name had before.
                self.hashes.lock().end(|other| !other.agrees_with(&hash));
                hash
            }
            _ => self.hashes.lock().take_hash(asked, offset)?,
        };
        let (answer, rest) = hash.go_on(peer)?;
        if let Some(rest) = rest {
            self.hashes.lock().keep(rest);
        }
        Ok(answer)
    }

    /// Removes files and empty directories, durably. Returns the errors of those that remain.
    pub(super) fn remove_many(&self, names: &[Name], kind: Option<ObjectKind>) -> Vec<NotRemoved> {
        let mut failed = Vec::new();
        let mut fail = |index: u32, error: &FileError| {
            let (code, text) = (error.code, error.one_line());
            failed.push(NotRemoved { index, code, text });
        };
        // Directories to sync, once each, with the names that were in them.
        let mut changed: Vec<Emptied<'_>> = Vec::new();
        for (index, name) in (0..).zip(names) {
            let parent = match self.unlink(name, None, kind) {
                Ok(Some(parent)) => parent,
                Ok(None) => continue,
                Err(error) => {
                    fail(index, &error);
                    continue;
                }
            };
            match fstat(&parent).map(|stat| inode_of(&stat)) {
                Ok(inode) => match changed.iter_mut().find(|one| one.inode == inode) {
                    Some(known) => known.names.push((index, name)),
                    None => changed.push(Emptied {
                        inode,
                        dir: parent,
                        names: vec![(index, name)],
                    }),
                },
                Err(cause) => fail(index, &FileError::new("remove", name, cause.into())),
            }
        }
        for Emptied { dir, names, .. } in &changed {
            for (index, name) in names {
                match synced(dir, name) {
                    Ok(()) => break,
                    Err(error) => fail(*index, &error),
                }
            }
        }
        failed.sort_by_key(|one| one.index);
        failed
    }

    /// Returns the kind, size and modification time of a name. Does not follow a symlink at the
    /// last component.
    pub(super) fn stat(&self, name: &Name) -> Result<ObjectStat, FileError> {
        self.head(name).map(|(stat, _)| stat)
    }

    /// Returns the metadata of a name as [`stat`](Self::stat), and the attributes of a file.
    pub(super) fn head(
        &self,
        name: &Name,
    ) -> Result<(ObjectStat, Option<ObjectAttributes>), FileError> {
        let peer = self.permitted()?;
        match &peer.served {
            Served::Files(root) => {
                let found = root.open_parent_of(name).and_then(|(parent, leaf)| {
                    let stat = stat_entry(&parent, leaf)?.ok_or(io::ErrorKind::NotFound)?;
                    let stat = with_digest(&parent, leaf, &stat);
                    let is_file = stat.kind == ObjectKind::File;
                    let attributes = is_file.then(|| attributes_in(&parent, leaf)).flatten();
                    let has_attributes = attributes.is_some();
                    let stat = ObjectStat {
                        has_attributes,
                        ..stat
                    };
                    Ok((stat, attributes))
                });
                found.map_err(|cause| failed("look at", name, cause))
            }
            Served::Other(stored) => {
                let storage = stored.to_find("look at", Some(name))?;
                let stat = storage.stat(name)?.on_wire();
                let attributes = match stat.has_attributes {
                    true => Some(storage.open(name)?.attributes()),
                    false => None,
                };
                Ok((stat, attributes))
            }
        }
    }

    /// Removes a file or an empty directory, durably.
    pub(super) fn remove(
        &self,
        name: &Name,
        only_if: Option<ETag>,
        kind: Option<ObjectKind>,
    ) -> Result<(), FileError> {
        match self.unlink(name, only_if, kind)? {
            Some(parent) => synced(&parent, name),
            None => Ok(()),
        }
    }

    /// Removes a file or an empty directory. Returns its directory, which the caller must sync; `None`
    /// if a storage has removed it durably.
    fn unlink(
        &self,
        name: &Name,
        only_if: Option<ETag>,
        kind: Option<ObjectKind>,
    ) -> Result<Option<OwnedFd>, FileError> {
        let peer = self.permitted()?;
        peer.check_writable("remove", name)?;
        let root = match &peer.served {
            Served::Files(root) => root,
            Served::Other(stored) => {
                let storage = stored.to_find("remove", Some(name))?;
                let stat = storage.stat(name)?.on_wire();
                self.check_removable(name, &stat)?;
                check_kind(name, &stat, kind)?;
                match only_if {
                    Some(tag) => storage.remove_if(name, tag)?,
                    None => storage.remove(name)?,
                }
                return Ok(None);
            }
        };
        let (parent, leaf, stat) = find(root, name, "remove")?;
        self.check_removable(name, &stat)?;
        check_kind(name, &stat, kind)?;
        let may = root.logins().check_moved(&parent, leaf);
        may.map_err(|cause| failed("remove", name, cause))?;
        let change = NameChange::of_file(&parent, leaf, only_if, "remove", name)?;
        let flags = match stat.kind {
            ObjectKind::Dir => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        let removed = unlinkat(&parent, leaf, flags).map_err(io::Error::from);
        drop(change);
        removed.map_err(|cause| failed("remove", name, cause))?;
        Ok(Some(parent))
    }

    /// Renames a file or directory, durably.
    pub(super) fn rename(
        &self,
        from: &Name,
        to: &Name,
        replace: bool,
        only_if: Option<ETag>,
    ) -> Result<(), FileError> {
        let peer = self.permitted()?;
        peer.check_writable("rename", from)?;
        let may_rename = || match peer.access {
            Access::AppendOnly => Err(only_appends("rename", from)),
            Access::Full | Access::ReadOnly => Ok(()),
        };
        let root = match &peer.served {
            Served::Files(root) => root,
            Served::Other(stored) => {
                stored.to_find("rename", Some(from))?.stat(from)?;
                may_rename()?;
                let storage = stored.to_name("rename to", to)?;
                return match only_if {
                    Some(tag) => storage.rename_if(from, to, replace, tag),
                    None => storage.rename(from, to, replace),
                };
            }
        };
        let (old, old_name, _) = find(root, from, "rename")?;
        may_rename()?;
        let may = root.logins().check_moved(&old, old_name);
        may.map_err(|cause| failed("rename", from, cause))?;
        let (new, new_name) = root
            .open_parent_for_new(to)
            .map_err(|cause| failed("open the directory of", to, cause))?;
        let may = root.logins().check_moved(&new, new_name);
        may.map_err(|cause| failed("rename to", to, cause))?;
        let change = NameChange::of_file(&old, old_name, only_if, "rename", from)?;
        let renamed = match replace {
            true => renameat(&old, old_name, &new, new_name).map_err(io::Error::from),
            false => rename_to_free(&old, old_name, &new, new_name),
        };
        drop(change);
        renamed.map_err(|cause| failed("rename to", to, cause))?;
        synced(&new, to)?;
        synced(&old, from)
    }

    /// Creates a directory and its missing parents, durably. Succeeds if it exists.
    pub(super) fn make_dir(&self, name: &Name) -> Result<(), FileError> {
        self.permitted()?.make_dir(name)
    }

    /// Returns the peer if it may see names.
    fn permitted(&self) -> Result<&ServedPeer, FileError> {
        let peer = &*self.peer;
        let may = peer.check_readable("look at or change", &"this directory");
        may.map(|()| peer)
    }

    /// Checks that a peer may remove this file. An append-only peer may only remove a restic lock.
    /// Its [`Root`] follows no symlinks, so the parent directory really is `locks`.
    fn check_removable(&self, name: &Name, stat: &ObjectStat) -> Result<(), FileError> {
        if self.peer.access == Access::AppendOnly
            && !(stat.kind == ObjectKind::File && is_lock(name))
        {
            return Err(only_appends("remove", name));
        }
        Ok(())
    }
}

/// Checks that the object to remove has the type that the peer expects.
fn check_kind(
    name: &Name,
    stat: &ObjectStat,
    expected: Option<ObjectKind>,
) -> Result<(), FileError> {
    if expected.is_none_or(|kind| kind == stat.kind) {
        return Ok(());
    }
    let is = match stat.kind {
        ObjectKind::File => "it is a regular file",
        ObjectKind::Dir => "it is a directory",
        ObjectKind::Other => "it is neither a regular file nor a directory",
    };
    let code = match expected {
        Some(ObjectKind::Dir) => FailCode::NotADirectory,
        _ => FailCode::NotAFile,
    };
    Err(FileError::refused("remove", name, is).with_code(code))
}

/// Directory from which names were removed, with their indices in the request. Not synced yet.
struct Emptied<'a> {
    inode: Inode,
    dir: OwnedFd,
    names: Vec<(u32, &'a Name)>,
}

/// Opens the parent directory of a name. Returns it with the last component and the metadata of the
/// name. `operation` describes the call in errors.
pub(super) fn find<'a>(
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
    request: PageRequest<'_>,
) -> Result<(Vec<ObjectEntry>, bool), FileError> {
    let PageRequest {
        dir, after, most, ..
    } = request;
    let Listed { entries, more } = storage.list(dir, after, most)?;
    // A client continues after the last entry, so an empty page must end the listing.
    let more = more && !entries.is_empty();
    let mut page = Page::of(request);
    let mut is_cut = false;
    for (name, stat) in entries {
        let stat = stat.on_wire();
        if page.push(ObjectEntry { name, stat }).is_err() {
            is_cut = true;
            break;
        }
    }
    // The client would end the session.
    if !are_listed(&page.entries, after) {
        let why = "its storage listed invalid, unordered or repeated names";
        let shown = dir.map_or_else(|| ".".to_owned(), ToString::to_string);
        let error = FileError::new("list", shown, io::Error::other(why));
        tracing::error!("{}", error.one_line());
        return Err(error);
    }
    Ok((page.entries, more || is_cut))
}

/// Entries of one answer to a list request, limited in number and message size.
pub(super) struct Page {
    entries: Vec<ObjectEntry>,
    weight: usize,
    most: usize,
    digests: bool,
}

impl Page {
    fn of(request: PageRequest<'_>) -> Self {
        Self {
            entries: Vec::new(),
            weight: 0,
            most: request.most,
            digests: request.digests,
        }
    }

    pub(super) fn described(&self, dir: &OwnedFd, name: &OsStr, stat: &Stat) -> ObjectStat {
        match self.digests {
            true => with_digest(dir, name, stat),
            false => described(stat),
        }
    }

    /// Adds an entry, or returns it as an error if the page is full. A storage sends digests unasked.
    pub(super) fn push(&mut self, mut entry: ObjectEntry) -> Result<(), ObjectEntry> {
        entry.stat.digest = entry.stat.digest.filter(|_| self.digests);
        let weight = self.weight + entry.weight();
        if self.entries.len() >= self.most || weight > MOST_ANSWER {
            return Err(entry);
        }
        self.weight = weight;
        self.entries.push(entry);
        Ok(())
    }

    pub(super) fn last(&self) -> Option<&ObjectEntry> {
        self.entries.last()
    }
}

/// Returns the metadata of a name in a directory, or `None` if it does not exist.
fn looked_up(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<ObjectStat>> {
    Ok(stat_entry(dir, name)?.as_ref().map(described))
}

pub(super) fn described(stat: &Stat) -> ObjectStat {
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
        etag: (kind == ObjectKind::File).then(|| etag_of(stat)),
        digest: None,
        has_attributes: false,
    }
}

/// Returns the metadata of a name in a directory, with the digest of a file if it is known.
fn with_digest(dir: &OwnedFd, name: &OsStr, stat: &Stat) -> ObjectStat {
    let object = described(stat);
    let is_file = object.kind == ObjectKind::File;
    ObjectStat {
        digest: is_file
            .then(|| kept_in(dir, name, &identity_of(stat)))
            .flatten(),
        ..object
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

fn synced(dir: &OwnedFd, name: &Name) -> Result<(), FileError> {
    sync_names(dir).map_err(|cause| FileError::new("sync the directory of", name, cause))
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

//! Deletion of surplus: files in the target that the sender does not have.
//!
//! Announced names are stored as 64-bit hashes. If two hashes collide, a surplus file may stay;
//! this is as likely as guessing a hash key.

use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
    sync::Arc,
};

use nicstripe_proto::{Name, name::MAX_COMPONENTS};
use rustix::fs::{AtFlags, DirEntry, FileType, fstat, statat, unlinkat};

use super::{dirs::TreeDir, outbox::Outbox};
use crate::{
    file::{FileError, entries_of, is_hidden_name, open_on_same_mount},
    text::shown_path,
    tree::{filter::Filters, halt::Halt},
};

/// Announced names in unfinished directories, by the directory's key: the number of its users and
/// the keys of the names.
#[derive(Debug, Default)]
pub(super) struct AnnouncedNames(HashMap<u64, (usize, HashSet<u64>)>);

impl AnnouncedNames {
    /// Starts recording the names announced in a directory. Each call requires a call of
    /// [`AnnouncedNames::leave`].
    pub(super) fn enter(&mut self, directory: &TreeDir) {
        self.0.entry(directory.key).or_default().0 += 1;
    }

    pub(super) fn insert(&mut self, directory: &TreeDir, name: &OsStr) {
        if let Some((_, names)) = self.0.get_mut(&directory.key) {
            names.insert(directory.key_of(name));
        }
    }

    fn contains(&self, directory: &TreeDir, name: &OsStr) -> bool {
        self.0
            .get(&directory.key)
            .is_none_or(|(_, names)| names.contains(&directory.key_of(name)))
    }

    /// Releases a directory. Forgets its names when each [`AnnouncedNames::enter`] call has been
    /// matched.
    pub(super) fn leave(&mut self, directory: &TreeDir) {
        if let Some((users, _)) = self.0.get_mut(&directory.key) {
            *users -= 1;
            if *users == 0 {
                self.0.remove(&directory.key);
            }
        }
    }
}

/// Deletes surplus files, or only reports them in a dry run.
pub(super) struct Deleter<'a> {
    pub(super) filters: &'a Filters,
    pub(super) out: &'a mut Outbox,
    pub(super) dry_run: bool,
    /// Device number of the file system to which the deletion is confined.
    pub(super) device: u64,
}

impl Deleter<'_> {
    /// Deletes the files in a directory that the sender has not announced.
    pub(super) fn run(
        &mut self,
        directory: &Arc<TreeDir>,
        announced: &AnnouncedNames,
    ) -> Result<(), Halt> {
        let shown: Vec<Vec<u8>> = directory
            .announced()
            .into_iter()
            .map(<[u8]>::to_vec)
            .collect();
        let listed = directory.open().and_then(|dir| {
            self.device = fstat(&*dir)?.st_dev;
            Ok((names_in(&dir)?, dir))
        });
        let (names, dir) = match listed {
            Ok(listed) => listed,
            Err(error) => return self.fail("list", &shown, error).map(drop),
        };
        let surplus = names
            .into_iter()
            .filter(|name| !announced.contains(directory, name));
        let beneath = directory.path_beneath_source();
        for name in surplus {
            self.delete(&dir, &name, &beneath.join(&name), &with(&shown, &name))?;
        }
        Ok(())
    }

    /// Deletes one surplus file or directory. Returns true if it was deleted, or would be in a dry
    /// run.
    fn delete(
        &mut self,
        dir: &OwnedFd,
        name: &OsStr,
        beneath: &Path,
        shown: &[Vec<u8>],
    ) -> Result<bool, Halt> {
        let kind = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_dev != self.device => return Ok(false),
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(rustix::io::Errno::NOENT) => return Ok(true),
            Err(error) => return self.fail("delete", shown, error.into()),
        };
        let is_directory = kind == FileType::Directory;
        let is_special =
            || Name::new(shown.iter().cloned()).is_ok_and(|name| self.out.is_special(&name));
        if is_hidden_name(name.as_bytes())
            || self.filters.excludes(beneath, is_directory)
            || is_special()
        {
            return Ok(false);
        }
        if is_directory && !self.empty(dir, name, beneath, shown)? {
            return Ok(false);
        }
        let flags = if is_directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        match if self.dry_run {
            Ok(())
        } else {
            unlinkat(dir, name, flags)
        } {
            Ok(()) => Name::new(shown.iter().cloned())
                .map_or(Ok(()), |name| self.out.deleted(name))
                .map(|()| true),
            // A file was created in it meanwhile: not surplus.
            Err(rustix::io::Errno::NOTEMPTY) => Ok(false),
            Err(error) => self.fail("delete", shown, error.into()),
        }
    }

    /// Deletes the contents of a surplus directory. Returns true if it is then empty.
    fn empty(
        &mut self,
        dir: &OwnedFd,
        name: &OsStr,
        beneath: &Path,
        shown: &[Vec<u8>],
    ) -> Result<bool, Halt> {
        if shown.len() >= MAX_COMPONENTS {
            return self.fail("delete", shown, io::Error::other("nested too deep"));
        }
        let listed = open_on_same_mount(dir, name).map_err(io::Error::from);
        let (names, dir) = match listed.and_then(|dir| Ok((names_in(&dir)?, dir))) {
            Ok(listed) => listed,
            Err(error) => return self.fail("delete", shown, error),
        };
        let mut is_empty = true;
        for name in names {
            is_empty &= self.delete(&dir, &name, &beneath.join(&name), &with(shown, &name))?;
        }
        Ok(is_empty)
    }

    /// Reports the failure. Returns false, since the file or directory is still there.
    fn fail(
        &mut self,
        operation: &'static str,
        shown: &[Vec<u8>],
        error: io::Error,
    ) -> Result<bool, Halt> {
        let name = Name::new(shown.iter().cloned()).ok();
        let shown = shown_path(name.as_ref());
        self.out
            .fail(None, name, &FileError::new(operation, shown, error))?;
        Ok(false)
    }
}

fn with(shown: &[Vec<u8>], name: &OsStr) -> Vec<Vec<u8>> {
    shown
        .iter()
        .cloned()
        .chain([name.as_bytes().to_vec()])
        .collect()
}

/// Returns all names in a directory, read before any deletion: some file systems skip names if
/// files are deleted while the directory is read.
pub(super) fn names_in(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    let name = |entry: rustix::io::Result<DirEntry>| {
        Ok(OsString::from_vec(entry?.file_name().to_bytes().to_vec()))
    };
    entries_of(dir)?.map(name).collect()
}

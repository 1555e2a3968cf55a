//! Part files of small files in a tree, stored under a hidden name until they are durable.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, OFlags, fstat, fsync, renameat, statat, unlinkat},
    io::Errno,
};

use super::dirs::TreeDir;
use crate::file::{
    Attributes, Inode, NameChange, inode_of, no_new_files, open_entry, rename_to_free,
};

/// Part file of a small file in a tree. One thread at a time writes to it, in order.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) parent: Arc<TreeDir>,
    pub(super) name: OsString,
    pub(super) hidden: OsString,
    pub(super) replace: bool,
    pub(super) attributes: Attributes,
    /// Device and inode number of the part file once it exists. Detects that another transfer of
    /// the same peer has replaced it.
    pub(super) identity: Mutex<Option<Inode>>,
}

impl Part {
    /// Writes a piece of the file to the part file. The first piece creates the part file, the last
    /// one sets its attributes.
    pub(super) fn write(&self, offset: u64, bytes: &[u8], last: bool) -> io::Result<()> {
        let dir = self.parent.open()?;
        let file = if offset == 0 {
            self.create(&dir)?
        } else {
            self.reopen(&dir, OFlags::WRONLY)?
        };
        file.write_all_at(bytes, offset)?;
        if last {
            self.attributes.apply(&file)
        } else {
            Ok(())
        }
    }

    fn create(&self, dir: &OwnedFd) -> io::Result<File> {
        let access = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let open = || open_entry(dir, &self.hidden, access);
        let file = match open() {
            // Left by an attempt that was killed.
            Err(Errno::EXIST) => {
                unlinkat(dir, &self.hidden, AtFlags::empty())?;
                open()?
            }
            Err(Errno::NOENT) => return Err(no_new_files()),
            other => other?,
        };
        let stat = fstat(&file)?;
        *self.identity.lock() = Some(inode_of(&stat));
        Ok(file)
    }

    fn reopen(&self, dir: &OwnedFd, access: OFlags) -> io::Result<File> {
        let file = open_entry(dir, &self.hidden, access)?;
        if self.identity() == Some(inode_of(&fstat(&file)?)) {
            Ok(file)
        } else {
            Err(taken())
        }
    }

    pub(super) fn identity(&self) -> Option<Inode> {
        *self.identity.lock()
    }

    fn is_there(&self, dir: &OwnedFd) -> bool {
        let stat = statat(dir, &self.hidden, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| self.identity() == Some(inode_of(&stat)))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        let dir = self.parent.open()?;
        Ok(fsync(self.reopen(&dir, OFlags::RDONLY)?)?)
    }

    /// Renames the durable part file to its final name.
    pub(super) fn commit(&self) -> io::Result<()> {
        let dir = self.parent.open()?;
        if !self.is_there(&dir) {
            return Err(taken());
        }
        let _change = NameChange::any(&dir)?;
        if self.replace {
            Ok(renameat(&dir, &self.hidden, &dir, &self.name)?)
        } else {
            rename_to_free(&dir, &self.hidden, &dir, &self.name)
        }
    }

    pub(super) fn discard(&self) {
        if self.identity().is_none() {
            return;
        }
        if let Ok(dir) = self.parent.open()
            && self.is_there(&dir)
        {
            let _ = unlinkat(&dir, &self.hidden, AtFlags::empty());
        }
    }
}

fn taken() -> io::Error {
    io::Error::other("another transfer is writing it")
}

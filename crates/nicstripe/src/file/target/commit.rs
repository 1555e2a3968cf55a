//! How a target is made to last: syncs, and what happens when one fails; the commit, and what is taken back when that fails.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{MutexGuard, PoisonError, atomic::Ordering},
};

use nicstripe_proto::{Digest, FailCode, Subtree};
use rustix::fs::{
    Advice, AtFlags, Mode, RenameFlags, Timespec, Timestamps, fadvise, fchmod, fstat, fsync, futimens, renameat, renameat_with, statat,
    unlinkat,
};

use super::{Place, Syncs, Target, final_mode};
use crate::file::FileError;

impl Target {
    /// Makes the data durable, then says so in the journal.
    pub(crate) fn sync(&self, subtrees: Vec<Subtree>) -> Result<(), FileError> {
        let mut syncs = self.syncs();
        if *syncs == Syncs::Closed {
            return Ok(());
        }
        self.unsynced.store(0, Ordering::Release);
        self.sync_part(*syncs, File::sync_data)?;
        let Some(journal) = &self.journal else { return Ok(()) };
        self.is_void.store(false, Ordering::Release);
        journal.append(self.grid, subtrees).map_err(|cause| {
            *syncs = Syncs::Broken;
            self.error("write the journal of", cause).resumable()
        })
    }

    /// Makes all durable, whoever else would do so.
    fn sync_last(&self) -> Result<(), FileError> {
        let mut syncs = self.syncs();
        self.sync_part(*syncs, File::sync_all)?;
        self.is_void.store(false, Ordering::Release);
        *syncs = Syncs::Closed;
        Ok(())
    }

    pub(super) fn syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs the data in one way or another, unless something failed before.
    fn sync_part(&self, syncs: Syncs, how: impl FnOnce(&File) -> io::Result<()>) -> Result<(), FileError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(self.error("sync", io::Error::other("an earlier sync failed")));
        }
        if syncs == Syncs::Broken {
            return Err(self.error("sync", io::Error::other("its journal could not be written")).resumable());
        }
        how(&self.part).map_err(|cause| self.poison(cause))
    }

    /// Makes the whole file durable under its name, of a trial without one. `digest` is what both ends agreed on.
    pub(crate) fn commit(&self, digest: Digest) -> Result<(), FileError> {
        if self.place == Place::Named {
            self.sync_last()?;
            return self.settle_name();
        }
        let kept = |error: FileError| if self.is_resumable() { error.resumable() } else { error };
        self.punch_written().map_err(|cause| kept(self.error("make a hole in", cause)))?;
        if self.place == Place::File {
            self.part.set_len(self.grid.size).map_err(|cause| kept(self.error("size", cause)))?;
        }
        if self.options.verify {
            self.verify(digest)?;
        }
        self.set_mode_and_times().map_err(|cause| kept(self.error("set the mode of", cause)))?;
        self.sync_last()?;
        if self.place != Place::Part {
            return Ok(());
        }
        let renamed = if self.options.replace {
            renameat(&self.dir, &self.part_name, &self.dir, &self.name)
        } else {
            renameat_with(&self.dir, &self.part_name, &self.dir, &self.name, RenameFlags::NOREPLACE)
        };
        renamed.map_err(|cause| self.error("name", cause.into()))?;
        self.settle_name()
    }

    /// Makes the name durable that the file has.
    fn settle_name(&self) -> Result<(), FileError> {
        if let Err(cause) = fsync(&self.dir) {
            self.poisoned.store(true, Ordering::Release);
            self.withdraw();
            return Err(self.error("sync the directory of", cause.into()));
        }
        // A journal without a part file is found by the next transfer: losing this unlink loses nothing.
        let _ = unlinkat(&self.dir, &self.journal_name, AtFlags::empty());
        Ok(())
    }

    /// Takes back a name that may not last, unless it was another file's before, which is gone; and the journal, which nothing may trust.
    fn withdraw(&self) {
        let is_ours = || {
            let (found, ours) = (statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)?, fstat(&self.part)?);
            Ok::<_, rustix::io::Errno>((found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino))
        };
        if !self.options.replace && is_ours().unwrap_or(false) {
            let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
        let _ = unlinkat(&self.dir, &self.journal_name, AtFlags::empty());
    }

    /// Removes what was received; in place it stays, as what was there before is gone.
    pub(crate) fn discard(&self) {
        // From now on others may have files of these names.
        self.is_void.store(false, Ordering::Release);
        match self.place {
            Place::File | Place::Device | Place::Unnamed => return,
            Place::Part => drop(unlinkat(&self.dir, &self.part_name, AtFlags::empty())),
            Place::Named => {}
        }
        let _ = unlinkat(&self.dir, &self.journal_name, AtFlags::empty());
    }

    /// Whether a rerun can go on from what is durable.
    pub(crate) fn is_resumable(&self) -> bool {
        !self.is_open_ended() && self.place != Place::Unnamed && !self.poisoned.load(Ordering::Acquire)
    }

    fn verify(&self, digest: Digest) -> Result<(), FileError> {
        self.sync_part(*self.syncs(), File::sync_data)?;
        // Without this the page cache would vouch for the disk.
        let _ = fadvise(&self.part, 0, None, Advice::DontNeed);
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; VERIFY_LEN];
        let mut offset = 0;
        let found = self.part.metadata().map_err(|cause| self.error("read back", cause))?.len();
        // A device may go on behind the file, and has no length to be asked for.
        let size = if self.place == Place::Device { self.grid.size } else { found };
        while offset < size {
            let most = (size - offset).min(VERIFY_LEN as u64) as usize;
            let len = self.part.read_at(&mut buffer[..most], offset).map_err(|cause| self.error("read back", cause))?;
            if len == 0 {
                return Err(self.error("read back", io::ErrorKind::UnexpectedEof.into()));
            }
            hasher.update(&buffer[..len]);
            offset += len as u64;
        }
        if hasher.finalize().as_bytes() == &digest.0 {
            return Ok(());
        }
        self.discard();
        Err(self.error("verify", io::Error::other("the disk does not return what was written to it")).with_code(FailCode::Digest))
    }

    fn set_mode_and_times(&self) -> io::Result<()> {
        // A device keeps what it has, and so does a file that is written over unless its source's was asked for.
        if self.place == Place::Device || (self.place == Place::File && !self.options.preserve && self.attributes.is_none()) {
            return Ok(());
        }
        if let Some(attributes) = &self.attributes {
            return attributes.apply(&self.part);
        }
        if let Some(mode) = final_mode(None, &self.offer, self.options) {
            fchmod(&self.part, Mode::from_raw_mode(mode))?;
        }
        if self.options.preserve {
            let mtime = self.offer.source.mtime;
            let mtime = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.min(999_999_999).into() };
            futimens(&self.part, &Timestamps { last_access: mtime, last_modification: mtime })?;
        }
        Ok(())
    }

    fn poison(&self, cause: io::Error) -> FileError {
        self.poisoned.store(true, Ordering::Release);
        self.discard();
        // In place a rerun compares what is there: not what the kernel has in memory and could not write.
        let _ = fadvise(&self.part, 0, None, Advice::DontNeed);
        self.error("sync", cause)
    }
}

/// Bytes read back at once by `--verify`.
const VERIFY_LEN: usize = 1 << 20;

//! Syncs and commit of a target, and recovery if one of them fails.

use std::{ffi::OsStr, fs::File, io, os::unix::fs::FileExt, sync::atomic::Ordering};

use nicstripe_proto::{Digest, FailCode, Subtree};
use rustix::fs::{Advice, AtFlags, fadvise, renameat, statat, unlinkat};

use super::{Syncs, Target, TargetState};
use crate::file::{beneath::inode_of, disk, error::FileError, rename::rename_to_free};

impl Target {
    /// Syncs the target's data, then records `subtrees` as durable in the journal.
    pub(crate) fn sync(&self, subtrees: Vec<Subtree>) -> Result<(), FileError> {
        let mut syncs = self.syncs.lock();
        if *syncs == Syncs::Closed {
            return Ok(());
        }
        self.unsynced.store(0, Ordering::Release);
        self.sync_part(*syncs, disk::sync_data)?;
        let Some(journal) = &self.files.journal else {
            return Ok(());
        };
        self.is_void.store(false, Ordering::Release);
        journal.append(self.grid, subtrees).map_err(|cause| {
            *syncs = Syncs::Broken;
            self.error("write the journal of", cause).resumable()
        })
    }

    /// Runs the final sync of the target; later syncs have no effect.
    fn sync_last(&self) -> Result<(), FileError> {
        let mut syncs = self.syncs.lock();
        self.sync_part(*syncs, disk::sync_all)?;
        self.is_void.store(false, Ordering::Release);
        *syncs = Syncs::Closed;
        Ok(())
    }

    /// Syncs the data with `how`, unless an earlier sync or journal write failed.
    fn sync_part(
        &self,
        syncs: Syncs,
        how: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), FileError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(self.error("sync", io::Error::other("an earlier sync failed")));
        }
        if syncs == Syncs::Broken {
            return Err(self
                .error("sync", io::Error::other("its journal could not be written"))
                .resumable());
        }
        how(&self.files.part).map_err(|cause| self.poison(cause))
    }

    /// Syncs and renames the file, so that it is durable under its final name. Reads it back and
    /// verifies it first if the options require that. `digest` is the BLAKE3 digest that both ends
    /// agreed on.
    pub(crate) fn commit(&self, digest: Digest) -> Result<(), FileError> {
        if self.files.state == TargetState::Named {
            self.sync_last()?;
            return self.settle_name();
        }
        let failed = |operation, cause| {
            let error = self.error(operation, cause);
            error.resumable_if(self.is_resumable())
        };
        self.punch_written()
            .map_err(|cause| failed("make a hole in", cause))?;
        if self.files.state == TargetState::File {
            self.files
                .part
                .set_len(self.grid.size)
                .map_err(|cause| failed("size", cause))?;
        }
        if self.request.options.verify {
            self.verify(digest)?;
        }
        if let Some(attributes) = &self.request.attributes {
            attributes
                .apply(&self.files.part)
                .map_err(|cause| failed("set the mode of", cause))?;
        }
        self.sync_last()?;
        if self.files.state != TargetState::Part {
            return Ok(());
        }
        let (dir, name) = (&self.request.dir, &self.request.name);
        // The owner of the directory can put another file under the name.
        if !self.is_ours(&self.files.part_name).unwrap_or(false) {
            self.poisoned.store(true, Ordering::Release);
            let cause = io::Error::other("another program replaced the partial file");
            return Err(self.error("name", cause));
        }
        let renamed = if self.request.options.replace {
            renameat(dir, &self.files.part_name, dir, name).map_err(io::Error::from)
        } else {
            rename_to_free(dir, &self.files.part_name, dir, name)
        };
        renamed.map_err(|cause| self.error("name", cause))?;
        self.settle_name()
    }

    /// Returns true if a name in the target directory refers to the file that holds the data.
    fn is_ours(&self, name: &OsStr) -> io::Result<bool> {
        let found = statat(&self.request.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(inode_of(&found) == self.inode()?)
    }

    /// Syncs the target directory, which makes the file's name durable.
    fn settle_name(&self) -> Result<(), FileError> {
        if let Err(cause) = disk::sync_names(&self.request.dir) {
            self.poisoned.store(true, Ordering::Release);
            self.withdraw();
            return Err(self.error("sync the directory of", cause));
        }
        // The next transfer detects a journal without a part file, so a lost unlink does no harm.
        let _ = unlinkat(
            &self.request.dir,
            &self.files.journal_name,
            AtFlags::empty(),
        );
        Ok(())
    }

    /// Deletes the target's name, which may not be durable, and its journal, which can no longer be
    /// trusted. Keeps the name if the file replaced another one, whose content is lost.
    fn withdraw(&self) {
        let is_ours = self.is_ours(&self.request.name);
        if !self.request.options.replace && is_ours.unwrap_or(false) {
            let _ = unlinkat(&self.request.dir, &self.request.name, AtFlags::empty());
        }
        let _ = unlinkat(
            &self.request.dir,
            &self.files.journal_name,
            AtFlags::empty(),
        );
    }

    /// Deletes the received data. Keeps a file that was written in place, because its old content
    /// is lost.
    pub(crate) fn discard(&self) {
        // From here on other transfers may use these names.
        self.is_void.store(false, Ordering::Release);
        match self.files.state {
            TargetState::File | TargetState::Device | TargetState::Unnamed => return,
            TargetState::Part => drop(unlinkat(
                &self.request.dir,
                &self.files.part_name,
                AtFlags::empty(),
            )),
            TargetState::Named => {}
        }
        let _ = unlinkat(
            &self.request.dir,
            &self.files.journal_name,
            AtFlags::empty(),
        );
    }

    /// Returns true if another run can resume from the durable data.
    pub(crate) fn is_resumable(&self) -> bool {
        !self.grid.is_open()
            && self.files.state != TargetState::Unnamed
            && !self.poisoned.load(Ordering::Acquire)
    }

    fn verify(&self, digest: Digest) -> Result<(), FileError> {
        self.sync_part(*self.syncs.lock(), disk::sync_data)?;
        // Otherwise the data would be read back from the page cache instead of the disk.
        let _ = fadvise(&self.files.part, 0, None, Advice::DontNeed);
        let found = self
            .files
            .part
            .metadata()
            .map_err(|cause| self.error("read back", cause))?
            .len();
        // A device may be larger than the file, and its metadata has no length.
        let size = if self.files.state == TargetState::Device {
            self.grid.size
        } else {
            found
        };
        let found = digest_of(size, |bytes, offset| {
            self.files.part.read_exact_at(bytes, offset)
        })
        .map_err(|cause| self.error("read back", cause))?;
        if found == digest {
            return Ok(());
        }
        self.discard();
        Err(self
            .error(
                "verify",
                io::Error::other("the disk does not return what was written to it"),
            )
            .with_code(FailCode::Digest))
    }

    fn poison(&self, cause: io::Error) -> FileError {
        self.poisoned.store(true, Ordering::Release);
        self.discard();
        // In place, another run compares the data on disk, not pages the kernel failed to write.
        let _ = fadvise(&self.files.part, 0, None, Advice::DontNeed);
        self.error("sync", cause)
    }
}

/// Returns the digest of `size` bytes, which `read` reads back.
pub(crate) fn digest_of(
    size: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; VERIFY_LEN.min(size) as usize];
    let mut offset = 0;
    while offset < size {
        let len = VERIFY_LEN.min(size - offset);
        let bytes = &mut buffer[..len as usize];
        read(bytes, offset)?;
        hasher.update(bytes);
        offset += len;
    }
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// Size of a read in bytes when `--verify` reads the file back.
const VERIFY_LEN: u64 = 1 << 20;

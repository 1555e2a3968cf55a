//! Syncs and commit of a target, and recovery if one of them fails.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    sync::atomic::Ordering,
};

use nicstripe_proto::{Digest, ETag, Extent, FailCode, Subtree};
use rustix::fs::{Advice, AtFlags, fadvise, fstat, renameat, statat, unlinkat};

use super::{Sidecar, Syncs, Target, TargetState, refuse_existing};
use crate::file::{
    beneath::inode_of, disk, error::FileError, hashing::Hashing, kept, names::NameChange,
    rename::rename_to_free, stored::etag_of,
};

#[derive(Debug, Default)]
pub(crate) enum CommitStage {
    #[default]
    Begun,
    /// Holes are being punched; these extents are left.
    Punching(VecDeque<Extent>),
    /// The file is being read back.
    Verifying(Box<Hashing>),
    /// The file only needs its attributes, a sync and its name.
    Ready,
}

impl Target {
    /// Syncs the target's data, then records `subtrees` as durable in the journal. Without any, only
    /// waits for a sync that runs.
    pub(crate) fn sync(&self, subtrees: Vec<Subtree>) -> Result<(), FileError> {
        let mut syncs = self.syncs.lock();
        if *syncs == Syncs::Closed || subtrees.is_empty() {
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
    pub(super) fn sync_part(
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

    /// Continues the commit: syncs and renames the file, so that it is durable under its final
    /// name. Reads it back and verifies it first if the options require that. `digest` is the
    /// BLAKE3 digest that both ends agreed on.
    pub(crate) fn commit_turn(
        &self,
        digest: Digest,
        stage: &mut CommitStage,
    ) -> Result<ControlFlow<()>, FileError> {
        loop {
            *stage = match stage {
                CommitStage::Begun if self.files.state == TargetState::Named => CommitStage::Ready,
                CommitStage::Begun => CommitStage::Punching(self.extents_to_punch()),
                CommitStage::Punching(extents) => {
                    let is_done = self
                        .punch(extents)
                        .map_err(|cause| self.uncommitted("make a hole in", cause))?;
                    if !is_done {
                        return Ok(ControlFlow::Continue(()));
                    }
                    self.after_punching()?
                }
                CommitStage::Verifying(hashing) => {
                    if !self.verify(hashing, digest)? {
                        return Ok(ControlFlow::Continue(()));
                    }
                    CommitStage::Ready
                }
                CommitStage::Ready => {
                    self.finish(digest)?;
                    return Ok(ControlFlow::Break(()));
                }
            };
        }
    }

    /// Runs all turns of a commit.
    pub(crate) fn commit(&self, digest: Digest) -> Result<(), FileError> {
        let mut stage = CommitStage::default();
        while self.commit_turn(digest, &mut stage)?.is_continue() {}
        Ok(())
    }

    /// Returns the stage that follows when all holes are punched.
    fn after_punching(&self) -> Result<CommitStage, FileError> {
        if self.files.state == TargetState::File {
            self.files
                .part
                .set_len(self.grid.size)
                .map_err(|cause| self.uncommitted("size", cause))?;
        }
        if !self.request.options.verify {
            return Ok(CommitStage::Ready);
        }
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
        Ok(CommitStage::Verifying(Box::new(Hashing::of(size))))
    }

    fn finish(&self, digest: Digest) -> Result<(), FileError> {
        if self.files.state == TargetState::Named {
            self.sync_last()?;
            return self.settle_name();
        }
        if let Sidecar::Kept(Some(attributes)) = &self.request.sidecar {
            kept::keep_attributes(&self.files.part, attributes)
                .map_err(|cause| self.uncommitted("keep the attributes of", cause))?;
        }
        if matches!(self.request.sidecar, Sidecar::Kept(_)) && digest != Digest::NONE {
            // Otherwise the hash of a file that is written in place could be on the disk before its
            // data. A part file has no name before both are.
            if self.files.state == TargetState::File {
                self.sync_part(*self.syncs.lock(), disk::sync_data)?;
            }
            let attributes = self.request.attributes.as_ref();
            let mtime = attributes.and_then(|attributes| attributes.mtime);
            kept::keep(&self.files.part, digest, mtime);
        }
        if let Some(attributes) = &self.request.attributes {
            attributes
                .apply(&self.files.part)
                .map_err(|cause| self.uncommitted("set the mode of", cause))?;
        }
        self.sync_last()?;
        let (TargetState::Part, Some(part_name)) = (self.files.state, &self.files.part_name) else {
            return Ok(());
        };
        let (dir, name) = (&self.request.dir, &self.request.name);
        // The owner of the directory can put another file under the name.
        if !self.is_ours(part_name).unwrap_or(false) {
            self.poisoned.store(true, Ordering::Release);
            let cause = io::Error::other("another program replaced the partial file");
            return Err(self.error("name", cause));
        }
        let only_if = self.request.options.only_if;
        let change = NameChange::of_file(dir, name, only_if, "replace", &self.shown)?;
        let replaces = self.request.options.replace;
        if replaces {
            // Another type of file may have taken the name since the target was opened.
            refuse_existing(&self.request)?;
        }
        let renamed = if replaces {
            renameat(dir, part_name, dir, name).map_err(io::Error::from)
        } else {
            rename_to_free(dir, part_name, dir, name)
        };
        drop(change);
        renamed.map_err(|cause| self.error("name", cause))?;
        self.settle_name()
    }

    /// Returns the entity tag of a committed file; `None` for a device, or if it cannot be read.
    pub(crate) fn etag(&self) -> Option<ETag> {
        let is_file = matches!(
            self.files.state,
            TargetState::Part | TargetState::Named | TargetState::File
        );
        let found = is_file.then(|| fstat(&self.files.part).ok()).flatten();
        found.as_ref().map(etag_of)
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
        self.unlink(self.files.journal_name.as_ref());
        Ok(())
    }

    /// Deletes the target's name, which may not be durable, and its journal, which can no longer be
    /// trusted. Keeps the name if the file replaced another one, whose content is lost.
    fn withdraw(&self) {
        let is_ours = self.is_ours(&self.request.name);
        if !self.request.options.replace && is_ours.unwrap_or(false) {
            self.unlink(Some(&self.request.name));
        }
        self.unlink(self.files.journal_name.as_ref());
    }

    /// Deletes a name in the target directory, if possible.
    fn unlink(&self, name: Option<&OsString>) {
        if let Some(name) = name {
            let _ = unlinkat(&self.request.dir, name, AtFlags::empty());
        }
    }

    /// Deletes the received data. Keeps a file that was written in place, because its old content
    /// is lost.
    pub(crate) fn discard(&self) {
        // From here on other transfers may use these names.
        self.is_void.store(false, Ordering::Release);
        if self.files.state != TargetState::Unnamed {
            self.unlink(self.files.part_name.as_ref());
            self.unlink(self.files.journal_name.as_ref());
        }
    }

    /// Returns true if another run can resume from the durable data.
    pub(crate) fn is_resumable(&self) -> bool {
        !self.grid.is_open()
            && self.files.state != TargetState::Unnamed
            && !self.poisoned.load(Ordering::Acquire)
    }

    /// Continues to read the file back. Returns true once its digest is known to be right.
    fn verify(&self, hashing: &mut Hashing, digest: Digest) -> Result<bool, FileError> {
        let turn = hashing
            .turn(|bytes, offset| self.files.part.read_exact_at(bytes, offset))
            .map_err(|cause| self.error("read back", cause))?;
        match turn {
            ControlFlow::Continue(()) => return Ok(false),
            ControlFlow::Break(found) if found == digest => return Ok(true),
            ControlFlow::Break(_) => {}
        }
        self.discard();
        Err(self
            .error(
                "verify",
                io::Error::other("the disk does not return what was written to it"),
            )
            .with_code(FailCode::Digest))
    }

    /// Returns the error of a commit after which another run may resume.
    fn uncommitted(&self, operation: &'static str, cause: io::Error) -> FileError {
        self.error(operation, cause)
            .resumable_if(self.is_resumable())
    }

    fn poison(&self, cause: io::Error) -> FileError {
        self.poisoned.store(true, Ordering::Release);
        self.discard();
        // In place, another run compares the data on disk, not pages the kernel failed to write.
        let _ = fadvise(&self.files.part, 0, None, Advice::DontNeed);
        self.error("sync", cause)
    }
}

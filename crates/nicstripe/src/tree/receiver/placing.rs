//! Creation of entries without content: links, FIFOs, socket files and devices.

use std::{ffi::OsStr, io, os::fd::OwnedFd};

use nicstripe_proto::{
    FailCode,
    tree::{Content, Entry, Verdict},
};
use rustix::{
    fs::{AtFlags, Stat, renameat, unlinkat},
    io::Errno,
};

use super::{Halt, Leaf, Receiver, part::rename_to_free};
use crate::{
    file::{FileError, hidden_name},
    tree::options::EntryOutcome,
};

impl Receiver {
    /// Compares an entry with the existing file, and creates the entry with `make` if it is wanted.
    /// `keep` updates an existing file that is equal. `operation` is the verb for the creation in
    /// errors.
    pub(super) fn place(
        &mut self,
        entry: Entry,
        leaf: Leaf,
        operation: &'static str,
        keep: impl FnOnce(&Self, &Entry, &Leaf, &Stat) -> io::Result<()>,
        make: impl FnOnce(&Self, &Entry, &Leaf, Verdict) -> io::Result<()>,
    ) -> Result<(), Halt> {
        let Some(candidate) = self.candidate(entry, leaf)? else {
            return Ok(());
        };
        let Some((entry, leaf, verdict)) = self.judge(candidate, keep)? else {
            return Ok(());
        };
        if !self.request.rules.dry_run
            && let Err(error) = make(self, &entry, &leaf, verdict)
        {
            return self.refuse(entry, leaf.shown(), leaf.error(operation, error));
        }
        self.out.decide(entry.id, verdict);
        match entry.content {
            Content::Symlink { .. } => self.out.report.symlinks += 1,
            _ => self.out.report.nodes += 1,
        }
        self.placed(&entry, &leaf, verdict)
    }

    /// Sends the verdict and the result of an entry that is in place.
    pub(super) fn placed(
        &mut self,
        entry: &Entry,
        leaf: &Leaf,
        verdict: Verdict,
    ) -> Result<(), Halt> {
        if !self.request.rules.dry_run {
            self.out.done(entry.id);
        }
        self.out
            .tell(leaf.shown(), EntryOutcome::Copied { verdict, bytes: 0 })?;
        self.settle(entry.parent, false)
    }

    /// Creates a link or node with `make` under a hidden name and renames it to `name`. Replaces an
    /// existing file only if `replace`.
    pub(super) fn put_in_place(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        replace: bool,
        make: impl Fn(&OsStr) -> rustix::io::Result<()>,
        prepare: impl FnOnce(&OsStr) -> io::Result<()>,
    ) -> io::Result<()> {
        let hidden = hidden_name(name, &self.request.peer_key, "part");
        match make(&hidden) {
            // Left by an attempt that was killed.
            Err(Errno::EXIST) => {
                unlinkat(dir, &hidden, AtFlags::empty()).and_then(|()| make(&hidden))?;
            }
            made => made?,
        }
        let rename = || {
            if replace {
                Ok(renameat(dir, &hidden, dir, name)?)
            } else {
                rename_to_free(dir, &hidden, name)
            }
        };
        let renamed = prepare(&hidden).and_then(|()| rename());
        // Needed even after a successful rename: renaming one hard link onto another of the same
        // file keeps both.
        let _ = unlinkat(dir, &hidden, AtFlags::empty());
        renamed
    }
}

/// Returns the error for a peer that may only add files and tries to replace one.
pub(super) fn only_adds(leaf: &Leaf) -> FileError {
    let cause = io::Error::new(
        io::ErrorKind::PermissionDenied,
        "this peer may only add files",
    );
    leaf.error("replace", cause).with_code(FailCode::Refused)
}

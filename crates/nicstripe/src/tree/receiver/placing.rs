//! Creation of entries without content: links, FIFOs, socket files and devices.

use std::{ffi::OsStr, io, os::fd::OwnedFd};

use nicstripe_proto::{
    FailCode,
    tree::{Content, Entry, Node, NodeKind, Verdict},
};
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Stat, fstat, makedev, mknodat, openat, renameat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::{Halt, Leaf, Receiver, part::rename_to_free};
use crate::{
    file::{Attributes, FileError, Inode, hidden_name, inode_of},
    tree::{metadata::node_of, options::EntryOutcome},
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
        make: impl FnOnce(&Self, &Entry, &Leaf, Verdict) -> io::Result<Inode>,
    ) -> Result<(), Halt> {
        let Some(candidate) = self.candidate(entry, leaf)? else {
            return Ok(());
        };
        let Some((entry, leaf, verdict)) = self.judge(candidate, keep)? else {
            return Ok(());
        };
        if !self.request.rules.dry_run {
            match make(self, &entry, &leaf, verdict) {
                Ok(inode) => self.note_inode(&entry, inode),
                Err(error) => {
                    return self.refuse(entry, leaf.shown(), leaf.error(operation, error));
                }
            }
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
    /// existing file only if `replace`. Returns the inode of the new object.
    ///
    /// A user who may write to the directory can put another object under the hidden name.
    /// `prepare` receives the open object (`O_PATH`), must check that it is the expected one, and
    /// then sets its attributes.
    pub(super) fn put_in_place(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        replace: bool,
        make: impl Fn(&OsStr) -> rustix::io::Result<()>,
        prepare: impl FnOnce(&OwnedFd, &Stat) -> io::Result<()>,
    ) -> io::Result<Inode> {
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
        let prepared = || {
            let object = open_node(dir, &hidden)?;
            let stat = fstat(&object)?;
            prepare(&object, &stat)?;
            Ok(inode_of(&stat))
        };
        let placed = prepared().and_then(|inode| rename().map(|()| inode));
        // Needed even after a successful rename: renaming one hard link onto another of the same
        // file keeps both.
        let _ = unlinkat(dir, &hidden, AtFlags::empty());
        placed
    }

    /// Creates a FIFO, socket file or device, if the sender has the right to.
    pub(super) fn on_node(&mut self, entry: Entry, leaf: Leaf, node: Node) -> Result<(), Halt> {
        if !self.request.rules.nodes {
            return Err(Halt::protocol(
                "peer sent a FIFO, socket or device, which was not requested",
            ));
        }
        if !self.may_have(node.kind) {
            return self.leave_out(&entry, &leaf);
        }
        self.place(
            entry,
            leaf,
            "make",
            Self::keep_node,
            |receiver, entry, leaf, verdict| receiver.make_node(entry, leaf, node, verdict),
        )
    }

    /// Returns true if the sender may create a node of this kind. A device requires a privileged
    /// sender and a receiver that runs as root, because access to a device is equivalent to root.
    pub(super) fn may_have(&self, kind: NodeKind) -> bool {
        !kind.is_device() || (self.request.privileged && geteuid().is_root())
    }

    /// Skips a device that this sender may not create; an existing file of that name stays.
    fn leave_out(&mut self, entry: &Entry, leaf: &Leaf) -> Result<(), Halt> {
        self.out.decide(entry.id, Verdict::LeftOut);
        self.out.report.special += 1;
        self.failed.insert(entry.id);
        self.out.tell(leaf.shown(), EntryOutcome::Special)?;
        self.settle(entry.parent, false)
    }

    fn make_node(
        &self,
        entry: &Entry,
        leaf: &Leaf,
        node: Node,
        verdict: Verdict,
    ) -> io::Result<Inode> {
        let dir = leaf.parent.open()?;
        let attributes = Attributes::of_new(entry, &self.request.rules, self.umask);
        let device = if node.kind.is_device() {
            makedev(node.major, node.minor)
        } else {
            0
        };
        // Owner access only, until the owner is set.
        let make = |hidden: &OsStr| {
            mknodat(
                &dir,
                hidden,
                file_type_of(node.kind),
                Mode::RUSR | Mode::WUSR,
                device,
            )
        };
        let prepare = |object: &OwnedFd, stat: &Stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            check_new(stat, node_of(kind, stat) == Some(node))?;
            attributes.apply_to_node(object)
        };
        self.put_in_place(&dir, &leaf.name, verdict == Verdict::Replace, make, prepare)
    }

    fn keep_node(&self, entry: &Entry, leaf: &Leaf, found: &Stat) -> io::Result<()> {
        let attributes = Attributes {
            xattrs: None,
            ..Attributes::of_same(entry, &self.request.rules, true)
        };
        if !attributes.differ(found) || self.request.append_only || self.request.rules.dry_run {
            return Ok(());
        }
        let node = open_node(&*leaf.parent.open()?, &leaf.name)?;
        if inode_of(&fstat(&node)?) != inode_of(found) {
            return Err(replaced());
        }
        attributes.apply_to_node(&node)
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

/// Checks that an object opened by its hidden name is the new one: it has no other name, belongs to
/// this process's user, and `is_alike`. Any other could be given away to the sender's owner.
pub(super) fn check_new(stat: &Stat, is_alike: bool) -> io::Result<()> {
    let is_new = stat.st_nlink == 1 && stat.st_uid == geteuid().as_raw();
    if is_new && is_alike {
        Ok(())
    } else {
        Err(replaced())
    }
}

pub(super) fn replaced() -> io::Error {
    io::Error::other("replaced meanwhile")
}

/// Opens an object of any type with `O_PATH`, which neither blocks on a FIFO nor calls a device
/// driver.
fn open_node(dir: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let node = openat(
        dir,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(node)
}

fn file_type_of(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::Fifo => FileType::Fifo,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharDevice => FileType::CharacterDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

//! Creation of FIFOs, socket files and devices at the receiver.

use std::{ffi::OsStr, io, os::fd::OwnedFd};

use nicstripe_proto::tree::{Entry, Node, NodeKind, Verdict};
use rustix::fs::{FileType, Mode, OFlags, Stat, makedev, mknodat, openat};

use super::{Halt, Leaf, Receiver};
use crate::{
    file::{Attributes, inode_of},
    tree::options::EntryOutcome,
};

impl Receiver {
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
        !kind.is_device() || (self.request.privileged && rustix::process::geteuid().is_root())
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
    ) -> io::Result<()> {
        let dir = leaf.place.open()?;
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
        let prepare = |hidden: &OsStr| attributes.apply_to_node(&open_node(&dir, hidden)?);
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
        let node = open_node(&*leaf.place.open()?, &leaf.name)?;
        let stat = rustix::fs::fstat(&node)?;
        if inode_of(&stat) != inode_of(found) {
            return Err(io::Error::other("replaced meanwhile"));
        }
        attributes.apply_to_node(&node)
    }
}

/// Opens a FIFO, socket file or device with `O_PATH`, which neither blocks on a FIFO nor calls a
/// device driver.
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

//! Creation of entries without content: links, FIFOs, socket files and devices.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use nicstripe_proto::{
    FailCode,
    tree::{Content, Entry, Node, NodeKind, Verdict},
};
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Stat, fstat, makedev, mknodat, openat, readlinkat,
        renameat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::{Halt, Leaf, Receiver};
use crate::{
    file::{Attributes, FileError, Inode, hidden_name, inode_of, rename_to_free},
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

    /// Calls [`put_in_place`] with the hidden name of this sender.
    pub(super) fn put_in_place(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        replace: bool,
        make: impl Fn(&OsStr) -> rustix::io::Result<()>,
        prepare: impl FnOnce(&OwnedFd, &Stat) -> io::Result<()>,
    ) -> io::Result<Inode> {
        let hidden = hidden_name(name, &self.request.peer_key, "part");
        put_in_place(dir, &hidden, name, replace, make, prepare)
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
        let attributes = Attributes::of_new(entry, &self.request.rules, self.mask_of(leaf));
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
            attributes.of_own(stat).apply_to_node(object)
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

/// Returns the error for a file whose target is a device, FIFO or socket.
pub(super) fn only_files(leaf: &Leaf) -> FileError {
    let cause = io::Error::other("it is a device, FIFO or socket");
    leaf.error("replace", cause).with_code(FailCode::NotAFile)
}

/// Creates a link or node with `make` under the name `hidden` and renames it to `name`. Replaces an
/// existing file only if `replace`. Returns the inode of the new object.
///
/// A user who may write to the directory can put another object under the hidden name. `prepare`
/// receives the open object (`O_PATH`), must check that it is the expected one, and then sets its
/// attributes.
fn put_in_place(
    dir: &OwnedFd,
    hidden: &OsStr,
    name: &OsStr,
    replace: bool,
    make: impl Fn(&OsStr) -> rustix::io::Result<()>,
    prepare: impl FnOnce(&OwnedFd, &Stat) -> io::Result<()>,
) -> io::Result<Inode> {
    match make(hidden) {
        // Left by an attempt that was killed.
        Err(Errno::EXIST) => {
            unlinkat(dir, hidden, AtFlags::empty()).and_then(|()| make(hidden))?;
        }
        made => made?,
    }
    let rename = || {
        if replace {
            Ok(renameat(dir, hidden, dir, name)?)
        } else {
            rename_to_free(dir, hidden, dir, name)
        }
    };
    let prepared = || {
        let object = open_node(dir, hidden)?;
        let stat = fstat(&object)?;
        prepare(&object, &stat)?;
        Ok(inode_of(&stat))
    };
    let placed = prepared().and_then(|inode| rename().map(|()| inode));
    // Needed even after a successful rename: renaming one hard link onto another of the same file
    // keeps both.
    let _ = unlinkat(dir, hidden, AtFlags::empty());
    placed
}

/// Checks that an object opened by its hidden name is the new one, which has no other name and
/// `is_alike`.
pub(super) fn check_new(stat: &Stat, is_alike: bool) -> io::Result<()> {
    if stat.st_nlink == 1 && is_alike {
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

/// Sets the attributes of a new symbolic link, after a check that it is one to `target`.
pub(super) fn prepare_link<'a>(
    attributes: &'a Attributes,
    target: &'a OsStr,
) -> impl FnOnce(&OwnedFd, &Stat) -> io::Result<()> + 'a {
    move |object, stat| {
        let found = readlinkat(object, "", Vec::new());
        let is_alike = found.is_ok_and(|found| found.as_bytes() == target.as_bytes());
        check_new(stat, is_alike)?;
        attributes.of_own(stat).apply_to_link(object)
    }
}

fn file_type_of(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::Fifo => FileType::Fifo,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharDevice => FileType::CharacterDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use nicstripe_proto::tree::Owner;
    use rustix::fs::{CWD, linkat, symlinkat};

    use super::*;

    #[test]
    fn what_a_local_user_puts_under_the_hidden_name_is_not_given_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let dir = OwnedFd::from(fs::File::open(folder.path()).unwrap());
        let owner = Owner { uid: 1, gid: 1 };
        let attributes = Attributes {
            owner: geteuid().is_root().then_some(owner),
            ..Attributes::default()
        };
        let place = |exchange: &dyn Fn()| {
            let make = |hidden: &OsStr| {
                symlinkat("target", &dir, hidden)?;
                exchange();
                Ok(())
            };
            let prepare = prepare_link(&attributes, "target".as_ref());
            put_in_place(
                &dir,
                "hidden".as_ref(),
                "name".as_ref(),
                true,
                make,
                prepare,
            )
        };
        let before = |name: &str| {
            let stat = fs::symlink_metadata(path(name)).unwrap();
            (stat.uid(), stat.ino())
        };
        for kind in ["file", "directory", "link", "same"] {
            match kind {
                "file" => fs::write(path(kind), "secret").unwrap(),
                "directory" => fs::create_dir(path(kind)).unwrap(),
                "link" => std::os::unix::fs::symlink("other", path(kind)).unwrap(),
                _ => std::os::unix::fs::symlink("target", path(kind)).unwrap(),
            }
            let theirs = before(kind);
            let exchange = || {
                fs::remove_file(path("hidden")).unwrap();
                // The last is a link like the expected one, with another name.
                if kind == "same" {
                    linkat(CWD, path(kind), CWD, path("hidden"), AtFlags::empty()).unwrap();
                } else {
                    fs::rename(path(kind), path("hidden")).unwrap();
                }
            };
            let error = place(&exchange).unwrap_err();
            assert_eq!(error.to_string(), replaced().to_string(), "{kind}");
            if kind == "same" {
                assert_eq!(before(kind), theirs);
            }
            assert!(!path("name").exists());
            // The hidden name of a directory cannot be unlinked.
            let _ = fs::remove_dir(path("hidden"));
        }
        place(&|| ()).unwrap();
        let owner = attributes.owner.map_or(before("name").0, |owner| owner.uid);
        assert_eq!(before("name").0, owner);
    }
}

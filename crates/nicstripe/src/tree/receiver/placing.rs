//! Creation of entries without content: symbolic links, FIFOs, socket files and devices.

use std::{
    ffi::OsStr,
    fs::File,
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
        renameat, symlinkat, unlinkat,
    },
    io::Errno,
};

use super::{context::Context, leaf::Leaf};
use crate::{
    file::{
        Attributes, FileError, Inode, NameChange, inode_of, open_entry, remove_earlier,
        rename_to_free,
    },
    tree::metadata::node_of,
};

/// Creates a wanted link or node; an error comes with the verb for the creation.
pub(super) fn make(
    context: &Context,
    entry: &Entry,
    leaf: &Leaf,
    verdict: Verdict,
) -> Result<Inode, FileError> {
    let replace = verdict == Verdict::Replace;
    match &entry.content {
        Content::Node(node) => {
            make_node(context, entry, leaf, *node, replace).map_err(|error| ("make", error))
        }
        Content::Symlink { target } => {
            make_symlink(context, entry, leaf, OsStr::from_bytes(target), replace)
                .map_err(|error| ("make symbolic link", error))
        }
        _ => Err(("make", io::ErrorKind::Unsupported.into())),
    }
    .map_err(|(operation, error)| leaf.error(operation, error))
}

fn make_symlink(
    context: &Context,
    entry: &Entry,
    leaf: &Leaf,
    target: &OsStr,
    replace: bool,
) -> io::Result<Inode> {
    let dir = leaf.parent.open()?;
    let attributes = context.attributes_of_new(entry, &leaf.parent);
    // New links too: a link with its name but not its time would count as the same in the next run.
    put_in_place(
        &dir,
        &context.hidden_name(&leaf.name),
        &leaf.name,
        replace,
        |hidden| symlinkat(target, &dir, hidden),
        prepare_link(&attributes, target),
    )
}

fn make_node(
    context: &Context,
    entry: &Entry,
    leaf: &Leaf,
    node: Node,
    replace: bool,
) -> io::Result<Inode> {
    let dir = leaf.parent.open()?;
    let attributes = Attributes::of_new(entry, &context.request.rules, leaf.parent.creation_mask());
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
    let hidden = context.hidden_name(&leaf.name);
    put_in_place(&dir, &hidden, &leaf.name, replace, make, prepare)
}

/// Sets the requested attributes of an existing file or node whose content is unchanged, if they
/// differ.
pub(super) fn keep(context: &Context, entry: &Entry, leaf: &Leaf, found: &Stat) -> io::Result<()> {
    let request = &context.request;
    let may_change = !request.append_only && !request.rules.dry_run;
    match &entry.content {
        Content::File { alone, .. } => {
            let attributes = context.attributes_of_same(entry, request.rules.checksum);
            if may_change && (attributes.xattrs.is_some() || attributes.differ(found)) {
                attributes.apply(open_same(leaf, found)?)?;
            }
            if *alone && !request.rules.dry_run {
                forget_earlier(context, leaf);
            }
        }
        Content::Node(_) => {
            let attributes = Attributes {
                xattrs: None,
                ..Attributes::of_same(entry, &request.rules, true)
            };
            if may_change && attributes.differ(found) {
                let node = open_node(&*leaf.parent.open()?, &leaf.name)?;
                if inode_of(&fstat(&node)?) != inode_of(found) {
                    return Err(replaced());
                }
                attributes.apply_to_node(&node)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Deletes the part file and journal that an earlier attempt left when it was killed right after
/// its rename.
fn forget_earlier(context: &Context, leaf: &Leaf) {
    if let Ok(dir) = leaf.parent.open() {
        // Fails for an attempt that is still running, whose files stay.
        let _ = remove_earlier(&dir, &leaf.name, &context.request.peer_key);
    }
}

/// Opens a regular file. Fails if it is not the file that `stat` describes.
fn open_same(leaf: &Leaf, stat: &Stat) -> io::Result<File> {
    let file = open_entry(&*leaf.parent.open()?, &leaf.name, OFlags::RDONLY)?;
    if inode_of(&fstat(&file)?) != inode_of(stat) {
        return Err(io::Error::other("replaced by another file meanwhile"));
    }
    Ok(file)
}

/// Returns the error for a peer that may only add files and tries to replace one.
pub(super) fn only_adds(leaf: &Leaf) -> FileError {
    let cause = io::Error::new(
        io::ErrorKind::PermissionDenied,
        "this peer may only add files",
    );
    leaf.error("replace", cause)
        .with_code(FailCode::NotPermitted)
}

/// Returns the error for a file whose target is a device, FIFO or socket.
pub(super) fn only_files(leaf: &Leaf) -> FileError {
    let cause = io::Error::other("it is a device, FIFO or socket");
    leaf.error("replace", cause).with_code(FailCode::Occupied)
}

/// Creates a link or node with `make` under the name `hidden` and renames it to `name`. Replaces an
/// existing file only if `replace`. Returns the inode of the new object.
///
/// A user who may write to the directory can put another object under the hidden name. `prepare`
/// receives the open object (`O_PATH`), must check that it is the expected one, and then sets its
/// attributes.
pub(super) fn put_in_place(
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
        let _change = NameChange::any(dir)?;
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
fn check_new(stat: &Stat, is_alike: bool) -> io::Result<()> {
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
fn prepare_link<'a>(
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
    use rustix::{
        fs::{CWD, linkat},
        process::geteuid,
    };

    use super::*;

    #[test]
    fn what_a_local_user_puts_under_the_hidden_name_is_not_given_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let dir = OwnedFd::from(File::open(folder.path()).unwrap());
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

//! Renames that replace nothing, also on file systems whose renames take no flags.

use std::{ffi::OsStr, io, os::fd::OwnedFd};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fstat, linkat, mkdirat, renameat,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
};

use super::beneath::{inode_of, open_entry};

/// Renames an object. Fails if the new name exists.
///
/// NFS, many FUSE file systems, CephFS and 9p refuse `RENAME_NOREPLACE`. There the new name becomes
/// a hard link, and the old one is removed. Where there are no hard links either, an empty file (or
/// directory) takes the name exclusively and is then replaced. Between the check that it is still
/// that file and the rename, a program that replaces files on purpose can lose its own; one that
/// creates them exclusively cannot. After a kill between the two steps, the empty file stays.
pub(crate) fn rename_to_free(
    old_dir: &OwnedFd,
    old: &OsStr,
    new_dir: &OwnedFd,
    new: &OsStr,
) -> io::Result<()> {
    match renameat_with(old_dir, old, new_dir, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        renamed => return Ok(renamed?),
    }
    match linkat(old_dir, old, new_dir, new, AtFlags::empty()) {
        // Also the answers for a directory, and for a file that this user may not link.
        Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => {
            rename_to_placeholder(old_dir, old, new_dir, new)
        }
        linked => {
            linked?;
            Ok(unlinkat(old_dir, old, AtFlags::empty())?)
        }
    }
}

fn rename_to_placeholder(
    old_dir: &OwnedFd,
    old: &OsStr,
    new_dir: &OwnedFd,
    new: &OsStr,
) -> io::Result<()> {
    let moved = statat(old_dir, old, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(moved.st_mode) == FileType::Directory {
        mkdirat(new_dir, new, Mode::RWXU)?;
        // The kernel replaces only an empty directory.
        return renameat(old_dir, old, new_dir, new).map_err(|error| {
            let _ = unlinkat(new_dir, new, AtFlags::REMOVEDIR);
            error.into()
        });
    }
    let made = open_entry(new_dir, new, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    let placeholder = fstat(&made)?;
    // Closed, because some file systems do not replace an open file.
    drop(made);
    let is_ours = |found: Stat| inode_of(&found) == inode_of(&placeholder) && found.st_size == 0;
    let check = || match statat(new_dir, new, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if is_ours(found) => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
    };
    check()?;
    renameat(old_dir, old, new_dir, new).map_err(|error| {
        if check().is_ok() {
            let _ = unlinkat(new_dir, new, AtFlags::empty());
        }
        error.into()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_placeholder_replaces_nothing_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let dir = OwnedFd::from(fs::File::open(folder.path()).unwrap());
        let rename = |old: &str, new: &str| {
            rename_to_placeholder(&dir, old.as_ref(), &dir, new.as_ref()).map_err(|e| e.kind())
        };
        fs::write(path("file"), "bytes").unwrap();
        fs::write(path("theirs"), "").unwrap();
        fs::create_dir_all(path("dir/sub")).unwrap();
        fs::create_dir(path("their dir")).unwrap();
        for (old, new) in [("file", "theirs"), ("dir", "their dir"), ("dir", "theirs")] {
            assert_eq!(rename(old, new), Err(io::ErrorKind::AlreadyExists));
        }
        assert_eq!(rename("missing", "new"), Err(io::ErrorKind::NotFound));
        assert_eq!(rename("file", "new"), Ok(()));
        assert_eq!(rename("dir", "new dir"), Ok(()));
        assert_eq!(fs::read(path("new")).unwrap(), b"bytes");
        assert!(path("new dir/sub").is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}

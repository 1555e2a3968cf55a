//! Opening of names in an open directory, without following a symbolic link.

use std::{fs::File, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Dir, DirEntry, Mode, OFlags, ResolveFlags, Stat, openat, openat2},
    io::Result,
};

/// Opens the entry `name` of a directory with `access`. Creates it with mode 0600 if that has
/// `O_CREAT`. Does not block on a FIFO.
pub(crate) fn open_entry<P: rustix::path::Arg>(
    dir: &OwnedFd,
    name: P,
    access: OFlags,
) -> Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens a path beneath a directory that contains no symbolic link; an empty one is the directory
/// itself.
pub(crate) fn open_confined(dir: &OwnedFd, path: &Path, access: OFlags) -> Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    openat2(dir, path, access | OFlags::CLOEXEC, Mode::empty(), CONFINED)
}

/// Returns the entries of a directory other than itself and its parent.
pub(crate) fn entries_of(dir: &OwnedFd) -> Result<impl Iterator<Item = Result<DirEntry>>> {
    let is_entry = |entry: &Result<DirEntry>| {
        !entry
            .as_ref()
            .is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    };
    Ok(Dir::read_from(dir)?.filter(is_entry))
}

/// Returns device and inode number, which tell whether two open files are the same.
pub(crate) fn inode_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// openat2 flags that stay beneath the directory and follow no symbolic link.
pub(crate) const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

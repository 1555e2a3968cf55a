//! Opening of names in an open directory, without following a symbolic link.

use std::{fs::File, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Dir, DirEntry, Mode, OFlags, ResolveFlags, Stat, openat, openat2},
    io::Result,
};

/// Opens the entry `name` of a directory with the flags `access`. With `O_CREAT`, a new file gets
/// mode 0600. Does not block on a FIFO.
pub(crate) fn open_entry<P: rustix::path::Arg>(
    dir: &OwnedFd,
    name: P,
    access: OFlags,
) -> Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens `path` beneath `dir`; an empty path opens `dir` itself. Fails if the path contains a
/// symbolic link.
pub(crate) fn open_confined(dir: &OwnedFd, path: &Path, access: OFlags) -> Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    openat2(dir, path, access | OFlags::CLOEXEC, Mode::empty(), CONFINED)
}

/// Returns the entries of a directory without `.` and `..`.
pub(crate) fn entries_of(dir: &OwnedFd) -> Result<impl Iterator<Item = Result<DirEntry>>> {
    let is_entry = |entry: &Result<DirEntry>| {
        !entry
            .as_ref()
            .is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    };
    Ok(Dir::read_from(dir)?.filter(is_entry))
}

/// Device and inode number, which identify a file.
pub(crate) type Inode = (u64, u64);

pub(crate) fn inode_of(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}

/// `openat2` flags that confine a path to the directory and reject symbolic links in it.
pub(crate) const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

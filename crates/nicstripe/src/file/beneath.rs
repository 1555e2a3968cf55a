//! Opening of names in an open directory, without following a symbolic link.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path},
};

use rustix::{
    fs::{
        AtFlags, Dir, DirEntry, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, StatxFlags,
        fstat, fstatfs, openat, openat2, statat, statx,
    },
    io::{Errno, Result},
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

/// Error of a directory in which no file can be created, although it is open: `/proc`, and a directory
/// that was removed.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("its directory takes no new files, or was removed")]
struct NoNewFiles;

/// Returns the error of a directory in which no file can be created, although it is open.
pub(crate) fn no_new_files() -> io::Error {
    io::Error::other(NoNewFiles)
}

/// Returns true if a directory took no file, or was not found: another operation may have removed it.
pub(crate) fn lacked_directory(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error
            .get_ref()
            .is_some_and(|cause| cause.is::<NoNewFiles>())
}

/// Returns the metadata of the entry `name` of a directory, of a symbolic link itself; `None` if it
/// does not exist.
pub(crate) fn stat_entry<P: rustix::path::Arg>(dir: &OwnedFd, name: P) -> Result<Option<Stat>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        stat => stat.map(Some),
    }
}

/// Opens `path` beneath `dir`; an empty path opens `dir` itself. Fails if the path contains a
/// symbolic link.
///
/// Where openat2(2) is missing (Linux before 5.6) or filtered (systemd's `RestrictSUIDSGID=`, old
/// container run-times), opens one component after the other.
pub(crate) fn open_confined(dir: &OwnedFd, path: &Path, access: OFlags) -> Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    match openat2(dir, path, access | OFlags::CLOEXEC, Mode::empty(), CONFINED) {
        Err(error) if is_filtered(error) => walk(dir, path, access),
        opened => opened,
    }
}

/// Opens the directory `name` in `dir` to read it. Fails if the name is a symbolic link or a mount
/// point.
pub(crate) fn open_on_same_mount(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
    let access = OFlags::DIRECTORY | OFlags::RDONLY;
    let resolve = CONFINED | ResolveFlags::NO_XDEV;
    match openat2(dir, name, access | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Err(error) if is_filtered(error) => {
            let opened = walk(dir, Path::new(name), access)?;
            let mount = |dir: &OwnedFd| {
                let stat = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
                Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_mnt_id))
            };
            if mount(dir)? == mount(&opened)? {
                Ok(opened)
            } else {
                Err(Errno::XDEV)
            }
        }
        opened => opened,
    }
}

/// Returns true if an error of openat2(2) may mean that the system call is not available.
fn is_filtered(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

/// Opens `path` beneath `dir` with openat(2), one component after the other. Never follows a
/// symbolic link, and rejects `..` and absolute paths, like [`CONFINED`].
fn walk(dir: &OwnedFd, path: &Path, access: OFlags) -> Result<OwnedFd> {
    let names: Vec<&OsStr> = path
        .components()
        .filter(|component| *component != Component::CurDir)
        .map(|component| match component {
            Component::Normal(name) => Ok(name),
            _ => Err(Errno::XDEV),
        })
        .collect::<Result<_>>()?;
    let Some((last, parents)) = names.split_last() else {
        return openat(dir, ".", access | OFlags::CLOEXEC, Mode::empty());
    };
    let mut parent: Option<OwnedFd> = None;
    for name in parents {
        let at = parent.as_ref().unwrap_or(dir);
        parent = Some(open_component(at, name, OFlags::PATH | OFlags::DIRECTORY)?);
    }
    open_component(parent.as_ref().unwrap_or(dir), last, access)
}

/// Opens a name in a directory. A symbolic link is `ELOOP`, unless `access` asks for the link
/// itself, as with openat2(2).
fn open_component(dir: &OwnedFd, name: &OsStr, access: OFlags) -> Result<OwnedFd> {
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_link = |stat: Result<Stat>| {
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR) if is_link(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)) => {
            Err(Errno::LOOP)
        }
        Ok(opened)
            if access.contains(OFlags::PATH)
                && !access.contains(OFlags::NOFOLLOW)
                && is_link(fstat(&opened)) =>
        {
            Err(Errno::LOOP)
        }
        opened => opened,
    }
}

/// Returns the entries of a directory without `.` and `..`. There are none if the directory has
/// been removed ([`is_removed`]).
pub(crate) fn entries_of(dir: &OwnedFd) -> Result<impl Iterator<Item = Result<DirEntry>>> {
    let is_entry = |entry: &Result<DirEntry>| {
        !entry
            .as_ref()
            .is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    };
    Ok(Dir::read_from(dir)?.filter(is_entry))
}

/// Returns true if a directory, open to be read, has been removed, so that it has no name.
///
/// The kernel lists no removed directory (`iterate_dir`, fs/readdir.c), whatever the file system.
/// [`Dir`] takes the error for the end of the list.
pub(crate) fn is_removed(dir: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 1024];
    let mut entries = RawDir::new(dir, &mut buffer);
    matches!(entries.next(), Some(Err(Errno::NOENT)))
}

/// Device and inode number, which identify a file.
pub(crate) type Inode = (u64, u64);

pub(crate) fn inode_of(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}

/// Returns true if a file is known to be on a file system of one of these types (statfs(2),
/// linux/magic.h).
pub(super) fn is_on(file: impl AsFd, types: &[u32]) -> bool {
    // The field's type differs between architectures; the numbers have 32 bits.
    fstatfs(file).is_ok_and(|stat| types.contains(&(stat.f_type as u32)))
}

pub(crate) fn is_tmpfs(file: impl AsFd) -> bool {
    is_on(file, &[TMPFS])
}

/// `TMPFS_MAGIC` of linux/magic.h.
pub(super) const TMPFS: u32 = 0x0102_1994;

/// `openat2` flags that confine a path to the directory and reject symbolic links in it.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_walk_opens_and_refuses_what_openat2_does() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("root/a/b")).unwrap();
        for file in ["root/file", "root/a/b/file", "secret"] {
            fs::write(base.path().join(file), file).unwrap();
        }
        for (target, link) in [
            ("a", "root/in"),
            ("../secret", "root/out"),
            ("..", "root/a/up"),
            ("file", "root/link"),
            ("missing", "root/dangling"),
            ("/", "root/a/slash"),
        ] {
            symlink(target, base.path().join(link)).unwrap();
        }
        let root: OwnedFd = File::open(base.path().join("root")).unwrap().into();
        let mut opened = 0;
        for path in [
            ".",
            "a",
            "a/b",
            "a/b/file",
            "file",
            "./a/./b",
            "file/x",
            "a/file",
            "in",
            "in/b",
            "out",
            "a/up",
            "a/up/file",
            "link",
            "dangling",
            "a/slash",
            "a/slash/etc",
            "..",
            "a/../file",
            "../secret",
            "/etc",
            "missing",
            "missing/x",
            "",
        ] {
            for access in [
                OFlags::RDONLY,
                OFlags::PATH,
                OFlags::PATH | OFlags::NOFOLLOW,
                OFlags::DIRECTORY | OFlags::RDONLY,
                OFlags::DIRECTORY | OFlags::PATH,
            ] {
                let path = Path::new(if path.is_empty() { "." } else { path });
                let inode = |opened: OwnedFd| inode_of(&fstat(&opened).unwrap());
                let kernel = openat2(&root, path, access, Mode::empty(), CONFINED).map(inode);
                let walked = walk(&root, path, access).map(inode);
                opened += usize::from(walked.is_ok());
                if path.components().any(|part| part == Component::ParentDir) {
                    // The kernel resolves `..` that stays beneath; no caller uses it.
                    assert_eq!(walked, Err(Errno::XDEV), "{path:?}");
                } else {
                    assert_eq!(walked, kernel, "{path:?} {access:?}");
                }
            }
        }
        assert!(opened > 20, "{opened}");
    }
}

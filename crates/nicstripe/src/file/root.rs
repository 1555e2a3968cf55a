//! The one directory that a daemon serves, and the only way into it.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use nicstripe_proto::Name;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fsync, mkdirat, openat, openat2, statat};

use super::FileError;

/// A directory, held open; names are resolved beneath it by the kernel (`openat2`, Linux 5.6).
///
/// Symbolic links are followed as long as they stay beneath it.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let dir =
            openat(CWD, path, flags, Mode::empty()).map_err(|error| FileError::new("open directory", path.display(), error.into()))?;
        Ok(Self { dir })
    }

    /// Takes an open directory.
    pub(crate) fn of(dir: &OwnedFd) -> Result<Self, FileError> {
        let error = |cause: io::Error| FileError::new("serve", "the directory that was handed over", cause);
        let stat = rustix::fs::fstat(dir).map_err(|cause| error(cause.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(error(io::ErrorKind::NotADirectory.into()).with_code(nicstripe_proto::FailCode::NotAFile));
        }
        Ok(Self { dir: dir.try_clone().map_err(error)? })
    }

    /// Opens a file beneath the root.
    pub(crate) fn open_file(&self, name: &Name, flags: OFlags) -> io::Result<OwnedFd> {
        self.open_beneath(&path_of(name), flags)
    }

    /// Opens the directory that contains `name`.
    pub(crate) fn open_parent(&self, name: &Name) -> io::Result<OwnedFd> {
        let path = path_of(name);
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.open_beneath(parent, OFlags::DIRECTORY | OFlags::RDONLY)
    }

    /// Opens a directory beneath the root, or the root itself, as a place for further names.
    pub(crate) fn locate_directory(&self, name: Option<&Name>) -> io::Result<OwnedFd> {
        let path = name.map_or_else(|| PathBuf::from("."), path_of);
        self.open_beneath(&path, OFlags::DIRECTORY | OFlags::PATH)
    }

    /// Whether `name` is a directory.
    pub(crate) fn is_directory(&self, name: &Name) -> bool {
        self.open_beneath(&path_of(name), OFlags::DIRECTORY | OFlags::PATH).is_ok()
    }

    /// Opens a directory, the root itself for `None`, to read it, to work in it and to sync it.
    pub(crate) fn open_directory(&self, name: Option<&Name>) -> io::Result<OwnedFd> {
        let path = name.map_or_else(|| PathBuf::from("."), path_of);
        self.open_beneath(&path, OFlags::DIRECTORY | OFlags::RDONLY)
    }

    /// Makes a directory, and those that lead to it, where they are missing. What is made is durable, as far as its file system can tell.
    pub(crate) fn make_directory(&self, name: &Name) -> io::Result<()> {
        let mut path = PathBuf::new();
        for component in name.components().map(OsStr::from_bytes) {
            let parent = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.clone() };
            path.push(component);
            match self.open_beneath(&path, OFlags::DIRECTORY | OFlags::PATH) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let parent = self.open_beneath(&parent, OFlags::DIRECTORY | OFlags::RDONLY)?;
                    match mkdirat(&parent, component, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {
                            drop(self.open_beneath(&path, OFlags::DIRECTORY | OFlags::PATH)?);
                            fsync(&parent)?;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve).map_err(|error| match error {
            rustix::io::Errno::XDEV => io::Error::new(io::ErrorKind::PermissionDenied, "leads out of the served directory"),
            error => error.into(),
        })
    }
}

/// Whether `dir` has an entry `name`, whatever it is.
pub(super) fn exists(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<FileType>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn path_of(name: &Name) -> PathBuf {
    name.components().map(OsStr::from_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_made_beneath_the_root_alone() {
        let outer = tempfile::tempdir().unwrap();
        let inside = outer.path().join("root");
        std::fs::create_dir_all(inside.join("real")).unwrap();
        std::os::unix::fs::symlink("real", inside.join("in")).unwrap();
        std::os::unix::fs::symlink("..", inside.join("out")).unwrap();
        std::os::unix::fs::symlink("missing", inside.join("dangling")).unwrap();

        let root = Root::open(&inside).unwrap();
        let make = |name: &str| root.make_directory(&Name::parse(name.as_bytes()).unwrap());
        make("in/a/b").unwrap();
        make("in/a/b").unwrap();
        assert!(inside.join("real/a/b").is_dir());
        assert!(make("out/a").is_err() && make("dangling/a").is_err());
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_that_lead_out_are_refused_and_links_that_stay_are_followed() {
        let outer = tempfile::tempdir().unwrap();
        let inside = outer.path().join("root");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(outer.path().join("secret"), "s").unwrap();
        std::fs::write(inside.join("plain"), "p").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("out")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", inside.join("absolute")).unwrap();
        std::os::unix::fs::symlink("plain", inside.join("in")).unwrap();

        let root = Root::open(&inside).unwrap();
        let open = |name: &str| root.open_file(&Name::parse(name.as_bytes()).unwrap(), OFlags::RDONLY);
        assert!(open("plain").is_ok() && open("in").is_ok());
        for out in ["out", "absolute"] {
            assert_eq!(open(out).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{out}");
        }
        assert_eq!(open("missing").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

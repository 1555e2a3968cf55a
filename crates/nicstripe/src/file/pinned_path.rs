//! Paths of the configuration, resolved once.

use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat},
    io::Errno,
};

use super::{
    beneath::{Inode, inode_of, open_confined},
    root::{Root, push_components},
};

/// Part of a directory path that only the administrator can change: an open directory, and the
/// rest of the path beneath it.
///
/// The rest is empty unless it lies in a directory that peers may change, or did not exist when the
/// path was resolved. It is resolved at each use, beneath the open directory and without symbolic
/// links.
#[derive(Debug)]
pub(crate) struct PinnedPath {
    dir: OwnedFd,
    inode: Inode,
    rest: PathBuf,
    is_within_served: bool,
}

impl PinnedPath {
    /// Resolves `path`, following symbolic links, up to the first directory that `is_served`
    /// accepts by its path and inode, or whose next component is missing.
    pub(crate) fn find(path: &Path, is_served: impl Fn(&Path, Inode) -> bool) -> io::Result<Self> {
        let mut walk = Walk::begin(&std::path::absolute(path)?)?;
        loop {
            let inode = inode_of(&fstat(&walk.dir)?);
            if walk.ahead.is_empty() {
                return Ok(walk.stop(inode, false));
            }
            if is_served(&walk.path, inode) {
                return Ok(walk.stop(inode, true));
            }
            if !walk.step()? {
                return Ok(walk.stop(inode, false));
            }
        }
    }

    /// Returns true if the directory lies in one that peers are served.
    pub(crate) fn is_within_served(&self) -> bool {
        self.is_within_served
    }

    /// Returns the inode of the directory; `None` if its path is resolved at each use.
    pub(crate) fn inode(&self) -> Option<Inode> {
        self.rest.as_os_str().is_empty().then_some(self.inode)
    }

    /// Opens the directory. `path` is the path that was resolved.
    ///
    /// # Errors
    ///
    /// The path now leads to another directory: the first one was replaced, or a file system was
    /// mounted over it. The rest of the path is missing or contains a symbolic link.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Root> {
        let flags = OFlags::DIRECTORY | OFlags::PATH;
        if self.inode().is_none() {
            let opened = open_confined(&self.dir, &self.rest, flags);
            return match opened {
                Err(Errno::LOOP | Errno::XDEV) => Err(io::Error::other(
                    "it lies in a directory that peers may change, and contains a symbolic link",
                )),
                opened => Root::of(&opened?).map_err(|error| error.source),
            };
        }
        let found = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        if found
            .and_then(fstat)
            .is_ok_and(|stat| inode_of(&stat) == self.inode)
        {
            Root::of(&self.dir).map_err(|error| error.source)
        } else {
            Err(io::Error::other(
                "it is not the directory that was opened first: it was replaced, or a file system \
                 was mounted over it; reload the daemon to serve what is there now",
            ))
        }
    }
}

/// Resolution of a path, component by component.
struct Walk {
    dir: OwnedFd,
    /// Path of `dir` without symbolic links.
    path: PathBuf,
    /// Remaining components, the next one last.
    ahead: Vec<OsString>,
    links: usize,
}

impl Walk {
    fn begin(path: &Path) -> io::Result<Self> {
        let mut walk = Self {
            dir: open_slash()?,
            path: PathBuf::from("/"),
            ahead: Vec::new(),
            links: 0,
        };
        walk.push(path)?;
        Ok(walk)
    }

    fn push(&mut self, path: &Path) -> io::Result<()> {
        let Ok(beneath_slash) = path.strip_prefix("/") else {
            return push_components(&mut self.ahead, path);
        };
        self.dir = open_slash()?;
        self.path = PathBuf::from("/");
        push_components(&mut self.ahead, beneath_slash)
    }

    /// Enters the next component or follows it. Returns false if it is missing.
    fn step(&mut self) -> io::Result<bool> {
        let Some(next) = self.ahead.pop() else {
            return Ok(false);
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |flags| openat(&self.dir, &next, flags, Mode::empty());
        // Only with `O_DIRECTORY` does the kernel mount what autofs has there.
        match open(flags | OFlags::DIRECTORY) {
            Ok(dir) => {
                self.dir = dir;
                if next == ".." {
                    self.path.pop();
                } else {
                    self.path.push(next);
                }
                Ok(true)
            }
            Err(Errno::NOENT) => {
                self.ahead.push(next);
                Ok(false)
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let found = open(flags)?;
                if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Symlink {
                    return Err(Errno::NOTDIR.into());
                }
                self.links += 1;
                if self.links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&found, "", Vec::new())?.into_bytes();
                let target: OsString = std::os::unix::ffi::OsStringExt::from_vec(target);
                self.push(Path::new(&target)).map(|()| true)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn stop(self, inode: Inode, is_within_served: bool) -> PinnedPath {
        PinnedPath {
            dir: self.dir,
            inode,
            rest: self.ahead.into_iter().rev().collect(),
            is_within_served,
        }
    }
}

fn open_slash() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    openat(CWD, "/", flags, Mode::empty())
}

/// Maximum number of symbolic links in a path, as in the kernel (MAXSYMLINKS).
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn pinned(path: &Path, served: &Path) -> PinnedPath {
        PinnedPath::find(path, |prefix, _| prefix == served).unwrap()
    }

    /// Returns the text of the error, or the content of the file `who` in the directory.
    fn read(found: &PinnedPath, path: &Path) -> String {
        let name = nicstripe_proto::Name::parse(b"who").unwrap();
        let opened = found
            .open(path)
            .and_then(|root| root.open_file(&name, OFlags::RDONLY));
        opened.map_or_else(
            |error| error.to_string(),
            |file| io::read_to_string(fs::File::from(file)).unwrap(),
        )
    }

    fn directory(path: &Path) {
        fs::create_dir_all(path).unwrap();
        fs::write(
            path.join("who"),
            path.file_name().unwrap().as_encoded_bytes(),
        )
        .unwrap();
    }

    #[test]
    fn a_directory_that_peers_may_change_is_never_reached_through_a_link() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (served, b) = (base.join("r"), base.join("r/b"));
        directory(&b);
        directory(&base.join("secret"));
        let found = pinned(&b, &served);
        assert!(found.is_within_served() && found.inode().is_none());
        assert_eq!(read(&found, &b), "b");
        fs::rename(&b, base.join("r/aside")).unwrap();
        assert_eq!(read(&found, &b), Errno::NOENT.to_string());
        for target in ["../secret", "aside", "/"] {
            symlink(target, &b).unwrap();
            for found in [&found, &pinned(&b, &served)] {
                assert!(
                    read(found, &b).contains("contains a symbolic link"),
                    "{target}"
                );
            }
            fs::remove_file(&b).unwrap();
        }
        let out = base.join("r/../secret");
        assert!(read(&pinned(&out, &served), &out).contains("symbolic link"));
    }

    #[test]
    fn a_missing_directory_is_found_once_it_exists_but_not_through_a_link() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let path = base.join("a/b");
        let found = pinned(&path, Path::new("/none"));
        assert!(!found.is_within_served());
        assert_eq!(read(&found, &path), Errno::NOENT.to_string());
        directory(&base.join("secret/b"));
        symlink("secret", base.join("a")).unwrap();
        assert!(read(&found, &path).contains("symbolic link"));
        fs::remove_file(base.join("a")).unwrap();
        directory(&path);
        assert_eq!(read(&found, &path), "b");
    }

    #[test]
    fn a_directory_is_held_and_its_replacement_is_an_error() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (real, path) = (base.join("real"), base.join("link"));
        directory(&real);
        symlink("real", &path).unwrap();
        let found = pinned(&path, Path::new("/none"));
        assert_eq!(read(&found, &path), "real");
        fs::rename(&real, base.join("aside")).unwrap();
        assert!(read(&found, &path).contains("not the directory that was opened first"));
        directory(&real);
        assert!(read(&found, &path).contains("not the directory that was opened first"));
        fs::remove_dir_all(&real).unwrap();
        fs::rename(base.join("aside"), &real).unwrap();
        assert_eq!(read(&found, &path), "real");
    }
}

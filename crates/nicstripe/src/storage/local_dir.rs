//! Directory of this machine in which a peer chooses names.

use std::{io, path::Path, time::SystemTime};

use nicstripe_proto::Name;
use rustix::fs::{FileType, renameat};

use super::backend::{Kind, Stat};
use crate::file::{FileError, Root, mtime_of, open_parent, rename_to_free, stat_entry, sync_names};

/// Directory of this machine in which a peer chooses names, as a tree copy uses it: no symbolic link leads
/// out of it, and names of unfinished copies are refused. All calls block.
///
/// For the files of [`TreeReport::large`](crate::TreeReport::large).
#[derive(Debug)]
pub struct LocalDir(Root);

impl LocalDir {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// It does not exist, or is none.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self(Root::open(path)?))
    }

    /// Returns what has a name; `None` if nothing has. A symbolic link is [`Kind::Other`].
    ///
    /// # Errors
    ///
    /// The name leads out of the directory, is that of an unfinished copy, or cannot be looked up.
    pub fn stat(&self, name: &Name) -> Result<Option<Stat>, FileError> {
        let error = |cause| FileError::new("look for", name, cause);
        let (dir, leaf) = match self.0.open_parent_for_new(name) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(error)?,
        };
        let found = stat_entry(&dir, leaf).map_err(|cause| error(cause.into()))?;
        Ok(found.map(|stat| {
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Dir,
                _ => Kind::Other,
            };
            let modified = mtime_of(&stat)
                .to_system_time()
                .unwrap_or(SystemTime::UNIX_EPOCH);
            Stat::new(kind, stat.st_size as u64, modified)
        }))
    }

    /// Gives a file of the same file system a name here, durably. Without `replace` nothing has the name.
    ///
    /// # Errors
    ///
    /// As for [`stat`](Self::stat); the name is taken, or the file is on another file system.
    pub fn place(&self, file: &Path, name: &Name, replace: bool) -> Result<(), FileError> {
        let error = |cause| FileError::new("name", name, cause);
        let (from, own) = open_parent(file)?;
        let (dir, leaf) = self.0.open_parent_for_new(name).map_err(error)?;
        let renamed = match replace {
            true => renameat(&from, own, &dir, leaf).map_err(io::Error::from),
            false => rename_to_free(&from, own, &dir, leaf),
        };
        renamed.and_then(|()| sync_names(&dir)).map_err(error)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn no_link_and_no_hidden_name_of_a_peer_is_followed_or_made() {
        let outer = tempfile::tempdir().unwrap();
        let at = |path: &str| outer.path().join(path);
        fs::create_dir_all(at("target/real")).unwrap();
        symlink("..", at("target/out")).unwrap();
        symlink("/tmp", at("target/far")).unwrap();
        fs::write(at("file"), "12345").unwrap();
        let dir = LocalDir::open(&at("target")).unwrap();
        let name = |text: &str| Name::parse(text.as_bytes()).unwrap();
        for bad in ["out/x", "far/x", "real/.x.01234567.nicstripe-part"] {
            assert!(dir.stat(&name(bad)).is_err(), "{bad}");
            assert!(dir.place(&at("file"), &name(bad), true).is_err(), "{bad}");
        }
        assert_eq!(dir.stat(&name("missing/x")).unwrap(), None);
        assert_eq!(dir.stat(&name("out")).unwrap().unwrap().kind, Kind::Other);
        dir.place(&at("file"), &name("real/x"), false).unwrap();
        let found = dir.stat(&name("real/x")).unwrap().unwrap();
        assert_eq!((found.kind, found.size), (Kind::File, 5));
        fs::write(at("file"), "new").unwrap();
        assert!(dir.place(&at("file"), &name("real/x"), false).is_err());
        dir.place(&at("file"), &name("real/x"), true).unwrap();
        assert_eq!(fs::read(at("target/real/x")).unwrap(), b"new");
    }
}

//! Local name of an entry.

use std::{ffi::OsString, fs::File, io, os::unix::ffi::OsStrExt, sync::Arc};

use nicstripe_proto::{FailCode, Name, name::escaped, tree::Existing};
use rustix::fs::{FileType, OFlags, Stat, fstat, readlinkat};

use super::dirs::TreeDir;
use crate::{
    file::{FileError, is_hidden_in, is_hidden_name, mtime_of, open_entry, stat_entry},
    tree::metadata::node_of,
};

/// Local directory and name of an entry other than the root directory.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) parent: Arc<TreeDir>,
    pub(super) name: OsString,
    /// Name of the entry at the sender; `None` for a directory whose name the target determines.
    pub(super) announced: Option<Vec<u8>>,
    /// True if the entry is a source itself, false if it lies in one.
    pub(super) is_source: bool,
}

impl Leaf {
    /// Returns the path of the entry relative to the target; `None` for the target itself.
    pub(super) fn shown(&self) -> Option<Name> {
        Name::new(
            self.parent
                .announced()
                .into_iter()
                .chain(self.announced.as_deref()),
        )
        .ok()
    }

    /// Returns the path of the entry relative to the target, for display.
    pub(super) fn text(&self) -> String {
        self.shown().map_or_else(
            || escaped(self.name.as_encoded_bytes()),
            |name| name.to_string(),
        )
    }

    pub(super) fn error(&self, operation: &'static str, error: io::Error) -> FileError {
        FileError::new(operation, self.text(), error)
    }

    pub(super) fn key(&self) -> u64 {
        self.parent.key_of(&self.name)
    }

    /// Rejects reserved names of part files and journals, log-in files of accounts, and paths that
    /// are too long.
    pub(super) fn check(&self) -> Result<(), FileError> {
        // A directory that a dry run has not made hides nothing.
        let dir = self.parent.open().ok();
        let is_hidden = match &dir {
            Some(dir) if !self.parent.has_exact_names(dir) => {
                is_hidden_in(dir, &self.name).unwrap_or(true)
            }
            _ => is_hidden_name(self.name.as_bytes()),
        };
        let barred = || {
            let dir = dir.as_ref()?;
            self.parent.check_login(dir, &self.name).err()
        };
        let why = if is_hidden {
            io::Error::other("names like this are reserved for partial files")
        } else if !self.parent.has_room_for(&self.name) {
            io::Error::other("its path is too long or too deep")
        } else if let Some(barred) = barred() {
            barred
        } else {
            return Ok(());
        };
        Err(self.error("receive", why).with_code(FailCode::Refused))
    }

    /// Returns type and metadata of the object of this name, if it exists; does not follow symbolic
    /// links.
    pub(super) fn look(&self) -> io::Result<Option<(Existing, Stat)>> {
        let dir = self.parent.open()?;
        let Some(stat) = stat_entry(&dir, &self.name)? else {
            return Ok(None);
        };
        let existing = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Existing::File {
                size: stat.st_size as u64,
                mtime: mtime_of(&stat),
                digest: None,
            },
            FileType::Directory => Existing::Directory,
            FileType::Symlink => {
                Existing::Symlink(readlinkat(&dir, &self.name, Vec::new())?.into_bytes())
            }
            kind => node_of(kind, &stat).map_or(Existing::Other, Existing::Node),
        };
        Ok(Some((existing, stat)))
    }

    pub(super) fn open_regular(&self) -> io::Result<File> {
        let file = open_entry(&*self.parent.open()?, &self.name, OFlags::RDONLY)?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(file)
    }
}

//! Names that lead to an object with another name, because the file system ignores case.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use super::surplus::names_in;
use crate::file::{Inode, inode_of, stat_entry};

/// Names in the last directory that ignored case, so that it is not listed for each of its names.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    directory: Option<u64>,
    names: HashSet<OsString>,
}

impl Spellings {
    /// Returns the name of the object `found` in its directory if it is not `name`, which leads to
    /// it. `key` identifies the directory.
    ///
    /// Two names of a tree must not become one file, of which the second run would replace one by
    /// the other.
    pub(super) fn other(
        &mut self,
        dir: &OwnedFd,
        key: u64,
        name: &OsStr,
        found: Inode,
    ) -> io::Result<Option<OsString>> {
        let leads_to_it = |name: &OsStr| {
            let stat = stat_entry(dir, name)?;
            Ok::<_, io::Error>(stat.is_some_and(|stat| inode_of(&stat) == found))
        };
        let Some(swapped) = in_other_case(name) else {
            return Ok(None);
        };
        if !leads_to_it(&swapped)? {
            return Ok(None);
        }
        if self.directory != Some(key) || !self.names.contains(name) {
            self.names = names_in(dir)?.into_iter().collect();
            self.directory = Some(key);
        }
        if self.names.contains(name) {
            return Ok(None);
        }
        for other in &self.names {
            if leads_to_it(other)? {
                return Ok(Some(other.clone()));
            }
        }
        Ok(None)
    }
}

/// Returns a name in lower case, or in upper case if it has no other letters; `None` if it has no
/// letters with two cases.
fn in_other_case(name: &OsStr) -> Option<OsString> {
    let bytes = name.as_bytes();
    let (lower, upper) = match name.to_str() {
        Some(text) => (text.to_lowercase().into(), text.to_uppercase().into()),
        None => (bytes.to_ascii_lowercase(), bytes.to_ascii_uppercase()),
    };
    let other = if lower == bytes { upper } else { lower };
    let other = OsStr::from_bytes(&other);
    (other != name).then(|| other.to_owned())
}

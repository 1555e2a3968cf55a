//! Names that lead to an object with another name, because the file system ignores case.

use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
};

use super::surplus::names_in;
use crate::file::{Inode, inode_of, stat_entry};

/// Listings of the last directories that ignored case, so that none is listed for each of its names.
#[derive(Debug, Default)]
pub(super) struct Spellings(Vec<Listing>);

#[derive(Debug)]
struct Listing {
    key: u64,
    names: HashSet<OsString>,
    /// These names, by their spelling in lower case.
    alike: HashMap<OsString, OsString>,
    /// True once the directory was found to ignore case: nothing else can then take a name that is
    /// like a listed one.
    ignores_case: bool,
}

/// Name under which a directory lists an object that has been found by another spelling.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Listed(OsString),
    /// No listed name is like the other spelling.
    Unknown,
}

impl Spellings {
    /// Returns the listed name of the object `found` if `name`, which leads to it, is another
    /// spelling of that name. `key` identifies the directory.
    ///
    /// Two names of a tree must not become one file, or the second run would replace one by
    /// the other. Inode numbers do not tell: over FUSE and SMB each spelling may have its own.
    pub(super) fn other(
        &mut self,
        dir: &OwnedFd,
        key: u64,
        name: &OsStr,
        found: Inode,
    ) -> io::Result<Option<Spelling>> {
        let Some(swapped) = in_other_case(name) else {
            return Ok(None);
        };
        if stat_entry(dir, &swapped)?.is_none() {
            return Ok(None);
        }
        let listing = self.listing(dir, key, name)?;
        // A name that is not found now was removed before the directory was listed.
        if listing.names.contains(name) || stat_entry(dir, name)?.is_none() {
            return Ok(None);
        }
        listing.ignores_case = true;
        if let Some(other) = listing.alike.get(&in_lower_case(name)) {
            return Ok(Some(Spelling::Listed(other.clone())));
        }
        for other in &listing.names {
            let stat = stat_entry(dir, other)?;
            if stat.is_some_and(|stat| inode_of(&stat) == found) {
                return Ok(Some(Spelling::Listed(other.clone())));
            }
        }
        Ok(Some(Spelling::Unknown))
    }

    /// Returns the names in a directory. Lists it again for a `name` that may have been created
    /// since.
    fn listing(&mut self, dir: &OwnedFd, key: u64, name: &OsStr) -> io::Result<&mut Listing> {
        let at = self.0.iter().position(|listing| listing.key == key);
        let known = at.map(|at| self.0.remove(at));
        let listing = match known.filter(|listing| listing.knows(name)) {
            Some(listing) => listing,
            None => Listing::read(dir, key)?,
        };
        self.0.truncate(MOST_LISTINGS - 1);
        self.0.insert(0, listing);
        Ok(&mut self.0[0])
    }
}

impl Listing {
    fn read(dir: &OwnedFd, key: u64) -> io::Result<Self> {
        let names: HashSet<OsString> = names_in(dir)?.into_iter().collect();
        let in_lower_case = |name: &OsString| (in_lower_case(name), name.clone());
        Ok(Self {
            key,
            alike: names.iter().map(in_lower_case).collect(),
            names,
            ignores_case: false,
        })
    }

    /// Returns true if another listing would not say more about a name.
    fn knows(&self, name: &OsStr) -> bool {
        self.names.contains(name)
            || (self.ignores_case && self.alike.contains_key(&in_lower_case(name)))
    }
}

/// Maximum number of directories whose names are kept: a walk returns to the directories above.
const MOST_LISTINGS: usize = 4;

/// Returns a name in lower case, or in upper case if it has no other letters; `None` if it has no
/// letters with two cases.
fn in_other_case(name: &OsStr) -> Option<OsString> {
    let lower = in_lower_case(name);
    let other = match name.to_str() {
        _ if lower != name => lower,
        Some(text) => text.to_uppercase().into(),
        None => name.to_ascii_uppercase(),
    };
    (other != name).then_some(other)
}

/// Returns a name in lower case; only its ASCII letters if it is not UTF-8.
fn in_lower_case(name: &OsStr) -> OsString {
    name.to_str().map_or_else(
        || name.to_ascii_lowercase(),
        |text| text.to_lowercase().into(),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_is_listed_once_for_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let dir = OwnedFd::from(fs::File::open(folder.path()).unwrap());
        let mut spellings = Spellings::default();
        let mut other = |name: &str| {
            let found = stat_entry(&dir, name).unwrap().unwrap();
            spellings
                .other(&dir, 1, name.as_ref(), inode_of(&found))
                .unwrap()
        };
        for name in ["README", "readme", "single", "other", "OTHER"] {
            fs::write(path(name), "").unwrap();
        }
        for name in ["README", "readme", "single"] {
            assert_eq!(other(name), None, "{name}");
        }
        // Both are new, and the directory may be one that has each name for itself.
        for name in ["new", "NEW"] {
            fs::write(path(name), "").unwrap();
        }
        assert_eq!(other("NEW"), None);
        // Stands for a directory that ignores case: what is not listed leads to an object.
        spellings.0[0].names.remove(OsStr::new("OTHER"));
        spellings.0[0].alike.insert("other".into(), "other".into());
        spellings.0[0].ignores_case = true;
        let found = stat_entry(&dir, "OTHER").unwrap().unwrap();
        let again = spellings.other(&dir, 1, "OTHER".as_ref(), inode_of(&found));
        assert_eq!(again.unwrap(), Some(Spelling::Listed("other".into())));
    }
}

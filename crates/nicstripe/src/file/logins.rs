//! Files in the home directories of accounts that decide who may log in, or what runs at a log-in.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use super::error::Barred;

/// Home directories of accounts, in which no peer may write `.ssh`: whoever writes there has a shell.
///
/// Every name that begins with a dot is barred to a peer that may only add files: which of these
/// start a program depends on the shell and the desktop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logins {
    homes: Arc<[PathBuf]>,
    bars_dot_files: bool,
}

impl Logins {
    /// Keeps the directories that exist.
    pub(crate) fn new(homes: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut homes: Vec<PathBuf> = homes
            .into_iter()
            .filter_map(|home| fs::canonicalize(home).ok())
            .collect();
        homes.sort_unstable();
        homes.dedup();
        Self {
            homes: homes.into(),
            bars_dot_files: false,
        }
    }

    /// Keeps the homes that a directory contains, or is. All if its path is unknown.
    pub(crate) fn within(&self, dir: impl AsFd) -> Self {
        let homes = match path_of(dir) {
            Ok(root) => self
                .homes
                .iter()
                .filter(|home| home.starts_with(&root))
                .cloned()
                .collect(),
            Err(_) => self.homes.clone(),
        };
        Self { homes, ..*self }
    }

    pub(crate) fn to_appender(&self) -> Self {
        Self {
            bars_dot_files: true,
            ..self.clone()
        }
    }

    /// Checks an entry of an open directory that a peer wants to create or replace. Asks the kernel
    /// for the path of the directory, so it is irrelevant by which links the peer came there.
    ///
    /// # Errors
    ///
    /// [`Barred::Login`], also if the path of the directory is unknown.
    pub(crate) fn check(&self, dir: impl AsFd, leaf: &OsStr) -> io::Result<()> {
        if self.homes.is_empty() {
            return Ok(());
        }
        let path = path_of(dir).map_err(|_| Barred::Login)?.join(leaf);
        match self.homes.iter().any(|home| self.is_barred(home, &path)) {
            true => Err(Barred::Login.into()),
            false => Ok(()),
        }
    }

    fn is_barred(&self, home: &Path, path: &Path) -> bool {
        let Ok(inside) = path.strip_prefix(home) else {
            return false;
        };
        let first = inside.components().next();
        // A file system may ignore case, and the short name of `.ssh` on FAT is `SSH~1`.
        let first: Option<OsString> = first.map(|one| one.as_os_str().to_ascii_lowercase());
        first.is_some_and(|first| {
            let first = first.as_bytes();
            first == b".ssh"
                || first.starts_with(b"ssh~")
                || (self.bars_dot_files && first.starts_with(b"."))
        })
    }
}

fn path_of(dir: impl AsFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn names_beneath_ssh_in_a_home_are_barred_by_any_way_to_them() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("home");
        fs::create_dir_all(home.join(".ssh/deep")).unwrap();
        fs::create_dir_all(home.join("backup/.ssh")).unwrap();
        symlink(home.join(".ssh"), base.path().join("link")).unwrap();
        let logins = Logins::new([home.clone(), base.path().join("missing")]);
        let check = |logins: &Logins, dir: &Path, leaf: &str| {
            let dir = File::open(dir).unwrap();
            logins.check(&dir, leaf.as_ref()).is_ok()
        };
        for (dir, leaf, may, appender_may) in [
            (home.clone(), ".ssh", false, false),
            (home.clone(), ".SSH", false, false),
            (home.join(".ssh"), "authorized_keys", false, false),
            (home.join(".ssh/deep"), "x", false, false),
            (base.path().join("link"), "rc", false, false),
            (home.clone(), ".profile", true, false),
            (home.clone(), "a", true, true),
            (home.join("backup"), ".ssh", true, true),
            (home.join("backup/.ssh"), "rc", true, true),
            (base.path().to_owned(), ".ssh", true, true),
        ] {
            assert_eq!(check(&logins, &dir, leaf), may, "{dir:?} {leaf}");
            let appender = logins.to_appender();
            assert_eq!(check(&appender, &dir, leaf), appender_may, "{dir:?} {leaf}");
            assert!(check(&Logins::default(), &dir, leaf));
        }
        // What lies in a home, but does not contain it, may have any name.
        for (root, kept) in [(base.path(), 1), (&home, 1), (&home.join("backup"), 0)] {
            let within = logins.within(File::open(root).unwrap());
            assert_eq!(within.homes.len(), kept, "{root:?}");
        }
    }
}

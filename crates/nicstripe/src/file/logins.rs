//! Files in the home directories of accounts that decide who may log in, or what runs at a log-in.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::error::Barred;

/// Home directories of accounts, in which no peer may write `.ssh`: a writer there has a shell.
///
/// Every name that begins with a dot, and `bin`, is barred to a peer that may only add files: which
/// of these start a program depends on the shell and the desktop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logins {
    homes: Arc<[PathBuf]>,
    /// Where links lead that stand for `.ssh`, or for a file in it.
    targets: Arc<[PathBuf]>,
    /// Where links lead that stand for other names that are barred to a peer that only adds files.
    targets_of_others: Arc<[PathBuf]>,
    only_adds: bool,
}

impl Logins {
    /// Keeps the directories that exist, and as they were named those that do not answer within
    /// [`PATIENCE`]: a home may lie on a server that is down.
    pub(crate) fn new(homes: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut named: Vec<PathBuf> = homes.into_iter().collect();
        named.sort_unstable();
        named.dedup();
        let (tell, told) = mpsc::channel();
        let ahead = named.clone();
        let look = move || {
            for home in ahead {
                let _ = tell.send(Looked::at(&home));
            }
        };
        // Without a thread none is looked at, as if none had answered.
        let _ = thread::Builder::new().spawn(look);
        let deadline = Instant::now() + PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut seen: Vec<Looked> = Vec::new();
        while let Ok(looked) = told.recv_timeout(left()) {
            seen.push(looked);
        }
        let silent = named.split_off(seen.len());
        let homes = seen.iter().filter_map(|looked| looked.home.clone());
        Self {
            homes: homes.chain(silent).collect(),
            targets: seen
                .iter()
                .flat_map(|looked| looked.targets.clone())
                .collect(),
            targets_of_others: seen
                .iter()
                .flat_map(|looked| looked.targets_of_others.clone())
                .collect(),
            only_adds: false,
        }
    }

    /// Keeps the homes that a directory contains, or is, and the targets of links in it or around it.
    /// All if its path is unknown.
    pub(crate) fn within(&self, dir: impl AsFd) -> Self {
        let Ok(root) = path_of(dir) else {
            return self.clone();
        };
        let kept = |paths: &[PathBuf], is_kept: &dyn Fn(&PathBuf) -> bool| -> Arc<[PathBuf]> {
            paths.iter().filter(|path| is_kept(path)).cloned().collect()
        };
        let touches = |path: &PathBuf| path.starts_with(&root) || root.starts_with(path);
        Self {
            homes: kept(&self.homes, &|home| home.starts_with(&root)),
            targets: kept(&self.targets, &touches),
            targets_of_others: kept(&self.targets_of_others, &touches),
            only_adds: self.only_adds,
        }
    }

    pub(crate) fn to_appender(&self) -> Self {
        Self {
            only_adds: true,
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
        if self.is_empty() {
            return Ok(());
        }
        self.check_path(&path_of(dir).map_err(|_| Barred::Login)?.join(leaf))
    }

    /// Like [`check`](Self::check), for an entry that a peer wants to rename, remove or replace: also
    /// bars a home, and the directories above it.
    pub(crate) fn check_moved(&self, dir: impl AsFd, leaf: &OsStr) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let path = path_of(dir).map_err(|_| Barred::Login)?.join(leaf);
        match self.homes.iter().any(|home| home.starts_with(&path)) {
            true => Err(Barred::Login.into()),
            false => self.check_path(&path),
        }
    }

    fn is_empty(&self) -> bool {
        self.homes.is_empty() && self.targets.is_empty() && self.targets_of_others.is_empty()
    }

    fn check_path(&self, path: &Path) -> io::Result<()> {
        let leads = |targets: &[PathBuf]| targets.iter().any(|target| path.starts_with(target));
        let is_barred = self.homes.iter().any(|home| self.is_barred(home, path))
            || leads(&self.targets)
            || (self.only_adds && leads(&self.targets_of_others));
        match is_barred {
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
            first == ".ssh"
                || first.as_bytes().starts_with(b"ssh~")
                || (self.only_adds && is_barred_to_appender(&first))
        })
    }
}

/// Result of the search for a home.
struct Looked {
    /// Real path; `None` if it does not exist.
    home: Option<PathBuf>,
    targets: Vec<PathBuf>,
    targets_of_others: Vec<PathBuf>,
}

impl Looked {
    fn at(home: &Path) -> Self {
        let ssh = home.join(".ssh");
        let mut targets = links_in(home, |name| name == ".ssh");
        targets.extend(links_in(&ssh, |_| true));
        Self {
            home: fs::canonicalize(home).ok(),
            targets,
            targets_of_others: links_in(home, is_barred_to_appender),
        }
    }
}

/// Maximum wait for the file systems of all homes.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns true for a name in a home that may be that of a start-up file, or of a directory of
/// programs.
fn is_barred_to_appender(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".") || name == "bin"
}

/// Returns the real paths of the symbolic links in a directory whose name fits.
fn links_in(directory: &Path, fits: impl Fn(&OsStr) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| fits(&entry.file_name()))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .filter_map(|entry| fs::canonicalize(entry.path()).ok())
        .collect()
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
        let linked = base.path().join("linked");
        fs::create_dir_all(linked.join("dotfiles/ssh")).unwrap();
        fs::write(linked.join("dotfiles/profile"), "").unwrap();
        symlink("dotfiles/ssh", linked.join(".ssh")).unwrap();
        symlink("dotfiles/profile", linked.join(".profile")).unwrap();
        let homes = [home.clone(), linked.clone(), base.path().join("missing")];
        let logins = Logins::new(homes);
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
            (home.clone(), "bin", true, false),
            (linked.join("dotfiles"), "ssh", false, false),
            (linked.join("dotfiles/ssh"), "rc", false, false),
            (linked.join("dotfiles"), "profile", true, false),
            (linked.join("dotfiles"), "a", true, true),
            (home.join("backup"), ".ssh", true, true),
            (home.join("backup/.ssh"), "rc", true, true),
            (base.path().to_owned(), ".ssh", true, true),
        ] {
            assert_eq!(check(&logins, &dir, leaf), may, "{dir:?} {leaf}");
            let appender = logins.to_appender();
            assert_eq!(check(&appender, &dir, leaf), appender_may, "{dir:?} {leaf}");
            assert!(check(&Logins::default(), &dir, leaf));
        }
        // A name in a home that does not contain it may be any.
        for (root, homes, targets) in [
            (base.path(), 2, 1),
            (&home, 1, 0),
            (&home.join("backup"), 0, 0),
            (&linked.join("dotfiles"), 0, 1),
        ] {
            let within = logins.within(File::open(root).unwrap());
            let kept = (within.homes.len(), within.targets.len());
            assert_eq!(kept, (homes, targets), "{root:?}");
        }
        let moved = |dir: &Path, leaf: &str| {
            let dir = File::open(dir).unwrap();
            logins.check_moved(&dir, leaf.as_ref()).is_ok()
        };
        assert!(!moved(base.path(), "home") && !moved(&home, ".ssh"));
        assert!(!moved(
            base.path().parent().unwrap(),
            base.path().file_name().unwrap().to_str().unwrap()
        ));
        assert!(moved(&home, "backup") && moved(base.path(), "other"));
    }
}

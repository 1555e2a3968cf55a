//! Directories that a daemon serves: its own, and those of `root=` in the list of peers.
//!
//! A path is resolved once, and the directory is held open. What local users or other peers put
//! under the path later therefore changes nothing: see [`PinnedPath`].

use std::{
    collections::HashMap,
    io,
    os::unix::ffi::OsStringExt,
    path::{self, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nicstripe_proto::{FailCode, message::MAX_ROOT};
use parking_lot::Mutex;

use crate::{
    file::{FileError, Inode, Logins, PinnedPath, Root},
    storage::Served,
    text::logged::{logged, logged_error},
    trust::{Access, Home, Peer, Peers},
};

/// Directories that a daemon serves, each opened when the list of peers first names it.
#[derive(Debug)]
pub(super) struct Roots {
    /// Folders of the key and the peers file, which no served directory may contain.
    home: Option<Home>,
    logins: Logins,
    own: Own,
    pinned: Mutex<HashMap<PathBuf, Arc<Slot>>>,
    /// True after [`forget`](Self::forget), until the directories are opened again.
    is_forgotten: AtomicBool,
}

/// Root for peers without a `root=`.
#[derive(Debug)]
pub(super) enum Own {
    Path(PathBuf),
    /// Open directory or storage that the embedding program passed.
    Given(Served),
}

#[derive(Debug, Default)]
struct Slot {
    /// Held while a thread works on the path. At most one thread waits for a file system that does
    /// not answer.
    turn: Arc<tokio::sync::Mutex<()>>,
    found: Mutex<Option<Arc<PinnedPath>>>,
}

impl Roots {
    /// Opens the daemon's own directory.
    pub(super) fn open(own: Own, home: Option<Home>, logins: Logins) -> Result<Self, FileError> {
        let roots = Self {
            home,
            logins,
            own,
            pinned: Mutex::default(),
            is_forgotten: AtomicBool::new(false),
        };
        let path = roots.own_path();
        if let Served::Files(root) = roots.find(path.as_deref(), &Peers::default())? {
            // Fails at the start rather than in each session.
            let shown = path.unwrap_or_else(|| "the directory descriptor".into());
            drop(root.open_directory(None).map_err(failed(&shown))?);
        }
        Ok(roots)
    }

    /// Returns the path of the daemon's own directory; `None` if the program passed what to serve.
    pub(super) fn own_path(&self) -> Option<PathBuf> {
        match &self.own {
            Own::Path(path) => Some(path.clone()),
            Own::Given(_) => None,
        }
    }

    /// Returns the absolute path of what is served to a peer with this `root=`, as configured.
    /// `None` if it was passed as a descriptor or is no directory, or if its path is too long for
    /// the greeting.
    pub(super) fn shown_path(&self, root: Option<&Path>) -> Option<Vec<u8>> {
        let path = root.map(Path::to_owned).or_else(|| self.own_path())?;
        let path = path::absolute(path).ok()?.into_os_string().into_vec();
        (path.len() <= MAX_ROOT).then_some(path)
    }

    /// Returns what the daemon serves to a peer with this `root=`.
    ///
    /// # Errors
    ///
    /// The directory cannot be opened, is not the one that was opened first, contains the daemon's
    /// key, or does not answer within [`PATIENCE`].
    pub(super) async fn served(
        self: &Arc<Self>,
        root: Option<&Path>,
        peers: &Arc<Peers>,
    ) -> Result<Served, FileError> {
        let Some(path) = root.map(Path::to_owned).or_else(|| self.own_path()) else {
            return self.find(None, peers);
        };
        let turn = self.slot(&path).turn.clone();
        let (roots, peers, has_root) = (self.clone(), peers.clone(), root.is_some());
        let shown = path.clone();
        let found = async move {
            let turn = turn.lock_owned().await;
            let found = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                if has_root {
                    roots.check_directories()?;
                }
                roots.find(Some(&path), &peers)
            });
            found.await
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => Err(failed(&shown)(io::Error::other(error))),
            Err(_) => Err(failed(&shown)(io::ErrorKind::TimedOut.into())),
        }
    }

    /// With a storage of the program, no peer gets a directory of the machine.
    fn check_directories(&self) -> Result<(), FileError> {
        match &self.own {
            Own::Given(served) => served.root("serve", &"a root=").map(drop),
            Own::Path(_) => Ok(()),
        }
    }

    /// Opens the directories of a list of peers that are not open yet, and forgets those that it no
    /// longer names.
    pub(super) fn on_peers(self: &Arc<Self>, peers: &Arc<Peers>) {
        let own = self.own_path();
        self.pinned.lock().retain(|path, _| {
            own.as_ref() == Some(path) || peers.iter().any(|peer| root_of(peer) == Some(path))
        });
        for path in peers.iter().filter_map(root_of) {
            let (roots, path, peers) = (self.clone(), path.to_owned(), peers.clone());
            tokio::spawn(async move {
                if let Err(error) = roots.served(Some(&path), &peers).await {
                    tracing::warn!(error = %logged_error(&error), "root= of the list of peers");
                }
            });
        }
    }

    /// Resolves all paths again at their next use.
    pub(super) fn forget(&self) {
        self.pinned.lock().clear();
        self.is_forgotten.store(true, Ordering::Release);
    }

    /// Returns true once after [`forget`](Self::forget).
    pub(super) fn take_forgotten(&self) -> bool {
        self.is_forgotten.swap(false, Ordering::AcqRel)
    }

    fn slot(&self, path: &Path) -> Arc<Slot> {
        self.pinned
            .lock()
            .entry(path.to_owned())
            .or_default()
            .clone()
    }

    /// Like [`served`](Self::served). Blocks.
    pub(super) fn find(&self, path: Option<&Path>, peers: &Peers) -> Result<Served, FileError> {
        let Some(path) = path else {
            return match &self.own {
                Own::Given(Served::Files(root)) => {
                    let shown = Path::new("the directory descriptor");
                    self.checked((**root).clone(), shown)
                }
                Own::Given(served) => Ok(served.clone()),
                Own::Path(path) => self.find(Some(path), peers),
            };
        };
        let slot = self.slot(path);
        let known = slot.found.lock().clone();
        let found = match known {
            Some(found) => found,
            None => {
                let found = PinnedPath::find(path, |prefix, inode| {
                    self.is_served(path, prefix, inode, peers)
                });
                let found = Arc::new(found.map_err(failed(path))?);
                self.warn_of_changers(path, &found, peers);
                *slot.found.lock() = Some(found.clone());
                found
            }
        };
        self.checked(found.open(path).map_err(failed(path))?, path)
    }

    fn checked(&self, root: Root, shown: &Path) -> Result<Served, FileError> {
        let root = root.outside_of(self.home.as_ref(), shown)?;
        Ok(Served::Files(Arc::new(root.barring(&self.logins))))
    }

    /// Returns true if peers are served the directory `prefix` on the way to `path`.
    fn is_served(&self, path: &Path, prefix: &Path, inode: Inode, peers: &Peers) -> bool {
        let is_root = |peer: &Peer| root_of(peer).is_some_and(|root| root == prefix);
        let is_held = || {
            let pinned = self.pinned.lock();
            pinned
                .iter()
                .filter(|(other, _)| *other != path)
                .filter_map(|(_, slot)| slot.found.lock().as_ref()?.inode())
                .any(|held| held == inode)
        };
        peers.iter().any(is_root) || is_held() || self.is_given(inode)
    }

    fn is_given(&self, inode: Inode) -> bool {
        matches!(&self.own, Own::Given(Served::Files(root)) if root.inode().is_ok_and(|given| given == inode))
    }

    /// Logs a warning if other peers may rename or replace the directory.
    fn warn_of_changers(&self, path: &Path, found: &PinnedPath, peers: &Peers) {
        let may_change = |peer: &&Peer| {
            peer.options.access == Access::Full
                && root_of(peer).is_none_or(|root| root != path && path.starts_with(root))
        };
        if found.is_within_served()
            && let Some(other) = peers.iter().find(may_change)
        {
            tracing::warn!(
                root = %logged(path.display()),
                peer = %other.key,
                "root= lies in a directory that another peer may change: that peer can rename or replace it"
            );
        }
    }
}

fn root_of(peer: &Peer) -> Option<&PathBuf> {
    peer.options.root.as_ref()
}

fn failed(path: &Path) -> impl Fn(io::Error) -> FileError {
    move |cause| FileError::new("open directory", path.display(), cause).with_code(FailCode::Io)
}

/// Maximum wait for a file system to open a directory. A client waits 5 s for the greeting.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_does_not_answer_delays_only_its_own_peers() {
        let base = tempfile::tempdir().unwrap();
        let stalled = base.path().join("stalled");
        std::fs::create_dir(&stalled).unwrap();
        let roots =
            Roots::open(Own::Path(base.path().to_owned()), None, Logins::default()).unwrap();
        let (roots, peers) = (Arc::new(roots), Arc::default());
        // A thread that waits for the file system.
        let _waiting = roots.slot(&stalled).turn.clone().lock_owned().await;
        let begun = tokio::time::Instant::now();
        assert!(roots.served(None, &peers).await.is_ok());
        assert!(begun.elapsed() < PATIENCE);
        let error = roots.served(Some(&stalled), &peers).await.unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), PATIENCE);
    }
}

//! Directories of a tree at the receiver. This is the only module that opens them.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    hash::{BuildHasher, RandomState},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use nicstripe_proto::name::{MAX_COMPONENTS, MAX_NAME};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fstat};

use crate::file::{
    Barred, Logins, creation_mask, has_exact_names, inode_of, may_pass_acl_on, most_directories,
    open_confined, umask,
};

/// Root directory of a received tree. No name can lead out of it.
///
/// The user's path to it may contain symbolic links. Beneath it none is followed, regardless of its
/// owner.
#[derive(Debug)]
pub(super) struct RootDir {
    /// Open root directory; `None` if it is missing in a dry run.
    dir: Option<Arc<OwnedFd>>,
    /// Random hash keys, so that a peer cannot predict [`TreeDir::key`].
    seed: RandomState,
    /// Open directories, oldest first; `None` after `close_all`.
    open: Mutex<Option<VecDeque<Arc<TreeDir>>>>,
    umask: u32,
    logins: Logins,
}

impl RootDir {
    /// Wraps a root directory that was opened for reading.
    pub(super) fn new(dir: Option<OwnedFd>, logins: &Logins) -> Arc<Self> {
        Arc::new(Self {
            logins: logins.clone(),
            dir: dir.map(Arc::new),
            seed: RandomState::new(),
            open: Mutex::new(Some(VecDeque::new())),
            umask: umask(),
        })
    }

    pub(super) fn dir(&self) -> io::Result<Arc<OwnedFd>> {
        self.dir
            .clone()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn open_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let opened = open_confined(&*self.dir()?, path, OFlags::DIRECTORY | OFlags::RDONLY);
        opened.map_err(|error| match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::XDEV => Barred::Link.into(),
            error => error.into(),
        })
    }

    /// Adds an open directory to the queue, and closes the oldest one if more than [`MOST_OPEN`]
    /// are open.
    fn keep_open(&self, dir: &Arc<TreeDir>) {
        let mut guard = self.open.lock();
        let Some(open) = &mut *guard else { return };
        open.push_back(dir.clone());
        let oldest = if open.len() > most_directories(MOST_OPEN) {
            open.pop_front()
        } else {
            None
        };
        drop(guard);
        // Not under the queue's lock: lock order is a directory, then the queue.
        if let Some(oldest) = oldest {
            oldest.state.lock().dir = None;
        }
    }

    /// Closes all directories and lets no new ones stay open, which breaks the reference cycle with
    /// them.
    pub(super) fn close_all(&self) {
        let open = self.open.lock().take();
        open.iter()
            .flatten()
            .for_each(|dir| dir.state.lock().dir = None);
    }
}

/// Directory of a received tree, opened on demand.
#[derive(Debug)]
pub(super) struct TreeDir {
    ground: Arc<RootDir>,
    parent: Option<Arc<TreeDir>>,
    /// Local name of the directory in its parent; empty for the root directory.
    name: OsString,
    /// Name of the directory at the sender; that of a top-level entry may differ locally.
    announced: Option<Vec<u8>>,
    depth: usize,
    /// Length of the directory's path with a trailing slash, in bytes.
    len: usize,
    pub(super) key: u64,
    /// True if the directory is a source itself, false if it lies in one.
    is_source: bool,
    state: Mutex<DirState>,
}

#[derive(Debug, Default)]
struct DirState {
    dir: Option<Arc<OwnedFd>>,
    /// Device and inode number, known once the directory was opened. Detects that another directory
    /// has taken the name.
    identity: Option<(u64, u64)>,
    /// Result of [`TreeDir::creation_mask`], once known.
    mask: Option<u32>,
    /// Result of [`has_exact_names`], once known.
    exact: Option<bool>,
    /// Result of [`may_pass_acl_on`], once known.
    passes_acl_on: Option<bool>,
    /// True if this copy has created the directory.
    is_new: bool,
}

impl TreeDir {
    /// Creates the state of the root directory. `is_source` is true if the contents of a source are
    /// copied into it.
    pub(super) fn ground(ground: &Arc<RootDir>, is_source: bool) -> Arc<Self> {
        Arc::new(Self {
            ground: ground.clone(),
            parent: None,
            name: OsString::new(),
            announced: None,
            depth: 0,
            len: 0,
            key: ground.seed.hash_one(0u64),
            is_source,
            state: Mutex::default(),
        })
    }

    /// Returns the subdirectory `name`; `None` if its path exceeds the limits of a
    /// [`nicstripe_proto::Name`].
    pub(super) fn child(
        self: &Arc<Self>,
        name: &OsStr,
        announced: Option<&[u8]>,
        is_source: bool,
    ) -> Option<Arc<Self>> {
        let (depth, len) = (self.depth + 1, self.len + name.len() + 1);
        let child = || Self {
            ground: self.ground.clone(),
            parent: Some(self.clone()),
            name: name.to_owned(),
            announced: announced.map(<[u8]>::to_vec),
            depth,
            len,
            key: self.key_of(name),
            is_source,
            state: Mutex::default(),
        };
        self.has_room_for(name).then(|| Arc::new(child()))
    }

    /// Returns true if the path of a name in this directory, with one more component, fits into a
    /// [`nicstripe_proto::Name`].
    pub(super) fn has_room_for(&self, name: &OsStr) -> bool {
        self.depth + 1 < MAX_COMPONENTS && self.len + name.len() + 1 < MAX_NAME
    }

    pub(super) fn path(&self) -> PathBuf {
        let mut path = self
            .parent
            .as_ref()
            .map(|parent| parent.path())
            .unwrap_or_default();
        if !self.name.is_empty() {
            path.push(&self.name);
        }
        path
    }

    /// Returns the components of the directory's path at the sender, outermost first.
    pub(super) fn announced(&self) -> Vec<&[u8]> {
        let mut announced = self
            .parent
            .as_ref()
            .map(|parent| parent.announced())
            .unwrap_or_default();
        announced.extend(self.announced.as_deref());
        announced
    }

    /// Returns the directory's path relative to the source, for filters.
    pub(super) fn path_beneath_source(&self) -> PathBuf {
        match &self.parent {
            Some(parent) if !self.is_source => parent.path_beneath_source().join(&self.name),
            _ => PathBuf::new(),
        }
    }

    /// Returns the device and inode number of the source in which the directory lies, or which it
    /// is, once that was opened; `None` in the target of several sources.
    pub(super) fn source_inode(&self) -> Option<(u64, u64)> {
        match &self.parent {
            _ if self.is_source => self.state.lock().identity,
            parent => parent.as_ref()?.source_inode(),
        }
    }

    /// Returns the key of a name in this directory, see [`TreeDir::key`].
    pub(super) fn key_of(&self, name: &OsStr) -> u64 {
        self.ground.seed.hash_one((self.key, name))
    }

    /// Returns the open directory, opening it if necessary. Fails if the path now leads to another
    /// directory.
    pub(super) fn open(self: &Arc<Self>) -> io::Result<Arc<OwnedFd>> {
        let mut state = self.state.lock();
        if let Some(dir) = &state.dir {
            return Ok(dir.clone());
        }
        let dir = match self.parent {
            Some(_) => Arc::new(self.ground.open_directory(&self.path())?),
            None => self.ground.dir()?,
        };
        let stat = fstat(&*dir)?;
        let identity = inode_of(&stat);
        if *state.identity.get_or_insert(identity) != identity {
            return Err(io::Error::other("replaced by another directory meanwhile"));
        }
        state.dir = Some(dir.clone());
        drop(state);
        self.ground.keep_open(self);
        Ok(dir)
    }

    /// Checks that an entry of the open directory is no log-in file of an account.
    pub(super) fn check_login(&self, dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
        self.ground.logins.check(dir, name)
    }

    /// Returns the permission bits that new entries in the directory do not get.
    pub(super) fn creation_mask(self: &Arc<Self>) -> u32 {
        let known = self.state.lock().mask;
        known.unwrap_or_else(|| {
            // A directory that cannot be opened gets no entries.
            let umask = self.ground.umask;
            let mask = self.open().map_or(umask, |dir| creation_mask(&*dir, umask));
            self.state.lock().mask = Some(mask);
            mask
        })
    }

    /// Returns true if no file in the directory has another name than the listed ones, see
    /// [`has_exact_names`].
    pub(super) fn has_exact_names(&self, dir: &OwnedFd) -> bool {
        let known = self.state.lock().exact;
        known.unwrap_or_else(|| *self.state.lock().exact.insert(has_exact_names(dir)))
    }

    /// Returns true if new files in the directory may inherit an ACL from it.
    pub(super) fn passes_acl_on(self: &Arc<Self>) -> bool {
        let known = self.state.lock().passes_acl_on;
        known.unwrap_or_else(|| {
            let passes = self.open().map_or(true, |dir| may_pass_acl_on(&*dir));
            *self.state.lock().passes_acl_on.insert(passes)
        })
    }

    /// Records that this copy has created the directory.
    pub(super) fn set_new(&self) {
        self.state.lock().is_new = true;
    }

    /// Returns true if this copy has created the directory, so that it has only entries of this
    /// source.
    pub(super) fn is_new(&self) -> bool {
        self.state.lock().is_new
    }

    /// Opens a directory on the same file system, to sync that file system.
    ///
    /// Prefers the root directory's descriptor, opened before any write. The kernel reports a write
    /// error to descriptors opened before it, but possibly not to later ones.
    pub(super) fn open_to_sync(self: &Arc<Self>) -> io::Result<Arc<OwnedFd>> {
        let ground = self.ground.dir()?;
        match self.device() {
            Some(device) if fstat(&*ground)?.st_dev != device => self.open(),
            _ => Ok(ground),
        }
    }

    /// Returns the device number of the directory's file system, once it was opened.
    pub(super) fn device(&self) -> Option<u64> {
        self.state.lock().identity.map(|(device, _)| device)
    }
}

/// Maximum number of directories kept open, given 2048 descriptors or more.
const MOST_OPEN: usize = 128;

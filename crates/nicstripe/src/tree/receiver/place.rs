//! Directories at the receiver, and the only way into them.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    hash::{BuildHasher, RandomState},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nicstripe_proto::name::{MAX_COMPONENTS, MAX_NAME};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};

use crate::file::{Barred, most_directories};

/// The directory that everything goes into; no name leads out of it.
///
/// The user's path to it may have symbolic links; beneath it none is followed, whoever made it.
#[derive(Debug)]
pub(super) struct Ground {
    /// `None` where it is missing and, in a dry run, stays so.
    dir: Option<Arc<OwnedFd>>,
    /// Makes the keys of places unpredictable.
    seed: RandomState,
    /// Places whose directories are open, oldest first; `None` when no more are kept.
    open: Mutex<Option<VecDeque<Arc<Place>>>>,
}

impl Ground {
    /// Takes a directory that was opened for reading.
    pub(super) fn new(dir: Option<OwnedFd>) -> Arc<Self> {
        Arc::new(Self { dir: dir.map(Arc::new), seed: RandomState::new(), open: Mutex::new(Some(VecDeque::new())) })
    }

    /// The directory itself.
    pub(super) fn dir(&self) -> io::Result<Arc<OwnedFd>> {
        self.dir.clone().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens a directory beneath it.
    pub(super) fn open_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = self.dir()?;
        openat2(&dir, path, flags, Mode::empty(), CONFINED).map_err(|error| match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::XDEV => Barred::Link.into(),
            error => error.into(),
        })
    }

    /// Remembers that a place's directory is open, and closes the oldest beyond [`MOST_OPEN`].
    fn keep_open(&self, place: &Arc<Place>) {
        let mut kept = lock(&self.open);
        let Some(open) = &mut *kept else { return };
        open.push_back(place.clone());
        let oldest = if open.len() > most_directories(MOST_OPEN) { open.pop_front() } else { None };
        drop(kept);
        // Not under the queue's lock: whoever opens a place holds that place's lock first.
        if let Some(oldest) = oldest {
            lock(&oldest.state).dir = None;
        }
    }

    /// Lets go of all directories, and keeps no more: what is kept refers to what keeps it.
    pub(super) fn close_all(&self) {
        let open = lock(&self.open).take();
        open.iter().flatten().for_each(|place| lock(&place.state).dir = None);
    }
}

/// A directory of the tree.
#[derive(Debug)]
pub(super) struct Place {
    ground: Arc<Ground>,
    parent: Option<Arc<Place>>,
    /// Its name in its parent; empty for the ground itself.
    name: OsString,
    /// How the sender calls it; the name of a top-level entry may be another here.
    told: Option<Vec<u8>>,
    depth: usize,
    /// Bytes of its path and of a slash behind it.
    len: usize,
    key: u64,
    /// Whether it is what the sender was asked for, not something in it.
    is_source: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    dir: Option<Arc<OwnedFd>>,
    /// Device and inode, once it was open: another directory of its name is not taken for it.
    identity: Option<(u64, u64)>,
}

impl Place {
    /// The ground itself; `is_source` where the content of what the sender was asked for goes into it.
    pub(super) fn ground(ground: &Arc<Ground>, is_source: bool) -> Arc<Self> {
        Arc::new(Self {
            ground: ground.clone(),
            parent: None,
            name: OsString::new(),
            told: None,
            depth: 0,
            len: 0,
            key: ground.seed.hash_one(0u64),
            is_source,
            state: Mutex::default(),
        })
    }

    /// A directory in this one; `None` where its path would exceed what a [`nicstripe_proto::Name`] may have.
    pub(super) fn child(self: &Arc<Self>, name: &OsStr, told: Option<&[u8]>, is_source: bool) -> Option<Arc<Self>> {
        let (depth, len) = (self.depth + 1, self.len + name.len() + 1);
        let place = || Self {
            ground: self.ground.clone(),
            parent: Some(self.clone()),
            name: name.to_owned(),
            told: told.map(<[u8]>::to_vec),
            depth,
            len,
            key: self.key_of(name),
            is_source,
            state: Mutex::default(),
        };
        self.has_room_for(name).then(|| Arc::new(place()))
    }

    /// Whether a name in it, and one more in that, is within what a [`nicstripe_proto::Name`] may have.
    pub(super) fn has_room_for(&self, name: &OsStr) -> bool {
        self.depth + 1 < MAX_COMPONENTS && self.len + name.len() + 1 < MAX_NAME
    }

    /// Its path beneath the ground.
    pub(super) fn path(&self) -> PathBuf {
        let mut path = self.parent.as_ref().map(|parent| parent.path()).unwrap_or_default();
        if !self.name.is_empty() {
            path.push(&self.name);
        }
        path
    }

    /// The components that the sender calls it by, outermost first.
    pub(super) fn told(&self) -> Vec<&[u8]> {
        let mut told = self.parent.as_ref().map(|parent| parent.told()).unwrap_or_default();
        told.extend(self.told.as_deref());
        told
    }

    /// Its path beneath the source, for filters.
    pub(super) fn path_beneath_source(&self) -> PathBuf {
        match &self.parent {
            Some(parent) if !self.is_source => parent.path_beneath_source().join(&self.name),
            _ => PathBuf::new(),
        }
    }

    /// A number for its path, the same for every place of that path in one process run, and secret from the peer.
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    /// A number for the path of a name in it, as [`Place::key`].
    pub(super) fn key_of(&self, name: &OsStr) -> u64 {
        self.ground.seed.hash_one((self.key, name))
    }

    /// Opens it, unless it is open. Fails when another directory took its place.
    pub(super) fn open(self: &Arc<Self>) -> io::Result<Arc<OwnedFd>> {
        let mut state = lock(&self.state);
        if let Some(dir) = &state.dir {
            return Ok(dir.clone());
        }
        let dir = match self.parent {
            Some(_) => Arc::new(self.ground.open_directory(&self.path())?),
            None => self.ground.dir()?,
        };
        let stat = fstat(&*dir)?;
        let identity = (stat.st_dev, stat.st_ino);
        if *state.identity.get_or_insert(identity) != identity {
            return Err(io::Error::other("another directory took its place meanwhile"));
        }
        state.dir = Some(dir.clone());
        drop(state);
        self.ground.keep_open(self);
        Ok(dir)
    }

    /// Opens a directory of its file system to sync that: one that was open before anything was written, where there is one. The kernel tells
    /// a failure to those who had the file system open before, and perhaps to nobody who comes later.
    pub(super) fn open_to_sync(self: &Arc<Self>) -> io::Result<Arc<OwnedFd>> {
        let ground = self.ground.dir()?;
        match self.device() {
            Some(device) if fstat(&*ground)?.st_dev != device => self.open(),
            _ => Ok(ground),
        }
    }

    /// The number of its file system, once it was open.
    pub(super) fn device(&self) -> Option<u64> {
        lock(&self.state).identity.map(|(device, _)| device)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No way out, and no symbolic link on the way.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Most directories that are kept open, where the process may have 2048 descriptors or more.
const MOST_OPEN: usize = 128;

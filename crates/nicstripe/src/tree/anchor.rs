//! Where a source begins, and how what is beneath it is opened.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use nicstripe_proto::{Name, NameError, name::escaped};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2};

use crate::file::{Root, is_hidden_name};

/// The directory that a source is in, or that it is, where its content alone is meant.
///
/// All beneath is opened by its path from here, by the kernel and without following any symbolic link (`openat2`), so that no descriptor has
/// to be kept for what is to be opened later.
#[derive(Debug)]
pub(super) struct Anchor {
    base: Base,
    /// Whether the source is a symbolic link that is followed.
    follows: bool,
    /// Device and inode.
    identity: (u64, u64),
    dir: Mutex<Option<Arc<OwnedFd>>>,
}

/// How an [`Anchor`] is opened.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Base {
    /// As our user typed it.
    Path(PathBuf),
    /// Beneath a daemon's root; `None` is the root itself.
    Beneath(BeneathRoot, Option<Name>),
}

/// A daemon's root, the same only as itself.
#[derive(Debug, Clone)]
pub(super) struct BeneathRoot(pub(super) Arc<Root>);

impl PartialEq for BeneathRoot {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Base {
    fn open(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Path(path) => Ok(openat(CWD, path, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?),
            Self::Beneath(root, name) => root.0.locate_directory(name.as_ref()),
        }
    }

    /// Whether a name in it is there for nobody who asks a daemon.
    pub(super) fn hides(&self, leaf: &[u8]) -> bool {
        matches!(self, Self::Beneath(..)) && is_hidden_name(leaf)
    }

    /// For people, escaped.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Path(path) => escaped(path.as_os_str().as_bytes()),
            Self::Beneath(_, name) => name.as_ref().map_or_else(|| ".".into(), Name::to_string),
        }
    }
}

impl Anchor {
    /// Opens the directory.
    pub(super) fn open(base: Base, follows: bool) -> io::Result<Self> {
        let dir = base.open()?;
        let stat = fstat(&dir)?;
        Ok(Self { base, follows, identity: (stat.st_dev, stat.st_ino), dir: Mutex::new(Some(Arc::new(dir))) })
    }

    pub(super) fn base(&self) -> &Base {
        &self.base
    }

    pub(super) fn follows(&self) -> bool {
        self.follows
    }

    /// The directory, opened again if it was released.
    ///
    /// # Errors
    ///
    /// Those of the system, and another directory under that path.
    pub(super) fn dir(&self) -> io::Result<Arc<OwnedFd>> {
        if let Some(dir) = &*self.held() {
            return Ok(dir.clone());
        }
        let dir = self.base.open()?;
        let stat = fstat(&dir)?;
        if (stat.st_dev, stat.st_ino) != self.identity {
            return Err(rustix::io::Errno::NOENT.into());
        }
        Ok(Arc::new(dir))
    }

    /// Keeps no descriptor from here on.
    pub(super) fn release(&self) {
        self.held().take();
    }

    /// Opens what is at `path` from here.
    pub(super) fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let dir = self.dir()?;
        match (&self.base, self.follows) {
            (Base::Path(_), true) => Ok(openat(&dir, path, flags, Mode::empty())?),
            (Base::Beneath(root, name), true) => {
                let above = name.iter().flat_map(Name::components);
                let name = Name::new(above.chain([path])).map_err(io::Error::other)?;
                root.0.open_file(&name, flags)
            }
            (_, false) => {
                let path = if path.is_empty() { b"." } else { path };
                Ok(openat2(&dir, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?)
            }
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.dir.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory, by its path from an anchor; empty is the anchor's own.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) anchor: Arc<Anchor>,
    pub(super) path: Vec<u8>,
}

/// Where something is: a directory that is shared by all in it, and the name in it, empty for the directory itself.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) directory: Arc<Directory>,
    pub(super) leaf: Box<[u8]>,
}

impl Location {
    /// What an anchor stands for itself.
    pub(super) fn of_anchor(anchor: Arc<Anchor>) -> Self {
        Self::beneath_anchor(anchor, &[])
    }

    /// Something in an anchor's directory.
    pub(super) fn beneath_anchor(anchor: Arc<Anchor>, leaf: &[u8]) -> Self {
        Self { directory: Arc::new(Directory { anchor, path: Vec::new() }), leaf: leaf.into() }
    }

    /// The path from the anchor, which is the place beneath the target too.
    pub(super) fn path(&self) -> Vec<u8> {
        match (&self.directory.path[..], &self.leaf[..]) {
            (path, []) => path.to_vec(),
            ([], leaf) => leaf.to_vec(),
            (path, leaf) => [path, leaf].join(&b'/'),
        }
    }

    /// The place beneath the target; `None` for the target itself.
    pub(super) fn name(&self) -> Result<Option<Name>, NameError> {
        let path = self.path();
        if path.is_empty() { Ok(None) } else { Name::parse(&path).map(Some) }
    }

    /// For people, escaped.
    pub(super) fn label(&self) -> String {
        let path = self.path();
        if path.is_empty() { self.directory.anchor.base.label() } else { escaped(&path) }
    }

    /// A source for people, escaped.
    pub(super) fn label_of(base: &Base, leaf: &[u8]) -> String {
        match (base.label(), escaped(leaf)) {
            (base, leaf) if leaf.is_empty() => base,
            (base, leaf) if base == "." => leaf,
            (base, leaf) => format!("{}/{leaf}", base.trim_end_matches('/')),
        }
    }

    /// This place as a directory of others.
    pub(super) fn as_directory(&self) -> Arc<Directory> {
        Arc::new(Directory { anchor: self.directory.anchor.clone(), path: self.path() })
    }

    /// Opens it.
    pub(super) fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        self.directory.anchor.open_at(&self.path(), flags)
    }
}

/// Bytes as a path.
pub(super) fn path_of_bytes(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

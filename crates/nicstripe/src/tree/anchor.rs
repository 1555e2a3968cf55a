//! Base directories of the sources of a tree copy; files are opened beneath them.

use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use nicstripe_proto::{Name, NameError, name::escaped};
use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use crate::{
    file::{Root, inode_of, is_hidden_in, is_hidden_name, open_confined},
    text::shown_path,
};

/// Parent directory of a source, or the source itself if only its contents are copied.
///
/// The kernel opens all files beneath it by relative path without following symbolic links
/// (`openat2`). Files to be opened later thus need no descriptor.
#[derive(Debug)]
pub(super) struct Anchor {
    pub(super) base: Base,
    /// True if the source itself, as the user named it, may be a symbolic link to follow.
    pub(super) follows: bool,
    identity: (u64, u64),
    dir: Mutex<Option<Arc<OwnedFd>>>,
}

/// Location of an [`Anchor`], used to open it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Base {
    /// Path as the local user typed it.
    Path(PathBuf),
    /// Directory beneath a daemon's root; `None` is the root itself.
    Beneath(BeneathRoot, Option<Name>),
}

/// Root directory of a daemon, compared by pointer.
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
            Self::Path(path) => Ok(openat(
                CWD,
                path,
                OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
            )?),
            Self::Beneath(root, name) => root.0.locate_directory(name.as_ref()),
        }
    }

    /// Returns true for the name of a part file or journal at a daemon, which clients must not read.
    /// `is_listed` is true for a name that was read from the directory, and not given by the client.
    pub(super) fn hides(&self, dir: &OwnedFd, leaf: &[u8], is_listed: bool) -> bool {
        matches!(self, Self::Beneath(..))
            && match is_listed {
                true => is_hidden_name(leaf),
                false => is_hidden_in(dir, OsStr::from_bytes(leaf)).unwrap_or(true),
            }
    }

    pub(super) fn label(&self) -> String {
        match self {
            Self::Path(path) => escaped(path.as_os_str().as_bytes()),
            Self::Beneath(_, name) => shown_path(name.as_ref()),
        }
    }
}

impl Anchor {
    pub(super) fn open(base: Base, follows: bool) -> io::Result<Self> {
        let dir = base.open()?;
        let stat = fstat(&dir)?;
        Ok(Self {
            base,
            follows,
            identity: inode_of(&stat),
            dir: Mutex::new(Some(Arc::new(dir))),
        })
    }

    /// Returns the open directory, reopening it if it was released.
    ///
    /// # Errors
    ///
    /// I/O errors, and `ENOENT` if the path now leads to another directory.
    pub(super) fn dir(&self) -> io::Result<Arc<OwnedFd>> {
        if let Some(dir) = &*self.dir.lock() {
            return Ok(dir.clone());
        }
        let dir = self.base.open()?;
        let stat = fstat(&dir)?;
        if inode_of(&stat) != self.identity {
            return Err(rustix::io::Errno::NOENT.into());
        }
        Ok(Arc::new(dir))
    }

    /// Closes the directory's descriptor; later calls of `dir` reopen it.
    pub(super) fn release(&self) {
        self.dir.lock().take();
    }

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
            (_, false) => Ok(open_confined(&dir, path_of_bytes(path), flags)?),
        }
    }
}

/// Directory of a source, as a path relative to an anchor; an empty path is the anchor itself.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) anchor: Arc<Anchor>,
    pub(super) path: Vec<u8>,
}

/// Location of a file in a source: a shared directory and the file's name in that directory. An
/// empty name stands for the directory itself.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) directory: Arc<Directory>,
    pub(super) leaf: Box<[u8]>,
}

impl Location {
    /// Returns the location of `leaf` in the anchor's directory; of that directory if it is empty.
    pub(super) fn beneath_anchor(anchor: Arc<Anchor>, leaf: &[u8]) -> Self {
        Self {
            directory: Arc::new(Directory {
                anchor,
                path: Vec::new(),
            }),
            leaf: leaf.into(),
        }
    }

    /// Returns the path relative to the anchor, which is also the path relative to the target.
    pub(super) fn path(&self) -> Vec<u8> {
        match (&self.directory.path[..], &self.leaf[..]) {
            (path, []) => path.to_vec(),
            ([], leaf) => leaf.to_vec(),
            (path, leaf) => [path, leaf].join(&b'/'),
        }
    }

    /// Returns the path relative to the target as a name; `None` for the target itself.
    pub(super) fn name(&self) -> Result<Option<Name>, NameError> {
        let path = self.path();
        if path.is_empty() {
            Ok(None)
        } else {
            Name::parse(&path).map(Some)
        }
    }

    pub(super) fn label(&self) -> String {
        let path = self.path();
        if path.is_empty() {
            self.directory.anchor.base.label()
        } else {
            escaped(&path)
        }
    }

    pub(super) fn label_of(base: &Base, leaf: &[u8]) -> String {
        match (base.label(), escaped(leaf)) {
            (base, leaf) if leaf.is_empty() => base,
            (base, leaf) if base == "." => leaf,
            (base, leaf) => format!("{}/{leaf}", base.trim_end_matches('/')),
        }
    }

    /// Returns this location as a directory that other locations can share.
    pub(super) fn as_directory(&self) -> Arc<Directory> {
        Arc::new(Directory {
            anchor: self.directory.anchor.clone(),
            path: self.path(),
        })
    }

    pub(super) fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        self.directory.anchor.open_at(&self.path(), flags)
    }
}

pub(super) fn path_of_bytes(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

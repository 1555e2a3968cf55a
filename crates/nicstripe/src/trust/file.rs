//! Access to the identity, peers and address files: atomic writes, syncs, and checks that other
//! users can neither read nor change them.

use std::borrow::Cow;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::{fs::fsync, io::Errno};

use super::{private_group::is_private_group, random::random_bytes};

/// Failure to read or write a file of this installation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A system call on the file failed.
    #[error("cannot {action} {path:?}")]
    Io {
        /// Verb that names the failed operation, such as "open".
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The path is not a regular file but a folder, a pipe or a device.
    #[error("{path:?} is not a regular file")]
    NotRegular {
        /// Path of the file.
        path: PathBuf,
    },
    /// The mode of the file or its folder lets other users read a secret or change a trusted file.
    #[error("{path:?} has mode {mode:04o}, others could {danger} it: expected {expected}")]
    Permissions {
        /// Path of the file or its folder.
        path: PathBuf,
        /// Permission bits of the file or folder.
        mode: u32,
        /// Action that the mode allows other users, such as "read or change".
        danger: &'static str,
        /// Allowed permission bits, and the command that sets them.
        expected: &'static str,
    },
    /// The owner of a trusted file or its folder is neither this user nor root.
    #[error(
        "{path:?} belongs to user {owner}, who could change it: expected this user or root (chown)"
    )]
    Owner {
        /// Path of the file or its folder.
        path: PathBuf,
        /// Numeric user ID of the owner.
        owner: u32,
    },
    /// The file exceeds the size limit for files of its kind.
    #[error("{path:?} exceeds the limit of {limit} bytes")]
    TooLong {
        /// Path of the file.
        path: PathBuf,
        /// Size limit of the file in bytes.
        limit: usize,
    },
}

impl FileError {
    /// Returns true if the file does not exist.
    pub fn is_missing(&self) -> bool {
        self.io()
            .is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the error of the operating system, if a system call failed.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Returns true if a file was not created because its name already exists.
    pub(super) fn is_taken(&self) -> bool {
        self.io()
            .is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// Reads a file of at most `limit` bytes that only its owner may read or write.
pub(super) fn read_private(path: &Path, limit: usize) -> Result<Vec<u8>, FileError> {
    read(path, limit, &SECRET)
}

/// Reads a file of at most `limit` bytes that only its owner may write.
///
/// A group may write if it is the owner's private one: the owner's primary group, with the owner's
/// name and no other member.
///
/// # Errors
///
/// The file cannot be read, is not a regular file, or is too long. Other users may write it, or
/// replace it in its folder. Its owner is neither this user nor root, unless this process runs as
/// root.
pub fn read_guarded(path: &Path, limit: usize) -> Result<Vec<u8>, FileError> {
    read(path, limit, &TRUSTED)
}

/// Creates a file of mode 0600 that must not exist, atomically and durably. Creates missing folders
/// with mode 0700.
pub(super) fn create_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = make_folder(path)?;
    let temporary = Temporary::write(&folder, bytes)?;
    // A hard link never replaces an existing file, on every Unix.
    fs::hard_link(&temporary.path, path).map_err(failed("create", path))?;
    sync(&folder)
}

/// Creates or replaces a file of mode 0600. Either the old or the new content is complete at any
/// time, also after a crash. If `path` is a symbolic link, replaces its target, which must exist.
///
/// The caller has read the file by [`read_guarded`], which checks the folder of the target too.
pub(super) fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let path = &*resolved(path)?;
    let folder = make_folder(path)?;
    let temporary = Temporary::write(&folder, bytes)?;
    fs::rename(&temporary.path, path).map_err(failed("replace", path))?;
    sync(&folder)
}

/// Takes an exclusive lock on the folder of `path` until the returned file is closed. Waits for
/// other holders, and creates the folder if it is missing. If `path` is a symbolic link, locks the
/// folder of its target.
pub(crate) fn lock_folder_of(path: &Path) -> Result<File, FileError> {
    let folder = make_folder(&resolved(path)?)?;
    let open = File::open(&folder).map_err(failed("open", &folder))?;
    rustix::fs::flock(&open, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| failed("lock", &folder)(error.into()))?;
    Ok(open)
}

/// Permission bits that a file or folder must not have, and their description in errors.
struct Danger {
    bits: u32,
    what: &'static str,
    expected: &'static str,
}

const SECRET: Danger = Danger {
    bits: 0o077,
    what: "read or change",
    expected: "0600 (chmod 600)",
};
const TRUSTED: Danger = Danger {
    bits: 0o022,
    what: "change",
    expected: "at most 0644 (chmod go-w)",
};
const FOLDER: Danger = Danger {
    bits: 0o022,
    what: "replace files in",
    expected: "at most 0755 (chmod go-w)",
};

impl Danger {
    /// Checks owner and mode of a file or folder that was opened or looked up at `path`.
    fn check(&self, path: &Path, metadata: &Metadata) -> Result<(), FileError> {
        let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
        let user = rustix::process::geteuid();
        if !user.is_root() && owner != user.as_raw() && owner != 0 {
            return Err(FileError::Owner {
                path: path.to_owned(),
                owner,
            });
        }
        // For a secret, no group access is acceptable.
        let is_harmless = |bits: u32| {
            self.bits == 0o022 && bits == 0o020 && is_private_group(metadata.gid(), owner)
        };
        match mode & self.bits {
            0 => Ok(()),
            bits if is_harmless(bits) => Ok(()),
            _ => Err(FileError::Permissions {
                path: path.to_owned(),
                mode,
                danger: self.what,
                expected: self.expected,
            }),
        }
    }
}

/// Checks that other users cannot replace the file: neither in its folder, nor in that of a
/// symbolic link's target.
fn check_folders(path: &Path) -> Result<(), FileError> {
    let real = fs::canonicalize(path).map_err(failed("find", path))?;
    for folder in [folder_of(path), folder_of(&real)] {
        let metadata = fs::metadata(folder).map_err(failed("examine", folder))?;
        // In a sticky folder such as /tmp, users replace only their own files.
        if metadata.mode() & STICKY == 0 {
            FOLDER.check(folder, &metadata)?;
        }
    }
    Ok(())
}

const STICKY: u32 = 0o1000;

fn read(path: &Path, limit: usize, danger: &Danger) -> Result<Vec<u8>, FileError> {
    // Non-blocking, so that a pipe is rejected below instead of blocking here.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(failed("open", path))?;
    let metadata = file.metadata().map_err(failed("examine", path))?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular {
            path: path.to_owned(),
        });
    }
    danger.check(path, &metadata)?;
    check_folders(path)?;
    // One allocation of the final size, so that a growing buffer leaves no copies of a secret.
    let mut bytes = Vec::with_capacity(limit + 1);
    file.take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed("read", path))?;
    if bytes.len() > limit {
        return Err(FileError::TooLong {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(bytes)
}

/// Temporary file with a unique name, deleted on drop.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn write(folder: &Path, bytes: &[u8]) -> Result<Self, FileError> {
        let unique = u64::from_be_bytes(random_bytes());
        let path = folder.join(format!(".nicstripe-{unique:016x}.tmp"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed("create", &path))?;
        let temporary = Self { path };
        // Independent of the umask.
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(failed("set the mode of", &temporary.path))?;
        file.write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(failed("write", &temporary.path))?;
        Ok(temporary)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename nothing is left to remove; otherwise the error cannot be reported.
        let _ = fs::remove_file(&self.path);
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Returns the target of a symbolic link, through all further ones; `path` itself if it is none.
fn resolved(path: &Path) -> Result<Cow<'_, Path>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => fs::canonicalize(path)
            .map(Cow::Owned)
            .map_err(failed("find the target of the link", path)),
        _ => Ok(Cow::Borrowed(path)),
    }
}

fn make_folder(path: &Path) -> Result<PathBuf, FileError> {
    let folder = folder_of(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(failed("create folder", folder))?;
    Ok(folder.to_owned())
}

fn sync(folder: &Path) -> Result<(), FileError> {
    let open = File::open(folder).map_err(failed("sync folder", folder))?;
    match fsync(&open) {
        // Some network and FUSE file systems have no sync of a directory.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        synced => synced.map_err(|error| failed("sync folder", folder)(error.into())),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io {
        action,
        path,
        source,
    }
}

/// Returns a temporary folder of mode 0700, independent of the umask, for tests.
#[cfg(test)]
pub(crate) fn private_folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .expect("temporary folder for a test")
}

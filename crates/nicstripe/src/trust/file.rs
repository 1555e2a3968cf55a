//! Small files that must be whole, durable and safe from other users.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::private_group::is_private_group;

/// Why a file of ours cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system said no.
    #[error("cannot {action} {path:?}")]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is something else under that name: a folder, a pipe, a device.
    #[error("{path:?} is not a regular file")]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Other users could read a secret, or change what we trust.
    #[error("{path:?} has mode {mode:04o}, others could {danger} it: expected {expected}")]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What others could do.
        danger: &'static str,
        /// Which bits are allowed, and the command that sets them.
        expected: &'static str,
    },
    /// Another user owns what we trust.
    #[error("{path:?} belongs to user {owner}, who could change it: expected this user or root (chown)")]
    Owner {
        /// The file or its folder.
        path: PathBuf,
        /// The number of the user.
        owner: u32,
    },
    /// The file is longer than anything we write.
    #[error("{path:?} exceeds the limit of {limit} bytes")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
}

impl FileError {
    /// Tells that nothing has the name.
    pub fn is_missing(&self) -> bool {
        self.io().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the system's error, if one is behind this.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::NotRegular { .. } | Self::Permissions { .. } | Self::Owner { .. } | Self::TooLong { .. } => None,
        }
    }

    /// Tells that a new file was not made because something has its name.
    pub(super) fn is_taken(&self) -> bool {
        self.io().is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// Reads a file that nobody but its owner may read or write, of at most `limit` bytes.
pub(super) fn read_private(path: &Path, limit: usize) -> Result<Vec<u8>, FileError> {
    read(path, limit, &SECRET)
}

/// Reads a file that nobody but its owner may write, of at most `limit` bytes.
///
/// A group may write if it is the owner's private one: the owner's primary group, of the owner's name, without another member.
///
/// # Errors
///
/// It cannot be read, is no regular file, is longer, others may write it or replace it in its folder, or it is neither this user's nor root's
/// (root reads files of every user).
pub fn read_guarded(path: &Path, limit: usize) -> Result<Vec<u8>, FileError> {
    read(path, limit, &TRUSTED)
}

/// Makes a file of mode 0600 that must not exist yet: whole and durable, or not at all. Missing folders are made with mode 0700.
pub(super) fn create_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = make_folder(path)?;
    let temporary = Temporary::write(&folder, bytes)?;
    // A hard link is the rename that never replaces, on every Unix.
    fs::hard_link(&temporary.path, path).map_err(failed("create", path))?;
    sync(&folder)
}

/// Puts a file of mode 0600 in the place of another or of none: at each moment, also after a crash, one of the two is there whole.
pub(super) fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = make_folder(path)?;
    let temporary = Temporary::write(&folder, bytes)?;
    fs::rename(&temporary.path, path).map_err(failed("replace", path))?;
    sync(&folder)
}

/// Holds others who do the same off, until the file returned is closed. Waits for them. The folder is made if need be.
pub(super) fn lock_folder_of(path: &Path) -> Result<File, FileError> {
    let folder = make_folder(path)?;
    let open = File::open(&folder).map_err(failed("open", &folder))?;
    rustix::fs::flock(&open, rustix::fs::FlockOperation::LockExclusive).map_err(|error| failed("lock", &folder)(error.into()))?;
    Ok(open)
}

/// Permission bits that must not be set, and the words for it.
struct Danger {
    bits: u32,
    what: &'static str,
    expected: &'static str,
}

const SECRET: Danger = Danger { bits: 0o077, what: "read or change", expected: "0600 (chmod 600)" };
const TRUSTED: Danger = Danger { bits: 0o022, what: "change", expected: "at most 0644 (chmod go-w)" };
const FOLDER: Danger = Danger { bits: 0o022, what: "replace files in", expected: "at most 0755 (chmod go-w)" };

impl Danger {
    /// Checks an object that was opened or looked up under `path`.
    fn check(&self, path: &Path, metadata: &Metadata) -> Result<(), FileError> {
        let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
        let user = rustix::process::geteuid();
        if !user.is_root() && owner != user.as_raw() && owner != 0 {
            return Err(FileError::Owner { path: path.to_owned(), owner });
        }
        // A secret has no group at all.
        let is_harmless = |bits: u32| self.bits == 0o022 && bits == 0o020 && is_private_group(metadata.gid(), owner);
        match mode & self.bits {
            0 => Ok(()),
            bits if is_harmless(bits) => Ok(()),
            _ => Err(FileError::Permissions { path: path.to_owned(), mode, danger: self.what, expected: self.expected }),
        }
    }
}

/// Checks that others cannot put another file in the place of this one: in its folder, and in that of the file that a symbolic link leads to.
fn check_folders(path: &Path) -> Result<(), FileError> {
    let real = fs::canonicalize(path).map_err(failed("find", path))?;
    for folder in [folder_of(path), folder_of(&real)] {
        let metadata = fs::metadata(folder).map_err(failed("examine", folder))?;
        // In a folder such as /tmp, users replace only what is theirs.
        if metadata.mode() & STICKY == 0 {
            FOLDER.check(folder, &metadata)?;
        }
    }
    Ok(())
}

const STICKY: u32 = 0o1000;

fn read(path: &Path, limit: usize, danger: &Danger) -> Result<Vec<u8>, FileError> {
    // Non-blocking, so that a pipe under this name is refused below and does not hang us here.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed("open", path))?;
    let metadata = file.metadata().map_err(failed("examine", path))?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular { path: path.to_owned() });
    }
    danger.check(path, &metadata)?;
    check_folders(path)?;
    // One allocation of the final size: a secret leaves no copies behind in outgrown ones.
    let mut bytes = Vec::with_capacity(limit + 1);
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if bytes.len() > limit {
        return Err(FileError::TooLong { path: path.to_owned(), limit });
    }
    Ok(bytes)
}

/// A file under a name of its own, gone when this goes.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn write(folder: &Path, bytes: &[u8]) -> Result<Self, FileError> {
        let path = folder.join(unique_name().map_err(failed("write to", folder))?);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed("create", &path))?;
        let temporary = Self { path };
        // Whatever the umask takes.
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed("set the mode of", &temporary.path))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed("write", &temporary.path))?;
        Ok(temporary)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is nothing to remove; otherwise nobody is left to tell.
        let _ = fs::remove_file(&self.path);
    }
}

fn unique_name() -> io::Result<String> {
    let mut random = [0; 8];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(format!(".nicstripe-{:016x}.tmp", u64::from_be_bytes(random)))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make_folder(path: &Path) -> Result<PathBuf, FileError> {
    let folder = folder_of(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create folder", folder))?;
    Ok(folder.to_owned())
}

fn sync(folder: &Path) -> Result<(), FileError> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(failed("sync folder", folder))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { action, path, source }
}

/// Returns a folder as the product makes its own, for tests: with mode 0700 whatever the umask.
#[cfg(test)]
pub(crate) fn private_folder() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().expect("tests have room for a temporary folder")
}

//! Small files by which several processes agree, at the daemon or here.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use nicstripe::{
    Client, CopyOptions, Error, Event, FailCode, Name, NotRemoved, ObjectWriter, escaped,
};
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    process::geteuid,
};
use tokio::io::AsyncWriteExt as _;

use crate::failure::Failure;

/// Directory of such files. Its files are named by their paths in it.
#[derive(Debug, Clone)]
pub(in crate::commands::cp) enum Store {
    AtDaemon { client: Client, dir: Name },
    Here { dir: PathBuf },
}

/// File that no other process can take meanwhile. Dropped, it is left to others.
pub(in crate::commands::cp) enum Hold {
    /// File that is being written: the daemon lets no one else write one of this name.
    AtDaemon {
        client: Client,
        name: Name,
        writer: Box<ObjectWriter>,
    },
    /// Locked file, and its path.
    Here(File, PathBuf),
}

impl Hold {
    /// Fills the file.
    pub(in crate::commands::cp) async fn mark(self) -> Result<(), Failure> {
        match self {
            Self::AtDaemon {
                client,
                name,
                mut writer,
            } => {
                // The session in which the file was being written may have been lost.
                if writer.write_all(DONE).await.is_err() || writer.finish().await.is_err() {
                    client.write(&name, DONE, marking()).await?;
                }
                Ok(())
            }
            Self::Here(mut file, path) => file.write_all(DONE).map_err(Failure::writing(&path)),
        }
    }
}

impl Store {
    /// Returns a directory in this one.
    pub(super) fn sub(&self, sub: &str) -> Result<Self, Failure> {
        Ok(match self {
            Self::AtDaemon { client, dir } => Self::AtDaemon {
                client: client.clone(),
                dir: inside(dir, sub)?,
            },
            Self::Here { dir } => Self::Here { dir: dir.join(sub) },
        })
    }

    /// Returns the name of a file, which is at a daemon.
    pub(in crate::commands::cp) fn name(&self, file: &str) -> Result<Name, Failure> {
        match self {
            Self::AtDaemon { dir, .. } => inside(dir, file),
            Self::Here { .. } => Err(elsewhere()),
        }
    }

    /// Returns the path of the directory, which is here.
    pub(super) fn path(&self) -> Result<&Path, Failure> {
        match self {
            Self::AtDaemon { .. } => Err(elsewhere()),
            Self::Here { dir } => Ok(dir),
        }
    }

    /// Writes a file that a later process may write again.
    pub(in crate::commands::cp) async fn write(
        &self,
        file: &str,
        text: String,
    ) -> Result<(), Failure> {
        match self {
            Self::AtDaemon { client, dir } => {
                client.write(&inside(dir, file)?, text, marking()).await?;
                Ok(())
            }
            Self::Here { dir } => {
                let file = appended(&dir.join(file));
                let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
                written.map_err(failed(dir))
            }
        }
    }

    /// Writes a file whole. Returns false if it exists.
    pub(super) async fn write_new(&self, file: &str, text: &[u8]) -> Result<bool, Failure> {
        match self {
            Self::AtDaemon { client, dir } => {
                let options = CopyOptions {
                    parents: true,
                    ..CopyOptions::default()
                };
                let file = inside(dir, file)?;
                match client.write(&file, text.to_vec(), options).await {
                    Ok(_) => Ok(true),
                    Err(error) if is_taken(&error) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            Self::Here { dir } => write_new_here(dir, file, text).map_err(failed(dir)),
        }
    }

    /// Reads the first `most` bytes of a file; `None` if there is none.
    pub(in crate::commands::cp) async fn read(
        &self,
        file: &str,
        most: u64,
    ) -> Result<Option<Vec<u8>>, Failure> {
        match self {
            Self::AtDaemon { client, dir } => {
                match client.read(&inside(dir, file)?, Some(0..most)).await {
                    Err(error) if error.is_not_found() => Ok(None),
                    text => Ok(Some(text?)),
                }
            }
            Self::Here { dir } => match read_here(&dir.join(file), most) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                text => text.map(Some).map_err(failed(dir)),
            },
        }
    }

    /// Takes a file; `None` if another process has it.
    pub(in crate::commands::cp) async fn hold(&self, file: &str) -> Result<Option<Hold>, Failure> {
        match self {
            Self::AtDaemon { client, dir } => {
                let name = inside(dir, file)?;
                let mut writer = Box::new(client.create(&name, marking()));
                while let Some(event) = writer.next_event().await {
                    if matches!(event, Event::Started { .. }) {
                        let client = client.clone();
                        return Ok(Some(Hold::AtDaemon {
                            client,
                            name,
                            writer,
                        }));
                    }
                }
                match writer.finish().await {
                    Err(error) if error.fail_code() == Some(FailCode::Busy) => Ok(None),
                    Err(error) => Err(error.into()),
                    Ok(_) => Ok(None),
                }
            }
            Self::Here { dir } => {
                let path = dir.join(file);
                let file = appended(&path).map_err(failed(dir))?;
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => Ok(Some(Hold::Here(file, path))),
                    Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
                    Err(error) => Err(failed(dir)(error.into())),
                }
            }
        }
    }

    /// Returns names and sizes of what is in the directory.
    pub(in crate::commands::cp) async fn list(&self) -> Result<Vec<(String, u64)>, Failure> {
        match self {
            Self::AtDaemon { client, dir } => {
                let mut entries = client.entries(Some(dir.clone())).at_most(MOST_ENTRIES);
                let mut found = Vec::new();
                loop {
                    match entries.next().await {
                        Ok(Some(entry)) => {
                            found.push((entry.name.to_string(), entry.stat.size));
                        }
                        Ok(None) => return Ok(found),
                        Err(error) if error.is_not_found() => return Ok(found),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Self::Here { dir } => match list_here(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                found => found.map_err(failed(dir)),
            },
        }
    }

    /// Removes files. Those that are not there are no error: another process may do the same.
    pub(in crate::commands::cp) async fn remove(&self, files: &[String]) -> Result<(), Failure> {
        match self {
            Self::AtDaemon { client, dir } => {
                let files = files.iter().map(|file| inside(dir, file));
                let files = files.collect::<Result<Vec<_>, _>>()?;
                first_of(client.remove_files(&files).await?, None)
            }
            Self::Here { dir } => {
                let mut files = files.iter();
                let removed = files.try_for_each(|file| harmless(fs::remove_file(dir.join(file))));
                removed.map_err(failed(dir))
            }
        }
    }

    /// Removes the directory, unless another process has put something there.
    pub(super) async fn remove_dir(&self) -> Result<(), Failure> {
        match self {
            Self::AtDaemon { client, dir } => {
                let left = client.remove_dirs(std::slice::from_ref(dir)).await?;
                first_of(left, Some(FailCode::Exists))
            }
            Self::Here { dir } => harmless(fs::remove_dir(dir)).map_err(failed(dir)),
        }
    }

    /// Removes the directory and the files in it.
    pub(in crate::commands::cp) async fn clear(&self) -> Result<(), Failure> {
        let found = self.list().await?;
        let files: Vec<String> = found.into_iter().map(|(file, _)| file).collect();
        self.remove(&files).await?;
        self.remove_dir().await
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtDaemon { dir, .. } => write!(f, "{dir} there"),
            Self::Here { dir } => f.write_str(&escaped(dir.as_os_str().as_bytes())),
        }
    }
}

/// Returns the name of a file in a directory of the daemon.
fn inside(dir: &Name, file: &str) -> Result<Name, Failure> {
    let components = file.split('/').map(str::as_bytes);
    Ok(Name::new(dir.components().chain(components))?)
}

/// Returns the first error of a removal that is none of a missing entry, and has not this code.
fn first_of(left: Vec<NotRemoved>, harmless: Option<FailCode>) -> Result<(), Failure> {
    let mut errors = left.into_iter().map(|left| left.error);
    let is_harm = |error: &Error| {
        !error.is_not_found() && (harmless.is_none() || error.fail_code() != harmless)
    };
    errors
        .find(is_harm)
        .map_or(Ok(()), |error| Err(error.into()))
}

fn elsewhere() -> Failure {
    Failure::Runtime(io::Error::other(
        "the record of shares is not at the target",
    ))
}

fn failed(dir: &Path) -> impl Fn(io::Error) -> Failure {
    Failure::writing(dir)
}

/// Opens a file for what is appended, and makes it if there is none.
fn appended(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.append(true).create(true);
    options.custom_flags(OWN).open(path)
}

fn read_here(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(OWN).open(path)?;
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// Writes a file whole, unless it exists.
fn write_new_here(dir: &Path, file: &str, text: &[u8]) -> io::Result<bool> {
    make_own(dir)?;
    let mode = Permissions::from_mode(0o666);
    let fresh = tempfile::Builder::new()
        .permissions(mode)
        .tempfile_in(dir)?;
    fs::write(fresh.path(), text)?;
    match fresh.persist_noclobber(dir.join(file)) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// Makes a directory that only this user may write, with its parents. In one of another user, whatever is
/// believed of what other processes have copied would be that user's word.
fn make_own(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let found = fs::symlink_metadata(dir)?;
    let is_own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    match is_own {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a directory that only this user may write",
        )),
    }
}

fn list_here(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let entries = fs::read_dir(dir)?.map(|entry| {
        let entry = entry?;
        let name = OsStr::to_string_lossy(&entry.file_name()).into_owned();
        Ok((name, entry.metadata()?.len()))
    });
    entries.collect()
}

/// Takes a removal that another process made, or stops, for done.
fn harmless(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

/// Returns true if another process has written the file, or is about to.
fn is_taken(error: &Error) -> bool {
    matches!(error.fail_code(), Some(FailCode::Exists | FailCode::Busy))
}

/// Options of a file that a later process may write again.
fn marking() -> CopyOptions {
    CopyOptions {
        replace: true,
        parents: true,
        ..CopyOptions::default()
    }
}

/// Maximum number of entries of a directory at a daemon, which could name them without an end: shares, and
/// large files that are not complete.
const MOST_ENTRIES: u64 = 1 << 20;

/// Name of a file that is put together from ranges, and its name once all are there.
pub(in crate::commands::cp) const PART: &str = "part";
pub(in crate::commands::cp) const WHOLE: &str = "whole";

/// Content of a file that is marked.
const DONE: &[u8] = b"done\n";

/// Flags of files here: in a directory that others may write, a link could lead to another file, and a FIFO
/// would wait for them.
pub(super) const OWN: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_others_may_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/record");
        assert!(write_new_here(&dir, "agreed", b"1").unwrap());
        assert!(!write_new_here(&dir, "agreed", b"2").unwrap());
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&dir, Permissions::from_mode(0o770)).unwrap();
        let error = write_new_here(&dir, "agreed", b"3").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(write_new_here(&link, "agreed", b"3").is_err());
    }
}

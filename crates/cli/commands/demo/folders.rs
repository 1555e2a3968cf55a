//! Temporary directories of the demo's two hosts, and their cleanup.

use std::{
    env, error,
    fs::{self, DirEntry, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nicstripe::trust::{Home, Identity, Peers, PeersError, PublicKey, PublicLine};
use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use tempfile::TempDir;

use super::failed;
use crate::{
    failure::{Fault, exit::Exit},
    process::{free_bytes, proc_bytes},
    text::quantity::Size,
};

/// Temporary directories of the demo: the keys and peers files of both hosts, the sample and the
/// received file.
#[derive(Debug)]
pub(super) struct Folders {
    base: TempDir,
    /// Lock that is held while the directories are in use. [`sweep`] removes those whose lock is
    /// free.
    _lock: File,
}

impl Folders {
    /// Creates the directories on a file system with `room` bytes free, in memory if possible.
    pub(super) fn make(room: u64) -> Result<Self, Fault> {
        let failed = failed::<io::Error>(NO_FOLDERS);
        sweep(Path::new(MEMORY));
        sweep(&env::temp_dir());
        let parent = parent_for(room)?;
        let base = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .map_err(failed)?;
        let lock = File::create_new(base.path().join(LOCK)).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| failed(error.into()))?;
        let folders = Self { base, _lock: lock };
        fs::create_dir(folders.received()).map_err(failed)?;
        let (near, far) = (folders.home("a"), folders.home("b"));
        let key = |home: &Home| Identity::load_or_create(home.identity_file());
        let near_key = key(&near).map_err(untold)?.public_key();
        let far_key = key(&far).map_err(untold)?.public_key();
        trust(&near, far_key, "b").map_err(untold)?;
        trust(&far, near_key, "a").map_err(untold)?;
        Ok(folders)
    }

    pub(super) fn home(&self, host: &str) -> Home {
        Home::at(self.base.path().join(host))
    }

    pub(super) fn sample(&self) -> PathBuf {
        self.base.path().join("sample.bin")
    }

    pub(super) fn received(&self) -> PathBuf {
        self.base.path().join("received")
    }

    /// Returns the socket at which the demo learns that its daemon is ready.
    pub(super) fn notified(&self) -> PathBuf {
        self.base.path().join("notified")
    }

    /// Deletes the received file, and the sample if given, to free their space for the next copy.
    pub(super) fn clear(&self, sample: Option<&PathBuf>) -> Result<(), Fault> {
        fs::remove_dir_all(self.received())
            .and_then(|()| fs::create_dir(self.received()))
            .and_then(|()| sample.map_or(Ok(()), fs::remove_file))
            .map_err(failed(NO_FOLDERS))
    }
}

/// Returns an error of the library about the demo's own files, whose exit code would mislead.
fn untold(error: impl error::Error) -> Fault {
    Fault::new(Exit::Failed, nicstripe::chain(&error))
}

fn trust(home: &Home, key: PublicKey, name: &str) -> Result<(), PeersError> {
    Peers::edit(home.peers_file(), |peers| {
        peers.add(&PublicLine::new(key, ""), Some(name)).map(|_| ())
    })
}

/// Removes the directories of killed demos: those of this user whose lock is free.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten().filter(is_left_over) {
        // Another process may have removed it already.
        let _ = fs::remove_dir_all(entry.path());
    }
}

fn is_left_over(entry: &DirEntry) -> bool {
    let is_named_so = entry.file_name().to_string_lossy().starts_with(PREFIX);
    let is_ours = || {
        entry
            .metadata()
            .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw())
    };
    // A folder without a lock file is being created.
    let is_free = || {
        File::open(entry.path().join(LOCK))
            .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    is_named_so && is_ours() && is_free()
}

/// Returns a directory on a file system with `room` bytes free: in memory if possible, so that the
/// demo does not measure a disk.
fn parent_for(room: u64) -> Result<PathBuf, Fault> {
    let needed = room + SPARE;
    let memory = Path::new(MEMORY);
    if free_bytes(memory).is_some_and(|free| free >= needed)
        && proc_bytes("/proc/meminfo", "MemAvailable:")
            .is_some_and(|free| free >= needed + SPARE_MEMORY)
    {
        return Ok(memory.to_owned());
    }
    let path = env::temp_dir();
    match free_bytes(&path) {
        Some(free) if free < needed => Err(Fault::new(
            Exit::Failed,
            format!(
                "{} of free space are needed, {} has {}: expected a smaller --size",
                Size(needed),
                path.display(),
                Size(free)
            ),
        )),
        _ => Ok(path),
    }
}

/// Mount point of Linux's in-memory file system.
const MEMORY: &str = "/dev/shm";

const NO_FOLDERS: &str = "cannot create the demo's folders";
const PREFIX: &str = "nicstripe-demo-";
const LOCK: &str = "lock";

/// Free disk space in bytes to reserve for keys, journals and the file system itself.
const SPARE: u64 = 64 * 1024 * 1024;

/// Free memory in bytes to reserve for processes and the kernel's socket buffers.
const SPARE_MEMORY: u64 = 512 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_demo_left_is_removed_and_a_running_one_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
        for name in ["killed", "running", "starting"] {
            fs::create_dir(folder(name)).unwrap();
        }
        fs::write(folder("killed").join(LOCK), "").unwrap();
        let lock = File::create(folder("running").join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(parent.path());
        assert_eq!(
            ["killed", "running", "starting"].map(|name| folder(name).exists()),
            [false, true, true]
        );
    }

    #[test]
    fn more_than_any_disk_has_is_refused_with_the_option_to_change() {
        let error = parent_for(u64::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("--size"), "{error}");
    }
}

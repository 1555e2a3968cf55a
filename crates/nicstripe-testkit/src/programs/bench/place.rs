//! Temporary folders of a bench, for both hosts.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nicstripe::trust::{Home, Identity, Peers, PublicKey, PublicLine};
use nicstripe_lab::Host;
use tempfile::TempDir;

use super::{
    ballast::Ballast,
    error::Result,
    sample::{Sample, gib},
};
use crate::programs::program::temporary_folder;

/// Temporary folders of both hosts: files, logs, and keys that trust each other. Dropping the value
/// removes the folders.
#[derive(Debug)]
pub struct Place {
    base: TempDir,
    is_in_memory: bool,
}

impl Place {
    /// Creates the folders in /dev/shm, to exclude the disk from the measurement. `room` is the
    /// maximum number of bytes in use at any time, [ballast](Self::ballast) included.
    ///
    /// # Errors
    ///
    /// Available memory or free space is too small.
    pub fn in_memory(room: u64) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let available = available_memory().unwrap_or(0);
        if available < room + SPARE_MEMORY {
            let (room, available) = (gib(room + SPARE_MEMORY), gib(available));
            return Err(format!(
                "{room} of memory needed, {available} available: expected a smaller --size"
            )
            .into());
        }
        Ok(Self {
            is_in_memory: true,
            ..Self::within(memory, room)?
        })
    }

    /// Creates the folders in `folder`, by default in cargo's temporary folder for benches. `room`
    /// is the maximum number of bytes in use at any time.
    pub fn on_disk(folder: Option<&Path>, room: u64) -> Result<Self> {
        Self::within(folder.unwrap_or(&temporary_folder()), room)
    }

    /// Creates the source file of a bench on host A: incompressible bytes.
    pub fn sample(&self, size: u64) -> Result<Sample> {
        Sample::incompressible(self.files(Host::A).join("sample.bin"), size)
    }

    fn within(folder: &Path, room: u64) -> Result<Self> {
        fs::create_dir_all(folder)?;
        remove_leftovers(folder);
        let stat = rustix::fs::statvfs(folder)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < room + SPARE {
            let (room, free, folder) = (gib(room + SPARE), gib(free), folder.display());
            return Err(format!(
                "{room} of free space needed, {folder} has {free}: expected a smaller --size"
            )
            .into());
        }
        let base = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in(folder)?;
        let place = Self {
            base,
            is_in_memory: false,
        };
        fs::create_dir(place.logs())?;
        for host in Host::ALL {
            fs::create_dir_all(place.files(host))?;
            let peer =
                Identity::load_or_create(place.home(host.peer()).identity_file())?.public_key();
            trust(&place.home(host), peer, &host.peer().to_string())?;
        }
        Ok(place)
    }

    /// Returns the temporary folder that contains the folders of both hosts.
    pub fn base(&self) -> &Path {
        self.base.path()
    }

    /// Returns a host's folder for sent and received files.
    pub fn files(&self, host: Host) -> PathBuf {
        self.base.path().join(format!("files-{host}"))
    }

    /// Returns a host's configuration folder (`NICSTRIPE_HOME`).
    pub fn home(&self, host: Host) -> Home {
        Home::at(self.base.path().join(format!("home-{host}")))
    }

    /// Returns the folder for the output and configuration files of the programs.
    pub fn logs(&self) -> PathBuf {
        self.base.path().join("logs")
    }

    /// Creates a ballast of `size` bytes for the next received file; `None` if the folders are on a
    /// disk, which needs no ballast.
    pub fn ballast(&self, size: u64) -> Result<Option<Ballast>> {
        Ok(if self.is_in_memory {
            Some(Ballast::hold(self.base.path(), size)?)
        } else {
            None
        })
    }

    /// Removes all sent and received files of a host.
    pub fn clear(&self, host: Host) -> io::Result<()> {
        fs::remove_dir_all(self.files(host))?;
        fs::create_dir(self.files(host))
    }
}

fn trust(home: &Home, key: PublicKey, name: &str) -> Result<()> {
    Peers::edit(home.peers_file(), |peers| {
        peers.add(&PublicLine::new(key, ""), Some(name)).map(|_| ())
    })?;
    Ok(())
}

/// Removes the folders of benches that were killed. Such folders may hold gigabytes of memory.
fn remove_leftovers(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            name.strip_prefix(PREFIX)?
                .split('-')
                .next()?
                .parse::<u32>()
                .ok()
        });
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Fails if the folder belongs to another user. The folder then stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the bytes of memory available without swapping (MemAvailable in proc_meminfo(5)); `None`
/// if `/proc/meminfo` cannot be read.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

const PREFIX: &str = "nicstripe-bench-";

/// Bytes of free space for logs, keys, journals and the file system's metadata.
const SPARE: u64 = 64 << 20;

/// Bytes of memory for the processes and the kernel's socket buffers.
const SPARE_MEMORY: u64 = 512 << 20;

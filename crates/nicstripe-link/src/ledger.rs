//! Records of installed routes and changed MTUs with their owners, written under a lock before each
//! change.
//!
//! `routes.jsonl` and `mtus.jsonl` hold one record per line. Each save writes a new file and
//! renames it, so a reader never sees a partial file, even after a kill. The files are not synced
//! to disk: neither routes nor MTUs survive a reboot.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, linux::fs::MetadataExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
    process::{Pid, test_kill_process},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use tracing::warn;

/// State directory that all users of a machine share, with the records of routes and MTUs. The
/// administrator or the package creates it, with a group that the helper belongs to.
pub const SHARED_STATE_DIR: &str = "/run/nicstripe";

/// Type that is stored in a record file.
pub(crate) trait Recorded: Serialize + DeserializeOwned {
    /// Name of the record file in the state directory.
    const FILE: &'static str;
}

/// Failure to lock, read or write the record file.
#[derive(Debug, Error)]
pub(crate) enum LedgerError {
    /// A file or directory of the records caused an I/O error.
    #[error("cannot keep the records in {}", path.display())]
    Io {
        /// Path of the file or directory with the error.
        path: PathBuf,
        /// I/O error that the operating system returned.
        source: io::Error,
    },
    /// Another process holds the lock on the records.
    #[error("cannot lock {} within {} s", path.display(), waited.as_secs_f64())]
    Locked {
        /// Path of the lock file.
        path: PathBuf,
        /// Time that this process waited for the lock.
        waited: Duration,
    },
}

impl LedgerError {
    /// Returns a function that converts an I/O error on `path` to a `LedgerError`.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Process that owns a record. Its start time distinguishes it from later processes with the same
/// ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// Start time of the process in clock ticks after boot (field 22 of `/proc/PID/stat`).
    start_time: u64,
    /// ID of the boot in which the process was started (`/proc/sys/kernel/random/boot_id`).
    boot: String,
}

impl Owner {
    pub(crate) fn current() -> io::Result<Self> {
        let pid = std::process::id();
        let stat = Stat::read(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            pid,
            start_time: stat.start_time,
            boot: boot_id()?,
        })
    }

    /// Returns true if the process belongs to an earlier boot, so that none of its kernel state
    /// exists.
    pub(crate) fn is_of_another_boot(&self) -> bool {
        boot_id().is_ok_and(|boot| boot != self.boot)
    }

    /// Returns true if the process still runs, or if that is unknown. A leftover route is removed
    /// at the next start, which is less harmful than removing the route of a running transfer.
    pub(crate) fn is_alive(&self) -> bool {
        if self.is_of_another_boot() {
            return false;
        }
        match Stat::read(self.pid) {
            Ok(Some(stat)) => stat.start_time == self.start_time && !stat.dead,
            // /proc hides processes of other users if it is mounted with hidepid.
            Ok(None) => exists(self.pid),
            Err(_) => true,
        }
    }
}

/// Fields of `/proc/PID/stat` that identify a process and its state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    start_time: u64,
    /// True for a zombie or a dead process.
    dead: bool,
}

impl Stat {
    /// Reads `/proc/PID/stat`; `None` if no such process is visible.
    fn read(pid: u32) -> io::Result<Option<Self>> {
        let text = match fs::read(format!("/proc/{pid}/stat")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // The process ended while its file was open.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            text => text?,
        };
        Self::parse(&String::from_utf8_lossy(&text))
            .map(Some)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses `pid (name) state …`. The name may contain spaces and parentheses, so fields are
    /// counted from the last parenthesis.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?;
        // Field 3 is consumed, field 22 comes next.
        let start_time = fields.nth(22 - 4)?.parse().ok()?;
        Some(Self {
            start_time,
            dead: matches!(state, "Z" | "X" | "x"),
        })
    }
}

fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    test_kill_process(pid) != Err(Errno::SRCH)
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Returns the inode number of the calling thread's network namespace.
pub(crate) fn namespace() -> Result<u64, LedgerError> {
    let path = Path::new("/proc/thread-self/ns/net");
    Ok(fs::metadata(path).map_err(LedgerError::at(path))?.st_ino())
}

/// Creates the state directory if it is missing, and returns this process as owner.
pub(crate) fn enter(state_dir: &Path) -> Result<Owner, LedgerError> {
    fs::create_dir_all(state_dir).map_err(LedgerError::at(state_dir))?;
    Owner::current().map_err(LedgerError::at(Path::new("/proc/self/stat")))
}

/// Records of one type in a state directory. They are locked against changes by other processes and
/// threads until this value is dropped.
pub(crate) struct Ledger<'d, R> {
    directory: &'d Path,
    pub(crate) records: Vec<R>,
    /// Descriptor of the lock file; closing it releases the lock.
    _lock: OwnedFd,
}

impl<'d, R: Recorded> Ledger<'d, R> {
    /// Waits for the lock, at most 2 s, and reads the records.
    pub(crate) fn open(directory: &'d Path) -> Result<Self, LedgerError> {
        let lock = lock(&directory.join(LOCK_FILE))?;
        Ok(Self {
            directory,
            records: read(directory)?,
            _lock: lock,
        })
    }

    /// Replaces the record file with the current records.
    pub(crate) fn save(&self) -> Result<(), LedgerError> {
        let target = self.directory.join(R::FILE);
        let path = self.directory.join(format!("{}.new", R::FILE));
        self.write(&path).map_err(LedgerError::at(&path))?;
        fs::rename(&path, &target).map_err(LedgerError::at(&target))
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        for record in &self.records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        // The partial file of a killed process may belong to another user.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path, flags, FILE_MODE)?);
        file.write_all(&text)
    }
}

/// Reads the records in a directory, none if the file is missing. Needs no lock, because each save
/// replaces the whole file.
pub(crate) fn read<R: Recorded>(directory: &Path) -> Result<Vec<R>, LedgerError> {
    let path = directory.join(R::FILE);
    let bytes = match read_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes.map_err(LedgerError::at(&path))?,
    };
    Ok(records_of(&bytes, &path))
}

/// Parses the records of a file, one per line; skips invalid lines with a warning.
pub(crate) fn records_of<R: Recorded>(bytes: &[u8], path: &Path) -> Vec<R> {
    let text = String::from_utf8_lossy(bytes);
    let records = text.lines().filter_map(|line| {
        let parsed = serde_json::from_str(line);
        parsed
            .inspect_err(|error| warn!(path = %path.display(), %error, "malformed record"))
            .ok()
    });
    records.collect()
}

/// Reads a file that another user may have placed there: follows no symbolic link, does not wait on
/// a FIFO, and limits the length.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens and locks a file. Holders keep the lock for microseconds, so a long wait indicates a
/// fault.
///
/// # Errors
///
/// [`LedgerError::Locked`] if another process holds the lock for longer than [`LOCK_TIMEOUT`].
fn lock(path: &Path) -> Result<OwnedFd, LedgerError> {
    let fail = |source: Errno| LedgerError::at(path)(source.into());
    // Read access is enough for a lock, and a file of another group member allows no more.
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, FILE_MODE).map_err(fail)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                thread::sleep(LOCK_RETRY);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(LedgerError::Locked {
                    path: path.to_owned(),
                    waited: LOCK_TIMEOUT,
                });
            }
            Err(error) => return Err(fail(error)),
        }
    }
}

/// Maximum length of a record file that is read, in bytes: ten times that of the maximum number of
/// records.
const MOST_BYTES: u64 = 1 << 20;
/// Name of the lock file, shared by all types of records.
const LOCK_FILE: &str = "routes.lock";
/// Mode of the record and lock files: readable by the group of a shared directory, subject to the
/// umask.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o640);

/// Timeout for the lock on the records: a thousand times the duration of a locked operation (picked
/// by eye).
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        interface::InterfaceIndex,
        routes::{HostRoute, manager::RouteRecord},
    };

    fn record() -> RouteRecord {
        RouteRecord {
            owner: Owner::current().unwrap(),
            namespace: 7,
            route: HostRoute {
                destination: "fd00::2".parse().unwrap(),
                interface: InterfaceIndex(3),
                prefer_source: Some("fd00::1".parse().unwrap()),
                metric: HostRoute::DEFAULT_METRIC,
            },
        }
    }

    #[test]
    fn records_survive_being_written_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.records, []);
        ledger.records.push(record());
        ledger.save().unwrap();
        drop(ledger);
        assert_eq!(
            Ledger::<RouteRecord>::open(directory.path())
                .unwrap()
                .records,
            [record()]
        );
    }

    #[test]
    fn a_line_that_is_no_record_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let good = serde_json::to_string(&record()).unwrap();
        let damaged = [
            b"\xff{\n".as_slice(),
            good.as_bytes(),
            b"\n\n",
            &good.as_bytes()[..20],
        ]
        .concat();
        fs::write(directory.path().join(RouteRecord::FILE), damaged).unwrap();
        assert_eq!(
            Ledger::<RouteRecord>::open(directory.path())
                .unwrap()
                .records,
            [record()]
        );
    }

    #[test]
    fn what_others_put_in_the_records_place_is_not_waited_for_nor_followed() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join(RouteRecord::FILE);
        std::os::unix::fs::symlink("/proc/self/stat", &place).unwrap();
        assert!(matches!(
            read::<RouteRecord>(directory.path()),
            Err(LedgerError::Io { .. })
        ));
        fs::remove_file(&place).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &place,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(read::<RouteRecord>(directory.path()).unwrap(), []);
        // Save goes through a temporary file, which then replaces the record file.
        Ledger {
            directory: directory.path(),
            records: vec![record()],
            _lock: lock(&directory.path().join(LOCK_FILE)).unwrap(),
        }
        .save()
        .unwrap();
        assert_eq!(read::<RouteRecord>(directory.path()).unwrap(), [record()]);
    }

    #[test]
    fn a_held_lock_is_reported_and_not_waited_for_forever() {
        let directory = tempfile::tempdir().unwrap();
        let _held = Ledger::<RouteRecord>::open(directory.path()).unwrap();
        let second = thread::scope(|scope| {
            scope
                .spawn(|| Ledger::<RouteRecord>::open(directory.path()).err())
                .join()
                .unwrap()
        });
        assert!(
            matches!(second, Some(LedgerError::Locked { .. })),
            "{second:?}"
        );
    }

    #[test]
    fn this_process_is_alive_and_an_impostor_with_its_number_is_not() {
        let owner = Owner::current().unwrap();
        assert!(owner.is_alive());
        assert!(
            !Owner {
                start_time: owner.start_time + 1,
                ..owner.clone()
            }
            .is_alive()
        );
        assert!(
            !Owner {
                boot: "another".to_owned(),
                ..owner.clone()
            }
            .is_alive()
        );
        // Above Linux's maximum process ID (2^22).
        assert!(
            !Owner {
                pid: 5_000_000,
                ..owner
            }
            .is_alive()
        );
    }

    #[test]
    fn the_start_time_is_found_behind_any_process_name() {
        let rest = "1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let stat = Stat::parse(&format!("17 (a) S) b) S {rest}")).unwrap();
        assert_eq!(
            stat,
            Stat {
                start_time: 4711,
                dead: false
            }
        );
        assert!(Stat::parse(&format!("17 (x) Z {rest}")).unwrap().dead);
        assert_eq!(Stat::parse("17 (x) S 1 2 3"), None);
        assert_eq!(Stat::parse(""), None);
    }
}

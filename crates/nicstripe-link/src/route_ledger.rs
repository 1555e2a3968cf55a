//! Who installed which route, and who changed which interface's MTU: files of records under a lock, written before the kernel is asked.
//!
//! `routes.jsonl` and `mtus.jsonl` hold one record a line. Each is replaced as a whole (write beside it, rename), so a reader never sees
//! half of it, whatever is killed when. They are not synced to disk: neither routes nor MTUs outlive the machine's restart.

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

use crate::routes::HostRoute;

/// What is recorded, each kind in a file of its own.
pub(crate) trait Recorded: Serialize + DeserializeOwned {
    /// Name of the file.
    const FILE: &'static str;
    /// Name of what takes its place.
    const NEW_FILE: &'static str;
}

impl Recorded for Record {
    const FILE: &'static str = "routes.jsonl";
    const NEW_FILE: &'static str = "routes.jsonl.new";
}

/// Why records cannot be read or written.
#[derive(Debug, Error)]
pub(crate) enum LedgerError {
    /// The file cannot be used.
    #[error("cannot keep the records in {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error("cannot lock {} within {} s", path.display(), waited.as_secs_f64())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
}

impl LedgerError {
    /// Names the file that an operation failed on.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// One installed route and the process that wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) owner: Owner,
    /// Inode of the network namespace the route is in.
    pub(crate) namespace: u64,
    #[serde(flatten)]
    pub(crate) route: HostRoute,
}

/// A process, told from later ones with the same number by the time it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// Clock ticks after the machine's start (field 22 of `/proc/PID/stat`).
    start_time: u64,
    /// Which run of the machine (`/proc/sys/kernel/random/boot_id`).
    boot: String,
}

impl Owner {
    /// Describes this process.
    pub(crate) fn current() -> io::Result<Self> {
        let pid = std::process::id();
        let stat = Stat::read(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, start_time: stat.start_time, boot: boot_id()? })
    }

    /// Whether it was a process of an earlier run of the machine, which left nothing in the kernel.
    pub(crate) fn is_of_another_boot(&self) -> bool {
        boot_id().is_ok_and(|boot| boot != self.boot)
    }

    /// Whether the process still runs. In doubt it does: a route too many is repaired at the next start, a route taken
    /// from under a running transfer is not.
    pub(crate) fn is_alive(&self) -> bool {
        if self.is_of_another_boot() {
            return false;
        }
        match Stat::read(self.pid) {
            Ok(Some(stat)) => stat.start_time == self.start_time && !stat.dead,
            // /proc hides other users' processes when it is mounted with hidepid.
            Ok(None) => exists(self.pid),
            Err(_) => true,
        }
    }
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    start_time: u64,
    /// Killed, and waiting for its parent to ask.
    dead: bool,
}

impl Stat {
    /// `None` when there is no such process to be seen.
    fn read(pid: u32) -> io::Result<Option<Self>> {
        let text = match fs::read(format!("/proc/{pid}/stat")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // The process ended while its file was open.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            text => text?,
        };
        Self::parse(&String::from_utf8_lossy(&text)).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// `pid (name) state …`; the name may hold spaces and parentheses, so fields are counted after the last one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?;
        // Field 3 is consumed, 22 is wanted.
        let start_time = fields.nth(22 - 4)?.parse().ok()?;
        Some(Self { start_time, dead: matches!(state, "Z" | "X" | "x") })
    }
}

fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    test_kill_process(pid) != Err(Errno::SRCH)
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Returns the inode of the calling thread's network namespace.
pub(crate) fn namespace() -> Result<u64, LedgerError> {
    let path = Path::new("/proc/thread-self/ns/net");
    Ok(fs::metadata(path).map_err(LedgerError::at(path))?.st_ino())
}

/// Makes a state directory, if it is missing, and says who this process is.
pub(crate) fn enter(state_dir: &Path) -> Result<Owner, LedgerError> {
    fs::create_dir_all(state_dir).map_err(LedgerError::at(state_dir))?;
    Owner::current().map_err(LedgerError::at(Path::new("/proc/self/stat")))
}

/// The records, locked against every other process and thread until this is dropped.
pub(crate) struct Ledger<'d, R = Record> {
    directory: &'d Path,
    pub(crate) records: Vec<R>,
    /// Its lock ends when it is closed.
    _lock: OwnedFd,
}

impl<'d, R: Recorded> Ledger<'d, R> {
    /// Takes the lock and reads the records.
    pub(crate) fn open(directory: &'d Path) -> Result<Self, LedgerError> {
        let lock = lock(&directory.join(LOCK_FILE))?;
        Ok(Self { directory, records: read(directory)?, _lock: lock })
    }

    /// Replaces the file by the records as they are.
    pub(crate) fn save(&self) -> Result<(), LedgerError> {
        let path = self.directory.join(R::NEW_FILE);
        self.write(&path).map_err(LedgerError::at(&path))?;
        let target = self.directory.join(R::FILE);
        fs::rename(&path, &target).map_err(LedgerError::at(&target))
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        for record in &self.records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        // What a killed process left half written may belong to another user.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path, flags, FILE_MODE)?);
        file.write_all(&text)
    }
}

/// Reads the records of a directory without locking them: they are replaced as a whole. None where there is no file.
pub(crate) fn read<R: Recorded>(directory: &Path) -> Result<Vec<R>, LedgerError> {
    let path = directory.join(R::FILE);
    let bytes = match read_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes.map_err(LedgerError::at(&path))?,
    };
    Ok(records_of(&bytes, &path))
}

/// Reads the records of a file's bytes; a line that is none is passed over.
pub(crate) fn records_of<R: Recorded>(bytes: &[u8], path: &Path) -> Vec<R> {
    let text = String::from_utf8_lossy(bytes);
    let records = text.lines().filter_map(|line| {
        let parsed = serde_json::from_str(line);
        parsed.inspect_err(|error| warn!(path = %path.display(), %error, "a record cannot be read")).ok()
    });
    records.collect()
}

/// Reads a file that others than its reader may have put there: no link is followed, no pipe waited for, no end awaited that never
/// comes.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens and locks a file; the lock is held for microseconds by anyone, so waiting for it long means that something is wrong.
fn lock(path: &Path) -> Result<OwnedFd, LedgerError> {
    let fail = |source: Errno| LedgerError::at(path)(source.into());
    // Reading is enough to lock, and all that a file of another member of the directory's group allows.
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, FILE_MODE).map_err(fail)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => thread::sleep(LOCK_RETRY),
            Err(Errno::WOULDBLOCK) => return Err(LedgerError::Locked { path: path.to_owned(), waited: LOCK_TIMEOUT }),
            Err(error) => return Err(fail(error)),
        }
    }
}

/// Ten times what the most records take.
const MOST_BYTES: u64 = 1 << 20;
/// One for all kinds of records.
const LOCK_FILE: &str = "routes.lock";
/// Read by the group of a shared directory, less the umask.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o640);

/// Picked by eye: a thousand times what a locked operation takes.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::InterfaceIndex;

    fn record() -> Record {
        Record {
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
        assert_eq!(Ledger::<Record>::open(directory.path()).unwrap().records, [record()]);
    }

    #[test]
    fn a_line_that_is_no_record_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let good = serde_json::to_string(&record()).unwrap();
        let damaged = [b"\xff{\n".as_slice(), good.as_bytes(), b"\n\n", &good.as_bytes()[..20]].concat();
        fs::write(directory.path().join(Record::FILE), damaged).unwrap();
        assert_eq!(Ledger::<Record>::open(directory.path()).unwrap().records, [record()]);
    }

    #[test]
    fn what_others_put_in_the_records_place_is_not_waited_for_nor_followed() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join(Record::FILE);
        std::os::unix::fs::symlink("/proc/self/stat", &place).unwrap();
        assert!(matches!(read::<Record>(directory.path()), Err(LedgerError::Io { .. })));
        fs::remove_file(&place).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read::<Record>(directory.path()).unwrap(), []);
        // Records are written beside it and take its place.
        Ledger { directory: directory.path(), records: vec![record()], _lock: lock(&directory.path().join(LOCK_FILE)).unwrap() }
            .save()
            .unwrap();
        assert_eq!(read::<Record>(directory.path()).unwrap(), [record()]);
    }

    #[test]
    fn a_held_lock_is_reported_and_not_waited_for_forever() {
        let directory = tempfile::tempdir().unwrap();
        let _held = Ledger::<Record>::open(directory.path()).unwrap();
        let second = thread::scope(|scope| scope.spawn(|| Ledger::<Record>::open(directory.path()).err()).join().unwrap());
        assert!(matches!(second, Some(LedgerError::Locked { .. })), "{second:?}");
    }

    #[test]
    fn this_process_is_alive_and_an_impostor_with_its_number_is_not() {
        let owner = Owner::current().unwrap();
        assert!(owner.is_alive());
        assert!(!Owner { start_time: owner.start_time + 1, ..owner.clone() }.is_alive());
        assert!(!Owner { boot: "another".to_owned(), ..owner.clone() }.is_alive());
        // Above the largest number Linux gives (2^22).
        assert!(!Owner { pid: 5_000_000, ..owner }.is_alive());
    }

    #[test]
    fn the_start_time_is_found_behind_any_process_name() {
        let rest = "1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let stat = Stat::parse(&format!("17 (a) S) b) S {rest}")).unwrap();
        assert_eq!(stat, Stat { start_time: 4711, dead: false });
        assert!(Stat::parse(&format!("17 (x) Z {rest}")).unwrap().dead);
        assert_eq!(Stat::parse("17 (x) S 1 2 3"), None);
        assert_eq!(Stat::parse(""), None);
    }
}

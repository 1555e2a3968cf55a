//! Records of installed routes and changed MTUs with their owners, written under a lock before each
//! change.
//!
//! Each user of a state directory has own files: `routes.UID.jsonl` and `mtus.UID.jsonl` with one
//! record per line, and `UID.lock`. A user can stop an own process that holds a lock, which delays
//! no other user. Each save writes a new file and renames it, so a reader needs no lock and never
//! sees a partial file, even after a kill. The files are not synced to disk: neither routes nor
//! MTUs survive a reboot.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        linux::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, fchmod, fchown, flock, fstat},
    io::Errno,
    process::{Pid, Uid, geteuid, test_kill_process},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use tracing::warn;

/// State directory that all users of a machine share, with the records of routes and MTUs. The
/// administrator or the package creates it, with a group that the helper belongs to.
pub const SHARED_STATE_DIR: &str = "/run/nicstripe";

/// Type that is stored in record files.
pub(crate) trait Recorded: Serialize + DeserializeOwned {
    /// First part of the names of the record files, before the user ID.
    const KIND: &'static str;
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
    /// True for a process that a signal or a debugger has stopped.
    stopped: bool,
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
            stopped: matches!(state, "T" | "t"),
        })
    }
}

fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    test_kill_process(pid) != Err(Errno::SRCH)
}

/// Returns the random ID that the kernel has chosen at boot.
///
/// # Errors
///
/// The error of reading `/proc/sys/kernel/random/boot_id`.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Returns the inode number of the calling thread's network namespace.
pub(crate) fn namespace() -> Result<u64, LedgerError> {
    let path = Path::new("/proc/thread-self/ns/net");
    Ok(fs::metadata(path).map_err(LedgerError::at(path))?.st_ino())
}

/// Returns this process as owner.
pub(crate) fn this_process() -> Result<Owner, LedgerError> {
    Owner::current().map_err(LedgerError::at(Path::new("/proc/self/stat")))
}

/// Removes, when dropped, the directories that were missing when it was made: the state directory
/// unless it has records, and those above that are empty.
pub(crate) struct Tidy {
    /// Missing directories, the deepest first.
    missing: Vec<PathBuf>,
}

impl Tidy {
    pub(crate) fn new(state_dir: &Path) -> Self {
        let above = state_dir.ancestors();
        let missing = above.take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        Self {
            missing: missing.map(Path::to_owned).collect(),
        }
    }
}

impl Drop for Tidy {
    fn drop(&mut self) {
        let Some(state_dir) = self.missing.first() else {
            return;
        };
        let user = geteuid().as_raw();
        if let Ok(_lock) = lock(state_dir, user, OFlags::empty(), LOCK_TIMEOUT)
            && holds_only_a_lock(state_dir)
        {
            let _ = remove(&lock_of(state_dir, user));
        }
        // Fails for one that something is in, and then for those above.
        let _ = self.missing.iter().try_for_each(fs::remove_dir);
    }
}

fn holds_only_a_lock(state_dir: &Path) -> bool {
    fs::read_dir(state_dir).is_ok_and(|entries| entries.count() == 1)
}

/// Records of one type in a state directory. Those of this process's user are locked against
/// changes by other processes and threads until this value is dropped.
pub(crate) struct Ledger<'d, R> {
    directory: &'d Path,
    /// User whose records these are.
    user: u32,
    pub(crate) records: Vec<R>,
    /// Records of all other users, as last read. They may change at any time.
    pub(crate) others: Seen<R>,
    /// Descriptor of the lock file; closing it releases the lock.
    lock: OwnedFd,
}

impl<'d, R: Recorded> Ledger<'d, R> {
    /// Waits for the lock of this process's effective user, at most 2 s, and reads the records.
    /// Creates the directory if it is missing.
    pub(crate) fn open(directory: &'d Path) -> Result<Self, LedgerError> {
        let user = geteuid().as_raw();
        let lock = lock(directory, user, OFlags::CREATE, LOCK_TIMEOUT)?;
        Self::read(directory, user, lock)
    }

    /// Opens the records of the other users whose lock is free. Returns none unless this process
    /// runs as root: any other user could stop a process that holds the lock of somebody else.
    pub(crate) fn open_others(directory: &'d Path) -> Result<Vec<Self>, LedgerError> {
        if !geteuid().is_root() {
            return Ok(Vec::new());
        }
        let others = users::<R>(directory)?.into_iter().filter(|user| *user != 0);
        let opened = others.filter_map(|user| {
            let lock = lock(directory, user, OFlags::empty(), Duration::ZERO);
            lock.and_then(|lock| Self::read(directory, user, lock)).ok()
        });
        Ok(opened.collect())
    }

    fn read(directory: &'d Path, user: u32, lock: OwnedFd) -> Result<Self, LedgerError> {
        let path = directory.join(file_of::<R>(user));
        let bytes = match read_file(directory, &path, user, MOST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(LedgerError::at(&path))?,
        };
        Ok(Self {
            directory,
            user,
            records: records_of(&bytes, &path),
            others: Seen::read(directory, Some(user))?,
            lock,
        })
    }

    /// Reads the records of the other users again.
    pub(crate) fn read_others(&mut self) -> Result<(), LedgerError> {
        self.others = Seen::read(self.directory, Some(self.user))?;
        Ok(())
    }

    /// Replaces the user's record file with the current records, or removes it if there are none.
    pub(crate) fn save(&self) -> Result<(), LedgerError> {
        let path = lock_of(self.directory, self.user);
        if !is_at(&self.lock, &path) {
            // Another process has taken it over, because this one was stopped.
            let waited = Duration::ZERO;
            return Err(LedgerError::Locked { path, waited });
        }
        let name = file_of::<R>(self.user);
        let target = self.directory.join(&name);
        if self.records.is_empty() {
            return remove(&target).map_err(LedgerError::at(&target));
        }
        let path = self.directory.join(format!("{name}.new"));
        self.write(&path).map_err(LedgerError::at(&path))?;
        fs::rename(&path, &target).map_err(LedgerError::at(&target))
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        for record in &self.records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        // The partial file of a killed process may belong to root.
        remove(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path, flags, FILE_MODE)?);
        share(self.directory, &file);
        if self.user != geteuid().as_raw() {
            // A file of root is accepted as well (`read_file`).
            let _ = fchown(&file, Some(Uid::from_raw(self.user)), None);
        }
        file.write_all(&text)
    }
}

/// Records of several users, read without a lock.
pub(crate) struct Seen<R> {
    pub(crate) records: Vec<R>,
    /// False if this process may not read the records of some user, or if there are too many. What
    /// these users own is unknown.
    pub(crate) is_complete: bool,
}

impl<R: Recorded> Seen<R> {
    /// Reads the records of all users of a directory but one. There are none if the directory is
    /// missing. Skips invalid files with a warning, so that no user stops others with one.
    pub(crate) fn read(directory: &Path, except: Option<u32>) -> Result<Self, LedgerError> {
        let users = users::<R>(directory)?;
        let mut seen = Self {
            records: Vec::new(),
            is_complete: users.len() <= MOST_USERS,
        };
        let mut left = MOST_BYTES_OF_OTHERS;
        for user in users.into_iter().take(MOST_USERS) {
            if Some(user) == except {
                continue;
            }
            let path = directory.join(file_of::<R>(user));
            match read_file(directory, &path, user, left.min(MOST_BYTES)) {
                Ok(bytes) => {
                    left = left.saturating_sub(bytes.len() as u64);
                    seen.records.extend(records_of::<R>(&bytes, &path));
                }
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    seen.is_complete &= error.kind() != io::ErrorKind::PermissionDenied;
                    warn!(path = %path.display(), %error, "skipped the records of another user");
                }
            }
        }
        seen.is_complete &= left > 0;
        Ok(seen)
    }

    /// Returns an error unless the records of all users are known.
    pub(crate) fn check_complete(&self, directory: &Path) -> Result<(), LedgerError> {
        match self.is_complete {
            true => Ok(()),
            false => Err(LedgerError::at(directory)(
                io::ErrorKind::PermissionDenied.into(),
            )),
        }
    }
}

/// Returns the name of a user's record file.
fn file_of<R: Recorded>(user: u32) -> String {
    format!("{}.{user}.jsonl", R::KIND)
}

/// Returns the user of a record file with this name.
fn user_of<R: Recorded>(name: &OsStr) -> Option<u32> {
    let rest = name.to_str()?.strip_prefix(R::KIND)?.strip_prefix('.')?;
    let user: u32 = rest.strip_suffix(".jsonl")?.parse().ok()?;
    // `+7` and `07` are numbers too, but no names of record files. The kernel has no user -1.
    (user != u32::MAX && file_of::<R>(user).as_str() == name).then_some(user)
}

/// Returns the users with a record file in a directory, in ascending order; none if the directory
/// is missing.
fn users<R: Recorded>(directory: &Path) -> Result<Vec<u32>, LedgerError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(LedgerError::at(directory))?,
    };
    let mut users = Vec::new();
    for entry in entries.take(MOST_ENTRIES) {
        let entry = entry.map_err(LedgerError::at(directory))?;
        users.extend(user_of::<R>(&entry.file_name()));
    }
    users.sort_unstable();
    Ok(users)
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

/// Reads a user's record file, which another user may have placed there: follows no symbolic link,
/// does not wait on a FIFO, and limits the length.
///
/// # Errors
///
/// Also if the file belongs to neither the user nor the owner of the directory, who could replace
/// any file in it.
fn read_file(directory: &Path, path: &Path, user: u32, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let owner = metadata.st_uid();
    if owner != user && owner != fs::metadata(directory)?.st_uid() {
        return Err(io::Error::other(format!(
            "belongs to user {owner}: expected user {user}"
        )));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a file if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Makes a new file readable for the group of a shared directory (set-group-ID), whatever the
/// umask. The records of a user that others cannot read protect nothing.
fn share(directory: &Path, file: impl AsFd) {
    let is_shared = fs::metadata(directory)
        .is_ok_and(|metadata| metadata.st_mode() & Mode::SGID.as_raw_mode() != 0);
    if is_shared {
        // Fails for the file of another user, who has done the same.
        let _ = fchmod(file, FILE_MODE);
    }
}

/// Opens and locks a user's lock file; `create` is `OFlags::CREATE` or empty. Holders keep the lock
/// for microseconds, so a long wait indicates a fault.
///
/// Another process's lock is taken over after `timeout` if that process is stopped: its file is
/// replaced, and it saves no records once it continues. Only the user can open the file, so no other
/// user can hold the lock.
///
/// # Errors
///
/// [`LedgerError::Locked`] if another process holds the lock for longer than `timeout`.
fn lock(
    directory: &Path,
    user: u32,
    create: OFlags,
    timeout: Duration,
) -> Result<OwnedFd, LedgerError> {
    let path = lock_of(directory, user);
    let fail = |source: Errno| LedgerError::at(&path)(source.into());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | create;
    let open = || -> Result<OwnedFd, LedgerError> {
        let mut opened = rustix::fs::open(&path, flags, LOCK_MODE);
        if matches!(opened, Err(Errno::NOENT)) && create.contains(OFlags::CREATE) {
            fs::create_dir_all(directory).map_err(LedgerError::at(directory))?;
            opened = rustix::fs::open(&path, flags, LOCK_MODE);
        }
        let file = opened.map_err(fail)?;
        // Earlier versions let the group of a shared directory read it. Fails for another's file.
        let _ = fchmod(&file, LOCK_MODE);
        Ok(file)
    };
    let mut file = open()?;
    let mut deadline = Instant::now() + timeout;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => return Ok(file),
            // Its last holder has removed it.
            Ok(()) => file = open()?,
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                thread::sleep(LOCK_RETRY);
            }
            Err(Errno::WOULDBLOCK)
                if create.contains(OFlags::CREATE) && is_holder_stopped(&file) =>
            {
                // Another waiter may have replaced the file.
                if is_at(&file, &path) {
                    warn!(path = %path.display(), "took the lock of a stopped process over");
                    remove(&path).map_err(LedgerError::at(&path))?;
                }
                (file, deadline) = (open()?, Instant::now() + timeout);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(LedgerError::Locked {
                    path,
                    waited: timeout,
                });
            }
            Err(error) => return Err(fail(error)),
        }
    }
}

/// Returns true if the process that has locked a file is stopped. A process of another PID namespace
/// is not found, and counts as running.
fn is_holder_stopped(file: &OwnedFd) -> bool {
    let holder = || -> Option<u32> {
        let stat = fstat(file).ok()?;
        // On btrfs and overlayfs the device here is not that of the file: the process has it open.
        let inode = stat.st_ino.to_string();
        let has_it = |pid: u32| {
            let opened = fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten();
            let mut opened = opened
                .flatten()
                .filter_map(|entry| fs::metadata(entry.path()).ok());
            let same = |found: fs::Metadata| {
                (found.st_dev(), found.st_ino()) == (stat.st_dev, stat.st_ino)
            };
            opened.any(same)
        };
        // `1: FLOCK  ADVISORY  WRITE 708 00:1a:5 0 EOF`; a waiting process has `->` behind the number.
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let mut found = locks.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, _, pid, at, ..] = words[..] else {
                return None;
            };
            let is_same = at.rsplit(':').next() == Some(&inode);
            is_same.then(|| pid.parse().ok())?
        });
        found.find(|pid| has_it(*pid))
    };
    let stat = holder().and_then(|pid| Stat::read(pid).ok()?);
    stat.is_some_and(|stat| stat.stopped)
}

fn lock_of(directory: &Path, user: u32) -> PathBuf {
    directory.join(format!("{user}.lock"))
}

/// Returns true if an open file has this path.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    let open = fstat(file);
    let there = fs::symlink_metadata(path);
    open.is_ok_and(|open| {
        there.is_ok_and(|there| (open.st_dev, open.st_ino) == (there.st_dev(), there.st_ino()))
    })
}

/// Maximum length of a record file that is read, in bytes: ten times that of the maximum number of
/// records.
const MOST_BYTES: u64 = 1 << 20;
/// Maximum total length of the other users' record files that are read, in bytes (picked by eye).
const MOST_BYTES_OF_OTHERS: u64 = 4 << 20;
/// Maximum number of users whose records are read: four times the maximum number of records.
const MOST_USERS: usize = 1024;
/// Maximum number of entries of a state directory that are looked at: a user has at most five.
const MOST_ENTRIES: usize = 8 * MOST_USERS;
/// Mode of the lock files.
const LOCK_MODE: Mode = Mode::from_bits_truncate(0o600);
/// Mode of the record files: readable by the group of a shared directory. Elsewhere it is
/// subject to the umask.
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
    fn a_directory_made_for_records_goes_with_the_last_of_them() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("state/nicstripe");
        for keeps in [true, false] {
            let tidy = Tidy::new(&directory);
            let mut ledger = Ledger::open(&directory).unwrap();
            ledger.records.extend(keeps.then(record));
            ledger.save().unwrap();
            drop(ledger);
            drop(tidy);
            assert_eq!(directory.exists(), keeps);
            let _ = fs::remove_dir_all(base.path().join("state"));
        }
        let existing = base.path();
        drop(Tidy::new(existing));
        assert!(existing.exists());
    }

    #[test]
    fn a_lock_that_its_holder_removes_locks_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = lock_of(directory.path(), 7);
        let take = || lock(directory.path(), 7, OFlags::CREATE, LOCK_TIMEOUT).unwrap();
        let first = take();
        thread::scope(|scope| {
            let waiting = scope.spawn(take);
            thread::sleep(Duration::from_millis(50));
            remove(&path).unwrap();
            drop(first);
            assert!(is_at(&waiting.join().unwrap(), &path));
        });
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
        fs::write(own_file(directory.path()), damaged).unwrap();
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
        let place = own_file(directory.path());
        let user = geteuid().as_raw();
        let is_refused = || {
            matches!(
                Ledger::<RouteRecord>::open(directory.path()).err(),
                Some(LedgerError::Io { .. })
            )
        };
        std::os::unix::fs::symlink("/proc/self/stat", &place).unwrap();
        assert!(is_refused());
        fs::remove_file(&place).unwrap();
        make_fifo(&place);
        assert!(is_refused());
        // Save goes through a temporary file, which then replaces the record file.
        Ledger {
            directory: directory.path(),
            user,
            records: vec![record()],
            others: Seen::read(directory.path(), Some(user)).unwrap(),
            lock: lock(directory.path(), user, OFlags::CREATE, LOCK_TIMEOUT).unwrap(),
        }
        .save()
        .unwrap();
        assert_eq!(seen(directory.path()), [record()]);
    }

    #[test]
    fn records_of_other_users_are_read_and_those_in_their_name_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let other = geteuid().as_raw() + 1;
        let place = directory.path().join(file_of::<RouteRecord>(other));
        let text = format!("{}\n", serde_json::to_string(&record()).unwrap());
        // The owner of the directory, which is this user, could replace any file in it.
        fs::write(&place, &text).unwrap();
        assert_eq!(seen(directory.path()), [record()]);
        let ledger = Ledger::<RouteRecord>::open(directory.path()).unwrap();
        assert_eq!(
            (ledger.records, ledger.others.records),
            (vec![], vec![record()])
        );

        // Only root can give a file away.
        if std::os::unix::fs::chown(&place, Some(other), None).is_ok() {
            assert_eq!(seen(directory.path()), [record()]);
            std::os::unix::fs::chown(&place, Some(other + 1), None).unwrap();
            assert_eq!(seen(directory.path()), []);
        }
        fs::remove_file(&place).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, &text).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
        assert_eq!(seen(directory.path()), []);
        fs::remove_file(&place).unwrap();
        make_fifo(&place);
        assert_eq!(seen(directory.path()), []);
        for name in [
            "routes.jsonl",
            "routes.+7.jsonl",
            "routes.07.jsonl",
            "routes.7.jsonl.new",
        ] {
            fs::write(directory.path().join(name), &text).unwrap();
        }
        assert_eq!(seen(directory.path()), []);
    }

    #[test]
    fn without_records_there_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        ledger.records.push(record());
        ledger.save().unwrap();
        assert!(own_file(directory.path()).exists());
        ledger.records.clear();
        ledger.save().unwrap();
        assert!(!own_file(directory.path()).exists());
        ledger.save().unwrap();
    }

    #[test]
    fn the_group_of_a_shared_directory_may_read_and_the_umask_does_not_count() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o2770)).unwrap();
        let place = directory.path().join("file");
        let file = File::create(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o600)).unwrap();
        share(directory.path(), &file);
        assert_eq!(
            file.metadata().unwrap().permissions().mode() & 0o7777,
            0o640
        );
    }

    fn own_file(directory: &Path) -> PathBuf {
        directory.join(file_of::<RouteRecord>(geteuid().as_raw()))
    }

    fn seen(directory: &Path) -> Vec<RouteRecord> {
        Seen::read(directory, None).unwrap().records
    }

    fn make_fifo(path: &Path) {
        let mode = Mode::RUSR | Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
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
    fn a_stopped_process_keeps_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = lock_of(directory.path(), geteuid().as_raw());
        let mut held = Ledger::<RouteRecord>::open(directory.path()).unwrap();
        let mode = fs::metadata(&path).unwrap().st_mode() & 0o777;
        assert_eq!(mode, 0o600, "nobody else may hold it");
        // A process that has lost the lock changes no records.
        fs::rename(&path, directory.path().join("old")).unwrap();
        drop(Ledger::<RouteRecord>::open(directory.path()).unwrap());
        held.records.push(record());
        assert!(matches!(held.save(), Err(LedgerError::Locked { .. })));
        drop(held);
        let mut command = std::process::Command::new("flock");
        command.args(["-x", "--no-fork"]).arg(&path);
        let mut holder = command.args(["sleep", "1000"]).spawn().unwrap();
        let id = Pid::from_child(&holder);
        let begun = Instant::now();
        while File::open(&path).unwrap().try_lock().is_ok() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it takes no lock"
            );
            thread::sleep(LOCK_RETRY);
        }
        let running = Ledger::<RouteRecord>::open(directory.path()).err();
        rustix::process::kill_process(id, rustix::process::Signal::STOP).unwrap();
        let stopped = Ledger::<RouteRecord>::open(directory.path());
        let saved = stopped.map(|mut ledger| {
            ledger.records.push(record());
            ledger.save()
        });
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(matches!(running, Some(LedgerError::Locked { .. })));
        saved.unwrap().unwrap();
        assert_eq!(seen(directory.path()), [record()]);
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
                dead: false,
                stopped: false,
            }
        );
        assert!(Stat::parse(&format!("17 (x) Z {rest}")).unwrap().dead);
        assert_eq!(Stat::parse("17 (x) S 1 2 3"), None);
        assert_eq!(Stat::parse(""), None);
    }
}

//! When a file that another program writes has ended.

use std::{
    fs::{File, Metadata},
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_link::ReadLease;
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use super::super::slices::Version;

/// File that may grow.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) file: Arc<File>,
    sign: Sign,
    /// Size and time at the latest look, and since when they are so.
    version: Version,
    since: Instant,
}

/// Sign by which the end is known.
#[derive(Debug)]
enum Sign {
    /// No program has it open for writing.
    Lease,
    /// A program that wrote to it has closed it.
    Closing(Closings),
    /// It has not grown for this time.
    Idle(Duration),
}

#[derive(Debug)]
pub(super) enum End {
    /// No program has it open for writing, or the lease reports it.
    Closed(ReadLease),
    /// It has been so for long enough.
    Quiet(Version),
}

impl Growth {
    /// Opens a file, whose end is when its writers close it, or after `idle` time without a change.
    pub(super) fn open(path: &Path, idle: Option<Duration>) -> io::Result<Self> {
        let file = File::open(path)?;
        let sign = match (idle, ReadLease::take(&file)) {
            (Some(idle), _) => Sign::Idle(idle),
            (None, Ok(_)) => Sign::Lease,
            // Another user's file, or a file system without leases.
            (None, Err(_)) => Sign::Closing(Closings::of(path)?),
        };
        Ok(Self {
            version: Version::of(&file.metadata()?)?,
            file: Arc::new(file),
            sign,
            since: Instant::now(),
        })
    }

    /// Returns true if only a closing from now on can be seen.
    pub(super) fn sees_closings_only(&self) -> bool {
        matches!(self.sign, Sign::Closing(_))
    }

    /// Returns the metadata now.
    pub(super) fn look(&mut self) -> io::Result<Metadata> {
        let found = self.file.metadata()?;
        if !self.version.is_of(&found) {
            (self.version, self.since) = (Version::of(&found)?, Instant::now());
        }
        Ok(found)
    }

    /// Returns the end, if the file has ended.
    pub(super) fn end(&mut self) -> io::Result<Option<End>> {
        self.look()?;
        let quiet = self.since.elapsed();
        let is_quiet = match &mut self.sign {
            Sign::Lease => return Ok(ReadLease::take(&self.file)?.map(End::Closed)),
            Sign::Closing(closings) => closings.any()? && quiet >= SETTLED,
            Sign::Idle(idle) => quiet >= *idle,
        };
        Ok(is_quiet.then_some(End::Quiet(self.version)))
    }

    /// Returns true if nothing has been written since the file ended.
    pub(super) fn has_still(&mut self, end: &End) -> io::Result<bool> {
        let found = self.look()?;
        Ok(match end {
            End::Closed(lease) => lease.is_held(),
            End::Quiet(version) => version.is_of(&found),
        })
    }
}

/// Closings of a file by programs that wrote to it.
#[derive(Debug)]
struct Closings {
    events: OwnedFd,
    has_one: bool,
}

impl Closings {
    fn of(path: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        inotify::add_watch(&events, path, WatchFlags::CLOSE_WRITE | WatchFlags::MODIFY)?;
        Ok(Self {
            events,
            has_one: false,
        })
    }

    /// Returns true if the latest event is a closing.
    fn any(&mut self) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&self.events, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => self.has_one = event.events().contains(ReadFlags::CLOSE_WRITE),
                Err(Errno::WOULDBLOCK) => return Ok(self.has_one),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Time after a closing in which another program would write.
const SETTLED: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use std::{io::Write as _, thread::sleep};

    use super::*;

    fn growing() -> (tempfile::TempDir, std::path::PathBuf, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let writer = File::create(&path).unwrap();
        (folder, path, writer)
    }

    #[test]
    fn a_file_ends_when_the_last_writer_closes_it_and_not_if_one_opens_it_again() {
        let (_folder, path, writer) = growing();
        let other = writer.try_clone().unwrap();
        let mut growth = Growth::open(&path, None).unwrap();
        assert!(growth.end().unwrap().is_none());
        drop(writer);
        assert!(growth.end().unwrap().is_none());
        drop(other);
        let end = growth.end().unwrap().unwrap();
        assert!(growth.has_still(&end).unwrap());
        let opening = std::thread::spawn(move || File::options().append(true).open(path).unwrap());
        let begun = Instant::now();
        while growth.has_still(&end).unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            sleep(Duration::from_millis(5));
        }
        drop(end);
        drop(opening.join().unwrap());
        assert!(growth.end().unwrap().is_some());
    }

    #[test]
    fn where_leases_are_not_a_closing_is_the_end() {
        let (_folder, path, mut writer) = growing();
        let mut closings = Closings::of(&path).unwrap();
        writer.write_all(b"a").unwrap();
        assert!(!closings.any().unwrap());
        drop(writer);
        assert!(closings.any().unwrap());
        let mut again = File::options().append(true).open(&path).unwrap();
        again.write_all(b"b").unwrap();
        assert!(!closings.any().unwrap());
    }

    #[test]
    fn a_file_that_does_not_grow_has_ended_after_its_idle_time() {
        let (_folder, path, mut writer) = growing();
        let mut growth = Growth::open(&path, Some(Duration::from_millis(50))).unwrap();
        assert!(growth.end().unwrap().is_none());
        sleep(Duration::from_millis(60));
        let end = growth.end().unwrap().unwrap();
        assert!(growth.has_still(&end).unwrap());
        writer.write_all(b"a").unwrap();
        assert!(!growth.has_still(&end).unwrap());
        assert!(growth.end().unwrap().is_none());
    }
}

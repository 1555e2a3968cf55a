//! Whether a program has a file open for writing.

use std::{fs::File, io, os::fd::AsRawFd as _};

/// Promise of the kernel about a file that no program has open for writing: it reports if one opens it
/// (fcntl(2), "Leases"). Such a program waits until the lease is dropped, or for
/// `/proc/sys/fs/lease-break-time`.
#[derive(Debug)]
pub struct ReadLease(File);

impl ReadLease {
    /// Takes a lease on a file that is open for reading only; `None` if a program has it open for writing.
    ///
    /// # Errors
    ///
    /// The file is another user's and this process lacks `CAP_LEASE`, or its file system has no leases.
    pub fn take(file: &File) -> io::Result<Option<Self>> {
        let file = file.try_clone()?;
        // By default ignored, unlike SIGIO, which would end the process.
        fcntl(&file, F_SETSIG, libc::SIGURG)?;
        match fcntl(&file, libc::F_SETLEASE, libc::F_RDLCK) {
            Ok(_) => Ok(Some(Self(file))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns true while no program has tried to open the file for writing.
    pub fn is_held(&self) -> bool {
        fcntl(&self.0, libc::F_GETLEASE, 0).is_ok_and(|held| held == libc::F_RDLCK)
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        // The kernel takes back a lease that cannot be dropped.
        let _ = fcntl(&self.0, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn fcntl(file: &File, command: i32, argument: i32) -> io::Result<i32> {
    // SAFETY: these commands take a number and touch no memory of this process.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

/// From asm-generic/fcntl.h, which all of Linux's architectures use here.
const F_SETSIG: i32 = 10;

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt as _};

    use super::*;

    #[test]
    fn a_lease_is_for_files_that_nobody_writes_and_tells_of_the_first_who_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(ReadLease::take(&reader).unwrap().is_none());
        drop(writer);
        let lease = ReadLease::take(&reader).unwrap().unwrap();
        assert!(lease.is_held());
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        let refused = options.open(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(!lease.is_held());
        drop(lease);
        options.open(&path).unwrap();
    }
}

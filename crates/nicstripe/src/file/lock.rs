//! Locks of files that one transfer writes.

use std::{
    collections::HashSet,
    fs::File,
    ops::Deref,
    os::fd::{AsFd, BorrowedFd},
    sync::LazyLock,
};

use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, flock, fstat},
    io::Errno,
};

use super::beneath::{Inode, inode_of};

/// Open file that no other transfer has locked. Dropping it unlocks it.
///
/// Where the file system has no locks, only transfers of this process exclude each other: two
/// daemons, or two machines, must not write to the same names there.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    _claim: Option<Claim>,
    process: u32,
}

impl Locked {
    /// Locks an open file.
    ///
    /// # Errors
    ///
    /// [`Errno::WOULDBLOCK`] if another transfer holds the lock.
    pub(super) fn new(file: File) -> rustix::io::Result<Self> {
        let claim = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                Some(Claim::new(inode_of(&fstat(&file)?)).ok_or(Errno::WOULDBLOCK)?)
            }
            locked => locked.map(|()| None)?,
        };
        Ok(Self {
            file,
            _claim: claim,
            process: std::process::id(),
        })
    }
}

/// A forked child shares the lock: closing the file here would leave it locked until the child ends.
impl Drop for Locked {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for Locked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Entry of an open file in the table of this process.
#[derive(Debug)]
struct Claim(Inode);

impl Claim {
    fn new(inode: Inode) -> Option<Self> {
        // A claim that is made is also dropped, so one is made only if the inode was free.
        let is_free = CLAIMED.lock().insert(inode);
        is_free.then(|| Self(inode))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().remove(&self.0);
    }
}

static CLAIMED: LazyLock<Mutex<HashSet<Inode>>> = LazyLock::new(Mutex::default);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_unlocked_for_others_that_have_the_same_description() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(path.path()).unwrap();
        let file = open();
        let inherited = file.try_clone().unwrap();
        let locked = Locked::new(file).unwrap();
        assert!(Locked::new(open()).is_err());
        drop(locked);
        assert!(Locked::new(open()).is_ok());
        drop(inherited);
    }

    #[test]
    fn a_file_is_claimed_once_until_it_is_released() {
        let (one, other) = ((u64::MAX, 1), (u64::MAX, 2));
        let claim = Claim::new(one).unwrap();
        assert!(Claim::new(one).is_none());
        assert!(Claim::new(other).is_some());
        drop(claim);
        assert!(Claim::new(one).is_some());
    }
}

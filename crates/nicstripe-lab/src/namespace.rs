//! A network namespace without a name, alive as long as one of its descriptors is.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

/// One network namespace. Clones share it; with the last of them, and the last process inside, the kernel removes it and all its interfaces.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Makes a namespace and moves the calling thread, and no other, into it.
    pub(crate) fn create_and_enter() -> io::Result<Self> {
        // SAFETY: the flags are NEWNET alone; only FILES would take descriptors from other threads.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = openat(CWD, c"/proc/thread-self/ns/net", flags, Mode::empty())?;
        Ok(Self(Arc::new(fd)))
    }

    /// Moves the calling thread into this namespace.
    ///
    /// One system call without allocation: may be called between fork and exec.
    pub(crate) fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// The descriptor, as netlink wants it in a message. Valid while `self` lives.
    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

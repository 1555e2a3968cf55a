//! Network namespace without a name, which exists only as long as a descriptor or a process refers
//! to it.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

use crate::error::LabError;

/// Descriptor of a network namespace, shared by clones. The kernel removes the namespace with all
/// its interfaces after the last clone is dropped and the last process inside has ended.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Creates a network namespace, and moves only the calling thread into it.
    pub(crate) fn create_and_enter() -> io::Result<Self> {
        // SAFETY: the only flag is NEWNET; only FILES would take descriptors from other threads.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = openat(CWD, c"/proc/thread-self/ns/net", flags, Mode::empty())?;
        Ok(Self(Arc::new(fd)))
    }

    /// Moves the calling thread into this namespace.
    ///
    /// One system call without allocation, so it is safe between fork and exec.
    pub(crate) fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.0.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }

    /// Returns the descriptor for use in a netlink message. It is valid while `self` exists.
    /// Moves the calling thread into this namespace of `host`.
    pub(crate) fn enter_host(&self, host: impl fmt::Display) -> Result<(), LabError> {
        self.enter().map_err(LabError::refused(format_args!(
            "enter the namespace of host {host}"
        )))
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

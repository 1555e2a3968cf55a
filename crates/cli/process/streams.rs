//! Unbuffered access to the standard streams.

use std::{fs::File, io, os::fd::AsFd};

/// Duplicates a standard stream, to bypass the buffer and lock of the standard library. A thread
/// that waits for the stream would hold the lock forever.
pub(crate) fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

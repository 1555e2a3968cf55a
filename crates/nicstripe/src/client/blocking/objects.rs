//! Files at the daemon that a program writes, reads and lists piece by piece.

use std::io::{self, SeekFrom};

use nicstripe_proto::Name;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use super::waiter::Waiter;
use crate::{
    client::{self, Entry, Stat},
    report::{Report, error::Error, event::Progress},
};

/// Open file at the daemon, like [`crate::ObjectReader`]; see [`Client::open`](super::Client::open).
#[derive(Debug)]
pub struct ObjectReader {
    pub(super) inner: client::ObjectReader,
    pub(super) waiter: Waiter,
}

impl ObjectReader {
    /// Returns the size of the file in bytes at the time it was opened.
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is a file, not a collection"
    )]
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// Returns the metadata of the file, like [`crate::ObjectReader::stat`].
    pub fn stat(&self) -> &Stat {
        self.inner.stat()
    }

    /// Returns the file offset of the next read, in bytes.
    pub fn position(&self) -> u64 {
        self.inner.position()
    }
}

impl io::Read for ObjectReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        io_call(&self.waiter, self.inner.read(into))
    }
}

impl io::Seek for ObjectReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        io_call(&self.waiter, self.inner.seek(to))
    }
}

/// File at the daemon that is being written, like [`crate::ObjectWriter`]; see
/// [`Client::create`](super::Client::create).
#[derive(Debug)]
pub struct ObjectWriter {
    pub(super) inner: client::ObjectWriter,
    pub(super) waiter: Waiter,
}

impl ObjectWriter {
    /// Completes the file, like [`crate::ObjectWriter::finish`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::ObjectWriter::finish`].
    pub fn finish(self) -> Result<Report, Error> {
        let Self { inner, waiter } = self;
        waiter.call(inner.finish())
    }

    /// Returns the progress of the transfer, like [`crate::ObjectWriter::progress`].
    pub fn progress(&self) -> Progress {
        self.inner.progress()
    }
}

/// `flush` has no effect at the daemon.
impl io::Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io_call(&self.waiter, self.inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io_call(&self.waiter, self.inner.flush())
    }
}

/// Listing of a directory, entry by entry; see [`Client::entries`](super::Client::entries). Ends after
/// an error.
#[derive(Debug)]
pub struct Entries {
    pub(super) inner: client::Entries,
    pub(super) waiter: Waiter,
    pub(super) has_failed: bool,
}

impl Entries {
    /// Begins behind a name, like [`Entries::after`](crate::Entries::after).
    pub fn after(mut self, name: &Name) -> Self {
        self.inner = self.inner.after(name);
        self
    }

    /// Limits the number of names, like [`Entries::at_most`](crate::Entries::at_most).
    pub fn at_most(mut self, names: u64) -> Self {
        self.inner = self.inner.at_most(names);
        self
    }

    /// Asks for hashes, like [`Entries::with_digests`](crate::Entries::with_digests).
    pub fn with_digests(mut self) -> Self {
        self.inner = self.inner.with_digests();
        self
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.waiter.call(self.inner.next());
        self.has_failed = next.is_err();
        next.transpose()
    }
}

/// Waits for a call whose error is that of a stream.
pub(super) fn io_call<T>(
    waiter: &Waiter,
    call: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    // Not cloned: an error of the call passes through as it is.
    let called = waiter.call(async { Ok(call.await) });
    called.unwrap_or_else(|error| Err(error.into()))
}

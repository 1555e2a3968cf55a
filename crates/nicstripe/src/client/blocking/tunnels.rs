//! Connections to services of the daemon, and from there.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};

use super::{objects::io_call, waiter::Waiter};
use crate::{client, report::error::Error, tunnel};

/// Connection through the daemon, like [`crate::Tunnel`]; see [`Client::dial`](super::Client::dial).
///
/// Its two directions can be [split](Self::split) among threads.
#[derive(Debug)]
pub struct Tunnel {
    reader: TunnelReader,
    writer: TunnelWriter,
}

impl Tunnel {
    pub(super) fn new(inner: tunnel::Tunnel, waiter: Waiter) -> Self {
        let (reader, writer) = tokio::io::split(inner);
        Self {
            reader: TunnelReader {
                inner: reader,
                waiter: waiter.clone(),
            },
            writer: TunnelWriter {
                inner: writer,
                waiter,
            },
        }
    }

    /// Returns the two directions, for two threads. The connection is closed when both are dropped.
    pub fn split(self) -> (TunnelReader, TunnelWriter) {
        (self.reader, self.writer)
    }

    /// Ends what is written. The other side may continue.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.writer.shutdown()
    }
}

impl io::Read for Tunnel {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

impl io::Write for Tunnel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Direction of a [`Tunnel`] that is read.
#[derive(Debug)]
pub struct TunnelReader {
    inner: ReadHalf<tunnel::Tunnel>,
    waiter: Waiter,
}

impl io::Read for TunnelReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        io_call(&self.waiter, self.inner.read(into))
    }
}

/// Direction of a [`Tunnel`] that is written.
#[derive(Debug)]
pub struct TunnelWriter {
    inner: WriteHalf<tunnel::Tunnel>,
    waiter: Waiter,
}

impl TunnelWriter {
    /// Ends what is written, like [`Tunnel::shutdown`].
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub fn shutdown(&mut self) -> io::Result<()> {
        io_call(&self.waiter, self.inner.shutdown())
    }
}

impl io::Write for TunnelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io_call(&self.waiter, self.inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io_call(&self.waiter, self.inner.flush())
    }
}

/// Listener at the daemon, like [`crate::Listener`]; see [`Client::listen`](super::Client::listen).
#[derive(Debug)]
pub struct Listener {
    pub(super) inner: client::Listener,
    pub(super) waiter: Waiter,
}

impl Listener {
    /// Returns the TCP port; 0 for a socket file.
    pub fn port(&self) -> u16 {
        self.inner.port()
    }

    /// Waits for the next connection, like [`crate::Listener::accept`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Listener::accept`].
    pub fn accept(&mut self) -> Result<Tunnel, Error> {
        let tunnel = self.waiter.call(self.inner.accept())?;
        Ok(Tunnel::new(tunnel, self.waiter.clone()))
    }
}

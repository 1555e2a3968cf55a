//! Connections on this machine that tunnels carry.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    task::{Context, Poll},
    time::Duration,
};

use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};

use crate::trust::DialTarget;

/// Connection on this machine that a [`Tunnel`](crate::Tunnel) may carry.
#[derive(Debug)]
#[non_exhaustive]
pub enum LocalStream {
    /// TCP connection.
    Tcp(TcpStream),
    /// Connection by a socket file.
    Unix(UnixStream),
}

impl LocalStream {
    /// Connects to a service from this machine. Waits as long as the kernel, the resolver and the
    /// service do.
    ///
    /// # Errors
    ///
    /// The host has no address, or the service cannot be reached.
    pub async fn connect(target: &DialTarget) -> io::Result<Self> {
        match target.socket_file() {
            Some(path) => Self::connect_to_file(path).await,
            None => TcpStream::connect(target.as_str()).await.map(Self::tcp),
        }
    }

    /// Connects to a socket file. Waits while the backlog of its program is full, which the kernel
    /// reports to a nonblocking socket at once.
    pub(super) async fn connect_to_file(path: &Path) -> io::Result<Self> {
        loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(BACKLOG_PAUSE).await;
                }
                connected => return connected.map(Self::Unix),
            }
        }
    }

    /// Wraps a TCP connection for interactive use: keystrokes must not wait for Nagle's algorithm.
    pub(super) fn tcp(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        Self::Tcp(stream)
    }

    /// Closes the connection with a reset. The program at a socket file sees an end instead, unless
    /// it has sent bytes that were not read.
    pub fn reset(self) {
        self.reset_at_close();
    }

    /// Makes closing the connection reset it. A failure is irrelevant.
    pub(super) fn reset_at_close(&self) {
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }

    pub(super) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    pub(super) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(into),
            Self::Unix(stream) => stream.try_read(into),
        }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}

impl AsFd for LocalStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl From<TcpStream> for LocalStream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<UnixStream> for LocalStream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

/// Pause between two attempts to connect to a program whose backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(10);

//! Transport below a TLS connection: a TCP connection, or one of a simulated network in tests.

use std::{
    fmt,
    io::{self, Read as _},
    net::Shutdown,
};

use socket2::SockRef;
use tokio::{
    io::{Interest, Ready},
    net::TcpStream,
};

#[cfg(test)]
use crate::wire::simulated::Connection;

pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(test)]
    Simulated(Connection),
}

impl From<TcpStream> for Socket {
    fn from(tcp: TcpStream) -> Self {
        Self::Tcp(tcp)
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(tcp) => tcp.fmt(f),
            #[cfg(test)]
            Self::Simulated(connection) => connection.fmt(f),
        }
    }
}

impl Socket {
    /// Waits until the socket is ready. Cancel safe.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Tcp(tcp) => tcp.ready(interest).await,
            #[cfg(test)]
            Self::Simulated(connection) => Ok(connection.ready(interest).await),
        }
    }

    /// Receives once. Returns the number of bytes, and true if no more are available; zero bytes
    /// and false at the end of the stream.
    pub(super) fn recv(&self, space: &mut [u8]) -> io::Result<(usize, bool)> {
        match self {
            Self::Tcp(tcp) => recv(tcp, space),
            #[cfg(test)]
            Self::Simulated(connection) => connection.recv(space),
        }
    }

    /// Sends once, and returns the number of bytes sent, which may be zero.
    pub(super) fn send(&self, pending: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => send(tcp, pending),
            #[cfg(test)]
            Self::Simulated(connection) => connection.send(pending),
        }
    }

    /// Sends FIN after all data.
    pub(super) fn shutdown(&self) {
        match self {
            // Fails only if the connection is already gone.
            Self::Tcp(tcp) => drop(SockRef::from(tcp).shutdown(Shutdown::Write)),
            #[cfg(test)]
            Self::Simulated(connection) => connection.close(),
        }
    }

    /// Returns the TCP connection, for its addresses, options and statistics. Reading or writing it
    /// breaks the TLS connection.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(tcp) => tcp,
            #[cfg(test)]
            Self::Simulated(connection) => panic!("{connection:?} is no TCP connection"),
        }
    }
}

fn recv(tcp: &TcpStream, space: &mut [u8]) -> io::Result<(usize, bool)> {
    let room = space.len();
    let mut received = 0;
    let result = tcp.try_io(Interest::READABLE, || {
        received = (&*SockRef::from(tcp)).read(space)?;
        // A short read emptied the queue. `WouldBlock` clears tokio's readiness, which saves a
        // call that would read nothing.
        if received > 0 && received < room {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(())
        }
    });
    match result {
        Ok(()) => Ok((received, false)),
        Err(error) if would_block(&error) => Ok((received, true)),
        Err(error) => Err(error),
    }
}

fn send(tcp: &TcpStream, pending: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    let result = tcp.try_io(Interest::WRITABLE, || {
        sent = SockRef::from(tcp).send_with_flags(pending, NO_SIGNAL)?;
        // A short write filled the queue; as in `recv`.
        if sent < pending.len() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(())
        }
    });
    match result {
        Err(error) if !would_block(&error) => Err(error),
        _ => Ok(sent),
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Send flag: a closed connection is an error, not a SIGPIPE to the embedding program.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NO_SIGNAL: i32 = rustix::net::SendFlags::NOSIGNAL.bits().cast_signed();
/// Empty send flags: on other systems the Rust runtime ignores SIGPIPE.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NO_SIGNAL: i32 = 0;

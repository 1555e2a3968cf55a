//! One connection as a program uses it.

use std::{
    cell::RefCell,
    fmt,
    future::poll_fn,
    io,
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use nicstripe_proto::tunnel::{Broken, ConnId, TargetRefusal};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::Trunk;

/// A connection to a TCP service at the peer, over all cables.
///
/// Bytes come in order, as over one TCP connection; a cable that is lost does not end it. Each way ends by itself: `shutdown` ends ours, and a
/// read of nothing is the end of theirs. Dropped before both have ended, it is reset. It lasts as long as the session of its
/// [`Client`](crate::Client): then reads and writes fail with `ConnectionReset`. What a peer has not read is at most 8 MiB.
pub struct Tunnel {
    trunk: Arc<Trunk>,
    conn: ConnId,
}

impl Tunnel {
    pub(super) fn new(trunk: Arc<Trunk>, conn: ConnId) -> Self {
        Self { trunk, conn }
    }

    /// Moves bytes both ways between this and a TCP connection until both ways have ended.
    ///
    /// # Errors
    ///
    /// One of the two was reset, and with that the other is as well.
    pub async fn join(self, tcp: TcpStream) -> io::Result<()> {
        let result = tokio::try_join!(self.send_from(&tcp), self.receive_into(&tcp));
        if result.is_err() {
            // Closing it so says to the program behind it what has happened. Where that fails there is nobody to tell.
            let _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
        }
        result.map(|_| ())
    }

    /// Ends without an error where the tunnel is gone: what has come may still be read, and the other way says how it ended.
    async fn send_from(&self, tcp: &TcpStream) -> io::Result<()> {
        loop {
            let Ok(room) = poll_fn(|context| self.trunk.poll_room(self.conn, context)).await else { return Ok(()) };
            let is_there = poll_fn(|context| match self.trunk.poll_gone(self.conn, context) {
                Poll::Ready(()) => Poll::Ready(Ok(false)),
                Poll::Pending => tcp.poll_read_ready(context).map_ok(|()| true),
            });
            if !is_there.await? {
                return Ok(());
            }
            let read: io::Result<usize> = with_scratch(|scratch| {
                let most = room.min(scratch.len());
                let read = tcp.try_read(&mut scratch[..most])?;
                // One that is gone is noticed in the next turn.
                let _ = self.trunk.push(self.conn, &scratch[..read]);
                Ok(read)
            });
            match read {
                Ok(0) => {
                    self.trunk.finish(self.conn);
                    return Ok(());
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    async fn receive_into(&self, tcp: &TcpStream) -> io::Result<()> {
        loop {
            let mut one = [0];
            if poll_fn(|context| self.trunk.poll_peek(self.conn, &mut one, context)).await.map_err(gone)? == 0 {
                // A program that has closed it does not care.
                let _ = SockRef::from(tcp).shutdown(Shutdown::Write);
                return Ok(());
            }
            tcp.writable().await?;
            let written: io::Result<usize> = with_scratch(|scratch| {
                let context = Context::from_waker(std::task::Waker::noop());
                let Poll::Ready(peeked) = self.trunk.poll_peek(self.conn, scratch, &context) else { return Ok(0) };
                let written = tcp.try_write(&scratch[..peeked.map_err(gone)?])?;
                self.trunk.consume(self.conn, written);
                Ok(written)
            });
            match written {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Daemon: what was asked for is there.
    pub(super) fn accept(&self) {
        self.trunk.accept(self.conn);
    }

    /// Daemon: what was asked for is not to be had.
    pub(super) fn refuse(&self, code: TargetRefusal, why: &str) {
        self.trunk.refuse(self.conn, code, why);
    }

    /// Waits until the peer, or the session, has given it up.
    pub(super) async fn gone(&self) {
        poll_fn(|context| self.trunk.poll_gone(self.conn, context)).await;
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let count = ready!(self.trunk.poll_peek(self.conn, buffer.initialize_unfilled(), context)).map_err(gone)?;
        self.trunk.consume(self.conn, count);
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(self.trunk.poll_room(self.conn, context)).map_err(gone)?;
        let count = room.min(bytes.len());
        self.trunk.push(self.conn, &bytes[..count]).map_err(gone)?;
        Poll::Ready(Ok(count))
    }

    /// What is written goes out at once.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.trunk.finish(self.conn);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.trunk.close(self.conn);
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("number", &self.conn.0).finish_non_exhaustive()
    }
}

fn gone(_: Broken) -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// Lends memory for one read or write: a thousand connections that wait have none.
fn with_scratch<T>(act: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
    }
    SCRATCH.with_borrow_mut(|scratch| act(scratch))
}

/// Bytes of one read or write: an eighth of a system call's time a byte less than with 8 KiB, and more gains little (picked by eye).
const SCRATCH_BYTES: usize = 64 << 10;

//! One tunnelled connection, as an asynchronous byte stream.

use std::{
    cell::RefCell,
    fmt,
    future::poll_fn,
    io,
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use nicstripe_proto::tunnel::{Broken, ConnId, TargetRefusal};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{local_stream::LocalStream, mux::TunnelMux};

/// Connection through the peer to a service, or from one to this machine, carried by all links of
/// the session.
///
/// Delivers bytes in order like one TCP connection, and survives the loss of a link. Each direction
/// ends separately: `shutdown` ends the local one, and a read of zero bytes is the end of the
/// remote one. Dropping the tunnel before both have ended resets it. When the session of its
/// [`Client`](crate::Client) ends, reads and writes fail with `ConnectionReset`. A write waits
/// while the peer has 8 MiB unread.
pub struct Tunnel {
    mux: Arc<TunnelMux>,
    conn: ConnId,
}

impl Tunnel {
    pub(super) fn new(mux: Arc<TunnelMux>, conn: ConnId) -> Self {
        Self { mux, conn }
    }

    /// Relays both directions between this tunnel and a connection on this machine until both have
    /// ended.
    ///
    /// # Errors
    ///
    /// One of the two was reset; the other is then [reset](LocalStream::reset), too.
    pub async fn join(self, local: impl Into<LocalStream>) -> io::Result<()> {
        let local = local.into();
        let result = tokio::try_join!(self.send_from(&local), self.receive_into(&local));
        if result.is_err() {
            local.reset_at_close();
        }
        result.map(|_| ())
    }

    /// Returns the multiplexer, which opens other tunnels of the same session.
    pub(crate) fn mux(&self) -> Arc<TunnelMux> {
        self.mux.clone()
    }

    /// Copies from the local connection to the tunnel until end of file. Returns `Ok` if the tunnel
    /// has ended: received data may still be readable, and the other direction reports the reason.
    async fn send_from(&self, local: &LocalStream) -> io::Result<()> {
        loop {
            let Ok(room) = poll_fn(|context| self.mux.poll_room(self.conn, context)).await else {
                return Ok(());
            };
            let is_there = poll_fn(|context| match self.mux.poll_gone(self.conn, context) {
                Poll::Ready(()) => Poll::Ready(Ok(false)),
                Poll::Pending => local.poll_read_ready(context).map_ok(|()| true),
            });
            if !is_there.await? {
                return Ok(());
            }
            let read: io::Result<usize> = with_scratch(|scratch| {
                let most = room.min(scratch.len());
                let read = local.try_read(&mut scratch[..most])?;
                // A vanished tunnel is detected in the next iteration.
                let _ = self.push(&scratch[..read]);
                Ok(read)
            });
            match read {
                Ok(0) => {
                    self.mux.with(|state| state.tunnels.finish(self.conn));
                    return Ok(());
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    async fn receive_into(&self, local: &LocalStream) -> io::Result<()> {
        loop {
            let mut one = [0];
            if poll_fn(|context| self.mux.poll_peek(self.conn, &mut one, context))
                .await
                .map_err(reset)?
                == 0
            {
                // Fails if the program has closed its connection.
                let _ = SockRef::from(local).shutdown(Shutdown::Write);
                return Ok(());
            }
            local.writable().await?;
            let written: io::Result<usize> = with_scratch(|scratch| {
                let context = Context::from_waker(std::task::Waker::noop());
                let Poll::Ready(peeked) = self.mux.poll_peek(self.conn, scratch, &context) else {
                    return Ok(0);
                };
                let written = local.try_write(&scratch[..peeked.map_err(reset)?])?;
                self.consume(written);
                Ok(written)
            });
            match written {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Daemon: reports to the peer that the tunnel is connected to its target.
    pub(super) fn accept(&self) {
        self.mux.with(|state| state.tunnels.accept(self.conn));
    }

    /// Daemon: rejects the tunnel, with the reason.
    pub(super) fn refuse(&self, code: TargetRefusal, why: &str) {
        self.mux
            .with(|state| state.tunnels.refuse(self.conn, code, why));
    }

    fn push(&self, bytes: &[u8]) -> Result<(), Broken> {
        self.mux.with(|state| state.tunnels.push(self.conn, bytes))
    }

    fn consume(&self, count: usize) {
        self.mux
            .with(|state| state.tunnels.consume(self.conn, count));
    }

    /// Waits until the peer or the session has ended the tunnel.
    pub(super) async fn ended(&self) {
        poll_fn(|context| self.mux.poll_gone(self.conn, context)).await;
    }

    /// Waits until the peer has ended its direction or the tunnel, or has sent anything.
    pub(super) async fn heard(&self) {
        let mut one = [0];
        let heard = poll_fn(|context| self.mux.poll_peek(self.conn, &mut one, context));
        // A reset is an end as well.
        let _ = heard.await;
    }

    /// Sends bytes as the window permits.
    pub(super) async fn send(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let room = poll_fn(|context| self.mux.poll_room(self.conn, context)).await?;
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            self.push(part)?;
            bytes = rest;
        }
        Ok(())
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let count = ready!(
            self.mux
                .poll_peek(self.conn, buffer.initialize_unfilled(), context)
        )
        .map_err(reset)?;
        self.consume(count);
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(self.mux.poll_room(self.conn, context)).map_err(reset)?;
        let count = room.min(bytes.len());
        self.push(&bytes[..count]).map_err(reset)?;
        Poll::Ready(Ok(count))
    }

    /// Returns immediately: `poll_write` already queues the bytes for sending.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.mux.with(|state| state.tunnels.finish(self.conn));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.mux.close(self.conn);
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel")
            .field("number", &self.conn.0)
            .finish_non_exhaustive()
    }
}

fn reset(_: Broken) -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// Runs `act` with a thread-local buffer for one read or write, so that idle connections hold no
/// memory.
fn with_scratch<T>(act: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
    }
    SCRATCH.with_borrow_mut(|scratch| act(scratch))
}

/// Size of the buffer for one read or write, in bytes. Needs one eighth of the system calls of 8
/// KiB; larger sizes gain little (picked by eye).
const SCRATCH_BYTES: usize = 64 << 10;

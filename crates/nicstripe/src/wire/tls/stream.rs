//! TLS over a socket: a TCP connection, or one of a simulated network in tests.

use std::{
    fmt,
    io::{self, IoSliceMut, Read as _},
    net::Shutdown,
    time::{Duration, Instant},
};

use socket2::SockRef;
use tokio::{
    io::{Interest, Ready},
    net::TcpStream,
    time::{timeout, timeout_at},
};

use super::{
    config::{ClientTls, ServerTls},
    error::TlsError,
    handshake::Received,
    pump::Tls,
    record::{MAX_RECORD, SendBuffer, record_len},
    room::Plaintext,
};
use crate::trust::PublicKey;
#[cfg(test)]
use crate::wire::simulated::Connection;

/// TLS connection over a socket, used by one task that both reads and writes.
///
/// ```text
/// loop {
///     select! {
///         ready = stream.ready(true, stream.queued() > 0) => {
///             // At most one recv of RECEIVE_BUFFER bytes.
///             if ready.is_readable() { stream.try_receive(sink)?; }
///             // At most one send of all queued bytes.
///             if ready.is_writable() { stream.try_flush()?; }
///         }
///         more = work.recv(), if stream.queued() < enough => {
///             stream.queue(&[header, body])?;
///             stream.try_flush()?;
///         }
///     }
/// }
/// ```
///
/// No `try_` method blocks, and each makes at most one system call. After an error the connection
/// is unusable; drop it.
pub(crate) struct TlsStream {
    socket: Socket,
    tls: Tls,
    /// Receive buffer, whose first `filled` bytes are received and not processed.
    received: Vec<u8>,
    filled: usize,
    /// True if the receive buffer may hold complete records.
    unprocessed: bool,
    /// True once the peer has sent `close_notify`.
    peer_closed: bool,
    sending: SendBuffer,
    /// Error of a send to a closed connection, after which nothing can be sent. The peer's last
    /// bytes may still be readable.
    cut: Option<io::Error>,
}

/// Result of one call of [`TlsStream::try_receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Number of bytes received from the kernel, including TLS overhead.
    pub(crate) received: usize,
    /// True once the peer has sent `close_notify`. Do not wait for read readiness afterwards.
    pub(crate) peer_closed: bool,
}

impl TlsStream {
    /// Runs the handshake as the connecting end.
    ///
    /// Afterwards the server's key is proved, but the server may not have checked the client's key
    /// yet. A rejection surfaces as [`TlsError::KeyRefused`] at the first receive;
    /// [`TlsError::ClosedAtKey`] means that the server did not check it. Not cancel safe: drop the
    /// connection.
    pub(crate) async fn connect(
        socket: impl Into<Socket>,
        tls: &ClientTls,
        deadline: Instant,
    ) -> Result<Self, TlsError> {
        let mut sending = SendBuffer::with_capacity(SEND_BUFFER);
        let tls = Tls::client(tls, &mut sending)?;
        Self::new(socket.into(), tls, sending)
            .handshake(deadline, std::future::ready(()))
            .await
    }

    /// Runs the handshake as the accepting end. Sends nothing before the peer has named the
    /// protocol of nicstripe. Not cancel safe: drop the connection.
    ///
    /// Awaits `turn` once the peer's first message has arrived, before it computes the answer,
    /// which is expensive.
    pub(crate) async fn accept(
        socket: impl Into<Socket>,
        tls: &ServerTls,
        deadline: Instant,
        turn: impl Future<Output = ()>,
    ) -> Result<Self, TlsError> {
        // Grows with the answer, if the peer gets one, and again once the peer is authenticated.
        let sending = SendBuffer::default();
        let tls = Tls::server(tls)?;
        Self::new(socket.into(), tls, sending)
            .handshake(deadline, turn)
            .await
    }

    fn new(socket: Socket, tls: Tls, sending: SendBuffer) -> Self {
        Self {
            socket,
            tls,
            received: vec![0; HANDSHAKE_BUFFER],
            filled: 0,
            unprocessed: false,
            peer_closed: false,
            sending,
            cut: None,
        }
    }

    /// Waits until bytes can be received (if `read`) or sent (if `write`); waits forever with
    /// neither. Cancel safe.
    pub(crate) async fn ready(&self, read: bool, write: bool) -> Result<Ready, TlsError> {
        if read && self.unprocessed {
            return Ok(Ready::READABLE);
        }
        let interest = match (read, write) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            (false, false) => std::future::pending().await,
        };
        self.socket
            .ready(interest)
            .await
            .map_err(|source| TlsError::Io {
                action: "wait for",
                source,
            })
    }

    /// Receives once, as much as is available and fits, and passes the plaintext of all complete
    /// records to `sink` in order.
    ///
    /// Answers of TLS itself are queued. An error of the sink ends the connection and is returned.
    /// Receiving nothing is not an error.
    pub(crate) fn try_receive<E: From<TlsError>>(
        &mut self,
        mut sink: impl Plaintext<E>,
    ) -> Result<Progress, E> {
        let received = match self.unprocessed || self.peer_closed {
            true => 0,
            false => self.recv(&mut sink)?,
        };
        if received > 0 || self.unprocessed {
            self.peer_closed = self.process(&mut sink)?.peer_closed;
        }
        Ok(Progress {
            received,
            peer_closed: self.peer_closed,
        })
    }

    /// Sets the number of received bytes from which the connection is ready;
    /// [`try_receive`](Self::try_receive) also receives fewer. Returns false if the system rejects
    /// the number.
    pub(crate) fn set_low_water(&self, bytes: u32) -> bool {
        match &self.socket {
            Socket::Tcp(tcp) => nicstripe_link::set_low_water(tcp, bytes).is_ok(),
            #[cfg(test)]
            Socket::Simulated(_) => false,
        }
    }

    /// Encrypts the concatenated slices, and appends them to the send queue.
    ///
    /// Accepts any length; use [`TlsStream::queued`] to limit the queue. Each call ends with a
    /// record, so each small call costs 22 bytes and a cipher start.
    ///
    /// # Errors
    ///
    /// This end has closed the connection, or the connection failed earlier.
    pub(crate) fn queue(&mut self, plaintext: &[&[u8]]) -> Result<(), TlsError> {
        #[cfg(test)]
        if let Some(changed) = self.socket.intercepted(plaintext) {
            return self.tls.send(&[&changed], &mut self.sending);
        }
        self.tls.send(plaintext, &mut self.sending)
    }

    /// Returns the number of encrypted bytes that wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.sending.len()
    }

    /// Returns the number of encrypted bytes sent or dropped since the start, including the
    /// handshake and TLS overhead.
    ///
    /// The last queued data has reached the kernel once this has grown by the value of
    /// [`TlsStream::queued`] right after queueing.
    pub(crate) fn total_sent(&self) -> u64 {
        self.sending.total_removed()
    }

    /// Sends once, as much as the kernel accepts, and returns the number of bytes sent.
    ///
    /// If the peer has closed the connection, the queue is dropped. [`TlsStream::try_receive`] then
    /// returns the error after the peer's last bytes.
    pub(crate) fn try_flush(&mut self) -> Result<usize, TlsError> {
        if self.cut.is_some() {
            self.sending.clear();
        }
        if self.sending.is_empty() {
            return Ok(0);
        }
        match self.socket.send(self.sending.pending()) {
            Ok(sent) => {
                self.sending.advance(sent);
                Ok(sent)
            }
            Err(error) if TlsError::is_hang_up(&error) => {
                self.sending.clear();
                self.cut = Some(error);
                Ok(0)
            }
            Err(source) => Err(TlsError::Io {
                action: "send to",
                source,
            }),
        }
    }

    /// Returns true if a send has found the connection closed by the peer; queued data is dropped.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Sends `close_notify` and everything queued, then waits for the peer to close; both until the
    /// deadline. Discards the data that the peer sends in the meantime.
    pub(crate) async fn finish(mut self, deadline: Instant) -> Result<(), TlsError> {
        self.tls.close(&mut self.sending)?;
        timeout_at(deadline.into(), self.flush())
            .await
            .map_err(|_| TlsError::TimedOut)??;
        self.socket.shutdown();
        let _ = timeout_at(deadline.into(), self.drain_until_close()).await;
        Ok(())
    }

    pub(crate) fn peer_key(&self) -> Result<PublicKey, TlsError> {
        self.tls
            .peer_key()
            .ok_or(TlsError::Unusable("it has failed before"))
    }

    /// Returns 32 secret bytes unique to this connection; see [`Tls::binding`].
    pub(crate) fn binding(&self) -> Result<[u8; 32], TlsError> {
        self.tls
            .binding()
            .ok_or(TlsError::Unusable("it has failed before"))
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the TCP connection, for its addresses, options and statistics. Reading or writing it
    /// breaks the TLS connection.
    pub(crate) fn tcp(&self) -> &TcpStream {
        self.socket.tcp()
    }

    async fn handshake(
        mut self,
        deadline: Instant,
        turn: impl Future<Output = ()>,
    ) -> Result<Self, TlsError> {
        let deadline = deadline.into();
        match timeout_at(deadline, self.shake_hands(turn)).await {
            Err(_) => Err(TlsError::TimedOut),
            Ok(Err(error)) => {
                // Best effort: the error matters more than delivering the alert.
                let _ = timeout_at(deadline, timeout(LINGER, self.part())).await;
                Err(error)
            }
            Ok(Ok(())) => Ok(self),
        }
    }

    async fn shake_hands(&mut self, turn: impl Future<Output = ()>) -> Result<(), TlsError> {
        let mut turn = Some(turn);
        loop {
            self.flush().await?;
            self.ready(true, false).await?;
            let received = self.recv(&mut discard)?;
            if self.has_record()
                && let Some(turn) = turn.take()
            {
                turn.await;
            }
            if received > 0 && self.process(&mut discard)?.open {
                break;
            }
        }
        self.grow();
        self.flush().await
    }

    /// Returns true if the receive buffer starts with a complete record, of any content.
    fn has_record(&self) -> bool {
        let received = &self.received[..self.filled];
        matches!(record_len(received), Ok(Some(len)) if len <= received.len())
    }

    /// Sends the queued bytes and FIN, then waits until the peer closes the connection. Does
    /// nothing if the queue is empty.
    async fn part(&mut self) -> Result<(), TlsError> {
        if self.sending.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        self.socket.shutdown();
        self.drain_until_close().await
    }

    /// Discards received bytes until the peer closes. Closing a socket with unread bytes sends a
    /// reset, and the peer's kernel then drops the bytes that its program has not read.
    async fn drain_until_close(&mut self) -> Result<(), TlsError> {
        loop {
            // Bytes received right after the handshake are already in the buffer; they say nothing
            // about the socket.
            (self.filled, self.unprocessed) = (0, false);
            self.ready(true, false).await?;
            self.recv(&mut discard)?;
        }
    }

    /// Allocates the full receive buffer once the handshake is complete.
    fn grow(&mut self) {
        let mut received = vec![0; RECEIVE_BUFFER];
        received[..self.filled].copy_from_slice(&self.received[..self.filled]);
        self.received = received;
        self.unprocessed = self.filled > 0;
    }

    /// Sends all queued bytes.
    pub(crate) async fn flush(&mut self) -> Result<(), TlsError> {
        while !self.sending.is_empty() {
            self.ready(false, true).await?;
            self.try_flush()?;
        }
        Ok(())
    }

    fn process<E: From<TlsError>>(&mut self, sink: &mut impl Plaintext<E>) -> Result<Received, E> {
        let done = self
            .tls
            .receive(&mut self.received[..self.filled], &mut self.sending, sink)?;
        // Usually less than one record is left, half of one on average.
        self.received.copy_within(done.discard..self.filled, 0);
        self.filled -= done.discard;
        self.unprocessed = false;
        Ok(done)
    }

    /// Receives once, if possible to the place of the plaintext, and returns the number of
    /// bytes.
    fn recv<E>(&mut self, sink: &mut impl Plaintext<E>) -> Result<usize, TlsError> {
        let mut rest = &mut self.received[self.filled..];
        let space = match self.filled {
            0 => self.tls.space(sink),
            _ => &mut [],
        };
        if !space.is_empty() {
            // Behind the space a frame begins, and maybe the next room.
            rest = &mut rest[..MAX_RECORD];
        }
        if rest.is_empty() {
            // After the handshake any record fits.
            return Err(TlsError::Unexpected(
                "a handshake message longer than 4 KiB",
            ));
        }
        let in_space = space.len();
        match self
            .socket
            .recv(&mut [IoSliceMut::new(space), IoSliceMut::new(rest)])
        {
            Ok((0, false)) => Err(self.on_end(None)),
            Ok((received, _)) => {
                let in_space = received.min(in_space);
                self.tls.received_in_space(in_space);
                self.filled += received - in_space;
                Ok(received)
            }
            Err(error) if TlsError::is_hang_up(&error) => Err(self.on_end(Some(error))),
            Err(source) => Err(TlsError::Io {
                action: "receive from",
                source,
            }),
        }
    }

    /// Returns the error for a connection that the peer ended, by FIN or by `reset`.
    fn on_end(&mut self, reset: Option<io::Error>) -> TlsError {
        let reset = reset.or_else(|| self.cut.take());
        match (self.tls.on_end(), reset) {
            (TlsError::ClosedAtKey(_), reset) => TlsError::ClosedAtKey(reset),
            (_, Some(source)) => TlsError::Io {
                action: "receive from",
                source,
            },
            (error, None) => error,
        }
    }
}

/// Transport below a TLS connection: a TCP connection, or one of a simulated network in tests.
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
    async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Tcp(tcp) => tcp.ready(interest).await,
            #[cfg(test)]
            Self::Simulated(connection) => Ok(connection.ready(interest).await),
        }
    }

    /// Receives once. Returns the number of bytes, and true if no more are available; zero bytes
    /// and false at the end of the stream.
    fn recv(&self, space: &mut [IoSliceMut<'_>]) -> io::Result<(usize, bool)> {
        match self {
            Self::Tcp(tcp) => recv(tcp, space),
            #[cfg(test)]
            Self::Simulated(connection) => connection.recv(space),
        }
    }

    /// Sends once, and returns the number of bytes sent, which may be zero.
    fn send(&self, pending: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => send(tcp, pending),
            #[cfg(test)]
            Self::Simulated(connection) => connection.send(pending),
        }
    }

    /// Returns the plaintext to send in place of this, if a test intercepts it.
    #[cfg(test)]
    fn intercepted(&self, plaintext: &[&[u8]]) -> Option<Vec<u8>> {
        match self {
            Self::Tcp(_) => None,
            Self::Simulated(connection) => connection.intercepted(plaintext),
        }
    }

    /// Sends FIN after all data.
    fn shutdown(&self) {
        match self {
            // Fails only if the connection is already gone.
            Self::Tcp(tcp) => drop(SockRef::from(tcp).shutdown(Shutdown::Write)),
            #[cfg(test)]
            Self::Simulated(connection) => connection.close(),
        }
    }

    /// Returns the TCP connection, for its addresses, options and statistics. Reading or writing it
    /// breaks the TLS connection.
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(tcp) => tcp,
            #[cfg(test)]
            Self::Simulated(connection) => panic!("{connection:?} is no TCP connection"),
        }
    }
}

fn discard(_: &[u8]) -> Result<(), TlsError> {
    Ok(())
}

fn recv(tcp: &TcpStream, space: &mut [IoSliceMut<'_>]) -> io::Result<(usize, bool)> {
    let room = space.iter().map(|slice| slice.len()).sum();
    let (mut received, mut is_ready) = (0, false);
    let result = tcp.try_io(Interest::READABLE, || {
        is_ready = true;
        received = (&*SockRef::from(tcp)).read_vectored(space)?;
        // A short read emptied the queue. `WouldBlock` clears tokio's readiness, which saves a
        // call that would read nothing.
        if received > 0 && received < room {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(())
        }
    });
    // Below its low water the socket is not ready, and may have bytes.
    let result = match is_ready {
        true => result,
        false => (&*SockRef::from(tcp))
            .read_vectored(space)
            .map(|some| received = some),
    };
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

/// Maximum number of bytes per recv call. On loopback, 64 KiB to 1 MiB cost the same within the
/// noise; this size and its plaintext stay in cache.
pub(super) const RECEIVE_BUFFER: usize = 256 * 1024;
const _: () = assert!(RECEIVE_BUFFER > MAX_RECORD, "any record fits");
/// Initial capacity of the send queue in bytes: two frames of maximal length.
pub(super) const SEND_BUFFER: usize = 576 * 1024;
/// Size of the receive buffer in bytes during the handshake. The longest handshake message of
/// either end has about 1.5 KB.
const HANDSHAKE_BUFFER: usize = 4 * 1024;
/// Maximum wait until a rejected peer has read the alert and closed the connection.
const LINGER: Duration = Duration::from_millis(500);

//! TLS over one TCP connection of tokio.

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::buffer::SendBuffer;
use super::config::{ClientTls, ServerTls};
use super::error::TlsError;
use super::pump::{Received, Tls};
use super::record::{MAX_RECORD, record_len};
use crate::trust::PublicKey;

/// One encrypted connection, for one task that both reads and writes.
///
/// ```text
/// loop {
///     select! {
///         ready = stream.ready(true, stream.queued() > 0) => {
///             if ready.is_readable() { stream.try_receive(sink)?; }    // at most one recv of RECEIVE_BUFFER bytes
///             if ready.is_writable() { stream.try_flush()?; }          // at most one send of all that waits
///         }
///         more = work.recv(), if stream.queued() < enough => { stream.queue(&[header, body])?; stream.try_flush()?; }
///     }
/// }
/// ```
///
/// None of the `try_` methods blocks, and each makes at most one system call. After an error the connection is dead; drop it.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    tls: Tls,
    /// Received bytes stand at the front, `filled` of them.
    received: Vec<u8>,
    filled: usize,
    /// Whether the bytes received may hold complete records that nobody has looked at.
    unprocessed: bool,
    /// Whether the peer has said its last word.
    peer_closed: bool,
    sending: SendBuffer,
    /// Why nothing can be sent any more; what the peer said last may still be there to read.
    cut: Option<io::Error>,
}

/// What one [`TlsStream::try_receive`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes the kernel gave, headers and all.
    pub(crate) received: usize,
    /// Bytes the sink got.
    pub(crate) plaintext: usize,
    /// Whether the kernel had no more at that moment.
    pub(crate) drained: bool,
    /// Whether the peer has said that it will send no more. From then on there is nothing to wait for: do not ask for readiness to read.
    pub(crate) peer_closed: bool,
}

impl TlsStream {
    /// Does the handshake as the connecting end.
    ///
    /// Afterwards the server's key is proved, but the server may not have judged ours yet. It refuses us with [`TlsError::KeyRefused`] at the
    /// first attempt to receive; [`TlsError::ClosedAtKey`] means that it did not judge. Not cancel safe: drop the connection.
    pub(crate) async fn connect(tcp: TcpStream, tls: &ClientTls, deadline: Instant) -> Result<Self, TlsError> {
        let mut sending = SendBuffer::with_capacity(SEND_BUFFER);
        let tls = Tls::client(tls, &mut sending)?;
        Self::new(tcp, tls, sending).handshake(deadline, std::future::ready(())).await
    }

    /// Does the handshake as the accepting end. Nothing is sent before the peer has named our protocol. Not cancel safe: drop the connection.
    ///
    /// When the peer's first message is there, `turn` is awaited before it is answered, which is what costs.
    pub(crate) async fn accept(
        tcp: TcpStream,
        tls: &ServerTls,
        deadline: Instant,
        turn: impl Future<Output = ()>,
    ) -> Result<Self, TlsError> {
        // Grows with the answer, if the peer gets one, and once more when it is known.
        let sending = SendBuffer::default();
        let tls = Tls::server(tls)?;
        Self::new(tcp, tls, sending).handshake(deadline, turn).await
    }

    fn new(tcp: TcpStream, tls: Tls, sending: SendBuffer) -> Self {
        Self { tcp, tls, received: vec![0; HANDSHAKE_BUFFER], filled: 0, unprocessed: false, peer_closed: false, sending, cut: None }
    }

    /// Waits until there is something to receive (if `read`) or room to send (if `write`); with neither, for ever. Cancel safe.
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
        self.tcp.ready(interest).await.map_err(|source| TlsError::Io { action: "wait for", source })
    }

    /// Receives once, as much as there is and fits, and gives the plaintext of all complete records to `sink`, in order.
    ///
    /// The slices are at most 16 KiB and valid during the call. Answers that TLS itself gives are queued. An error of the sink ends the
    /// connection and is returned. Receiving nothing is no error.
    pub(crate) fn try_receive<E: From<TlsError>>(&mut self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<Progress, E> {
        let (received, drained) = match self.unprocessed {
            true => (0, false),
            false if self.peer_closed => (0, true),
            false => self.recv()?,
        };
        let mut progress = Progress { received, plaintext: 0, drained, peer_closed: false };
        if received > 0 || self.unprocessed {
            let done = self.process(&mut sink)?;
            progress.plaintext = done.plaintext;
            self.peer_closed = done.peer_closed;
        }
        progress.peer_closed = self.peer_closed;
        Ok(progress)
    }

    /// Encrypts the slices, one after the other, as one run of bytes, behind what waits to be sent.
    ///
    /// Takes everything whatever its length; [`TlsStream::queued`] tells when to stop. Records end where the call
    /// does, so calls with little plaintext cost 22 bytes and a cipher's start each. Errors: this end has closed.
    pub(crate) fn queue(&mut self, plaintext: &[&[u8]]) -> Result<(), TlsError> {
        self.tls.send(plaintext, &mut self.sending)
    }

    /// Returns how many encrypted bytes wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.sending.len()
    }

    /// Returns how many encrypted bytes were sent or dropped since the start, the handshake and what TLS itself says included.
    ///
    /// What was queued last is with the kernel as soon as this has grown by what [`TlsStream::queued`] was right after.
    pub(crate) fn total_sent(&self) -> u64 {
        self.sending.total_gone()
    }

    /// Sends once, as much as the kernel takes, and returns how much that was.
    ///
    /// If the peer has hung up, what waits is dropped, and [`TlsStream::try_receive`] tells why after the peer's last words.
    pub(crate) fn try_flush(&mut self) -> Result<usize, TlsError> {
        if self.cut.is_some() {
            self.sending.clear();
        }
        if self.sending.is_empty() {
            return Ok(0);
        }
        match self.send() {
            Ok(sent) => {
                self.sending.advance(sent);
                Ok(sent)
            }
            Err(error) if TlsError::is_hang_up(&error) => {
                self.sending.clear();
                self.cut = Some(error);
                Ok(0)
            }
            Err(source) => Err(TlsError::Io { action: "send to", source }),
        }
    }

    /// Whether the peer has hung up, as far as sending has found out: what is queued goes nowhere.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Says that nothing more will be sent, and sends that and all that waits; then waits for the peer to hang up. Both until the deadline.
    /// What the peer sends meanwhile goes nowhere.
    pub(crate) async fn finish(mut self, deadline: Instant) -> Result<(), TlsError> {
        self.tls.close(&mut self.sending)?;
        timeout_at(deadline.into(), self.flush()).await.map_err(|_| TlsError::TimedOut)??;
        self.shutdown();
        let _ = timeout_at(deadline.into(), self.hear_out()).await;
        Ok(())
    }

    /// Returns the peer's proved key.
    pub(crate) fn peer_key(&self) -> Result<PublicKey, TlsError> {
        self.tls.peer_key().ok_or(TlsError::Unusable("it has failed before"))
    }

    /// Returns 32 secret bytes that belong to this connection alone; see [`Tls::binding`].
    #[cfg_attr(not(test), expect(dead_code, reason = "pairing will bind its exchange to this"))]
    pub(crate) fn binding(&self) -> Result<[u8; 32], TlsError> {
        self.tls.binding().ok_or(TlsError::Unusable("it has failed before"))
    }

    /// Returns the TCP connection, for its addresses, options and statistics. Reading or writing it breaks this one.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    async fn handshake(mut self, deadline: Instant, turn: impl Future<Output = ()>) -> Result<Self, TlsError> {
        let deadline = deadline.into();
        match timeout_at(deadline, self.shake_hands(turn)).await {
            Err(_) => Err(TlsError::TimedOut),
            Ok(Err(error)) => {
                // The error is worth more than whether the peer hears of it.
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
            let (received, _) = self.recv()?;
            if self.has_record()
                && let Some(turn) = turn.take()
            {
                turn.await;
            }
            if received > 0 && self.process(&mut |_| Ok::<(), TlsError>(()))?.open {
                break;
            }
        }
        self.grow();
        self.flush().await
    }

    /// Tells whether a whole record was received, whatever is in it.
    fn has_record(&self) -> bool {
        let received = &self.received[..self.filled];
        matches!(record_len(received), Ok(Some(len)) if len <= received.len())
    }

    /// Sends the last words, then waits for the peer to hang up.
    async fn part(&mut self) -> Result<(), TlsError> {
        if self.sending.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        self.shutdown();
        self.hear_out().await
    }

    /// Reads what still comes, until the peer hangs up: closing with unread bytes would be a reset, at which the peer's kernel forgets the last
    /// words that its program has not read yet.
    async fn hear_out(&mut self) -> Result<(), TlsError> {
        loop {
            // What came right behind the handshake is read already, and says nothing of the socket.
            (self.filled, self.unprocessed) = (0, false);
            self.ready(true, false).await?;
            self.recv()?;
        }
    }

    /// From here on there is traffic.
    fn grow(&mut self) {
        let mut received = vec![0; RECEIVE_BUFFER];
        received[..self.filled].copy_from_slice(&self.received[..self.filled]);
        self.received = received;
        self.unprocessed = self.filled > 0;
    }

    async fn flush(&mut self) -> Result<(), TlsError> {
        while !self.sending.is_empty() {
            self.ready(false, true).await?;
            self.try_flush()?;
        }
        Ok(())
    }

    fn shutdown(&self) {
        // It fails only if the connection is gone already.
        let _ = SockRef::from(&self.tcp).shutdown(Shutdown::Write);
    }

    fn process<E: From<TlsError>>(&mut self, sink: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<Received, E> {
        let done = self.tls.receive(&mut self.received[..self.filled], &mut self.sending, sink)?;
        // Less than one record is left, most of the time, and half of one on average.
        self.received.copy_within(done.discard..self.filled, 0);
        self.filled -= done.discard;
        self.unprocessed = false;
        Ok(done)
    }

    /// Receives once; returns how much, and whether the kernel had no more.
    fn recv(&mut self) -> Result<(usize, bool), TlsError> {
        let space = &mut self.received[self.filled..];
        if space.is_empty() {
            // Once the handshake is done, any record fits.
            return Err(TlsError::Unexpected("a handshake message longer than 4 KiB"));
        }
        let room = space.len();
        let mut received = 0;
        let result = self.tcp.try_io(Interest::READABLE, || {
            received = (&*SockRef::from(&self.tcp)).read(space)?;
            // A short read emptied the queue. Saying so to tokio saves the next call, which would find nothing.
            if received > 0 && received < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        self.filled += received;
        match result {
            Ok(()) if received == 0 => Err(self.on_end(None)),
            Ok(()) => Ok((received, false)),
            Err(error) if would_block(&error) => Ok((received, true)),
            Err(error) if TlsError::is_hang_up(&error) => Err(self.on_end(Some(error))),
            Err(source) => Err(TlsError::Io { action: "receive from", source }),
        }
    }

    fn send(&self) -> io::Result<usize> {
        let pending = self.sending.pending();
        let mut sent = 0;
        let result = self.tcp.try_io(Interest::WRITABLE, || {
            sent = SockRef::from(&self.tcp).send_with_flags(pending, NO_SIGNAL)?;
            // A short write filled the queue; as in `recv`.
            if sent < pending.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match result {
            Err(error) if !would_block(&error) => Err(error),
            _ => Ok(sent),
        }
    }

    /// Says what it means that the peer's bytes end here.
    fn on_end(&mut self, reset: Option<io::Error>) -> TlsError {
        let reset = reset.or_else(|| self.cut.take());
        match (self.tls.on_end(), reset) {
            (TlsError::ClosedAtKey(_), reset) => TlsError::ClosedAtKey(reset),
            (_, Some(source)) => TlsError::Io { action: "receive from", source },
            (error, None) => error,
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Most bytes one recv takes. On loopback, 64 KiB to 1 MiB cost the same within the noise; this much and what is decrypted stays in cache.
pub(super) const RECEIVE_BUFFER: usize = 256 * 1024;
const _: () = assert!(RECEIVE_BUFFER > MAX_RECORD, "any record fits");
/// Bytes that can wait to be sent before the buffer grows: two frames of the greatest length.
pub(super) const SEND_BUFFER: usize = 576 * 1024;
/// Bytes kept for a peer that has not proved who it is. Its longest message, the ClientHello, has about 1.5 KB; so has the server's.
const HANDSHAKE_BUFFER: usize = 4 * 1024;
/// How long to wait for a refused peer to read why.
const LINGER: Duration = Duration::from_millis(500);

/// A peer that hung up is an error here, not a signal to whatever program embeds this.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NO_SIGNAL: i32 = rustix::net::SendFlags::NOSIGNAL.bits().cast_signed();
/// Where there is no flag for it, the Rust runtime has the signal ignored.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NO_SIGNAL: i32 = 0;

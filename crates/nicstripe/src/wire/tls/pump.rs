//! TLS of one connection without I/O.

use rustls::{AlertDescription, ContentType};

use super::config::{ClientTls, ServerTls};
use super::error::TlsError;
use super::handshake::{Established, Handshake, Received};
use super::record::{
    HEADER_LEN, MAX_PLAINTEXT, RECORD_OVERHEAD, RecordError, SendBuffer, record_len,
};
use super::room::{Opened, Placed, Plaintext};
use crate::trust::PublicKey;

/// TLS state of one end of a connection: decrypts received bytes and encrypts bytes to send.
///
/// The caller owns the buffers. [`Tls::receive`] decrypts in the receive buffer, or in the room where
/// the plaintext belongs; [`Tls::send`] encrypts into the send buffer. After an error the connection
/// is unusable and every further call fails. The `out` of the failed call may hold an alert, which
/// should still be sent.
///
/// Each sender renews its key before the usage limit, without action by the caller.
pub(crate) struct Tls {
    state: Progress,
    is_client: bool,
}

enum Progress {
    Handshake(Handshake),
    Open(Box<Open>),
    /// Unusable after an error: every further call fails.
    Failed,
}

struct Open {
    keys: Established,
    renew_after: u64,
    /// True once the peer has sent anything under the new keys. This proves to a client that its
    /// key was accepted.
    has_received: bool,
    /// Number of consecutive records without data, limited by [`MAX_FRUITLESS`]: bounds the cost of
    /// a peer that sends no data.
    fruitless: u32,
    /// Position of the end of the last key update sent, in bytes queued since the start.
    renewal_ends: u64,
    peer_closed: bool,
    closed: bool,
    is_client: bool,
    placed: Placed,
}

impl Tls {
    /// Starts a handshake as the connecting end; writes the first message to `out`.
    pub(crate) fn client(tls: &ClientTls, out: &mut SendBuffer) -> Result<Self, TlsError> {
        Ok(Self {
            state: Progress::Handshake(Handshake::client(tls, out)?),
            is_client: true,
        })
    }

    /// Starts a handshake as the accepting end, which waits for the first message.
    pub(crate) fn server(tls: &ServerTls) -> Result<Self, TlsError> {
        Ok(Self {
            state: Progress::Handshake(Handshake::server(tls)?),
            is_client: false,
        })
    }

    /// Processes all complete records in `received`, or those up to the end of the handshake; the
    /// bytes behind it need another call.
    ///
    /// Passes the plaintext of each record to `sink` in order. Writes answers (handshake, key
    /// updates, alerts) to `out`. An error of the sink ends the connection and is returned.
    pub(crate) fn receive<E: From<TlsError>>(
        &mut self,
        received: &mut [u8],
        out: &mut SendBuffer,
        sink: &mut impl Plaintext<E>,
    ) -> Result<Received, E> {
        let result = self.receive_inner(received, out, sink);
        if result.is_err() {
            self.state = Progress::Failed;
        }
        result
    }

    fn receive_inner<E: From<TlsError>>(
        &mut self,
        received: &mut [u8],
        out: &mut SendBuffer,
        sink: &mut impl Plaintext<E>,
    ) -> Result<Received, E> {
        if let Progress::Handshake(handshake) = &mut self.state {
            let received = handshake.receive(received, out)?;
            if received.open {
                self.establish()?;
            }
            return Ok(received);
        }
        self.open()?.receive(received, out, sink)
    }

    /// Returns the space for the next received bytes, if it is known where their plaintext belongs;
    /// otherwise nothing. [`received_in_space`](Self::received_in_space) follows.
    pub(crate) fn space<'a, E>(&self, sink: &'a mut impl Plaintext<E>) -> &'a mut [u8] {
        match &self.state {
            Progress::Open(open) if !open.placed.is_aside() && !open.peer_closed => sink
                .room()
                .map(|room| open.placed.space(room))
                .unwrap_or_default(),
            _ => &mut [],
        }
    }

    /// Takes note that the next `len` bytes were received into the space.
    pub(crate) fn received_in_space(&mut self, len: usize) {
        if let Progress::Open(open) = &mut self.state {
            open.placed.received(len);
        }
    }

    /// Encrypts the concatenated slices, and appends the records to `out`.
    ///
    /// Copies plaintext only if a record spans two slices.
    ///
    /// # Errors
    ///
    /// The handshake is not complete, or this end has closed the connection.
    pub(crate) fn send(
        &mut self,
        plaintext: &[&[u8]],
        out: &mut SendBuffer,
    ) -> Result<(), TlsError> {
        let open = self.open()?;
        if open.closed {
            return Err(TlsError::Unusable("closed by this end"));
        }
        open.send(plaintext, out)
    }

    /// Sends `close_notify` once; does nothing before the handshake is complete.
    pub(crate) fn close(&mut self, out: &mut SendBuffer) -> Result<(), TlsError> {
        match &mut self.state {
            Progress::Open(open) if !open.closed => {
                open.closed = true;
                open.alert(AlertDescription::CloseNotify, out)
            }
            _ => Ok(()),
        }
    }

    /// Returns the error for a connection that the peer ended in the current state.
    pub(crate) fn on_end(&self) -> TlsError {
        match &self.state {
            Progress::Open(_) if !self.is_confirmed() => TlsError::ClosedAtKey(None),
            Progress::Handshake(handshake) if handshake.has_shown_key() => {
                TlsError::ClosedAtKey(None)
            }
            _ => TlsError::Truncated,
        }
    }

    /// Returns the peer's key, proved by its signature, once the handshake is complete.
    ///
    /// A client then knows the server, but not whether the server accepts the client: see
    /// [`Tls::is_confirmed`].
    pub(crate) fn peer_key(&self) -> Option<PublicKey> {
        match &self.state {
            Progress::Open(open) => Some(open.keys.peer),
            Progress::Handshake(_) | Progress::Failed => None,
        }
    }

    /// Returns true if the peer is known to accept the local key: for a server after the handshake,
    /// for a client after the server's first record.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(&self.state, Progress::Open(open) if open.has_received || !self.is_client)
    }

    /// Returns 32 secret bytes shared by both ends of this connection only, once the handshake is
    /// complete.
    ///
    /// They differ for every connection, even between the same peers. Data bound to them cannot be
    /// replayed on another connection.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        match &self.state {
            Progress::Open(open) => Some(open.keys.binding),
            Progress::Handshake(_) | Progress::Failed => None,
        }
    }

    /// Renews the sending key after `records` records instead of [`RENEW_AFTER`], for tests.
    #[cfg(test)]
    pub(super) fn renew_after(&mut self, records: u64) {
        if let Progress::Open(open) = &mut self.state {
            open.renew_after = records;
        }
    }

    /// Renews the sending key and requests that the peer renews its own, for tests.
    #[cfg(test)]
    pub(crate) fn ask_to_renew(&mut self, out: &mut SendBuffer) {
        let Progress::Open(open) = &mut self.state else {
            panic!("handshake not complete")
        };
        open.send_small(ContentType::Handshake, &[24, 0, 0, 1, 1], out)
            .expect("a short record");
        open.keys.sealer = open.keys.schedule.next_sealer().expect("another key");
    }

    /// Encrypts a record of any content type, valid or not, for tests.
    #[cfg(test)]
    pub(super) fn send_record(&mut self, content: ContentType, body: &[u8], out: &mut SendBuffer) {
        let Progress::Open(open) = &mut self.state else {
            panic!("handshake not complete")
        };
        open.send_small(content, body, out).expect("a short record");
    }

    fn establish(&mut self) -> Result<(), TlsError> {
        let Progress::Handshake(handshake) = std::mem::replace(&mut self.state, Progress::Failed)
        else {
            return Err(TlsError::Unusable(FAILED));
        };
        let open = Open {
            keys: handshake.finish()?,
            renew_after: RENEW_AFTER,
            has_received: false,
            fruitless: 0,
            renewal_ends: 0,
            peer_closed: false,
            closed: false,
            is_client: self.is_client,
            placed: Placed::default(),
        };
        self.state = Progress::Open(Box::new(open));
        Ok(())
    }

    fn open(&mut self) -> Result<&mut Open, TlsError> {
        match &mut self.state {
            Progress::Open(open) => Ok(open),
            Progress::Handshake(_) => Err(TlsError::Unusable("handshake not complete")),
            Progress::Failed => Err(TlsError::Unusable(FAILED)),
        }
    }
}

impl Open {
    fn receive<E: From<TlsError>>(
        &mut self,
        received: &mut [u8],
        out: &mut SendBuffer,
        sink: &mut impl Plaintext<E>,
    ) -> Result<Received, E> {
        let mut progress = Received {
            open: true,
            peer_closed: self.peer_closed,
            ..Received::default()
        };
        while !self.peer_closed {
            let mut rest = &received[progress.discard..];
            if self.placed.is_aside() {
                let completed = self.placed.complete(&mut rest);
                progress.discard = received.len() - rest.len();
                match completed {
                    Ok(Some(mut record)) => self.take(&mut record, out, sink)?,
                    Ok(None) => return Ok(progress),
                    Err(error) => return Err(self.reject(error, out).into()),
                }
            } else if let Some(room) = sink.room() {
                let opened = self.placed.open(room, &mut rest, &mut self.keys.opener);
                progress.discard = received.len() - rest.len();
                match opened {
                    Ok(Opened::Data(len)) => {
                        self.on_data();
                        sink.filled(len)?;
                    }
                    Ok(Opened::Other(content, body)) => self.receive_other(content, &body, out)?,
                    Ok(Opened::Aside) => {}
                    Ok(Opened::Incomplete) => return Ok(progress),
                    Err(error) => return Err(self.reject(error, out).into()),
                }
            } else {
                let at = progress.discard;
                let end = match record_len(rest) {
                    Ok(Some(len)) if len <= rest.len() => at + len,
                    Ok(_) => return Ok(progress),
                    Err(error) => return Err(self.reject(error, out).into()),
                };
                progress.discard = end;
                self.take(&mut received[at..end], out, sink)?;
            }
            progress.peer_closed = self.peer_closed;
        }
        // Bytes after `close_notify` are ignored.
        progress.discard = received.len();
        Ok(progress)
    }

    /// Decrypts a whole record in place, and handles it.
    fn take<E: From<TlsError>>(
        &mut self,
        record: &mut [u8],
        out: &mut SendBuffer,
        sink: &mut impl Plaintext<E>,
    ) -> Result<(), E> {
        match self.keys.opener.open(record) {
            Ok((ContentType::ApplicationData, plaintext)) if !plaintext.is_empty() => {
                self.on_data();
                sink.take(plaintext)
            }
            Ok((content, plaintext)) => Ok(self.receive_other(content, plaintext, out)?),
            Err(error) => Err(self.reject(error, out).into()),
        }
    }

    fn on_data(&mut self) {
        self.has_received = true;
        self.fruitless = 0;
    }

    /// Handles a record without data: an alert, a key update, or padding.
    fn receive_other(
        &mut self,
        content: ContentType,
        body: &[u8],
        out: &mut SendBuffer,
    ) -> Result<(), TlsError> {
        self.fruitless += 1;
        if self.fruitless > MAX_FRUITLESS {
            return Err(self.refuse("too many records without data", out));
        }
        match (content, body) {
            (ContentType::ApplicationData, _) => {}
            (ContentType::Alert, [_, description]) => {
                self.receive_alert((*description).into())?;
            }
            (ContentType::Handshake, [24, 0, 0, 1, request @ (0 | 1)]) => {
                self.keys.opener = self.keys.schedule.next_opener()?;
                // One key update answers all requests received before it was sent (RFC 8446,
                // section 4.6.3). One answer per request would let a peer that reads nothing fill
                // our memory.
                let is_answer_unsent = out.total_removed() < self.renewal_ends;
                if *request == 1 && !self.closed && !is_answer_unsent {
                    self.renew(out)?;
                }
            }
            // Our servers send no tickets, and nothing else is allowed here (RFC 8446, section
            // 4.6).
            (ContentType::Handshake, _) => {
                return Err(self.refuse("a handshake message after the handshake", out));
            }
            _ => return Err(self.refuse("neither data nor alert nor key update", out)),
        }
        self.has_received = true;
        Ok(())
    }

    fn receive_alert(&mut self, alert: AlertDescription) -> Result<(), TlsError> {
        match alert {
            AlertDescription::CloseNotify => {
                self.peer_closed = true;
                Ok(())
            }
            // Precedes a close_notify and means nothing by itself (RFC 8446, section 6.1).
            AlertDescription::UserCanceled => Ok(()),
            // A server checks the client's key after the client has completed its handshake.
            alert if self.is_client && !self.has_received => Err(TlsError::from_alert(alert)),
            alert => Err(TlsError::Alert(alert)),
        }
    }

    fn send(&mut self, plaintext: &[&[u8]], out: &mut SendBuffer) -> Result<(), TlsError> {
        let total: usize = plaintext.iter().map(|slice| slice.len()).sum();
        // One capacity check for all records.
        out.spare(total + total.div_ceil(MAX_PLAINTEXT) * RECORD_OVERHEAD);
        let mut slices = Slices::new(plaintext);
        let mut left = total;
        while left > 0 {
            if self.keys.sealer.sealed() >= self.renew_after {
                self.renew(out)?;
            }
            let len = left.min(MAX_PLAINTEXT);
            let record = out.spare(len + RECORD_OVERHEAD);
            let sealed = match slices.take_whole(len) {
                Some(plaintext) => {
                    self.keys
                        .sealer
                        .seal(ContentType::ApplicationData, plaintext, record)
                }
                None => {
                    slices.copy_to(&mut record[HEADER_LEN..HEADER_LEN + len]);
                    self.keys
                        .sealer
                        .seal_in_place(ContentType::ApplicationData, record)
                }
            };
            sealed.map_err(|_| TlsError::Unusable("the cipher fails"))?;
            out.commit(len + RECORD_OVERHEAD);
            left -= len;
        }
        Ok(())
    }

    /// Announces the next sending key under the old one, and switches to it (RFC 8446, section
    /// 4.6.3).
    fn renew(&mut self, out: &mut SendBuffer) -> Result<(), TlsError> {
        self.send_small(ContentType::Handshake, &KEY_UPDATE, out)?;
        self.renewal_ends = out.total_removed() + out.len() as u64;
        self.keys.sealer = self.keys.schedule.next_sealer()?;
        Ok(())
    }

    fn alert(&mut self, alert: AlertDescription, out: &mut SendBuffer) -> Result<(), TlsError> {
        let level = if alert == AlertDescription::CloseNotify {
            WARNING
        } else {
            FATAL
        };
        self.send_small(ContentType::Alert, &[level, alert.into()], out)
    }

    fn send_small(
        &mut self,
        content: ContentType,
        body: &[u8],
        out: &mut SendBuffer,
    ) -> Result<(), TlsError> {
        let len = body.len() + RECORD_OVERHEAD;
        self.keys
            .sealer
            .seal(content, body, out.spare(len))
            .map_err(|_| TlsError::Unusable("the cipher fails"))?;
        out.commit(len);
        Ok(())
    }

    /// Queues the alert for an invalid record, and returns the error.
    fn reject(&mut self, error: RecordError, out: &mut SendBuffer) -> TlsError {
        let alert = match error {
            RecordError::TooLong(_) | RecordError::PlaintextTooLong(_) => {
                AlertDescription::RecordOverflow
            }
            RecordError::Forged => AlertDescription::BadRecordMac,
            RecordError::NotTls(..) | RecordError::Unprotected(_) | RecordError::Untyped => {
                AlertDescription::UnexpectedMessage
            }
        };
        // The connection ends either way.
        let _ = self.alert(alert, out);
        error.into()
    }

    fn refuse(&mut self, what: &'static str, out: &mut SendBuffer) -> TlsError {
        // The connection ends either way.
        let _ = self.alert(AlertDescription::UnexpectedMessage, out);
        TlsError::Unexpected(what)
    }
}

/// Reader of several slices as one sequence of bytes.
struct Slices<'a> {
    first: &'a [u8],
    rest: &'a [&'a [u8]],
}

impl<'a> Slices<'a> {
    fn new(all: &'a [&'a [u8]]) -> Self {
        Self {
            first: &[],
            rest: all,
        }
    }

    /// Takes the next `len` bytes without a copy; `None` if they are not in one slice.
    fn take_whole(&mut self, len: usize) -> Option<&'a [u8]> {
        self.skip_empty();
        let (taken, rest) = self.first.split_at_checked(len)?;
        self.first = rest;
        Some(taken)
    }

    /// Fills `target` with the next bytes. At least that many must be left.
    fn copy_to(&mut self, target: &mut [u8]) {
        let mut at = 0;
        while at < target.len() {
            self.skip_empty();
            let len = self.first.len().min(target.len() - at);
            if len == 0 {
                return;
            }
            let (taken, rest) = self.first.split_at(len);
            target[at..at + len].copy_from_slice(taken);
            self.first = rest;
            at += len;
        }
    }

    fn skip_empty(&mut self) {
        while let ([], [next, rest @ ..]) = (self.first, self.rest) {
            self.first = next;
            self.rest = rest;
        }
    }
}

/// Number of records sent under one key (128 GiB of data): half of AES-GCM's limit of 2^24 (RFC
/// 8446, section 5.5: 2^24.5 full records).
///
/// A renewal costs one small record and two derivations, a few microseconds.
pub(super) const RENEW_AFTER: u64 = 1 << 23;
/// Maximum number of consecutive records without data (picked by eye). Usually one record in 2^23
/// has none.
const MAX_FRUITLESS: u32 = 32;
/// Handshake message `key_update` that does not request one from the peer (RFC 8446, section
/// 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const FAILED: &str = "it has failed before";

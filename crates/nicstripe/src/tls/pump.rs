//! One connection's TLS without its I/O.

use rustls::{AlertDescription, ContentType};

use super::buffer::SendBuffer;
use super::config::{ClientTls, ServerTls};
use super::error::TlsError;
use super::handshake::{Established, Handshake, KeySchedule};
use super::record::{HEADER_LEN, MAX_PLAINTEXT, Opener, RECORD_OVERHEAD, RecordError, Sealer, record_len};
use crate::trust::PublicKey;

/// One end of one connection: received bytes in, plaintext out, and the other way round.
///
/// The caller owns the buffers: [`Tls::receive`] decrypts where the bytes were received, [`Tls::send`] encrypts to where they are sent from.
/// After an error the connection is dead and every further call fails; what the `out` of the failed call holds (an alert, or nothing)
/// is still worth sending.
///
/// Keys are renewed before they wear out, in each direction by its sender; that needs nothing from the caller.
pub(crate) struct Tls {
    state: State,
    is_client: bool,
}

enum State {
    Handshake(Handshake),
    Open(Box<Open>),
    /// Bytes for a dead connection are neither taken nor made.
    Failed,
}

/// An established connection.
struct Open {
    sealer: Sealer,
    opener: Opener,
    schedule: KeySchedule,
    peer: PublicKey,
    binding: [u8; 32],
    renew_after: u64,
    /// Whether the peer has sent anything under the new keys: to a client, the proof that its key was accepted.
    heard: bool,
    /// Records since the last that carried data. Bounds what an idle talker can cost us.
    fruitless: u32,
    /// Where the last key update of ours ends, in bytes ever queued.
    renewal_ends: u64,
    peer_closed: bool,
    closed: bool,
}

/// What came of some received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// How many bytes at the front of the buffer are used up; the rest is needed again, with more behind it.
    pub(crate) discard: usize,
    /// Plaintext bytes given to the sink.
    pub(crate) plaintext: usize,
    /// Whether the handshake is complete.
    pub(crate) open: bool,
    /// Whether the peer has said that it will send no more.
    pub(crate) peer_closed: bool,
}

impl Tls {
    /// Begins as the connecting end; the first message goes to `out`.
    pub(crate) fn client(tls: &ClientTls, out: &mut SendBuffer) -> Result<Self, TlsError> {
        Ok(Self { state: State::Handshake(Handshake::client(tls, out)?), is_client: true })
    }

    /// Begins as the accepting end, which has nothing to say before the other.
    pub(crate) fn server(tls: &ServerTls) -> Result<Self, TlsError> {
        Ok(Self { state: State::Handshake(Handshake::server(tls)?), is_client: false })
    }

    /// Processes all complete records in `received`, or those up to the end of the handshake: what follows it needs another call.
    ///
    /// Each record's plaintext goes to `sink`, in order; the slices are parts of `received`. Answers (handshake, key updates, alerts) go to
    /// `out`. An error of the sink ends the connection and is returned.
    pub(crate) fn receive<E: From<TlsError>>(
        &mut self,
        received: &mut [u8],
        out: &mut SendBuffer,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Received, E> {
        let result = self.receive_inner(received, out, sink);
        if result.is_err() {
            self.state = State::Failed;
        }
        result
    }

    fn receive_inner<E: From<TlsError>>(
        &mut self,
        received: &mut [u8],
        out: &mut SendBuffer,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Received, E> {
        if let State::Handshake(handshake) = &mut self.state {
            let step = handshake.receive(received, out)?;
            if step.done {
                self.establish()?;
            }
            return Ok(Received { discard: step.discard, plaintext: 0, open: step.done, peer_closed: false });
        }
        let is_client = self.is_client;
        self.open()?.receive(received, is_client, out, sink)
    }

    /// Encrypts the slices, one after the other, as one run of bytes, and appends the records to `out`.
    ///
    /// Plaintext is copied only where a record spans two slices. Errors: the handshake is not complete, or this end has closed.
    pub(crate) fn send(&mut self, plaintext: &[&[u8]], out: &mut SendBuffer) -> Result<(), TlsError> {
        let open = self.open()?;
        if open.closed {
            return Err(TlsError::Unusable("closed by this end"));
        }
        open.send(plaintext, out)
    }

    /// Says that nothing more will be sent. A second call does nothing; before the handshake is complete, nothing is said.
    pub(crate) fn close(&mut self, out: &mut SendBuffer) -> Result<(), TlsError> {
        match &mut self.state {
            State::Open(open) if !open.closed => {
                open.closed = true;
                open.alert(AlertDescription::CloseNotify, out)
            }
            _ => Ok(()),
        }
    }

    /// Returns what the end of the peer's bytes means at this point.
    pub(crate) fn on_end(&self) -> TlsError {
        match &self.state {
            State::Open(_) if !self.is_confirmed() => TlsError::ClosedAtKey(None),
            State::Handshake(handshake) if handshake.has_shown_key() => TlsError::ClosedAtKey(None),
            _ => TlsError::Truncated,
        }
    }

    /// Returns the peer's key, proved by its signature, once the handshake is complete.
    ///
    /// A client knows by this who the server is, but not that the server accepts the client: see [`Tls::is_confirmed`].
    pub(crate) fn peer_key(&self) -> Option<PublicKey> {
        match &self.state {
            State::Open(open) => Some(open.peer),
            State::Handshake(_) | State::Failed => None,
        }
    }

    /// Tells whether the peer is known to accept our key: for a server after the handshake, for a client from the server's first word on.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.heard || !self.is_client)
    }

    /// Returns 32 secret bytes that both ends of this connection know and nobody else, once the handshake is complete.
    ///
    /// Different for every connection, even between the same peers: what is bound to them cannot be carried to another connection.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        match &self.state {
            State::Open(open) => Some(open.binding),
            State::Handshake(_) | State::Failed => None,
        }
    }

    /// Renews the sending key after so many records instead of [`RENEW_AFTER`], for tests.
    #[cfg(test)]
    pub(super) fn renew_after(&mut self, records: u64) {
        if let State::Open(open) = &mut self.state {
            open.renew_after = records;
        }
    }

    /// Renews the sending key and asks the peer to do the same, for tests.
    #[cfg(test)]
    pub(crate) fn ask_to_renew(&mut self, out: &mut SendBuffer) {
        let State::Open(open) = &mut self.state else { panic!("handshake not complete") };
        open.send_small(ContentType::Handshake, &[24, 0, 0, 1, 1], out).expect("a short record");
        open.sealer = open.schedule.next_sealer().expect("another key");
    }

    /// Sends a record as no well-behaved end would, for tests.
    #[cfg(test)]
    pub(super) fn send_record(&mut self, content: ContentType, body: &[u8], out: &mut SendBuffer) {
        let State::Open(open) = &mut self.state else { panic!("handshake not complete") };
        open.send_small(content, body, out).expect("a short record");
    }

    fn establish(&mut self) -> Result<(), TlsError> {
        let State::Handshake(handshake) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(TlsError::Unusable(FAILED));
        };
        let Established { sealer, opener, schedule, peer, binding } = handshake.finish()?;
        let open = Open {
            sealer,
            opener,
            schedule,
            peer,
            binding,
            renew_after: RENEW_AFTER,
            heard: false,
            fruitless: 0,
            renewal_ends: 0,
            peer_closed: false,
            closed: false,
        };
        self.state = State::Open(Box::new(open));
        Ok(())
    }

    fn open(&mut self) -> Result<&mut Open, TlsError> {
        match &mut self.state {
            State::Open(open) => Ok(open),
            State::Handshake(_) => Err(TlsError::Unusable("handshake not complete")),
            State::Failed => Err(TlsError::Unusable(FAILED)),
        }
    }
}

impl Open {
    fn receive<E: From<TlsError>>(
        &mut self,
        received: &mut [u8],
        is_client: bool,
        out: &mut SendBuffer,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Received, E> {
        let mut progress = Received { discard: 0, plaintext: 0, open: true, peer_closed: self.peer_closed };
        while !self.peer_closed {
            let rest = &mut received[progress.discard..];
            let record = match record_len(rest) {
                Ok(Some(len)) if len <= rest.len() => &mut rest[..len],
                Ok(_) => return Ok(progress),
                Err(error) => return Err(self.reject(error, out).into()),
            };
            progress.discard += record.len();
            let (content, plaintext) = match self.opener.open(record) {
                Ok(opened) => opened,
                Err(error) => return Err(self.reject(error, out).into()),
            };
            match content {
                ContentType::ApplicationData if !plaintext.is_empty() => {
                    self.heard = true;
                    self.fruitless = 0;
                    progress.plaintext += plaintext.len();
                    sink(plaintext)?;
                }
                _ => self.receive_other(content, plaintext, is_client, out)?,
            }
            progress.peer_closed = self.peer_closed;
        }
        // After the peer's last word come no records, whatever the bytes are.
        progress.discard = received.len();
        Ok(progress)
    }

    /// Takes a record without data: an alert, a key update, or padding.
    fn receive_other(&mut self, content: ContentType, body: &[u8], is_client: bool, out: &mut SendBuffer) -> Result<(), TlsError> {
        self.fruitless += 1;
        if self.fruitless > MAX_FRUITLESS {
            return Err(self.refuse("too many records without data", out));
        }
        match (content, body) {
            (ContentType::ApplicationData, _) => {}
            (ContentType::Alert, [_, description]) => self.receive_alert((*description).into(), is_client)?,
            (ContentType::Handshake, [24, 0, 0, 1, request @ (0 | 1)]) => {
                self.opener = self.schedule.next_opener()?;
                // One key update answers every request that came before it was sent (RFC 8446, section 4.6.3). An answer to each would let a
                // peer that reads nothing fill our memory.
                let is_answer_unsent = out.total_gone() < self.renewal_ends;
                if *request == 1 && !self.closed && !is_answer_unsent {
                    self.renew(out)?;
                }
            }
            // Tickets are off on our servers, and nothing else is allowed here (RFC 8446, section 4.6).
            (ContentType::Handshake, _) => return Err(self.refuse("a handshake message after the handshake", out)),
            _ => return Err(self.refuse("neither data nor alert nor key update", out)),
        }
        self.heard = true;
        Ok(())
    }

    fn receive_alert(&mut self, alert: AlertDescription, is_client: bool) -> Result<(), TlsError> {
        match alert {
            AlertDescription::CloseNotify => {
                self.peer_closed = true;
                Ok(())
            }
            // Announces a close_notify and means nothing by itself (RFC 8446, section 6.1).
            AlertDescription::UserCanceled => Ok(()),
            // A server judges the client's key when the client is ready already.
            alert if is_client && !self.heard => Err(TlsError::from_alert(alert)),
            alert => Err(TlsError::Alert(alert)),
        }
    }

    fn send(&mut self, plaintext: &[&[u8]], out: &mut SendBuffer) -> Result<(), TlsError> {
        let total: usize = plaintext.iter().map(|slice| slice.len()).sum();
        // One look for room instead of one a record.
        out.spare(total + total.div_ceil(MAX_PLAINTEXT) * RECORD_OVERHEAD);
        let mut slices = Slices::new(plaintext);
        let mut left = total;
        while left > 0 {
            if self.sealer.sealed() >= self.renew_after {
                self.renew(out)?;
            }
            let len = left.min(MAX_PLAINTEXT);
            let record = out.spare(len + RECORD_OVERHEAD);
            let sealed = match slices.take_whole(len) {
                Some(plaintext) => self.sealer.seal(ContentType::ApplicationData, plaintext, record),
                None => {
                    slices.copy_to(&mut record[HEADER_LEN..HEADER_LEN + len]);
                    self.sealer.seal_in_place(ContentType::ApplicationData, record)
                }
            };
            sealed.map_err(|_| TlsError::Unusable("the cipher fails"))?;
            out.commit(len + RECORD_OVERHEAD);
            left -= len;
        }
        Ok(())
    }

    /// Announces the next sending key under the old one, and changes to it (RFC 8446, section 4.6.3).
    fn renew(&mut self, out: &mut SendBuffer) -> Result<(), TlsError> {
        self.send_small(ContentType::Handshake, &KEY_UPDATE, out)?;
        self.renewal_ends = out.total_gone() + out.len() as u64;
        self.sealer = self.schedule.next_sealer()?;
        Ok(())
    }

    fn alert(&mut self, alert: AlertDescription, out: &mut SendBuffer) -> Result<(), TlsError> {
        let level = if alert == AlertDescription::CloseNotify { WARNING } else { FATAL };
        self.send_small(ContentType::Alert, &[level, alert.into()], out)
    }

    fn send_small(&mut self, content: ContentType, body: &[u8], out: &mut SendBuffer) -> Result<(), TlsError> {
        let len = body.len() + RECORD_OVERHEAD;
        self.sealer.seal(content, body, out.spare(len)).map_err(|_| TlsError::Unusable("the cipher fails"))?;
        out.commit(len);
        Ok(())
    }

    /// Tells the peer why its record ends the connection, and returns it.
    fn reject(&mut self, error: RecordError, out: &mut SendBuffer) -> TlsError {
        let alert = match error {
            RecordError::TooLong(_) | RecordError::PlaintextTooLong(_) => AlertDescription::RecordOverflow,
            RecordError::Forged => AlertDescription::BadRecordMac,
            RecordError::NotTls(..) | RecordError::Unprotected(_) | RecordError::Untyped => AlertDescription::UnexpectedMessage,
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

/// Some slices read as one run of bytes.
struct Slices<'a> {
    first: &'a [u8],
    rest: &'a [&'a [u8]],
}

impl<'a> Slices<'a> {
    fn new(all: &'a [&'a [u8]]) -> Self {
        Self { first: &[], rest: all }
    }

    /// Takes `len` bytes that lie in one piece, if the next ones do.
    fn take_whole(&mut self, len: usize) -> Option<&'a [u8]> {
        self.skip_empty();
        let (taken, rest) = self.first.split_at_checked(len)?;
        self.first = rest;
        Some(taken)
    }

    /// Fills `target` with the next bytes, of which there are enough.
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

/// How many records are sent under one key: half of AES-GCM's limit of 2^24 (RFC 8446, section 5.5: 2^24.5 full ones). 128 GiB.
///
/// A renewal costs one small record and two derivations, some microseconds in all.
pub(super) const RENEW_AFTER: u64 = 1 << 23;
/// How many records without data a peer may send in a row. Picked by eye: one in 2^23 is usual.
const MAX_FRUITLESS: u32 = 32;
/// `key_update`, with no request to do the same (RFC 8446, section 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const FAILED: &str = "it has failed before";

//! Plaintext of a connection, and the records that are received where their plaintext belongs.

use rustls::ContentType;

use super::record::{HEADER_LEN, MAX_PLAINTEXT, Opener, RECORD_OVERHEAD, RecordError, record_len};

/// Receiver of the plaintext of a connection, in order.
pub(crate) trait Plaintext<E> {
    /// Returns the room for the next bytes, if it is known where they belong. Their records are
    /// received and decrypted there, which saves a copy, and [`filled`](Self::filled) follows.
    /// Otherwise [`take`](Self::take).
    ///
    /// Until all its data is filled in, the room stays in place and keeps what is written to it.
    fn room(&mut self) -> Option<Room<'_>> {
        None
    }

    /// Takes note that the next `len` bytes are in the room.
    ///
    /// # Errors
    ///
    /// An error ends the connection, here and in [`take`](Self::take).
    fn filled(&mut self, len: usize) -> Result<(), E> {
        let _ = len;
        Ok(())
    }

    /// Takes the next bytes, at most 16 KiB.
    fn take(&mut self, plaintext: &[u8]) -> Result<(), E>;
}

impl<E, F: FnMut(&[u8]) -> Result<(), E>> Plaintext<E> for F {
    fn take(&mut self, plaintext: &[u8]) -> Result<(), E> {
        self(plaintext)
    }
}

/// Room for the next bytes of plaintext.
pub(crate) struct Room<'a> {
    /// Bytes from the place of the next one on, for overwriting. What is behind the filled ones has
    /// no meaning.
    pub(crate) bytes: &'a mut [u8],
    /// Number of plaintext bytes that belong here, at least one.
    pub(crate) data: usize,
}

/// Received records that are not decrypted and precede those in the receive buffer: in the room of
/// their plaintext, or aside.
///
/// A record in the room is decrypted to the front of the room, which then begins behind the
/// plaintext. So the records always lie behind the place of their plaintext.
#[derive(Default)]
pub(super) struct Placed {
    /// Position of the first record in the room.
    at: usize,
    /// Length of the records in the room; the last may be incomplete.
    len: usize,
    /// Records that do not fit into the room, usually none.
    aside: Vec<u8>,
}

/// Result of looking at the first record in the room.
pub(super) enum Opened {
    /// The record is incomplete.
    Incomplete,
    /// The record does not fit into the room, and lies aside.
    Aside,
    /// This many bytes of data were decrypted in their place.
    Data(usize),
    /// The record has no data, but this body.
    Other(ContentType, Vec<u8>),
}

impl Placed {
    pub(super) fn is_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Returns the space in `room` for the next received bytes, which ends with the record that has
    /// the last byte of the room's data, if all records are full. So no later record begins in the
    /// room.
    pub(super) fn space<'a>(&self, room: Room<'a>) -> &'a mut [u8] {
        let records = room.data + room.data.div_ceil(MAX_PLAINTEXT) * RECORD_OVERHEAD;
        let end = (self.at + records).min(room.bytes.len());
        let from = (self.at + self.len).min(end);
        &mut room.bytes[from..end]
    }

    /// Takes note that the next `len` bytes were received into the [`space`](Self::space).
    pub(super) fn received(&mut self, len: usize) {
        self.len += len;
    }

    /// Moves bytes from the front of `rest` to the space in `room`, and decrypts the first record
    /// there.
    pub(super) fn open(
        &mut self,
        room: Room<'_>,
        rest: &mut &[u8],
        opener: &mut Opener,
    ) -> Result<Opened, RecordError> {
        let Room { bytes, data } = room;
        let space = self.space(Room { bytes, data });
        let (moved, left) = rest.split_at(space.len().min(rest.len()));
        let is_full = moved.len() == space.len();
        space[..moved.len()].copy_from_slice(moved);
        *rest = left;
        self.len += moved.len();
        let (at, records) = (self.at, self.at..self.at + self.len);
        let len = match record_len(&bytes[records.clone()])? {
            Some(len) if len <= records.len() && len <= data + RECORD_OVERHEAD => len,
            _ if !is_full => return Ok(Opened::Incomplete),
            _ => {
                self.set_aside(&bytes[records]);
                return Ok(Opened::Aside);
            }
        };
        let (content, filled) = opener.open_to_front(bytes, at, len)?;
        self.len -= len;
        if content != ContentType::ApplicationData || filled == 0 {
            self.at += len;
            return Ok(Opened::Other(content, bytes[..filled].to_vec()));
        }
        // The room ends with this record if that has the last byte of the data.
        self.at = if filled == data { 0 } else { at + len - filled };
        Ok(Opened::Data(filled))
    }

    /// Completes the first record aside with bytes from the front of `rest`, and removes it. Returns
    /// `None` if it stays incomplete.
    pub(super) fn complete(&mut self, rest: &mut &[u8]) -> Result<Option<Vec<u8>>, RecordError> {
        loop {
            let needed = match record_len(&self.aside)? {
                Some(len) if len <= self.aside.len() => {
                    return Ok(Some(self.aside.drain(..len).collect()));
                }
                len => len.unwrap_or(HEADER_LEN),
            };
            let missing = needed - self.aside.len();
            let (moved, left) = rest.split_at(missing.min(rest.len()));
            self.aside.extend_from_slice(moved);
            *rest = left;
            if moved.len() < missing {
                return Ok(None);
            }
        }
    }

    fn set_aside(&mut self, records: &[u8]) {
        (self.at, self.len) = (0, 0);
        self.aside.extend_from_slice(records);
    }
}

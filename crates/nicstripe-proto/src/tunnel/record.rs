//! Records of the tunnel multiplexer. A batch is a sequence of records.
//!
//! Each record is a header of 12 bytes and a body, little-endian.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | kind: 1 open, 2 opened, 3 refused, 4 data, 5 end, 6 reset, 7 window, 8 window used up |
//! | 1 | 1 | code of a refusal, otherwise 0 |
//! | 2 | 2 | 0 |
//! | 4 | 4 | ID of the connection |
//! | 8 | 4 | bytes of the body, at most the rest of the batch |
//!
//! Bodies: open has a window (4 bytes) and the target; opened and window have a window (4 bytes);
//! refused has a text; data has the bytes. The other kinds have no body.

/// ID of a tunnelled connection within its session. The client assigns IDs in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// Decoded record of a batch, about one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// Client's request for a connection from the daemon to the target.
    Open {
        /// Initial window in bytes for data from the daemon to the client.
        window: u32,
        /// Target of the connection, as [`Target`](super::Target) writes it.
        target: &'a str,
    },
    /// Daemon's report that the connection to the target is open. Contains the initial window in
    /// bytes for data from the client to the daemon.
    Opened(u32),
    /// Daemon's rejection of the connection.
    Refused {
        /// Machine-readable reason for the rejection.
        code: TargetRefusal,
        /// Human-readable reason for the rejection, in one line. The program that displays the text
        /// must escape it.
        why: &'a str,
    },
    /// Next bytes of the sending end's stream, at least one.
    Data(&'a [u8]),
    /// End of the sending end's stream. No data follows.
    End,
    /// Report of either end that the connection has failed. Bytes in flight are lost.
    Reset,
    /// Extension of the peer's send window in bytes, at least one.
    Window(u32),
    /// Report of either end that the peer's window limits its sending rate. Only the sender can
    /// detect this, because a window update may be in flight.
    UsedUp,
}

/// Reason why a daemon rejects a tunnelled connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TargetRefusal {
    /// The peer's rights at the daemon do not include the target.
    NotAllowed = 1,
    /// The daemon cannot resolve the target's host name.
    Unresolved = 2,
    /// The target rejects the daemon's connection, or does not answer in time.
    Unreachable = 3,
    /// The session has reached its limit of connections.
    TooMany = 4,
}

impl TargetRefusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::NotAllowed,
        Self::Unresolved,
        Self::Unreachable,
        Self::TooMany,
    ];
}

/// Length of a record header in bytes.
pub(super) const RECORD_HEADER: usize = 12;

/// Maximum length of a target in bytes: the longest host name (RFC 1035), a colon and a port, with
/// a margin.
pub const MAX_TARGET: usize = 270;

/// Maximum length of a rejection's text in bytes.
pub(crate) const MAX_WHY: usize = 512;

/// Encoder of a batch into a buffer of fixed size.
#[derive(Debug)]
pub(crate) struct RecordWriter<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> RecordWriter<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the maximum length in bytes of a body that still fits into the batch.
    pub(crate) fn room(&self) -> usize {
        (self.buffer.len() - self.len).saturating_sub(RECORD_HEADER)
    }

    /// Appends a record of a connection. Returns false and leaves the batch unchanged if the record
    /// does not fit.
    pub(crate) fn push(&mut self, conn: ConnId, record: Record<'_>) -> bool {
        match record {
            Record::Open { window, target } => {
                let body = [&window.to_le_bytes(), target.as_bytes()];
                self.put(KIND_OPEN, 0, conn, &body)
            }
            Record::Opened(window) => self.put(KIND_OPENED, 0, conn, &[&window.to_le_bytes()]),
            Record::Refused { code, why } => {
                self.put(KIND_REFUSED, code as u8, conn, &[why.as_bytes()])
            }
            Record::Data(bytes) => self.put(KIND_DATA, 0, conn, &[bytes]),
            Record::End => self.put(KIND_END, 0, conn, &[]),
            Record::Reset => self.put(KIND_RESET, 0, conn, &[]),
            Record::UsedUp => self.put(KIND_USED_UP, 0, conn, &[]),
            Record::Window(bytes) => self.put(KIND_WINDOW, 0, conn, &[&bytes.to_le_bytes()]),
        }
    }

    /// Appends a data record of `len` bytes. The record must fit. `copy` writes the data into the
    /// batch.
    pub(crate) fn push_data(&mut self, conn: ConnId, len: usize, copy: impl FnOnce(&mut [u8])) {
        let at = self.len + RECORD_HEADER;
        copy(&mut self.buffer[at..at + len]);
        self.header(KIND_DATA, 0, conn, len);
        self.len += len;
    }

    fn put(&mut self, kind: u8, code: u8, conn: ConnId, body: &[&[u8]]) -> bool {
        let len: usize = body.iter().map(|part| part.len()).sum();
        if RECORD_HEADER + len > self.buffer.len() - self.len {
            return false;
        }
        self.header(kind, code, conn, len);
        body.iter().for_each(|part| self.append(part));
        true
    }

    fn header(&mut self, kind: u8, code: u8, conn: ConnId, len: usize) {
        self.append(&[kind, code, 0, 0]);
        self.append(&conn.0.to_le_bytes());
        self.append(&(len as u32).to_le_bytes());
    }

    fn append(&mut self, bytes: &[u8]) {
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Decoder of a batch: an iterator over its records.
#[derive(Debug)]
pub(crate) struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    pub(crate) fn new(batch: &'a [u8]) -> Self {
        Self(batch)
    }

    fn record(&mut self) -> Result<(ConnId, Record<'a>), RecordError> {
        let (header, rest) = self
            .0
            .split_first_chunk::<RECORD_HEADER>()
            .ok_or(RecordError::Short)?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (body, rest) = rest
            .split_at_checked(word(8) as usize)
            .ok_or(RecordError::Short)?;
        self.0 = rest;
        let (kind, code) = (header[0], header[1]);
        if header[2..4] != [0, 0] || (code != 0 && kind != KIND_REFUSED) {
            return Err(RecordError::Reserved);
        }
        let len = body.len();
        let record = match kind {
            KIND_OPEN => {
                let (window, target) = body
                    .split_first_chunk()
                    .ok_or(RecordError::Body { kind, len })?;
                Record::Open {
                    window: window_of(*window)?,
                    target: text(target, 1, MAX_TARGET)?,
                }
            }
            KIND_OPENED => Record::Opened(window_of(whole(kind, body)?)?),
            KIND_REFUSED => {
                let known = TargetRefusal::ALL
                    .into_iter()
                    .find(|known| *known as u8 == code);
                Record::Refused {
                    code: known.ok_or(RecordError::Code(code))?,
                    why: text(body, 0, MAX_WHY)?,
                }
            }
            KIND_DATA if len > 0 => Record::Data(body),
            KIND_END if len == 0 => Record::End,
            KIND_RESET if len == 0 => Record::Reset,
            KIND_WINDOW => Record::Window(window_of(whole(kind, body)?)?),
            KIND_USED_UP if len == 0 => Record::UsedUp,
            KIND_DATA | KIND_END | KIND_RESET | KIND_USED_UP => {
                return Err(RecordError::Body { kind, len });
            }
            kind => return Err(RecordError::Kind(kind)),
        };
        Ok((ConnId(word(4)), record))
    }
}

/// Iterates over the records of the batch and their connections. Ends after the last record or the
/// first error.
impl<'a> Iterator for RecordReader<'a> {
    type Item = Result<(ConnId, Record<'a>), RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.0 = &[];
        }
        Some(record)
    }
}

fn whole(kind: u8, body: &[u8]) -> Result<[u8; 4], RecordError> {
    body.try_into().map_err(|_| RecordError::Body {
        kind,
        len: body.len(),
    })
}

fn window_of(bytes: [u8; 4]) -> Result<u32, RecordError> {
    let window = u32::from_le_bytes(bytes);
    if window == 0 {
        Err(RecordError::NoWindow)
    } else {
        Ok(window)
    }
}

fn text(body: &[u8], least: usize, most: usize) -> Result<&str, RecordError> {
    if !(least..=most).contains(&body.len()) {
        return Err(RecordError::Text {
            len: body.len(),
            most,
        });
    }
    str::from_utf8(body).map_err(|_| RecordError::NotText)
}

/// Reason why a batch is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The last record extends beyond the end of the batch.
    #[error("peer sent a tunnel batch with a truncated last record")]
    Short,
    /// The header of a record has a nonzero reserved byte.
    #[error("peer sent a tunnel batch with reserved bits set")]
    Reserved,
    /// The kind of a record is unknown.
    #[error("peer sent a tunnel record of kind {0}, expected 1 to 8")]
    Kind(u8),
    /// The body of a record has an invalid length for its kind.
    #[error("peer sent a tunnel record of kind {kind} with {len} bytes")]
    Body {
        /// Number of the record's kind.
        kind: u8,
        /// Length of the body in bytes.
        len: usize,
    },
    /// The code of a rejection is unknown.
    #[error("peer refused a tunnel with code {0}, expected 1 to 4")]
    Code(u8),
    /// A record grants a window of 0 bytes.
    #[error("peer gave a tunnel a window of 0 bytes")]
    NoWindow,
    /// The target or the text of a rejection is too long or missing.
    #[error("peer sent a tunnel text of {len} bytes, the limit is {most}")]
    Text {
        /// Length of the text in bytes.
        len: usize,
        /// Maximum length of the text in bytes.
        most: usize,
    },
    /// The target or the text of a rejection is not UTF-8.
    #[error("peer sent a tunnel text that is not UTF-8")]
    NotText,
}

const KIND_OPEN: u8 = 1;
const KIND_OPENED: u8 = 2;
const KIND_REFUSED: u8 = 3;
const KIND_DATA: u8 = 4;
const KIND_END: u8 = 5;
const KIND_RESET: u8 = 6;
const KIND_WINDOW: u8 = 7;
const KIND_USED_UP: u8 = 8;

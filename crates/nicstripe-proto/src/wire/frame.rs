//! Frames of one connection between two peers, inside TLS.
//!
//! Every frame has an eight-byte header and a body, little-endian:
//!
//! ```text
//! offset  size  field
//!      0     1  type      (FrameType)
//!      1     1  flags     0 in version 1
//!      2     2  reserved  0 in version 1
//!      4     4  len       bytes of body that follow, at most FrameType::max_body()
//! ```
//!
//! The decoder checks the length against the limit of the frame type before any allocation.
//! `docs/PROTOCOL.md` describes the bodies, and this module's tests pin their encoding. A
//! [`Decoder`] splits plaintext of any fragmentation into [`Piece`]s, without copying the payload
//! of data frames.

use std::fmt;

use crate::{
    file::{
        extent::{ChunkId, ChunkRange},
        hash_tree::ChainingValue,
    },
    id::TransferId,
};

/// Length of a frame header in bytes.
pub const HEADER_LEN: usize = 8;

/// Length in bytes of a data frame's fixed part: transfer, reserved, chunk index, chaining value.
pub const DATA_HEADER_LEN: usize = 48;

/// Maximum payload of a data frame in bytes: 256 KiB.
///
/// A sender can change its schedule only between two frames. At 10 Mbit/s, a frame takes 0.2 s.
pub const MAX_PAYLOAD: usize = 256 * 1024;

/// Maximum length of a control message in bytes: 64 KiB.
pub const MAX_CONTROL: usize = 64 * 1024;

/// Length in bytes of a load frame's fixed part: run ID, reserved.
pub const LOAD_HEADER_LEN: usize = 8;

/// Maximum payload of a load frame in bytes: 256 KiB. Equals the size of a chunk, so that a
/// benchmark costs as much CPU time as a copy.
pub const MAX_LOAD: usize = 256 * 1024;

/// Length in bytes of an echo frame's fixed part: token, flags, reserved.
pub(crate) const ECHO_HEADER_LEN: usize = 16;

/// Maximum payload of an echo frame in bytes: 64 KiB.
pub const MAX_ECHO: usize = 64 * 1024;

/// Maximum number of chunk ranges in one acknowledgement.
pub(crate) const MAX_ACK_RANGES: usize = 64;

/// Type of a frame. The discriminant is the type's number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// First frame of the client. Names the session and the path of the connection.
    Hello = 1,
    /// The daemon's answer to [`FrameType::Hello`].
    Welcome = 2,
    /// The daemon's rejection of a [`FrameType::Hello`]. The daemon closes the connection
    /// afterwards.
    Refuse = 3,
    /// Control message with a sequence number.
    Control = 4,
    /// Cumulative acknowledgement of control messages.
    ControlAck = 5,
    /// One chunk of a file.
    Data = 6,
    /// Acknowledgement of chunks that the receiver has verified and written.
    Ack = 7,
    /// Grant of credit: the total number of data frames that the receiver permits on this
    /// connection.
    Credit = 8,
    /// Keep-alive and RTT measurement.
    Heartbeat = 9,
    /// End of the session. This is the last frame on a connection.
    Close = 10,
    /// Payload of a benchmark. The receiver counts and drops the payload.
    Load = 11,
    /// Request of a latency benchmark, or the reply to such a request.
    Echo = 12,
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties().0)
    }
}

impl FrameType {
    /// All frame types, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Hello,
        Self::Welcome,
        Self::Refuse,
        Self::Control,
        Self::ControlAck,
        Self::Data,
        Self::Ack,
        Self::Credit,
        Self::Heartbeat,
        Self::Close,
        Self::Load,
        Self::Echo,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Returns the name of the frame type, and the minimum and maximum length of its body in bytes.
    fn properties(self) -> (&'static str, usize, usize) {
        match self {
            Self::Hello => ("hello", 1, 32 * 1024),
            Self::Welcome => ("welcome", 1, 32 * 1024),
            Self::Refuse => ("refuse", 1, 1024),
            Self::Control => ("control", 9, 8 + MAX_CONTROL),
            Self::ControlAck => ("control ack", 8, 8),
            Self::Data => ("data", DATA_HEADER_LEN + 1, DATA_HEADER_LEN + MAX_PAYLOAD),
            Self::Ack => ("ack", 8 + ACK_RANGE_LEN, 8 + MAX_ACK_RANGES * ACK_RANGE_LEN),
            Self::Credit => ("credit", 8, 8),
            Self::Heartbeat => ("heartbeat", 16, 16),
            Self::Close => ("close", 4, 4),
            Self::Load => ("load", LOAD_HEADER_LEN + 1, LOAD_HEADER_LEN + MAX_LOAD),
            Self::Echo => ("echo", ECHO_HEADER_LEN, ECHO_HEADER_LEN + MAX_ECHO),
        }
    }

    /// Returns the minimum length of a body of this type, in bytes.
    fn min_body(self) -> usize {
        self.properties().1
    }

    /// Returns the maximum length of a body of this type, in bytes.
    pub(crate) fn max_body(self) -> usize {
        self.properties().2
    }

    /// Returns the length in bytes of the body's part before the payload; 0 for a type without
    /// payload.
    fn fixed_len(self) -> usize {
        match self {
            Self::Data => DATA_HEADER_LEN,
            Self::Load => LOAD_HEADER_LEN,
            Self::Echo => ECHO_HEADER_LEN,
            _ => 0,
        }
    }
}

const ACK_RANGE_LEN: usize = 16;

/// Fixed part of a data frame. The payload follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// ID of the chunk's transfer.
    pub transfer: TransferId,
    /// Index of the chunk. The transfer's grid determines the chunk's offset.
    pub chunk: ChunkId,
    /// BLAKE3 chaining value of the chunk, as read by the sender.
    pub value: ChainingValue,
    /// Length of the payload in bytes, 1 to [`MAX_PAYLOAD`].
    pub len: u32,
    /// Uncompressed length in bytes if the payload is a zstd frame, which must be shorter than
    /// this; 0 if the payload is the chunk itself.
    pub raw_len: u32,
    /// True for the final chunk of a stream. Used only if the transfer's length is unknown.
    pub last: bool,
}

/// Mask of [`DataHeader::raw_len`] in the second 32-bit field of the body.
const RAW_LEN_BITS: u32 = (1 << 20) - 1;

/// Mask of [`DataHeader::last`] in the second 32-bit field of the body.
const LAST: u32 = 1 << 31;

impl DataHeader {
    /// Returns the uncompressed length of the chunk in bytes.
    pub fn chunk_len(&self) -> u32 {
        if self.raw_len == 0 {
            self.len
        } else {
            self.raw_len
        }
    }

    /// Returns the header for the same chunk compressed to `len` bytes. `len` must be below the
    /// chunk's uncompressed length.
    pub fn packed(self, len: u32) -> Self {
        Self {
            len,
            raw_len: self.chunk_len(),
            ..self
        }
    }

    /// Appends the frame header and the fixed part. The caller must append `len` bytes of payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, FrameType::Data, DATA_HEADER_LEN + self.len as usize);
        out.extend_from_slice(&self.transfer.0.to_le_bytes());
        let flags = if self.last { LAST } else { 0 };
        out.extend_from_slice(&(self.raw_len & RAW_LEN_BITS | flags).to_le_bytes());
        out.extend_from_slice(&self.chunk.0.to_le_bytes());
        out.extend_from_slice(&self.value.0);
    }

    fn decode(body: &[u8], len: u32) -> Result<Self, FrameError> {
        let mut fields = Fields::new(FrameType::Data, body);
        let transfer = TransferId(fields.u32()?);
        let flags = fields.u32()?;
        if flags & !(LAST | RAW_LEN_BITS) != 0 {
            return Err(FrameError::Reserved(flags & !(LAST | RAW_LEN_BITS)));
        }
        let (raw_len, last) = (flags & RAW_LEN_BITS, flags & LAST != 0);
        if raw_len != 0 && (raw_len <= len || raw_len as usize > MAX_PAYLOAD) {
            return Err(FrameError::RawLen { raw_len, len });
        }
        Ok(Self {
            transfer,
            chunk: ChunkId(fields.u64()?),
            value: ChainingValue(fields.array()?),
            len,
            raw_len,
            last,
        })
    }
}

/// Fixed part of a load frame. The payload follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadHeader {
    /// ID of the benchmark run that sends the load.
    pub run: u32,
    /// Length of the payload in bytes, 1 to [`MAX_LOAD`].
    pub len: u32,
}

impl LoadHeader {
    /// Appends the frame header and the fixed part. The caller must append `len` bytes of payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, FrameType::Load, LOAD_HEADER_LEN + self.len as usize);
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    fn decode(body: &[u8], len: u32) -> Result<Self, FrameError> {
        let mut fields = Fields::new(FrameType::Load, body);
        let run = fields.u32()?;
        fields.zero_u32()?;
        Ok(Self { run, len })
    }
}

/// Fixed part of an echo frame. The payload follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoHeader {
    /// Identifier chosen by the requester. The reply repeats it.
    pub token: u64,
    /// True for a reply, false for a request. A reply has the token and the length of its request.
    pub reply: bool,
    /// Length of the payload in bytes, at most [`MAX_ECHO`].
    pub len: u32,
}

/// Mask of [`EchoHeader::reply`] in the second field of the body.
const REPLY: u32 = 1;

impl EchoHeader {
    /// Appends the frame header and the fixed part. The caller must append `len` bytes of payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, FrameType::Echo, ECHO_HEADER_LEN + self.len as usize);
        out.extend_from_slice(&self.token.to_le_bytes());
        out.extend_from_slice(&(if self.reply { REPLY } else { 0 }).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    fn decode(body: &[u8], len: u32) -> Result<Self, FrameError> {
        let mut fields = Fields::new(FrameType::Echo, body);
        let (token, flags) = (fields.u64()?, fields.u32()?);
        if flags & !REPLY != 0 {
            return Err(FrameError::Reserved(flags & !REPLY));
        }
        fields.zero_u32()?;
        Ok(Self {
            token,
            reply: flags & REPLY != 0,
            len,
        })
    }
}

/// Decoded frame of any type except data, load and echo. The decoder streams the payload of these
/// three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// First frame of the client: an encoded [`crate::message::Hello`].
    Hello(Vec<u8>),
    /// The daemon's answer to a [`Frame::Hello`]: an encoded [`crate::message::Welcome`].
    Welcome(Vec<u8>),
    /// The daemon's rejection of a [`Frame::Hello`]: an encoded [`crate::message::Refusal`].
    Refuse(Vec<u8>),
    /// Control message with a sequence number.
    Control {
        /// Sequence number, counted from 0 in each direction of the session.
        seq: u64,
        /// Encoded [`crate::message::Message`], at most [`MAX_CONTROL`] bytes.
        body: Vec<u8>,
    },
    /// Acknowledgement of all control messages with a sequence number below `next`.
    ControlAck {
        /// Sequence number of the next expected message.
        next: u64,
    },
    /// Acknowledgement of chunks that the receiver has verified and written. The chunks may not be
    /// durable yet.
    Ack {
        /// ID of the chunks' transfer.
        transfer: TransferId,
        /// Acknowledged chunks, 1 to `MAX_ACK_RANGES` ranges.
        ranges: Vec<ChunkRange>,
    },
    /// Grant of credit to send data frames.
    Credit {
        /// Total number of data frames permitted since the connection opened.
        frames: u64,
    },
    /// Keep-alive and RTT measurement.
    Heartbeat {
        /// Sender's clock in microseconds since an arbitrary origin; never 0.
        sent_us: u64,
        /// Latest `sent_us` received from the peer, returned once so that the peer can measure the
        /// RTT; 0 if there is none to return.
        echo_us: u64,
    },
    /// End of the session.
    Close {
        /// Reason for the end, as the number of a [`crate::message::CloseCode`].
        code: u32,
    },
}

impl Frame {
    /// Appends the encoded frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(body) => put_frame(out, FrameType::Hello, body),
            Self::Welcome(body) => put_frame(out, FrameType::Welcome, body),
            Self::Refuse(body) => put_frame(out, FrameType::Refuse, body),
            Self::Control { seq, body } => {
                put_header(out, FrameType::Control, 8 + body.len());
                out.extend_from_slice(&seq.to_le_bytes());
                out.extend_from_slice(body);
            }
            Self::ControlAck { next } => put_frame(out, FrameType::ControlAck, &next.to_le_bytes()),
            Self::Ack { transfer, ranges } => {
                put_header(out, FrameType::Ack, 8 + ranges.len() * ACK_RANGE_LEN);
                out.extend_from_slice(&transfer.0.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                for range in ranges {
                    out.extend_from_slice(&range.first.0.to_le_bytes());
                    out.extend_from_slice(&range.count.to_le_bytes());
                }
            }
            Self::Credit { frames } => put_frame(out, FrameType::Credit, &frames.to_le_bytes()),
            Self::Heartbeat { sent_us, echo_us } => {
                put_header(out, FrameType::Heartbeat, 16);
                out.extend_from_slice(&sent_us.to_le_bytes());
                out.extend_from_slice(&echo_us.to_le_bytes());
            }
            Self::Close { code } => put_frame(out, FrameType::Close, &code.to_le_bytes()),
        }
    }

    fn decode(kind: FrameType, body: Vec<u8>) -> Result<Self, FrameError> {
        let mut fields = Fields::new(kind, &body);
        let frame = match kind {
            FrameType::Hello => return Ok(Self::Hello(body)),
            FrameType::Welcome => return Ok(Self::Welcome(body)),
            FrameType::Refuse => return Ok(Self::Refuse(body)),
            FrameType::Control => {
                let seq = fields.u64()?;
                return Ok(Self::Control {
                    seq,
                    body: fields.rest().to_vec(),
                });
            }
            FrameType::ControlAck => Self::ControlAck {
                next: fields.u64()?,
            },
            FrameType::Ack => {
                let transfer = TransferId(fields.u32()?);
                fields.zero_u32()?;
                let mut ranges = Vec::with_capacity(fields.rest().len() / ACK_RANGE_LEN);
                while !fields.rest().is_empty() {
                    ranges.push(ChunkRange {
                        first: ChunkId(fields.u64()?),
                        count: fields.u64()?,
                    });
                }
                Self::Ack { transfer, ranges }
            }
            FrameType::Credit => Self::Credit {
                frames: fields.u64()?,
            },
            FrameType::Heartbeat => Self::Heartbeat {
                sent_us: fields.u64()?,
                echo_us: fields.u64()?,
            },
            FrameType::Close => Self::Close {
                code: fields.u32()?,
            },
            // The decoder itself handles frames of these types.
            FrameType::Data | FrameType::Load | FrameType::Echo => {
                return Err(FrameError::Truncated { kind });
            }
        };
        fields.end()?;
        Ok(frame)
    }
}

/// Unit of a [`Decoder`]'s output: a complete frame, or a part of a frame with payload.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Complete frame of any type except data, load and echo.
    Frame(Frame),
    /// Start of a data frame; `len` bytes of payload follow.
    DataStart(DataHeader),
    /// Next part of the current data frame's payload.
    DataBytes(&'a [u8]),
    /// End of the current data frame.
    DataEnd,
    /// Start of a load frame; `len` bytes of payload follow.
    Load(LoadHeader),
    /// Start of an echo frame; `len` bytes of payload follow.
    Echo(EchoHeader),
    /// Next part of the current load or echo frame's payload. Its content has no meaning.
    Filler {
        /// Payload bytes of this part.
        bytes: &'a [u8],
        /// Number of payload bytes of the frame that follow this part; 0 for the last part.
        left: usize,
    },
}

/// Violation of the frame format by the peer. The receiver must end the path; the session
/// continues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame type is unknown in version 1.
    #[error("peer sent a frame of unknown type {0}, expected 1 to {max}", max = FrameType::ALL.len())]
    UnknownType(u8),
    /// The header's flags or reserved field are not zero. Contains both as a 32-bit value.
    #[error("peer set reserved bits {0:#x} in a frame header, expected 0 in version 1")]
    Reserved(u32),
    /// The body is longer than the type allows.
    #[error("{kind} frame of {len} bytes exceeds the limit of {max}", max = kind.max_body())]
    TooLong {
        /// Type of the frame.
        kind: FrameType,
        /// Length of the body declared by the header, in bytes.
        len: u32,
    },
    /// The compressed payload is not shorter than the chunk, or the uncompressed length exceeds the
    /// maximum payload.
    #[error(
        "peer sent {len} compressed bytes of {raw_len}, expected less than the raw size, at most {MAX_PAYLOAD}"
    )]
    RawLen {
        /// Uncompressed length in bytes, as declared in the header.
        raw_len: u32,
        /// Length of the compressed payload in bytes.
        len: u32,
    },
    /// The body is too short for its type, or has trailing bytes.
    #[error("{kind} frame has a malformed body")]
    Truncated {
        /// Type of the frame.
        kind: FrameType,
    },
}

/// Incremental decoder of frames from slices of any length.
///
/// Buffers at most one frame other than a data frame (slightly more than [`MAX_CONTROL`]). Payload
/// is passed through without buffering.
///
/// ```
/// # use nicstripe_proto::frame::{Decoder, Frame, Piece};
/// let mut bytes = Vec::new();
/// Frame::Credit { frames: 7 }.encode(&mut bytes);
/// let mut decoder = Decoder::new();
/// let mut input = &bytes[..];
/// assert_eq!(decoder.next(&mut input), Ok(Some(Piece::Frame(Frame::Credit { frames: 7 }))));
/// assert_eq!(decoder.next(&mut input), Ok(None));
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    state: DecoderState,
    held: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum DecoderState {
    /// The decoder collects the eight bytes of a frame header.
    #[default]
    Header,
    /// The decoder collects the `len` bytes of a body.
    Body { kind: FrameType, len: usize },
    /// The decoder collects the fixed part of a frame with `payload` bytes of payload.
    Fixed { kind: FrameType, payload: u32 },
    /// The decoder passes on the payload of a frame; `left` bytes remain.
    Payload { kind: FrameType, left: usize },
}

impl Decoder {
    /// Returns a decoder for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the next piece from the front of `input` and returns it; `None` if `input` ends
    /// before the piece does. Buffers the bytes of an incomplete piece.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError`] if the input is not a valid frame.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, FrameError> {
        loop {
            match self.state {
                DecoderState::Header => {
                    if !self.hold(input, HEADER_LEN) {
                        return Ok(None);
                    }
                    self.state = header_of(&self.held)?;
                    self.held.clear();
                }
                DecoderState::Body { kind, len } => {
                    if !self.hold(input, len) {
                        return Ok(None);
                    }
                    self.state = DecoderState::Header;
                    return Frame::decode(kind, std::mem::take(&mut self.held))
                        .map(|frame| Some(Piece::Frame(frame)));
                }
                DecoderState::Fixed { kind, payload } => {
                    if !self.hold(input, kind.fixed_len()) {
                        return Ok(None);
                    }
                    let piece = match kind {
                        FrameType::Load => Piece::Load(LoadHeader::decode(&self.held, payload)?),
                        FrameType::Echo => Piece::Echo(EchoHeader::decode(&self.held, payload)?),
                        _ => Piece::DataStart(DataHeader::decode(&self.held, payload)?),
                    };
                    self.held.clear();
                    let left = payload as usize;
                    self.state = DecoderState::Payload { kind, left };
                    return Ok(Some(piece));
                }
                DecoderState::Payload { kind, left: 0 } => {
                    self.state = DecoderState::Header;
                    if kind == FrameType::Data {
                        return Ok(Some(Piece::DataEnd));
                    }
                }
                DecoderState::Payload { kind, left } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let (bytes, rest) = input.split_at(left.min(input.len()));
                    *input = rest;
                    let left = left - bytes.len();
                    self.state = DecoderState::Payload { kind, left };
                    return Ok(Some(match kind {
                        FrameType::Data => Piece::DataBytes(bytes),
                        _ => Piece::Filler { bytes, left },
                    }));
                }
            }
        }
    }

    /// Returns the number of bytes of a chunk that come next; zero if something else does.
    pub fn data_left(&self) -> usize {
        match self.state {
            DecoderState::Payload {
                kind: FrameType::Data,
                left,
            } => left,
            _ => 0,
        }
    }

    /// Skips the next `len` bytes of a chunk, at most [`data_left`](Self::data_left), which the
    /// caller has where they belong. The end of the chunk is still returned.
    pub fn skip_data(&mut self, len: usize) {
        if let DecoderState::Payload { left, .. } = &mut self.state {
            *left = left.saturating_sub(len);
        }
    }

    /// Moves bytes from `input` to the buffer. Returns true once the buffer has `len` bytes.
    fn hold(&mut self, input: &mut &[u8], len: usize) -> bool {
        let (bytes, rest) = input.split_at((len - self.held.len()).min(input.len()));
        self.held.extend_from_slice(bytes);
        *input = rest;
        self.held.len() == len
    }
}

fn header_of(held: &[u8]) -> Result<DecoderState, FrameError> {
    let [kind, flags, r0, r1, l0, l1, l2, l3] = *held else {
        return Err(FrameError::UnknownType(0));
    };
    let kind = FrameType::from_byte(kind).ok_or(FrameError::UnknownType(kind))?;
    let reserved = u32::from_le_bytes([flags, r0, r1, 0]);
    if reserved != 0 {
        return Err(FrameError::Reserved(reserved));
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]);
    if len as usize > kind.max_body() {
        return Err(FrameError::TooLong { kind, len });
    }
    if (len as usize) < kind.min_body() {
        return Err(FrameError::Truncated { kind });
    }
    Ok(match kind.fixed_len() {
        0 => DecoderState::Body {
            kind,
            len: len as usize,
        },
        fixed => DecoderState::Fixed {
            kind,
            payload: len - fixed as u32,
        },
    })
}

fn put_header(out: &mut Vec<u8>, kind: FrameType, len: usize) {
    debug_assert!(len <= kind.max_body(), "{kind:?} of {len} bytes");
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    out.extend_from_slice(&(len as u32).to_le_bytes());
}

fn put_frame(out: &mut Vec<u8>, kind: FrameType, body: &[u8]) {
    put_header(out, kind, body.len());
    out.extend_from_slice(body);
}

/// Bounds-checked reader of a frame's body.
struct Fields<'a> {
    kind: FrameType,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(kind: FrameType, body: &'a [u8]) -> Self {
        Self { kind, rest: body }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(FrameError::Truncated { kind: self.kind })?;
        self.rest = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    fn zero_u32(&mut self) -> Result<(), FrameError> {
        match self.u32()? {
            0 => Ok(()),
            bits => Err(FrameError::Reserved(bits)),
        }
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_le_bytes)
    }

    fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn end(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(FrameError::Truncated { kind: self.kind })
        }
    }
}

#[cfg(test)]
mod tests;

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
//! The decoder checks the length against the limit of the type before any allocation.
//! `docs/PROTOCOL.md` describes the bodies, and this module's tests pin them byte for byte. A
//! [`Decoder`] turns plaintext of any fragmentation into [`Piece`]s without copying the payload of
//! data frames.

use std::fmt;

use crate::{
    extent::{ChunkId, ChunkRange},
    hash_tree::ChainingValue,
    session::TransferId,
};

/// Length of a frame header in bytes.
pub const HEADER_LEN: usize = 8;

/// Length of a data frame's fixed part in bytes: transfer, reserved, chunk, chaining value.
pub const DATA_HEADER_LEN: usize = 48;

/// Most payload in one data frame: 256 KiB.
///
/// A sender can change its schedule only between frames; at 10 Mbit/s one takes 0.2 s.
pub const MAX_PAYLOAD: usize = 256 * 1024;

/// Most bytes in a control message: 64 KiB.
pub const MAX_CONTROL: usize = 64 * 1024;

/// Length of a load frame's fixed part in bytes: run, reserved.
pub const LOAD_HEADER_LEN: usize = 8;

/// Most payload in one load frame: 256 KiB, equal to a chunk, so that a load costs as much as a
/// copy.
pub const MAX_LOAD: usize = 256 * 1024;

/// Length of an echo frame's fixed part in bytes: token, flags, reserved.
pub const ECHO_HEADER_LEN: usize = 16;

/// Most payload in one echo frame: 64 KiB.
pub const MAX_ECHO: usize = 64 * 1024;

/// Most chunk ranges in one acknowledgement.
pub const MAX_ACK_RANGES: usize = 64;

/// Frame types; the only definition of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// First frame of the client: names the session and path of the connection.
    Hello = 1,
    /// The daemon's answer to [`FrameType::Hello`].
    Welcome = 2,
    /// The daemon's rejection of a [`FrameType::Hello`]; the connection ends.
    Refuse = 3,
    /// A numbered control message.
    Control = 4,
    /// Cumulative acknowledgement of control messages.
    ControlAck = 5,
    /// One chunk of a file.
    Data = 6,
    /// Acknowledgement of chunks that were verified and written.
    Ack = 7,
    /// Total data frames that may be sent on this connection.
    Credit = 8,
    /// Keep-alive and RTT measurement.
    Heartbeat = 9,
    /// End of the session; nothing follows on this connection.
    Close = 10,
    /// Payload of a benchmark run, counted and dropped.
    Load = 11,
    /// Benchmark request that is answered at once, or its reply.
    Echo = 12,
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello => "hello",
            Self::Welcome => "welcome",
            Self::Refuse => "refuse",
            Self::Control => "control",
            Self::ControlAck => "control ack",
            Self::Data => "data",
            Self::Ack => "ack",
            Self::Credit => "credit",
            Self::Heartbeat => "heartbeat",
            Self::Close => "close",
            Self::Load => "load",
            Self::Echo => "echo",
        })
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

    /// Returns the longest body of the type in bytes.
    pub fn max_body(self) -> usize {
        match self {
            Self::Hello | Self::Welcome => 32 * 1024,
            Self::Refuse => 1024,
            Self::Control => 8 + MAX_CONTROL,
            Self::ControlAck | Self::Credit => 8,
            Self::Data => DATA_HEADER_LEN + MAX_PAYLOAD,
            Self::Ack => 8 + MAX_ACK_RANGES * ACK_RANGE_LEN,
            Self::Heartbeat => 16,
            Self::Close => 4,
            Self::Load => LOAD_HEADER_LEN + MAX_LOAD,
            Self::Echo => ECHO_HEADER_LEN + MAX_ECHO,
        }
    }

    /// Returns the shortest body of the type in bytes.
    fn min_body(self) -> usize {
        match self {
            Self::Hello | Self::Welcome | Self::Refuse => 1,
            Self::Control => 9,
            Self::ControlAck | Self::Credit => 8,
            Self::Data => DATA_HEADER_LEN + 1,
            Self::Ack => 8 + ACK_RANGE_LEN,
            Self::Heartbeat => 16,
            Self::Close => 4,
            Self::Load => LOAD_HEADER_LEN + 1,
            Self::Echo => ECHO_HEADER_LEN,
        }
    }
}

const ACK_RANGE_LEN: usize = 16;

/// Fixed part of a data frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Transfer of the chunk.
    pub transfer: TransferId,
    /// Chunk number; the transfer's grid determines its offset.
    pub chunk: ChunkId,
    /// BLAKE3 chaining value of the chunk as the sender read it.
    pub value: ChainingValue,
    /// Length of the payload in bytes, 1 to [`MAX_PAYLOAD`].
    pub len: u32,
    /// Uncompressed length in bytes if the payload is a zstd frame, which must be shorter; 0 if the
    /// payload is the chunk itself.
    pub raw_len: u32,
    /// True for the last chunk; used only if the transfer's length is unknown.
    pub last: bool,
}

/// Bits of [`DataHeader::raw_len`] in the second field of the body.
const RAW_LEN_BITS: u32 = (1 << 20) - 1;

/// Bit of [`DataHeader::last`] in the same field.
const LAST: u32 = 1 << 31;

impl DataHeader {
    /// Returns the length of the chunk in bytes.
    pub fn chunk_len(&self) -> u32 {
        if self.raw_len == 0 {
            self.len
        } else {
            self.raw_len
        }
    }

    /// Returns the header for a compressed payload of `len` bytes, less than the chunk's length.
    pub fn packed(self, len: u32) -> Self {
        Self {
            len,
            raw_len: self.chunk_len(),
            ..self
        }
    }

    /// Appends the frame header and the fixed part; `len` bytes of payload must follow.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, FrameType::Data, DATA_HEADER_LEN + self.len as usize);
        out.extend_from_slice(&self.transfer.0.to_le_bytes());
        let flags = if self.last { LAST } else { 0 };
        out.extend_from_slice(&(self.raw_len & RAW_LEN_BITS | flags).to_le_bytes());
        out.extend_from_slice(&self.chunk.0.to_le_bytes());
        out.extend_from_slice(&self.value.0);
    }

    fn decode(body: &[u8; DATA_HEADER_LEN], len: u32) -> Result<Self, FrameError> {
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
        let header = Self {
            transfer,
            chunk: ChunkId(fields.u64()?),
            value: ChainingValue(fields.array()?),
            len,
            raw_len,
            last,
        };
        fields.end()?;
        Ok(header)
    }
}

/// Fixed part of a load frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadHeader {
    /// Run of the load.
    pub run: u32,
    /// Length of the payload in bytes, 1 to [`MAX_LOAD`].
    pub len: u32,
}

impl LoadHeader {
    /// Appends the frame header and the fixed part; `len` bytes of payload must follow.
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

/// Fixed part of an echo frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoHeader {
    /// Identifier chosen by the requester.
    pub token: u64,
    /// True for a reply. Otherwise it requests a reply of equal token and length.
    pub reply: bool,
    /// Length of the payload in bytes, at most [`MAX_ECHO`].
    pub len: u32,
}

/// Bit of [`EchoHeader::reply`] in the second field of the body.
const REPLY: u32 = 1;

impl EchoHeader {
    /// Appends the frame header and the fixed part; `len` bytes of payload must follow.
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

/// Complete frame, except for data, load and echo frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Frame of type [`FrameType::Hello`]; an encoded [`crate::message::Hello`].
    Hello(Vec<u8>),
    /// Frame of type [`FrameType::Welcome`]; an encoded [`crate::message::Welcome`].
    Welcome(Vec<u8>),
    /// Frame of type [`FrameType::Refuse`]; an encoded [`crate::message::Refusal`].
    Refuse(Vec<u8>),
    /// Numbered control message.
    Control {
        /// Message number per direction of the session, from 0.
        seq: u64,
        /// Encoded [`crate::message::Message`] of at most [`MAX_CONTROL`] bytes.
        body: Vec<u8>,
    },
    /// Acknowledgement of all control messages below `next`.
    ControlAck {
        /// Number of the message expected next.
        next: u64,
    },
    /// Acknowledgement of chunks that were verified and written, but are not yet durable.
    Ack {
        /// Transfer of the chunks.
        transfer: TransferId,
        /// Chunks in 1 to [`MAX_ACK_RANGES`] ranges.
        ranges: Vec<ChunkRange>,
    },
    /// Permission to send data frames.
    Credit {
        /// Total data frames permitted since the connection opened.
        frames: u64,
    },
    /// Keep-alive and RTT measurement.
    Heartbeat {
        /// Timestamp of the sender in microseconds, from an arbitrary origin; never 0.
        sent_us: u64,
        /// Timestamp being echoed, or 0 if none.
        echo_us: u64,
    },
    /// End of the session.
    Close {
        /// Number of a [`crate::message::CloseCode`].
        code: u32,
    },
}

impl Frame {
    /// Appends the encoded frame.
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
            // The decoder handles these types itself.
            FrameType::Data | FrameType::Load | FrameType::Echo => {
                return Err(FrameError::Truncated { kind });
            }
        };
        fields.end()?;
        Ok(frame)
    }
}

/// Output of a [`Decoder`].
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Complete frame, except for data, load and echo frames.
    Frame(Frame),
    /// Start of a data frame; `len` bytes of payload follow.
    DataStart(DataHeader),
    /// Payload of the current data frame, in order.
    DataBytes(&'a [u8]),
    /// End of the current data frame.
    DataEnd,
    /// Start of a load frame; `len` bytes of payload follow.
    Load(LoadHeader),
    /// Start of an echo frame; `len` bytes of payload follow.
    Echo(EchoHeader),
    /// Payload of the current load or echo frame; its content is ignored.
    Filler {
        /// Bytes of the payload.
        bytes: &'a [u8],
        /// Bytes that remain; the frame is complete at 0.
        left: usize,
    },
}

/// Malformed frame. Always the peer's fault; ends the path, not the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Frame type unknown in version 1.
    #[error("peer sent a frame of unknown type {0}, expected 1 to {max}", max = FrameType::ALL.len())]
    UnknownType(u8),
    /// Nonzero flag or reserved field.
    #[error("peer set reserved bits {0:#x} in a frame header, expected 0 in version 1")]
    Reserved(u32),
    /// Body longer than the type allows.
    #[error("{kind} frame of {len} bytes exceeds the limit of {max}", max = kind.max_body())]
    TooLong {
        /// Type of the frame.
        kind: FrameType,
        /// Length declared by the header.
        len: u32,
    },
    /// Compressed payload that is not shorter than the chunk, or exceeds the chunk limit when
    /// decompressed.
    #[error(
        "peer sent {len} compressed bytes of {raw_len}, expected less than the raw size, at most {MAX_PAYLOAD}"
    )]
    RawLen {
        /// Declared uncompressed length in bytes.
        raw_len: u32,
        /// Length of the payload in bytes.
        len: u32,
    },
    /// Body too short for its type, or with trailing bytes.
    #[error("{kind} frame has a malformed body")]
    Truncated {
        /// Type of the frame.
        kind: FrameType,
    },
}

/// Incremental decoder of frames from slices of any length.
///
/// Buffers at most one frame other than data (slightly more than [`MAX_CONTROL`]); payload is
/// passed through.
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
    /// Collecting a frame header.
    #[default]
    Header,
    /// Collecting a body of `len` bytes.
    Body { kind: FrameType, len: usize },
    /// Collecting the fixed part of a data frame.
    DataHeader { payload: u32 },
    /// Passing payload through.
    Payload { left: usize },
    /// Collecting the fixed part of a load frame.
    LoadHeader { filler: u32 },
    /// Collecting the fixed part of an echo frame.
    EchoHeader { filler: u32 },
    /// Passing load or echo payload through.
    Filler { left: usize },
}

impl Decoder {
    /// Returns a decoder for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece from the front of `input`. If there is no complete piece, consumes all
    /// of `input` and returns `None`.
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
                DecoderState::DataHeader { payload } => {
                    if !self.hold(input, DATA_HEADER_LEN) {
                        return Ok(None);
                    }
                    let body = self.held[..]
                        .try_into()
                        .map_err(|_| FrameError::Truncated {
                            kind: FrameType::Data,
                        })?;
                    let header = DataHeader::decode(body, payload)?;
                    self.held.clear();
                    self.state = DecoderState::Payload {
                        left: payload as usize,
                    };
                    return Ok(Some(Piece::DataStart(header)));
                }
                DecoderState::LoadHeader { filler } => {
                    if !self.hold(input, LOAD_HEADER_LEN) {
                        return Ok(None);
                    }
                    let header = LoadHeader::decode(&self.held, filler)?;
                    return Ok(Some(self.begin_filler(filler, Piece::Load(header))));
                }
                DecoderState::EchoHeader { filler } => {
                    if !self.hold(input, ECHO_HEADER_LEN) {
                        return Ok(None);
                    }
                    let header = EchoHeader::decode(&self.held, filler)?;
                    return Ok(Some(self.begin_filler(filler, Piece::Echo(header))));
                }
                DecoderState::Filler { left: 0 } => self.state = DecoderState::Header,
                DecoderState::Filler { left } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let (bytes, rest) = input.split_at(left.min(input.len()));
                    *input = rest;
                    let left = left - bytes.len();
                    self.state = DecoderState::Filler { left };
                    return Ok(Some(Piece::Filler { bytes, left }));
                }
                DecoderState::Payload { left: 0 } => {
                    self.state = DecoderState::Header;
                    return Ok(Some(Piece::DataEnd));
                }
                DecoderState::Payload { left } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let (bytes, rest) = input.split_at(left.min(input.len()));
                    *input = rest;
                    self.state = DecoderState::Payload {
                        left: left - bytes.len(),
                    };
                    return Ok(Some(Piece::DataBytes(bytes)));
                }
            }
        }
    }

    fn begin_filler<'a>(&mut self, filler: u32, piece: Piece<'a>) -> Piece<'a> {
        self.held.clear();
        self.state = DecoderState::Filler {
            left: filler as usize,
        };
        piece
    }

    /// Buffers bytes from `input`; returns true once `len` bytes are buffered.
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
    Ok(match kind {
        FrameType::Data => DecoderState::DataHeader {
            payload: len - DATA_HEADER_LEN as u32,
        },
        FrameType::Load => DecoderState::LoadHeader {
            filler: len - LOAD_HEADER_LEN as u32,
        },
        FrameType::Echo => DecoderState::EchoHeader {
            filler: len - ECHO_HEADER_LEN as u32,
        },
        kind => DecoderState::Body {
            kind,
            len: len as usize,
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

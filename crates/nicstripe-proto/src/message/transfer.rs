//! What moves a file: asking, offering, accepting, and the end.

use minicbor::{Decode, Encode};

use super::{EntryRef, GetRange, is_unset};
use crate::{
    extent::ChunkId,
    hash_tree::{ChainingValue, Digest, Subtree},
    journal::SourceIdentity,
    name::Name,
    sender::End,
    session::TransferId,
};

/// Body of [`crate::Message::Put`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Put {
    /// The name to give to it, relative to the daemon's root.
    #[n(0)]
    pub name: Name,
    /// What is to be sent.
    #[n(1)]
    pub offer: Offer,
    /// How to receive it.
    #[n(2)]
    pub options: PutOptions,
    /// The source's own file name: where `name` is a directory there, the file goes into it under this name.
    #[n(3)]
    pub into: Option<Name>,
    /// The entry of a tree that this is; then the tree says where it goes, not `name`.
    #[n(4)]
    pub entry: Option<EntryRef>,
}

/// How a receiver is asked to treat a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PutOptions {
    /// Replace a file that has the name.
    #[n(0)]
    pub replace: bool,
    /// Start from nothing although a partial file is there.
    #[n(1)]
    pub restart: bool,
    /// Keep mode and modification time.
    #[n(2)]
    pub preserve: bool,
    /// Read back what was written, from the disk, and compare before the file gets its name.
    #[n(3)]
    pub verify: bool,
    /// Send only chunks that differ from those of the file that has the name, which is replaced.
    #[n(4)]
    #[cbor(default, skip_if = "is_unset")]
    pub delta: bool,
    /// Write into the file that has the name; implies `delta`.
    #[n(5)]
    #[cbor(default, skip_if = "is_unset")]
    pub in_place: bool,
    /// Make what arrives durable, and remove it: to see how long that takes. What has the name is not touched.
    #[n(6)]
    #[cbor(default, skip_if = "is_unset")]
    pub trial: bool,
    /// Make the directories that lead to the name, where they are missing.
    #[n(7)]
    #[cbor(default, skip_if = "is_unset")]
    pub parents: bool,
}

/// Body of [`crate::Message::Get`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Get {
    /// The transfer's number, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// The file's name relative to the daemon's root.
    #[n(1)]
    pub name: Name,
    /// Most that the daemon may send over all paths together, in bit/s.
    #[n(2)]
    pub limit_bps: Option<u64>,
    /// The entry of a tree that this is; then the tree says which file, not `name`.
    #[n(3)]
    pub entry: Option<EntryRef>,
    /// Compress chunks where that pays.
    #[n(4)]
    #[cbor(default, skip_if = "is_unset")]
    pub compress: bool,
    /// Do not fail when the file changes while it is read.
    #[n(5)]
    #[cbor(default, skip_if = "is_unset")]
    pub allow_changing: bool,
    /// Only this part of the file, which is then the whole of the transfer: its size, chunks and digest are those of the part.
    #[n(6)]
    pub range: Option<GetRange>,
}

/// A file that a sender holds open.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Offer {
    /// The transfer's number, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// What the file is; a resumed transfer must have the same.
    #[n(1)]
    pub source: SourceIdentity,
    /// Base-2 logarithm of the chunk size in bytes.
    #[n(2)]
    pub chunk_log2: u8,
    /// Permission bits (0o777).
    #[n(3)]
    pub mode: u32,
    /// What its chunks are; a file's, if absent.
    #[n(4)]
    pub kind: Option<OfferKind>,
    /// Bytes outside of holes, for a file that has holes: a [`Holes`](super::Holes) follows an [`Accept`] then.
    #[n(5)]
    pub data: Option<u64>,
}

/// What the chunks of a transfer are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum OfferKind {
    /// A file of the size that is told.
    #[default]
    #[n(0)]
    File,
    /// A file whose size is told at its end.
    #[n(1)]
    Pipe,
    /// Parcels of a tree.
    #[n(2)]
    Parcels,
}

/// Most subtrees in one [`Accept`].
///
/// With 42 bytes each at most they fit in one control message with room to spare. A receiver that has more (its file is in more pieces)
/// names the largest; what it does not name is sent again.
pub const MAX_HAVE: usize = 1400;

/// Body of [`crate::Message::Accept`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Accept {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// What is durable at the receiver from an earlier attempt, at most [`MAX_HAVE`].
    #[n(1)]
    pub have: Vec<Have>,
    /// Chunks that there is room for so far; for all, if absent.
    #[n(2)]
    pub window: Option<u64>,
    /// How many chunks, from the first, will be compared: their [`Values`](super::Values) follow, but for those in `have` and in holes, and
    /// none of them is sent before.
    #[n(3)]
    pub delta: Option<u64>,
    /// Of a tree, where [`super::PutTree::heeds_memory`] was set: the sender waits while the [footprints](crate::tree::Entry::footprint) of
    /// entries that are not settled sum up to so many bytes, less those of directories that have not ended.
    #[n(4)]
    pub memory: Option<u64>,
}

/// A [`Subtree`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Have {
    /// See [`Subtree::first`].
    #[n(0)]
    pub first: u64,
    /// See [`Subtree::level`].
    #[n(1)]
    pub level: u8,
    /// See [`Subtree::value`].
    #[cbor(n(2), with = "minicbor::bytes")]
    pub value: [u8; 32],
}

impl From<&Subtree> for Have {
    fn from(subtree: &Subtree) -> Self {
        Self { first: subtree.first.0, level: subtree.level, value: subtree.value.0 }
    }
}

impl From<Have> for Subtree {
    fn from(have: Have) -> Self {
        Self { first: ChunkId(have.first), level: have.level, value: ChainingValue(have.value) }
    }
}

/// Body of [`crate::Message::Window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Window {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Chunks that may be sent, in all.
    #[n(1)]
    pub chunks: u64,
}

/// Body of [`crate::Message::Complete`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Complete {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// BLAKE3 of the whole file as the sender read it.
    #[n(1)]
    pub digest: Digest,
    /// The file's modification time, for [`PutOptions::preserve`], is that of the offer; this says what held each path back so far.
    #[n(2)]
    pub streams: Vec<StreamReport>,
    /// How much there was, where the receiver did not know.
    #[n(3)]
    pub end: Option<End>,
    /// Whether a chunk was read more than once, and not the same each time, of a source that may change: then the receiver's digest stands.
    #[n(4)]
    #[cbor(default, skip_if = "is_unset")]
    pub changing: bool,
}

/// What a sender's kernel says of one path, over the path's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StreamReport {
    /// The path.
    #[n(0)]
    pub path: u16,
    /// Bytes sent more than once.
    #[n(1)]
    pub retransmitted_bytes: Option<u64>,
    /// Smoothed round-trip time, in microseconds.
    #[n(2)]
    pub rtt_us: Option<u64>,
    /// Time with something to send, in microseconds.
    #[n(3)]
    pub busy_us: Option<u64>,
    /// Part of it held back by the receiver's window, in microseconds.
    #[n(4)]
    pub rwnd_limited_us: Option<u64>,
    /// Part of it held back by the send buffer, in microseconds.
    #[n(5)]
    pub sndbuf_limited_us: Option<u64>,
    /// Time without credit although there was something to send, in microseconds.
    #[n(6)]
    pub starved_us: Option<u64>,
}

/// Body of [`crate::Message::Committed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Committed {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// BLAKE3 of the whole file as the receiver verified it.
    #[n(1)]
    pub digest: Digest,
}

/// Body of [`crate::Message::Fail`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Fail {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// What kind of failure.
    #[n(1)]
    pub code: FailCode,
    /// What failed, on which thing, in one line for people; at most 1 KiB, escaped by whoever shows it.
    #[n(2)]
    pub text: String,
    /// Whether a rerun would go on from what is durable.
    #[n(3)]
    pub resumable: bool,
}

/// Kinds of failure of a transfer; each has an exit code of its own in the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
#[non_exhaustive]
pub enum FailCode {
    /// A name, a permission or a policy of the peer's line does not allow it.
    #[n(0)]
    Refused,
    /// No such file.
    #[n(1)]
    NotFound,
    /// A file of that name exists and replacing it was not asked for.
    #[n(2)]
    Exists,
    /// Reading, writing or syncing a file failed.
    #[n(3)]
    Io,
    /// The disk is full.
    #[n(4)]
    NoSpace,
    /// The source changed while it was read.
    #[n(5)]
    SourceChanged,
    /// The digests of the two ends differ.
    #[n(6)]
    Digest,
    /// The same target is being written by another transfer.
    #[n(7)]
    Busy,
    /// Interrupted by its user.
    #[n(8)]
    Cancelled,
    /// The peer broke the protocol.
    #[n(9)]
    Protocol,
    /// Not a regular file.
    #[n(10)]
    NotAFile,
}

impl FailCode {
    /// The word for it in machine-readable output, logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NotFound => "not_found",
            Self::Exists => "exists",
            Self::Io => "io",
            Self::NoSpace => "no_space",
            Self::SourceChanged => "source_changed",
            Self::Digest => "digest",
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::Protocol => "protocol",
            Self::NotAFile => "not_a_file",
        }
    }
}

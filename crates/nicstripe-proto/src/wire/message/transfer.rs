//! Messages that start, accept and end the transfer of a file.

use minicbor::{Decode, Encode};

use super::{object::GetRange, tree::EntryRef};
use crate::{
    failure::{FailCode, MAX_TEXT, truncate},
    file::{
        hash_tree::{Digest, Subtree},
        journal::SourceIdentity,
        name::Name,
    },
    id::TransferId,
};

/// Client's request to upload a file. Body of [`crate::Message::Put`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Put {
    /// Target name, relative to the daemon's root.
    #[n(0)]
    pub name: Name,
    /// Properties of the file and its transfer.
    #[n(1)]
    pub offer: Offer,
    /// Options that the daemon obeys as the receiver of the file.
    #[n(2)]
    pub options: PutOptions,
    /// File name of the source. If `name` is a directory on the receiver, the file is stored in it
    /// under this name.
    #[n(3)]
    pub into: Option<Name>,
    /// Entry of a tree to which this file belongs. If present, the tree determines the target and
    /// `name` is ignored.
    #[n(4)]
    pub entry: Option<EntryRef>,
}

/// Options for the receiver of an uploaded file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PutOptions {
    /// True to replace an existing file with the target name.
    #[n(0)]
    pub replace: bool,
    /// True to discard a partially received file instead of resuming it.
    #[n(1)]
    pub restart: bool,
    /// True to preserve permission bits and modification time.
    #[n(2)]
    pub preserve: bool,
    /// True to read the written data back from disk and compare it before the rename to the target
    /// name.
    #[n(3)]
    pub verify: bool,
    /// True to send only chunks that differ from the existing file with the target name
    /// (`--delta`), and to replace that file.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub delta: bool,
    /// True to write into the existing file with the target name instead of a new file; implies
    /// `delta`.
    #[cbor(n(5), default, skip_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// True to make the data durable and then remove it, to measure the write time. An existing
    /// file with the target name stays untouched.
    #[cbor(n(6), default, skip_if = "std::ops::Not::not")]
    pub trial: bool,
    /// True to create missing parent directories of the target name.
    #[cbor(n(7), default, skip_if = "std::ops::Not::not")]
    pub parents: bool,
}

/// Client's request to download a file. Body of [`crate::Message::Get`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Get {
    /// ID of the transfer, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Name of the file, relative to the daemon's root.
    #[n(1)]
    pub name: Name,
    /// Maximum rate at which the daemon may send over all paths together, in bit/s; unlimited if
    /// absent.
    #[n(2)]
    pub limit_bps: Option<u64>,
    /// Entry of a tree to which this file belongs. If present, the tree determines the file and
    /// `name` is ignored.
    #[n(3)]
    pub entry: Option<EntryRef>,
    /// True to compress chunks if it reduces their size.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub compress: bool,
    /// True to tolerate changes of the file while it is read.
    #[cbor(n(5), default, skip_if = "std::ops::Not::not")]
    pub allow_changing: bool,
    /// Byte range to transfer; the whole file if absent. Size, chunks and digest of the transfer
    /// are those of the range.
    #[n(6)]
    pub range: Option<GetRange>,
}

/// Sender's description of an opened source and its transfer.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Offer {
    /// ID of the transfer, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Identity of the source file; a transfer is resumed only if it is unchanged.
    #[n(1)]
    pub source: SourceIdentity,
    /// Base-2 logarithm of the chunk size in bytes.
    #[n(2)]
    pub chunk_log2: u8,
    /// Permission bits of the source (0o777).
    #[n(3)]
    pub mode: u32,
    /// Kind of the transfer's chunks; [`OfferKind::File`] if absent.
    #[n(4)]
    pub kind: Option<OfferKind>,
    /// Number of bytes outside of holes, if the file is sparse. In this case
    /// [`Holes`](super::Holes) follows the [`Accept`].
    #[n(5)]
    pub data: Option<u64>,
}

/// Kind of the chunks of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum OfferKind {
    /// Chunks of a file of known size.
    #[default]
    #[n(0)]
    File,
    /// Chunks of a stream, whose size is known only at its end.
    #[n(1)]
    Pipe,
    /// Batches of a directory tree.
    #[n(2)]
    Batches,
}

/// Maximum number of subtrees in one [`Accept`].
///
/// At up to 42 bytes each they fit in one control message with a margin. A receiver with more
/// subtrees (a more fragmented file) lists the largest; the sender resends the rest.
pub(crate) const MAX_HAVE: usize = 1400;

/// Receiver's acceptance of a transfer. Body of [`crate::Message::Accept`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Accept {
    /// ID of the accepted transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Chunks that are durable from an earlier attempt, as at most `MAX_HAVE` hash subtrees.
    #[n(1)]
    pub have: Vec<Subtree>,
    /// Initial send window in chunks; unlimited if absent.
    #[n(2)]
    pub window: Option<u64>,
    /// Number of leading chunks to compare with the existing file (`--delta`). Their
    /// [`Values`](super::Values) follow, except for chunks in `have` and in holes. The sender sends
    /// none of them before its value arrives.
    #[n(3)]
    pub delta: Option<u64>,
    /// Maximum memory in bytes for the entries of a tree, if [`super::PutTree::heeds_memory`] is
    /// set.
    ///
    /// The sender pauses while the [footprints](crate::tree::Entry::footprint) of unsettled entries
    /// reach the limit. Directories that have not ended do not count.
    #[n(4)]
    pub memory: Option<u64>,
}

/// Receiver's extension of the send window. Body of [`crate::Message::Window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Window {
    /// ID of the transfer whose window is extended.
    #[n(0)]
    pub transfer: TransferId,
    /// Total number of chunks that the sender may send, counted from the first.
    #[n(1)]
    pub chunks: u64,
}

/// Sender's report that it has read the whole source. Body of [`crate::Message::Complete`].
///
/// Carries no modification time: [`PutOptions::preserve`] uses the one of the offer.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Complete {
    /// ID of the transfer whose source is read.
    #[n(0)]
    pub transfer: TransferId,
    /// BLAKE3 digest of the whole file as the sender read it.
    #[n(1)]
    pub digest: Digest,
    /// Kernel statistics of each path that the sender has used so far.
    #[n(2)]
    pub streams: Vec<StreamReport>,
    /// Final number of chunks and bytes; present only if the receiver did not know the size.
    #[n(3)]
    pub end: Option<End>,
    /// True if the source may change and repeated reads of a chunk differed. The receiver's digest
    /// is then authoritative.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub changing: bool,
}

/// Final length of a transfer whose length was unknown at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct End {
    /// Total number of chunks.
    #[n(0)]
    pub chunks: u64,
    /// Total size in bytes; 0 for batches.
    #[n(1)]
    pub size: u64,
}

/// Kernel's TCP statistics of one path of the sender, summed over the path's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StreamReport {
    /// ID of the path that the statistics are about.
    #[n(0)]
    pub path: u16,
    /// Number of bytes retransmitted by TCP.
    #[n(1)]
    pub retransmitted_bytes: Option<u64>,
    /// Smoothed round-trip time, in microseconds.
    #[n(2)]
    pub rtt_us: Option<u64>,
    /// Time with data to send, in microseconds.
    #[n(3)]
    pub busy_us: Option<u64>,
    /// Part of `busy_us` in which the receiver's TCP window was the limit, in microseconds.
    #[n(4)]
    pub rwnd_limited_us: Option<u64>,
    /// Part of `busy_us` in which the send buffer was the limit, in microseconds.
    #[n(5)]
    pub sndbuf_limited_us: Option<u64>,
    /// Time without credit for data frames while data was ready to send, in microseconds.
    #[n(6)]
    pub starved_us: Option<u64>,
}

/// Receiver's report that the whole file is durable. Body of [`crate::Message::Committed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Committed {
    /// ID of the committed transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// BLAKE3 digest of the whole file as the receiver verified it.
    #[n(1)]
    pub digest: Digest,
}

/// Report of either side that a transfer failed. Body of [`crate::Message::Fail`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Fail {
    /// ID of the failed transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Machine-readable category of the failure.
    #[n(1)]
    pub code: FailCode,
    /// Human-readable error in one line of at most 1 KiB: the operation and the object. The side
    /// that displays it must escape it.
    #[n(2)]
    pub text: String,
    /// True if a later attempt can resume from the data that is durable.
    #[n(3)]
    pub resumable: bool,
}

/// Returns the message that tells the peer of a local failure; truncates the text.
pub fn failure(
    transfer: TransferId,
    code: FailCode,
    text: impl Into<String>,
    resumable: bool,
) -> Fail {
    let mut text: String = text.into();
    truncate(&mut text, MAX_TEXT);
    Fail {
        transfer,
        code,
        text,
        resumable,
    }
}

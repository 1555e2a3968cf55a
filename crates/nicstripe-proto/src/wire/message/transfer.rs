//! Messages that start, accept and end a file transfer.

use minicbor::{Decode, Encode};

use super::{
    object::{GetRange, ObjectStat},
    tree::EntryRef,
};
use crate::{
    failure::{FailCode, MAX_TEXT, truncate},
    file::{
        attributes::ObjectAttributes,
        etag::ETag,
        hash_tree::{Digest, Subtree},
        journal::{SourceIdentity, Timestamp},
        name::Name,
    },
    id::TransferId,
};

/// Client's request to upload a file. Body of [`crate::Message::Put`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Put {
    /// Target name, relative to the daemon's root directory.
    #[n(0)]
    pub name: Name,
    /// Properties of the file and its transfer.
    #[n(1)]
    pub offer: Offer,
    /// Options that the daemon, as the receiver, applies to the file.
    #[n(2)]
    pub options: PutOptions,
    /// File name of the source; `None` to store the file only as `name`. The file is stored under
    /// this name in the directory if `name` is a directory at the receiver.
    #[n(3)]
    pub into: Option<Name>,
    /// Tree entry to which this file belongs; `None` for a file outside of trees. The tree
    /// determines the target of such an entry, and `name` is ignored.
    #[n(4)]
    pub entry: Option<EntryRef>,
    /// Attributes that the file has once it is complete; `None` for none.
    #[n(5)]
    pub attributes: Option<ObjectAttributes>,
}

impl Put {
    /// Returns the request to upload a standalone file of a tree, whose name only the tree knows.
    pub fn of_entry(entry: EntryRef, offer: Offer, options: PutOptions) -> Self {
        Self {
            name: unnamed(),
            offer,
            options,
            into: None,
            entry: Some(entry),
            attributes: None,
        }
    }
}

/// Returns what stands for the name of a standalone file. The daemon ignores it.
fn unnamed() -> Name {
    // Valid: not empty, one component, plain.
    Name::parse(b"entry").unwrap_or_else(|_| unreachable!("a plain name"))
}

/// Options for the receiver of an uploaded file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PutOptions {
    /// True to replace an existing regular file with the target name.
    #[n(0)]
    pub replace: bool,
    /// True to discard a partially received file, false to resume it.
    #[n(1)]
    pub restart: bool,
    /// True to preserve permission bits and modification time.
    #[n(2)]
    pub preserve: bool,
    /// True to read the written data back from the disk and compare it with the received data,
    /// before the rename to the target name.
    #[n(3)]
    pub verify: bool,
    /// True to send only the chunks that differ from the existing file with the target name
    /// (`--delta`). The new file replaces the existing one.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub delta: bool,
    /// True to write into the existing file with the target name. Implies `delta`.
    #[cbor(n(5), default, skip_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// True to make the data durable and then remove it, to measure the write time. An existing
    /// file with the target name remains unchanged.
    #[cbor(n(6), default, skip_if = "std::ops::Not::not")]
    pub trial: bool,
    /// True to create missing parent directories of the target name.
    #[cbor(n(7), default, skip_if = "std::ops::Not::not")]
    pub parents: bool,
    /// True to overwrite a block device with the target name, and to replace a symbolic link.
    #[cbor(n(8), default, skip_if = "std::ops::Not::not")]
    pub force: bool,
    /// Tag that the file to replace must have at the time of the commit; `None` for any file. Implies
    /// `replace` for that file.
    #[n(9)]
    pub only_if: Option<ETag>,
    /// Range of the file that the data of the stream is written to; `None` for a separate file.
    #[n(10)]
    pub slice: Option<Slice>,
    /// Give the file the modification time of the source, also without `preserve`.
    #[cbor(n(11), default, skip_if = "std::ops::Not::not")]
    pub times: bool,
}

/// Range of a file that several transfers write, each with its own slice. It gets the data in place,
/// and is durable at the end of the transfer. The first one makes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Slice {
    /// First byte of the range.
    #[n(0)]
    pub offset: u64,
    /// Size in bytes that the whole file has at least, and exactly if it gets a time or a mode.
    #[n(1)]
    pub size: u64,
    /// Modification time that the file gets, which must exist; `None` to leave it.
    #[n(2)]
    pub mtime: Option<Timestamp>,
    /// Permission bits (0o777) that the file gets, which must exist; `None` to leave them, or with a time
    /// for those of any new file.
    #[n(3)]
    pub mode: Option<u32>,
}

/// Client's request to download a file. Body of [`crate::Message::Get`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Get {
    /// ID of the transfer, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Name of the file, relative to the daemon's root directory.
    #[n(1)]
    pub name: Name,
    /// Maximum rate at which the daemon may send over all paths together, in bit/s; `None` for no
    /// limit.
    #[n(2)]
    pub limit_bps: Option<u64>,
    /// Tree entry to which this file belongs; `None` for a file outside of trees. The tree
    /// determines the file of such an entry, and `name` is ignored.
    #[n(3)]
    pub entry: Option<EntryRef>,
    /// True to compress the chunks that compression shortens.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub compress: bool,
    /// True to accept changes of the file while the daemon reads it.
    #[cbor(n(5), default, skip_if = "std::ops::Not::not")]
    pub allow_changing: bool,
    /// Byte range to transfer; `None` for the whole file. Size, chunks and digest of the transfer
    /// refer to the range.
    #[n(6)]
    pub range: Option<GetRange>,
}

impl Get {
    /// Returns the request to download a standalone file of a tree, whose name only the tree knows.
    pub fn of_entry(transfer: TransferId, entry: EntryRef, allow_changing: bool) -> Self {
        Self {
            transfer,
            name: unnamed(),
            limit_bps: None,
            entry: Some(entry),
            compress: false,
            allow_changing,
            range: None,
        }
    }
}

/// Sender's description of an open source and of its transfer. Body of [`crate::Message::Offer`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Offer {
    /// ID of the transfer, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Identity of the source file. A transfer is resumed only if the identity is unchanged.
    #[n(1)]
    pub source: SourceIdentity,
    /// Base-2 logarithm of the chunk size in bytes.
    #[n(2)]
    pub chunk_log2: u8,
    /// Permission bits of the source (0o777).
    #[n(3)]
    pub mode: u32,
    /// Kind of the transfer's chunks; `None` means [`OfferKind::File`].
    #[n(4)]
    pub kind: Option<OfferKind>,
    /// Number of bytes outside of holes; `None` if the file is not sparse. The
    /// [`Holes`](super::Holes) messages of a sparse file follow the [`Accept`].
    #[n(5)]
    pub data: Option<u64>,
    /// Metadata of the whole file that a client has requested, with its tag; `None` in uploads and
    /// trees, and from daemons without [`Feature::Tags`](super::Feature::Tags).
    #[n(6)]
    pub object: Option<ObjectStat>,
}

/// Kind of the chunks of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum OfferKind {
    /// Chunks of a file of known size.
    #[default]
    #[n(0)]
    File,
    /// Chunks of a stream, whose size is unknown until its end.
    #[n(1)]
    Pipe,
    /// Batches of a directory tree.
    #[n(2)]
    Batches,
}

/// Maximum number of subtrees in one [`Accept`].
///
/// A subtree has up to 42 bytes, so the subtrees fit into one control message with a margin. A
/// receiver that has more subtrees (of a more fragmented file) lists the largest ones; the sender
/// retransmits the others.
pub(crate) const MAX_HAVE: usize = 1400;

/// Receiver's acceptance of a transfer. Body of [`crate::Message::Accept`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Accept {
    /// ID of the accepted transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Chunks that are durable from an earlier attempt, as hash subtrees. At most `MAX_HAVE`.
    #[n(1)]
    pub have: Vec<Subtree>,
    /// Initial send window in chunks; `None` for no limit.
    #[n(2)]
    pub window: Option<u64>,
    /// Number of leading chunks to compare with the existing file (`--delta`); `None` without a
    /// comparison. The receiver sends the [`Values`](super::Values) of these chunks afterwards,
    /// except for chunks in `have` and in holes. The sender sends none of these chunks before it
    /// has the chunk's value.
    #[n(3)]
    pub delta: Option<u64>,
    /// Maximum memory in bytes for the entries of a tree; `None` unless
    /// [`super::PutTree::heeds_memory`] is set.
    ///
    /// The sender pauses while the [footprints](crate::tree::Entry::footprint) of unsettled entries
    /// reach this limit. Directories that have not ended do not count.
    #[n(4)]
    pub memory: Option<u64>,
}

/// Receiver's extension of the send window. Body of [`crate::Message::Window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Window {
    /// ID of the transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Total number of chunks that the sender may send, counted from the start of the transfer.
    #[n(1)]
    pub chunks: u64,
}

/// Sender's report that it has read the whole source. Body of [`crate::Message::Complete`].
///
/// Has no modification time, because [`PutOptions::preserve`] uses the time in the offer.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Complete {
    /// ID of the transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// BLAKE3 digest of the whole file, as read by the sender.
    #[n(1)]
    pub digest: Digest,
    /// Kernel statistics of each path that the sender has used.
    #[n(2)]
    pub streams: Vec<StreamReport>,
    /// Final number of chunks and bytes; `None` if the receiver knew the size from the offer.
    #[n(3)]
    pub end: Option<End>,
    /// True if the source may change and repeated reads of a chunk differed. In this case, the
    /// receiver's digest is authoritative.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub changing: bool,
}

/// Final length of a transfer whose length was unknown at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct End {
    /// Total number of chunks.
    #[n(0)]
    pub chunks: u64,
    /// Total size in bytes. 0 for batches.
    #[n(1)]
    pub size: u64,
}

/// Kernel's TCP statistics of one path at the sender, summed over the path's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StreamReport {
    /// ID of the path.
    #[n(0)]
    pub path: u16,
    /// Bytes retransmitted by TCP; `None` if unknown.
    #[n(1)]
    pub retransmitted_bytes: Option<u64>,
    /// Smoothed round-trip time in microseconds; `None` if unknown.
    #[n(2)]
    pub rtt_us: Option<u64>,
    /// Time during which data was ready to send, in microseconds; `None` if unknown.
    #[n(3)]
    pub busy_us: Option<u64>,
    /// Part of `busy_us` during which the receiver's TCP window limited TCP, in microseconds;
    /// `None` if unknown.
    #[n(4)]
    pub rwnd_limited_us: Option<u64>,
    /// Part of `busy_us` during which the send buffer limited TCP, in microseconds; `None` if
    /// unknown.
    #[n(5)]
    pub sndbuf_limited_us: Option<u64>,
    /// Time during which data was ready to send but credit for data frames was lacking, in
    /// microseconds; `None` if unknown.
    #[n(6)]
    pub starved_us: Option<u64>,
}

/// Receiver's report that the whole file is durable. Body of [`crate::Message::Committed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Committed {
    /// ID of the transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// BLAKE3 digest of the whole file, as verified by the receiver.
    #[n(1)]
    pub digest: Digest,
    /// Tag of the file under its name; `None` if it is unknown.
    #[n(2)]
    pub etag: Option<ETag>,
}

/// Report of either end that a transfer failed. Body of [`crate::Message::Fail`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Fail {
    /// ID of the failed transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Machine-readable category of the failure.
    #[n(1)]
    pub code: FailCode,
    /// Human-readable error: the operation and the object, in one line of at most 1 KiB. The end
    /// that displays the text must escape it.
    #[n(2)]
    pub text: String,
    /// True if a later attempt can resume from the durable data.
    #[n(3)]
    pub resumable: bool,
}

/// Returns the message that reports a local failure to the peer. Truncates the text to the maximum
/// length.
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

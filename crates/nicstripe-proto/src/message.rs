//! What two peers tell each other besides data: CBOR maps that can grow.
//!
//! A map's keys are small numbers; a peer ignores keys it does not know and takes absent ones as `None`, so a field can be added without
//! a new version. A new *variant* needs a new [`VERSION`], as an older peer cannot read it.

use std::net::IpAddr;

use minicbor::{Decode, Encode};

use crate::{
    extent::ChunkId,
    hash_tree::{ChainingValue, Digest, Subtree},
    journal::SourceIdentity,
    name::Name,
    sender::End,
    session::{SessionId, TransferId},
    tree::{EntryId, TreeMessage, TreeRules},
};

/// Version of the protocol; both ends must have the same.
pub const VERSION: u32 = 1;

/// Most subtrees in one [`Accept`].
///
/// With 42 bytes each at most they fit in one control message with room to spare. A receiver that has more (its file is in more pieces)
/// names the largest; what it does not name is sent again.
pub const MAX_HAVE: usize = 1400;

/// Most padding of a greeting, in bytes: a packet of 9000 and a little.
pub const MAX_PADDING: usize = 9216;

/// Body of [`crate::Frame::Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// [`VERSION`] of the client.
    #[n(0)]
    pub version: u32,
    /// The session to join; the client draws a random one for a new session.
    #[n(1)]
    pub session: SessionId,
    /// Whether the session is to be made. A join of an unknown session is refused.
    #[n(2)]
    pub new: bool,
    /// The path that this connection carries, numbered by the client; one connection a path at a time.
    #[n(3)]
    pub path: u16,
    /// Name of the client's interface, for the daemon's log.
    #[n(4)]
    pub interface: Option<String>,
    /// The client's interfaces; with a new session only.
    #[n(5)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// Most that the daemon may send on this path, in bit/s.
    #[n(6)]
    pub cap_bps: Option<u64>,
    /// Bytes that mean nothing, at most [`MAX_PADDING`]: they fill a packet of the interface's MTU, to see whether it gets through. The daemon
    /// answers with as many.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub padding: Option<Vec<u8>>,
}

/// Body of [`crate::Frame::Welcome`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// [`VERSION`] of the daemon.
    #[n(0)]
    pub version: u32,
    /// Name of the interface on which the connection arrived, if the daemon knows it.
    #[n(1)]
    pub arrival: Option<String>,
    /// The daemon's interfaces; with a new session only.
    #[n(2)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// As many bytes of padding as the hello had.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub padding: Option<Vec<u8>>,
}

/// Body of [`crate::Frame::Refuse`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Refusal {
    /// What stands against it.
    #[n(0)]
    pub code: RefusalCode,
    /// The daemon's version, for [`RefusalCode::Version`].
    #[n(1)]
    pub version: u32,
}

/// Why a daemon refuses a connection of a trusted peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum RefusalCode {
    /// The versions differ.
    #[n(0)]
    Version,
    /// A join of a session that the daemon does not have, or that belongs to another key.
    #[n(1)]
    UnknownSession,
    /// The daemon has as many sessions, or connections, as it may. A session that there is goes on without this connection.
    #[n(2)]
    TooManySessions,
    /// The daemon is shutting down.
    #[n(3)]
    ShuttingDown,
    /// A path number above [`LAST_PATH`](crate::LAST_PATH).
    #[n(4)]
    Path,
    /// The directory that the peer is to see cannot be opened.
    #[n(5)]
    Storage,
}

/// Why a session was closed in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseCode {
    /// All that was asked for is done.
    Done = 0,
    /// The user or the embedding program interrupted it.
    Cancelled = 1,
    /// The process is shutting down.
    ShuttingDown = 2,
}

impl CloseCode {
    /// The code of a number; numbers of later versions read as [`CloseCode::Cancelled`].
    pub fn from_u32(code: u32) -> Self {
        match code {
            0 => Self::Done,
            2 => Self::ShuttingDown,
            _ => Self::Cancelled,
        }
    }
}

/// One interface of a peer, as it describes itself. Nothing in it is believed that was not probed.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PeerInterface {
    /// Its name there.
    #[n(0)]
    pub name: String,
    /// Its index there.
    #[n(1)]
    pub index: u32,
    /// Its addresses.
    #[n(2)]
    pub addresses: Vec<PeerAddress>,
    /// Its MTU in bytes.
    #[n(3)]
    pub mtu: u32,
    /// Its line rate in bit/s, if known.
    #[n(4)]
    pub line_rate_bps: Option<u64>,
    /// What a shaper lets out of it, in bit/s of Ethernet frames without preamble, checksum and gap, if there is one.
    #[n(5)]
    pub egress_limit_bps: Option<u64>,
    /// Whether the peer would use it as a link unasked.
    #[n(6)]
    pub candidate: bool,
    /// Its hardware address, if it has one.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub mac: Option<[u8; 6]>,
    /// The names of its cables, where it is a bond.
    #[n(8)]
    pub members: Option<Vec<String>>,
    /// Connections that it takes until its members are all used, if more than one.
    #[n(9)]
    pub streams: Option<u8>,
    /// What its kernel does with IPv4 packets that may be another interface's, if known.
    #[n(10)]
    pub settings: Option<Ipv4Settings>,
}

impl PeerInterface {
    /// Returns an interface that its machine would use unasked, with Ethernet's MTU of 1500 bytes, of which nothing else is known.
    pub fn new(name: impl Into<String>, index: u32) -> Self {
        Self {
            name: name.into(),
            index,
            addresses: Vec::new(),
            mtu: 1500,
            line_rate_bps: None,
            egress_limit_bps: None,
            candidate: true,
            mac: None,
            members: None,
            streams: None,
            settings: None,
        }
    }
}

/// Settings of Linux for an interface, each the greater of its own and that of all interfaces
/// (`Documentation/networking/ip-sysctl.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ipv4Settings {
    /// Which ARP requests are answered: 0 those for any address of the machine, 1 those for an address of the interface.
    #[n(0)]
    pub arp_ignore: u8,
    /// Which address ARP requests carry: 0 any, 2 the best of the interface.
    #[n(1)]
    pub arp_announce: u8,
    /// Whether packets are dropped that would be answered by another interface: 1 strictly so.
    #[n(2)]
    pub rp_filter: u8,
}

/// An address of a [`PeerInterface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PeerAddress {
    /// The address.
    #[n(0)]
    pub ip: IpAddr,
    /// Bits of its network's prefix.
    #[n(1)]
    pub prefix_len: u8,
}

/// A numbered control message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Message {
    /// Client: take this file.
    #[n(0)]
    Put(#[n(0)] Put),
    /// Client: give me this file.
    #[n(1)]
    Get(#[n(0)] Get),
    /// Sender, in answer to a [`Get`]: this is what I have.
    #[n(2)]
    Offer(#[n(0)] Offer),
    /// Receiver: send it, all but what I have.
    #[n(3)]
    Accept(#[n(0)] Accept),
    /// Sender: all was read, and this is its digest.
    #[n(4)]
    Complete(#[n(0)] Complete),
    /// Receiver: the whole file is durable under its name.
    #[n(5)]
    Committed(#[n(0)] Committed),
    /// Either side: the transfer failed here.
    #[n(6)]
    Fail(#[n(0)] Fail),
    /// Daemon: my interfaces have changed, and are these now.
    #[n(7)]
    Interfaces(#[n(0)] Interfaces),
    /// Client: connections will come like this; let them in.
    #[n(8)]
    Expect(#[n(0)] Expect),
    /// Client: take this tree.
    #[n(9)]
    PutTree(#[n(0)] PutTree),
    /// Client: give me these trees.
    #[n(10)]
    GetTree(#[n(0)] GetTree),
    /// Receiver of a tree: this is what becomes of it.
    #[n(11)]
    Tree(#[n(0)] TreeBody),
    /// Receiver: I have room for more.
    #[n(12)]
    Window(#[n(0)] Window),
    /// Sender: these parts of the file are holes.
    #[n(13)]
    Holes(#[n(0)] Holes),
    /// Receiver: these are the values of chunks of the file that the name has here.
    #[n(14)]
    Values(#[n(0)] Values),
    /// Sender: these chunks are the same here; keep them.
    #[n(15)]
    Keep(#[n(0)] Keep),
}

/// Body of [`Message::PutTree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PutTree {
    /// The transfer's number, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Where it goes, relative to the daemon's root; the root itself if absent.
    #[n(1)]
    pub target: Option<Name>,
    /// Whether the one source gets the target's name, unless that is a directory; otherwise it is one.
    #[n(2)]
    pub as_name: bool,
    /// What is done with what is there.
    #[n(3)]
    pub rules: TreeRules,
}

/// Body of [`Message::GetTree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct GetTree {
    /// The transfer's number, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// What is wanted, 1 to [`MOST_SOURCES`].
    #[n(1)]
    pub sources: Vec<TreeSource>,
    /// What to look for and to leave out.
    #[n(2)]
    pub walk: WalkRules,
    /// What the client does with what it has: tells which attributes, and whether digests, are needed.
    #[n(3)]
    pub rules: TreeRules,
    /// Most that the daemon may send over all paths together, in bit/s.
    #[n(4)]
    pub limit_bps: Option<u64>,
}

/// Most sources of one [`GetTree`].
pub const MOST_SOURCES: usize = 1024;

/// One thing that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeSource {
    /// Its name relative to the daemon's root; the root itself if absent.
    #[n(0)]
    pub name: Option<Name>,
    /// Whether what is in it is meant, not the directory itself; always so for the root.
    #[n(1)]
    pub content: bool,
}

/// How a sender walks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct WalkRules {
    /// Whether directories are entered; one that is not is a failure.
    #[n(0)]
    pub recursive: bool,
    /// Whether names of one file are told as such.
    #[n(1)]
    pub hard_links: bool,
    /// Whether other file systems are left out.
    #[n(2)]
    pub one_file_system: bool,
    /// Only these, by their place beneath the source.
    #[n(3)]
    pub only: Option<Vec<Name>>,
    /// Whether a file that changes while it is read is sent as it was read.
    #[n(4)]
    pub allow_changing: bool,
    /// Whether chunks of files that are transfers of their own are compressed where that pays.
    #[n(5)]
    #[cbor(default, skip_if = "is_unset")]
    pub compress: bool,
}

/// Body of [`Message::Tree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeBody {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// What is told.
    #[n(1)]
    pub message: TreeMessage,
}

/// Body of [`Message::Window`].
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

/// An entry of a tree that is a transfer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct EntryRef {
    /// The tree's transfer.
    #[n(0)]
    pub tree: TransferId,
    /// The entry.
    #[n(1)]
    pub id: EntryId,
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

/// Body of [`Message::Interfaces`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Interfaces {
    /// All of them, as in [`Welcome`].
    #[n(0)]
    pub interfaces: Vec<PeerInterface>,
}

/// Body of [`Message::Expect`].
///
/// A daemon whose kernel would drop the first packet of such a connection (strict `rp_filter`) may install a host route to its source, if its
/// own rules let it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expect {
    /// The connections, at most [`MAX_EXPECTED`].
    #[n(0)]
    pub connections: Vec<Expected>,
}

/// Most connections in one [`Expect`]; a daemon ignores those beyond.
pub const MAX_EXPECTED: usize = 64;

/// A connection that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expected {
    /// The address that it comes from, one of the client's own.
    #[n(0)]
    pub from: IpAddr,
    /// Index of the daemon's interface that it is aimed at.
    #[n(1)]
    pub interface: u32,
}

/// Body of [`Message::Put`].
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
}

/// Whether an option is left out of a message.
fn is_unset(option: &bool) -> bool {
    !option
}

/// Body of [`Message::Get`].
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
    /// Bytes outside of holes, for a file that has holes: a [`Holes`] follows an [`Accept`] then.
    #[n(5)]
    pub data: Option<u64>,
}

/// Body of [`Message::Accept`].
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
    /// How many chunks, from the first, will be compared: their [`Values`] follow, but for those in `have` and in holes, and none of them is
    /// sent before.
    #[n(3)]
    pub delta: Option<u64>,
}

/// Body of [`Message::Holes`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Holes {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Offset and length of holes, in ascending order from message to message, at most [`crate::hole::HOLES_PER_MESSAGE`] here and
    /// [`crate::hole::MAX_HOLES`] of a file.
    #[n(1)]
    pub extents: Vec<(u64, u64)>,
    /// Whether these were all.
    #[n(2)]
    pub last: bool,
}

/// Most values in one [`Values`]: with 32 bytes each, and a range of 19 for each at worst, 51 KiB.
pub const MAX_VALUES: usize = 1024;

/// Most ranges in one [`Keep`].
pub const MAX_KEEP: usize = 1024;

/// Body of [`Message::Values`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Values {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// First chunk and number of chunks of each range, in ascending order.
    #[n(1)]
    pub ranges: Vec<(u64, u64)>,
    /// The values of these chunks, 32 bytes each, at most [`MAX_VALUES`]; all zeros where there is none, and the chunk has to be sent.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub values: Vec<u8>,
}

/// Body of [`Message::Keep`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Keep {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// First chunk and number of chunks of each range, at most [`MAX_KEEP`].
    #[n(1)]
    pub ranges: Vec<(u64, u64)>,
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

/// Body of [`Message::Complete`].
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

/// Body of [`Message::Committed`].
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

/// Body of [`Message::Fail`].
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

#[cfg(test)]
mod tests;

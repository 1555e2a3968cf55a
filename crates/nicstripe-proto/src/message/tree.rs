//! Requests for trees; [`crate::tree::message`] has the messages of their receivers.

use minicbor::{Decode, Encode};

use super::is_unset;
use crate::{
    name::Name,
    session::TransferId,
    tree::{EntryId, TreeMessage, TreeRules},
};

/// Body of [`crate::Message::PutTree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PutTree {
    /// Transfer number, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Destination, relative to the daemon's root; the root itself if absent.
    #[n(1)]
    pub target: Option<Name>,
    /// True to store the only source under the target's name, unless the target is a directory.
    /// Otherwise the target is a directory, created if missing.
    #[n(2)]
    pub as_name: bool,
    /// Rules for files that exist at the target.
    #[n(3)]
    pub rules: TreeRules,
    /// True if the client honours [`super::Accept::memory`].
    #[n(4)]
    #[cbor(default, skip_if = "is_unset")]
    pub heeds_memory: bool,
}

/// Body of [`crate::Message::GetTree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct GetTree {
    /// Transfer number, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Requested sources, 1 to [`MOST_SOURCES`].
    #[n(1)]
    pub sources: Vec<TreeSource>,
    /// Rules of the directory walk.
    #[n(2)]
    pub walk: WalkRules,
    /// The client's receive rules; they determine which attributes and digests the daemon sends.
    #[n(3)]
    pub rules: TreeRules,
    /// Highest rate at which the daemon may send over all paths together, in bit/s.
    #[n(4)]
    pub limit_bps: Option<u64>,
}

/// Most sources of one [`GetTree`].
pub const MOST_SOURCES: usize = 1024;

/// One requested source.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeSource {
    /// Name relative to the daemon's root; the root itself if absent.
    #[n(0)]
    pub name: Option<Name>,
    /// True to send the directory's content without the directory itself; always true for the root.
    #[n(1)]
    pub content: bool,
}

/// Rules of the sender's directory walk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct WalkRules {
    /// True to descend into directories; otherwise a directory is a failure.
    #[n(0)]
    pub recursive: bool,
    /// True to preserve hard links.
    #[n(1)]
    pub hard_links: bool,
    /// True to skip other file systems.
    #[n(2)]
    pub one_file_system: bool,
    /// Limits the walk to these paths relative to the source.
    #[n(3)]
    pub only: Option<Vec<Name>>,
    /// True to send a file that changes during the read, as it was read.
    #[n(4)]
    pub allow_changing: bool,
    /// True to compress chunks of standalone files if it reduces their size.
    #[n(5)]
    #[cbor(default, skip_if = "is_unset")]
    pub compress: bool,
}

/// Body of [`crate::Message::Tree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeBody {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// The message.
    #[n(1)]
    pub message: TreeMessage,
}

/// Reference to a tree entry that is a standalone file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct EntryRef {
    /// Transfer of the tree.
    #[n(0)]
    pub tree: TransferId,
    /// ID of the entry.
    #[n(1)]
    pub id: EntryId,
}

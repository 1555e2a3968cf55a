//! What a client asks for trees; what their receivers tell is in [`crate::tree::message`].

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
    /// Whether the client goes by [`super::Accept::memory`].
    #[n(4)]
    #[cbor(default, skip_if = "is_unset")]
    pub heeds_memory: bool,
}

/// Body of [`crate::Message::GetTree`].
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

/// Body of [`crate::Message::Tree`].
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

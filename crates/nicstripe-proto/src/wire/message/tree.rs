//! Requests to transfer directory trees. [`crate::tree::message`] has the messages of the
//! receivers.

use minicbor::{Decode, Encode};

use crate::{
    file::name::Name,
    id::TransferId,
    tree::{EntryId, Share, TreeMessage, TreeRules},
};

/// Client's request to upload a directory tree. Body of [`crate::Message::PutTree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PutTree {
    /// ID of the tree's transfer, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Target name, relative to the daemon's root directory; `None` for the root directory itself.
    #[n(1)]
    pub target: Option<Name>,
    /// True to store the only source under the target name, unless the target is a directory. If
    /// false, the target is a directory, which the daemon creates if it is missing.
    #[n(2)]
    pub as_name: bool,
    /// Rules that the daemon, as the receiver, applies to existing files and to attributes.
    #[n(3)]
    pub rules: TreeRules,
    /// True if the client respects the memory limit in [`super::Accept::memory`].
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub heeds_memory: bool,
}

/// Client's request to download directory trees. Body of [`crate::Message::GetTree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct GetTree {
    /// ID of the transfer of all requested trees, chosen by the client.
    #[n(0)]
    pub transfer: TransferId,
    /// Files and directories to send, 1 to [`MOST_SOURCES`].
    #[n(1)]
    pub sources: Vec<TreeSource>,
    /// Rules of the daemon's walk through the sources.
    #[n(2)]
    pub walk: WalkRules,
    /// Rules of the client as the receiver. They determine which attributes and digests the daemon
    /// sends.
    #[n(3)]
    pub rules: TreeRules,
    /// Maximum rate at which the daemon may send over all paths together, in bit/s; `None` for no
    /// limit.
    #[n(4)]
    pub limit_bps: Option<u64>,
}

/// Maximum number of sources in one [`GetTree`].
pub const MOST_SOURCES: usize = 1024;

/// File or directory that a [`GetTree`] requests.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeSource {
    /// Name of the source, relative to the daemon's root directory; `None` for the root directory
    /// itself.
    #[n(0)]
    pub name: Option<Name>,
    /// True to send the directory's content without the directory itself. Always true for the root
    /// directory.
    #[n(1)]
    pub content: bool,
}

/// Rules of the sender's walk through the sources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct WalkRules {
    /// True to descend into directories. If false, the sender reports each directory as a failure.
    #[n(0)]
    pub recursive: bool,
    /// True to preserve hard links.
    #[n(1)]
    pub hard_links: bool,
    /// True to stay on the file system of the source.
    #[n(2)]
    pub one_file_system: bool,
    /// Paths relative to the source, to which the walk is limited; `None` for no limit.
    #[n(3)]
    pub only: Option<Vec<Name>>,
    /// True to send a file even if the file changes during the read.
    #[n(4)]
    pub allow_changing: bool,
    /// True to compress the chunks of standalone files that compression shortens.
    #[cbor(n(5), default, skip_if = "std::ops::Not::not")]
    pub compress: bool,
    /// Share of the files to which the walk is limited. All directories are announced, as incomplete.
    #[n(6)]
    pub share: Option<Share>,
    /// True to announce a large file by those of its pieces that are in the share, and not as an entry.
    #[cbor(n(7), default, skip_if = "std::ops::Not::not")]
    pub pieces: bool,
    /// True to announce only directories, as incomplete.
    #[cbor(n(8), default, skip_if = "std::ops::Not::not")]
    pub only_directories: bool,
}

/// Message from a tree's receiver to the sender. Body of [`crate::Message::Tree`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeBody {
    /// ID of the tree's transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Message about entries of the tree.
    #[n(1)]
    pub message: TreeMessage,
}

/// Reference to a standalone file: a tree entry with a separate transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct EntryRef {
    /// ID of the tree's transfer.
    #[n(0)]
    pub tree: TransferId,
    /// ID of the entry within the tree.
    #[n(1)]
    pub id: EntryId,
}

//! One thing in a tree, as its sender describes it.

use minicbor::{Decode, Encode, bytes::ByteVec};

use super::{Owner, OwnerNames};
use crate::{hash_tree::Digest, journal::Timestamp, name::Name};

/// Number of an entry in its transfer, from 0 in the order of the walk: a directory before what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct EntryId(#[n(0)] pub u64);

/// One thing in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Its number; one more than that of the entry before.
    #[n(0)]
    pub id: EntryId,
    /// The directory that it is in, whose end was not told yet; `None` for what goes into the target itself.
    #[n(1)]
    pub parent: Option<EntryId>,
    /// Its name in that directory, one component; `None` for a directory whose content goes into the target itself, without a parent.
    #[n(2)]
    pub name: Option<Name>,
    /// What it is.
    #[n(3)]
    pub content: Content,
    /// Permission bits (0o7777).
    #[n(4)]
    pub mode: u32,
    /// When its content changed last.
    #[n(5)]
    pub mtime: Timestamp,
    /// Its owner, where owners are kept.
    #[n(6)]
    pub owner: Option<Owner>,
    /// Its extended attributes, ACLs among them, where these are kept; at most [`MOST_XATTR_BYTES`] in all.
    #[n(7)]
    pub xattrs: Option<Vec<Xattr>>,
    /// Names of its owner, where owners are kept by name.
    #[n(8)]
    pub owner_names: Option<OwnerNames>,
}

impl Entry {
    /// What its extended attributes count for as long as it is kept, in bytes: names, values, and 64 for each.
    pub fn weight(&self) -> usize {
        self.xattrs.as_deref().map_or(0, weight_of)
    }

    /// What it counts for as long as a receiver keeps it, in bytes: [`ENTRY_FOOTPRINT`], four times its name, the path that a hard link names,
    /// and its [weight](Self::weight).
    pub fn footprint(&self) -> usize {
        let name = self.name.as_ref().map_or(0, |name| name.file_name().len());
        let path = match &self.content {
            Content::HardLink { path, .. } => path.components().map(|component| component.len() + COMPONENT_OVERHEAD).sum(),
            _ => 0,
        };
        ENTRY_FOOTPRINT + 4 * name + path + self.weight()
    }
}

/// What an entry takes in memory besides its names and attributes while it waits for its content and its name, about.
pub const ENTRY_FOOTPRINT: usize = 1024;

/// What a component of a name takes in memory besides its bytes, about.
const COMPONENT_OVERHEAD: usize = 32;

/// What extended attributes count for, in bytes; see [`Entry::weight`].
pub fn weight_of(xattrs: &[Xattr]) -> usize {
    xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len() + XATTR_OVERHEAD).sum()
}

/// What an extended attribute takes in memory besides its bytes, about.
const XATTR_OVERHEAD: usize = 64;

/// Most bytes of all names and values of one entry's extended attributes: what fits into a parcel with room to spare.
pub const MOST_XATTR_BYTES: usize = 128 * 1024;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Content {
    /// A regular file.
    #[n(0)]
    File {
        /// Its size in bytes.
        #[n(0)]
        size: u64,
        /// Whether it becomes a transfer of its own, if it is wanted: it is large, or has holes.
        #[n(1)]
        alone: bool,
        /// Its BLAKE3, where files are compared by that.
        #[n(2)]
        digest: Option<Digest>,
    },
    /// A directory; its end is told when all in it was.
    #[n(1)]
    Directory,
    /// A symbolic link.
    #[n(2)]
    Symlink {
        /// What it says.
        #[cbor(n(0), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    /// Another name of a file that was told before.
    #[n(3)]
    HardLink {
        /// That file.
        #[n(0)]
        to: EntryId,
        /// Its place beneath the target.
        #[n(1)]
        path: Name,
    },
    /// A FIFO, the name of a socket, or a device, where these are kept.
    #[n(4)]
    Node(#[n(0)] Node),
}

/// Something that has a name and no content of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Node {
    /// What it is.
    #[n(0)]
    pub kind: NodeKind,
    /// Number of a device's driver; 0 for others.
    #[n(1)]
    pub major: u32,
    /// Number of a device at its driver; 0 for others.
    #[n(2)]
    pub minor: u32,
}

/// What a [`Node`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeKind {
    /// A FIFO.
    #[n(0)]
    Fifo,
    /// The name of a socket.
    #[n(1)]
    Socket,
    /// A device of characters.
    #[n(2)]
    CharDevice,
    /// A device of blocks.
    #[n(3)]
    BlockDevice,
}

impl NodeKind {
    /// Whether it is a device, which root alone may make.
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Xattr {
    /// Its name, with the namespace: `user.x`, `system.posix_acl_access`.
    #[n(0)]
    pub name: ByteVec,
    /// Its value.
    #[n(1)]
    pub value: ByteVec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_its_kind_and_its_numbers() {
        let device = Content::Node(Node { kind: NodeKind::CharDevice, major: 1, minor: 3 });
        let bytes = [0x82, 4, 0x81, 0x83, 2, 1, 3];
        assert_eq!(minicbor::to_vec(&device).unwrap(), bytes);
        assert_eq!(minicbor::decode::<Content>(&bytes).unwrap(), device);
    }
}

//! Entries of a tree, as the sender describes them.

use minicbor::{Decode, Encode, bytes::ByteVec};

use super::{Owner, OwnerNames};
use crate::{hash_tree::Digest, journal::Timestamp, name::Name};

/// Number of an entry in its transfer, from 0 in walk order: a directory precedes its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct EntryId(#[n(0)] pub u64);

/// One file, directory, link or node of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Its number; one more than that of the previous entry.
    #[n(0)]
    pub id: EntryId,
    /// Its directory, which must not have ended; `None` for an entry directly in the target.
    #[n(1)]
    pub parent: Option<EntryId>,
    /// Its name in that directory, one component. `None` for a root directory whose content goes
    /// into the target itself.
    #[n(2)]
    pub name: Option<Name>,
    /// The entry's type and content.
    #[n(3)]
    pub content: Content,
    /// Permission bits (0o7777).
    #[n(4)]
    pub mode: u32,
    /// Modification time of the content.
    #[n(5)]
    pub mtime: Timestamp,
    /// Its owner, if owners are preserved.
    #[n(6)]
    pub owner: Option<Owner>,
    /// Its extended attributes, including ACLs, if they are preserved; at most [`MOST_XATTR_BYTES`]
    /// in all.
    #[n(7)]
    pub xattrs: Option<Vec<Xattr>>,
    /// Names of its owner, if owners are preserved by name.
    #[n(8)]
    pub owner_names: Option<OwnerNames>,
}

impl Entry {
    /// Returns the memory charged for its extended attributes, in bytes: names, values, and 64 for
    /// each.
    pub fn weight(&self) -> usize {
        self.xattrs.as_deref().map_or(0, weight_of)
    }

    /// Returns the memory charged while a receiver holds the entry, in bytes: [`ENTRY_FOOTPRINT`],
    /// four times its name, a hard link's path, and its [weight](Self::weight).
    pub fn footprint(&self) -> usize {
        let name = self.name.as_ref().map_or(0, |name| name.file_name().len());
        let path = match &self.content {
            Content::HardLink { path, .. } => path
                .components()
                .map(|component| component.len() + COMPONENT_OVERHEAD)
                .sum(),
            _ => 0,
        };
        ENTRY_FOOTPRINT + 4 * name + path + self.weight()
    }
}

/// Approximate memory of a pending entry in bytes, without its names and attributes.
pub const ENTRY_FOOTPRINT: usize = 1024;

/// Approximate memory of a name's component without its bytes.
const COMPONENT_OVERHEAD: usize = 32;

/// Returns the memory charged for extended attributes, in bytes; see [`Entry::weight`].
pub fn weight_of(xattrs: &[Xattr]) -> usize {
    xattrs
        .iter()
        .map(|xattr| xattr.name.len() + xattr.value.len() + XATTR_OVERHEAD)
        .sum()
}

/// Approximate memory of an extended attribute without its bytes.
const XATTR_OVERHEAD: usize = 64;

/// Limit of an entry's extended attributes, names and values, in bytes: fits into a batch.
pub const MOST_XATTR_BYTES: usize = 128 * 1024;

/// Type and content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Content {
    /// A regular file.
    #[n(0)]
    File {
        /// Its size in bytes.
        #[n(0)]
        size: u64,
        /// True for a standalone file: it is large or has holes, and gets a separate transfer.
        #[n(1)]
        alone: bool,
        /// Its BLAKE3, if files are compared by digest.
        #[n(2)]
        digest: Option<Digest>,
    },
    /// A directory; its end follows the end of its content.
    #[n(1)]
    Directory,
    /// A symbolic link.
    #[n(2)]
    Symlink {
        /// Its target.
        #[cbor(n(0), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    /// Another name of a file that was announced before.
    #[n(3)]
    HardLink {
        /// That file.
        #[n(0)]
        to: EntryId,
        /// That file's path beneath the target.
        #[n(1)]
        path: Name,
    },
    /// A FIFO, socket or device, if these are preserved.
    #[n(4)]
    Node(#[n(0)] Node),
}

/// A file system node without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Node {
    /// Its kind.
    #[n(0)]
    pub kind: NodeKind,
    /// Major number of a device; 0 for others.
    #[n(1)]
    pub major: u32,
    /// Minor number of a device; 0 for others.
    #[n(2)]
    pub minor: u32,
}

/// Kind of a [`Node`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeKind {
    /// A FIFO.
    #[n(0)]
    Fifo,
    /// A socket.
    #[n(1)]
    Socket,
    /// A character device.
    #[n(2)]
    CharDevice,
    /// A block device.
    #[n(3)]
    BlockDevice,
}

impl NodeKind {
    /// Returns true for a device, which only root may create.
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
        let device = Content::Node(Node {
            kind: NodeKind::CharDevice,
            major: 1,
            minor: 3,
        });
        let bytes = [0x82, 4, 0x81, 0x83, 2, 1, 3];
        assert_eq!(minicbor::to_vec(&device).unwrap(), bytes);
        assert_eq!(minicbor::decode::<Content>(&bytes).unwrap(), device);
    }
}

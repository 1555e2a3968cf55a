//! Entries of a tree, as described by the sender.

use std::fmt;

use minicbor::{Decode, Encode, bytes::ByteVec};

use super::owner::{Owner, OwnerNames};
use crate::file::{hash_tree::Digest, journal::Timestamp, name::Name};

/// ID of an entry in its transfer. IDs start at 0 and follow the walk order: a directory precedes
/// its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct EntryId(#[n(0)] pub u64);

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Description of a file, directory, link or special file in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// ID of the entry. Exceeds the ID of the previous entry by one.
    #[n(0)]
    pub id: EntryId,
    /// ID of the parent directory, whose end record has not been sent yet; `None` for an entry
    /// directly in the target.
    #[n(1)]
    pub parent: Option<EntryId>,
    /// Name of the entry in its directory, a single component; `None` for a root directory whose
    /// content is stored in the target itself.
    #[n(2)]
    pub name: Option<Name>,
    /// Type of the entry, with type-specific data.
    #[n(3)]
    pub content: Content,
    /// Permission bits of the object (0o7777).
    #[n(4)]
    pub mode: u32,
    /// Modification time of the content.
    #[n(5)]
    pub mtime: Timestamp,
    /// Numeric user and group of the entry; `None` if owners are not preserved.
    #[n(6)]
    pub owner: Option<Owner>,
    /// Extended attributes of the entry, including ACLs, at most [`MOST_XATTR_BYTES`] in all;
    /// `None` if they are not preserved.
    #[n(7)]
    pub xattrs: Option<Vec<Xattr>>,
    /// Names of the entry's user and group; `None` if owners are not preserved by name.
    #[n(8)]
    pub owner_names: Option<OwnerNames>,
    /// True if hard links to this file or node may follow. The receiver then remembers its inode.
    #[cbor(n(9), default, skip_if = "std::ops::Not::not")]
    pub linked: bool,
    /// For a directory that the sender reads: hash of its inode number, its device number, and its
    /// machine. The receiver compares it with the inode of its target, because a directory copied
    /// into itself would never end. `None` if the sender does not know.
    #[n(10)]
    pub inode_hash: Option<u64>,
}

impl Entry {
    /// Returns the memory in bytes that is charged for the entry's extended attributes: names,
    /// values, and 64 bytes for each attribute.
    pub fn weight(&self) -> usize {
        self.xattrs.as_deref().map_or(0, weight_of)
    }

    /// Returns the memory in bytes that is charged while a receiver holds the entry:
    /// [`ENTRY_FOOTPRINT`], four times the length of the name, the path of a hard link, and the
    /// [weight](Self::weight).
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

/// Memory in bytes that is charged for a pending entry, without its names and attributes
/// (approximate).
pub const ENTRY_FOOTPRINT: usize = 1024;

/// Memory in bytes that is charged for each component of a name, without its text (approximate).
const COMPONENT_OVERHEAD: usize = 32;

/// Returns the memory in bytes that is charged for extended attributes. See [`Entry::weight`].
pub fn weight_of(xattrs: &[Xattr]) -> usize {
    xattrs
        .iter()
        .map(|xattr| xattr.name.len() + xattr.value.len() + XATTR_OVERHEAD)
        .sum()
}

/// Memory in bytes that is charged for an extended attribute, without its name and value
/// (approximate).
const XATTR_OVERHEAD: usize = 64;

/// Maximum size in bytes of an entry's extended attributes, names and values together. The
/// attributes fit into one batch.
pub const MOST_XATTR_BYTES: usize = 128 * 1024;

/// Type of an entry, with type-specific data.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Content {
    /// Regular file. The sender sends the content if the receiver wants it.
    #[n(0)]
    File {
        /// Size of the file in bytes.
        #[n(0)]
        size: u64,
        /// True for a standalone file: it has a separate transfer, because it is large or has
        /// holes.
        #[n(1)]
        alone: bool,
        /// BLAKE3 digest of the file; `None` unless files are compared by digest.
        #[n(2)]
        digest: Option<Digest>,
    },
    /// Directory. [`Record::EndDirectory`](super::batch::Record::EndDirectory) follows after its
    /// content.
    #[n(1)]
    Directory,
    /// Symbolic link. The sender does not send the object to which the link points.
    #[n(2)]
    Symlink {
        /// Target path of the symbolic link.
        #[cbor(n(0), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    /// Hard link: another name of a file that was announced earlier.
    #[n(3)]
    HardLink {
        /// ID of the file's entry.
        #[n(0)]
        to: EntryId,
        /// Path of the file that was announced, relative to the target.
        #[n(1)]
        path: Name,
    },
    /// FIFO, socket or device. Sent only if these are preserved.
    #[n(4)]
    Node(#[n(0)] Node),
}

/// Special file: a FIFO, socket or device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Node {
    /// Type of the special file.
    #[n(0)]
    pub kind: NodeKind,
    /// Major device number; 0 for a FIFO or socket.
    #[n(1)]
    pub major: u32,
    /// Minor device number; 0 for a FIFO or socket.
    #[n(2)]
    pub minor: u32,
}

/// Type of a [`Node`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeKind {
    /// FIFO (named pipe).
    #[n(0)]
    Fifo,
    /// Unix domain socket.
    #[n(1)]
    Socket,
    /// Character device, such as a terminal.
    #[n(2)]
    CharDevice,
    /// Block device, such as a disk.
    #[n(3)]
    BlockDevice,
}

impl NodeKind {
    /// Returns true for a device. Only root may create devices.
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

/// Extended attribute of a file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Xattr {
    /// Name of the attribute with its namespace: `user.x`, `system.posix_acl_access`.
    #[n(0)]
    pub name: ByteVec,
    /// Value of the attribute, as opaque bytes.
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

//! CBOR formats of the files in a repository.

use std::{collections::HashMap, ops::Range};

use minicbor::{Decode, Encode};

use crate::Result;

/// BLAKE3 hash of a chunk or a repository file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub(crate) struct Hash(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    [u8; 32],
);

impl Hash {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Parses a file name, which is a hash in hexadecimal digits. Returns an error for any other
    /// name.
    pub(crate) fn named(hex: &[u8]) -> Result<Self> {
        Ok(Self(*blake3::Hash::from_hex(hex)?.as_bytes()))
    }

    pub(crate) fn hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// Index of one backup: the packs that the backup added, with the hashes and lengths of their
/// chunks in order.
#[derive(Debug, Default, Encode, Decode)]
pub(crate) struct Index {
    #[n(0)]
    pub(crate) packs: Vec<(Hash, Vec<(Hash, u32)>)>,
}

#[derive(Debug, Encode, Decode)]
pub(crate) struct Snapshot {
    /// Start of the backup in milliseconds since 1970 (Unix time).
    #[n(0)]
    pub(crate) time: u64,
    #[n(1)]
    pub(crate) files: u64,
    #[n(2)]
    pub(crate) bytes: u64,
    /// Hashes of the chunks that contain the manifest: a sequence of [`Node`]s, each directory
    /// before its entries.
    #[n(3)]
    pub(crate) manifest: Vec<Hash>,
}

/// File, directory or symbolic link in a backup.
#[derive(Debug, Encode, Decode)]
pub(crate) struct Node {
    /// Path relative to the backed-up directory. Empty for that directory itself.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(crate) path: Vec<u8>,
    #[n(1)]
    pub(crate) mode: u32,
    /// Modification time: seconds since 1970, and nanoseconds.
    #[n(2)]
    pub(crate) modified: (i64, i64),
    #[n(3)]
    pub(crate) kind: Kind,
}

#[derive(Debug, Encode, Decode)]
pub(crate) enum Kind {
    #[n(0)]
    Dir,
    #[n(1)]
    File(#[n(0)] Vec<Hash>),
    #[n(2)]
    Link(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
}

/// Location of a chunk: its pack, and its byte range in the pack.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) pack: Hash,
    pub(crate) bytes: Range<u64>,
}

/// Locations of all chunks, by hash. A location uses about 130 bytes of memory; its chunk holds
/// about half a megabyte of files.
pub(crate) type Places = HashMap<Hash, Place>;

impl Node {
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Hash> {
        let Kind::File(chunks) = &self.kind else {
            return [].iter();
        };
        chunks.iter()
    }
}

//! Small files, which requests and answers carry: one round trip, and no transfer.

use minicbor::{Decode, Encode};

use super::{ObjectStat, OfferKind, Put};
use crate::file::hash_tree::Digest;

/// Client's request to store a small file. Body of [`AskKind::Write`](super::AskKind::Write).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Write {
    /// How it is stored, as for an upload: a stream, which ends with the content. Its transfer ID is
    /// ignored.
    #[n(0)]
    pub put: Put,
    /// Content of the file.
    #[n(1)]
    pub content: Carried,
}

impl Write {
    /// Returns true if the request is within the limits, and stores a whole file.
    pub fn is_within_limits(&self) -> bool {
        let (put, options) = (&self.put, &self.put.options);
        self.content.bytes.len() <= MOST_CARRIED
            && put.offer.kind == Some(OfferKind::Pipe)
            && put.entry.is_none()
            && options.slice.is_none()
            && !(options.delta || options.in_place || options.trial)
    }
}

/// Daemon's answer to an [`AskKind::Read`](super::AskKind::Read).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Small {
    /// Metadata of the whole file.
    #[n(0)]
    pub stat: ObjectStat,
    /// Content of the file, or of the range.
    #[n(1)]
    pub content: Carried,
}

/// Content of a small file, or of a small range of a file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Carried {
    /// At most [`MOST_CARRIED`] bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub bytes: Vec<u8>,
    /// Digest of these bytes.
    #[n(1)]
    pub digest: Digest,
}

impl Carried {
    /// Returns the content with its digest.
    pub fn new(bytes: Vec<u8>) -> Self {
        let digest = Digest(*blake3::hash(&bytes).as_bytes());
        Self { bytes, digest }
    }

    /// Returns true if the bytes have the digest.
    pub fn is_intact(&self) -> bool {
        self.digest.0 == *blake3::hash(&self.bytes).as_bytes()
    }
}

/// Maximum number of bytes that a request or an answer carries: a fraction of a control message of
/// 64 KiB, which is sent on one path and, if that is lost, once more.
pub const MOST_CARRIED: usize = 16 << 10;

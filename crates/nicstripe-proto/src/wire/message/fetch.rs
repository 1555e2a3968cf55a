//! Files that a client has one daemon fetch from another.

use std::net::IpAddr;

use minicbor::{Decode, Encode};

use super::{OfferKind, Put};
use crate::file::{hash_tree::Digest, name::Name};

/// Client's request to a daemon to fetch a file, or a range of one, from another daemon, and to store it
/// if it has the digest that the client says. Body of [`AskKind::Fetch`](super::AskKind::Fetch).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Fetch {
    /// Public key of the other daemon.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub key: [u8; 32],
    /// Addresses of the other daemon, 1 to [`MOST_FEED_ADDRESSES`], to be tried in this order.
    #[n(1)]
    pub addresses: Vec<IpAddr>,
    /// TCP port of the other daemon.
    #[n(2)]
    pub port: u16,
    /// Name of the file there.
    #[n(3)]
    pub name: Name,
    /// Offset of the first byte.
    #[n(4)]
    pub at: u64,
    /// Number of bytes, at most [`MOST_FETCHED`].
    #[n(5)]
    pub len: u64,
    /// Digest of these bytes.
    #[n(6)]
    pub digest: Digest,
    /// How they are stored, as for an upload by the client itself: a whole file of `len` bytes, or a slice
    /// of one.
    #[n(7)]
    pub put: Put,
    /// Number of bytes that earlier answers say are fetched; 0 to begin.
    #[n(8)]
    pub offset: u64,
}

impl Fetch {
    /// Returns true if the request is within the limits, and stores nothing but the bytes that it fetches.
    pub fn is_within_limits(&self) -> bool {
        let (put, options) = (&self.put, &self.put.options);
        let is_whole = match options.slice {
            Some(_) => put.offer.kind == Some(OfferKind::Pipe),
            None => {
                put.offer.kind.unwrap_or_default() == OfferKind::File
                    && put.offer.source.size == self.len
            }
        };
        let is_plain = put.into.is_none() && put.entry.is_none() && put.offer.data.is_none();
        let writes_otherwise = options.delta || options.in_place || options.trial;
        (1..=MOST_FEED_ADDRESSES).contains(&self.addresses.len())
            && self.len <= MOST_FETCHED
            && is_whole
            && is_plain
            && !writes_otherwise
    }
}

/// Maximum number of addresses of a [`Fetch`].
pub const MOST_FEED_ADDRESSES: usize = 16;

/// Maximum number of bytes of a [`Fetch`]: less than a second over a cable of 1 Gbit/s.
pub const MOST_FETCHED: u64 = 64 << 20;

/// Maximum number of names of one [`AskKind::Admit`](super::AskKind::Admit).
pub const MOST_ADMITTED: usize = 32;

//! Memory limits of the sender or receiver of a tree copy.
//!
//! A client's own tree uses the limits of the protocol. In a daemon, one key may have many trees:
//! each takes a memory lease from a shared quota, and limits that fit into the lease.

use nicstripe_proto::{
    message::WalkRules,
    tree::{MOST_PENDING_WEIGHT, PACKED_MOST, share::Deal},
};

/// Memory quota of all trees of a daemon in bytes, 256 MiB; one key gets half of it at most.
pub(crate) const MOST_OF_ALL: usize = 256 << 20;

/// Size in bytes of the buffer of one batch. Alignment overhead is part of [`SLACK`].
const CHUNK: usize = 256 << 10;

/// Maximum number of batches that are unconsumed at the receiver, or unacknowledged at the sender.
///
/// Together 8 MiB: four gigabit links carry them in 18 ms, one 10 Gbit/s link in 7 ms.
const MOST_CHUNKS: usize = 32;

/// Minimum number of batches: one can arrive while another is being consumed.
const LEAST_CHUNKS: usize = 2;

/// Memory in bytes that a receiver needs beyond the limit it announces: open directories and the
/// last entry.
const SLACK: usize = 1 << 20;

/// Memory limits of the receiver of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receiving {
    /// Maximum number of batches in the reorder buffer. Their file pieces are buffered separately.
    pub(crate) reordered: u64,
    /// Maximum number of batches whose file pieces wait for the I/O threads.
    pub(crate) written: usize,
    /// Maximum memory of entries in bytes: footprints of entries that wait, and state of the
    /// others.
    pub(crate) entries: usize,
    /// Limit of `entries` announced to the sender in bytes; `None` if the sender does not honour
    /// one.
    pub(crate) announced: Option<u64>,
}

/// Memory limits of the sender of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Maximum number of batches in the retransmit buffer.
    pub(crate) given: usize,
    /// Maximum read-ahead of small files in bytes; a single file may exceed it.
    pub(crate) read: u64,
    /// Maximum total footprint, in bytes, of entries that wait for the receiver.
    pub(crate) entries: usize,
    /// Maximum total size, in bytes, of unprocessed messages from the receiver.
    pub(crate) messages: usize,
}

impl Receiving {
    /// Smallest memory lease of a receiver, and the largest useful one, in bytes.
    pub(crate) const LEASE: (usize, usize) = (4 << 20, 32 << 20);

    /// Memory lease in bytes for a tree whose sender ignores announced limits and only honours the
    /// protocol's. A smaller lease is not enough.
    pub(crate) const UNHEEDING: usize = 64 << 20;

    /// Limits of a client's own tree: those of the protocol.
    pub(crate) const OWN: Self = Self {
        reordered: MOST_CHUNKS as u64,
        written: MOST_CHUNKS - 1,
        entries: usize::MAX,
        announced: None,
    };

    /// Divides a memory lease of `lease` bytes; `heeds` is true if the sender honours an announced
    /// limit.
    pub(crate) fn within(lease: usize, heeds: bool) -> Self {
        let chunks = (lease / 4 / CHUNK).clamp(LEAST_CHUNKS, MOST_CHUNKS);
        let entries = lease.saturating_sub((2 * chunks - 1) * CHUNK);
        let announced = heeds.then(|| entries.saturating_sub(SLACK) as u64);
        Self {
            reordered: chunks as u64,
            written: chunks - 1,
            entries,
            announced,
        }
    }
}

impl Sending {
    /// Smallest memory lease of a sender, and the largest useful one, in bytes.
    pub(crate) const LEASE: (usize, usize) = (8 << 20, 32 << 20);

    /// Limits of a client's own tree. The messages may hold the names of about half a million
    /// deleted files while the caller reads no entry events.
    pub(crate) const OWN: Self = Self {
        given: MOST_CHUNKS,
        read: MOST_READ,
        entries: usize::MAX,
        messages: 64 << 20,
    };

    pub(crate) fn within(lease: usize) -> Self {
        // A file packed into batches is read as a whole.
        let read = (lease as u64 / 4).clamp(PACKED_MOST, MOST_READ);
        let rest = lease.saturating_sub(read as usize);
        Self {
            given: (rest / 3 / CHUNK).clamp(LEAST_CHUNKS, MOST_CHUNKS),
            read,
            entries: rest / 2,
            messages: rest / 6,
        }
    }
}

const MOST_READ: u64 = 8 << 20;

impl Default for Sending {
    fn default() -> Self {
        Self::OWN
    }
}

/// Memory in bytes per byte of filter text: 20 MiB for 60 KiB, measured.
const OF_FILTERS: usize = 350;

/// Memory in bytes per byte of names in a request: each component is a node in a map.
const OF_NAMES: usize = 200;

/// Returns the memory in bytes that the filters and names of a request occupy while its tree is
/// copied.
pub(crate) fn of_request(filters: &[String], names: &[nicstripe_proto::Name]) -> usize {
    let filters: usize = filters.iter().map(|filter| filter.len() + 1).sum();
    let names: usize = names
        .iter()
        .flat_map(|name| name.components())
        .map(|component| component.len() + 1)
        .sum();
    filters * OF_FILTERS + names * OF_NAMES
}

/// Returns the memory in bytes that a request to send occupies. For a share the tree is walked twice, and
/// files are counted.
pub(crate) fn of_walk(filters: &[String], walk: &WalkRules) -> usize {
    let request = of_request(filters, walk.only.as_deref().unwrap_or_default());
    match walk.share {
        Some(_) => 2 * request + Deal::BYTES,
        None => request,
    }
}

const _: () = assert!(
    Receiving::LEASE.1 / 2 > SLACK + MOST_PENDING_WEIGHT / 2
        && Receiving::UNHEEDING <= MOST_OF_ALL / 4
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_into_their_lease_and_the_largest_are_those_of_a_client() {
        for lease in (Receiving::LEASE.0..=Receiving::LEASE.1).step_by(100_000) {
            let Receiving {
                reordered,
                written,
                entries,
                announced,
            } = Receiving::within(lease, true);
            assert!(
                (reordered as usize + written) * CHUNK + entries <= lease,
                "{lease}"
            );
            assert!(
                reordered >= LEAST_CHUNKS as u64
                    && written >= 1
                    && announced.unwrap() >= SLACK as u64,
                "{lease}"
            );
        }
        for lease in (Sending::LEASE.0..=Sending::LEASE.1).step_by(100_000) {
            let Sending {
                given,
                read,
                entries,
                messages,
            } = Sending::within(lease);
            assert!(
                given * CHUNK + read as usize + entries + messages <= lease,
                "{lease}"
            );
            assert!(
                given >= LEAST_CHUNKS && read >= PACKED_MOST && entries >= SLACK,
                "{lease}"
            );
        }
        let (receiving, sending) = (
            Receiving::within(Receiving::LEASE.1, true),
            Sending::within(Sending::LEASE.1),
        );
        assert_eq!(
            (receiving.reordered, receiving.written),
            (Receiving::OWN.reordered, Receiving::OWN.written)
        );
        assert_eq!(
            (sending.given, sending.read),
            (Sending::OWN.given, Sending::OWN.read)
        );
        let unheeding = Receiving::within(Receiving::UNHEEDING, false);
        assert!(
            unheeding.announced.is_none() && unheeding.entries >= 3 * MOST_PENDING_WEIGHT - CHUNK
        );
    }

    #[test]
    fn filters_and_names_weigh_what_they_take() {
        assert_eq!(of_request(&[], &[]), 0);
        let filters = vec!["*.o".to_owned(); 15_000];
        assert!((20 << 20..24 << 20).contains(&of_request(&filters, &[])));
        let names = vec![nicstripe_proto::Name::parse(b"a/b/c").unwrap(); 10_000];
        assert_eq!(of_request(&[], &names), 60_000 * OF_NAMES);
    }
}

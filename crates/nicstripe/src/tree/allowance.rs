//! How much memory a tree may take at one end.
//!
//! A client's own tree takes what the protocol lets be. At a daemon, where one key may have many, each has a lease of memory that they all
//! share, and windows that fit into it.

use nicstripe_proto::tree::{MOST_PENDING_WEIGHT, PACKED_MOST};

/// Memory of all trees of a daemon together, half of it for one key at most: 256 MiB.
pub(crate) const MOST_OF_ALL: usize = 256 << 20;

/// Chunks of parcels: 256 KiB. What aligning them takes comes out of the [`SLACK`] of entries.
const CHUNK: usize = 256 << 10;

/// Most chunks that arrived and were not taken, or were given and not acknowledged: 8 MiB, what four gigabit links carry in 18 ms, or one at
/// 10 Gbit/s in 7 ms.
const MOST_CHUNKS: usize = 32;

/// Fewest: while one is taken another arrives.
const LEAST_CHUNKS: usize = 2;

/// What a receiver keeps beyond what it tells its sender: directories that have not ended, and the last entry.
const SLACK: usize = 1 << 20;

/// Memory of a tree that is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receiving {
    /// Parcels that may have arrived and not been taken: 8 MiB, as the pieces in them wait in memory of their own.
    pub(crate) kept: u64,
    /// Parcels of which pieces wait for the I/O threads.
    pub(crate) written: usize,
    /// Bytes of entries that wait, by their footprints, and of what is kept of others.
    pub(crate) entries: usize,
    /// What its sender is told of that, if it goes by it.
    pub(crate) told: Option<u64>,
}

/// Memory of a tree that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Parcels that were given and not acknowledged.
    pub(crate) given: usize,
    /// Bytes of small files that are read ahead, unless it is one.
    pub(crate) read: u64,
    /// Bytes of entries that wait for the receiver, by their footprints.
    pub(crate) entries: usize,
    /// Bytes of messages that were not taken in.
    pub(crate) messages: usize,
}

impl Receiving {
    /// Least lease, and the most that is of use.
    pub(crate) const LEASE: (usize, usize) = (4 << 20, 32 << 20);

    /// Lease of a tree whose sender keeps to what the protocol lets be, and no less.
    pub(crate) const UNHEEDING: usize = 64 << 20;

    /// A client's own.
    pub(crate) const OWN: Self = Self { kept: MOST_CHUNKS as u64, written: MOST_CHUNKS - 1, entries: usize::MAX, told: None };

    /// Divides a lease.
    pub(crate) fn within(lease: usize, heeds: bool) -> Self {
        let chunks = (lease / 4 / CHUNK).clamp(LEAST_CHUNKS, MOST_CHUNKS);
        let entries = lease.saturating_sub((2 * chunks - 1) * CHUNK);
        let told = heeds.then(|| entries.saturating_sub(SLACK) as u64);
        Self { kept: chunks as u64, written: chunks - 1, entries, told }
    }
}

impl Sending {
    /// Least lease, and the most that is of use.
    pub(crate) const LEASE: (usize, usize) = (8 << 20, 32 << 20);

    /// A client's own: messages are names of deleted files, half a million, told while nobody reads a list of them.
    pub(crate) const OWN: Self = Self { given: MOST_CHUNKS, read: MOST_READ, entries: usize::MAX, messages: 64 << 20 };

    /// Divides a lease.
    pub(crate) fn within(lease: usize) -> Self {
        // A file that travels in parcels is read as a whole.
        let read = (lease as u64 / 4).clamp(PACKED_MOST, MOST_READ);
        let rest = lease.saturating_sub(read as usize);
        Self { given: (rest / 3 / CHUNK).clamp(LEAST_CHUNKS, MOST_CHUNKS), read, entries: rest / 2, messages: rest / 6 }
    }
}

/// Most bytes of small files that are read ahead.
const MOST_READ: u64 = 8 << 20;

impl Default for Sending {
    fn default() -> Self {
        Self::OWN
    }
}

/// Bytes that filters take in memory for each of their own: 20 MiB of 60 KiB, measured.
const OF_FILTERS: usize = 350;

/// Bytes that names in a request take for each of their own: a node in a map for each component.
const OF_NAMES: usize = 200;

/// Bytes of memory that what was asked for takes as long as its tree is copied.
pub(crate) fn of_request(filters: &[String], names: &[nicstripe_proto::Name]) -> usize {
    let filters: usize = filters.iter().map(|filter| filter.len() + 1).sum();
    let names: usize = names.iter().flat_map(|name| name.components()).map(|component| component.len() + 1).sum();
    filters * OF_FILTERS + names * OF_NAMES
}

const _: () = assert!(Receiving::LEASE.1 / 2 > SLACK + MOST_PENDING_WEIGHT / 2 && Receiving::UNHEEDING <= MOST_OF_ALL / 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_into_their_lease_and_the_largest_are_those_of_a_client() {
        for lease in (Receiving::LEASE.0..=Receiving::LEASE.1).step_by(100_000) {
            let Receiving { kept, written, entries, told } = Receiving::within(lease, true);
            assert!((kept as usize + written) * CHUNK + entries <= lease, "{lease}");
            assert!(kept >= LEAST_CHUNKS as u64 && written >= 1 && told.unwrap() >= SLACK as u64, "{lease}");
        }
        for lease in (Sending::LEASE.0..=Sending::LEASE.1).step_by(100_000) {
            let Sending { given, read, entries, messages } = Sending::within(lease);
            assert!(given * CHUNK + read as usize + entries + messages <= lease, "{lease}");
            assert!(given >= LEAST_CHUNKS && read >= PACKED_MOST && entries >= SLACK, "{lease}");
        }
        let (receiving, sending) = (Receiving::within(Receiving::LEASE.1, true), Sending::within(Sending::LEASE.1));
        assert_eq!((receiving.kept, receiving.written), (Receiving::OWN.kept, Receiving::OWN.written));
        assert_eq!((sending.given, sending.read), (Sending::OWN.given, Sending::OWN.read));
        let unheeding = Receiving::within(Receiving::UNHEEDING, false);
        assert!(unheeding.told.is_none() && unheeding.entries >= 3 * MOST_PENDING_WEIGHT - CHUNK);
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

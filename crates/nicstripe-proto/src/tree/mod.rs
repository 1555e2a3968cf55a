//! Tree protocol: entries, contents of small files, verdicts, results.
//!
//! A tree is one transfer whose chunks are batches (see [`parcel`]): ordered records, as many as
//! fit. The sender walks its tree and announces an [`Entry`] for each object. The receiver compares
//! it with its own state and answers with a [`Verdict`] in a [`TreeMessage`]. The content of a
//! small file that is wanted follows as pieces in later batches; a large file gets a separate
//! transfer. The receiver reports finished entries in [`TreeMessage::Results`].
//!
//! Neither side holds an unbounded number of entries. The sender pauses its walk while
//! [`MOST_UNDECIDED`] entries have no verdict or [`MOST_PENDING`] have no result.

pub mod entry;
pub mod message;
mod owner;
pub mod parcel;
pub mod rules;

pub use self::{
    entry::{Content, ENTRY_FOOTPRINT, Entry, EntryId, Node, NodeKind, Xattr},
    message::{EntryFailure, TreeMessage},
    owner::{AclKind, AclName, AclNames, Owner, OwnerName, OwnerNames},
    parcel::{ParcelError, ParcelReader, ParcelWriter, Reason, Record, Special, Trouble},
    rules::{Existing, TreeRules, Verdict, decide},
};

/// Largest file whose content travels in batches, in bytes: 4 MiB.
///
/// A larger file gets a separate transfer with a journal, so that an interruption costs little.
/// This costs a round trip and three system calls on directories, 1 % of the time that 4 MiB take
/// at 1 Gbit/s (calculated).
pub const PACKED_MOST: u64 = 4 << 20;

/// Limit of a sender's entries without a verdict.
pub const MOST_UNDECIDED: usize = 8192;

/// Limit of a sender's wanted entries without a result.
pub const MOST_PENDING: usize = 16_384;

/// Limit of the [weight](Entry::weight) of entries without a result, in bytes: 16 MiB.
///
/// Does not count the last of these entries, nor directories that have not ended, which are at most
/// as many as a name has components.
pub const MOST_PENDING_WEIGHT: usize = 16 << 20;

#[cfg(test)]
pub(crate) mod tests;

//! What two peers tell each other of a tree: entries, contents of small files, verdicts, results.
//!
//! A tree is one transfer whose chunks are [`parcel`]s: records one after the other, in order, as many as fit. The sender walks its tree and
//! puts an [`Entry`] for each thing it finds into parcels; the receiver compares it with what it has and answers with a [`Verdict`] for each,
//! in [`TreeMessage`]s. The content of a small file that is wanted follows as pieces in later parcels; a large file becomes a transfer of its
//! own. The receiver tells what is in place in [`TreeMessage::Results`].
//!
//! Neither side keeps more than a bounded number of entries: the sender walks on only while fewer than [`MOST_UNDECIDED`] have no verdict and
//! fewer than [`MOST_PENDING`] have no result.

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

/// Largest file whose content travels in parcels, in bytes: 4 MiB.
///
/// A larger one is a transfer of its own, with a journal, so that an interruption costs little; that costs a round trip and three system
/// calls on directories, 1 % of the time that 4 MiB take at 1 Gbit/s (reckoned).
pub const PACKED_MOST: u64 = 4 << 20;

/// Most entries that a sender lets be without a verdict.
pub const MOST_UNDECIDED: usize = 8192;

/// Most wanted entries that a sender lets be without a result.
pub const MOST_PENDING: usize = 16_384;

/// Most that the extended attributes of entries without a result may [weigh](Entry::weight) before a sender waits: 16 MiB. The last of these
/// entries and directories whose end was not told, of which there are as many as a name has components, do not count.
pub const MOST_PENDING_WEIGHT: usize = 16 << 20;

#[cfg(test)]
pub(crate) mod tests;

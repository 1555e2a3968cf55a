//! Protocol of directory trees: entries, contents of small files, verdicts and results.
//!
//! A tree is one transfer whose chunks are batches of records (see [`batch`]). The sender walks its
//! tree and announces an [`Entry`] for each object. The receiver compares the entry with the
//! existing object at the target and answers with a [`Verdict`] in a [`TreeMessage`]. The contents
//! of wanted small files follow as pieces in later batches; a large file gets a separate transfer.
//! [`TreeMessage::Results`] reports finished entries.
//!
//! The number of pending entries is bounded: the sender pauses its walk at [`MOST_UNDECIDED`]
//! entries without a verdict or [`MOST_PENDING`] entries without a result.

pub mod batch;
pub mod entry;
pub mod message;
mod owner;
pub mod rules;
pub mod share;

pub use self::{
    batch::{BatchError, BatchReader, BatchWriter, Reason, Record, Special, Trouble},
    entry::{Content, ENTRY_FOOTPRINT, Entry, EntryId, Node, NodeKind, Xattr},
    message::{EntryFailure, TreeMessage},
    owner::{AclKind, AclName, AclNames, Owner, OwnerName, OwnerNames},
    rules::{Existing, TreeRules, Verdict, decide},
    share::{LargeFile, Share, ShareError},
};

/// Maximum size in bytes of a file whose content travels in batches: 4 MiB.
///
/// A larger file gets a separate transfer with a journal, so that an interruption loses little. The
/// separate transfer costs a round trip and three system calls on directories: 1 % of the time for
/// 4 MiB at 1 Gbit/s (calculated).
pub const PACKED_MOST: u64 = 4 << 20;

/// Maximum number of entries without a verdict at a sender.
pub const MOST_UNDECIDED: usize = 8192;

/// Maximum number of wanted entries without a result at a sender.
pub const MOST_PENDING: usize = 16_384;

/// Maximum [weight](Entry::weight) in bytes of all entries without a result: 16 MiB.
///
/// Excludes the last of these entries, and the open directories. A name's number of components
/// bounds the number of open directories.
pub const MOST_PENDING_WEIGHT: usize = 16 << 20;

#[cfg(test)]
pub(crate) mod tests;

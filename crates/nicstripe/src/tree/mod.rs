//! Copies of directory trees: the sender walks and sends, the receiver compares and writes.
//!
//! Sender and receiver each run one thread per tree. [`sender`] walks, packs and reads ahead;
//! [`Receiver`](receiver) compares and writes. Both leave file reads and writes to the I/O threads.
//! The session's loop carries batches and messages between the two threads. A tree's thread waits
//! for the loop only when the loop has promised to accept its data.

mod acl;
pub(crate) mod allowance;
pub(crate) mod anchor;
pub(crate) mod channel;
#[cfg_attr(not(feature = "trees"), path = "no_filter.rs")]
pub(crate) mod filter;
mod halt;
mod inode_hash;
mod listing;
mod metadata;
mod options;
mod owners;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod walk;

pub use self::{
    listing::Listing,
    options::{EntryOutcome, FailedEntry, TreeOptions, TreeReport, TreeSource},
};

#[cfg(test)]
mod tests;

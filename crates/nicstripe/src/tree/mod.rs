//! Trees: what is walked and sent at one end, compared and written at the other.
//!
//! A tree has a thread of its own at each end: [`sender`] walks, packs and reads ahead, [`Receiver`](receiver) compares and writes; both
//! leave reads and writes of files to the I/O threads. The session's loop carries parcels and messages between them, and neither thread ever
//! waits for the loop but where the loop has promised room.

mod acl;
pub(crate) mod allowance;
pub(crate) mod anchor;
pub(crate) mod filter;
mod metadata;
mod options;
mod owners;
pub(crate) mod port;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod walk;

pub use self::options::{EntryOutcome, FailedEntry, TreeOptions, TreeReport};

/// Says that something which is no directory has a directory's name; `label` is escaped.
fn cannot_make_directory(label: &str) -> String {
    format!("cannot make directory \"{label}\": something else has its name, which no option replaces")
}

#[cfg(test)]
mod tests;

//! Trees: what is walked and sent at one end, compared and written at the other.
//!
//! A tree has a thread of its own at each end: [`sender`] walks, packs and reads ahead, [`Receiver`](receiver) compares and writes; both
//! leave reads and writes of files to the I/O threads. The session's loop carries parcels and messages between them, and neither thread ever
//! waits for the loop but where the loop has promised room.

#[allow(dead_code, reason = "the threads are not joined to the session yet")]
mod anchor;
#[allow(dead_code, reason = "the threads are not joined to the session yet")]
mod filter;
#[allow(dead_code, reason = "the threads are not joined to the session yet")]
mod metadata;
mod options;
#[allow(dead_code, reason = "the threads are not joined to the session yet")]
mod port;
#[allow(dead_code, reason = "the threads are not joined to the session yet")]
mod sender;
#[allow(dead_code, reason = "the threads are not joined to the session yet")]
mod walk;

pub use self::options::{EntryOutcome, FailedEntry, TreeOptions, TreeReport};

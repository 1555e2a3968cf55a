//! Events of a running transfer.

use std::{net::IpAddr, time::Duration};

use nicstripe_proto::{BitRate, Name};

use crate::{tree::EntryOutcome, trust::PublicKey};

/// Event that the owner of a transfer may want to show.
///
/// [`Event::Progress`] comes about ten times a second and is dropped if unread. Up to 1024 other
/// events are queued.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The peer is connected and authenticated.
    Connected {
        /// The peer's key.
        key: PublicKey,
        /// The peer's name in the peers file.
        name: Option<String>,
    },
    /// A link started or stopped carrying data, or is excluded.
    Link {
        /// The link.
        link: LinkName,
        /// Its new state.
        state: LinkState,
    },
    /// Both ends have opened the file.
    Started {
        /// Bytes of the file.
        size: u64,
        /// Bytes that were durable at the receiver before.
        resumed: u64,
    },
    /// Current progress.
    Progress(Progress),
    /// No connection is up; the client keeps reconnecting.
    Waiting {
        /// Time since the last connection was lost.
        since: Duration,
    },
    /// The daemon has no capacity for another session; the client keeps retrying. Sent once, after
    /// 2 s.
    Queued {
        /// Host as given.
        host: String,
        /// Time since the first attempt.
        since: Duration,
        /// The daemon's limit of concurrent sessions for this key; `None` if it did not report one
        /// or closed connections before it answered.
        most: Option<u32>,
    },
    /// Result of one tree entry, sent if [`TreeOptions::list`](crate::TreeOptions::list) is set.
    Entry {
        /// Path beneath the target.
        name: Name,
        /// Result of the entry.
        outcome: EntryOutcome,
    },
    /// The transfer restarts from zero, because the received bytes differ from the sent ones.
    Restarted,
}

/// A link, named by its two ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LinkName {
    /// Local interface.
    pub interface: String,
    /// The peer's interface, once known.
    pub peer_interface: Option<String>,
    /// Local address on it, once known.
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: IpAddr,
}

/// State of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// Not connected yet.
    Connecting,
    /// Carries data.
    Up,
    /// Silent for too long; receives no new chunks.
    Suspect,
    /// Not connected, with the reason.
    Down(String),
    /// Not used in this session, with the reason.
    LeftOut(String),
}

/// Progress of a transfer.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Bytes of the file at the receiver, including those of earlier attempts.
    pub bytes: u64,
    /// Bytes of the file; of a tree, those found so far; 0 if the length is unknown.
    pub size: u64,
    /// True if `size` can still grow.
    pub open: bool,
    /// Files in place and files found so far; `None` for a single file.
    pub files: Option<(u64, u64)>,
    /// Bytes of earlier attempts.
    pub resumed: u64,
    /// Goodput over about the last second.
    pub rate: BitRate,
    /// Progress per link, in planning order.
    pub links: Vec<LinkProgress>,
}

/// Progress on one link.
#[derive(Debug, Clone)]
pub struct LinkProgress {
    /// The link.
    pub link: LinkName,
    /// Bytes that arrived first over this link.
    pub bytes: u64,
    /// Goodput over about the last second.
    pub rate: BitRate,
    /// State of the link.
    pub state: LinkState,
}

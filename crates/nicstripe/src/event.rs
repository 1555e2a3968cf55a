//! What a transfer tells while it runs.

use std::{net::IpAddr, time::Duration};

use nicstripe_proto::{BitRate, Name};

use crate::{tree::EntryOutcome, trust::PublicKey};

/// Something that a transfer's owner may want to show.
///
/// [`Event::Progress`] comes some ten times a second and is dropped when nobody reads; the others are not, up to 1024 unread.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The peer is there, and is who it should be.
    Connected {
        /// Its key.
        key: PublicKey,
        /// Its name in the peers file.
        name: Option<String>,
    },
    /// A link began to carry data, ceased to, or is left out.
    Link {
        /// Which.
        link: LinkName,
        /// What became of it.
        state: LinkState,
    },
    /// Both ends have the file open.
    Started {
        /// Bytes of the file.
        size: u64,
        /// Bytes that were durable at the receiver before.
        resumed: u64,
    },
    /// How far it is.
    Progress(Progress),
    /// There is no connection; it is tried again.
    Waiting {
        /// Time since the last connection was lost.
        since: Duration,
    },
    /// The daemon has no place for another session yet; it is asked again and again. Told once, after 2 s.
    Queued {
        /// The host.
        host: String,
        /// Since when.
        since: Duration,
        /// Sessions that it has at once for us; `None` where it did not say so, or ended connections before it answered.
        most: Option<u32>,
    },
    /// What became of one thing in a tree, where [`TreeOptions::list`](crate::TreeOptions::list) asks for it.
    Entry {
        /// Its place beneath the target.
        name: Name,
        /// What became of it.
        outcome: EntryOutcome,
    },
    /// It starts again from nothing, as what was received is not what was sent.
    Restarted,
}

/// One link, by its two ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LinkName {
    /// Our interface.
    pub interface: String,
    /// The peer's interface, once known.
    pub peer_interface: Option<String>,
    /// Our address on it, once known.
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: IpAddr,
}

/// What became of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// Not connected yet.
    Connecting,
    /// Carries data.
    Up,
    /// Heard nothing of for too long; gets nothing new.
    Suspect,
    /// Has no connection, for this reason.
    Down(String),
    /// Is not used in this session, for this reason.
    LeftOut(String),
}

/// How far a transfer is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Bytes of the file that are at the receiver, those of earlier attempts included.
    pub bytes: u64,
    /// Bytes of the file; of a tree, those found so far; 0 where the length is unknown.
    pub size: u64,
    /// Whether `size` can still grow.
    pub open: bool,
    /// Files that are in place, of those found so far; of a single file absent.
    pub files: Option<(u64, u64)>,
    /// Bytes of earlier attempts.
    pub resumed: u64,
    /// Goodput of the last second or so.
    pub rate: BitRate,
    /// The same for each link, in the order in which they were planned.
    pub links: Vec<LinkProgress>,
}

/// How far one link is.
#[derive(Debug, Clone)]
pub struct LinkProgress {
    /// Which.
    pub link: LinkName,
    /// Bytes that it delivered first.
    pub bytes: u64,
    /// Goodput of the last second or so.
    pub rate: BitRate,
    /// Its state.
    pub state: LinkState,
}

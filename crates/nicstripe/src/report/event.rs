//! Events and progress of a running transfer.

use std::{fmt, net::IpAddr, time::Duration};

use nicstripe_proto::{BitRate, Name};

use crate::{tree::EntryOutcome, trust::PublicKey};

/// Event of a running transfer, for display by its owner.
///
/// [`Event::Progress`] is emitted about ten times a second and is dropped if unread. Up to 1024
/// other events are queued.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The client has connected to the peer and authenticated it.
    Connected {
        /// Public key of the peer.
        key: PublicKey,
        /// Name of the peer in the peers file; `None` if it has none.
        name: Option<String>,
    },
    /// A link started or stopped carrying data, or is excluded.
    Link {
        /// Link whose state changed.
        link: LinkName,
        /// New state of the link.
        state: LinkState,
    },
    /// Both ends have opened the file, so that data can be sent.
    Started {
        /// File size in bytes.
        size: u64,
        /// Bytes that an earlier attempt had made durable at the receiver.
        resumed: u64,
    },
    /// Current progress, sent about ten times a second.
    Progress(Progress),
    /// The session has no connection; the client keeps reconnecting.
    Waiting {
        /// Time since the last connection was lost.
        since: Duration,
    },
    /// The daemon has been unreachable for 2 s, at the first contact or after all connections were
    /// lost; the client keeps trying. Sent again each minute.
    Unreachable {
        /// Host name or address of the daemon, as the user gave it.
        host: String,
        /// Names of the local interfaces that the client tries. Empty after the session itself was
        /// lost, when the client looks for links again.
        interfaces: Vec<String>,
        /// Time since the last connection was lost, or since the first attempt.
        since: Duration,
        /// Time without any link after which the client gives up. `None` if another limit ends the
        /// wait: at the first contact, which tries every address of the host, and in a benchmark.
        patience: Option<Duration>,
    },
    /// The peer is connected, but the transfer or request makes no progress. Sent after 10 s, once
    /// until there is progress again.
    Stalled {
        /// Time since the last progress.
        since: Duration,
        /// Step of the peer that the client waits for.
        awaited: Awaited,
    },
    /// The daemon has no capacity for another session; the client keeps retrying. Sent once, after
    /// 2 s.
    Queued {
        /// Host name or address of the daemon, as the user gave it.
        host: String,
        /// Time since the client first tried to open the session.
        since: Duration,
        /// The daemon's limit of concurrent sessions for this key; `None` if it did not report one
        /// or closed connections before it answered.
        most: Option<u32>,
    },
    /// All transfers that the client may have at once are running, and none of them moves, so that
    /// this one waits for its turn. Sent after 10 s, once until one of them moves.
    Crowded {
        /// Number of running transfers, the most that a client may have.
        running: usize,
        /// Time since any of them moved.
        since: Duration,
    },
    /// Result of one tree entry, sent if [`TreeOptions::list`](crate::TreeOptions::list) is set.
    Entry {
        /// Name of the entry, relative to the target directory.
        name: Name,
        /// Result: copied, unchanged or failed.
        outcome: EntryOutcome,
    },
    /// The transfer restarts from zero, because the received bytes differ from the sent ones.
    Restarted,
}

/// Decides when [`Event::Unreachable`] is sent.
#[derive(Debug)]
pub(crate) struct UnreachableNotice {
    /// Time without any connection at which the next event is due.
    next: Duration,
}

impl UnreachableNotice {
    pub(crate) const fn new() -> Self {
        Self {
            next: UNREACHABLE_AFTER,
        }
    }

    /// Returns true if an event is due. `since` is the time since the last connection was lost; a
    /// short one begins a new loss.
    pub(crate) fn is_due(&mut self, since: Duration) -> bool {
        if since < UNREACHABLE_AFTER {
            *self = Self::new();
        }
        let is_due = since >= self.next;
        if is_due {
            self.next = since + UNREACHABLE_AGAIN;
        }
        is_due
    }
}

/// Time without any connection after which [`Event::Unreachable`] is sent: a connection that returns
/// at once, as after a cable was moved, is not worth a line. Picked by eye.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);

/// Interval at which [`Event::Unreachable`] is repeated.
const UNREACHABLE_AGAIN: Duration = Duration::from_secs(60);

/// Step of a daemon that a client waits for. Displayed as a verb with its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// The daemon opens the source or the target of a transfer, or lets it wait for others.
    Opening,
    /// The daemon sends data, or the next entries of a tree.
    Sending,
    /// The daemon takes data, or decides on entries of a tree.
    Receiving,
    /// The daemon verifies and stores data that it has received.
    Storing,
    /// The daemon answers a request about names.
    Answer,
    /// The daemon connects a tunnel to its target.
    Tunnel,
}

impl Awaited {
    /// Returns the identifier of the step in machine-readable output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Sending => "sending",
            Self::Receiving => "receiving",
            Self::Storing => "storing",
            Self::Answer => "answer",
            Self::Tunnel => "tunnel",
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opening => "open the file",
            Self::Sending => "send data",
            Self::Receiving => "receive data",
            Self::Storing => "store the data",
            Self::Answer => "answer",
            Self::Tunnel => "connect",
        })
    }
}

/// Link, identified by its interfaces and addresses at both ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LinkName {
    /// Name of the local interface.
    pub interface: String,
    /// Name of the peer's interface; `None` until known.
    pub peer_interface: Option<String>,
    /// Local address of the link; `None` until known.
    pub local: Option<IpAddr>,
    /// Remote address of the link.
    pub remote: IpAddr,
}

impl LinkName {
    /// Returns the name of a link whose peer interface and local address are not known yet.
    pub const fn new(interface: String, remote: IpAddr) -> Self {
        Self {
            interface,
            peer_interface: None,
            local: None,
            remote,
        }
    }
}

/// Connection state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// Connecting for the first time.
    Connecting,
    /// Connected and in use.
    Up,
    /// No data or heartbeat has arrived for too long; the link gets no new chunks.
    Suspect,
    /// Connection lost or failed; the client reconnects. Contains the reason.
    Down(String),
    /// Excluded from this session. Contains the reason.
    LeftOut(String),
}

impl LinkState {
    /// Returns the identifier of the state in machine-readable output.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down(_) => "down",
            Self::LeftOut(_) => "left_out",
        }
    }

    /// Returns why the link carries nothing; `None` in the other states.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Down(why) | Self::LeftOut(why) => Some(why),
            Self::Connecting | Self::Up | Self::Suspect => None,
        }
    }
}

/// Snapshot of a transfer's progress: bytes, files and rates, in total and per link.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of the file at the receiver, including those of earlier attempts.
    pub bytes: u64,
    /// File size in bytes; for a tree, the sum of the files found so far; 0 if unknown.
    pub size: u64,
    /// True if `size` can still grow, because a tree is still being walked or a pipe being read.
    pub open: bool,
    /// Files of a tree; `None` for a single file.
    pub files: Option<FileCounts>,
    /// Bytes that earlier attempts had made durable.
    pub resumed: u64,
    /// Goodput, averaged over about one second.
    pub rate: BitRate,
    /// Progress per link, in the order in which the client planned the links.
    pub links: Vec<LinkProgress>,
}

impl Progress {
    /// Returns a number that changes when data move.
    pub(crate) fn moved(&self) -> u64 {
        let files = self.files.map_or(0, |files| files.done + files.found);
        self.bytes.wrapping_add(files)
    }
}

/// Numbers of files of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Files that are complete.
    pub done: u64,
    /// Files that were found so far.
    pub found: u64,
}

/// Progress of a transfer on one link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkProgress {
    /// Link that carried the bytes.
    pub link: LinkName,
    /// Bytes of the file delivered by this link. A chunk that was sent twice counts only for its
    /// first arrival.
    pub bytes: u64,
    /// Goodput of the link, averaged over about one second.
    pub rate: BitRate,
    /// Connection state of the link.
    pub state: LinkState,
}

impl LinkProgress {
    /// Returns the progress of a link that connects for the first time.
    pub const fn new(link: LinkName) -> Self {
        Self {
            link,
            bytes: 0,
            rate: BitRate::ZERO,
            state: LinkState::Connecting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_after_2_seconds_again_each_minute_and_a_new_one_anew() {
        let mut notice = UnreachableNotice::new();
        for (since, is_due) in [
            (0, false),
            (1, false),
            (2, true),
            (3, false),
            (61, false),
            (62, true),
            (121, false),
            (122, true),
            (1, false),
            (2, true),
        ] {
            assert_eq!(notice.is_due(Duration::from_secs(since)), is_due, "{since}");
        }
    }
}

//! What strangers and peers may take of a daemon.

use std::time::Duration;

use nicstripe_proto::BitRate;

/// What strangers and peers may take of a daemon. Every limit is the daemon's own: nothing that a peer says raises one.
///
/// | limit | default |
/// | --- | --- |
/// | [`greetings`](Self::greetings) | 256 |
/// | [`greetings_per_address`](Self::greetings_per_address) | 128 |
/// | [`greeting_time`](Self::greeting_time) | 5 s |
/// | [`handshakes_per_second`](Self::handshakes_per_second) | 500 |
/// | [`sessions`](Self::sessions) | 64 |
/// | [`sessions_per_peer`](Self::sessions_per_peer) | 32 |
/// | [`session_patience`](Self::session_patience) | 60 s |
/// | [`paths`](Self::paths) | 256 |
/// | [`refusals_logged`](Self::refusals_logged) | 10 a second |
/// | [`session_rate`](Self::session_rate) | none |
/// | [`shutdown_time`](Self::shutdown_time) | 10 s |
///
/// Where the process may not have file descriptors for so many, [`greetings`](Self::greetings) and [`paths`](Self::paths) are a quarter and an
/// eighth of what it may have, less a reserve: half is for files. A count of 0 counts as 1, and [`greeting_time`](Self::greeting_time) is
/// 100 ms at least: a daemon that lets nobody in is not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once that have not proved who they are: 256.
    ///
    /// When there are as many, the oldest gives way to the next, first of the address that has most. An honest client needs some
    /// milliseconds. Each costs about 25 KiB here and some 5 KiB in the kernel, and a file descriptor.
    pub greetings: usize,
    /// How many of them may come from one IPv4 address or one IPv6 /64: 128. One that has said nothing for 0.2 s, or has not answered for 1 s,
    /// gives way to the next; where there is none, the next is closed, and tries again.
    pub greetings_per_address: usize,
    /// From a connection's acceptance until its session has it: 5 s, whatever the peer sends meanwhile.
    pub greeting_time: Duration,
    /// Key exchanges with strangers: 500 a second, after 64 at once. One takes some 0.2 ms, so that this is a tenth of a core.
    ///
    /// Addresses from which a peer has proved its key have as many of their own, all together.
    pub handshakes_per_second: u32,
    /// Sessions at once, of all peers: 64. A client beyond them waits. Where several keys have all, one with less than half as many as the
    /// greatest gets a place of that one, whose client waits and goes on.
    pub sessions: usize,
    /// Sessions at once of one key: 32, so that no peer takes all. Its further clients wait.
    pub sessions_per_peer: usize,
    /// How long a session without any connection is kept: 60 s.
    ///
    /// A client that comes back later makes a new one and goes on from what is durable, so this only saves it that; and a peer that comes
    /// and goes cannot fill [`sessions`](Self::sessions) for long.
    pub session_patience: Duration,
    /// Connections of peers at once, from the proof of their key on: 256, half of them of one key at most. Each costs one chunk of 256 KiB,
    /// the buffers of TLS and two file descriptors. All other chunks come out of one pool of 64 MiB for all sessions.
    ///
    /// Where several keys have all, one with less than half as many as the greatest gets one of that one.
    pub paths: usize,
    /// Lines of the log a second, at most, about connections that were turned away: 10. The rest is counted in one line.
    pub refusals_logged: u32,
    /// Most that is sent in a session, over all links, to a peer whose line in the list of peers has no rate: no limit.
    pub session_rate: Option<BitRate>,
    /// How long all sessions together may take to end when the daemon is to: 10 s. Then it ends without those that wait for a disk.
    pub shutdown_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            greetings: 256,
            greetings_per_address: 128,
            greeting_time: Duration::from_secs(5),
            handshakes_per_second: 500,
            sessions: 64,
            sessions_per_peer: 32,
            session_patience: Duration::from_secs(60),
            paths: 256,
            refusals_logged: 10,
            session_rate: None,
            shutdown_time: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// The same, with what would let nobody in raised to the least that does.
    pub(super) fn usable(self) -> Self {
        Self {
            greetings: self.greetings.max(1),
            greetings_per_address: self.greetings_per_address.max(1),
            greeting_time: self.greeting_time.max(LEAST_GREETING_TIME),
            handshakes_per_second: self.handshakes_per_second.max(1),
            sessions: self.sessions.max(1),
            sessions_per_peer: self.sessions_per_peer.max(1),
            paths: self.paths.max(1),
            ..self
        }
    }

    /// The same, with no more connections than there are file descriptors for, half of which are for files.
    pub(super) fn within(self, descriptors: Option<u64>) -> Self {
        let share = |part: u64| descriptors.map_or(usize::MAX, |all| usize::try_from(all / part).unwrap_or(usize::MAX).max(1));
        Self { greetings: self.greetings.min(share(4)), paths: self.paths.min(share(8)), ..self }
    }
}

/// How many file descriptors of this process are shared out; `None` where there is no limit.
pub(super) fn descriptors() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.map(|all| all - reserve(all))
}

/// Descriptors that no peer gets: for the daemon's own sockets, and for connections that are accepted while all shares are used up.
fn reserve(all: u64) -> u64 {
    (all / 8).min(MOST_RESERVED)
}

/// How many of them are for single files, and as many for trees: a quarter, as connections have the other half ([`Limits::within`]).
pub(super) fn for_files(descriptors: Option<u64>) -> usize {
    descriptors.map_or(MOST_FOR_FILES, |all| usize::try_from(all / 4).unwrap_or(MOST_FOR_FILES).clamp(1, MOST_FOR_FILES))
}

/// A daemon has 16 of its own, and two for each interface.
const MOST_RESERVED: u64 = 64;

/// Where there is no limit: as many as Linux lets a process have by default (`fs.nr_open`).
const MOST_FOR_FILES: usize = 1 << 20;

/// Below this, no client far away is ever greeted.
const LEAST_GREETING_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_lets_nobody_in() {
        let zero = Limits {
            greetings: 0,
            greetings_per_address: 0,
            greeting_time: Duration::ZERO,
            handshakes_per_second: 0,
            sessions: 0,
            sessions_per_peer: 0,
            session_patience: Duration::ZERO,
            paths: 0,
            refusals_logged: 0,
            session_rate: None,
            shutdown_time: Duration::ZERO,
        };
        let usable = zero.usable();
        assert_eq!((usable.greetings, usable.greetings_per_address, usable.handshakes_per_second), (1, 1, 1));
        assert_eq!((usable.sessions, usable.sessions_per_peer, usable.paths), (1, 1, 1));
        assert_eq!(usable.greeting_time, LEAST_GREETING_TIME);
        assert_eq!(Limits::default().usable(), Limits::default());
    }

    #[test]
    fn half_of_the_file_descriptors_are_left_for_files() {
        let limits = Limits::default().within(Some(1024));
        assert_eq!((limits.greetings, limits.paths), (256, 128), "two for each path");
        let limits = Limits::default().within(Some(256));
        assert_eq!((limits.greetings, limits.paths), (64, 32));
        assert_eq!(Limits::default().within(None), Limits::default());
        assert_eq!(Limits::default().within(Some(1)).greetings, 1);
        assert_eq!([0, 1, 64, 1024, 1 << 20].map(reserve), [0, 0, 8, 64, 64]);
    }
}

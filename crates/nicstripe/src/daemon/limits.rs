//! Resource limits for unauthenticated connections and for peers.

use std::time::Duration;

use nicstripe_proto::BitRate;

/// Resource limits for unauthenticated connections and for peers. Peers cannot raise any of them.
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
/// [`greetings`](Self::greetings) is capped at a quarter, and [`paths`](Self::paths) at an eighth,
/// of the process's file descriptors less a reserve. Half of them are for files. A count of 0 is
/// treated as 1, and [`greeting_time`](Self::greeting_time) is at least 100 ms, so that the daemon
/// always admits clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of unauthenticated connections: 256.
    ///
    /// At the limit a new connection evicts the oldest, first of the address with the most. An
    /// honest client needs some milliseconds. Each connection costs about 25 KiB in the daemon,
    /// some 5 KiB in the kernel, and a file descriptor.
    pub greetings: usize,
    /// Maximum number of unauthenticated connections per IPv4 address or IPv6 /64: 128. At the
    /// limit a new one evicts a connection that has been silent for 0.2 s, or for 1 s after an
    /// answer. If there is none, the daemon closes the new one, and the client retries.
    pub greetings_per_address: usize,
    /// Maximum time from accepting a connection until its session has it: 5 s. The peer cannot
    /// extend it.
    pub greeting_time: Duration,
    /// Maximum number of key exchanges with strangers per second: 500, with a burst of 64. One
    /// takes some 0.2 ms, so this is a tenth of a core.
    ///
    /// Addresses at which a peer has proved its key share a separate limit of the same size.
    pub handshakes_per_second: u32,
    /// Maximum number of sessions of all peers: 64. Further clients wait. When several keys use all
    /// of them, the key with the most loses one to any key with less than half as many. The evicted
    /// client waits and resumes.
    pub sessions: usize,
    /// Maximum number of sessions per key: 32, so that no peer takes all. Its further clients wait.
    pub sessions_per_peer: usize,
    /// Time after which a session without any connection ends: 60 s.
    ///
    /// A client that returns later creates a new session and resumes from durable data, so a longer
    /// time only saves that work. A short one keeps flapping peers from filling
    /// [`sessions`](Self::sessions).
    pub session_patience: Duration,
    /// Maximum number of authenticated connections: 256, at most half of them of one key. Each
    /// costs one chunk of 256 KiB, TLS buffers and two file descriptors. All other chunks come from
    /// one pool of 64 MiB for all sessions.
    ///
    /// When several keys use all of them, the key with the most loses one to any key with less than
    /// half as many.
    pub paths: usize,
    /// Maximum number of log records per second about rejected connections: 10. One more record
    /// counts the rest.
    pub refusals_logged: u32,
    /// Maximum send rate of a session over all links, in bit/s, for peers without `rate=` in the
    /// peers file; `None` for no limit, the default.
    pub session_rate: Option<BitRate>,
    /// Maximum time for all sessions to end at a shutdown: 10 s. After that the daemon exits
    /// without waiting for sessions that still write to a slow disk.
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
    /// Returns the limits, raised where they would admit no client.
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

    /// Returns the limits with connections capped at half of the file descriptors; the other half
    /// is for files.
    pub(super) fn within(self, descriptors: Option<u64>) -> Self {
        let share = |part: u64| {
            descriptors.map_or(usize::MAX, |all| {
                usize::try_from(all / part).unwrap_or(usize::MAX).max(1)
            })
        };
        Self {
            greetings: self.greetings.min(share(4)),
            paths: self.paths.min(share(8)),
            ..self
        }
    }
}

/// Returns the number of file descriptors available for connections and files, or `None` without a
/// limit of the process.
pub(super) fn descriptors() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .map(|all| all - reserve(all))
}

/// Returns the number of file descriptors reserved for the daemon's own sockets, and for
/// connections that it accepts in order to reject them.
fn reserve(all: u64) -> u64 {
    (all / 8).min(MOST_RESERVED)
}

/// Returns the number of file descriptors for single files, a quarter of `descriptors`. Trees get
/// another quarter, connections the other half ([`Limits::within`]).
pub(super) fn for_files(descriptors: Option<u64>) -> usize {
    descriptors.map_or(MOST_FOR_FILES, |all| {
        usize::try_from(all / 4)
            .unwrap_or(MOST_FOR_FILES)
            .clamp(1, MOST_FOR_FILES)
    })
}

/// Maximum number of reserved file descriptors. A daemon uses 16 itself, and two per interface.
const MOST_RESERVED: u64 = 64;

/// Number of file descriptors for single files if the process has no limit: the default of
/// `fs.nr_open`, Linux's maximum per process.
const MOST_FOR_FILES: usize = 1 << 20;

/// Minimum greeting time. A shorter one would reject every distant client.
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
        assert_eq!(
            (
                usable.greetings,
                usable.greetings_per_address,
                usable.handshakes_per_second
            ),
            (1, 1, 1)
        );
        assert_eq!(
            (usable.sessions, usable.sessions_per_peer, usable.paths),
            (1, 1, 1)
        );
        assert_eq!(usable.greeting_time, LEAST_GREETING_TIME);
        assert_eq!(Limits::default().usable(), Limits::default());
    }

    #[test]
    fn half_of_the_file_descriptors_are_left_for_files() {
        let limits = Limits::default().within(Some(1024));
        assert_eq!(
            (limits.greetings, limits.paths),
            (256, 128),
            "two for each path"
        );
        let limits = Limits::default().within(Some(256));
        assert_eq!((limits.greetings, limits.paths), (64, 32));
        assert_eq!(Limits::default().within(None), Limits::default());
        assert_eq!(Limits::default().within(Some(1)).greetings, 1);
        assert_eq!([0, 1, 64, 1024, 1 << 20].map(reserve), [0, 0, 8, 64, 64]);
    }
}

//! Limits and timing of a session.

use std::time::Duration;

use crate::units::BitRate;

/// Limits and timing of a session. The defaults are for gigabit links on a LAN.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Number of data frames that the peer may have in flight on each path: 32, at most 8 MiB of
    /// memory per path.
    ///
    /// 8 MiB cover 10 Gbit/s with an RTT of 6.7 ms; the queue of a gigabit interface (1000 frames)
    /// is 12 ms and 1.5 MB.
    pub credit_window: u64,
    /// Number of bytes written that trigger a sync: 16 MiB. A crash costs the retransmission of at
    /// most that and the bytes in flight.
    ///
    /// At 1 Gbit/s this means seven syncs a second, without measurable cost on a disk behind the
    /// page cache. 16 MiB are less than 1 % of 2 GiB.
    pub sync_bytes: u64,
    /// Maximum age of written data that is not durable: 1 s.
    pub sync_interval: Duration,
    /// Time without any connection after which the session is abandoned: 10 minutes.
    pub patience: Duration,
    /// Maximum rate of all paths together; unlimited by default.
    pub rate_limit: Option<BitRate>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            credit_window: 32,
            sync_bytes: 16 << 20,
            sync_interval: Duration::from_secs(1),
            patience: Duration::from_secs(600),
            rate_limit: None,
        }
    }
}

/// Maximum number of concurrent transfers in a session: far above the number of files that a copy
/// has open (picked by eye).
pub(crate) const MAX_OPEN_TRANSFERS: usize = 1024;

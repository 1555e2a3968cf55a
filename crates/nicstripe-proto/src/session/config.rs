//! Limits and timing of a session.

use std::time::Duration;

use crate::units::BitRate;

/// Limits and timing of a session. The defaults are for gigabit links on a LAN.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Number of data frames that the peer may have in flight on each path: 32, at most 8 MiB of
    /// memory per path.
    ///
    /// 8 MiB suffice for 10 Gbit/s with an RTT of 6.7 ms. The queue of a gigabit interface (1000
    /// frames) holds 1.5 MB, or 12 ms.
    pub credit_window: u64,
    /// Number of written bytes that trigger a sync: 16 MiB. After a crash, at most these bytes and
    /// the bytes in flight must be retransmitted.
    ///
    /// At 1 Gbit/s, seven syncs per second result, without measurable cost on a disk behind the
    /// page cache. 16 MiB are less than 1 % of 2 GiB.
    pub sync_bytes: u64,
    /// Maximum age of written data that is not durable, which triggers a sync: 1 s.
    pub sync_interval: Duration,
    /// Time without a connection after which the session is abandoned: 10 minutes.
    pub patience: Duration,
    /// Maximum rate of all paths together; `None` (no limit) by default.
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

/// Maximum number of concurrent transfers in a session. Far above the number of files that a copy
/// has open (picked by eye).
pub(crate) const MAX_OPEN_TRANSFERS: usize = 1024;

//! Progress of a transfer or request as last seen, to notice that there is no more.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct LastProgress {
    mark: Mark,
    at: Instant,
    /// True if the owner knows that progress has stopped.
    is_told: bool,
}

/// Counters that rise with each progress.
pub(super) type Mark = [u64; 9];

impl LastProgress {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            mark: Mark::default(),
            at: now,
            is_told: false,
        }
    }

    /// Returns the time without progress. `is_peers_turn` is false while this machine is awaited,
    /// or no link is connected.
    pub(super) fn silence(&mut self, mark: Mark, is_peers_turn: bool, now: Instant) -> Duration {
        if mark != self.mark || !is_peers_turn {
            (self.mark, self.at, self.is_told) = (mark, now, false);
        }
        now.saturating_duration_since(self.at)
    }

    /// Returns true once the silence is long enough for a report to the owner.
    pub(super) fn is_to_tell(&mut self, silence: Duration) -> bool {
        let tells = silence >= NOTICE && !self.is_told;
        self.is_told |= tells;
        tells
    }
}

/// Time without progress until a report to the owner. A busy disk or processor may take some
/// seconds, whatever patience the owner has with links.
pub(crate) const NOTICE: Duration = Duration::from_secs(10);

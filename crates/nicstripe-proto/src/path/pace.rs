//! Token bucket for the rate limits that a user sets.

use std::time::{Duration, Instant};

use crate::units::BitRate;

/// Maximum burst after an idle period, as transmit time. Short enough to spare other users of a
/// limited link, and long enough to cover a wake-up.
const BURST: Duration = Duration::from_millis(20);

/// Token bucket: the rate limit of a path or session, and the used part of its budget.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    pub(crate) rate: BitRate,
    /// Time at which all bytes sent so far would have been transmitted at `rate`.
    passed_at: Instant,
}

impl Pace {
    /// Returns a token bucket for `rate` with a full budget.
    pub(crate) fn new(rate: BitRate, now: Instant) -> Self {
        Self {
            rate: BitRate(rate.0.max(1)),
            passed_at: now,
        }
    }

    /// Returns the earliest time at which sending is allowed; `None` if sending is allowed now.
    pub(crate) fn wait(&self, now: Instant) -> Option<Instant> {
        let ready = self.passed_at.checked_sub(BURST).unwrap_or(now);
        (ready > now).then_some(ready)
    }

    /// Charges `bytes` sent at `now` to the budget.
    pub(crate) fn on_sent(&mut self, bytes: u64, now: Instant) {
        let from = self.passed_at.max(now);
        // One day exceeds every sensible wait and cannot overflow.
        self.passed_at = from + self.rate.time_for(bytes).min(Duration::from_secs(86_400));
    }

    /// Returns `bytes` that were charged and are not sent.
    pub(crate) fn on_saved(&mut self, bytes: u64) {
        let unused = self.rate.time_for(bytes).min(Duration::from_secs(86_400));
        self.passed_at = self.passed_at.checked_sub(unused).unwrap_or(self.passed_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods)]
    fn origin() -> Instant {
        Instant::now()
    }

    #[test]
    fn what_is_sent_keeps_to_the_rate() {
        let start = origin();
        let mut pace = Pace::new(BitRate(100_000_000), start); // 12.5 MB/s
        let (mut now, mut sent) = (start, 0_u64);
        while now < start + Duration::from_secs(1) {
            match pace.wait(now) {
                Some(ready) => now = ready,
                None => {
                    pace.on_sent(250_000, now);
                    sent += 250_000;
                }
            }
        }
        // One second, plus a burst of 20 ms and a chunk of 20 ms.
        assert!((12_500_000..=13_000_000).contains(&sent), "{sent}");
    }

    #[test]
    fn what_is_saved_is_returned_to_the_budget() {
        let start = origin();
        let mut pace = Pace::new(BitRate(8_000_000), start); // 1 MB/s
        pace.on_sent(1_000_000, start);
        pace.on_saved(900_000);
        let ready = Duration::from_millis(100) - BURST;
        assert_eq!(pace.wait(start), Some(start + ready));
    }

    #[test]
    fn a_rate_of_nothing_is_no_division_by_zero() {
        let start = origin();
        let mut pace = Pace::new(BitRate(0), start);
        pace.on_sent(u64::MAX, start);
        assert!(pace.wait(start).is_some());
    }
}

//! Log records about rejected connections, rate limited so that they cannot fill a disk.

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Rate limiter of log records about rejected connections.
#[derive(Debug)]
pub(super) struct Refusals {
    most: u32,
    second: Mutex<RefusalWindow>,
}

#[derive(Debug)]
struct RefusalWindow {
    since: Instant,
    logged: u32,
    /// Number of rejections in the current second without a log record.
    unlogged: u64,
}

impl RefusalWindow {
    fn begin(since: Instant) -> Self {
        Self {
            since,
            logged: 0,
            unlogged: 0,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Tell,
    /// Count the first rejection without a log record. The summary is due one second after this
    /// time.
    CountFrom(Instant),
    Count,
}

impl Refusals {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            second: Mutex::new(RefusalWindow::begin(Instant::now())),
        }
    }

    /// Logs a rejected connection within the rate limit. `reason` is the daemon's own text, never
    /// one from the stranger.
    pub(super) fn tell(self: &Arc<Self>, remote: SocketAddr, reason: &dyn fmt::Display) {
        match self.judge(Instant::now()) {
            Verdict::Tell => tracing::info!(%remote, %reason, "connection rejected"),
            Verdict::CountFrom(since) => {
                let refusals = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep_until((since + SECOND).into()).await;
                    refusals.report_rest();
                });
            }
            Verdict::Count => {}
        }
    }

    fn judge(&self, now: Instant) -> Verdict {
        let mut second = self.second.lock();
        if second.unlogged == 0 && now.saturating_duration_since(second.since) >= SECOND {
            *second = RefusalWindow::begin(now);
        }
        if second.logged < self.most {
            second.logged += 1;
            return Verdict::Tell;
        }
        second.unlogged += 1;
        if second.unlogged == 1 {
            Verdict::CountFrom(second.since)
        } else {
            Verdict::Count
        }
    }

    fn report_rest(&self) {
        let unlogged = self.end_second(Instant::now());
        tracing::info!(connections = unlogged, "more connections were rejected");
    }

    fn end_second(&self, now: Instant) -> u64 {
        std::mem::replace(&mut *self.second.lock(), RefusalWindow::begin(now)).unlogged
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines_and_the_rest_is_counted() {
        let refusals = Refusals::new(2);
        let start = Instant::now();
        assert_eq!(
            (refusals.judge(start), refusals.judge(start)),
            (Verdict::Tell, Verdict::Tell)
        );
        let Verdict::CountFrom(since) = refusals.judge(start) else {
            panic!("a third line")
        };
        assert!((0..10).all(|_| refusals.judge(start) == Verdict::Count));
        assert_eq!(
            refusals.judge(since + SECOND),
            Verdict::Count,
            "until the rest was logged"
        );
        assert_eq!(refusals.end_second(since + SECOND), 12);
        assert_eq!(refusals.judge(since + SECOND), Verdict::Tell);
    }

    #[test]
    fn few_are_all_told() {
        let refusals = Refusals::new(1);
        let start = Instant::now();
        assert!((1..10).all(|second| refusals.judge(start + second * SECOND) == Verdict::Tell));
    }
}

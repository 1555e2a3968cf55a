//! Token bucket, for rate limits of requests and records.

use std::time::{Duration, Instant};

/// Token bucket: a budget that refills at a constant rate.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Maximum number of tokens.
    burst: f64,
    per_second: f64,
    tokens: f64,
    /// Time at which `tokens` was last updated.
    at: Instant,
}

impl TokenBucket {
    /// Returns a full bucket of `burst` tokens that refills at `per_second` tokens per second.
    pub fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self {
            burst,
            per_second: f64::from(per_second),
            tokens: burst,
            at: now,
        }
    }

    /// Removes a token from the bucket. Returns false if the bucket has less than one token.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let has_token = self.tokens >= 1.0;
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }

    /// Returns the time until a token is available; zero if one is available now.
    pub fn wait(&mut self, now: Instant) -> Duration {
        self.refill(now);
        Duration::try_from_secs_f64(((1.0 - self.tokens) / self.per_second).max(0.0))
            .unwrap_or(Duration::MAX)
    }

    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.tokens >= self.burst
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.burst);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods)]
    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(3, 10, start);
        assert_eq!((0..5).filter(|_| bucket.take(start)).count(), 3);
        assert_eq!(bucket.wait(start), Duration::from_millis(100));
        let later = start + Duration::from_millis(100);
        assert_eq!(bucket.wait(later), Duration::ZERO);
        assert!(bucket.take(later) && !bucket.take(later));
        let much_later = start + Duration::from_secs(3600);
        assert_eq!(
            (0..5).filter(|_| bucket.take(much_later)).count(),
            3,
            "it holds no more than its burst"
        );
        assert!(!bucket.take(start), "time running backwards adds nothing");
    }
}

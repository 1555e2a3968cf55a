//! Rate limits for expensive work on behalf of unauthenticated hosts.

use std::{net::Ipv6Addr, time::Instant};

use crate::token_bucket::TokenBucket;

/// Rate limit per source address and in total, with bounded memory.
///
/// One address cannot starve the others. A host with many addresses can, so each interface needs a
/// separate limiter. Anybody can write a trusted key and an address into a datagram: call
/// [`check`](Self::check) before the signature is verified, and [`admit`](Self::admit) only for a
/// valid one.
#[derive(Debug)]
pub struct Limiter {
    checks: TokenBucket,
    total: TokenBucket,
    /// Token bucket of each recent source, at most [`MOST_SOURCES`].
    sources: Vec<(Ipv6Addr, TokenBucket)>,
}

impl Limiter {
    /// Returns a limiter with full token buckets.
    pub fn new(now: Instant) -> Self {
        Self {
            checks: TokenBucket::new(CHECK_BURST, CHECKS_PER_SECOND, now),
            total: TokenBucket::new(TOTAL_BURST, TOTAL_PER_SECOND, now),
            sources: Vec::new(),
        }
    }

    /// Charges the verification of one signature. Returns false if the limit is exceeded, or if
    /// `source` has used up its budget; the caller must then drop the datagram.
    pub fn check(&mut self, source: Ipv6Addr, now: Instant) -> bool {
        let own = self
            .sources
            .iter_mut()
            .find(|(address, _)| *address == source);
        own.is_none_or(|(_, own)| own.wait(now).is_zero()) && self.checks.take(now)
    }

    /// Charges one request to `source`. Returns false if a limit is exceeded; the caller must then
    /// drop the request.
    pub fn admit(&mut self, source: Ipv6Addr, now: Instant) -> bool {
        // Checked first, because a flood of addresses would otherwise fill the table.
        if !self.total.wait(now).is_zero() {
            return false;
        }
        let Some(position) = self.position(source, now) else {
            return false;
        };
        // A request that exceeds the source's budget does not charge the total.
        self.sources
            .get_mut(position)
            .is_some_and(|(_, own)| own.take(now))
            && self.total.take(now)
    }

    /// Returns the index of a source in the table, after adding the source if it is new. Removes
    /// sources with a full bucket first if the table is full; returns `None` if no source can be
    /// removed.
    fn position(&mut self, source: Ipv6Addr, now: Instant) -> Option<usize> {
        if let Some(known) = self
            .sources
            .iter()
            .position(|(address, _)| *address == source)
        {
            return Some(known);
        }
        if self.sources.len() >= MOST_SOURCES {
            // Nothing is lost, because a new source also starts with a full bucket.
            self.sources.retain_mut(|(_, own)| !own.is_full(now));
        }
        if self.sources.len() >= MOST_SOURCES {
            return None;
        }
        self.sources.push((
            source,
            TokenBucket::new(SOURCE_BURST, SOURCE_PER_SECOND, now),
        ));
        Some(self.sources.len() - 1)
    }
}

/// Size and refill rate of the token bucket of signature checks. A check takes about 45 µs of one
/// core, so that a flood takes a fifth of it. An honest host asks five times in 3 s, and of a flood
/// of 10,000 datagrams a second, which is all that is read, two in five are checked.
const CHECK_BURST: u32 = 1_000;
const CHECKS_PER_SECOND: u32 = 4_000;

/// Size and refill rate of each source's token bucket, in queries. A client sends three in the
/// first second and one per second afterwards; several processes may query at once.
const SOURCE_BURST: u32 = 12;
const SOURCE_PER_SECOND: u32 = 4;

/// Size and refill rate of the token bucket of all sources together, in queries. A new signature and
/// the check take about 0.2 ms of one core; 64 queries per second use 1.3 % of a core.
const TOTAL_BURST: u32 = 128;
const TOTAL_PER_SECOND: u32 = 64;

/// Maximum number of sources in the table: about 18 KiB of memory. A source is removed after 3 s,
/// and the total limit admits no more sources in that time.
const MOST_SOURCES: usize = 320;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[allow(clippy::disallowed_methods)]
    fn now() -> Instant {
        Instant::now()
    }

    fn source(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
    }

    #[test]
    fn one_source_cannot_use_up_what_others_need() {
        let now = now();
        let mut limiter = Limiter::new(now);
        let admitted = (0..10_000)
            .filter(|_| limiter.admit(source(1), now))
            .count();
        assert_eq!(admitted, SOURCE_BURST as usize);
        assert!(limiter.admit(source(2), now));
    }

    #[test]
    fn all_sources_together_have_a_limit_and_memory_has_one() {
        let start = now();
        let mut limiter = Limiter::new(start);
        // Two seconds with a query every 50 µs, each from a new address.
        let admitted = (0..40_000_u32).filter(|number| {
            let now = start + Duration::from_micros(u64::from(*number) * 50);
            limiter.admit(source(*number as u16), now)
        });
        let admitted = admitted.count();
        assert!((128..=260).contains(&admitted), "{admitted}");
        assert!(limiter.sources.len() <= MOST_SOURCES);
        let later = start + Duration::from_secs(10);
        assert!(
            limiter.admit(source(1), later),
            "served again after the pause"
        );
    }
}

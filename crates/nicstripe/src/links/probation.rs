//! Probation of the host routes that the daemon installs for its peers: a route over which no
//! connection arrives is removed, and not installed again for a while.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::trust::PublicKey;

/// Peer address, and name of the local interface at which the peer's connections from it will
/// arrive.
pub(super) type RouteEnds = (IpAddr, String);

/// Probations of host routes, per key. A route over which no connection arrives is removed, and not
/// installed again for a while.
///
/// Probations belong to the key and add up over its sessions. Otherwise a peer could start over
/// with each new session, since a session's routes are removed at its end. The number of records
/// per key is bounded; at the bound a key gets no further routes.
#[derive(Debug, Default)]
pub(super) struct Probations(Mutex<HashMap<PublicKey, HashMap<RouteEnds, Probation>>>);

#[derive(Debug)]
struct Probation {
    /// Total time for which the route was installed without a connection, since the last failure.
    used: Duration,
    failures: u32,
    /// Time until which the daemon does not install the route again; `None` before the first
    /// failure.
    held_until: Option<Instant>,
    /// Time of the latest connection over the route.
    made: Option<Instant>,
    /// Time of the latest installation of the route or of the latest addition to `used`.
    seen: Instant,
}

impl Probation {
    fn new(now: Instant) -> Self {
        Self {
            used: Duration::ZERO,
            failures: 0,
            held_until: None,
            made: None,
            seen: now,
        }
    }

    /// Returns the time for which the route may be installed without a connection, or `None` if it
    /// must not be installed now.
    fn left(&self, now: Instant) -> Option<Duration> {
        match self.held_until {
            Some(until) if now < until => None,
            _ if self.was_made_lately(now) => Some(PROBATION),
            _ => Some(PROBATION.saturating_sub(self.used)),
        }
    }

    fn was_made_lately(&self, now: Instant) -> bool {
        self.made
            .is_some_and(|at| now.saturating_duration_since(at) < REMEMBERED)
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        let last = self
            .held_until
            .max(self.made)
            .unwrap_or(self.seen)
            .max(self.seen);
        now.saturating_duration_since(last) >= REMEMBERED
    }
}

impl Probations {
    /// Starts or continues the probation of a route. Returns the time to wait for a connection, or
    /// `None` if the route must not be installed for this key now.
    pub(super) fn begin(&self, key: PublicKey, way: &RouteEnds, now: Instant) -> Option<Duration> {
        let mut probations = self.0.lock();
        let of_key = probations.entry(key).or_default();
        of_key.retain(|_, probation| !probation.is_forgotten(now));
        if !of_key.contains_key(way) && of_key.len() >= MOST_PROBATIONS {
            return None;
        }
        let probation = of_key
            .entry(way.clone())
            .or_insert_with(|| Probation::new(now));
        probation.seen = now;
        probation.left(now)
    }

    /// Returns true if the route must not be installed for this key now, because earlier probations
    /// failed.
    pub(super) fn holds_back(&self, key: PublicKey, way: &RouteEnds, now: Instant) -> bool {
        let probations = self.0.lock();
        let probation = probations.get(&key).and_then(|of_key| of_key.get(way));
        probation.is_some_and(|probation| probation.left(now).is_none())
    }

    /// Records that an authenticated connection of the key from this address arrived at this
    /// interface. This ends the probation.
    pub(super) fn made(&self, key: PublicKey, way: &RouteEnds, now: Instant) {
        if let Some(probation) = self
            .0
            .lock()
            .get_mut(&key)
            .and_then(|of_key| of_key.get_mut(way))
        {
            *probation = Probation {
                made: Some(now),
                ..Probation::new(now)
            };
        }
    }

    /// Adds `time`, for which the route was installed without a connection. At [`PROBATION`] the
    /// probation fails and the route is not installed again for a while. Has no effect after a
    /// recent connection.
    pub(super) fn used(&self, key: PublicKey, way: &RouteEnds, time: Duration, now: Instant) {
        let mut probations = self.0.lock();
        let Some(probation) = probations
            .get_mut(&key)
            .and_then(|of_key| of_key.get_mut(way))
        else {
            return;
        };
        // Counts a probation shared by several sessions once.
        if probation.was_made_lately(now) || probation.left(now).is_none() {
            return;
        }
        (probation.used, probation.seen) = (probation.used + time, now);
        if probation.used >= PROBATION {
            let pause = FIRST_PAUSE
                .saturating_mul(1 << probation.failures.min(16))
                .min(LONGEST_PAUSE);
            (probation.used, probation.held_until) = (Duration::ZERO, Some(now + pause));
            probation.failures = probation.failures.saturating_add(1);
        }
    }
}

/// Time to wait for an announced connection before its route is removed.
const PROBATION: Duration = Duration::from_secs(10);

/// Time for which a route is not installed again after the first failed probation, which a cable
/// fault may have caused. Doubles with each further failure.
const FIRST_PAUSE: Duration = PROBATION;

const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Time after which the daemon forgets a connection, a failure (after its pause), or the used part
/// of a probation.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Maximum number of routes recorded per key: all pairs of 16 local and 16 remote interfaces.
const MOST_PROBATIONS: usize = 256;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 12));

    fn probation() -> (Instant, Probations, PublicKey, RouteEnds) {
        (
            Instant::now(),
            Probations::default(),
            PublicKey::from_bytes([1; 32]).unwrap(),
            (ADDRESS, "eth2".into()),
        )
    }

    #[test]
    fn a_route_without_a_connection_is_held_back_twice_as_long_each_time() {
        let (start, probations, key, way) = probation();
        let mut now = start;
        for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
            assert_eq!(probations.begin(key, &way, now), Some(PROBATION));
            now += PROBATION;
            // Two sessions held the route at the same time.
            (0..2).for_each(|_| probations.used(key, &way, PROBATION, now));
            for later in [
                Duration::ZERO,
                Duration::from_secs(pause) - Duration::from_millis(1),
            ] {
                assert!(probations.holds_back(key, &way, now + later));
                assert_eq!(probations.begin(key, &way, now + later), None);
            }
            now += Duration::from_secs(pause);
            assert!(!probations.holds_back(key, &way, now));
        }
        let others = [
            (PublicKey::from_bytes([2; 32]).unwrap(), way.clone()),
            (key, (ADDRESS, "eth1".into())),
            (key, ([10, 9, 0, 13].into(), way.1.clone())),
        ];
        for (key, way) in others {
            assert!(!probations.holds_back(key, &way, start), "{way:?}");
            assert!(probations.begin(key, &way, start).is_some(), "{way:?}");
        }
        let forgotten = now + REMEMBERED;
        assert!(probations.begin(key, &way, forgotten).is_some());
        assert_eq!(probations.0.lock()[&key][&way].failures, 0);
    }

    #[test]
    fn sessions_of_a_key_have_one_probation_together() {
        let (start, probations, key, way) = probation();
        assert_eq!(probations.begin(key, &way, start), Some(PROBATION));
        probations.used(
            key,
            &way,
            Duration::from_secs(9),
            start + Duration::from_secs(9),
        );
        let later = start + Duration::from_secs(60);
        assert_eq!(
            probations.begin(key, &way, later),
            Some(Duration::from_secs(1)),
            "a session that ended early restarts nothing"
        );
        probations.used(key, &way, Duration::from_secs(1), later);
        assert_eq!(probations.begin(key, &way, later), None);
    }

    #[test]
    fn copies_that_end_before_their_connection_comes_are_not_held_back() {
        let (start, probations, key, way) = probation();
        for number in 0..100 {
            let now = start + Duration::from_secs(60 * number);
            assert!(probations.begin(key, &way, now).is_some(), "copy {number}");
            probations.used(key, &way, Duration::from_millis(20), now);
        }
    }

    #[test]
    fn a_route_by_which_a_connection_came_is_not_held_back() {
        let (start, probations, key, way) = probation();
        // A connection without a route on probation leaves no record.
        probations.made(key, &way, start);
        assert!(probations.0.lock().get(&key).is_none());
        assert!(probations.begin(key, &way, start).is_some());
        probations.used(key, &way, PROBATION, start);
        let second = start + FIRST_PAUSE;
        assert!(probations.begin(key, &way, second).is_some());
        probations.made(key, &way, second);
        for seconds in [0, 10, 11, 29, 599] {
            let now = second + Duration::from_secs(seconds);
            assert_eq!(
                probations.begin(key, &way, now),
                Some(PROBATION),
                "{seconds} s later"
            );
            probations.used(key, &way, PROBATION, now);
        }
        let long_ago = second + REMEMBERED;
        assert_eq!(probations.begin(key, &way, long_ago), Some(PROBATION));
        probations.used(key, &way, PROBATION, long_ago);
        assert_eq!(
            probations.begin(key, &way, long_ago),
            None,
            "it no longer counts"
        );
        let again = probations.begin(key, &way, long_ago + FIRST_PAUSE);
        assert!(again.is_some(), "and neither do failures before it");
    }

    #[test]
    fn a_key_has_few_routes_remembered_and_no_others_meanwhile() {
        let (start, probations, key, _) = probation();
        let ways = (0..2 * MOST_PROBATIONS as u32)
            .map(|number| (IpAddr::from(Ipv4Addr::from(number)), "eth2".to_owned()));
        let begin = |key, at| {
            ways.clone()
                .filter(|way| probations.begin(key, way, at).is_some())
                .count()
        };
        assert_eq!(begin(key, start), MOST_PROBATIONS);
        ways.clone()
            .for_each(|way| probations.used(key, &way, PROBATION, start + PROBATION));
        assert_eq!(begin(key, start + PROBATION), 0);
        assert_eq!(probations.0.lock()[&key].len(), MOST_PROBATIONS);
        assert_eq!(
            begin(PublicKey::from_bytes([2; 32]).unwrap(), start),
            MOST_PROBATIONS,
            "another key's"
        );
        assert_eq!(
            begin(key, start + PROBATION + FIRST_PAUSE + REMEMBERED),
            MOST_PROBATIONS,
            "when they are forgotten"
        );
    }
}

//! Flap damping and quarantine of unreliable paths.
//!
//! A flapping path keeps its share of data. An equally fast link that is up half of the time makes
//! a copy a third faster than the other link alone (measured in `tests/session/flaps.rs`). A slow
//! link costs nothing, because each link takes only the data that it can carry. However, control
//! messages avoid a flapping path, and its back-off continues across connections.
//!
//! A path that damages data is quarantined for a time that doubles with each damage.

use std::time::{Duration, Instant};

/// Uninterrupted uptime of a path after which its earlier outages no longer count.
///
/// Ten times the interval between the outages of a loose contact. A rebooting switch is down for
/// longer and then stays up (picked by eye).
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Number of consecutive outages, each within [`STABLE_AFTER`] of the previous one, at which a path
/// counts as flapping. Replugging a cable once, or moving it to another port, causes fewer.
pub(crate) const FLAPPING_FROM: u32 = 3;

/// Quarantine after the second damaged chunk. Each further damaged chunk doubles the quarantine.
/// The first damaged chunk only ends the connection.
pub(crate) const QUARANTINE_FIRST: Duration = Duration::from_secs(2);

/// Maximum duration of a quarantine. A path that damages every chunk delivers five damaged chunks
/// in its first minute and one per minute afterwards.
pub(crate) const QUARANTINE_LONGEST: Duration = Duration::from_secs(60);

/// Maximum of the damage counter, at which the quarantine has its maximum duration.
///
/// Each [`STABLE_AFTER`] without damage, outside of a quarantine, decrements the counter. A link
/// with fewer than six damaged chunks per minute stays in use; a link with ten does not.
const MOST_REMEMBERED: u32 = 6;

/// History of the outages and damages of a path, over all of its connections.
#[derive(Debug, Default)]
pub(crate) struct FlapDamping {
    /// Start of the path's current uptime; `None` during an outage.
    since: Option<Instant>,
    /// Number of consecutive outages, each within [`STABLE_AFTER`] of the previous one.
    outages: u32,
    /// Number of damaged chunks or connections, minus those that uptime has cancelled. At most
    /// [`MOST_REMEMBERED`].
    damaged: u32,
    /// End of the latest quarantine; `None` before the first one.
    quarantined_until: Option<Instant>,
}

impl FlapDamping {
    /// Records that the path is connected or no longer silent.
    pub(crate) fn on_open(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Records an outage: silence, or a lost connection. Returns true if this outage makes the path
    /// a flapping one.
    pub(crate) fn on_outage(&mut self, now: Instant) -> bool {
        // A path that becomes suspect and is then lost counts once.
        let Some(since) = self.since.take() else {
            return false;
        };
        if now.saturating_duration_since(since) >= STABLE_AFTER {
            self.outages = 0;
        }
        self.outages += 1;
        self.outages == FLAPPING_FROM
    }

    /// Records damaged data. Returns the duration of the quarantine, which is zero after the first
    /// damage.
    pub(crate) fn on_damaged(&mut self, now: Instant) -> Duration {
        // Counted from the end of the quarantine, because a path shows that it is undamaged only
        // while it carries data.
        let clean = self
            .quarantined_until
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let forgiven = clean.as_secs() / STABLE_AFTER.as_secs();
        self.damaged = self
            .damaged
            .saturating_sub(forgiven.try_into().unwrap_or(u32::MAX));
        let pause = match self.damaged {
            0 => Duration::ZERO,
            before => QUARANTINE_FIRST
                .saturating_mul(1 << (before - 1))
                .min(QUARANTINE_LONGEST),
        };
        self.damaged = (self.damaged + 1).min(MOST_REMEMBERED);
        self.quarantined_until = Some(now + pause);
        pause
    }

    /// Returns true if the path is flapping: it had [`FLAPPING_FROM`] outages and has not been up
    /// for [`STABLE_AFTER`] since.
    pub(crate) fn is_flapping(&self, now: Instant) -> bool {
        let is_up_for_long = self
            .since
            .is_some_and(|since| now.saturating_duration_since(since) >= STABLE_AFTER);
        self.outages >= FLAPPING_FROM && !is_up_for_long
    }

    /// Returns the end of the current quarantine; `None` without one.
    pub(crate) fn quarantined_until(&self, now: Instant) -> Option<Instant> {
        self.quarantined_until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods)]
    fn origin() -> Instant {
        Instant::now()
    }

    const SEC: Duration = Duration::from_secs(1);

    /// Simulates `times` cycles. In each, the path is up for `there` and then down for a second.
    fn flap(path: &mut FlapDamping, now: &mut Instant, there: Duration, times: u32) {
        for _ in 0..times {
            path.on_open(*now);
            *now += there;
            path.on_outage(*now);
            *now += SEC;
        }
    }

    #[test]
    fn a_path_is_unsteady_after_its_third_short_life_and_steady_when_it_has_stayed_up() {
        let (mut path, mut now) = (FlapDamping::default(), origin());
        flap(&mut path, &mut now, SEC, 2);
        assert!(!path.is_flapping(now));
        flap(&mut path, &mut now, SEC, 1);
        assert!(path.is_flapping(now));
        path.on_open(now);
        assert!(path.is_flapping(now + STABLE_AFTER - SEC));
        assert!(!path.is_flapping(now + STABLE_AFTER));
        assert!(
            !path.on_outage(now + STABLE_AFTER),
            "earlier events are forgotten"
        );
        assert!(!path.is_flapping(now + STABLE_AFTER));
    }

    #[test]
    fn troubles_far_apart_make_no_path_unsteady() {
        let (mut path, mut now) = (FlapDamping::default(), origin());
        flap(&mut path, &mut now, STABLE_AFTER, 20);
        assert!(!path.is_flapping(now));
    }

    #[test]
    fn a_path_that_is_suspect_and_then_lost_has_one_trouble() {
        let (mut path, now) = (FlapDamping::default(), origin());
        for at in 0..2 {
            path.on_open(now + at * SEC);
            path.on_outage(now + at * SEC);
            path.on_outage(now + at * SEC);
        }
        assert!(!path.is_flapping(now + 2 * SEC));
    }

    #[test]
    fn each_damaged_chunk_keeps_data_off_for_longer() {
        let (mut path, mut now) = (FlapDamping::default(), origin());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = path.on_damaged(now);
            assert_eq!(
                path.quarantined_until(now),
                (!pause.is_zero()).then(|| now + pause)
            );
            pauses.push(pause.as_secs());
            now += pause + SEC;
            assert_eq!(path.quarantined_until(now), None);
        }
        assert_eq!(pauses, [0, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(
            path.on_damaged(now + QUARANTINE_LONGEST),
            Duration::ZERO,
            "a minute without a loss clears the history"
        );
    }

    #[test]
    fn a_path_that_seldom_damages_a_chunk_is_used_and_one_that_often_does_is_not() {
        for (every, expected) in [(12, 0), (11, 0), (6, 60), (1, 60)] {
            let (mut path, mut now, mut pause) = (FlapDamping::default(), origin(), Duration::ZERO);
            for _ in 0..12 {
                pause = path.on_damaged(now);
                now += pause + every * SEC;
            }
            assert_eq!(pause.as_secs(), expected, "every {every} s");
        }
    }
}

//! How far a path can be relied upon: whether it comes and goes, and whether what it brings is damaged.
//!
//! Measured (`tests/session/flaps.rs`): a link that is there half of the time and as fast as the other one makes the copy of a file a third
//! faster than the other link alone, and one that is slow costs nothing, as each takes what it can carry. So a path that comes and goes
//! keeps its share; but its attempts do not start from the shortest pause again, and what others wait for takes another path. A path whose
//! data are damaged gets none for a while, which doubles each time.

use std::time::{Duration, Instant};

/// Time without trouble after which a path's troubles are forgotten.
///
/// Ten times what a cable with a bad contact shows; a switch that starts again takes longer and is then there to stay (picked by eye).
pub const STEADY_AFTER: Duration = Duration::from_secs(10);

/// Troubles, each within [`STEADY_AFTER`] of the one before, from which on a path is unsteady: a cable that is pulled and put back once, or
/// put into another port, is not.
pub const UNSTEADY_FROM: u32 = 3;

/// How long a path gets no data after its second damaged chunk; doubles with each. The first costs it the connection and no more.
pub const QUARANTINE_FIRST: Duration = Duration::from_secs(2);

/// Longest that a path gets no data: with it, a path that damages each chunk brings five in its first minute and one a minute then.
pub const QUARANTINE_LONGEST: Duration = Duration::from_secs(60);

/// Most damages that are remembered: those that lead to the longest quarantine. [`STEADY_AFTER`] without damage, while it could carry data,
/// forgives one, so that a link with fewer than six a minute is used and one with ten is not.
const MOST_REMEMBERED: u32 = 6;

/// What is remembered of a path's troubles, over all of its connections.
#[derive(Debug, Default)]
pub(crate) struct Steadiness {
    /// Since when it is open without trouble.
    since: Option<Instant>,
    /// Times that it was lost or fell silent, each soon after the one before.
    troubles: u32,
    /// Damaged chunks, or damaged connections, that are not forgiven; at most [`MOST_REMEMBERED`].
    damaged: u32,
    /// Before, it gets no data.
    quarantined_until: Option<Instant>,
}

impl Steadiness {
    /// It is open, after there was no connection or nothing was heard.
    pub(crate) fn on_open(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// It was lost, or nothing is heard. Says whether that makes it unsteady, which it was not.
    pub(crate) fn on_trouble(&mut self, now: Instant) -> bool {
        // A path that is lost after it was suspect has one trouble, not two.
        let Some(since) = self.since.take() else { return false };
        if now.saturating_duration_since(since) >= STEADY_AFTER {
            self.troubles = 0;
        }
        self.troubles += 1;
        self.troubles == UNSTEADY_FROM
    }

    /// What it brought was damaged. Returns for how long it gets no data, which is 0 at the first time.
    pub(crate) fn on_damaged(&mut self, now: Instant) -> Duration {
        // Counted from the end of a quarantine: only what carries data shows whether it damages them.
        let clean = self.quarantined_until.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let forgiven = clean.as_secs() / STEADY_AFTER.as_secs();
        self.damaged = self.damaged.saturating_sub(forgiven.try_into().unwrap_or(u32::MAX));
        let pause = match self.damaged {
            0 => Duration::ZERO,
            before => QUARANTINE_FIRST.saturating_mul(1 << (before - 1)).min(QUARANTINE_LONGEST),
        };
        self.damaged = (self.damaged + 1).min(MOST_REMEMBERED);
        self.quarantined_until = Some(now + pause);
        pause
    }

    /// Whether it comes and goes.
    pub(crate) fn is_unsteady(&self, now: Instant) -> bool {
        let is_up_for_long = self.since.is_some_and(|since| now.saturating_duration_since(since) >= STEADY_AFTER);
        self.troubles >= UNSTEADY_FROM && !is_up_for_long
    }

    /// Until when it gets no data, where that is to come.
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

    /// Up for `there`, then away for a second, `times` times.
    fn flap(path: &mut Steadiness, now: &mut Instant, there: Duration, times: u32) {
        for _ in 0..times {
            path.on_open(*now);
            *now += there;
            path.on_trouble(*now);
            *now += SEC;
        }
    }

    #[test]
    fn a_path_is_unsteady_after_its_third_short_life_and_steady_when_it_has_stayed_up() {
        let (mut path, mut now) = (Steadiness::default(), origin());
        flap(&mut path, &mut now, SEC, 2);
        assert!(!path.is_unsteady(now));
        flap(&mut path, &mut now, SEC, 1);
        assert!(path.is_unsteady(now));
        path.on_open(now);
        assert!(path.is_unsteady(now + STEADY_AFTER - SEC));
        assert!(!path.is_unsteady(now + STEADY_AFTER));
        assert!(!path.on_trouble(now + STEADY_AFTER), "what was before is forgotten");
        assert!(!path.is_unsteady(now + STEADY_AFTER));
    }

    #[test]
    fn troubles_far_apart_make_no_path_unsteady() {
        let (mut path, mut now) = (Steadiness::default(), origin());
        flap(&mut path, &mut now, STEADY_AFTER, 20);
        assert!(!path.is_unsteady(now));
    }

    #[test]
    fn a_path_that_is_suspect_and_then_lost_has_one_trouble() {
        let (mut path, now) = (Steadiness::default(), origin());
        for at in 0..2 {
            path.on_open(now + at * SEC);
            path.on_trouble(now + at * SEC);
            path.on_trouble(now + at * SEC);
        }
        assert!(!path.is_unsteady(now + 2 * SEC));
    }

    #[test]
    fn each_damaged_chunk_keeps_data_off_for_longer() {
        let (mut path, mut now) = (Steadiness::default(), origin());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = path.on_damaged(now);
            assert_eq!(path.quarantined_until(now), (!pause.is_zero()).then(|| now + pause));
            pauses.push(pause.as_secs());
            now += pause + SEC;
            assert_eq!(path.quarantined_until(now), None);
        }
        assert_eq!(pauses, [0, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(path.on_damaged(now + QUARANTINE_LONGEST), Duration::ZERO, "a minute without forgives all");
    }

    #[test]
    fn a_path_that_seldom_damages_a_chunk_is_used_and_one_that_often_does_is_not() {
        for (every, expected) in [(12, 0), (11, 0), (6, 60), (1, 60)] {
            let (mut path, mut now, mut pause) = (Steadiness::default(), origin(), Duration::ZERO);
            for _ in 0..12 {
                pause = path.on_damaged(now);
                now += pause + every * SEC;
            }
            assert_eq!(pause.as_secs(), expected, "every {every} s");
        }
    }
}

//! Number of streams of a link, found by measuring.

use std::time::{Duration, Instant};

/// Adds streams to a link as long as each makes it faster: a single TCP connection rarely fills a
/// lossy or distant link, and servers dislike many.
#[derive(Debug, Clone)]
pub(crate) struct Climb {
    streams: usize,
    most: usize,
    /// Rate in bytes per second before the last stream was added.
    before: Option<f64>,
    /// Begin of the measurement, and the bytes received until then.
    since: Option<(Instant, u64)>,
}

impl Climb {
    /// Begins with this many streams and ends with at most `most`.
    pub(crate) fn new(streams: usize, most: usize) -> Self {
        Self {
            streams,
            most,
            before: None,
            since: None,
        }
    }

    /// Returns the number of streams that the link should have.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// Takes the bytes received so far by a link that carries without a pause.
    pub(crate) fn measure(&mut self, received: u64, now: Instant) {
        if self.streams >= self.most && self.before.is_none() {
            return;
        }
        let Some((since, bytes)) = self.since else {
            // A new connection begins slowly.
            self.since = Some((now + WARM_UP, received));
            return;
        };
        if now < since {
            self.since = Some((since, received));
            return;
        }
        let time = now - since;
        if time < PERIOD {
            return;
        }
        let rate = received.saturating_sub(bytes) as f64 / time.as_secs_f64();
        match self.before {
            Some(before) if rate < before * GAIN => {
                self.streams -= 1;
                (self.most, self.before) = (self.streams, None);
            }
            _ if self.streams < self.most => {
                self.streams += 1;
                self.before = Some(rate);
            }
            _ => self.before = None,
        }
        self.since = None;
    }

    /// Forgets the measurement under way: the link has paused or failed.
    pub(crate) fn pause(&mut self) {
        self.since = None;
    }
}

/// Gain for which another stream stays.
const GAIN: f64 = 1.08;

const WARM_UP: Duration = Duration::from_millis(500);

const PERIOD: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods)]
    fn climbed(most: usize, rate: impl Fn(usize, Duration) -> f64) -> Climb {
        let (start, mut received) = (Instant::now(), 0.0);
        let mut climb = Climb::new(2, most);
        for tick in 0..600 {
            let at = Duration::from_millis(100) * tick;
            climb.measure(received as u64, start + at);
            received += rate(climb.streams(), at) / 10.0;
        }
        climb
    }

    #[test]
    fn a_link_that_two_streams_fill_keeps_two() {
        assert_eq!(climbed(8, |_, _| 117e6).streams(), 2);
    }

    #[test]
    fn streams_are_added_while_each_makes_the_link_faster() {
        assert_eq!(
            climbed(8, |streams, _| 10e6 * streams.min(5) as f64).streams(),
            5
        );
        assert_eq!(climbed(8, |streams, _| 10e6 * streams as f64).streams(), 8);
        assert_eq!(climbed(2, |streams, _| 10e6 * streams as f64).streams(), 2);
    }

    #[test]
    fn a_link_that_gets_slower_by_itself_has_no_more_streams() {
        let slower = |_: usize, at: Duration| 100e6 / (1.0 + at.as_secs_f64());
        assert_eq!(climbed(8, slower).streams(), 2);
    }
}

//! Retry policy of the first connection of a session.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use crate::{
    links::trying::Trying,
    report::{error::Error, event::Event},
};

/// Retries of the first connection of a session.
///
/// | failure | next attempt | until |
/// | --- | --- | --- |
/// | connection closed before the daemon answered | after 0.1 s, doubling up to 1 s | 10 s, or `patience` if that is less |
/// | daemon has no capacity for another session | after 0.1 s, doubling up to 2 s | `patience` |
/// | any other | none | |
///
/// Each pause is shortened by up to half at random, so that clients that arrive together do not
/// retry together.
#[derive(Debug)]
pub(crate) struct Retries {
    host: String,
    patience: Duration,
    /// True to retry while the daemon has no capacity for another session.
    queues: bool,
    events: Option<mpsc::Sender<Event>>,
    trying: Arc<Trying>,
    started_at: Instant,
    /// Time of the first attempt in the current series of attempts that the daemon closed without
    /// an answer.
    cut_since: Option<Instant>,
    failed: u32,
    is_told: bool,
}

impl Retries {
    pub(crate) fn new(
        host: &str,
        patience: Duration,
        queues: bool,
        events: Option<mpsc::Sender<Event>>,
        trying: Arc<Trying>,
    ) -> Self {
        Self {
            host: host.to_owned(),
            patience,
            queues,
            events,
            trying,
            started_at: Instant::now(),
            cut_since: None,
            failed: 0,
            is_told: false,
        }
    }

    /// Waits before the attempt that follows `error`.
    ///
    /// # Errors
    ///
    /// Returns `error` if no further attempt is allowed.
    pub(crate) async fn again(&mut self, error: Error) -> Result<(), Error> {
        let Some(longest) = self.longest_pause(&error, Instant::now()) else {
            return Err(error);
        };
        self.trying.on_answer();
        let most = if let Error::Full { most, .. } = error {
            most
        } else {
            None
        };
        let mut pause = pause(self.failed, longest, crate::trust::random::random_bytes());
        self.failed += 1;
        let report_in = SILENCE.saturating_sub(self.started_at.elapsed());
        if !self.is_told && report_in <= pause {
            tokio::time::sleep(report_in).await;
            pause -= report_in;
            self.tell(most);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Returns the maximum pause before the next attempt; `None` if no further attempt is allowed.
    fn longest_pause(&mut self, error: &Error, now: Instant) -> Option<Duration> {
        let (since, longest, pause) = match error {
            Error::Full { .. } if self.queues => {
                self.cut_since = None;
                (self.started_at, self.patience, MOST_FULL_PAUSE)
            }
            Error::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionReset => (
                *self.cut_since.get_or_insert(now),
                self.patience.min(CUT_PATIENCE),
                MOST_CUT_PAUSE,
            ),
            _ => return None,
        };
        (now.duration_since(since) < longest).then_some(pause)
    }

    fn tell(&mut self, most: Option<u32>) {
        self.is_told = true;
        if let Some(events) = &self.events {
            let _ = events.try_send(Event::Queued {
                host: self.host.clone(),
                since: self.started_at.elapsed(),
                most,
            });
        }
    }
}

/// Returns the pause after `failed` earlier retries: exponential back-off up to `longest`, reduced
/// by up to half at random.
fn pause(failed: u32, longest: Duration, random: [u8; 2]) -> Duration {
    let doubled = (FIRST_PAUSE * (1 << failed.min(10))).min(longest);
    doubled.mul_f64(0.5 + f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX) / 2.0)
}

/// Pause after the first failure, before the random reduction.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Maximum pause after a connection that the daemon closed without an answer. An attempt costs it
/// one slot for unauthenticated connections and at most one key exchange.
const MOST_CUT_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause while the daemon has no capacity: 200 waiting clients make 130 handshakes a
/// second, 3 % of a core.
const MOST_FULL_PAUSE: Duration = Duration::from_secs(2);

/// Maximum time spent retrying after connections that the daemon closed without an answer. 1,000
/// clients at one address are admitted in a few seconds.
const CUT_PATIENCE: Duration = Duration::from_secs(10);

/// Time since the first attempt after which [`Event::Queued`] is sent.
const SILENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn cut() -> Error {
        super::super::cut(([192, 0, 2, 1], 7747).into())
    }

    fn full() -> Error {
        Error::Full {
            host: "nas".into(),
            most: Some(64),
        }
    }

    #[test]
    fn what_is_cut_or_full_is_tried_again_for_a_while_and_nothing_else() {
        let mut retries = Retries::new("nas", Duration::from_secs(60), true, None, Arc::default());
        let refused = Error::Connect {
            address: ([192, 0, 2, 1], 7747).into(),
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        let started_at = retries.started_at;
        assert_eq!(retries.longest_pause(&refused, started_at), None);
        for (error, seconds, expected) in [
            (full(), 59, Some(MOST_FULL_PAUSE)),
            (full(), 60, None),
            // The 10 s count from the first cut attempt and restart after an answer.
            (cut(), 20, Some(MOST_CUT_PAUSE)),
            (cut(), 29, Some(MOST_CUT_PAUSE)),
            (full(), 29, Some(MOST_FULL_PAUSE)),
            (cut(), 32, Some(MOST_CUT_PAUSE)),
            (cut(), 42, None),
        ] {
            let pause = retries.longest_pause(&error, started_at + Duration::from_secs(seconds));
            assert_eq!(pause, expected, "{error} after {seconds} s");
        }
    }

    #[test]
    fn pauses_double_up_to_their_longest_and_differ() {
        let longest = |failed| pause(failed, MOST_FULL_PAUSE, [255; 2]);
        assert_eq!(
            [0, 1, 2, 40].map(longest),
            [100, 200, 400, 2000].map(Duration::from_millis)
        );
        assert_eq!(
            pause(1, MOST_FULL_PAUSE, [0; 2]),
            Duration::from_millis(100)
        );
    }

    #[tokio::test]
    async fn a_wait_is_told_after_two_seconds_and_once() {
        let (events, mut reported) = mpsc::channel(8);
        let patience = Duration::from_secs(60);
        let mut retries = Retries::new("nas", patience, true, Some(events), Arc::default());
        retries.again(full()).await.unwrap();
        assert!(reported.try_recv().is_err());
        retries.started_at -= SILENCE;
        for _ in 0..2 {
            retries.again(full()).await.unwrap();
        }
        assert!(matches!(
            reported.try_recv(),
            Ok(Event::Queued { most: Some(64), .. })
        ));
        assert!(reported.try_recv().is_err());
    }
}

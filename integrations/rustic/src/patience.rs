//! Calls that are made again while the daemon is away.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::failure::Failure;

/// Makes a call until it succeeds, fails for good, or has failed for too long; `what` is for the log.
///
/// The client waits by itself for cables that were lost. This is for a daemon that was restarted, had too much to do, or was not there at
/// all. Time counts from the first failure: a call that is under way when it is over is let end.
pub(crate) fn retried<T>(patience: Duration, what: &str, mut call: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let mut failing_since = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let failure = match call() {
            Err(failure) => failure,
            done => return done,
        };
        let waited = failing_since.get_or_insert_with(Instant::now).elapsed();
        if waited + pause > longest_wait(&failure, patience) {
            return Err(failure);
        }
        log::warn!("cannot {what}, trying again in {pause:?}: {failure}");
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How long a failure may be in the way before it is the end.
fn longest_wait(failure: &Failure, patience: Duration) -> Duration {
    match failure {
        Failure::Client(error) if error.is_retryable() => patience,
        _ => Duration::ZERO,
    }
}

/// Short enough for a daemon that is restarted, long enough for its processor while it is away.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use nicstripe::Error;

    use super::*;

    fn ended() -> Failure {
        Failure::Client(Error::Pipe(Box::new(Error::Ended { host: "nas".into(), why: "it was restarted".into() })))
    }

    #[test]
    fn what_passes_is_waited_for() {
        let mut calls = 0;
        let done = retried(Duration::from_secs(60), "test", || {
            calls += 1;
            if calls < 3 { Err(ended()) } else { Ok(calls) }
        });
        assert!(matches!(done, Ok(3)));
    }

    #[test]
    fn patience_ends() {
        let mut calls = 0;
        let done = retried(Duration::from_millis(250), "test", || {
            calls += 1;
            Err::<(), _>(ended())
        });
        // At 0 and 100 ms, or later on a busy machine; the next would be at 300.
        assert!(matches!(done, Err(Failure::Client(Error::Pipe(_)))) && calls <= 2, "{calls}");
    }

    #[test]
    fn what_stays_is_told_at_once() {
        for stays in
            [Error::Cancelled { resumable: true }, Error::System { what: "start threads", source: std::io::ErrorKind::Other.into() }]
        {
            assert_eq!(longest_wait(&Failure::Client(stays), Duration::MAX), Duration::ZERO);
        }
        assert_eq!(longest_wait(&Failure::Len { found: 1, expected: 2 }, Duration::MAX), Duration::ZERO);
        let link = || Error::Link { link: "eth1".into(), why: "no answer".into() };
        assert_eq!(longest_wait(&Failure::Client(link()), Duration::MAX), Duration::ZERO);
        let again = Error::Reconnect { host: "nas".into(), source: Box::new(link()) };
        assert_eq!(longest_wait(&Failure::Client(again), Duration::MAX), Duration::MAX);
    }
}

//! Repetition of calls that the client does not repeat itself.

use std::{
    thread,
    time::{Duration, Instant},
};

use nicstripe::Error;

use crate::failure::Failure;

/// Repeats a call until it succeeds, fails permanently, or has failed for [`PATIENCE`]. `what` names
/// the call in the log.
///
/// The client itself waits for lost cables and for a daemon that is away. What it leaves are calls
/// that it must not execute twice, such as the removal of a file, and a daemon that is overloaded.
/// The time counts from the first failure. A call in flight when the time expires runs to its end.
pub(crate) fn repeated<T>(
    what: &str,
    call: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    repeated_for(PATIENCE, what, call)
}

fn repeated_for<T>(
    patience: Duration,
    what: &str,
    mut call: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
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
        log::warn!("cannot {what}, repeating it in {pause:?}: {failure}");
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the maximum time for which a call with this failure is repeated.
fn longest_wait(failure: &Failure, patience: Duration) -> Duration {
    match failure {
        // The client's patience has ended.
        Failure::Client(Error::Abandoned { .. }) => Duration::ZERO,
        Failure::Client(error) if error.is_retryable() => patience,
        _ => Duration::ZERO,
    }
}

/// Time for which a call may fail with a daemon that answers: enough for a machine to boot.
const PATIENCE: Duration = Duration::from_secs(600);

/// Initial and maximum pause between attempts. They are short enough for a restart of the daemon,
/// and long enough to keep the CPU idle.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> Failure {
        Failure::Client(Error::Pipe(Box::new(Error::Ended {
            host: "nas".into(),
            why: "it was restarted".into(),
        })))
    }

    #[test]
    fn what_passes_is_waited_for() {
        let mut calls = 0;
        let done = repeated_for(Duration::from_secs(60), "test", || {
            calls += 1;
            if calls < 3 { Err(ended()) } else { Ok(calls) }
        });
        assert!(matches!(done, Ok(3)));
    }

    #[test]
    fn patience_ends() {
        let mut calls = 0;
        let done = repeated_for(Duration::from_millis(250), "test", || {
            calls += 1;
            Err::<(), _>(ended())
        });
        // Attempts at 0 and 100 ms, later on a busy machine; the next would be at 300 ms.
        assert!(
            matches!(done, Err(Failure::Client(Error::Pipe(_)))) && calls <= 2,
            "{calls}"
        );
    }

    #[test]
    fn what_stays_is_told_at_once() {
        for stays in [
            Error::Cancelled { resumable: true },
            Error::Abandoned {
                host: "nas".into(),
                waited: Duration::from_secs(600),
            },
            Error::System {
                what: "start threads",
                source: std::io::ErrorKind::Other.into(),
            },
        ] {
            assert_eq!(
                longest_wait(&Failure::Client(stays), Duration::MAX),
                Duration::ZERO
            );
        }
        assert_eq!(
            longest_wait(
                &Failure::Len {
                    found: 1,
                    expected: 2
                },
                Duration::MAX
            ),
            Duration::ZERO
        );
        let link = || Error::Link {
            link: "eth1".into(),
            why: "no answer".into(),
        };
        assert_eq!(
            longest_wait(&Failure::Client(link()), Duration::MAX),
            Duration::ZERO
        );
        let again = Error::Reconnect {
            host: "nas".into(),
            source: Box::new(link()),
        };
        assert_eq!(
            longest_wait(&Failure::Client(again), Duration::MAX),
            Duration::MAX
        );
    }
}

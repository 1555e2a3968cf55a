//! Waits without the interpreter's lock, which a signal ends.

use std::time::{Duration, Instant};

use nicstripe::{CancellationToken, Error};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::error::raised;

/// Runs a call that may wait, while other Python threads run. If a signal handler raises an
/// exception, such as `KeyboardInterrupt`, the call ends and the exception is returned.
///
/// The call must use a client that ends [once interrupted](is_interrupted).
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    let called = py.detach(call);
    match PyErr::take(py) {
        Some(exception) => Err(exception),
        None => called.map_err(|error| raised(py, &error)),
    }
}

/// Runs the handlers of signals that have arrived, on the main thread. Returns true if one of them
/// raised an exception, which [`wait`] finds.
pub(crate) fn is_interrupted() -> bool {
    let ended = Python::try_attach(|py| {
        let checked = py.check_signals();
        checked.map_err(|exception| exception.restore(py)).is_err()
    });
    // The interpreter has ended.
    ended.unwrap_or(true)
}

/// Limits of a client's calls, which those that wait for events apply by themselves.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    pub(crate) most: Option<Duration>,
    pub(crate) interrupt: Option<CancellationToken>,
}

impl Limits {
    /// Returns the smaller of these limits and `most`.
    pub(crate) fn within(&self, most: Duration) -> Duration {
        self.most.map_or(most, |outer| outer.min(most))
    }

    /// Returns an error if a wait that began then is over.
    pub(crate) fn check(&self, begun: Instant) -> Result<(), Error> {
        if is_interrupted()
            || self
                .interrupt
                .as_ref()
                .is_some_and(CancellationToken::is_cancelled)
        {
            return Err(Error::Cancelled { resumable: true });
        }
        match self.most.filter(|most| begun.elapsed() >= *most) {
            Some(after) => Err(Error::TimedOut { after }),
            None => Ok(()),
        }
    }
}

/// Converts seconds to a duration.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map_err(|_| PyValueError::new_err(format!("{seconds}: expected seconds, 0 or more")))
}

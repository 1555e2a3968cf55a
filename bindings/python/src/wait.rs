//! Waits without the interpreter's lock, which a signal ends.

use std::time::Duration;

use nicstripe::Error;
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
    // Without an interpreter nobody waits for the result.
    ended.unwrap_or(true)
}

/// Returns a duration of so many seconds.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map_err(|_| PyValueError::new_err(format!("{seconds}: expected seconds, 0 or more")))
}

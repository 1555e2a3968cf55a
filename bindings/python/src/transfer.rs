//! Running copies.

use std::time::{Duration, Instant};

use nicstripe::{CancellationToken, Error, Event, blocking};
use pyo3::{prelude::*, types::PyAny};
use pythonize::pythonize;

use crate::{
    error::{incomplete, raised},
    own::Own,
    report::Report,
    wait::{Limits, wait},
};

/// Copy that runs in the background, as `Client.start_put` and `Client.start_get` return it.
///
/// Iterating yields its events until it ends: dicts with the fields that `nicstripe cp --json` prints.
/// `finish` returns its report. As a context manager it is cancelled at the end of the block, unless it
/// was finished. What the receiver has made durable remains, so that repeating the copy resumes.
#[pyclass(module = "nicstripe", frozen)]
pub(crate) struct Transfer {
    running: Own<blocking::Transfer>,
    /// Cancels it while another thread waits for its end.
    cancel: Own<CancellationToken>,
    limits: Limits,
}

impl Transfer {
    pub(crate) fn new(transfer: blocking::Transfer, limits: Limits) -> Self {
        Self {
            limits,
            cancel: Own::new(transfer.cancel_token()),
            running: Own::new(transfer),
        }
    }

    fn next_event(&self, py: Python<'_>, begun: Instant) -> PyResult<Option<Event>> {
        self.running.wait(py, |transfer| {
            loop {
                self.limits.check(begun)?;
                if let Ok(event) = transfer.next_event_within(INTERVAL) {
                    return Ok(event);
                }
            }
        })
    }

    /// Waits for the end, and calls `progress` with each snapshot on the way.
    pub(crate) fn ended(
        &self,
        py: Python<'_>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Report> {
        if let Some(progress) = progress {
            let begun = Instant::now();
            // Without a caller that waits for it, it ends.
            let next = || {
                let event = self.next_event(py, begun);
                event.inspect_err(|_| drop(self.running.take_to_close(py)))
            };
            while let Some(event) = next()? {
                if let Event::Progress(snapshot) = event {
                    progress.call1((pythonize(py, &snapshot)?,))?;
                }
            }
            // A short copy has ended before the first snapshot.
            progress.call1((self.progress(py)?,))?;
        }
        let Some(transfer) = self.running.take(py)? else {
            return Err(raised(py, &Error::Closed));
        };
        let report = wait(py, || transfer.finish())?;
        match report.tree.as_ref().map_or(0, |tree| tree.failed) {
            0 => Ok(Report(report)),
            failed => Err(incomplete(py, failed, Report(report))),
        }
    }
}

#[pymethods]
impl Transfer {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let event = self.next_event(py, Instant::now())?;
        event.map(|event| Ok(pythonize(py, &event)?)).transpose()
    }

    /// Returns a snapshot: bytes, size and rate of the whole and of each link, as a dict.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let progress = self.running.wait(py, |transfer| Ok(transfer.progress()))?;
        Ok(pythonize(py, &progress)?)
    }

    /// Interrupts the copy without waiting for its end. Any thread may call it.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.cancel.copy(py)?.cancel();
        Ok(())
    }

    /// Waits for the end, and calls `progress` about ten times a second with a snapshot, and at the end. The
    /// file or tree
    /// is then durable at the receiver.
    #[pyo3(signature = (progress=None))]
    fn finish(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<Report> {
        self.ended(py, progress)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        self.running.take_to_close(py).map(drop)
    }
}

/// Interval at which a wait for an event asks for signals and limits.
const INTERVAL: Duration = Duration::from_millis(50);

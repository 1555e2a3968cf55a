//! Values that belong to one process and, some of them, to one thread at a time.

use std::{
    mem,
    sync::{Mutex, TryLockError},
};

use nicstripe::Error;
use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::{error::raised, wait::wait};

/// Value behind a Python object until it is closed.
///
/// In a process that was forked after its creation, every use but closing raises `Error::Forked`, and it
/// is never dropped: the threads that would answer, or hold its locks, are in the parent.
pub(crate) struct Own<T> {
    process: u32,
    value: Mutex<Option<T>>,
}

impl<T> Own<T> {
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T: Send> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            process: std::process::id(),
            value: Mutex::new(Some(value)),
        }
    }

    /// Waits for a call on the value, which no other thread uses meanwhile.
    pub(crate) fn wait<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.within(py, |value| match value {
            Some(value) => call(value),
            None => Err(Error::Closed),
        })
    }

    /// Waits for a call like [`wait`](Self::wait), and drops the value if it fails: later calls find it
    /// closed.
    pub(crate) fn wait_or_drop<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.within(py, |value| {
            let called = value.as_mut().map_or(Err(Error::Closed), call);
            if called.is_err() {
                *value = None;
            }
            called
        })
    }

    /// Takes the value out, so that later uses find it closed; `None` if it is.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.within(py, |value| Ok(value.take()))
    }

    /// Takes the value out to end it; `None` in a forked process too, which has nothing to end.
    pub(crate) fn take_to_close(&self, py: Python<'_>) -> PyResult<Option<T>> {
        match self.is_of_this_process() {
            true => self.take(py),
            false => Ok(None),
        }
    }

    fn within<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Option<T>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.require_process(py)?;
        let mut is_used = false;
        let called = wait(py, || {
            let mut value = match self.value.try_lock() {
                Ok(value) => value,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    is_used = true;
                    return Err(Error::Closed);
                }
            };
            call(&mut value)
        });
        match is_used {
            true => Err(PyRuntimeError::new_err("it is in use by another thread")),
            false => called,
        }
    }

    fn require_process(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_of_this_process() {
            true => Ok(()),
            false => Err(raised(py, &Error::Forked)),
        }
    }
}

impl<T: Send + Clone> Own<T> {
    /// Returns a copy of a value whose copies are used by several threads.
    pub(crate) fn copy(&self, py: Python<'_>) -> PyResult<T> {
        self.require_process(py)?;
        // Held for a copy only.
        let value = self.value.lock();
        let value = value.unwrap_or_else(std::sync::PoisonError::into_inner);
        value.clone().ok_or_else(|| raised(py, &Error::Closed))
    }

    /// Takes the value out to end it, like [`take_to_close`](Self::take_to_close). Other threads may be
    /// copying it.
    pub(crate) fn take_shared(&self, py: Python<'_>) -> Option<T> {
        let take = || {
            let value = self.value.lock();
            value
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take()
        };
        self.is_of_this_process().then(|| py.detach(take)).flatten()
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            let value = self.value.get_mut();
            mem::forget(
                value
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .take(),
            );
        }
    }
}

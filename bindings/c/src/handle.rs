//! Checks that each handle makes before a call: the process, and the other threads.

use std::{
    process,
    sync::{Mutex, MutexGuard, TryLockError},
};

use library::Error;

use crate::error::Failure;

/// Process that made a handle. A child made by `fork` has none of its threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(process::id())
    }

    /// Returns an error in another process than the one that made the handle.
    pub(crate) fn check(self) -> Result<(), Failure> {
        match self.0 == process::id() {
            true => Ok(()),
            false => Err(Error::Forked.into()),
        }
    }

    /// Frees a handle. Leaks it in a child process: to close a socket there would remove it from the
    /// epoll instance, which parent and child share.
    pub(crate) fn free<T>(self, handle: T) {
        match self.check() {
            Ok(()) => drop(handle),
            Err(_) => std::mem::forget(handle),
        }
    }
}

/// Value that one thread uses at a time; a second one gets an error. `None` once it was consumed.
#[derive(Debug)]
pub(crate) struct Exclusive<T> {
    process: Process,
    value: Mutex<Option<T>>,
}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            process: Process::current(),
            value: Mutex::new(Some(value)),
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// Returns the value until the guard is dropped.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Option<T>>, Failure> {
        // First, because another thread may have held the lock when the process was forked.
        self.process.check()?;
        match self.value.try_lock() {
            Ok(value) => Ok(value),
            Err(TryLockError::WouldBlock) => Err(Failure::in_use()),
            // A call has panicked: the value may be inconsistent.
            Err(TryLockError::Poisoned(_)) => Err(Failure::ended()),
        }
    }

    /// Calls a function with the value.
    pub(crate) fn with<R>(
        &self,
        call: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        call(self.lock()?.as_mut().ok_or_else(Failure::ended)?)
    }

    /// Takes the value out; later calls fail.
    pub(crate) fn take(&self) -> Result<T, Failure> {
        self.lock()?.take().ok_or_else(Failure::ended)
    }
}

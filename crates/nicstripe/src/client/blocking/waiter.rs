//! How a thread waits for an async call: on the client's runtime, for a limited time, until it is
//! interrupted.

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::report::error::Error;

/// Waits of a client's calls.
#[derive(Clone)]
pub(crate) struct Waiter {
    handle: Handle,
    pub(super) most: Option<Duration>,
    pub(super) interrupt: Option<CancellationToken>,
    pub(super) check: Option<Check>,
    /// Runtime of a client that was connected here. The last field, so that it is dropped after the
    /// tasks that run on it.
    _runtime: Option<Arc<OwnRuntime>>,
}

impl Waiter {
    pub(crate) fn start() -> Result<Self, Error> {
        let runtime = nicstripe_link::check_threads(WORKERS + 1);
        let runtime = runtime.and_then(|()| {
            Builder::new_multi_thread()
                .worker_threads(WORKERS)
                .thread_name("nicstripe")
                .enable_all()
                .build()
        });
        let runtime = runtime.map_err(|source| Error::system("start threads", source))?;
        Ok(Self {
            handle: runtime.handle().clone(),
            most: None,
            interrupt: None,
            check: None,
            _runtime: Some(Arc::new(OwnRuntime(Some(runtime)))),
        })
    }

    /// Waits on the runtime of a program.
    pub(crate) fn on(handle: Handle) -> Self {
        Self {
            handle,
            most: None,
            interrupt: None,
            check: None,
            _runtime: None,
        }
    }

    /// Waits for a call.
    ///
    /// # Errors
    ///
    /// Those of the call; [`Error::Cancelled`] and [`Error::TimedOut`], which drop it.
    pub(crate) fn call<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // Nothing begins then: below, a call that is done at its first poll is not interrupted.
        if (self.interrupt.as_ref()).is_some_and(CancellationToken::is_cancelled) {
            return Err(Error::Cancelled { resumable: false });
        }
        let interrupted = async {
            match &self.interrupt {
                Some(interrupt) => interrupt.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let over = async {
            match &self.check {
                Some(is_over) => {
                    while !is_over() {
                        tokio::time::sleep(CHECK_INTERVAL).await;
                    }
                }
                None => std::future::pending().await,
            }
        };
        let late = async {
            match self.most {
                Some(most) => tokio::time::sleep(most).await,
                None => std::future::pending().await,
            }
            self.most.unwrap_or_default()
        };
        self.handle.block_on(async {
            tokio::select! {
                biased;
                done = call => done,
                () = interrupted => Err(Error::Cancelled { resumable: false }),
                () = over => Err(Error::Cancelled { resumable: false }),
                after = late => Err(Error::TimedOut { after }),
            }
        })
    }

    /// Waits for something that always ends.
    pub(crate) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.handle.block_on(what)
    }

    /// Runs a closure with the runtime entered, so that it can create timers.
    pub(crate) fn within<T>(&self, what: impl FnOnce() -> T) -> T {
        let _here = self.handle.enter();
        what()
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut waiter = f.debug_struct("Waiter");
        waiter.field("most", &self.most).finish_non_exhaustive()
    }
}

/// Runtime that may be dropped in async code too, where dropping a [`Runtime`] panics.
struct OwnRuntime(Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Does not wait: blocking is not allowed in every context where this is dropped.
            runtime.shutdown_background();
        }
    }
}

/// Function of the program that returns true if a wait is over.
pub(super) type Check = Arc<dyn Fn() -> bool + Send + Sync>;

/// Interval of a [`Check`]: a person who has typed ^C notices no delay, and a check that takes 10 µs
/// costs a processor nothing. Picked by eye.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Worker threads of a client's runtime: one serves the connections while the other is busy with
/// the session's event loop.
const WORKERS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_an_interrupted_client_does_not_begin() {
        let mut waiter = Waiter::start().unwrap();
        let interrupt = CancellationToken::new();
        waiter.interrupt = Some(interrupt.clone());
        let call = || waiter.call(std::future::ready(Ok(())));
        assert!(call().is_ok());
        interrupt.cancel();
        assert!(matches!(call(), Err(Error::Cancelled { .. })));
    }
}

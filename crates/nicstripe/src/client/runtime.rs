//! Runtime of a client, on which all its work runs, whatever thread asks for it.

use tokio::runtime::Handle;

use crate::{report::error::Error, wire::tasks::AbortOnDrop};

/// The tokio runtime of [`ClientBuilder::connect`](super::ClientBuilder::connect), and the process
/// that has its threads.
#[derive(Debug, Clone)]
pub(super) struct ClientRuntime {
    pub(super) handle: Handle,
    process: u32,
}

impl ClientRuntime {
    pub(super) fn current() -> Result<Self, Error> {
        Ok(Self {
            handle: Handle::try_current().map_err(|_| Error::NoRuntime)?,
            process: std::process::id(),
        })
    }

    /// Runs work to its end. Dropping the call aborts it.
    ///
    /// # Errors
    ///
    /// The runtime has ended, or has no threads in this process.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.require_threads()?;
        let task = AbortOnDrop::new(self.handle.spawn(work));
        match task.await {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::RuntimeEnded),
            },
        }
    }

    /// Returns an error in a child process: `fork` copies no other thread, and a call would wait
    /// for them forever.
    pub(super) fn require_threads(&self) -> Result<(), Error> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }
}

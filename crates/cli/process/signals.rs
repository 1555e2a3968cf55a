//! Signal handling of commands: SIGINT, SIGTERM, SIGHUP and SIGUSR1.

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::failure::{Failure, exit::Stop};

/// Action that a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// End the process: cleanly at the first signal, immediately at the second.
    Stop(Stop),
    /// Print the progress (SIGUSR1).
    Status,
    /// Reload the configuration (SIGHUP, only if [`Signals::reload_on_hangup`] was called).
    Reload,
}

#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
    status: Stream,
    reloads: bool,
}

impl Signals {
    /// Installs the signal handlers, so that these signals no longer end the process by default.
    /// Must be called inside a runtime.
    pub(crate) fn take() -> Result<Self, Failure> {
        let take = |kind| signal(kind).map_err(Failure::Signals);
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
            status: take(SignalKind::user_defined1())?,
            reloads: false,
        })
    }

    /// Makes SIGHUP reload the configuration instead of ending the process. Only for daemons, since
    /// a closed terminal sends SIGHUP too.
    pub(crate) fn reload_on_hangup(&mut self) {
        self.reloads = true;
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.interrupt.recv() => Signalled::Stop(Stop::Interrupt),
            _ = self.terminate.recv() => Signalled::Stop(Stop::Terminate),
            _ = self.hangup.recv() => if self.reloads { Signalled::Reload } else { Signalled::Stop(Stop::Terminate) },
            _ = self.status.recv() => Signalled::Status,
        }
    }

    /// Returns the result of `work`, or drops it and returns [`Failure::Interrupted`] after a
    /// signal that ends the process.
    pub(crate) async fn unless_stopped<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            result = work => result,
            stop = self.stop() => Err(Failure::Interrupted { stop, resumable: false }),
        }
    }

    /// Waits for `work`. Exits immediately and without cleanup after a signal that ends the
    /// process.
    pub(crate) async fn finish(&mut self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            stop = self.stop() => stop.at_once(),
        }
    }

    /// Waits for a signal that ends the process, and ignores the others. Cancel safe.
    pub(crate) async fn stop(&mut self) -> Stop {
        loop {
            if let Signalled::Stop(stop) = self.next().await {
                return stop;
            }
        }
    }
}

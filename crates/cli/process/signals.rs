//! Signal handling of commands: SIGINT, SIGTERM, SIGHUP and SIGUSR1.

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::failure::{Failure, exit::Exit};

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

/// Signal that asked the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT, which Ctrl-C sends.
    Interrupt,
    /// SIGTERM from a service manager, or SIGHUP from a closed terminal.
    Terminate,
}

impl Stop {
    /// Exits immediately and without cleanup, as the second signal requests.
    pub(crate) fn at_once(self) -> ! {
        std::process::exit(Exit::of_stop(self).code().into())
    }
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

    /// Waits for a signal that ends the process, and ignores the others. Cancel safe.
    pub(crate) async fn stop(&mut self) -> Stop {
        loop {
            if let Signalled::Stop(stop) = self.next().await {
                return stop;
            }
        }
    }
}

//! Signal handling of commands.

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::{exit::Exit, failure::Failure};

/// Request by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// End the process: orderly at the first signal, immediately at the second.
    Stop(Stop),
    /// Print the progress (SIGUSR1).
    Status,
    /// Reload the configuration (SIGHUP), if enabled.
    Reload,
}

/// Signal that ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT, as sent by Ctrl-C.
    Interrupt,
    /// SIGTERM from a service manager, or SIGHUP from a closed terminal.
    Terminate,
}

impl Stop {
    /// Exits immediately, without cleanup, as the second signal requests.
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
    /// Installs the handlers; no handled signal ends the process by default any more. Must be
    /// called inside a runtime.
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

    /// Makes SIGHUP reload the configuration. Only for daemons: a closed terminal sends SIGHUP too.
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

    /// Waits for a signal that ends the process. Cancel safe.
    pub(crate) async fn stop(&mut self) -> Stop {
        loop {
            if let Signalled::Stop(stop) = self.next().await {
                return stop;
            }
        }
    }
}

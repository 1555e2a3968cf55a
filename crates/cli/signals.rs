//! Signals that a command obeys.

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::{exit::Exit, failure::Failure};

/// What the process is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// End, orderly the first time and at once the second.
    Stop(Stop),
    /// Say how far it is (SIGUSR1).
    Status,
    /// Read the configuration again (SIGHUP), where that was asked for.
    Reload,
}

/// Why the process is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
    /// SIGTERM, as a service manager sends it, and SIGHUP, as a closed terminal does.
    Terminate,
}

impl Stop {
    /// Ends the process without another word, as the second signal asks for.
    pub(crate) fn at_once(self) -> ! {
        std::process::exit(Exit::of_stop(self).code().into())
    }
}

/// The signals as they come.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
    status: Stream,
    reloads: bool,
}

impl Signals {
    /// Takes the signals over; from here on none of them ends the process by itself. To be called inside a runtime.
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

    /// Takes SIGHUP for a wish to read the configuration again, as daemons do; a terminal that is closed sends it too, so this is for a
    /// process that has none.
    pub(crate) fn reload_on_hangup(&mut self) {
        self.reloads = true;
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::Stop(Stop::Interrupt),
            _ = self.terminate.recv() => Told::Stop(Stop::Terminate),
            _ = self.hangup.recv() => if self.reloads { Told::Reload } else { Told::Stop(Stop::Terminate) },
            _ = self.status.recv() => Told::Status,
        }
    }

    /// Waits until the process is to end. Cancel safe.
    pub(crate) async fn stop(&mut self) -> Stop {
        loop {
            if let Told::Stop(stop) = self.next().await {
                return stop;
            }
        }
    }
}

//! Signal handling of commands: SIGINT, SIGTERM, SIGHUP and SIGUSR1.

use std::future::pending;

use nicstripe_link::is_signal_ignored;
use rustix::process::{Signal as Suspend, getpid, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    failure::{
        Failure, Fault,
        exit::{Exit, Stop},
    },
    output::terminal::Terminal,
};

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

/// Signals that this process handles. One that was ignored at the start of the process stays
/// ignored, as `nohup` and a shell's `&` request.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
    status: Stream,
    suspend: Stream,
    /// Terminal whose progress bars are removed before the process is suspended.
    terminal: Option<Terminal>,
    reloads: bool,
}

impl Signals {
    /// Installs the signal handlers, so that these signals no longer end the process by default.
    /// Must be called inside a runtime.
    pub(crate) fn take() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: Stream::take(SignalKind::interrupt())?,
            terminate: Stream::take(SignalKind::terminate())?,
            hangup: Stream::take(SignalKind::hangup())?,
            status: Stream::take(SignalKind::user_defined1())?,
            suspend: Stream(None),
            terminal: None,
            reloads: false,
        })
    }

    /// Makes SIGHUP reload the configuration instead of ending the process, even if it was ignored
    /// at the start. Only for daemons, since a closed terminal sends SIGHUP too.
    pub(crate) fn reload_on_hangup(&mut self) -> Result<(), Failure> {
        self.hangup = Stream::install(SignalKind::hangup())?;
        self.reloads = true;
        Ok(())
    }

    /// Like [`take`](Self::take), and removes the progress bars from the terminal before SIGTSTP (`^Z`)
    /// suspends the process. What the shell prints meanwhile would be overwritten when they are drawn
    /// again.
    pub(crate) fn with_bars(terminal: &Terminal) -> Result<Self, Failure> {
        let mut signals = Self::take()?;
        if terminal.can_redraw() {
            signals.suspend = Stream::take(SignalKind::from_raw(Suspend::TSTP.as_raw()))?;
            signals.terminal = Some(terminal.clone());
        }
        Ok(signals)
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signalled {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return Signalled::Stop(Stop::Interrupt),
                _ = self.terminate.recv() => return Signalled::Stop(Stop::Terminate),
                _ = self.hangup.recv() => return if self.reloads { Signalled::Reload } else { Signalled::Stop(Stop::Terminate) },
                _ = self.status.recv() => return Signalled::Status,
                _ = self.suspend.recv() => self.suspend_process(),
            }
        }
    }

    /// Suspends the process until SIGCONT, as SIGTSTP does without a handler.
    fn suspend_process(&self) {
        self.terminal.iter().for_each(Terminal::clear_bars);
        let _ = kill_process(getpid(), Suspend::STOP);
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

    /// Runs `work` until it ends or a signal that ends the process arrives, and returns the signal if one
    /// did.
    pub(crate) async fn until_stopped(&mut self, work: impl Future<Output = ()>) -> Option<Stop> {
        tokio::select! {
            () = work => None,
            stop = self.stop() => Some(stop),
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

/// Arrivals of one signal; `None` if the signal stays ignored.
#[derive(Debug)]
struct Stream(Option<Signal>);

impl Stream {
    /// Handles a signal, unless this process was started with it ignored.
    fn take(kind: SignalKind) -> Result<Self, Failure> {
        match is_signal_ignored(kind.as_raw_value()) {
            true => Ok(Self(None)),
            false => Self::install(kind),
        }
    }

    fn install(kind: SignalKind) -> Result<Self, Failure> {
        let failed =
            |error| Fault::new(Exit::Failed, "cannot install signal handlers").because(error);
        Ok(Self(Some(signal(kind).map_err(failed)?)))
    }

    /// Waits for the next arrival, forever if the signal stays ignored. Cancel safe.
    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => _ = signal.recv().await,
            None => pending().await,
        }
    }
}

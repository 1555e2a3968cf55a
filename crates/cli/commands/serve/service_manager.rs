//! Notifications to systemd or another service manager (sd_notify(3)).

use std::{env, time::Duration};

use nicstripe::Metrics;
use sd_notify::NotifyState;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::text::counted;

/// Notification socket of the service manager, if one started this process.
#[derive(Debug)]
pub(super) struct ServiceManager {
    beat: Option<tokio::time::Interval>,
    /// True if the service manager expects watchdog pings.
    watches: bool,
    status: String,
}

/// Maximum interval between status lines to the service manager.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

impl ServiceManager {
    /// Detects the service manager from the environment. Must be called inside a runtime.
    pub(super) fn find() -> Self {
        let is_there = env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty());
        // Half the watchdog timeout, as sd_watchdog_enabled(3) advises.
        let watchdog = sd_notify::watchdog_enabled().map(|time| time / 2);
        let beat = is_there.then(|| {
            let every = watchdog
                .map_or(STATUS_INTERVAL, |watchdog| watchdog.min(STATUS_INTERVAL))
                .max(Duration::from_millis(1));
            let mut beat = interval_at(Instant::now() + every, every);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            beat
        });
        Self {
            beat,
            watches: watchdog.is_some(),
            status: String::new(),
        }
    }

    /// Reports that the daemon is ready, with its status line.
    pub(super) fn ready(&mut self, metrics: &Metrics) {
        self.status = status_line(metrics);
        let status = self.status.clone();
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// Reports that the daemon reloads its configuration. [`ServiceManager::ready`] reports the end
    /// of the reload.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(error) => {
                tracing::debug!(%error, "cannot notify the service manager of the reload");
            }
        }
    }

    /// Reports that the daemon is shutting down, and requests a timeout of `within` plus
    /// [`STOP_MARGIN`].
    pub(super) fn stopping(&self, within: Duration) {
        let micros = (within + STOP_MARGIN)
            .as_micros()
            .try_into()
            .unwrap_or(u32::MAX);
        self.tell(&[
            NotifyState::Stopping,
            NotifyState::ExtendTimeoutUsec(micros),
            NotifyState::Status("closing all sessions"),
        ]);
    }

    /// Waits until the next watchdog ping or status line is due; forever without a service manager.
    /// Cancel safe.
    pub(super) async fn pause(&mut self) {
        match &mut self.beat {
            Some(beat) => drop(beat.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Sends a watchdog ping and the status line.
    ///
    /// The ping requires that a task runs on a worker thread of the runtime, since the caller may
    /// run on another thread.
    pub(super) async fn report(&mut self, metrics: &Metrics) {
        if tokio::spawn(async {}).await.is_ok() && self.watches {
            self.tell(&[NotifyState::Watchdog]);
        }
        let status = status_line(metrics);
        if status != self.status {
            self.tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.beat.is_some()
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::debug!(%error, "cannot notify the service manager");
        }
    }
}

/// Returns the sessions and transfers of the daemon as one line.
pub(super) fn status_line(metrics: &Metrics) -> String {
    let done: u64 = metrics
        .transfers_ended
        .iter()
        .filter(|((_, result), _)| *result == "done")
        .map(|(_, count)| count)
        .sum();
    let ended: u64 = metrics.transfers_ended.values().sum();
    format!(
        "{}, {} running, {done} done, {} failed",
        counted(metrics.sessions, "session"),
        counted(metrics.transfers, "transfer"),
        ended - done
    )
}

/// Time that the service manager grants for the shutdown in addition to that of the sessions.
const STOP_MARGIN: Duration = Duration::from_secs(5);

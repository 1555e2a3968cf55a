//! Event loop of a running transfer, which also handles signals and updates the output.

use nicstripe::{Error, Event, Report, Transfer};
use tokio::time::{MissedTickBehavior, interval};

use super::show::{Show, TICK};
use crate::{
    failure::{Failure, exit::Stop},
    process::signals::{Signalled, Signals},
};

/// Something that runs, has events, and can be cancelled.
pub(super) trait Watched {
    /// Returns the next event; `None` after the end. Cancel safe.
    async fn next_event(&mut self) -> Option<Event>;

    fn cancel(&mut self);
}

impl Watched for Transfer {
    async fn next_event(&mut self) -> Option<Event> {
        Self::next_event(self).await
    }

    fn cancel(&mut self) {
        Self::cancel(self);
    }
}

/// Shows events until the end. The first signal cancels, the second ends the process. Returns the first.
pub(super) async fn until_end(
    watched: &mut impl Watched,
    show: &mut Show,
    signals: &mut Signals,
) -> Option<Stop> {
    let mut stopped = None;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            event = watched.next_event() => match event {
                Some(event) => show.on_event(&event),
                None => return stopped,
            },
            _ = ticks.tick() => show.draw(),
            signal = signals.next() => match (signal, stopped) {
                (Signalled::Status | Signalled::Reload, _) => show.print_status(),
                (Signalled::Stop(stop), Some(_)) => stop.at_once(),
                (Signalled::Stop(stop), None) => {
                    stopped = Some(stop);
                    watched.cancel();
                }
            },
        }
    }
}

/// Shows the events of a transfer until it ends.
pub(super) async fn watch(
    mut transfer: Transfer,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Report, Failure> {
    let stopped = until_end(&mut transfer, show, signals).await;
    let finished = tokio::select! {
        finished = transfer.finish() => finished,
        stop = second_stop(signals, stopped) => stop.at_once(),
    };
    finished.map_err(|error| match (error, stopped) {
        (Error::Cancelled { resumable }, Some(stop)) => Failure::Interrupted { stop, resumable },
        (error, _) => error.into(),
    })
}

/// Waits for the second signal, which ends the process. `first` is the signal that has cancelled
/// the transfer, if there was one.
async fn second_stop(signals: &mut Signals, first: Option<Stop>) -> Stop {
    let stop = signals.stop().await;
    if first.is_some() {
        stop
    } else {
        signals.stop().await
    }
}

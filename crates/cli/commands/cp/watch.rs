//! A running transfer: its events, the progress and the signals.

use nicstripe::{Error, Report, Transfer};
use tokio::time::{MissedTickBehavior, interval};

use super::show::{Show, TICK};
use crate::{
    failure::{Failure, exit::Stop},
    process::signals::{Signalled, Signals},
};

/// Shows the events of a transfer until it ends. The first signal cancels the transfer, the second
/// ends the process.
pub(super) async fn watch(
    mut transfer: Transfer,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Report, Failure> {
    let mut stopped = None;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            event = transfer.next_event() => match event {
                Some(event) => show.on_event(&event),
                None => break,
            },
            _ = ticks.tick() => show.on_tick(),
            told = signals.next() => match (told, stopped) {
                (Signalled::Status | Signalled::Reload, _) => show.print_status(),
                (Signalled::Stop(stop), Some(_)) => stop.at_once(),
                (Signalled::Stop(stop), None) => {
                    stopped = Some(stop);
                    transfer.cancel();
                }
            },
        }
    }
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

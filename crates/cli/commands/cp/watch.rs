//! Event loop of a running transfer, which also handles signals and updates the output.

use std::{pin::Pin, sync::Arc};

use nicstripe::{CancellationToken, Error, Event, Report, Transfer};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

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

/// Running work, with its pending events.
pub(super) struct Running<'a, T> {
    work: Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>,
    events: mpsc::Receiver<Event>,
    outcome: Option<Result<T, Failure>>,
    stop: CancellationToken,
}

impl<T> Watched for Running<'_, T> {
    async fn next_event(&mut self) -> Option<Event> {
        while self.outcome.is_none() {
            tokio::select! {
                Some(event) = self.events.recv() => return Some(event),
                outcome = &mut self.work => self.outcome = Some(outcome),
            }
        }
        self.events.try_recv().ok()
    }

    fn cancel(&mut self) {
        self.stop.cancel();
    }
}

impl<'a, T> Running<'a, T> {
    /// Starts what `begin` returns. It gets a token that ends it, and hears of events through the
    /// function.
    pub(super) fn start<F>(begin: impl FnOnce(CancellationToken, Tell) -> F) -> Self
    where
        F: Future<Output = Result<T, Failure>> + 'a,
    {
        let stop = CancellationToken::new();
        let (tell, events) = mpsc::channel(1024);
        // Drops events if the queue is full.
        let tell: Tell = Arc::new(move |event| drop(tell.try_send(event)));
        Self {
            work: Box::pin(begin(stop.clone(), tell)),
            events,
            outcome: None,
            stop,
        }
    }

    /// Shows the events until the end.
    pub(super) async fn finish(
        mut self,
        show: &mut Show,
        signals: &mut Signals,
    ) -> Result<T, Failure> {
        let stopped = until_end(&mut self, show, signals).await;
        let ended = || Err(Error::Cancelled { resumable: false }.into());
        let outcome = self.outcome.take().unwrap_or_else(ended);
        outcome.map_err(|failure| match (&failure, stopped) {
            (Failure::Library(error), Some(stop)) => match **error {
                Error::Cancelled { resumable } => Failure::Interrupted { stop, resumable },
                _ => failure,
            },
            _ => failure,
        })
    }
}

/// Hears what happens.
pub(super) type Tell = Arc<dyn Fn(Event) + Send + Sync>;

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

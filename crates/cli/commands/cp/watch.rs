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

/// Running work, with its pending events.
pub(super) struct Running<'a, T> {
    work: Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>,
    events: mpsc::Receiver<Event>,
    outcome: Option<Result<T, Failure>>,
    stop: CancellationToken,
}

impl<'a, T> Running<'a, T> {
    /// Starts what `begin` returns. It gets a token that ends it, and hears of events through the
    /// function.
    pub(super) fn start<F>(begin: impl FnOnce(CancellationToken, Tell) -> F) -> Self
    where
        F: Future<Output = Result<T, Failure>> + 'a,
    {
        let stop = CancellationToken::new();
        Self::queued(stop.clone(), |events| {
            // Drops events if the queue is full.
            begin(stop, Arc::new(move |event| drop(events.try_send(event))))
        })
    }

    /// Starts work that `stop` ends, and that waits while the queue of its events is full.
    fn queued<F>(stop: CancellationToken, begin: impl FnOnce(mpsc::Sender<Event>) -> F) -> Self
    where
        F: Future<Output = Result<T, Failure>> + 'a,
    {
        let (sender, events) = mpsc::channel(1024);
        Self {
            work: Box::pin(begin(sender)),
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
        let stopped = self.until_end(show, signals).await;
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

    /// Shows events until the end. The first signal cancels, the second ends the process. Returns the
    /// first.
    async fn until_end(&mut self, show: &mut Show, signals: &mut Signals) -> Option<Stop> {
        let mut stopped = None;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                event = self.next_event() => match event {
                    Some(event) => show.on_event(&event),
                    None => return stopped,
                },
                _ = ticks.tick() => show.draw(),
                signal = signals.next() => match (signal, stopped) {
                    (Signalled::Status | Signalled::Reload, _) => show.print_status(),
                    (Signalled::Stop(stop), Some(_)) => stop.at_once(),
                    (Signalled::Stop(stop), None) => {
                        stopped = Some(stop);
                        self.stop.cancel();
                    }
                },
            }
        }
    }

    /// Returns the next event; `None` after the end. Cancel safe.
    async fn next_event(&mut self) -> Option<Event> {
        while self.outcome.is_none() {
            tokio::select! {
                Some(event) = self.events.recv() => return Some(event),
                outcome = &mut self.work => self.outcome = Some(outcome),
            }
        }
        self.events.try_recv().ok()
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
    let running = Running::queued(transfer.cancel_token(), |events| async move {
        while let Some(event) = transfer.next_event().await {
            // It is received until this work has ended.
            let _ = events.send(event).await;
        }
        Ok(transfer.finish().await?)
    });
    running.finish(show, signals).await
}

//! Progress of the first contact of a session, reported to its owner while the host does not answer.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};

use crate::report::event::{Event, UnreachableNotice};

/// Interfaces that the first contact has tried so far, and whether the host has answered.
#[derive(Debug, Default)]
pub(crate) struct Trying {
    interfaces: Mutex<BTreeSet<String>>,
    has_answered: AtomicBool,
}

impl Trying {
    /// Adds interfaces on which the host is now searched or connected.
    pub(super) fn on<'a>(&self, interfaces: impl IntoIterator<Item = &'a String>) {
        self.interfaces
            .lock()
            .extend(interfaces.into_iter().cloned());
    }

    /// Records that the host has answered: it is reachable, and [`Event::Queued`] reports the wait.
    pub(super) fn on_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Sends [`Event::Unreachable`] as long as the host has not answered. Never returns.
    pub(super) async fn tell(&self, host: &str, events: Option<mpsc::Sender<Event>>) -> Infallible {
        let begun = Instant::now();
        let mut notice = UnreachableNotice::new();
        loop {
            tokio::time::sleep(PAUSE).await;
            let since = begun.elapsed();
            if self.has_answered.load(Ordering::Relaxed) || !notice.is_due(since) {
                continue;
            }
            if let Some(events) = &events {
                let interfaces = self.interfaces.lock().iter().cloned().collect();
                let _ = events.try_send(Event::Unreachable {
                    host: host.to_owned(),
                    interfaces,
                    since,
                    patience: None,
                });
            }
        }
    }
}

/// Interval at which the wait is checked.
const PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(trying: &Trying, time: Duration) -> Vec<(u64, Vec<String>)> {
        let (sender, mut events) = mpsc::channel(8);
        let _ = tokio::time::timeout(time, trying.tell("nas", Some(sender))).await;
        let mut told = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let Event::Unreachable {
                interfaces,
                since,
                patience: None,
                ..
            } = event
            {
                told.push((since.as_secs(), interfaces));
            }
        }
        told
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_does_not_answer_is_told_after_2_seconds_and_each_minute() {
        let trying = Trying::default();
        assert_eq!(told(&trying, Duration::from_secs(1)).await, []);
        let names = ["eth2", "eth1", "eth2"].map(str::to_owned);
        trying.on(&names);
        let cables = vec!["eth1".to_owned(), "eth2".to_owned()];
        assert_eq!(
            told(&trying, Duration::from_secs(63)).await,
            [(2, cables.clone()), (62, cables)]
        );
        trying.on_answer();
        assert_eq!(told(&trying, Duration::from_secs(63)).await, []);
    }
}

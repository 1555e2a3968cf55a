//! Turns of a client's transfers: at most [`MOST_TRANSFERS`] run at once, in order of their start.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc},
    time::{Instant, sleep},
};

use crate::{
    file::options::MOST_TRANSFERS,
    report::{error::Error, event::Event},
    session::{NOTICE, SharedProgress},
};

#[derive(Debug)]
pub(super) struct Turns {
    free: Semaphore,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    /// Number of turns given so far.
    given: u64,
    transfers: BTreeMap<u64, SharedProgress>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            free: Semaphore::new(MOST_TRANSFERS),
            running: Mutex::default(),
        }
    }
}

impl Turns {
    /// Waits for a turn. Tells `events` once if none of the running transfers moves for
    /// [`NOTICE`].
    ///
    /// # Errors
    ///
    /// None of the running transfers moves for `patience`.
    pub(super) async fn next(
        &self,
        progress: &SharedProgress,
        patience: Duration,
        events: Option<&mpsc::Sender<Event>>,
    ) -> Result<Turn<'_>, Error> {
        let permit = tokio::select! {
            biased;
            // The semaphore is never closed.
            Ok(permit) = self.free.acquire() => permit,
            error = self.standstill(patience, events) => return Err(error),
        };
        let mut running = self.running.lock();
        let number = running.given;
        running.given += 1;
        running.transfers.insert(number, progress.clone());
        Ok(Turn {
            turns: self,
            number,
            _permit: permit,
        })
    }

    /// Waits until none of the running transfers has moved for `patience`.
    async fn standstill(&self, patience: Duration, events: Option<&mpsc::Sender<Event>>) -> Error {
        let (mut mark, mut since, mut is_told) = (self.mark(), Instant::now(), false);
        loop {
            let until = if is_told {
                patience
            } else {
                patience.min(NOTICE)
            };
            sleep(until.saturating_sub(since.elapsed()).max(LOOK)).await;
            let now = self.mark();
            if now != mark {
                (mark, since, is_told) = (now, Instant::now(), false);
                continue;
            }
            let (running, waited) = (MOST_TRANSFERS, since.elapsed());
            if waited >= patience {
                return Error::Crowded { running, waited };
            }
            if let (false, Some(events)) = (is_told, events) {
                let since = waited;
                let _ = events.try_send(Event::Crowded { running, since });
            }
            is_told = true;
        }
    }

    /// Returns what changes when a running transfer moves.
    fn mark(&self) -> (u64, u64) {
        let running = self.running.lock();
        let moved = running.transfers.values().map(|one| one.get().moved());
        (running.given, moved.fold(0, u64::wrapping_add))
    }
}

/// Turn of one transfer, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    _permit: SemaphorePermit<'a>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.running.lock().transfers.remove(&self.number);
    }
}

/// Minimum interval at which the running transfers are looked at.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_standstill_is_told_after_10_seconds_and_ends_the_wait_after_the_patience() {
        let (turns, progress) = (Turns::default(), SharedProgress::default());
        let patience = Duration::from_secs(60);
        let (events, mut told) = mpsc::channel(8);
        let mut taken = Vec::new();
        for _ in 0..MOST_TRANSFERS {
            let turn = turns.next(&progress, patience, None).await;
            taken.push(turn.unwrap());
        }
        let begun = Instant::now();
        let moving = async {
            sleep(Duration::from_secs(30)).await;
            progress.close(1000);
        };
        let (waited, ()) = tokio::join!(turns.next(&progress, patience, Some(&events)), moving);
        assert!(matches!(waited, Err(Error::Crowded { .. })), "{waited:?}");
        // The patience starts over with the bytes that moved, which the next look finds.
        let elapsed = begun.elapsed().as_secs();
        assert!((90..160).contains(&elapsed), "{elapsed}");
        drop(events);
        for _ in 0..2 {
            assert!(matches!(told.recv().await, Some(Event::Crowded { .. })));
        }
        assert!(told.recv().await.is_none());
        taken.pop();
        turns.next(&progress, patience, None).await.unwrap();
    }
}

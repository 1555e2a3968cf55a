//! Record of the peers that connect, written in the background.

use std::{collections::HashMap, mem, sync::Arc, time::Instant};

use parking_lot::Mutex;

use crate::{
    text::chain,
    trust::{PAUSE, PublicKey, Sighting, Sightings},
};

/// Writes sightings of peers to the file, if any. One thread at most waits for the file.
#[derive(Debug, Default)]
pub(super) struct Seen {
    file: Option<Sightings>,
    state: Mutex<Sighted>,
}

#[derive(Debug, Default)]
struct Sighted {
    /// Time of the last sighting of each peer that was passed to the writer.
    passed: HashMap<PublicKey, Instant>,
    /// Sightings that the writer has not taken yet, at most one a peer.
    waiting: Vec<Sighting>,
    is_writing: bool,
}

impl Seen {
    pub(super) fn new(file: Option<Sightings>) -> Self {
        Self {
            file,
            state: Mutex::default(),
        }
    }

    /// Records a sighting, unless that of the same peer is recent. Never waits and never fails.
    pub(super) fn note(self: &Arc<Self>, sighting: Sighting) {
        let Some(file) = self.file.clone() else {
            return;
        };
        if self.state.lock().pass(sighting, Instant::now()) {
            let seen = self.clone();
            tokio::task::spawn_blocking(move || {
                loop {
                    // Unlocked before the file is written, which may take long.
                    let batch = seen.state.lock().take();
                    let Some(batch) = batch else { break };
                    if let Err(error) = file.note(&batch) {
                        tracing::debug!(error = %chain(&error), "cannot store when peers were seen");
                    }
                }
            });
        }
    }
}

impl Sighted {
    /// Passes a sighting to the writer. Returns true if the caller must start the writer.
    fn pass(&mut self, sighting: Sighting, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) < PAUSE;
        if self.passed.get(&sighting.key).is_some_and(is_recent) {
            return false;
        }
        self.passed.retain(|_, at| is_recent(at));
        self.passed.insert(sighting.key, now);
        self.waiting.retain(|waiting| waiting.key != sighting.key);
        self.waiting.push(sighting);
        !mem::replace(&mut self.is_writing, true)
    }

    /// Returns the waiting sightings; `None` if there are none, and the writer ends.
    fn take(&mut self) -> Option<Vec<Sighting>> {
        self.is_writing = !self.waiting.is_empty();
        self.is_writing.then(|| mem::take(&mut self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trust::{lock_folder_of, private_folder};

    #[tokio::test]
    async fn no_session_waits_for_a_file_that_takes_long_to_write() {
        let folder = private_folder();
        let path = folder.path().join("sightings");
        let seen = Arc::new(Seen::new(Some(Sightings::at(&path))));
        let note = |key: u8| {
            let key = PublicKey::from_bytes([key; 32]).unwrap();
            seen.note(Sighting::now(key, "10.0.0.1".parse().unwrap(), "eth1"));
        };
        let lock = lock_folder_of(&path).unwrap();
        note(1);
        while !seen.state.lock().waiting.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The writer waits for the lock of the folder.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let locked = seen.state.try_lock_for(Duration::from_secs(5));
        assert!(locked.is_some(), "the writer holds the state");
        drop(locked);
        note(2);
        drop(lock);
        while seen.state.lock().is_writing {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(Sightings::at(&path).read().unwrap().len(), 2);
    }

    #[test]
    fn one_sighting_a_peer_and_minute_is_passed_to_one_writer() {
        let mut state = Sighted::default();
        let begun = Instant::now();
        let pass = |state: &mut Sighted, key: u8, after: u64| {
            let key = PublicKey::from_bytes([key; 32]).unwrap();
            let sighting = Sighting::now(key, "10.0.0.1".parse().unwrap(), "eth1");
            state.pass(sighting, begun + Duration::from_secs(after))
        };
        assert!(pass(&mut state, 1, 0), "the writer starts");
        assert!(!pass(&mut state, 2, 1), "it runs");
        assert!(!pass(&mut state, 1, 59) && state.waiting.len() == 2);
        // The file system does not answer.
        assert!(!pass(&mut state, 1, 60) && state.waiting.len() == 2);
        assert_eq!(state.take().map(|batch| batch.len()), Some(2));
        assert_eq!(state.take(), None);
        assert!(!pass(&mut state, 2, 60), "seen 59 s ago");
        assert!(pass(&mut state, 2, 61));
    }
}

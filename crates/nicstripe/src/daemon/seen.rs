//! Record of the peers that connect, written in the background.

use std::{collections::HashMap, mem, sync::Arc, time::Instant};

use parking_lot::Mutex;

use crate::{
    text::chain,
    trust::{PAUSE, PublicKey, Sighting, Sightings},
};

/// Writes sightings of peers to the file, if there is one. One thread at most waits for the file.
#[derive(Debug, Default)]
pub(super) struct Seen {
    file: Option<Sightings>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
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
                while let Some(batch) = seen.state.lock().take() {
                    if let Err(error) = file.note(&batch) {
                        tracing::debug!(error = %chain(&error), "cannot store when peers were seen");
                    }
                }
            });
        }
    }
}

impl State {
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

    #[test]
    fn one_sighting_a_peer_and_minute_is_passed_to_one_writer() {
        let mut state = State::default();
        let begun = Instant::now();
        let pass = |state: &mut State, key: u8, after: u64| {
            let key = PublicKey::from_bytes([key; 32]);
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

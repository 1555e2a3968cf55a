//! Work on large files that a peer requests part by part.

use std::time::{Duration, Instant};

/// Pieces of work of a session, each with the time of its latest part, between two requests of the
/// peer.
#[derive(Debug)]
pub(super) struct Unfinished<T>(Vec<(Instant, T)>);

impl<T> Default for Unfinished<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Unfinished<T> {
    /// Takes the piece whose next part the peer asks for. Ends those that it has not asked for within
    /// [`AGE`].
    pub(super) fn take(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.0.retain(|(asked_at, _)| asked_at.elapsed() < AGE);
        let index = self.0.iter().position(|(_, work)| is_it(work))?;
        Some(self.0.swap_remove(index).1)
    }

    /// Ends pieces.
    pub(super) fn end(&mut self, is_over: impl Fn(&T) -> bool) {
        self.0.retain(|(_, work)| !is_over(work));
    }

    /// Keeps a piece for its next part. Of more than [`MOST`], the one that the peer has not asked for
    /// the longest ends.
    pub(super) fn keep(&mut self, work: T) {
        if self.0.len() >= MOST
            && let Some(oldest) = (0..self.0.len()).min_by_key(|index| self.0[*index].0)
        {
            self.0.swap_remove(oldest);
        }
        self.0.push((Instant::now(), work));
    }
}

/// Maximum number of pieces of a session between two requests; each has files open.
const MOST: usize = 16;

/// Time without a request for its next part after which a piece ends: one that its client has given
/// up holds files open.
const AGE: Duration = Duration::from_secs(60);

/// Time after which a part ends, so that the peer learns of its progress.
pub(super) const PART: Duration = Duration::from_millis(500);

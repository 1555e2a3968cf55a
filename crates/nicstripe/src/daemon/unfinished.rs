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
    /// Takes the piece whose next part the peer asks for.
    pub(super) fn take(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let index = self.0.iter().position(|(_, work)| is_it(work))?;
        Some(self.0.swap_remove(index).1)
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

/// Time after which a part ends, so that the peer learns of its progress.
pub(super) const PART: Duration = Duration::from_millis(500);

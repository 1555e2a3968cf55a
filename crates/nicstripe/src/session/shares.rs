//! Division of a daemon's chunk memory among its sessions.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::file::{FairShares, Owner};

/// Chunk memory of all sessions together, in chunks of 256 KiB: 64 MiB. A single key gets at most
/// half, which is what a session over four links uses.
const MOST_CHUNKS: usize = 256;

/// Fair shares of a daemon's chunk memory.
///
/// Budgets are recomputed whenever a chunk completes, so busy keys converge to equal shares. Busy
/// sessions of one key share equally. A session above its budget keeps its chunks until they
/// complete.
#[derive(Debug, Clone)]
pub(crate) struct ChunkShares(Arc<Mutex<Keys>>);

#[derive(Debug)]
struct Keys {
    chunks: FairShares<Owner>,
    busy: HashMap<Owner, usize>,
}

#[derive(Debug)]
pub(crate) struct ChunkShare {
    of: ChunkShares,
    owner: Owner,
    committed: usize,
    is_busy: bool,
}

impl Default for ChunkShares {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Keys {
            chunks: FairShares::new(MOST_CHUNKS),
            busy: HashMap::new(),
        })))
    }
}

impl ChunkShares {
    pub(crate) fn join(&self, owner: Owner) -> ChunkShare {
        ChunkShare {
            of: self.clone(),
            owner,
            committed: 0,
            is_busy: false,
        }
    }
}

impl ChunkShare {
    /// Records the number of chunks that the session holds and whether it is busy, and returns its
    /// budget in chunks. An idle session gets 0, which [`nicstripe_proto::Session`] treats as one
    /// chunk per path.
    pub(crate) fn update(&mut self, committed: u64, is_busy: bool) -> u64 {
        let committed = committed as usize;
        let mut keys = self.of.0.lock();
        let Keys { chunks, busy } = &mut *keys;
        chunks.give_back(&self.owner, self.committed);
        chunks.take(self.owner, committed);
        let busy = busy.entry(self.owner).or_default();
        *busy = *busy - usize::from(self.is_busy) + usize::from(is_busy);
        (self.committed, self.is_busy) = (committed, is_busy);
        if !is_busy {
            return 0;
        }
        let fair = chunks.share(&self.owner) / (*busy).max(1);
        fair.min(committed + chunks.room(&self.owner)) as u64
    }
}

impl Drop for ChunkShare {
    fn drop(&mut self) {
        self.update(0, false);
        self.of.0.lock().busy.retain(|_, busy| *busy > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulated session with enough data to use its full budget, up to the capacity of its links.
    struct Busy {
        share: ChunkShare,
        has: u64,
        wants: u64,
    }

    impl Busy {
        fn new(shares: &ChunkShares, owner: u8, wants: u64) -> Self {
            Self {
                share: shares.join([owner; 32]),
                has: 0,
                wants,
            }
        }

        /// Completes `done` chunks, then takes new ones up to the budget.
        fn turn(&mut self, done: u64) {
            self.has -= done.min(self.has);
            let budget = self.share.update(self.has, true);
            self.has = self.has.max(budget.min(self.wants));
            self.share.update(self.has, true);
        }
    }

    fn settle(sessions: &mut [Busy]) {
        for round in 0..200 {
            sessions
                .iter_mut()
                .enumerate()
                .for_each(|(index, session)| session.turn((index as u64 + round) % 5));
        }
    }

    #[test]
    fn one_session_over_four_links_has_all_their_credit() {
        let shares = ChunkShares::default();
        let mut alone = [Busy::new(&shares, 1, 4 * 32)];
        alone[0].turn(0);
        assert_eq!(alone[0].has, 128);
        // Idle sessions of other keys take nothing.
        let mut idle: Vec<ChunkShare> = (2..60).map(|owner| shares.join([owner; 32])).collect();
        assert!(idle.iter_mut().all(|idle| idle.update(1, false) == 0));
        settle(&mut alone);
        assert!(alone[0].has >= 96, "{}", alone[0].has);
    }

    #[test]
    fn busy_keys_end_up_with_the_same_whenever_they_came_and_however_many_sessions_they_have() {
        let shares = ChunkShares::default();
        let mut sessions: Vec<Busy> = (0..9).map(|_| Busy::new(&shares, 1, 128)).collect();
        settle(&mut sessions);
        sessions.push(Busy::new(&shares, 2, 128));
        settle(&mut sessions);
        let (of_one, of_two) = (
            sessions[..9].iter().map(|session| session.has).sum::<u64>(),
            sessions[9].has,
        );
        assert!((60..=90).contains(&of_one), "{of_one} and {of_two}");
        assert!((75..=95).contains(&of_two), "{of_one} and {of_two}");
    }

    #[test]
    fn whoever_keeps_all_it_gets_leaves_half_to_others() {
        let shares = ChunkShares::default();
        let mut hoarders: Vec<Busy> = (0..30).map(|_| Busy::new(&shares, 1, 2048)).collect();
        (0..20).for_each(|_| hoarders.iter_mut().for_each(|hoarder| hoarder.turn(0)));
        let mut honest = Busy::new(&shares, 2, 128);
        honest.turn(0);
        assert!(honest.has >= 60, "{}", honest.has);
    }

    #[test]
    fn two_hundred_sessions_have_no_more_than_there_is_and_give_all_back() {
        let shares = ChunkShares::default();
        let free = || shares.0.lock().chunks.free();
        let mut sessions: Vec<Busy> = (0..200)
            .map(|index| Busy::new(&shares, index % 40, 32))
            .collect();
        for _ in 0..3 {
            settle(&mut sessions);
            let all: u64 = sessions.iter().map(|session| session.has).sum();
            assert_eq!(all as usize + free(), MOST_CHUNKS);
        }
        drop(sessions);
        assert!(free() == MOST_CHUNKS && shares.0.lock().busy.is_empty());
    }
}

//! Queue of jobs that gives each owner equal time.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::file::shares::{FairShares, Owner};

/// Duration charged for a running job until its actual duration is known.
const ADVANCE: Duration = Duration::from_millis(1);

/// Queue of jobs of several owners. Each owner gets equal time (start-time fair queueing, Goyal et
/// al. 1996).
///
/// An owner that was idle starts level with the others: it has neither debt nor credit.
///
/// Each running job takes a slot of its owner's [`FairShares`]. A job that runs for long may give
/// its slot back, but still counts for its owner.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    owners: BTreeMap<Owner, Jobs<T>>,
    /// Maximum number of jobs that run at once, without the long ones.
    slots: usize,
    /// Running jobs of each owner, of the slots and one more for each long job.
    running: FairShares<Owner>,
    /// Virtual time: the consumed time of the owner served last.
    clock: Duration,
}

#[derive(Debug)]
struct Jobs<T> {
    waiting: VecDeque<T>,
    had: Duration,
}

impl<T> FairQueue<T> {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            owners: BTreeMap::new(),
            slots,
            running: FairShares::new(slots),
            clock: Duration::ZERO,
        }
    }

    /// Queues a job behind those of its owner. Returns true if the owner may take a slot.
    pub(super) fn push(&mut self, owner: Owner, job: T) -> bool {
        let clock = self.clock;
        let jobs = self.owners.entry(owner).or_insert_with(|| Jobs {
            waiting: VecDeque::new(),
            had: clock,
        });
        if jobs.waiting.is_empty() && self.running.held(&owner) == 0 {
            jobs.had = jobs.had.max(clock);
        }
        jobs.waiting.push_back(job);
        self.may_run(&owner)
    }

    /// Takes the next job of the owner with the least consumed time. The caller calls
    /// [`FairQueue::finish`] when the job has ended.
    pub(super) fn pop(&mut self) -> Option<(Owner, T)> {
        let charged = |(owner, jobs): &(&Owner, &Jobs<T>)| {
            jobs.had + ADVANCE * self.running.held(owner) as u32
        };
        let owner = *self.ready().min_by_key(charged)?.0;
        let jobs = self.owners.get_mut(&owner)?;
        let job = jobs.waiting.pop_front()?;
        self.clock = self.clock.max(jobs.had);
        self.running.take(owner, 1);
        Some((owner, job))
    }

    /// Returns true if [`FairQueue::pop`] would return a job.
    pub(super) fn may_pop(&self) -> bool {
        self.ready().next().is_some()
    }

    /// Returns the owners with a waiting job that may run.
    fn ready(&self) -> impl Iterator<Item = (&Owner, &Jobs<T>)> {
        self.owners
            .iter()
            .filter(move |(owner, jobs)| !jobs.waiting.is_empty() && self.may_run(owner))
    }

    /// Returns true if the owner may take a slot. The slots that its long jobs gave back do not let
    /// it run more jobs than half of the slots.
    fn may_run(&self, owner: &Owner) -> bool {
        let running = self.running.held(owner);
        (running == 0 || running < self.slots / 2) && self.running.may_take(owner, 1)
    }

    /// Gives back the slot of a running job, which then ends with [`FairQueue::finish_long`].
    pub(super) fn give_back_slot(&mut self) {
        self.running.all += 1;
    }

    /// Ends a job that has given its slot back.
    pub(super) fn finish_long(&mut self, owner: Owner, took: Duration) {
        self.running.all -= 1;
        self.finish(owner, took);
    }

    /// Ends a job that has a slot.
    pub(super) fn finish(&mut self, owner: Owner, took: Duration) {
        self.running.give_back(&owner, 1);
        if let Some(jobs) = self.owners.get_mut(&owner) {
            jobs.had += took;
        }
        if self.is_empty() && self.running.free() == self.running.all {
            // No owner had to wait, so there is no debt.
            self.owners.clear();
            self.clock = Duration::ZERO;
        }
        let (running, clock) = (&self.running, self.clock);
        self.owners.retain(|owner, jobs| {
            !jobs.waiting.is_empty() || running.held(owner) > 0 || jobs.had > clock
        });
    }

    pub(super) fn len(&self) -> usize {
        self.owners.values().map(|jobs| jobs.waiting.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const A: Owner = [1; 32];
    const B: Owner = [2; 32];

    /// Runs jobs of the given durations sequentially until `until`. Returns the consumed time of
    /// each owner.
    fn run(turns: &mut FairQueue<Duration>, until: Duration) -> BTreeMap<Owner, Duration> {
        let (mut now, mut had) = (Duration::ZERO, BTreeMap::new());
        while now < until {
            let Some((owner, took)) = turns.pop() else {
                break;
            };
            turns.finish(owner, took);
            *had.entry(owner).or_default() += took;
            now += took;
        }
        had
    }

    #[test]
    fn owners_get_the_same_time_however_many_and_long_their_jobs_are() {
        let mut turns = FairQueue::new(2);
        (0..10_000).for_each(|_| _ = turns.push(A, MS));
        (0..100).for_each(|_| _ = turns.push(B, 20 * MS));
        let had = run(&mut turns, 1000 * MS);
        assert!(had[&A] >= 480 * MS && had[&B] >= 480 * MS, "{had:?}");
    }

    #[test]
    fn whoever_comes_later_waits_for_one_job_and_not_for_all_that_were_queued() {
        let mut turns = FairQueue::new(2);
        (0..10_000).for_each(|_| _ = turns.push(A, MS));
        run(&mut turns, 500 * MS);
        turns.push(B, MS);
        let had = run(&mut turns, 3 * MS);
        assert_eq!(had.get(&B), Some(&MS));
    }

    #[test]
    fn time_is_not_saved_up_and_debts_are_not_forgotten_by_pausing() {
        let mut turns = FairQueue::new(2);
        (0..1500).for_each(|_| _ = turns.push(A, MS));
        run(&mut turns, 500 * MS);
        // B was idle while A worked: it has no credit of 500 ms.
        (0..1000).for_each(|_| _ = turns.push(B, MS));
        let had = run(&mut turns, 100 * MS);
        assert!(had[&A] >= 45 * MS && had[&B] >= 45 * MS, "{had:?}");
        // A ran one job of half a second: B catches up before A's next job.
        let mut turns = FairQueue::new(2);
        turns.push(A, 500 * MS);
        (0..1000).for_each(|_| _ = turns.push(B, MS));
        run(&mut turns, 501 * MS);
        turns.push(A, MS);
        let had = run(&mut turns, 400 * MS);
        assert_eq!(had.get(&A), None);
    }

    #[test]
    fn an_owner_has_no_more_than_its_share_of_the_threads() {
        let mut turns = FairQueue::new(4);
        (0..5).for_each(|_| _ = turns.push(A, MS));
        assert!(turns.pop().is_some() && turns.pop().is_some());
        assert!(turns.pop().is_none() && !turns.may_pop() && !turns.is_empty());
        assert!(!turns.push(A, MS) && turns.push(B, MS));
        assert_eq!(turns.pop().map(|(owner, _)| owner), Some(B));
        // A and B have as many as they leave free. B may have another only once A has fewer.
        assert!(!turns.push(B, MS) && !turns.may_pop());
        turns.finish(A, MS);
        turns.finish(A, MS);
        assert!(turns.may_pop());
    }

    #[test]
    fn a_long_job_leaves_its_slot_to_others_and_still_counts_for_its_owner() {
        let mut turns = FairQueue::new(4);
        (0..5).for_each(|_| _ = turns.push(A, MS));
        while turns.pop().is_some() {
            turns.give_back_slot();
        }
        assert!(!turns.may_pop(), "two long jobs are all that A may have");
        (0..5).for_each(|_| _ = turns.push(B, MS));
        assert_eq!(turns.pop().map(|(owner, _)| owner), Some(B));
        assert_eq!(turns.pop().map(|(owner, _)| owner), Some(B));
        assert!(turns.pop().is_none());
        turns.finish_long(A, MS);
        assert_eq!((turns.running.free(), turns.running.held(&A)), (2, 1));
    }

    #[test]
    fn owners_without_work_are_forgotten_once_they_owe_nothing() {
        let mut turns = FairQueue::new(2);
        for owner in 0..100 {
            turns.push([owner; 32], MS);
            run(&mut turns, MS);
        }
        assert!(turns.owners.len() <= 2, "{}", turns.owners.len());
    }
}

//! Quotas that share file descriptors and the memory of tree copies fairly among a daemon's peers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, LazyLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

use super::shares::{FairShares, Owner};

/// Number of file descriptors that a file being sent needs.
pub(crate) const OF_SOURCE: usize = 1;

/// Number of file descriptors that a file being received needs: directory, data twice (through the
/// page cache and direct), journal, and the replaced file.
pub(crate) const OF_TARGET: usize = 5;

/// Maximum wait for a fixed number of descriptors. Without it, a request could wait forever for
/// files that are never closed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Divisor of the whole quota: a request asks for at most a quarter of it, so that a small quota
/// can still meet it.
const MOST_PART: usize = 4;

/// Returns the number of directories of one kind that a tree may keep open: `most`, capped at a
/// sixteenth of the process's descriptors.
///
/// A daemon with few descriptors must still accept connections while a peer runs its maximum number
/// of trees.
pub(crate) fn most_directories(most: usize) -> usize {
    static SIXTEENTH: LazyLock<usize> = LazyLock::new(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit
            .map_or(usize::MAX, |all| {
                usize::try_from(all / 16).unwrap_or(usize::MAX)
            })
            .max(LEAST_DIRECTORIES)
    });
    most.min(*SIXTEENTH)
}

/// Minimum number of directories that a tree may keep open: a directory, its parent, and one for
/// each I/O thread. With fewer, directories would be reopened constantly.
const LEAST_DIRECTORIES: usize = 4;

/// Limited resource with [`FairShares`] of its owners, each identified by a peer's key.
///
/// Requests that cannot be met wait; the owner that holds least is served first.
#[derive(Debug, Clone)]
pub(crate) struct Quota {
    leases: Arc<Mutex<Leases>>,
    owner: Owner,
}

/// Leased units of a quota, and the requests that wait for others.
#[derive(Debug)]
struct Leases {
    shares: FairShares<Owner>,
    requests: BTreeMap<Owner, VecDeque<Request>>,
}

#[derive(Debug)]
struct Request {
    least: usize,
    most: usize,
    granted: oneshot::Sender<Lease>,
}

/// Units taken from a [`Quota`], returned on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    of: Quota,
    pub(crate) count: usize,
}

impl Quota {
    pub(crate) fn new(all: usize) -> Self {
        Self {
            leases: Arc::new(Mutex::new(Leases {
                shares: FairShares::new(all),
                requests: BTreeMap::new(),
            })),
            owner: Owner::default(),
        }
    }

    /// Returns a handle to the same quota for another owner.
    pub(crate) fn of(&self, owner: Owner) -> Self {
        Self {
            leases: self.leases.clone(),
            owner,
        }
    }

    /// Waits up to a minute for `count` units of the quota; returns `None` on timeout. Cancel safe.
    pub(crate) async fn lease(&self, count: usize) -> Option<Lease> {
        timeout(LONGEST_WAIT, self.ask(count, count))
            .await
            .ok()?
            .ok()
    }

    /// Takes `count` units of the quota if they are free now; otherwise returns `None`.
    pub(crate) fn try_lease(&self, count: usize) -> Option<Lease> {
        self.ask(count, count).try_recv().ok()
    }

    /// Waits without limit for at least `least` units of the quota, and takes up to `most` within
    /// the owner's share. Cancel safe.
    pub(crate) async fn lease_between(&self, least: usize, most: usize) -> Option<Lease> {
        self.ask(least, most).await.ok()
    }

    fn ask(&self, least: usize, most: usize) -> oneshot::Receiver<Lease> {
        let (granted, lease) = oneshot::channel();
        let mut leases = self.leases.lock();
        // A small quota must not make any request impossible.
        let at_once = (leases.shares.all / MOST_PART).max(1);
        let request = Request {
            least: least.min(at_once),
            most: most.min(at_once),
            granted,
        };
        let requests = leases.requests.entry(self.owner).or_default();
        requests.push_back(request);
        drop(leases);
        self.grant();
        lease
    }

    fn grant(&self) {
        loop {
            // The lock is released at the end of this line. A lease whose receiver is gone is
            // dropped below, and locks again.
            let next = self.leases.lock().next();
            let Some((owner, count, granted)) = next else {
                return;
            };
            let _ = granted.send(Lease {
                of: self.of(owner),
                count,
            });
        }
    }
}

impl Leases {
    /// Takes units for the next waiting request that the quota can meet. Returns its owner and the
    /// number of units.
    fn next(&mut self) -> Option<(Owner, usize, oneshot::Sender<Lease>)> {
        self.requests.retain(|_, requests| {
            requests.retain(|request| !request.granted.is_closed());
            !requests.is_empty()
        });
        let shares = &self.shares;
        let first = self
            .requests
            .iter()
            .filter_map(|(owner, requests)| Some((*owner, requests.front()?.least)));
        // An owner that holds none is next, even if too few are free; the others wait behind it.
        let (owner, least) = first
            .filter(|(owner, least)| shares.held(owner) == 0 || shares.may_take(owner, *least))
            .min_by_key(|(owner, _)| shares.held(owner))?;
        if least > shares.free() {
            return None;
        }
        // A request for a range gets a quarter of the owner's room, or an eighth if the owner
        // already holds some. This leaves more than the minimum for its later requests.
        let part = shares.room(&owner) / if shares.held(&owner) == 0 { 4 } else { 8 };
        let Request { most, granted, .. } = self.requests.get_mut(&owner)?.pop_front()?;
        let count = part.clamp(least, most.max(least));
        self.shares.take(owner, count);
        Some((owner, count, granted))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut leases = self.of.leases.lock();
        leases.shares.give_back(&self.of.owner, self.count);
        drop(leases);
        self.of.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = [1; 32];
    const B: Owner = [2; 32];
    const SOON: Duration = Duration::from_millis(50);

    fn all(descriptors: &Quota) -> Vec<Lease> {
        std::iter::from_fn(|| descriptors.try_lease(1)).collect()
    }

    #[test]
    fn whoever_has_none_gets_some_as_long_as_there_are_any() {
        let descriptors = Quota::new(16);
        let (a, b) = (descriptors.of(A), descriptors.of(B));
        let tree = a.try_lease(1000).expect("at most a part of the total");
        assert_eq!(tree.count, 4);
        let _another = a.try_lease(4).unwrap();
        assert!(a.try_lease(1).is_none() && b.try_lease(4).is_some());
    }

    #[tokio::test]
    async fn what_is_not_free_is_waited_for_and_the_poorest_comes_first() {
        let descriptors = Quota::new(8);
        let (a, b) = (descriptors.of(A), descriptors.of(B));
        let (mut of_a, of_b) = (
            all(&a),
            [b.try_lease(1), descriptors.of([3; 32]).try_lease(1)],
        );
        assert_eq!(of_a.len(), 4);
        assert_eq!(descriptors.leases.lock().shares.free(), 2);
        let another = |of: &Quota| {
            let of = of.clone();
            tokio::spawn(async move { of.lease(1).await })
        };
        let (mut for_a, for_b) = (another(&a), another(&b));
        while [A, B]
            .iter()
            .any(|owner| !descriptors.leases.lock().requests.contains_key(owner))
        {
            tokio::task::yield_now().await;
        }
        of_a.truncate(3);
        let for_b = for_b.await.unwrap().expect("B has less");
        assert!(timeout(SOON, &mut for_a).await.is_err());
        drop((of_b, for_b));
        assert!(for_a.await.unwrap().is_some());
        // A cancelled request takes nothing.
        drop(b.ask(2, 2));
        drop(of_a);
        assert_eq!(descriptors.leases.lock().shares.free(), 8);
    }

    #[tokio::test]
    async fn who_asks_for_a_range_gets_less_the_more_its_owner_has() {
        let memory = Quota::new(256);
        let mut held = Vec::new();
        while let Ok(lease) = memory.of(A).ask(4, 32).try_recv() {
            held.push(lease);
        }
        let counts: Vec<usize> = held.iter().map(|lease| lease.count).collect();
        assert_eq!(
            counts,
            [32, 12, 10, 9, 8, 7, 6, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4]
        );
        assert!(
            counts.iter().sum::<usize>() <= 128,
            "half is left to others"
        );
        let of_b = memory.of(B).lease_between(4, 32).await.unwrap();
        assert_eq!(of_b.count, 16);

        let mut waiting = tokio::spawn({
            let memory = memory.of(A);
            async move { memory.lease_between(4, 32).await }
        });
        // Its share is used up.
        assert!(timeout(SOON, &mut waiting).await.is_err());
        drop((of_b, held));
        assert_eq!(waiting.await.unwrap().unwrap().count, 4);
        assert_eq!(memory.leases.lock().shares.free(), 256);
    }
}

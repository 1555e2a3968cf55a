//! Limits of TCP connections: places for those that have not passed the access check yet, places
//! for those that have, and the time that either may hold one.
//!
//! Any program that reaches the port can open connections. They are always accepted, so that none
//! of them keeps the password's holder in the backlog; when their places are taken, the oldest one
//! of the network with the most of them is closed.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nicstripe::CancellationToken;
use parking_lot::Mutex;
use tokio::{
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch},
    time::timeout,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Maximum number of connections without an accepted request.
    pub(super) most_strangers: usize,
    /// Maximum number of connections with an accepted request. Further ones wait.
    pub(super) most_known: usize,
    /// Time from the start of a connection to its first accepted request.
    pub(super) proof_time: Duration,
    /// Maximum time between two requests of a connection.
    pub(super) idle_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most_strangers: 64,
            // restic opens 5 connections, rustic one per thread, programs of S3 up to some 50.
            most_known: 256,
            // Clients send their first request at once.
            proof_time: Duration::from_secs(10),
            // Go keeps idle connections for 90 s.
            idle_time: Duration::from_secs(120),
        }
    }
}

#[derive(Debug)]
pub(super) struct Places {
    limits: Limits,
    /// Connections without an accepted request, the oldest first.
    strangers: Mutex<Vec<Stranger>>,
    known: Arc<Semaphore>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Stranger {
    number: u64,
    network: IpAddr,
    evicted: CancellationToken,
}

/// Returns the network of an address, all of whose addresses one machine can take without effort: the
/// address itself for IPv4, its /64 for IPv6.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

/// Reason for closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Expired {
    #[error("newer connections took the place before a request was accepted")]
    Evicted,
    #[error("no request was accepted in time")]
    Unproved,
    #[error("no request came in time")]
    Idle,
}

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            strangers: Mutex::default(),
            known: Arc::new(Semaphore::new(limits.most_known)),
            next: AtomicU64::new(0),
        }
    }

    /// Gives a new connection a place. Evicts another connection if all places are taken.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Place {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let evicted = CancellationToken::new();
        let mut strangers = self.strangers.lock();
        if strangers.len() >= self.limits.most_strangers {
            let index = oldest_of_the_largest(&strangers);
            strangers.remove(index).evicted.cancel();
        }
        strangers.push(Stranger {
            number,
            network: network_of(from),
            evicted: evicted.clone(),
        });
        Place {
            places: self.clone(),
            number,
            evicted,
            known: OnceCell::new(),
            requests: watch::Sender::new(0),
        }
    }

    fn leave(&self, number: u64) {
        self.strangers
            .lock()
            .retain(|stranger| stranger.number != number);
    }
}

/// Returns the index of the oldest stranger of the network with the most of them. There must be
/// one stranger at least.
fn oldest_of_the_largest(strangers: &[Stranger]) -> usize {
    let mut counts = HashMap::<IpAddr, usize>::new();
    for stranger in strangers {
        *counts.entry(stranger.network).or_default() += 1;
    }
    let most = counts.values().copied().max();
    strangers
        .iter()
        .position(|stranger| counts.get(&stranger.network).copied() == most)
        .unwrap_or_default()
}

/// Place of one connection. Dropping the value frees it.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    evicted: CancellationToken,
    /// Place of a connection with an accepted request; unset before that.
    known: OnceCell<Option<OwnedSemaphorePermit>>,
    /// Number of running requests, including the transmission of their responses.
    requests: watch::Sender<usize>,
}

impl Place {
    /// Records that a request was accepted. Waits for a place if all are taken; meanwhile the
    /// connection can be evicted.
    pub(super) async fn prove(&self) {
        self.known
            .get_or_init(|| async {
                // The semaphore is never closed.
                let permit = self.places.known.clone().acquire_owned().await.ok();
                self.places.leave(self.number);
                permit
            })
            .await;
    }

    /// Counts a request as running until the result is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Running {
        self.requests.send_modify(|running| *running += 1);
        Running(self.clone())
    }

    /// Waits until the connection must end. Cancel safe.
    pub(super) async fn expired(&self) -> Expired {
        let limits = self.places.limits;
        let mut requests = self.requests.subscribe();
        let proved = async {
            while self.known.get().is_none() {
                // The sender lives as long as `self`. A request is accepted before its response,
                // whose end counts as a change.
                let _ = requests.changed().await;
            }
        };
        tokio::select! {
            () = self.evicted.cancelled() => return Expired::Evicted,
            proved = timeout(limits.proof_time, proved) => if proved.is_err() && self.known.get().is_none() {
                return Expired::Unproved;
            }
        }
        loop {
            let is_idle = *requests.borrow_and_update() == 0;
            match timeout(limits.idle_time, requests.changed()).await {
                Err(_) if is_idle => return Expired::Idle,
                _ => {}
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.leave(self.number);
    }
}

#[derive(Debug)]
pub(super) struct Running(Arc<Place>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.requests.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(most_strangers: usize) -> Arc<Places> {
        Arc::new(Places::new(Limits {
            most_strangers,
            ..Limits::default()
        }))
    }

    #[test]
    fn the_oldest_connection_of_the_largest_network_goes_first() {
        let places = places(3);
        let enter = |address: &str| places.enter(address.parse().unwrap());
        let other = enter("10.0.0.9");
        let one = enter("fe80::1");
        let two = enter("fe80::2");
        let three = enter("fe80::3");
        let is_evicted = |place: &Place| place.evicted.is_cancelled();
        assert!(is_evicted(&one));
        assert!(
            [&other, &two, &three]
                .iter()
                .all(|place| !is_evicted(place))
        );
        drop(three);
        let four = enter("::ffff:10.0.0.9");
        assert!([&other, &two, &four].iter().all(|place| !is_evicted(place)));
    }

    #[tokio::test]
    async fn a_known_connection_is_not_evicted_and_gives_its_place_back() {
        let places = places(1);
        let address = IpAddr::from([127, 0, 0, 1]);
        let known = places.enter(address);
        known.prove().await;
        let strangers: Vec<_> = (0..3).map(|_| places.enter(address)).collect();
        assert!(!known.evicted.is_cancelled());
        assert!(strangers[0].evicted.is_cancelled() && strangers[1].evicted.is_cancelled());
        assert_eq!(places.known.available_permits(), 255);
        drop((known, strangers));
        assert_eq!(places.known.available_permits(), 256);
        assert!(places.strangers.lock().is_empty());
    }
}

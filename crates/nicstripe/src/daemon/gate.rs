//! Admission of unauthenticated connections: slots, and a rate limit for key exchanges.
//!
//! A stranger costs at most a slot, some kilobytes and one key exchange at a limited rate. When all
//! slots are taken, a newcomer evicts the oldest: an honest client finishes within milliseconds, an
//! idle attacker does not. Within the share of one address, only connections older than a minimum
//! time are evicted. Many honest clients on one machine thus complete their handshakes, and
//! newcomers retry. Addresses at which a peer has proved its key are evicted last and have a
//! separate rate limit.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::TokenBucket;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::limits::Limits;
use crate::{file::FairShares, trust::PublicKey};

/// Slots and rate limits for unauthenticated connections.
#[derive(Debug)]
pub(super) struct Gate {
    most_per_source: usize,
    state: Mutex<Admitted>,
    /// Rate limits of key exchanges: of strangers, and of addresses at which a peer has proved its
    /// key.
    exchanges: [FairLimiter; 2],
}

#[derive(Debug)]
struct Admitted {
    /// Unauthenticated connections, oldest first.
    waiting: VecDeque<Waiting>,
    slots: FairShares<Source>,
    /// Addresses at which peers have proved their keys, most recent last.
    known: VecDeque<(Source, PublicKey)>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    source: Source,
    /// True while the connection waits for its key exchange, after a valid first message. It is
    /// then not evicted: otherwise a flood would always evict the connection whose turn is next,
    /// and no client would be served.
    queued: bool,
    /// Time since which the daemon waits for the peer's next message. An honest client needs a
    /// round trip and a share of its machine's CPU.
    since: Instant,
    /// True once the daemon has answered the key exchange.
    answered: bool,
    evicted: CancellationToken,
}

/// Address range that counts as one stranger: an IPv4 address or an IPv6 /64. A link-local address
/// counts separately, with its interface index, since all machines on a cable share that /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Source(IpAddr, u32);

impl Source {
    fn of(remote: SocketAddr) -> Self {
        match (remote.ip().to_canonical(), remote) {
            (IpAddr::V6(ip), SocketAddr::V6(remote)) if ip.is_unicast_link_local() => {
                Self(ip.into(), remote.scope_id())
            }
            (IpAddr::V6(ip), _) => Self(IpAddr::V6((u128::from(ip) >> 64 << 64).into()), 0),
            (ip, _) => Self(ip, 0),
        }
    }
}

impl Gate {
    pub(super) fn new(limits: &Limits) -> Self {
        let limiter = || FairLimiter::new(limits.handshakes_per_second);
        Self {
            most_per_source: limits.greetings_per_address,
            state: Mutex::new(Admitted {
                waiting: VecDeque::new(),
                slots: FairShares::new(limits.greetings),
                known: VecDeque::new(),
                next_id: 0,
            }),
            exchanges: [limiter(), limiter()],
        }
    }

    /// Admits a connection, evicting another one if necessary. Returns `None` if none can be
    /// evicted.
    pub(super) fn admit(self: &Arc<Self>, remote: SocketAddr) -> Option<Admission> {
        let source = Source::of(remote);
        let mut state = self.state.lock();
        if state.slots.held(&source) >= self.most_per_source {
            state.drop_one(Haste::Patient, |waiting| waiting.source == source)?;
        }
        if state.slots.free() == 0 {
            state.drop_for(source)?;
        }
        let (id, evicted) = (state.next_id, CancellationToken::new());
        state.next_id += 1;
        state.slots.take(source, 1);
        state.waiting.push_back(Waiting {
            id,
            source,
            queued: false,
            since: Instant::now(),
            answered: false,
            evicted: evicted.clone(),
        });
        Some(Admission {
            gate: self.clone(),
            id,
            source,
            evicted,
        })
    }

    /// Evicts the oldest connection that may be evicted, to free a file descriptor.
    pub(super) fn drop_oldest(&self) {
        self.state.lock().drop_one(Haste::Pressed, |_| true);
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

impl Admitted {
    /// Evicts the oldest connection of the stranger with the most, if it has several. Falls back to
    /// the oldest stranger. Evicts connections from known addresses only if there are no strangers
    /// and `newcomer` is known too. Returns `None` if no connection may be evicted.
    fn drop_for(&mut self, newcomer: Source) -> Option<()> {
        match self.slots.greatest(|source| !self.is_known(source)) {
            Some((greatest, 2..)) => {
                self.drop_one(Haste::Pressed, |waiting| waiting.source == greatest)
            }
            Some(_) => None,
            None if self.is_known(&newcomer) => self.drop_one(Haste::Pressed, |_| true),
            None => return None,
        }
        .or_else(|| {
            let known: Vec<Source> = self.known.iter().map(|(source, _)| *source).collect();
            self.drop_one(Haste::Pressed, |waiting| !known.contains(&waiting.source))
        })
    }

    /// Evicts the oldest matching connection that is not queued for its key exchange and is older
    /// than the minimum time of `haste`. Returns `None` if there is no such connection.
    fn drop_one(&mut self, haste: Haste, matches: impl Fn(&Waiting) -> bool) -> Option<()> {
        let now = Instant::now();
        let is_idle = |waiting: &Waiting| {
            !waiting.queued && now.duration_since(waiting.since) >= haste.spares(waiting.answered)
        };
        let index = self
            .waiting
            .iter()
            .position(|waiting| is_idle(waiting) && matches(waiting))?;
        let dropped = self.waiting.remove(index)?;
        dropped.evicted.cancel();
        self.slots.give_back(&dropped.source, 1);
        Some(())
    }

    fn remove(&mut self, id: u64) {
        if let Ok(index) = self.waiting.binary_search_by_key(&id, |waiting| waiting.id)
            && let Some(removed) = self.waiting.remove(index)
        {
            self.slots.give_back(&removed.source, 1);
        }
    }

    fn set_queued(&mut self, id: u64, queued: bool) {
        if let Ok(index) = self.waiting.binary_search_by_key(&id, |waiting| waiting.id) {
            let waiting = &mut self.waiting[index];
            waiting.queued = queued;
            (waiting.answered, waiting.since) = (!queued, Instant::now());
        }
    }

    fn is_known(&self, source: &Source) -> bool {
        self.known.iter().any(|(known, _)| known == source)
    }

    fn remember(&mut self, source: Source, key: PublicKey) {
        self.known.retain(|(known, _)| *known != source);
        self.known.push_back((source, key));
        let is_beyond =
            self.known.iter().filter(|(_, known)| *known == key).count() > MOST_KNOWN_OF_KEY;
        if is_beyond || self.known.len() > MOST_KNOWN {
            let oldest = self
                .known
                .iter()
                .position(|(_, known)| !is_beyond || *known == key);
            oldest.and_then(|index| self.known.remove(index));
        }
    }
}

/// Slot of an unauthenticated connection; released on drop.
#[derive(Debug)]
pub(super) struct Admission {
    gate: Arc<Gate>,
    id: u64,
    source: Source,
    evicted: CancellationToken,
}

impl Admission {
    /// Returns a token that is cancelled when the connection is evicted.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }

    /// Waits until the rate limit permits a key exchange. Cancel safe: a dropped call only loses
    /// its position in the queue.
    pub(super) async fn turn(&self) {
        self.gate.state.lock().set_queued(self.id, true);
        let is_known = self.gate.state.lock().is_known(&self.source);
        self.gate.exchanges[usize::from(is_known)].take().await;
        self.gate.state.lock().set_queued(self.id, false);
    }

    /// Records that a peer has proved its key at the address of this connection.
    pub(super) fn proved(&self, key: PublicKey) {
        self.gate.state.lock().remember(self.source, key);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.gate.state.lock().remove(self.id);
    }
}

/// Rate limit with a first-come, first-served queue.
#[derive(Debug)]
struct FairLimiter(tokio::sync::Mutex<TokenBucket>);

impl FairLimiter {
    fn new(a_second: u32) -> Self {
        let a_second = a_second.max(1);
        Self(tokio::sync::Mutex::new(TokenBucket::new(
            EXCHANGE_BURST.min(a_second),
            a_second,
            Instant::now(),
        )))
    }

    async fn take(&self) {
        // The first in line waits with the lock held; the others queue for the lock, which is fair.
        let mut bucket = self.0.lock().await;
        while !bucket.take(Instant::now()) {
            let wait = bucket.wait(Instant::now());
            tokio::time::sleep(wait).await;
        }
    }
}

/// Urgency of an eviction, which decides how long a connection is protected from it.
#[derive(Debug, Clone, Copy)]
enum Haste {
    /// One address has used up its share of slots. Protects a connection for 0.2 s, or for 1 s
    /// after an answer. 128 slots then admit 640 silent connections per second, and each has enough
    /// time for a client among 200 processes on two cores.
    Patient,
    /// All slots are taken. Protects a connection for 100 ms after an answer; at 500 answers per
    /// second these hold 50 of 256 slots.
    Pressed,
}

impl Haste {
    fn spares(self, answered: bool) -> Duration {
        Duration::from_millis(match (self, answered) {
            (Self::Patient, false) => 200,
            (Self::Patient, true) => 1000,
            (Self::Pressed, false) => 0,
            (Self::Pressed, true) => 100,
        })
    }
}

/// Maximum number of recorded addresses at which a peer has proved its key.
const MOST_KNOWN: usize = 256;

/// Maximum number of recorded addresses per key, so that no peer displaces the others.
const MOST_KNOWN_OF_KEY: usize = 64;

/// Burst of the key exchange rate limit, at most `handshakes_per_second`. Enough for all paths of a
/// session that reconnects after a restart of the daemon.
const EXCHANGE_BURST: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(greetings: usize, greetings_per_address: usize) -> Arc<Gate> {
        Arc::new(Gate::new(&Limits {
            greetings,
            greetings_per_address,
            handshakes_per_second: 1000,
            ..Limits::default()
        }))
    }

    fn from(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 40_000).into()
    }

    fn is_gone(admission: &Admission) -> bool {
        admission.evicted.is_cancelled()
    }

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32]).unwrap()
    }

    fn pass(gate: &Gate, millis: u64) {
        for waiting in &mut gate.state.lock().waiting {
            waiting.since -= Duration::from_millis(millis);
        }
    }

    #[test]
    fn an_address_beyond_its_share_loses_its_own_oldest() {
        let gate = gate(10, 2);
        let other = gate.admit(from(9)).unwrap();
        let (first, second) = (gate.admit(from(1)).unwrap(), gate.admit(from(1)).unwrap());
        assert!(
            gate.admit(from(1)).is_none(),
            "two have just arrived, and may be honest"
        );
        pass(&gate, 200);
        let third = gate.admit(from(1)).unwrap();
        assert_eq!(
            [&other, &first, &second, &third].map(is_gone),
            [false, true, false, false]
        );
        gate.state.lock().set_queued(second.id, true);
        gate.state.lock().set_queued(third.id, true);
        gate.state.lock().set_queued(third.id, false);
        pass(&gate, 999);
        assert!(
            gate.admit(from(1)).is_none(),
            "one is queued, and one has a second for its answer"
        );
        pass(&gate, 1);
        let _fourth = gate.admit(from(1)).unwrap();
        assert_eq!([&other, &second, &third].map(is_gone), [false, false, true]);
    }

    #[test]
    fn where_all_slots_are_taken_the_address_with_most_pays_and_else_the_oldest() {
        for (addresses, gone) in [([1, 2, 2, 2, 3], 1), ([1, 2, 3, 4, 5], 0)] {
            let gate = gate(4, 16);
            let admitted = addresses.map(|last| gate.admit(from(last)).unwrap());
            let is_gone = admitted.each_ref().map(is_gone);
            assert_eq!(is_gone, [0, 1, 2, 3, 4].map(|index| index == gone));
            assert_eq!(gate.waiting(), 4);
        }
    }

    #[tokio::test]
    async fn who_waits_for_an_answer_stays_and_where_all_do_the_newcomer_goes() {
        let gate = gate(2, 16);
        let (first, second) = (gate.admit(from(1)).unwrap(), gate.admit(from(2)).unwrap());
        gate.state.lock().set_queued(first.id, true);
        let third = gate.admit(from(3)).unwrap();
        assert_eq!([&first, &second, &third].map(is_gone), [false, true, false]);
        gate.state.lock().set_queued(third.id, true);
        assert!(gate.admit(from(4)).is_none());
        first.turn().await;
        assert!(gate.admit(from(4)).is_none(), "it was answered just now");
        pass(&gate, 100);
        assert!(
            gate.admit(from(4)).is_some() && is_gone(&first),
            "and does not answer that"
        );
    }

    #[test]
    fn where_peers_are_known_to_be_strangers_go_first() {
        let gate = gate(2, 16);
        gate.admit(from(1)).unwrap().proved(key(1));
        assert!(gate.state.lock().waiting.is_empty());
        let (known, stranger) = (gate.admit(from(1)).unwrap(), gate.admit(from(2)).unwrap());
        let another = gate.admit(from(3)).unwrap();
        assert_eq!(
            [&known, &stranger, &another].map(is_gone),
            [false, true, false]
        );
        let second = gate.admit(from(1)).unwrap();
        assert!(is_gone(&another));
        assert!(
            gate.admit(from(4)).is_none(),
            "strangers do not evict peers' addresses"
        );
        assert!(
            gate.admit(from(1)).is_some() && is_gone(&known) && !is_gone(&second),
            "but by themselves"
        );
    }

    #[test]
    fn one_key_does_not_push_out_where_others_are_known_to_be() {
        let gate = gate(10, 2);
        gate.admit(from(1)).unwrap().proved(key(1));
        (2..=255).for_each(|last| gate.admit(from(last)).unwrap().proved(key(2)));
        let state = gate.state.lock();
        assert_eq!(state.known.len(), 1 + MOST_KNOWN_OF_KEY);
        assert!(
            state.is_known(&Source::of(from(1)))
                && state.is_known(&Source::of(from(255)))
                && !state.is_known(&Source::of(from(2)))
        );
    }

    #[test]
    fn slots_are_given_back() {
        let gate = gate(2, 2);
        for _ in 0..10 {
            let admitted = [gate.admit(from(1)).unwrap(), gate.admit(from(1)).unwrap()];
            assert!(!admitted.iter().any(is_gone));
        }
        let state = gate.state.lock();
        assert!(state.waiting.is_empty() && state.slots.free() == 2);
    }

    #[test]
    fn an_ipv6_network_is_one_stranger_and_a_cable_is_not() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("[2001:db8::1]:1"), source("[2001:db8::ffff:2]:2"));
        assert_ne!(source("[2001:db8::1]:1"), source("[2001:db8:0:1::1]:1"));
        assert_ne!(source("[fe80::1%2]:1"), source("[fe80::2%2]:1"));
        assert_ne!(source("[fe80::1%2]:1"), source("[fe80::1%3]:1"));
        assert_eq!(source("[::ffff:192.0.2.1]:1"), source("192.0.2.1:2"));
    }

    #[tokio::test]
    async fn the_limiter_admits_at_its_rate_after_a_burst() {
        // A burst of 64, then one every 2 ms.
        let limiter = FairLimiter::new(500);
        let started_at = Instant::now();
        for _ in 0..EXCHANGE_BURST + 50 {
            limiter.take().await;
        }
        assert!(
            started_at.elapsed() >= Duration::from_millis(90),
            "{:?}",
            started_at.elapsed()
        );
    }
}

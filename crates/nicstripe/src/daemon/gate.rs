//! The gate: which connections may wait until they have proved who they are, and when each may have its key exchange.
//!
//! Nothing that is done for a stranger here costs more than a slot, some kilobytes and its turn. Whoever comes last gets in, as an honest
//! client is through in some milliseconds and one that sits idle is not: the oldest gives way. Addresses from which a peer has proved its key
//! are left alone as long as there are others, and have turns of their own.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nicstripe_proto::discovery::TokenBucket;
use tokio_util::sync::CancellationToken;

use super::Limits;

/// Who may wait for being let in.
#[derive(Debug)]
pub(super) struct Gate {
    most: usize,
    most_per_source: usize,
    state: Mutex<State>,
    /// For strangers, and for where peers are known to be.
    turns: [Turns; 2],
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    counts: HashMap<Source, usize>,
    /// Where peers have proved their keys, the latest last.
    known: VecDeque<Source>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    source: Source,
    /// Whether it has said something that deserves an answer and waits for its turn. The oldest is the next one then: it would be a pity, and
    /// under a flood nobody would ever be answered.
    queued: bool,
    /// Until when it may say what follows: an honest client answers within a round trip.
    spared_until: Option<Instant>,
    gone: CancellationToken,
}

/// What counts as one stranger: an IPv4 address, an IPv6 /64, or, as all machines on a cable share that, one link-local address there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Source(IpAddr, u32);

impl Source {
    fn of(remote: SocketAddr) -> Self {
        match (remote.ip().to_canonical(), remote) {
            (IpAddr::V6(ip), SocketAddr::V6(remote)) if ip.is_unicast_link_local() => Self(ip.into(), remote.scope_id()),
            (IpAddr::V6(ip), _) => Self(IpAddr::V6((u128::from(ip) >> 64 << 64).into()), 0),
            (ip, _) => Self(ip, 0),
        }
    }
}

impl Gate {
    pub(super) fn new(limits: &Limits) -> Self {
        let turns = || Turns::new(limits.handshakes_per_second);
        Self { most: limits.greetings, most_per_source: limits.greetings_per_address, state: Mutex::default(), turns: [turns(), turns()] }
    }

    /// Gives a new connection a slot, if need be that of another; `None` where all others are about to be answered.
    pub(super) fn admit(self: &Arc<Self>, remote: SocketAddr) -> Option<Admission> {
        let source = Source::of(remote);
        let mut state = self.state();
        if state.count(source) >= self.most_per_source {
            state.drop_one(|waiting| waiting.source == source)?;
        }
        if state.waiting.len() >= self.most {
            state.drop_for(source)?;
        }
        let (id, gone) = (state.next_id, CancellationToken::new());
        state.next_id += 1;
        *state.counts.entry(source).or_default() += 1;
        state.waiting.push_back(Waiting { id, source, queued: false, spared_until: None, gone: gone.clone() });
        Some(Admission { gate: self.clone(), id, source, gone })
    }

    /// Frees the oldest slot, and with it a file descriptor.
    pub(super) fn drop_oldest(&self) {
        self.state().drop_one(|_| true);
    }

    /// How many have a slot.
    pub(super) fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, source: Source) -> usize {
        self.counts.get(&source).copied().unwrap_or(0)
    }

    /// Makes room for `newcomer`: the oldest goes, of the source that has most if that has more than one, and of strangers first.
    fn drop_for(&mut self, newcomer: Source) -> Option<()> {
        let is_known = |source: &Source| self.known.contains(source);
        let strangers = self.counts.iter().filter(|(source, _)| !is_known(source));
        let greatest = strangers.max_by_key(|(_, count)| **count).map(|(source, count)| (*source, *count));
        match greatest {
            Some((greatest, 2..)) => self.drop_one(|waiting| waiting.source == greatest),
            Some(_) => None,
            None if is_known(&newcomer) => self.drop_one(|_| true),
            None => return None,
        }
        .or_else(|| {
            let known: Vec<Source> = self.known.iter().copied().collect();
            self.drop_one(|waiting| !known.contains(&waiting.source))
        })
    }

    /// Drops the oldest of these that neither waits for its turn nor had it a moment ago.
    fn drop_one(&mut self, is_meant: impl Fn(&Waiting) -> bool) -> Option<()> {
        let now = Instant::now();
        let is_idle = |waiting: &Waiting| !waiting.queued && waiting.spared_until.is_none_or(|until| now >= until);
        let index = self.waiting.iter().position(|waiting| is_idle(waiting) && is_meant(waiting))?;
        let dropped = self.waiting.remove(index)?;
        dropped.gone.cancel();
        self.uncount(dropped.source);
        Some(())
    }

    fn remove(&mut self, id: u64) {
        if let Ok(index) = self.waiting.binary_search_by_key(&id, |waiting| waiting.id)
            && let Some(removed) = self.waiting.remove(index)
        {
            self.uncount(removed.source);
        }
    }

    fn uncount(&mut self, source: Source) {
        if let Some(count) = self.counts.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&source);
            }
        }
    }

    fn set_queued(&mut self, id: u64, queued: bool) {
        if let Ok(index) = self.waiting.binary_search_by_key(&id, |waiting| waiting.id) {
            let waiting = &mut self.waiting[index];
            waiting.queued = queued;
            waiting.spared_until = (!queued).then(|| Instant::now() + SPARED);
        }
    }

    fn remember(&mut self, source: Source) {
        self.known.retain(|known| *known != source);
        self.known.push_back(source);
        if self.known.len() > MOST_KNOWN {
            self.known.pop_front();
        }
    }
}

/// A connection's slot. Given back when dropped.
#[derive(Debug)]
pub(super) struct Admission {
    gate: Arc<Gate>,
    id: u64,
    source: Source,
    gone: CancellationToken,
}

impl Admission {
    /// Cancelled when the slot was given to another connection.
    pub(super) fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    /// Waits until the key exchange may be computed. Cancel safe: the turn is lost, nothing else.
    pub(super) async fn turn(&self) {
        self.gate.state().set_queued(self.id, true);
        let is_known = self.gate.state().known.contains(&self.source);
        self.gate.turns[usize::from(is_known)].take().await;
        self.gate.state().set_queued(self.id, false);
    }

    /// The connection has proved a peer's key: it is no stranger's.
    pub(super) fn proved(self) {
        self.gate.state().remember(self.source);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.gate.state().remove(self.id);
    }
}

/// So many turns a second, in the order in which they are asked for.
#[derive(Debug)]
struct Turns(tokio::sync::Mutex<TokenBucket>);

impl Turns {
    fn new(a_second: u32) -> Self {
        let a_second = a_second.max(1);
        Self(tokio::sync::Mutex::new(TokenBucket::new(TURNS_AT_ONCE.min(a_second), a_second, Instant::now())))
    }

    async fn take(&self) {
        // Whose turn is next waits with the lock; all others wait for it, in their order.
        let mut bucket = self.0.lock().await;
        while !bucket.take(Instant::now()) {
            let wait = bucket.wait(Instant::now());
            tokio::time::sleep(wait).await;
        }
    }
}

/// How long one that was answered keeps its slot: at their rate of 500 a second, 50 of 256.
const SPARED: Duration = Duration::from_millis(100);

/// Sources of peers that are remembered. One is an address of one peer on one cable.
const MOST_KNOWN: usize = 256;

/// Turns that may be taken at once after a pause, those of a second at most: all paths of a session, after its daemon was restarted.
const TURNS_AT_ONCE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(greetings: usize, greetings_per_address: usize) -> Arc<Gate> {
        Arc::new(Gate::new(&Limits { greetings, greetings_per_address, handshakes_per_second: 1000, ..Limits::default() }))
    }

    fn from(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 40_000).into()
    }

    fn is_gone(admission: &Admission) -> bool {
        admission.gone.is_cancelled()
    }

    #[test]
    fn an_address_beyond_its_share_loses_its_own_oldest() {
        let gate = gate(10, 2);
        let other = gate.admit(from(9)).unwrap();
        let (first, second) = (gate.admit(from(1)).unwrap(), gate.admit(from(1)).unwrap());
        let third = gate.admit(from(1)).unwrap();
        assert_eq!([&other, &first, &second, &third].map(is_gone), [false, true, false, false]);
    }

    #[test]
    fn where_all_slots_are_taken_the_address_with_most_pays() {
        let gate = gate(4, 16);
        let single = gate.admit(from(1)).unwrap();
        let many: Vec<Admission> = (0..3).map(|_| gate.admit(from(2)).unwrap()).collect();
        let newcomer = gate.admit(from(3)).unwrap();
        assert!(is_gone(&many[0]) && !is_gone(&many[1]) && !is_gone(&single) && !is_gone(&newcomer));
        assert_eq!(gate.state().waiting.len(), 4);
    }

    #[test]
    fn where_each_address_has_one_the_oldest_goes() {
        let gate = gate(3, 16);
        let admitted: Vec<Admission> = (1..=4).map(|last| gate.admit(from(last)).unwrap()).collect();
        assert_eq!(admitted.iter().map(is_gone).collect::<Vec<_>>(), [true, false, false, false]);
    }

    #[tokio::test]
    async fn who_waits_for_an_answer_stays_and_where_all_do_the_newcomer_goes() {
        let gate = gate(2, 16);
        let (first, second) = (gate.admit(from(1)).unwrap(), gate.admit(from(2)).unwrap());
        gate.state().set_queued(first.id, true);
        let third = gate.admit(from(3)).unwrap();
        assert_eq!([&first, &second, &third].map(is_gone), [false, true, false]);
        gate.state().set_queued(third.id, true);
        assert!(gate.admit(from(4)).is_none());
        first.turn().await;
        assert!(gate.admit(from(4)).is_none(), "it was answered just now");
        tokio::time::sleep(SPARED).await;
        assert!(gate.admit(from(4)).is_some() && is_gone(&first), "and says nothing to that");
    }

    #[test]
    fn where_peers_are_known_to_be_strangers_go_first() {
        let gate = gate(2, 16);
        gate.admit(from(1)).unwrap().proved();
        assert!(gate.state().waiting.is_empty());
        let (known, stranger) = (gate.admit(from(1)).unwrap(), gate.admit(from(2)).unwrap());
        let another = gate.admit(from(3)).unwrap();
        assert_eq!([&known, &stranger, &another].map(is_gone), [false, true, false]);
        let second = gate.admit(from(1)).unwrap();
        assert!(is_gone(&another));
        assert!(gate.admit(from(4)).is_none(), "peers' addresses are not pushed out by strangers");
        assert!(gate.admit(from(1)).is_some() && is_gone(&known) && !is_gone(&second), "but by themselves");
    }

    #[test]
    fn slots_are_given_back() {
        let gate = gate(2, 2);
        for _ in 0..10 {
            let admitted = [gate.admit(from(1)).unwrap(), gate.admit(from(1)).unwrap()];
            assert!(!admitted.iter().any(is_gone));
        }
        let state = gate.state();
        assert!(state.waiting.is_empty() && state.counts.is_empty());
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
    async fn turns_are_given_at_their_rate_after_a_burst() {
        // 64 at once, then one every 2 ms.
        let turns = Turns::new(500);
        let begun = Instant::now();
        for _ in 0..TURNS_AT_ONCE + 50 {
            turns.take().await;
        }
        assert!(begun.elapsed() >= Duration::from_millis(90), "{:?}", begun.elapsed());
    }
}

//! Probes of a session: which address pairs are asked, when, and how many at once.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{
    candidate::{Candidate, CandidateId},
    machine::{MOST_PROBES, Pairing},
};
use crate::token_bucket::TokenBucket;

/// Probes of a session, in rounds after each change, limited in number and rate: the peer names the
/// addresses, so it must not control the amount of traffic.
#[derive(Debug)]
pub(crate) struct Probes {
    under_way: BTreeSet<CandidateId>,
    budget: TokenBucket,
    /// Time of the next round; `None` if no round is planned.
    again: Option<Instant>,
    /// Number of rounds since the last change.
    rounds: usize,
}

impl Probes {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            under_way: BTreeSet::new(),
            budget: TokenBucket::new(PROBE_BURST, PROBES_PER_SECOND, now),
            again: None,
            rounds: 0,
        }
    }

    /// Begins the rounds again after a change of an interface, or after the loss of a link.
    pub(crate) fn restart(&mut self) {
        self.rounds = 0;
    }

    /// Starts the probes that are due, and returns their address pairs. The remaining probes are due
    /// after the next input, or after 1 s.
    pub(crate) fn begin(
        &mut self,
        pairing: &Pairing,
        taken: &[(String, String)],
        is_connected: bool,
        now: Instant,
    ) -> Vec<Candidate> {
        let mut begun = Vec::new();
        let mut all_begun = true;
        for candidate in pairing.to_probe(taken) {
            if self.under_way.contains(&candidate.id()) {
                continue;
            }
            if self.under_way.len() >= MOST_PROBES || !self.budget.take(now) {
                all_begun = false;
                break;
            }
            self.under_way.insert(candidate.id());
            begun.push(candidate);
        }
        let pause = if all_begun {
            self.pause(pairing, is_connected)
        } else {
            Some(BUSY_PAUSE)
        };
        self.again = self
            .again
            .into_iter()
            .chain(pause.map(|pause| now + pause))
            .min();
        begun
    }

    /// Returns the delay before the next round. Without any connection the rounds never end.
    fn pause(&self, pairing: &Pairing, is_connected: bool) -> Option<Duration> {
        let (pause, longest) = (PAUSES.get(self.rounds).copied(), PAUSES[PAUSES.len() - 1]);
        if !is_connected {
            return Some(pause.unwrap_or(longest).min(PAUSE_UNCONNECTED));
        }
        pause.or_else(|| {
            let is_missing = pairing.misses_a_link() || pairing.lacks_a_route();
            is_missing.then_some(longest)
        })
    }

    /// Records the end of a probe.
    pub(crate) fn on_ended(&mut self, id: CandidateId) {
        self.under_way.remove(&id);
    }

    pub(crate) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Returns the time of the next round of probes; `None` if no round is planned.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.again
    }

    /// Begins the next round if it is due, by discarding failures that may be obsolete. Call
    /// [`begin`](Self::begin) afterwards.
    pub(crate) fn handle_timeout(
        &mut self,
        pairing: &mut Pairing,
        taken: &[(String, String)],
        now: Instant,
    ) {
        if self.again.is_none_or(|at| now < at) {
            return;
        }
        self.again = None;
        // If there are many interfaces, a round may need several calls.
        let to_probe = pairing.to_probe(taken);
        if to_probe
            .iter()
            .all(|candidate| self.under_way.contains(&candidate.id()))
        {
            self.rounds += 1;
            pairing.forgive();
        }
    }
}

/// Delays before successive rounds of probes. The kernel needs 1 to 2 s for duplicate address
/// detection. The last delay repeats while a link or a route is missing.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(700),
    Duration::from_millis(700),
    Duration::from_millis(1500),
    Duration::from_secs(5),
];

/// Maximum delay between rounds of probes while nothing is connected.
const PAUSE_UNCONNECTED: Duration = Duration::from_millis(1500);

/// Delay before a retry of the probes that a limit postponed.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Burst of the probe rate limit, in probes: sixteen local times sixteen remote interfaces, twice.
pub const PROBE_BURST: u32 = 512;

/// Sustained probe rate, in probes per second. A probe is one TCP packet, and two more if answered,
/// so 64 per second are some 50 kbit/s.
pub const PROBES_PER_SECOND: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pairing::{Failure, Obstacle},
        wire::message::{PeerAddress, PeerInterface},
    };

    #[allow(clippy::disallowed_methods)]
    fn origin() -> Instant {
        Instant::now()
    }

    /// Returns interfaces of both machines that have only link-local addresses, numbered from `from`.
    fn pairing(from: u16) -> Pairing {
        let side = |letter: &str, host: u16| {
            let one = |number: u16| PeerInterface {
                addresses: vec![PeerAddress {
                    ip: [0xfe80, 0, 0, 0, 0, 0, host, from + number].into(),
                    prefix_len: 64,
                }],
                ..PeerInterface::new(format!("{letter}{number}"), u32::from(number))
            };
            (0..20).map(one).collect()
        };
        Pairing::new(side("a", 1), side("b", 2))
    }

    #[test]
    fn no_more_than_64_are_under_way_and_none_twice() {
        let (now, mut pairing) = (origin(), pairing(1));
        let mut probes = Probes::new(now);
        let begun = probes.begin(&pairing, &[], true, now);
        assert_eq!(begun.len(), MOST_PROBES);
        assert!(probes.begin(&pairing, &[], true, now).is_empty());
        let id = begun[0].id();
        probes.on_ended(id);
        pairing.failed(id, Failure::Unreachable(Obstacle::Silence));
        let next = probes.begin(&pairing, &[], true, now);
        assert_eq!(next.len(), 1);
        assert!(begun.iter().all(|other| other.id() != next[0].id()));
    }

    #[test]
    fn a_peer_that_names_ever_new_addresses_gets_64_probes_a_second() {
        let mut now = origin();
        let mut probes = Probes::new(now);
        let mut spent = [0, 0];
        for (second, spent) in spent.iter_mut().enumerate() {
            now += Duration::from_secs(second as u64);
            for change in 0..20 {
                let pairing = pairing(1 + 32 * change);
                let begun = probes.begin(&pairing, &[], true, now);
                *spent += begun.len();
                begun.iter().for_each(|one| probes.on_ended(one.id()));
            }
        }
        assert_eq!(spent, [PROBE_BURST as usize, PROBES_PER_SECOND as usize]);
    }
}

//! Probes that find out which addresses are joined by a cable, limited in number and rate.
//!
//! The peer supplies the addresses to probe, so it must not control the amount of traffic.

use std::{collections::BTreeSet, time::Duration};

use nicstripe_proto::{
    TokenBucket,
    pairing::{Candidate, CandidateId, MOST_PROBES, Obstacle},
};
use tokio::{task::JoinSet, time::Instant};

use super::{connect::touch, plan::socket_address};
use crate::report::error::obstacle_to;

pub(crate) struct Probes {
    port: u16,
    tasks: JoinSet<(CandidateId, Result<(), Obstacle>)>,
    under_way: BTreeSet<CandidateId>,
    budget: TokenBucket,
}

impl Probes {
    pub(crate) fn new(port: u16, now: Instant) -> Self {
        let budget = TokenBucket::new(PROBE_BURST, PROBES_PER_SECOND, now.into_std());
        Self {
            port,
            tasks: JoinSet::new(),
            under_way: BTreeSet::new(),
            budget,
        }
    }

    /// Starts a probe of the candidate's remote address. Returns true if the probe is running, and
    /// false if a limit prevents it.
    pub(crate) fn start(&mut self, candidate: &Candidate, now: Instant) -> bool {
        let id = candidate.id();
        if self.under_way.contains(&id) {
            return true;
        }
        if self.under_way.len() >= MOST_PROBES || !self.budget.take(now.into_std()) {
            return false;
        }
        let remote = socket_address(candidate.remote.address, self.port, candidate.local.index);
        let interface = candidate.local.interface.clone();
        self.under_way.insert(id);
        self.tasks.spawn(async move {
            let answer = touch(&interface, remote, PROBE_TIMEOUT).await;
            (id, answer.map_err(|error| obstacle_to(&error)))
        });
        true
    }

    /// Waits for the next result: the address pair, and what stood against an answer. Returns `None`
    /// at once if no probe runs. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(CandidateId, Result<(), Obstacle>)> {
        let (id, answer) = self.tasks.join_next().await?.ok()?;
        self.under_way.remove(&id);
        Some((id, answer))
    }

    /// Returns the next result if one is available, without waiting.
    pub(crate) fn next_now(&mut self) -> Option<(CandidateId, Result<(), Obstacle>)> {
        let (id, answer) = self.tasks.try_join_next()?.ok()?;
        self.under_way.remove(&id);
        Some((id, answer))
    }

    /// Probes the first [`PROBE_BURST`] address pairs and returns those that answered. Takes at
    /// most 4 s, no matter how many addresses the peer announces.
    pub(crate) async fn answering(mut self, candidates: &[Candidate]) -> BTreeSet<CandidateId> {
        let mut waiting = candidates.iter().take(PROBE_BURST as usize).peekable();
        let mut answering = BTreeSet::new();
        loop {
            while waiting
                .next_if(|candidate| self.start(candidate, Instant::now()))
                .is_some()
            {}
            let Some((id, answer)) = self.next().await else {
                return answering;
            };
            if answer.is_ok() {
                answering.insert(id);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

/// Timeout of a probe of an address pair. On a LAN the answer takes less than a millisecond.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Burst of the probe rate limit, in probes: sixteen local times sixteen remote interfaces, twice.
const PROBE_BURST: u32 = 512;

/// Sustained probe rate, in probes per second. A probe is one TCP packet, and two more if answered,
/// so 64 per second are some 50 kbit/s.
const PROBES_PER_SECOND: u32 = 64;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use nicstripe_proto::pairing::{PathEnd, Preference};

    use super::*;

    fn candidate(number: u16) -> Candidate {
        // No interface has this name, so nothing is sent.
        let end = |address: IpAddr| PathEnd {
            interface: "none0".into(),
            index: 1,
            address,
            rate_bps: None,
            card: None,
        };
        let remote = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number);
        Candidate {
            local: end(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()),
            remote: end(remote.into()),
            preference: Preference::LinkLocal,
            rate_bps: None,
        }
    }

    #[tokio::test]
    async fn what_is_asked_already_is_not_asked_twice() {
        let now = Instant::now();
        let mut probes = Probes::new(7747, now);
        assert!(probes.start(&candidate(1), now) && probes.start(&candidate(1), now));
        assert_eq!(
            probes.next().await,
            Some((candidate(1).id(), Err(Obstacle::Silence)))
        );
        assert_eq!(probes.next().await, None);
        assert!(probes.is_empty());
    }

    #[tokio::test]
    async fn no_more_than_64_are_under_way() {
        let now = Instant::now();
        let mut probes = Probes::new(7747, now);
        let started = (0..1000)
            .filter(|number| probes.start(&candidate(*number), now))
            .count();
        assert_eq!(started, MOST_PROBES);
        probes.next().await;
        assert!(probes.start(&candidate(999), now));
    }

    #[tokio::test]
    async fn of_more_than_may_be_asked_at_once_the_last_is_asked_too() {
        let daemon = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = daemon.local_addr().unwrap();
        let end = || PathEnd {
            interface: "lo".into(),
            index: 1,
            address: address.ip(),
            rate_bps: None,
            card: None,
        };
        let mut many: Vec<Candidate> = (0..100).map(candidate).collect();
        many.push(Candidate {
            local: end(),
            remote: end(),
            ..candidate(0)
        });
        let answering = Probes::new(address.port(), Instant::now())
            .answering(&many)
            .await;
        assert_eq!(answering.into_iter().collect::<Vec<_>>(), [many[100].id()]);
    }

    #[tokio::test]
    async fn a_peer_that_names_ever_new_addresses_gets_64_probes_a_second() {
        let now = Instant::now();
        let mut probes = Probes::new(7747, now);
        let mut spent = 0;
        for number in 0..2000 {
            spent += u32::from(probes.start(&candidate(number), now));
            probes.next().await;
        }
        assert_eq!(spent, PROBE_BURST);
        let later = now + Duration::from_secs(1);
        assert_eq!(
            (0..PROBES_PER_SECOND as u16)
                .filter(|number| probes.start(&candidate(*number), later))
                .count(),
            MOST_PROBES
        );
        while probes.next().await.is_some() {}
        assert!(!probes.start(&candidate(3000), later));
    }
}

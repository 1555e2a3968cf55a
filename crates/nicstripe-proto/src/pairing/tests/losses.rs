//! Tests of the loss and return of every subset of interfaces in every topology, in virtual time.
//! Data must flow again if any pair of interfaces works.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use nicstripe_testkit::trial::amount;

use super::*;
use crate::path::machine::{FAIL_AFTER, RETRY_LONGEST};

const MS: Duration = Duration::from_millis(1);

/// Simulated timeouts of a probe and of a connection attempt.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1000);

/// Simulated duration of a connection attempt: TCP, TLS and the handshake.
const CONNECT_TIME: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Topology {
    /// A cable and a subnet for each pair of interfaces.
    OwnSubnets,
    /// One switch and one IPv4 subnet.
    OneSubnet,
    /// One switch and only link-local addresses.
    LinkLocal,
    /// The first pair of interfaces has a cable and a subnet. The other interfaces share a subnet
    /// on a switch. All have link-local addresses.
    Mixed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    /// Carrier loss, which the interface's machine detects.
    Carrier,
    /// Silent loss of packets, which no machine detects.
    Silent,
}

impl Topology {
    fn side(self, letter: &str, host: u32, count: usize) -> Vec<PeerInterface> {
        let addresses = |number: usize| match self {
            Self::OwnSubnets => vec![format!("10.1.{number}.{host}/24")],
            Self::OneSubnet => vec![format!("10.9.0.{host}{number}/24")],
            Self::LinkLocal => vec![format!("fe80::{letter}:{number}/64")],
            Self::Mixed if number == 0 => vec![
                format!("10.1.0.{host}/24"),
                format!("fe80::{letter}:{number}/64"),
            ],
            Self::Mixed => vec![
                format!("10.9.0.{host}{number}/24"),
                format!("fe80::{letter}:{number}/64"),
            ],
        };
        let one = |number| {
            interface(
                &format!("{letter}{number}"),
                &addresses(number)
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>(),
            )
        };
        (0..count).map(one).collect()
    }

    fn joins(self, ours: usize, theirs: usize) -> bool {
        match self {
            Self::OwnSubnets => ours == theirs,
            Self::OneSubnet | Self::LinkLocal => true,
            Self::Mixed => (ours == 0) == (theirs == 0),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Probed(CandidateId, bool),
    Connected(CandidateId),
    Silent(CandidateId),
    NotConnected(CandidateId),
    Retry(CandidateId),
    /// Arrival of the peer's list of its interfaces.
    Told,
    Tick,
}

/// Simulation of a client's planner, the two machines and the cables between them.
#[derive(Clone)]
struct World {
    topology: Topology,
    local: Vec<PeerInterface>,
    remote: Vec<PeerInterface>,
    planner: Planner,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u32, What)>>,
    count: u32,
    /// Paths that the planner has created; true for a connected path.
    paths: BTreeMap<CandidateId, bool>,
    /// Interfaces of the client, then of the daemon; true for an interface that carries traffic.
    alive: [Vec<bool>; 2],
    probes: usize,
    /// Number of working links that the planner has closed.
    closed: usize,
}

impl World {
    fn new(topology: Topology, counts: [usize; 2]) -> Self {
        let (local, remote) = (
            topology.side("a", 1, counts[0]),
            topology.side("b", 2, counts[1]),
        );
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        Self {
            topology,
            planner: Planner::new(Pairing::new(local.clone(), remote.clone())),
            local,
            remote,
            now,
            events: BinaryHeap::new(),
            count: 0,
            paths: BTreeMap::new(),
            alive: counts.map(|count| vec![true; count]),
            probes: 0,
            closed: 0,
        }
    }

    fn after(&mut self, pause: Duration, what: What) {
        self.count += 1;
        self.events
            .push(Reverse((self.now + pause, self.count, what)));
    }

    fn carries(&self, id: CandidateId) -> bool {
        let [ours, theirs] = id.indices().map(|index| index as usize);
        self.topology.joins(ours, theirs) && self.alive[0][ours] && self.alive[1][theirs]
    }

    /// Performs the planner's steps, as the library does after each input.
    fn follow(&mut self) {
        let mut begun = Vec::new();
        self.planner.probe(&[], self.now, |candidate| {
            begun.push(candidate.id());
            true
        });
        self.probes += begun.len();
        for id in begun {
            let answered = self.carries(id);
            self.after(
                if answered { MS } else { PROBE_TIMEOUT },
                What::Probed(id, answered),
            );
        }
        while let Some(step) = self.planner.poll_step(&[]) {
            match step {
                Step::Connect(candidate) => {
                    self.paths.insert(candidate.id(), false);
                    self.connect(candidate.id());
                }
                Step::Retire(id) => {
                    let was_up = self.paths.remove(&id);
                    self.closed += usize::from(was_up == Some(true) && self.carries(id));
                }
            }
        }
        if let Some(at) = self.planner.poll_timeout() {
            self.after(at.saturating_duration_since(self.now), What::Tick);
        }
    }

    fn connect(&mut self, id: CandidateId) {
        let (pause, what) = if self.carries(id) {
            (CONNECT_TIME, What::Connected(id))
        } else {
            (CONNECT_TIMEOUT, What::NotConnected(id))
        };
        self.after(pause, what);
    }

    fn apply(&mut self, what: What) {
        match what {
            What::Probed(id, answered) => {
                let answer = if answered {
                    Ok(())
                } else {
                    Err(Obstacle::Silence)
                };
                self.planner.handle_probed(id, answer);
            }
            What::Connected(id) if self.paths.contains_key(&id) && self.carries(id) => {
                self.paths.insert(id, true);
                self.planner.handle_opened(id);
            }
            What::Connected(id) => self.apply(What::NotConnected(id)),
            What::Silent(id) if self.paths.get(&id) == Some(&true) && !self.carries(id) => {
                self.paths.insert(id, false);
                self.planner.handle_lost(id, Obstacle::Silence);
                self.after(RETRY_LONGEST, What::Retry(id));
            }
            What::NotConnected(id) if self.paths.get(&id) == Some(&false) => {
                self.planner.handle_lost(id, Obstacle::Silence);
                self.after(RETRY_LONGEST - CONNECT_TIMEOUT, What::Retry(id));
            }
            What::Retry(id) if self.paths.get(&id) == Some(&false) => self.connect(id),
            What::Silent(_) | What::NotConnected(_) | What::Retry(_) => {}
            What::Told => {
                let local = self.planner.pairing().local.clone();
                self.planner.update(local, self.remote.clone());
            }
            What::Tick => self.planner.handle_timeout(&[], self.now),
        }
    }

    fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Simulates until the condition holds. Returns the simulated duration; `None` if the condition
    /// does not hold within `time`.
    fn run_until(&mut self, time: Duration, is_so: impl Fn(&Self) -> bool) -> Option<Duration> {
        let start = self.now;
        self.follow();
        while !is_so(self) {
            let next = self
                .events
                .peek()
                .map(|Reverse((at, ..))| *at)
                .filter(|at| *at <= start + time);
            let Some(next) = next else {
                self.now = start + time;
                return None;
            };
            self.now = self.now.max(next);
            while let Some(Reverse((at, _, what))) = self.events.peek().copied() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                self.apply(what);
            }
            self.events
                .retain(|Reverse((_, _, what))| *what != What::Tick);
            self.follow();
        }
        Some(self.now - start)
    }

    /// Disables the interfaces whose bits are set in `ends`. The lowest bits are the client's
    /// interfaces.
    fn lose(&mut self, ends: u32, loss: Loss) {
        let [locals, _] = [0, 1].map(|side: usize| self.alive[side].len());
        for side in [0, 1] {
            for number in 0..self.alive[side].len() {
                if ends >> (side * locals + number) & 1 == 1 {
                    self.alive[side][number] = false;
                    let list = if side == 0 {
                        &mut self.local
                    } else {
                        &mut self.remote
                    };
                    list[number].candidate = loss == Loss::Silent;
                }
            }
        }
        let dead: Vec<CandidateId> = self
            .paths
            .iter()
            .filter(|(id, up)| **up && !self.carries(**id))
            .map(|(id, _)| *id)
            .collect();
        for id in dead {
            let ours = id.indices()[0] as usize;
            let is_seen = !self.local[ours].candidate;
            self.after(
                if is_seen { Duration::ZERO } else { FAIL_AFTER },
                What::Silent(id),
            );
        }
        if loss == Loss::Carrier {
            self.planner
                .update(self.local.clone(), self.planner.pairing().remote.clone());
            self.tell();
        }
    }

    /// Sends the peer's list of interfaces to the planner if a link can carry it.
    fn tell(&mut self) {
        if self.links() > 0 {
            self.after(MS, What::Told);
        }
    }

    fn heal(&mut self) {
        self.alive
            .iter_mut()
            .flatten()
            .for_each(|alive| *alive = true);
        self.local
            .iter_mut()
            .chain(&mut self.remote)
            .for_each(|interface| interface.candidate = true);
        self.planner
            .update(self.local.clone(), self.planner.pairing().remote.clone());
    }

    /// Returns the number of links that carry data.
    fn links(&self) -> usize {
        self.paths
            .iter()
            .filter(|(id, up)| **up && self.carries(**id))
            .count()
    }

    /// Returns an upper bound on the number of links between interfaces that carry traffic.
    fn most_links(&self) -> usize {
        let alive = |side: usize, among: fn(usize) -> bool| {
            (0..self.alive[side].len())
                .filter(|n| among(*n) && self.alive[side][*n])
                .count()
        };
        let either = |among| alive(0, among).min(alive(1, among));
        match self.topology {
            Topology::OwnSubnets => (0..4)
                .filter(|n| {
                    [0, 1]
                        .iter()
                        .all(|side| self.alive[*side].get(*n) == Some(&true))
                })
                .count(),
            Topology::OneSubnet | Topology::LinkLocal => either(|_| true),
            Topology::Mixed => either(|n| n == 0) + either(|n| n != 0),
        }
    }
}

/// Returns a simulation with crossed links, as if all other cables were plugged in later. Local
/// interface `n` is linked to the peer's interface `n + crossing` (modulo the count), where the
/// topology permits.
fn joined(topology: Topology, counts: [usize; 2], crossing: usize) -> World {
    let mut world = World::new(topology, counts);
    let ways: Vec<Candidate> = world.planner.pairing().candidates().cloned().collect();
    let is_wanted = |candidate: &&Candidate| {
        let [ours, theirs] = candidate.id().indices().map(|index| index as usize);
        let shifted = match topology {
            Topology::Mixed if ours > 0 && counts[1] > 1 => {
                1 + (ours - 1 + crossing) % (counts[1] - 1)
            }
            Topology::OneSubnet | Topology::LinkLocal => (ours + crossing) % counts[1],
            _ => ours,
        };
        theirs == shifted && topology.joins(ours, theirs)
    };
    let mut used: [BTreeSet<u32>; 2] = Default::default();
    for way in ways.iter().filter(is_wanted) {
        let [ours, theirs] = way.id().indices();
        if !used[0].contains(&ours) && !used[1].contains(&theirs) {
            used[0].insert(ours);
            used[1].insert(theirs);
            world.paths.insert(way.id(), true);
            world.planner.adopt(way.clone());
        }
    }
    world.run_for(Duration::from_secs(10));
    world
}

#[test]
fn whatever_ends_are_lost_data_flow_again_if_any_pair_can_carry_them() {
    let topologies = [
        Topology::OwnSubnets,
        Topology::OneSubnet,
        Topology::LinkLocal,
        Topology::Mixed,
    ];
    let all = std::thread::scope(|scope| {
        topologies
            .map(|topology| scope.spawn(move || all_subsets(topology)))
            .map(|one| one.join().unwrap())
    });
    let Tried {
        subsets,
        longest,
        probes,
    } = all.into_iter().fold(Tried::default(), Tried::and);
    println!(
        "{subsets} subsets; data again after {longest:?} (carrier, silence) at most; {probes} probes at most"
    );
}

/// Worst results over all subsets of interfaces.
#[derive(Debug, Default)]
struct Tried {
    subsets: usize,
    /// Maximum times until data flowed again: after a carrier loss, and after a silent loss.
    longest: [Duration; 2],
    /// Maximum number of probes in one case.
    probes: usize,
}

impl Tried {
    fn and(self, other: Self) -> Self {
        let longest = [0, 1].map(|loss: usize| self.longest[loss].max(other.longest[loss]));
        Self {
            subsets: self.subsets + other.subsets,
            longest,
            probes: self.probes.max(other.probes),
        }
    }
}

fn all_subsets(topology: Topology) -> Tried {
    let mut tried = Tried::default();
    let most = amount(3, 4);
    for (ours, theirs) in (1..=most).flat_map(|ours| (1..=most).map(move |theirs| (ours, theirs))) {
        for crossing in 0..if topology == Topology::OwnSubnets {
            1
        } else {
            theirs
        } {
            let whole = joined(topology, [ours, theirs], crossing);
            assert_eq!(
                whole.links(),
                whole.most_links(),
                "{topology:?} {ours}×{theirs}, crossed by {crossing}"
            );
            for (ends, loss) in (0..1 << (ours + theirs))
                .flat_map(|ends| [(ends, Loss::Carrier), (ends, Loss::Silent)])
            {
                let case = format!(
                    "{topology:?} {ours}×{theirs}, crossed by {crossing}, {loss:?} of {ends:08b}"
                );
                let mut world = whole.clone();
                let mut longest = [Duration::ZERO; 2];
                // Varies the phase of attempts and probes at the time of the repair, so that some
                // time out after it.
                let pause = Duration::from_millis(3000 + tried.subsets as u64 * 37 % 2000);
                longest[usize::from(loss == Loss::Silent)] =
                    lose_and_heal(&mut world, ends, loss, pause, &case);
                tried = tried.and(Tried {
                    subsets: 1,
                    longest,
                    probes: world.probes - whole.probes,
                });
            }
        }
    }
    tried
}

/// Disables a subset of interfaces, then enables it again. Returns the time until data flowed
/// again. Panics unless all usable interfaces have links within `pause` after each change.
fn lose_and_heal(
    world: &mut World,
    ends: u32,
    loss: Loss,
    pause: Duration,
    case: &str,
) -> Duration {
    world.closed = 0;
    world.lose(ends, loss);
    let most = world.most_links();
    let mut taken = Duration::ZERO;
    if most > 0 {
        let bound = Duration::from_secs(if loss == Loss::Carrier { 2 } else { 3 });
        taken = world
            .run_until(bound, |world| world.links() > 0)
            .unwrap_or_else(|| panic!("{case}: nothing after {bound:?}"));
    }
    world.tell();
    world.run_for(pause);
    assert_eq!(
        (world.links(), world.closed),
        (most, 0),
        "{case}: links, and links closed though they carried"
    );
    world.heal();
    // The peer sends its list of interfaces once a link is up.
    world
        .run_until(Duration::from_secs(2), |world| world.links() > 0)
        .unwrap_or_else(|| panic!("{case}: not healed"));
    world.tell();
    world.run_for(pause);
    assert_eq!(
        (world.links(), world.closed),
        (world.most_links(), 0),
        "{case}: healed"
    );
    taken
}

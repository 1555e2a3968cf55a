//! Two machines and what joins them, and the client's session that is under test.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    Event, PathId, PathLoss, Role, Session, SessionConfig,
    message::{Idle, PeerAddress, PeerInterface},
    pairing::{Candidate, CandidateId, Obstacle, Pairing},
    path::{Arrival, NotConnected, Origin, PathPlan},
    session::{FIRST_PATH, LinkTerms, Routed},
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const S: Duration = Duration::from_secs(1);

/// Simulated timeout of a probe, and of the first and later connection attempts.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
const FIRST_TIMEOUT: Duration = Duration::from_millis(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Simulated duration of a connection attempt: TCP, TLS and the greeting.
const CONNECT_TIME: Duration = Duration::from_millis(20);
/// Time after which the daemon closes a silent connection.
const DAEMON_SILENCE: Duration = Duration::from_millis(1500);

const PORT: u16 = 7747;

/// How the interfaces of both machines are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// A cable and a subnet for each pair of interfaces.
    Cables,
    /// One switch and one subnet.
    Switch,
    /// The first pair of interfaces has a cable and a subnet, all others share a switch.
    Mixed,
}

/// Addresses of the interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addressing {
    V4,
    LinkLocal,
    Both,
}

/// How the session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// By an address that an interface of the peer has.
    Address,
    /// By name: the peer is found at a link-local address that no machine lists yet.
    Name,
    /// By ssh, or by a code: the contact is over any address, and not the best way.
    Contact,
    /// Behind NAT: at an address that no interface of the peer has.
    Nat,
    /// The user named all links.
    Named,
}

/// Two machines with these numbers of interfaces, and how the session between them begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) joined: Joined,
    pub(crate) addressing: Addressing,
    pub(crate) counts: [usize; 2],
    pub(crate) start: Start,
    /// True if the client may install host routes.
    pub(crate) has_routes: bool,
}

/// Interface of one of the machines, with its cable.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
    /// False while the link-local address is not listed yet, although it works.
    is_listed: bool,
    /// False if its own cable is unplugged.
    pub(crate) carrier: bool,
    /// Cable or switch into which it is plugged.
    pub(crate) segment: usize,
    /// True if what this interface sends is lost, which no machine detects.
    pub(crate) is_mute: bool,
}

impl Card {
    fn described(&self) -> PeerInterface {
        let v4 = self.v4.map(|ip| (IpAddr::from(ip), 24));
        let v6 = self.v6.filter(|_| self.is_listed);
        let v6 = v6.map(|ip| (IpAddr::from(ip), 64));
        let addresses = v4.into_iter().chain(v6);
        PeerInterface {
            addresses: addresses
                .map(|(ip, prefix_len)| PeerAddress { ip, prefix_len })
                .collect(),
            candidate: self.carrier,
            idle: (!self.carrier).then_some(Idle::NoCarrier),
            line_rate_bps: Some(1_000_000_000),
            ..PeerInterface::new(&*self.name, self.index)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A probe ends: answered, over this card from this address, or not.
    Probed(CandidateId, Option<(usize, IpAddr)>),
    Tried(PathId, u32),
    /// The daemon has closed a connection on which it heard nothing.
    Closed(PathId, u32),
    /// The addresses that were not listed are.
    Listed,
    Routed(PathId),
}

/// Connection of a path, as the network sees it: card here, card there, and its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) ends: [usize; 2],
    /// Address of the peer, which may be that of another card than the one that answers for it.
    remote: IpAddr,
    number: u32,
}

/// Two machines, the network between them, and the client's session.
pub(crate) struct World {
    pub(crate) session: Session,
    pub(crate) now: Instant,
    pub(crate) began: Instant,
    /// Cards of the client, and of the daemon.
    pub(crate) cards: [Vec<Card>; 2],
    /// Card of the daemon that answers ARP requests for each of its cards' addresses.
    pub(crate) answers: Vec<usize>,
    pub(crate) has_flux: bool,
    queue: BinaryHeap<Reverse<(Instant, u32, What)>>,
    count: u32,
    pub(crate) connections: BTreeMap<PathId, Connection>,
    /// Attempts under way, by their numbers.
    attempts: BTreeMap<PathId, u32>,
    /// True if the daemon has a list of interfaces to tell.
    is_to_tell: bool,
    /// The daemon's interfaces, as the client knows them.
    pub(crate) known: Vec<PeerInterface>,
    pub(crate) probes: u32,
    pub(crate) given_up: bool,
    pub(crate) is_automatic: bool,
}

impl World {
    pub(crate) fn new(begun: Begun, seed: u64) -> Self {
        let Begun {
            joined,
            addressing,
            counts,
            start,
            has_routes,
        } = begun;
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let side = |machine: usize| {
            let prefix = ["a", "b"][machine];
            (0..counts[machine])
                .map(|number| card(joined, addressing, prefix, machine, number))
                .collect::<Vec<_>>()
        };
        let mut world = Self {
            session: Session::new(Role::Client, SessionConfig::default(), now),
            now,
            began: now,
            cards: [side(0), side(1)],
            answers: (0..counts[1]).collect(),
            has_flux: false,
            queue: BinaryHeap::new(),
            count: 0,
            connections: BTreeMap::new(),
            attempts: BTreeMap::new(),
            is_to_tell: false,
            known: Vec::new(),
            probes: 0,
            given_up: false,
            is_automatic: start != Start::Named,
        };
        world.begin(start, has_routes, seed);
        world
    }

    fn begin(&mut self, start: Start, has_routes: bool, seed: u64) {
        if start == Start::Name {
            self.cards
                .iter_mut()
                .flatten()
                .for_each(|card| card.is_listed = false);
            self.after(S, What::Listed);
        }
        self.known = self.described(1);
        let pairing = Pairing::new(self.described(0), self.known.clone());
        let own = (0..self.cards[0].len())
            .flat_map(|ours| (0..self.cards[1].len()).map(move |theirs| (ours, theirs)))
            .filter(|(ours, theirs)| {
                self.cards[0][*ours].segment == self.cards[1][*theirs].segment
            });
        let pairs: Vec<(usize, usize)> = own.collect();
        let (ours, theirs) = pairs[seed as usize % pairs.len()];
        let there = &self.cards[1][theirs];
        let (v4, v6) = (there.v4.map(IpAddr::from), there.v6.map(IpAddr::from));
        let address = match start {
            Start::Nat => Some(Ipv4Addr::new(198, 51, 100, 7).into()),
            Start::Name => v6.or(v4),
            _ => v4.or(v6),
        }
        .unwrap();
        let here = &self.cards[0][ours];
        let mut first = PathPlan::new(
            here.name.clone(),
            nicstripe_proto::path::socket_address(address, PORT, here.index),
        );
        first.origin = match start {
            Start::Contact => Origin::ContactOnly,
            Start::Named => Origin::Named,
            _ => Origin::Contact,
        };
        first.complete(&pairing);
        let named = self.named(start, &pairing, &pairs, (ours, theirs));
        let arrival = Arrival {
            interface: Some(self.cards[1][theirs].name.clone()),
            ..Arrival::default()
        };
        self.session
            .handle_arrived(FIRST_PATH, first, &arrival, self.now);
        self.connect_now(FIRST_PATH, [ours, theirs]);
        let terms = LinkTerms {
            is_automatic: start != Start::Named,
            streams: None,
            has_routes,
            port: PORT,
        };
        self.session
            .begin_links(terms, pairing, named, self.now)
            .unwrap();
        self.follow();
    }

    /// Returns the named links besides the first: each further card with another of the peer.
    fn named(
        &self,
        start: Start,
        pairing: &Pairing,
        pairs: &[(usize, usize)],
        first: (usize, usize),
    ) -> Vec<PathPlan> {
        let mut plans = Vec::new();
        if start != Start::Named {
            return plans;
        }
        let mut used = [BTreeSet::from([first.0]), BTreeSet::from([first.1])];
        for (ours, theirs) in pairs {
            let is_own = |candidate: &&Candidate| {
                candidate.local.interface == self.cards[0][*ours].name
                    && candidate.remote.interface == self.cards[1][*theirs].name
            };
            let candidate = pairing.candidates().find(is_own);
            if !used[0].contains(ours)
                && !used[1].contains(theirs)
                && let Some(candidate) = candidate
            {
                used[0].insert(*ours);
                used[1].insert(*theirs);
                plans.push(PathPlan::of(candidate, PORT, Origin::Named, pairing));
            }
        }
        plans
    }

    fn described(&self, machine: usize) -> Vec<PeerInterface> {
        self.cards[machine].iter().map(Card::described).collect()
    }

    fn after(&mut self, pause: Duration, what: What) {
        self.count += 1;
        self.queue
            .push(Reverse((self.now + pause, self.count, what)));
    }

    /// Returns the card of the peer at which packets arrive that a card of the client sends to this
    /// address; `None` if they arrive nowhere.
    fn arrives(&self, ours: usize, address: IpAddr) -> Option<usize> {
        let here = &self.cards[0][ours];
        let is_it = |card: &Card| {
            card.v4.map(IpAddr::from) == Some(address) || card.v6.map(IpAddr::from) == Some(address)
        };
        let meant = match address {
            IpAddr::V4(ip) if ip.octets()[0] == 198 => {
                let mut all = self.cards[1].iter();
                all.position(|card| card.carrier && card.segment == here.segment)?
            }
            _ => self.cards[1].iter().position(is_it)?,
        };
        let there = match address {
            IpAddr::V4(_) if self.has_flux => self.answers[meant],
            _ => meant,
        };
        self.joins(ours, there).then_some(there)
    }

    /// Returns true if packets pass between two cards in both directions.
    pub(crate) fn joins(&self, ours: usize, theirs: usize) -> bool {
        let (here, there) = (&self.cards[0][ours], &self.cards[1][theirs]);
        here.carrier
            && there.carrier
            && here.segment == there.segment
            && !here.is_mute
            && !there.is_mute
    }

    fn card_named(&self, name: &str) -> Option<usize> {
        self.cards[0].iter().position(|card| card.name == name)
    }

    fn connect_now(&mut self, path: PathId, ends: [usize; 2]) {
        self.count += 1;
        let number = self.count;
        let remote = self.session.path(path).unwrap().plan().remote.ip();
        let connection = Connection {
            ends,
            remote,
            number,
        };
        self.connections.insert(path, connection);
    }

    /// Carries out the session's steps.
    fn follow(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Connect(path) => self.connect(path),
                Event::Disconnect(path) | Event::Retire(path) => {
                    self.connections.remove(&path);
                }
                Event::Probe(candidate) => {
                    self.probes += 1;
                    let ours = self.card_named(&candidate.local.interface);
                    let address = candidate.remote.address;
                    let ours = ours.filter(|ours| self.arrives(*ours, address).is_some());
                    let answered = ours.map(|ours| (ours, address));
                    let pause = answered.map_or(PROBE_TIMEOUT, |_| MS);
                    self.after(pause, What::Probed(candidate.id(), answered));
                }
                Event::HoldRoutes(paths) => {
                    for path in paths {
                        self.after(5 * MS, What::Routed(path));
                    }
                }
                Event::GivenUp(_) => self.given_up = true,
                _ => {}
            }
        }
    }

    fn connect(&mut self, path: PathId) {
        let is_first = self.session.path(path).unwrap().connections() == 0;
        let plan = self.session.path(path).unwrap().plan();
        let ours = self.card_named(&plan.interface);
        let arrives = ours.and_then(|ours| self.arrives(ours, plan.remote.ip()));
        let pause = match arrives {
            Some(_) => CONNECT_TIME,
            None if is_first => FIRST_TIMEOUT,
            None => CONNECT_TIMEOUT,
        };
        self.count += 1;
        let number = self.count;
        // A driver makes one attempt at a time.
        if self.attempts.contains_key(&path) {
            return;
        }
        self.attempts.insert(path, number);
        self.after(pause, What::Tried(path, number));
    }

    fn on_tried(&mut self, path: PathId, number: u32) {
        if self.attempts.get(&path) != Some(&number) {
            return;
        }
        self.attempts.remove(&path);
        let Some(known) = self.session.path(path) else {
            return;
        };
        let plan = known.plan();
        let ours = self.card_named(&plan.interface);
        let arrives = ours.and_then(|ours| Some((ours, self.arrives(ours, plan.remote.ip())?)));
        let Some((ours, theirs)) = arrives else {
            let why = NotConnected::Obstacle(Obstacle::Silence);
            self.session
                .handle_not_connected(path, why, "timed out".into(), self.now);
            return;
        };
        let arrival = Arrival {
            interface: Some(self.cards[1][theirs].name.clone()),
            ..Arrival::default()
        };
        if self.session.handle_connected(path, &arrival, self.now) {
            self.connect_now(path, [ours, theirs]);
        }
    }

    fn apply(&mut self, what: What) {
        match what {
            // The cable was moved before the answer came.
            What::Probed(id, Some((ours, address))) if self.arrives(ours, address).is_none() => {
                self.after(PROBE_TIMEOUT, What::Probed(id, None));
            }
            What::Probed(id, answered) => {
                let answer = answered.map(drop).ok_or(Obstacle::Silence);
                self.session.handle_probed(id, answer, self.now);
            }
            What::Tried(path, number) => self.on_tried(path, number),
            What::Closed(path, number) => {
                let connection = self.connections.get(&path);
                if let Some(connection) = connection.filter(|own| own.number == number)
                    && self.is_deaf(connection)
                {
                    self.connections.remove(&path);
                    self.session
                        .handle_path_lost(path, PathLoss::Reset, self.now);
                }
            }
            What::Listed => {
                let cards = self.cards.iter_mut().flatten();
                cards.for_each(|card| card.is_listed = true);
                self.tell_own();
                self.is_to_tell = true;
            }
            What::Routed(path) => {
                self.session
                    .handle_routed(&[(path, Routed::Held)], self.now);
            }
        }
    }

    /// Returns true if the daemon hears nothing on a connection that the client hears.
    fn is_deaf(&self, connection: &Connection) -> bool {
        let [ours, theirs] = connection.ends;
        let (here, there) = (&self.cards[0][ours], &self.cards[1][theirs]);
        let is_joined = here.carrier && there.carrier && here.segment == there.segment;
        is_joined && here.is_mute && !there.is_mute
    }

    pub(crate) fn carries(&self, connection: &Connection) -> bool {
        self.joins(connection.ends[0], connection.ends[1])
    }

    /// Lets the client hear its peer, and learn what that has to tell.
    fn hear(&mut self) {
        let hears = |connection: &Connection| {
            let [ours, theirs] = connection.ends;
            let (here, there) = (&self.cards[0][ours], &self.cards[1][theirs]);
            here.carrier && there.carrier && here.segment == there.segment && !there.is_mute
        };
        let heard: Vec<PathId> = self
            .connections
            .iter()
            .filter(|(_, connection)| hears(connection))
            .map(|(path, _)| *path)
            .collect();
        for path in &heard {
            self.session.handle_heard(*path, self.now);
        }
        let tells = self.connections.values().any(|one| self.carries(one));
        if tells && std::mem::take(&mut self.is_to_tell) {
            self.known = self.described(1);
            self.session
                .handle_peer_interfaces(self.known.clone(), self.now);
        }
    }

    /// Tells the session of the client's own interfaces.
    fn tell_own(&mut self) {
        let names: BTreeSet<String> = self.cards[0].iter().map(|card| card.name.clone()).collect();
        let interfaces = self.described(0);
        self.session.handle_interfaces(interfaces, &names, self.now);
    }

    /// Applies a change of a machine's cards, and reports to the session what the kernels notice.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut [Vec<Card>; 2])) {
        let before = self.cards.clone();
        change(&mut self.cards);
        for (old, new) in before[0].iter().zip(self.cards[0].clone()) {
            if old.carrier != new.carrier {
                self.session
                    .handle_carrier(&old.name, new.carrier, self.now);
                self.follow();
            }
        }
        if self.described(0) != before[0].iter().map(Card::described).collect::<Vec<_>>() {
            self.tell_own();
        }
        self.is_to_tell |=
            self.described(1) != before[1].iter().map(Card::described).collect::<Vec<_>>();
        // Connections of addresses that are gone, and to other cables, do not come back.
        let is_kept = |connection: &Connection| {
            let [ours, theirs] = connection.ends;
            let of = |machine: usize, card: usize| {
                let (old, new) = (&before[machine][card], &self.cards[machine][card]);
                old.v4 == new.v4
            };
            let mut owners = 0..self.cards[1].len();
            let is_owned = owners.all(|card| {
                before[1][card].v4.map(IpAddr::from) != Some(connection.remote) || of(1, card)
            });
            of(0, ours) && of(1, theirs) && is_owned
        };
        let gone: Vec<PathId> = self
            .connections
            .iter()
            .filter(|(_, connection)| !is_kept(connection))
            .map(|(path, _)| *path)
            .collect();
        for path in gone {
            // The end that has lost its address sends nothing any more, so the other hears nothing.
            self.connections.remove(&path);
        }
        let deaf: Vec<(PathId, u32)> = self
            .connections
            .iter()
            .filter(|(_, connection)| self.is_deaf(connection))
            .map(|(path, connection)| (*path, connection.number))
            .collect();
        for (path, number) in deaf {
            self.after(DAEMON_SILENCE, What::Closed(path, number));
        }
        self.follow();
    }

    /// Simulates until the condition holds. Returns the simulated duration; `None` if the condition
    /// does not hold within `time`.
    pub(crate) fn run_until(
        &mut self,
        time: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) -> Option<Duration> {
        let start = self.now;
        while !is_so(self) {
            let queued = self.queue.peek().map(|Reverse((at, ..))| *at);
            let due = self.session.poll_timeout();
            // Often enough that nothing that is heard becomes suspect.
            let heartbeat = (!self.connections.is_empty()).then_some(self.now + 400 * MS);
            let next = queued.into_iter().chain(due).chain(heartbeat).min();
            let Some(next) = next.filter(|at| *at <= start + time) else {
                self.now = start + time;
                self.step();
                return is_so(self).then_some(time);
            };
            self.now = self.now.max(next);
            self.step();
        }
        Some(self.now - start)
    }

    fn step(&mut self) {
        self.hear();
        while let Some(Reverse((at, _, what))) = self.queue.peek().copied() {
            if at > self.now {
                break;
            }
            self.queue.pop();
            self.apply(what);
            self.follow();
        }
        self.session.handle_timeout(self.now);
        self.follow();
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Returns true if data can pass: a connection that the client uses carries.
    pub(crate) fn moves_data(&self) -> bool {
        self.links().next().is_some()
    }

    /// Iterates over the paths that carry data, with their ends.
    pub(crate) fn links(&self) -> impl Iterator<Item = (PathId, [usize; 2])> {
        let carries = |(path, connection): (&PathId, &Connection)| {
            let known = self.session.path(*path)?;
            let is_used = known.state().is_connected() && self.carries(connection);
            is_used.then_some((*path, connection.ends))
        };
        self.connections.iter().filter_map(carries)
    }

    /// Returns the pairs of cards over which the client can reach the peer, to its knowledge: by the
    /// candidates, or by the paths that the user named.
    pub(crate) fn ways(&self) -> BTreeSet<[usize; 2]> {
        let way = |interface: &str, remote: IpAddr| {
            let ours = self.card_named(interface)?;
            Some([ours, self.arrives(ours, remote)?])
        };
        if self.is_automatic {
            let pairing = Pairing::new(self.described(0), self.known.clone());
            let way = |one: &Candidate| way(&one.local.interface, one.remote.address);
            return pairing.candidates().filter_map(way).collect();
        }
        let named = self.session.paths().filter(|(_, path)| !path.is_retired());
        let plans = named.map(|(_, path)| path.plan());
        plans
            .filter_map(|plan| way(&plan.interface, plan.remote.ip()))
            .collect()
    }
}

fn card(
    joined: Joined,
    addressing: Addressing,
    prefix: &str,
    machine: usize,
    number: usize,
) -> Card {
    let segment = match joined {
        Joined::Cables => number,
        Joined::Switch => 0,
        Joined::Mixed => number.min(1),
    };
    let host = match joined {
        Joined::Cables => 1 + machine,
        _ => 10 * (1 + machine) + number,
    };
    let v4 = Ipv4Addr::new(10, 1, segment as u8, host as u8);
    let v6 = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1 + machine as u16, 1 + number as u16);
    Card {
        name: format!("{prefix}{number}"),
        index: number as u32,
        v4: (addressing != Addressing::LinkLocal).then_some(v4),
        v6: (addressing != Addressing::V4).then_some(v6),
        is_listed: true,
        carrier: true,
        segment,
        is_mute: false,
    }
}

//! Test harness: two peers, the simulated links between them, and a virtual clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    ChunkId, ChunkSize, Event as Wanted, FailCode, Grid, HoleMap, Message, Name, Offer, Offering,
    PathId, SessionConfig, SourceIdentity, Subtree, TransferId, TransferStats,
    message::{
        CloseCode, Get, GetTree, OfferKind, Put, PutOptions, PutTree, TreeSource, WalkRules,
    },
    tree::TreeRules,
};
use nicstripe_sim::{End, Event, LinkConfig, LinkId, Network, Rng};

use crate::{
    disk::{Contents, Version},
    live::Live,
    peer::{Outcome, Packet, Peer, Work},
};

/// Seed of all random numbers in a test run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Put,
    Get,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::Put, Self::Get];

    pub(crate) fn sender(self) -> End {
        if self == Self::Put { End::A } else { End::B }
    }
}

/// Number of consecutive `handle_timeout` calls at the same virtual time that counts as a busy
/// loop.
const LIVELOCK: u32 = 50;

type Action = Box<dyn FnOnce(&mut Lab)>;

pub(crate) type Kind = fn(&Message) -> bool;

pub(crate) struct Lab {
    pub(crate) net: Network<Packet>,
    origin: Instant,
    pub(crate) peers: [Peer; 2],
    pub(crate) links: Vec<LinkId>,
    pub(crate) contents: Contents,
    pub(crate) config: SessionConfig,
    pub(crate) direction: Direction,
    pub(crate) transfer: TransferId,
    /// Scale of the simulation: nominal link rates and file sizes divided by the simulated ones.
    /// 64, or 1 in a lab of full size.
    pub(crate) scale: u64,
    pub(crate) jobs: BTreeMap<u64, TestTransfer>,
    pub(crate) next_job: u64,
    same_time: u32,
    /// Chunks that are damaged in flight the next time they are sent.
    pub(crate) damage: BTreeSet<ChunkId>,
    /// Links that damage data: one chunk out of this number is damaged in flight.
    pub(crate) damages: BTreeMap<PathId, u64>,
    pub(crate) chaos: Rng,
    steps: u64,
    /// Subtrees that the receiver claims to have, instead of those on its disk.
    pub(crate) lie: Option<Vec<Subtree>>,
    /// End and kind of the message whose next transmission cuts the link that carries it.
    pub(crate) cut_after: Option<(End, Kind)>,
    /// Arrival time and path of each received chunk.
    pub(crate) arrivals: Vec<(Duration, PathId)>,
    pub(crate) offered: u64,
    /// State of a transfer with a streaming source or sink; `None` for a file.
    pub(crate) live: Option<Live>,
    pub(crate) net_seed: u64,
    /// Holes of the source file, which begin and end at chunk boundaries.
    pub(crate) holes: HoleMap,
    /// Content of the receiver's old file by chunk; `None` if no delta is requested.
    pub(crate) old: Option<BTreeMap<ChunkId, Version>>,
    pub(crate) may_change: bool,
    pub(crate) verbose: bool,
}

pub(crate) enum TestTransfer {
    Work { end: End, process: u64, work: Work },
    Action(Action),
}

impl Lab {
    /// Creates a lab whose links and file are scaled to 1/64, with chunks of 4 KiB instead of 256
    /// KiB. Times are those of a lab of full size.
    ///
    /// Chunk contents are numbers instead of bytes; for bytes see [`Lab::small`].
    pub(crate) fn scaled(seed: Seed, size: u64) -> Self {
        Self::new(seed, Grid::new(size / 64, ChunkSize::MIN), 64, false)
    }

    /// Creates a lab with scaled links like [`Lab::scaled`], with a file of `bytes` real bytes, so
    /// that digests are those of BLAKE3.
    pub(crate) fn small(seed: Seed, bytes: u64) -> Self {
        Self::new(seed, Grid::new(bytes, ChunkSize::MIN), 64, true)
    }

    pub(crate) fn new(seed: Seed, grid: Grid, scale: u64, real: bool) -> Self {
        #[allow(clippy::disallowed_methods)]
        let origin = Instant::now();
        let default = SessionConfig::default();
        let config = SessionConfig {
            sync_bytes: default.sync_bytes / scale,
            ..default
        };
        let mut peers = End::BOTH.map(|end| Peer::new(end, config.clone(), origin));
        peers
            .iter_mut()
            .for_each(|peer| peer.source = seed.0 | 1 << 63);
        Self {
            net: Network::new(seed.0),
            origin,
            peers,
            links: Vec::new(),
            contents: Contents::new(grid, real),
            config,
            direction: Direction::Put,
            transfer: TransferId(0),
            scale,
            jobs: BTreeMap::new(),
            next_job: 0,
            same_time: 0,
            damage: BTreeSet::new(),
            damages: BTreeMap::new(),
            chaos: Rng::new(!seed.0),
            steps: 0,
            lie: None,
            cut_after: None,
            arrivals: Vec::new(),
            offered: 0,
            live: None,
            net_seed: seed.0,
            holes: HoleMap::default(),
            old: None,
            may_change: false,
            verbose: std::env::var_os("NICSTRIPE_TRACE").is_some(),
        }
    }

    /// Adds a link of `mbit` Mbit/s with a delay of 0.1 ms in each direction.
    pub(crate) fn link(self, mbit: u64) -> Self {
        self.link_with(mbit, us(100), Duration::ZERO)
    }

    pub(crate) fn link_with(mut self, mbit: u64, delay: Duration, jitter: Duration) -> Self {
        let config = LinkConfig::new(mbit * 1_000_000 / self.scale, delay)
            .jitter(jitter)
            .send_buffer(128 * 1024 / self.scale)
            .window(4 * 1024 * 1024 / self.scale)
            .handshake_round_trips(3);
        self.links.push(self.net.add_link(config));
        self
    }

    pub(crate) fn direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    pub(crate) fn at(&mut self, at: Duration, action: impl FnOnce(&mut Lab) + 'static) {
        self.schedule(at, TestTransfer::Action(Box::new(action)));
    }

    /// Adds a hole of `count` chunks from the chunk `first` to the source. Must be called before
    /// the start.
    pub(crate) fn add_hole(&mut self, first: u64, count: u64) {
        let grid = self.contents.grid;
        let range =
            nicstripe_proto::ChunkRange::new(ChunkId(first), count.min(grid.chunk_count() - first));
        self.holes
            .push(grid.extent_of_range(range).unwrap(), grid.size)
            .unwrap();
        self.contents.holes.insert(range);
    }

    pub(crate) fn start(&mut self) {
        let now = self.now();
        for index in 0..self.links.len() {
            let path = PathId(index as u16);
            self.peers[0].session.add_path(path, now);
            self.connect(path);
        }
        self.begin();
    }

    /// Starts another transfer of the file in the current session.
    pub(crate) fn begin(&mut self) {
        self.transfer.0 += 1;
        self.offered = self.peer(self.direction.sender()).source;
        let (transfer, name) = (self.transfer, Name::new(["file"]).unwrap());
        let offering = Offering {
            holes: self.holes.clone(),
            may_change: self.may_change,
        };
        let sender = self.direction.sender();
        self.peer_mut(sender).session.prepare(transfer, offering);
        match self.direction {
            Direction::Put if self.kind() == OfferKind::Batches => {
                self.peers[0].open.insert(transfer);
                let put = PutTree {
                    transfer,
                    target: Some(name),
                    as_name: false,
                    rules: TreeRules::default(),
                    heeds_memory: false,
                };
                self.peers[0].session.put_tree(put);
            }
            Direction::Get if self.kind() == OfferKind::Batches => {
                let sources = vec![TreeSource {
                    name: Some(name),
                    content: false,
                }];
                let get = GetTree {
                    transfer,
                    sources,
                    walk: WalkRules::default(),
                    rules: TreeRules::default(),
                    limit_bps: None,
                };
                self.peers[0].session.get_tree(get);
            }
            Direction::Put => {
                let put = Put {
                    name,
                    offer: self.offer(transfer),
                    options: PutOptions::default(),
                    into: None,
                    entry: None,
                };
                self.peers[0].open.insert(transfer);
                self.peers[0].session.put(put).unwrap();
            }
            Direction::Get => {
                let get = Get {
                    transfer,
                    name,
                    limit_bps: None,
                    entry: None,
                    compress: false,
                    allow_changing: false,
                    range: None,
                };
                self.peers[0].session.get(get);
            }
        }
    }

    pub(crate) fn offer(&self, transfer: TransferId) -> Offer {
        let kind = self.live.as_ref().map(|live| live.plan.kind);
        let size = if self.kind() == OfferKind::File {
            self.contents.grid.size
        } else {
            0
        };
        let source = SourceIdentity {
            size,
            ..SourceIdentity::default()
        };
        let data = (!self.holes.is_empty()).then(|| self.contents.grid.size - self.holes.bytes());
        Offer {
            transfer,
            source,
            chunk_log2: self.contents.grid.chunk_size.log2(),
            mode: 0o644,
            kind,
            data,
        }
    }

    /// Kills the process of one end, restarts both, and starts the transfer again. A killed
    /// receiver loses data that is not durable; otherwise the receiver shuts down cleanly.
    pub(crate) fn restart(&mut self, killed: End) {
        let receiver = self.direction.sender().other();
        if killed == receiver {
            self.crash(receiver);
        } else {
            self.end_in_order(receiver);
        }
        self.begin_anew();
    }

    /// Simulates a power loss of `end`, which loses all data that is not durable.
    fn crash(&mut self, end: End) {
        let (grid, under_way) = (self.contents.grid, self.syncs(end).concat());
        self.peers[end as usize]
            .disk
            .crash(grid, &under_way, &mut self.chaos);
    }

    pub(crate) fn crash_both(&mut self) {
        self.crash(self.direction.sender().other());
        self.begin_anew();
    }

    /// Replaces both peers by new ones that keep disk and source, and starts the transfer again.
    fn begin_anew(&mut self) {
        let now = self.now();
        for end in End::BOTH {
            (0..self.links.len()).for_each(|index| self.net.close(self.links[index], end));
            let mut new = Peer::new(end, self.config.clone(), now);
            let old = self.peer_mut(end);
            (new.disk, new.source, new.process) =
                (std::mem::take(&mut old.disk), old.source, old.process + 1);
            self.peers[end as usize] = new;
        }
        self.start();
    }

    /// Makes the received data of a failed transfer durable, so that the next transfer can resume
    /// from it. Does nothing at the sender.
    pub(crate) fn let_go(&mut self, end: End, transfer: TransferId) {
        if end != self.direction.sender().other() || self.live.is_some() {
            return;
        }
        let grid = self.contents.grid;
        let of_it = |job: &TestTransfer| matches!(job, TestTransfer::Work { work: Work::Sync { transfer: of, .. }, end: at, .. } if *of == transfer && *at == end);
        let under_way: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| of_it(job))
            .map(|(number, _)| *number)
            .collect();
        for number in under_way {
            if let Some(TestTransfer::Work {
                work: Work::Sync { subtrees, .. },
                ..
            }) = self.jobs.remove(&number)
            {
                self.peer_mut(end).disk.sync(grid, &subtrees);
            }
        }
        let peer = self.peer_mut(end);
        if let Some(subtrees) = peer.session.take_unsynced(transfer) {
            peer.disk.sync(grid, &subtrees);
        }
        peer.disk.restart();
    }

    fn syncs(&self, of: End) -> Vec<Vec<Subtree>> {
        let syncs = self.jobs.values().filter_map(|job| match job {
            TestTransfer::Work {
                work: Work::Sync { subtrees, .. },
                end,
                process,
            } => (*end == of && *process == self.peers[of as usize].process)
                .then(|| subtrees.clone()),
            _ => None,
        });
        syncs.collect()
    }

    /// Shuts the receiver down cleanly: all verified data becomes durable.
    fn end_in_order(&mut self, receiver: End) {
        let (grid, transfer, now) = (self.contents.grid, self.transfer, self.now());
        let (syncs, later) = (self.syncs(receiver), now + self.config.sync_interval);
        let peer = self.peer_mut(receiver);
        peer.session.close(CloseCode::ShuttingDown);
        while let Some(event) = peer.session.poll_event() {
            if let Wanted::Sync { subtrees, .. } = event {
                peer.disk.sync(grid, &subtrees);
                peer.session.handle_synced(transfer, now);
            }
        }
        // From here on events are no longer polled.
        for subtrees in syncs {
            peer.disk.sync(grid, &subtrees);
            peer.session.handle_synced(transfer, later);
        }
        if let Some(subtrees) = peer.session.take_unsynced(transfer) {
            peer.disk.sync(grid, &subtrees);
        }
        let wanted: Vec<Wanted> = std::iter::from_fn(|| peer.session.poll_event()).collect();
        assert!(
            !wanted
                .iter()
                .any(|event| matches!(event, Wanted::Sync { .. })),
            "no receiver for this sync: {wanted:?}"
        );
        peer.disk
            .written
            .retain(|chunk, _| peer.disk.durable.contains(*chunk));
        peer.disk.restart();
    }

    /// Runs until both ends know the outcome of the transfer, and returns the virtual time. Panics
    /// at the time `limit`.
    pub(crate) fn run(&mut self, limit: Duration) -> Duration {
        self.run_while(limit, |lab| {
            lab.peers
                .iter()
                .any(|peer| !peer.outcomes.contains_key(&lab.transfer))
        });
        self.net.now()
    }

    pub(crate) fn run_while(&mut self, limit: Duration, mut condition: impl FnMut(&Lab) -> bool) {
        self.pump_both();
        while condition(self) {
            assert!(
                self.net.now() <= limit,
                "not finished after {limit:?}: {}",
                self.describe()
            );
            self.step(limit + ms(1));
        }
    }

    /// Runs until the virtual time `until`.
    pub(crate) fn run_until(&mut self, until: Duration) {
        self.pump_both();
        while self.net.now() < until {
            self.step(until);
        }
    }

    fn step(&mut self, limit: Duration) {
        let before = self.net.now();
        let deadline = self
            .peers
            .iter()
            .filter_map(|peer| {
                Some(
                    peer.session
                        .poll_timeout()?
                        .0
                        .saturating_duration_since(self.origin),
                )
            })
            .min();
        let until = deadline
            .map_or(limit, |deadline| deadline.min(limit))
            .max(before);
        match self.net.next_until(until) {
            Some(event) => match self.on_event(event) {
                Some(end) => self.pump(end),
                None => self.pump_both(),
            },
            None => {
                self.on_timeouts();
                self.pump_both();
            }
        }
        self.same_time = if self.net.now() > before {
            0
        } else {
            self.same_time
        };
        self.check();
    }

    fn on_timeouts(&mut self) {
        let now = self.now();
        self.same_time += 1;
        for peer in &mut self.peers {
            let due = peer.session.poll_timeout().filter(|(at, _)| *at <= now);
            if due.is_some() {
                assert!(
                    self.same_time < LIVELOCK,
                    "{:?}: timeout stays in the past: {due:?}",
                    peer.end
                );
                peer.session.handle_timeout(now);
            }
        }
    }

    fn on_event(&mut self, event: Event<Packet>) -> Option<End> {
        if self.verbose {
            let text = format!("{event:?}");
            eprintln!("{:?} {}", self.net.now(), &text[..text.len().min(200)]);
        }
        match event {
            Event::Opened { link, end } => {
                self.on_opened(path_of(link), end);
                Some(end)
            }
            Event::Closed { link, end, reason } => {
                self.on_closed(path_of(link), end, reason);
                Some(end)
            }
            Event::Delivered { link, to, message } => {
                self.on_packet(path_of(link), to, message);
                Some(to)
            }
            Event::Writable { end, .. } => Some(end),
            Event::Timer { token } => match self.jobs.remove(&token)? {
                TestTransfer::Action(action) => {
                    action(self);
                    None
                }
                TestTransfer::Work { end, process, work } => {
                    if process == self.peer(end).process {
                        self.on_work(end, work);
                    }
                    Some(end)
                }
            },
        }
    }

    fn check(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(16) {
            self.check_acknowledged();
        }
        for peer in &self.peers {
            for (path, writing) in &peer.writing {
                let held = peer
                    .session
                    .paths()
                    .find(|(id, _)| id == path)
                    .unwrap()
                    .1
                    .held_chunks();
                assert!(
                    *writing <= self.config.credit_window,
                    "{:?}: {writing} chunks in memory for {path:?}",
                    peer.end
                );
                assert_eq!(*writing, held, "{:?} {path:?}", peer.end);
            }
            for (path, connection) in &peer.connections {
                let waiting = connection.chunks_waiting();
                assert!(
                    waiting <= 16,
                    "{:?}: {waiting} chunks wait for {path:?}",
                    peer.end
                );
            }
        }
        self.check_live();
    }

    /// Checks that the sender counts no more bytes as delivered than the receiver has written.
    fn check_acknowledged(&self) {
        if self
            .peers
            .iter()
            .any(|peer| peer.outcomes.contains_key(&self.transfer))
        {
            return;
        }
        let (acknowledged, written) = (
            self.sender_stats().delivered_bytes,
            self.receiver_stats().delivered_bytes,
        );
        assert!(
            acknowledged <= written,
            "{acknowledged} bytes are acknowledged, {written} written"
        );
    }

    /// Returns true if both ends report that the file was committed.
    pub(crate) fn is_delivered(&self) -> bool {
        self.peers.iter().all(|peer| {
            matches!(
                peer.outcomes.get(&self.transfer),
                Some(Outcome::Committed(_))
            )
        })
    }

    /// Checks that the sender reports the transfer as failed.
    ///
    /// Either the receiver reports a failure as well, and has no file. Or the file is committed,
    /// and the sender failed to read data for a retransmission that was no longer necessary.
    pub(crate) fn assert_failed(&self) {
        let failed = |peer: &Peer| !matches!(peer.outcomes[&self.transfer], Outcome::Committed(_));
        let is_there = self.receiver().disk.committed.is_some();
        assert!(
            failed(self.sender()) && (failed(self.receiver()) || is_there),
            "{}",
            self.describe()
        );
        let by_reading =
            self.sender().outcomes[&self.transfer] == Outcome::FailedHere(FailCode::Io);
        assert!(
            !is_there || by_reading,
            "committed, but reported as failed: {}",
            self.describe()
        );
    }

    pub(crate) fn assert_delivered(&self) {
        let digest = self.contents.digest(self.offered);
        for peer in &self.peers {
            assert_eq!(
                peer.outcomes.get(&self.transfer),
                Some(&Outcome::Committed(digest)),
                "{:?}",
                peer.end
            );
        }
        assert_eq!(self.receiver().disk.committed, Some(digest));
        self.assert_all_given_and_taken();
    }

    pub(crate) fn describe(&self) -> String {
        let of = |peer: &Peer| {
            let paths: Vec<_> = peer
                .session
                .paths()
                .map(|(id, path)| (id.0, path.state()))
                .collect();
            let stats = peer.session.stats(self.transfer);
            format!(
                "{:?}: {paths:?} {stats:?} next {:?}",
                peer.end,
                peer.session.poll_timeout()
            )
        };
        format!(
            "at {:?}\n{}\n{}",
            self.net.now(),
            of(&self.peers[0]),
            of(&self.peers[1])
        )
    }

    pub(crate) fn sender(&self) -> &Peer {
        self.peer(self.direction.sender())
    }

    pub(crate) fn receiver(&self) -> &Peer {
        self.peer(self.direction.sender().other())
    }

    pub(crate) fn sender_stats(&self) -> TransferStats {
        self.sender().session.stats(self.transfer)
    }

    pub(crate) fn receiver_stats(&self) -> TransferStats {
        self.receiver().session.stats(self.transfer)
    }

    pub(crate) fn peer(&self, end: End) -> &Peer {
        &self.peers[end as usize]
    }

    pub(crate) fn peer_mut(&mut self, end: End) -> &mut Peer {
        &mut self.peers[end as usize]
    }

    /// Heals a cut link. The client detects the carrier after 3 ms.
    pub(crate) fn heal(&mut self, index: usize) {
        self.net.heal(self.links[index]);
        self.schedule_work(
            End::A,
            self.net.now() + ms(3),
            Work::CarrierUp(PathId(index as u16)),
        );
    }

    /// Ends the silence of a link, without a change of carrier that the client could detect.
    pub(crate) fn heal_silently(&mut self, index: usize) {
        self.net.heal(self.links[index]);
    }

    pub(crate) fn cut(&mut self, index: usize) {
        self.net.cut(self.links[index]);
    }

    pub(crate) fn silence(&mut self, index: usize, from: End) {
        self.net.silence(self.links[index], from);
    }

    pub(crate) fn now(&self) -> Instant {
        self.origin + self.net.now()
    }
}

pub(crate) const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn mib(mib: u64) -> u64 {
    mib << 20
}

fn path_of(link: LinkId) -> PathId {
    PathId(link.index() as u16)
}

/// Returns the duration of a transfer at the sum of the links' rates in Mbit/s.
pub(crate) fn ideal(mbit: &[u64], size: u64) -> Duration {
    Duration::from_secs_f64(size as f64 * 8.0 / (mbit.iter().sum::<u64>() as f64 * 1e6))
}

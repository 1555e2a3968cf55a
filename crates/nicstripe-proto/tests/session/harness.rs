//! The lab: two peers, their links, one clock. Drives the sessions as `crates/nicstripe/src/session/driver.rs` does.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    ChunkId, ChunkSize, Digest, Event as Wanted, FailCode, Frame, Grid, Incoming, Message, Name, Offer, PathId, PathLoss, PathState,
    SessionConfig, SourceIdentity, Subtree, TransferId, TransferStats, Transmit,
    message::{Committed, Get, Put, PutOptions},
    session::failure,
};
use nicstripe_sim::{CloseReason, End, Event, LinkConfig, LinkId, Network};

use crate::{
    disk::Contents,
    peer::{Connection, Outcome, Packet, Peer, Work},
};

/// What a run's randomness comes from; printed when a test fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

/// Which way the file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Put,
    Get,
}

impl Direction {
    pub const BOTH: [Self; 2] = [Self::Put, Self::Get];

    pub fn sender(self) -> End {
        if self == Self::Put { End::A } else { End::B }
    }
}

/// Time for a connection to be made, as the client's connector has it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls of `handle_timeout` without any time passing that count as a busy loop.
const LIVELOCK: u32 = 50;

/// Frames that wait for a connection at most, as the driver has it.
const OUTGOING_QUEUE: usize = 256;

const HASHING_AT_ONCE: u32 = 2;

/// Parts of a chunk that arrive one by one.
const PIECES: u64 = 4;

type Action = Box<dyn FnOnce(&mut Lab)>;

pub struct Lab {
    pub net: Network<Packet>,
    origin: Instant,
    pub peers: [Peer; 2],
    pub links: Vec<LinkId>,
    pub contents: Contents,
    pub config: SessionConfig,
    pub direction: Direction,
    pub transfer: TransferId,
    /// Bytes of a file for one byte on the wire.
    scale: u64,
    jobs: BTreeMap<u64, Job>,
    next_job: u64,
    same_time: u32,
    /// Chunks whose next copy is damaged on its way.
    pub damage: BTreeSet<ChunkId>,
    /// What the receiver claims to have, whatever it has.
    pub lie: Option<Vec<Subtree>>,
    /// The link that carries this end's next message of this kind is cut as it is sent.
    pub cut_after: Option<(End, fn(&Message) -> bool)>,
    /// When and on which path each chunk arrived.
    pub arrivals: Vec<(Duration, PathId)>,
    offered: u64,
    pub verbose: bool,
}

enum Job {
    Work { end: End, process: u64, work: Work },
    Action(Action),
}

impl Lab {
    /// A lab whose links carry 1/64 of what they say, with chunks of 4 KiB for 256 KiB: all times are those of the full size.
    pub fn scaled(seed: Seed, size: u64) -> Self {
        Self::new(seed, Grid::new(size / 64, ChunkSize::MIN), 64, true)
    }

    /// A lab of full size with contents that are not hashed.
    pub fn full(seed: Seed, size: u64) -> Self {
        Self::new(seed, Grid::new(size, ChunkSize::DEFAULT), 1, false)
    }

    pub fn new(seed: Seed, grid: Grid, scale: u64, real: bool) -> Self {
        #[allow(clippy::disallowed_methods)]
        let origin = Instant::now();
        let default = SessionConfig::default();
        let config = SessionConfig { sync_bytes: default.sync_bytes / scale, ..default };
        let mut peers = End::BOTH.map(|end| Peer::new(end, config.clone(), origin));
        peers.iter_mut().for_each(|peer| peer.source = seed.0 | 1 << 63);
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
            lie: None,
            cut_after: None,
            arrivals: Vec::new(),
            offered: 0,
            verbose: std::env::var_os("NICSTRIPE_TRACE").is_some(),
        }
    }

    /// Adds a link of so many Mbit/s with 0.1 ms each way.
    pub fn link(self, mbit: u64) -> Self {
        self.link_with(mbit, us(100), Duration::ZERO)
    }

    pub fn link_with(mut self, mbit: u64, delay: Duration, jitter: Duration) -> Self {
        let config = LinkConfig::new(mbit * 1_000_000 / self.scale, delay)
            .jitter(jitter)
            .send_buffer(128 * 1024 / self.scale)
            .window(4 * 1024 * 1024 / self.scale)
            .handshake_round_trips(3);
        self.links.push(self.net.add_link(config));
        self
    }

    pub fn direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    pub fn at(&mut self, at: Duration, action: impl FnOnce(&mut Lab) + 'static) {
        self.schedule(at, Job::Action(Box::new(action)));
    }

    /// Connects all links and starts a transfer.
    pub fn start(&mut self) {
        let now = self.now();
        for index in 0..self.links.len() {
            let path = PathId(index as u16);
            self.peers[0].session.add_path(path, now);
            self.connect(path);
        }
        self.begin();
    }

    /// Starts another transfer in the session there is.
    pub fn begin(&mut self) {
        self.transfer.0 += 1;
        self.offered = self.peer(self.direction.sender()).source;
        let (transfer, name) = (self.transfer, Name::new(["file"]).unwrap());
        match self.direction {
            Direction::Put => {
                let put = Put { name, offer: self.offer(transfer), options: PutOptions::default(), into: None };
                self.peers[0].open.insert(transfer);
                self.peers[0].session.put(put).unwrap();
            }
            Direction::Get => self.peers[0].session.get(Get { transfer, name, limit_bps: None }),
        }
    }

    fn offer(&self, transfer: TransferId) -> Offer {
        let source = SourceIdentity { size: self.contents.grid.size, ..SourceIdentity::default() };
        Offer { transfer, source, chunk_log2: self.contents.grid.chunk_size.log2(), mode: 0o644 }
    }

    /// Both processes begin anew, after one of them was killed; what the receiver had not made durable is lost if it was the one.
    pub fn restart(&mut self, killed: End) {
        let (receiver, now) = (self.direction.sender().other(), self.now());
        if killed == receiver {
            self.peer_mut(receiver).disk.crash();
        } else {
            self.end_in_order(receiver);
        }
        for end in End::BOTH {
            (0..self.links.len()).for_each(|index| self.net.close(self.links[index], end));
            let mut new = Peer::new(end, self.config.clone(), now);
            let old = self.peer_mut(end);
            (new.disk, new.source, new.process) = (std::mem::take(&mut old.disk), old.source, old.process + 1);
            self.peers[end as usize] = new;
        }
        self.start();
    }

    /// What was written becomes durable.
    fn end_in_order(&mut self, receiver: End) {
        let (grid, transfer, now) = (self.contents.grid, self.transfer, self.now());
        let syncs = self.jobs.values().filter_map(|job| match job {
            Job::Work { work: Work::Sync { subtrees, .. }, end, process } => {
                (*end == receiver && *process == self.peers[receiver as usize].process).then(|| subtrees.clone())
            }
            _ => None,
        });
        let syncs: Vec<_> = syncs.collect();
        let peer = self.peer_mut(receiver);
        for subtrees in syncs {
            peer.disk.sync(grid, &subtrees);
            peer.session.handle_synced(transfer, now);
        }
        while let Some(event) = peer.session.poll_event() {
            if let Wanted::Sync { subtrees, .. } = event {
                peer.disk.sync(grid, &subtrees);
                peer.session.handle_synced(transfer, now);
            }
        }
        if let Some(subtrees) = peer.session.take_unsynced(transfer, now) {
            peer.disk.sync(grid, &subtrees);
        }
        peer.disk.written.retain(|chunk, _| peer.disk.durable.contains(*chunk));
        peer.disk.restart();
    }

    /// Runs until both ends know how the transfer ended; returns when that was.
    pub fn run(&mut self, limit: Duration) -> Duration {
        self.run_while(limit, |lab| lab.peers.iter().any(|peer| !peer.outcomes.contains_key(&lab.transfer)));
        self.net.now()
    }

    pub fn run_while(&mut self, limit: Duration, mut condition: impl FnMut(&Lab) -> bool) {
        self.pump_both();
        while condition(self) {
            assert!(self.net.now() <= limit, "not finished after {limit:?}: {}", self.describe());
            self.step(limit + ms(1));
        }
    }

    /// Runs until `until`, whatever happens.
    pub fn run_until(&mut self, until: Duration) {
        self.pump_both();
        while self.net.now() < until {
            self.step(until);
        }
    }

    /// Lets the next thing happen.
    fn step(&mut self, limit: Duration) {
        let before = self.net.now();
        let deadline = self.peers.iter().filter_map(|peer| Some(peer.session.poll_timeout()?.0.saturating_duration_since(self.origin))).min();
        let until = deadline.map_or(limit, |deadline| deadline.min(limit)).max(before);
        match self.net.next_until(until) {
            Some(event) => self.on_event(event),
            None => self.on_timeouts(),
        }
        self.pump_both();
        self.same_time = if self.net.now() > before { 0 } else { self.same_time };
        self.check();
    }

    fn on_timeouts(&mut self) {
        let now = self.now();
        self.same_time += 1;
        for peer in &mut self.peers {
            let due = peer.session.poll_timeout().filter(|(at, _)| *at <= now);
            if due.is_some() {
                assert!(self.same_time < LIVELOCK, "{:?}: timeout in the past for ever: {due:?}", peer.end);
                peer.session.handle_timeout(now);
            }
        }
    }

    fn on_event(&mut self, event: Event<Packet>) {
        if self.verbose {
            let text = format!("{event:?}");
            eprintln!("{:?} {}", self.net.now(), &text[..text.len().min(200)]);
        }
        match event {
            Event::Opened { link, end } => self.on_opened(path_of(link), end),
            Event::Closed { link, end, reason } => self.on_closed(path_of(link), end, reason),
            Event::Delivered { link, to, message } => self.on_packet(path_of(link), to, message),
            Event::Writable { .. } => {}
            Event::Timer { token } => match self.jobs.remove(&token) {
                Some(Job::Action(action)) => action(self),
                Some(Job::Work { end, process, work }) if process == self.peer(end).process => self.on_work(end, work),
                _ => {}
            },
        }
    }

    fn on_opened(&mut self, path: PathId, end: End) {
        let (now, opened) = (self.now(), self.net.now());
        let peer = self.peer_mut(end);
        peer.connecting.remove(&path);
        peer.connections.insert(path, Connection { opened, ..Connection::default() });
        peer.session.handle_path_open(path, now);
    }

    fn on_closed(&mut self, path: PathId, end: End, reason: CloseReason) {
        let now = self.now();
        let peer = self.peer_mut(end);
        let loss = match (peer.connecting.remove(&path), reason) {
            (Some(_), _) => PathLoss::Unreachable,
            (None, CloseReason::CarrierLost) => PathLoss::CarrierLost,
            _ => PathLoss::Reset,
        };
        peer.connections.remove(&path);
        peer.session.handle_path_lost(path, loss, now);
    }

    fn on_packet(&mut self, path: PathId, to: End, packet: Packet) {
        let now = self.now();
        let peer = self.peer_mut(to);
        if !peer.connections.contains_key(&path) {
            return;
        }
        match packet {
            Packet::Piece { .. } => peer.session.handle_heard(path, now),
            Packet::Frame { frame, .. } => peer.session.handle_frame(path, frame, now).unwrap(),
            Packet::Chunk { header, content, .. } => match peer.session.handle_chunk(path, &header, now).unwrap() {
                Incoming::Write { grid, offset } => {
                    assert_eq!(grid.extent_of(header.chunk).unwrap().offset, offset);
                    *peer.writing.entry(path).or_default() += 1;
                    peer.most_writing = peer.most_writing.max(peer.writing.values().sum());
                    let at = self.net.now();
                    self.arrivals.push((at, path));
                    self.work(to, Work::Write { path, header, content });
                }
                Incoming::Drop => {}
            },
        }
    }

    /// Starts work on the disk, or finds it done at once where the disk takes no time.
    fn work(&mut self, end: End, work: Work) {
        let disk = &self.peer(end).disk;
        let takes = match work {
            Work::Read { .. } | Work::Hash { .. } => disk.read_delay,
            Work::Write { .. } => disk.write_delay,
            Work::Sync { .. } | Work::Commit { .. } => disk.sync_delay,
            _ => us(50),
        };
        let at = self.net.now().max(disk.stalled_until) + takes;
        self.schedule_work(end, at, work);
    }

    fn schedule_work(&mut self, end: End, at: Duration, work: Work) {
        let process = self.peer(end).process;
        self.schedule(at, Job::Work { end, process, work });
    }

    fn schedule(&mut self, at: Duration, job: Job) {
        self.net.set_timer(at, self.next_job);
        self.jobs.insert(self.next_job, job);
        self.next_job += 1;
    }

    fn on_work(&mut self, end: End, work: Work) {
        let stalled_until = self.peer(end).disk.stalled_until;
        if work.is_disk() && stalled_until > self.net.now() {
            return self.schedule_work(end, stalled_until, work);
        }
        let (now, grid) = (self.now(), self.contents.grid);
        match work {
            Work::OpenTarget(transfer) => {
                let have = self.lie.take().unwrap_or_else(|| self.peer(end).disk.journal.clone());
                let peer = self.peer_mut(end);
                peer.open.insert(transfer);
                peer.session.accept(transfer, have);
            }
            Work::OpenSource(transfer) => {
                let offer = self.offer(transfer);
                self.peer_mut(end).open.insert(transfer);
                self.peer_mut(end).session.offer(offer).unwrap();
            }
            Work::Read { path, transfer, chunk } => self.on_read(end, path, transfer, chunk),
            Work::Hash { transfer, chunk } => {
                let value = self.contents.value(self.peer(end).source, chunk);
                let peer = self.peer_mut(end);
                peer.hashing -= 1;
                peer.session.handle_chunk_hashed(transfer, chunk, value);
            }
            Work::Write { path, header, content } => self.on_write(end, path, header, content),
            Work::Sync { transfer, subtrees } => {
                let peer = self.peer_mut(end);
                peer.disk.sync(grid, &subtrees);
                peer.session.handle_synced(transfer, now);
            }
            Work::Check(transfer) => {
                if self.peer(end).source == self.offered {
                    self.peer_mut(end).session.complete(transfer, Vec::new());
                } else {
                    self.fail(end, transfer, FailCode::SourceChanged);
                }
            }
            Work::Commit { transfer, digest } => self.on_commit(end, transfer, digest),
            Work::ConnectTimeout { path, attempt } => {
                if self.peer(end).connecting.get(&path) == Some(&attempt) {
                    self.peer_mut(end).connecting.remove(&path);
                    self.net.close(self.links[path.0 as usize], end);
                    self.peer_mut(end).session.handle_path_lost(path, PathLoss::Unreachable, now);
                }
            }
            Work::CarrierUp(path) => {
                if !self.peer(end).connections.contains_key(&path) {
                    self.connect(path);
                }
            }
        }
    }

    fn on_read(&mut self, end: End, path: PathId, transfer: TransferId, chunk: ChunkId) {
        let (now, mut content) = (self.now(), self.peer(end).source);
        let value = self.contents.value(content, chunk);
        let Some(header) = self.peer_mut(end).session.handle_chunk_read(path, transfer, chunk, value, now) else { return };
        if self.damage.remove(&chunk) {
            content = !content;
        }
        let wire_len = (u64::from(header.len) / PIECES).max(1);
        let peer = self.peer_mut(end);
        peer.sent_chunks += 1;
        let Some(connection) = peer.connections.get_mut(&path) else { panic!("a chunk for {path:?}, which has no connection") };
        connection.outbox.extend((1..PIECES).map(|_| Packet::Piece { wire_len }));
        connection.outbox.push_back(Packet::Chunk { header, content, wire_len });
    }

    fn on_write(&mut self, end: End, path: PathId, header: nicstripe_proto::DataHeader, content: u64) {
        let (now, value) = (self.now(), self.contents.value(content, header.chunk));
        let peer = self.peer_mut(end);
        *peer.writing.get_mut(&path).unwrap() -= 1;
        if value != header.value {
            peer.session.handle_chunk_damaged(path, header.transfer, header.chunk);
            self.lose(end, path, PathLoss::Protocol);
        } else if peer.disk.full_at.is_some_and(|most| peer.disk.written.len() >= most) {
            peer.session.handle_chunk_unwritten(path, header.transfer, header.chunk);
            self.fail(end, header.transfer, FailCode::NoSpace);
        } else {
            if peer.open.contains(&header.transfer) {
                peer.disk.written.insert(header.chunk, content);
            }
            peer.session.handle_chunk_written(path, header.transfer, header.chunk, header.value, now);
        }
    }

    fn on_commit(&mut self, end: End, transfer: TransferId, digest: Digest) {
        let (sent, chunks) = (self.offered, self.contents.grid.all_chunks());
        assert_eq!(digest, self.contents.digest(sent), "committed what was not sent");
        let peer = self.peer_mut(end);
        assert!(chunks.chunks().all(|chunk| peer.disk.written.get(&chunk) == Some(&sent)), "committed with a hole or a wrong chunk");
        assert_eq!(peer.disk.committed.replace(digest), None, "committed twice");
        if !peer.outcomes.contains_key(&transfer) {
            peer.session.committed(Committed { transfer, digest });
            peer.finish(transfer, Outcome::Committed(digest));
        }
    }

    /// A transfer fails at this end, for each write that fails.
    pub fn fail(&mut self, end: End, transfer: TransferId, code: FailCode) {
        let peer = self.peer_mut(end);
        peer.session.fail(failure(transfer, code, "the disk said no", true));
        if !peer.outcomes.contains_key(&transfer) {
            peer.finish(transfer, Outcome::FailedHere(code));
        }
    }

    fn lose(&mut self, end: End, path: PathId, loss: PathLoss) {
        let now = self.now();
        self.disconnect(end, path);
        self.peer_mut(end).session.handle_path_lost(path, loss, now);
    }

    fn disconnect(&mut self, end: End, path: PathId) {
        if self.peer_mut(end).connections.remove(&path).is_some() {
            self.net.close(self.links[path.0 as usize], end);
        }
    }

    fn connect(&mut self, path: PathId) {
        let attempt = self.next_job;
        let client = &mut self.peers[0];
        if client.connections.contains_key(&path) || client.connecting.contains_key(&path) {
            return;
        }
        client.connecting.insert(path, attempt);
        self.net.connect(self.links[path.0 as usize], End::A);
        self.schedule_work(End::A, self.net.now() + CONNECT_TIMEOUT, Work::ConnectTimeout { path, attempt });
    }

    fn pump_both(&mut self) {
        End::BOTH.into_iter().for_each(|end| self.pump(end));
    }

    fn pump(&mut self, end: End) {
        let now = self.now();
        self.do_wanted(end);
        while self.peer(end).hashing < HASHING_AT_ONCE {
            let Some((transfer, chunk)) = self.peer_mut(end).session.poll_hash() else { break };
            self.peer_mut(end).hashing += 1;
            self.work(end, Work::Hash { transfer, chunk });
        }
        let paths: Vec<PathId> = self.peer(end).connections.keys().copied().collect();
        for path in paths {
            while self.peer(end).connections[&path].outbox.len() < OUTGOING_QUEUE * PIECES as usize {
                match self.peer_mut(end).session.poll_transmit(path, now) {
                    Some(Transmit::Frame(frame)) => self.queue_frame(end, path, frame),
                    Some(Transmit::Chunk { transfer, chunk }) => self.work(end, Work::Read { path, transfer, chunk }),
                    None => break,
                }
            }
            self.flush(end, path);
        }
        self.do_wanted(end);
    }

    fn queue_frame(&mut self, end: End, path: PathId, frame: Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        if let Frame::Control { body, .. } = &frame {
            let at = self.net.now();
            self.peer_mut(end).control_sent.push((at, path));
            if let Some((_, matches)) = self.cut_after.filter(|(of, _)| *of == end)
                && matches(&message_of(body))
            {
                self.cut_after = None;
                self.net.cut(self.links[path.0 as usize]);
            }
        }
        let wire_len = (bytes.len() as u64 / self.scale).max(1);
        self.peer_mut(end).connections.get_mut(&path).unwrap().outbox.push_back(Packet::Frame { frame, wire_len });
    }

    fn flush(&mut self, end: End, path: PathId) {
        let link = self.links[path.0 as usize];
        let peer = &mut self.peers[end as usize];
        let Some(connection) = peer.connections.get_mut(&path) else { return };
        while self.net.is_writable(link, end) {
            let Some(packet) = connection.outbox.pop_front() else { break };
            let is_chunk = matches!(packet, Packet::Chunk { .. });
            self.net.offer(link, end, packet).unwrap();
            if is_chunk {
                peer.session.handle_chunk_flushed(path);
            }
        }
    }

    fn do_wanted(&mut self, end: End) {
        while let Some(wanted) = self.peer_mut(end).session.poll_event() {
            if self.verbose {
                eprintln!("{:?} {end:?} wants {wanted:?}", self.net.now());
            }
            self.do_one(end, wanted);
        }
    }

    fn do_one(&mut self, end: End, wanted: Wanted) {
        let at = self.net.now();
        let peer = &mut self.peers[end as usize];
        match wanted {
            Wanted::Connect(path) => self.connect(path),
            Wanted::Disconnect(path) => self.disconnect(end, path),
            Wanted::PathChanged { path, state, loss } => {
                peer.losses.extend(loss.map(|loss| (at, path, loss)));
                peer.suspicions += u64::from(state == PathState::Suspect);
            }
            Wanted::PutRequested(put) => self.work(end, Work::OpenTarget(put.offer.transfer)),
            Wanted::Offered(offer) => self.work(end, Work::OpenTarget(offer.transfer)),
            Wanted::GetRequested(get) => self.work(end, Work::OpenSource(get.transfer)),
            Wanted::Superseded { .. } => peer.superseded += 1,
            Wanted::Sync { transfer, subtrees } => self.work(end, Work::Sync { transfer, subtrees }),
            Wanted::SourceRead { transfer, .. } => self.work(end, Work::Check(transfer)),
            Wanted::Completed(complete) => peer.completed = Some(complete),
            Wanted::Commit { transfer, digest } => self.work(end, Work::Commit { transfer, digest }),
            Wanted::Mismatch { transfer, received, sent } => {
                assert_ne!(received, sent);
                self.fail(end, transfer, FailCode::Digest);
            }
            Wanted::Committed { transfer, digest } => peer.finish(transfer, Outcome::Committed(digest)),
            Wanted::Failed(fail) => peer.finish(fail.transfer, Outcome::FailedThere(fail.code)),
            Wanted::Abandoned => {
                assert!(!peer.abandoned, "abandoned twice");
                peer.abandoned = true;
            }
            Wanted::Closed(code) => assert_eq!(peer.closed.replace(code), None, "closed twice"),
            _ => {}
        }
    }

    /// What has to hold after each step.
    fn check(&self) {
        for peer in &self.peers {
            for (path, writing) in &peer.writing {
                let held = peer.session.paths().find(|(id, _)| id == path).unwrap().1.held_chunks();
                assert!(*writing <= self.config.credit_window, "{:?}: {writing} chunks in memory for {path:?}", peer.end);
                assert_eq!(*writing, held, "{:?} {path:?}", peer.end);
            }
            for (path, connection) in &peer.connections {
                let waiting = connection.chunks_waiting();
                assert!(waiting <= 16, "{:?}: {waiting} chunks wait for {path:?}", peer.end);
            }
        }
    }

    /// The file is at the receiver, and both ends say so.
    pub fn assert_delivered(&self) {
        let digest = self.contents.digest(self.offered);
        for peer in &self.peers {
            assert_eq!(peer.outcomes.get(&self.transfer), Some(&Outcome::Committed(digest)), "{:?}", peer.end);
        }
        assert_eq!(self.receiver().disk.committed, Some(digest));
    }

    pub fn describe(&self) -> String {
        let of = |peer: &Peer| {
            let paths: Vec<_> = peer.session.paths().map(|(id, path)| (id.0, path.state())).collect();
            let stats = peer.session.stats(self.transfer);
            format!("{:?}: {paths:?} {stats:?} next {:?}", peer.end, peer.session.poll_timeout())
        };
        format!("at {:?}\n{}\n{}", self.net.now(), of(&self.peers[0]), of(&self.peers[1]))
    }

    pub fn sender(&self) -> &Peer {
        self.peer(self.direction.sender())
    }

    pub fn receiver(&self) -> &Peer {
        self.peer(self.direction.sender().other())
    }

    pub fn sender_stats(&self) -> TransferStats {
        self.sender().session.stats(self.transfer)
    }

    pub fn receiver_stats(&self) -> TransferStats {
        self.receiver().session.stats(self.transfer)
    }

    pub fn peer(&self, end: End) -> &Peer {
        &self.peers[end as usize]
    }

    pub fn peer_mut(&mut self, end: End) -> &mut Peer {
        &mut self.peers[end as usize]
    }

    /// Gives a link its carrier back, which the client's watch notices.
    pub fn heal(&mut self, index: usize) {
        self.net.heal(self.links[index]);
        self.schedule_work(End::A, self.net.now() + ms(3), Work::CarrierUp(PathId(index as u16)));
    }

    pub fn cut(&mut self, index: usize) {
        self.net.cut(self.links[index]);
    }

    pub fn silence(&mut self, index: usize, from: End) {
        self.net.silence(self.links[index], from);
    }

    pub fn now(&self) -> Instant {
        self.origin + self.net.now()
    }
}

fn message_of(body: &[u8]) -> Message {
    minicbor::decode(body).unwrap()
}

fn path_of(link: LinkId) -> PathId {
    PathId(link.index() as u16)
}

pub const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub const fn mib(mib: u64) -> u64 {
    mib << 20
}

//! The loop of one session.

mod ends;
mod transfers;

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, ChunkId, DataHeader, Event as Wanted, FailCode, Incoming, PathId, PathLoss, PathState, Role, Session, SessionConfig,
    TransferId, Transmit, message::CloseCode, session::failure,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::ends::Ends;
use super::{
    input::{Command, Input, LinkNews, Reply, SessionHandle},
    slot::{Established, PathPlan, Slot},
    tally::Tally,
    work::{Access, Works},
};
use crate::{
    client::EventSlot,
    connect::Connector,
    error::Error,
    event::{Event, LinkState},
    file::{BufferPool, ChunkBuffer, IoPool},
    stream::{EventSink, Stream, StreamEnd, StreamEvent},
};

/// What a session is made of.
pub(crate) struct DriverConfig {
    pub(crate) role: Role,
    pub(crate) access: Access,
    /// The peer as messages call it.
    pub(crate) host: String,
    pub(crate) session: SessionConfig,
    pub(crate) pool: IoPool,
    pub(crate) buffers: BufferPool,
    /// Client: makes connections.
    pub(crate) connector: Option<Arc<Connector>>,
    /// Client: who plans the paths.
    pub(crate) planner: Option<mpsc::Sender<LinkNews>>,
    /// Where events go.
    pub(crate) events: EventSlot,
}

/// Inputs that may wait. A full channel holds back the streams and the I/O threads, which is as it should be.
const INPUTS: usize = 1024;

/// Inputs applied before paths are polled again.
const BATCH: usize = 64;

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// How long a close waits for connections to send what they have.
const LINGER: Duration = Duration::from_millis(300);

/// How long a close waits for the threads of trees: as long as a slow disk takes to sync a batch of small files.
const TIDYING: Duration = Duration::from_secs(5);

/// Chunks read at once for the digest of what the receiver has: enough for one disk, without keeping the paths' reads waiting.
const HASHING_AT_ONCE: u32 = 2;

/// Pieces of zeros hashed at once: enough to keep two threads at it, of a millisecond each.
const ZEROING_AT_ONCE: u32 = 4;

/// Chunks of a file that is there read at once: enough for one disk to have a queue.
const COMPARING_AT_ONCE: u32 = 4;

/// The state of one session, owned by one task. [`ends`] has where its transfers come from and go to, [`transfers`] what becomes of them.
pub(crate) struct Driver {
    session: Session,
    config: DriverConfig,
    inputs: mpsc::Receiver<Input>,
    handle: SessionHandle,
    slots: BTreeMap<PathId, Slot>,
    streams: TaskTracker,
    works: Works,
    tally: Tally,
    /// Who waits for the end of a transfer.
    owners: BTreeMap<TransferId, Reply>,
    /// The transfer whose numbers `tally` has: a tree's include those of its entries.
    tallied: Option<TransferId>,
    ends: Ends,
    /// The threads of trees that run.
    threads: TaskTracker,
    hashing: u32,
    /// Chunks that wait for another copy of theirs to be written.
    later: Vec<(PathId, DataHeader, ChunkBuffer)>,
    zeroing: u32,
    comparing: u32,
    closing: Option<CloseCode>,
    next_generation: u64,
    started: Instant,
}

impl Driver {
    /// Starts the task of a session without paths.
    pub(crate) fn start(config: DriverConfig) -> SessionHandle {
        let (sender, inputs) = mpsc::channel(INPUTS);
        let handle = SessionHandle { inputs: sender, connected: Arc::default(), ended: CancellationToken::new() };
        let now = Instant::now();
        let driver = Self {
            session: Session::new(config.role, config.session.clone(), now),
            works: Works::new(config.pool.clone(), config.buffers.clone(), handle.inputs.clone()),
            inputs,
            handle: handle.clone(),
            slots: BTreeMap::new(),
            streams: TaskTracker::new(),
            tally: Tally::new(now),
            owners: BTreeMap::new(),
            tallied: None,
            ends: Ends::default(),
            threads: TaskTracker::new(),
            hashing: 0,
            later: Vec::new(),
            zeroing: 0,
            comparing: 0,
            closing: None,
            next_generation: 0,
            started: now,
            config,
        };
        tokio::spawn(driver.run());
        handle
    }

    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
        progress.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        while self.closing.is_none() {
            let timeout = self.session.poll_timeout().map(|(at, _)| at.into());
            tokio::select! {
                biased;
                count = self.inputs.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        break;
                    }
                }
                () = sleep_until(timeout) => self.session.handle_timeout(Instant::now()),
                _ = progress.tick() => {
                    self.tell_progress();
                    self.slots.values_mut().for_each(|slot| slot.tend(Instant::now()));
                }
            }
            let now = Instant::now();
            for input in batch.drain(..) {
                self.apply(input, now);
            }
            self.pump(now);
        }
        self.end().await;
    }

    /// Applies one input. Does not wait for anything.
    fn apply(&mut self, input: Input, now: Instant) {
        match input {
            Input::Connected { path, plan, established } => self.on_connected(path, plan, *established, now),
            Input::NotConnected { path, loss, error } => self.on_not_connected(path, loss, *error, now),
            Input::Stream { path, generation, events } => {
                if self.slots.get(&path).is_some_and(|slot| slot.generation == generation) {
                    for event in events {
                        self.on_stream(path, event, now);
                    }
                }
            }
            Input::Work(done) => self.on_work(done, now),
            Input::Given { transfer, given } => self.on_given(transfer, given),
            Input::Taken { transfer, chunks } => self.session.taken(transfer, chunks),
            Input::Tree { transfer, said } => self.on_tree_said(transfer, said),
            Input::TreeReady { transfer, result } => self.on_tree_ready(transfer, result),
            Input::AloneOpened { transfer, options, result } => self.on_alone_opened(transfer, options, result),
            Input::Command(command) => self.on_command(command, now),
            Input::Carrier { interface, up } => self.on_carrier(&interface, up, now),
        }
    }

    fn on_command(&mut self, command: Command, now: Instant) {
        match command {
            Command::AddPaths(paths) => {
                for (path, plan) in paths {
                    self.session.add_path(path, now);
                    self.session.limit_path(path, plan.cap, now);
                    self.slots.insert(path, Slot::new(plan));
                    self.connect(path);
                }
            }
            Command::Put { transfer, from, reply } => self.put(transfer, from, reply),
            Command::Get { transfer, into, reply } => self.get(transfer, into, reply),
            Command::Close(code) => self.closing = Some(code),
            Command::GiveUp(error) => {
                self.finish(Err(*error));
                self.closing = Some(CloseCode::Cancelled);
            }
            Command::Retire(path) => {
                let contact_only = self.slots.get(&path).is_some_and(|slot| slot.plan.contact_only);
                let why = if contact_only { "it only served to meet the peer" } else { "another took its place" };
                self.tell_link(path, LinkState::LeftOut(why.into()));
                self.retire(path, PathLoss::Reset, now);
            }
            Command::Gone(path) => {
                // Whether the kernel says first that the carrier is lost is a matter of luck.
                self.on_path_changed(path, PathState::Failed { retry_at: None }, Some(PathLoss::CarrierLost));
                self.retire(path, PathLoss::CarrierLost, now);
            }
            Command::Expect(connections) => self.session.expect_connections(connections),
            Command::TellInterfaces(interfaces) => self.session.tell_interfaces(interfaces),
            Command::GiveWay => {
                // One that has just begun is about to get its first connection.
                let was_connected = self.next_generation > 0;
                if was_connected && !self.session.is_connected() {
                    self.closing = Some(CloseCode::Cancelled);
                }
            }
        }
    }

    fn on_connected(&mut self, path: PathId, plan: Option<PathPlan>, established: Established, now: Instant) {
        if let Some(plan) = plan {
            self.slots.entry(path).or_insert_with(|| Slot::new(plan));
        }
        let Some(slot) = self.slots.get_mut(&path).filter(|slot| !slot.retired) else { return };
        slot.close();
        slot.connecting = false;
        self.next_generation += 1;
        slot.generation = self.next_generation;
        (slot.verified, slot.path_mtu) = (established.verified, established.path_mtu);
        slot.plan.local = established.local.or(slot.plan.local);
        let (outgoing, queue) = Slot::queue();
        let sink = PathSink { path, generation: slot.generation, inputs: self.handle.inputs.clone() };
        let task = self.streams.spawn(Stream::new(established.greeted, self.config.buffers.clone(), queue, sink).run());
        slot.open(outgoing, task.abort_handle(), established.probe);
        self.session.handle_path_open(path, now);
        let cap = self.slots.get(&path).and_then(|slot| slot.plan.cap);
        self.session.limit_path(path, cap, now);
        if self.slots.get(&path).is_some_and(|slot| slot.plan.no_data) {
            self.session.keep_data_off(path);
        }
        self.plan(LinkNews::Opened { path, verified: established.verified, path_mtu: established.path_mtu });
    }

    /// Ends a path for good; what it has queued is sent.
    fn retire(&mut self, path: PathId, loss: PathLoss, now: Instant) {
        let Some(slot) = self.slots.get_mut(&path).filter(|slot| !slot.retired) else { return };
        slot.retired = true;
        slot.release();
        self.session.retire_path(path, loss, now);
    }

    /// Tells whoever plans the paths. One that does not keep up plans with what it knows.
    fn plan(&self, news: LinkNews) {
        if let Some(planner) = &self.config.planner {
            let _ = planner.try_send(news);
        }
    }

    fn on_not_connected(&mut self, path: PathId, loss: PathLoss, error: Error, now: Instant) {
        let Some(slot) = self.slots.get_mut(&path) else { return };
        slot.connecting = false;
        let reason = crate::chain(&error);
        let first = slot.generation == 0;
        if slot.plan.named && first {
            let link = slot.plan.interface.clone();
            self.finish(Err(Error::Link { link, why: reason }));
            return;
        }
        if let Some(arrived) = stray(&error, self.session.is_connected()) {
            self.tell_link(path, LinkState::LeftOut(reason.clone()));
            self.retire(path, loss, now);
            self.plan(LinkNews::Astray { path, arrived, why: reason });
        } else if matches!(error, Error::Refused { .. } | Error::Untrusted { .. } | Error::UntrustedPeer { .. }) {
            // The daemon has forgotten the session: it was restarted. Whoever owns this session makes a new one.
            let host = self.config.host.clone();
            self.finish(Err(Error::Ended { host, why: reason }));
        } else {
            let state = if first { LinkState::LeftOut(reason.clone()) } else { LinkState::Down(reason.clone()) };
            self.tell_link(path, state);
            self.session.handle_path_lost(path, loss, now);
            self.plan(LinkNews::Lost { path, why: reason });
        }
    }

    fn on_stream(&mut self, path: PathId, event: StreamEvent, now: Instant) {
        match event {
            StreamEvent::Heard => self.session.handle_heard(path, now),
            StreamEvent::Frame(frame) => {
                if let Err(error) = self.session.handle_frame(path, frame, now) {
                    self.on_misbehaved(path, &error, now);
                }
            }
            StreamEvent::Chunk { header, buffer } => {
                let incoming = self.session.handle_chunk(path, &header, now);
                if incoming.is_ok() {
                    self.tally.on_wire(path, &header);
                }
                self.on_incoming(path, header, buffer, incoming, now);
            }
            StreamEvent::Flushed(chunks) => (0..chunks).for_each(|_| self.session.handle_chunk_flushed(path)),
            StreamEvent::Ended(end) => {
                let loss = match end {
                    StreamEnd::Frame(_) => PathLoss::Protocol,
                    StreamEnd::Tls(ref error) if error.tells_of_damage() => PathLoss::Damaged,
                    _ => PathLoss::Reset,
                };
                tracing::info!(path = path.0, %end, "path lost its connection");
                self.lose(path, loss, now);
            }
        }
    }

    fn on_incoming(
        &mut self,
        path: PathId,
        header: DataHeader,
        buffer: ChunkBuffer,
        incoming: Result<Incoming, nicstripe_proto::PathError>,
        now: Instant,
    ) {
        match incoming {
            Ok(Incoming::Write { grid, .. }) => self.works.write(path, grid, header, buffer),
            Ok(Incoming::Later) => self.later.push((path, header, buffer)),
            Ok(Incoming::Drop) => {}
            Err(error) => self.on_misbehaved(path, &error, now),
        }
    }

    /// A copy of a chunk is written, or not: asks again about those that waited for that.
    fn retry_later(&mut self, transfer: TransferId, chunk: ChunkId, now: Instant) {
        let is_of = |header: &DataHeader| header.transfer == transfer && header.chunk == chunk;
        let waited: Vec<_> = self.later.extract_if(.., |(_, header, _)| is_of(header)).collect();
        for (path, header, buffer) in waited {
            let incoming = self.session.handle_chunk_again(path, &header, now);
            self.on_incoming(path, header, buffer, incoming, now);
        }
    }

    fn on_misbehaved(&mut self, path: PathId, error: &nicstripe_proto::PathError, now: Instant) {
        tracing::warn!(path = path.0, %error, "peer misbehaved");
        self.lose(path, PathLoss::Protocol, now);
    }

    fn lose(&mut self, path: PathId, loss: PathLoss, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&path) {
            slot.damaged += u32::from(loss == PathLoss::Damaged);
            slot.close();
        }
        self.session.handle_path_lost(path, loss, now);
        self.plan(LinkNews::Lost { path, why: loss_text(loss).into() });
    }

    fn on_carrier(&mut self, interface: &str, up: bool, now: Instant) {
        let on_it = |(path, slot): (&PathId, &Slot)| (slot.plan.interface == interface).then_some(*path);
        let paths: Vec<PathId> = self.slots.iter().filter_map(on_it).collect();
        for path in paths {
            if !up {
                self.lose(path, PathLoss::CarrierLost, now);
            } else if self.slots.get(&path).is_some_and(|slot| !slot.is_open() && !slot.retired) {
                self.connect(path);
            }
        }
    }

    /// Does what the machine wants, then gives each connection what it may send.
    fn pump(&mut self, now: Instant) {
        loop {
            self.do_wanted(now);
            self.hash_ahead();
            self.transmit(now);
            // What was wanted last may have left something to send.
            if !self.do_wanted(now) {
                break;
            }
        }
        self.handle.connected.store(self.session.is_connected(), Ordering::Release);
    }

    fn hash_ahead(&mut self) {
        while self.hashing < HASHING_AT_ONCE {
            let Some((transfer, chunk)) = self.session.poll_hash() else { break };
            self.hashing += u32::from(self.works.hash(transfer, chunk));
        }
        while self.zeroing < ZEROING_AT_ONCE {
            let Some((transfer, grid, zeros)) = self.session.poll_zeros() else { break };
            self.zeroing += 1;
            self.works.hash_zeros(transfer, grid, zeros);
        }
        while self.comparing < COMPARING_AT_ONCE {
            let Some((transfer, chunk)) = self.session.poll_compare() else { break };
            self.comparing += u32::from(self.works.compare(transfer, chunk));
        }
    }

    fn transmit(&mut self, now: Instant) {
        let mut stuck = Vec::new();
        let rates = self.slots.keys().filter_map(|path| self.session.path_rate(*path));
        let measured = rates.map(|rate| rate.0).reduce(|sum, rate| sum + rate).map(BitRate);
        // Where a limit lets less pass than the links carry, they are measured at what they do between two pauses, or not at all.
        let rate = measured.into_iter().chain(self.session.rate_limit()).min();
        for (path, slot) in &self.slots {
            while slot.has_room() {
                match self.session.poll_transmit(*path, now) {
                    Some(Transmit::Frame(frame)) => {
                        if !slot.send_frame(frame) {
                            stuck.push(*path);
                            break;
                        }
                    }
                    Some(Transmit::Chunk { transfer, chunk }) => {
                        let Some((buffer, value)) = self.works.read(*path, transfer, chunk, rate) else { continue };
                        let Some(header) = self.session.handle_chunk_read(*path, transfer, chunk, value, now) else { continue };
                        self.tally.on_wire(*path, &header);
                        if !slot.send_chunk(header, buffer) {
                            stuck.push(*path);
                            break;
                        }
                    }
                    None => break,
                }
            }
        }
        for path in stuck {
            self.lose(path, PathLoss::Reset, now);
        }
    }

    /// Says whether there was anything.
    fn do_wanted(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(wanted) = self.session.poll_event() {
            any = true;
            self.do_one(wanted, now);
        }
        any
    }

    fn do_one(&mut self, wanted: Wanted, now: Instant) {
        match wanted {
            Wanted::Connect(path) => self.connect(path),
            Wanted::Disconnect(path) => {
                if let Some(slot) = self.slots.get_mut(&path) {
                    slot.close();
                }
            }
            Wanted::PathChanged { path, state, loss } => self.on_path_changed(path, state, loss),
            Wanted::PutRequested(put) => self.on_put_requested(put),
            Wanted::GetRequested(get) => {
                get.limit_bps.into_iter().for_each(|limit| self.session.limit_rate(BitRate(limit), now));
                self.on_get_requested(get);
            }
            Wanted::TreePutRequested(put) => self.on_tree_put_requested(put),
            Wanted::TreeRequested(get) => {
                get.limit_bps.into_iter().for_each(|limit| self.session.limit_rate(BitRate(limit), now));
                self.on_tree_requested(get);
            }
            Wanted::TreeTold { transfer, message } => self.on_tree_told(transfer, message),
            Wanted::Offered(offer) => self.on_offered(offer),
            Wanted::Accepted { transfer, resumed_bytes } => {
                self.start_source(transfer);
                self.on_started(transfer, resumed_bytes, now);
            }
            Wanted::Superseded { .. } => {}
            Wanted::Released { transfer, chunk } => {
                if let Some(live) = self.works.live_mut(transfer) {
                    live.chunks.remove(&chunk);
                }
            }
            Wanted::Sync { transfer, subtrees } => self.works.sync(transfer, subtrees),
            Wanted::Holes { transfer, holes } => self.works.make_holes(transfer, holes),
            Wanted::SourceRead { transfer, .. } => self.on_source_read(transfer),
            Wanted::Completed(complete) => self.tally.on_peer_streams(&complete.streams),
            Wanted::Commit { transfer, digest } => self.works.commit(transfer, digest),
            Wanted::Mismatch { transfer, received, sent } => {
                if let Some(target) = self.works.target(transfer) {
                    target.discard();
                }
                let error = Error::Digest { sent, received };
                self.session.fail(failure(transfer, FailCode::Digest, error.to_string(), false));
                self.end_transfer(transfer, Err(error));
            }
            Wanted::Committed { transfer, digest } => self.on_peer_committed(transfer, digest),
            Wanted::Failed(fail) => {
                let error = Error::Peer { host: self.config.host.clone(), code: fail.code, text: fail.text, resumable: fail.resumable };
                self.end_transfer(fail.transfer, Err(error));
            }
            Wanted::Abandoned => {
                let error = Error::Abandoned { host: self.config.host.clone(), waited: self.config.session.patience };
                self.finish(Err(error));
                self.closing = Some(CloseCode::Cancelled);
            }
            Wanted::PeerInterfaces(interfaces) => self.plan(LinkNews::PeerInterfaces(interfaces)),
            Wanted::Expected(connections) => {
                if let Access::Daemon(service) = &self.config.access {
                    service.expect(connections, self.handle.clone());
                }
            }
            Wanted::Closed(code) => {
                let error = Error::Ended { host: self.config.host.clone(), why: format!("{code:?}").to_lowercase() };
                self.finish(Err(error));
                self.closing = Some(code);
            }
            _ => {}
        }
    }

    fn on_path_changed(&mut self, path: PathId, state: PathState, loss: Option<PathLoss>) {
        let state = match (state, loss) {
            (PathState::Open, _) => LinkState::Up,
            (PathState::Suspect, _) => LinkState::Suspect,
            (PathState::Failed { .. }, Some(loss)) => {
                if let Some(slot) = self.slots.get(&path)
                    && matches!(slot.state, LinkState::Up | LinkState::Suspect)
                    && !slot.retired
                {
                    self.tally.failovers += 1;
                }
                LinkState::Down(loss_text(loss).into())
            }
            _ => return,
        };
        self.tell_link(path, state);
    }

    fn tell_link(&mut self, path: PathId, state: LinkState) {
        let Some(slot) = self.slots.get_mut(&path) else { return };
        if slot.retired || slot.state == state {
            return;
        }
        slot.state = state.clone();
        tracing::info!(interface = %slot.plan.interface, remote = %slot.plan.remote, ?state, "link");
        let link = slot.plan.link();
        self.tell(Event::Link { link, state });
    }

    fn tell(&self, event: Event) {
        if let Some(events) = &*self.config.events.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = events.try_send(event);
        }
    }

    fn connect(&mut self, path: PathId) {
        let (Some(connector), Some(slot)) = (&self.config.connector, self.slots.get_mut(&path)) else { return };
        if slot.retired || slot.is_open() || std::mem::replace(&mut slot.connecting, true) {
            return;
        }
        let (connector, plan, inputs) = (connector.clone(), slot.plan.clone(), self.handle.inputs.clone());
        let first = slot.generation == 0;
        tokio::spawn(async move {
            let input = match connector.join(path, &plan, first).await {
                Ok(established) => Input::Connected { path, plan: None, established: Box::new(established) },
                Err((loss, error)) => Input::NotConnected { path, loss, error: Box::new(error) },
            };
            let _ = inputs.send(input).await;
        });
    }

    /// Lets go of everything in order: what was written becomes durable, connections send what they have.
    async fn end(mut self) {
        let now = Instant::now();
        self.session.close(self.closing.unwrap_or(CloseCode::Cancelled));
        self.pump(now);
        self.slots.values_mut().for_each(Slot::release);
        self.stop_trees();
        self.works.close_sources();
        self.settle().await;
        self.finish(Err(Error::Cancelled { resumable: true }));
        self.wait_for_others().await;
        self.inputs.close();
        self.handle.connected.store(false, Ordering::Release);
        self.handle.ended.cancel();
    }

    /// Waits until the streams have sent what they had, for a moment at most, and until the threads of trees have removed what has no name
    /// yet, for which they may wait for a disk. What they still tell is taken from them, so that none waits for room.
    async fn wait_for_others(&mut self) {
        let Self { streams, threads, inputs, .. } = self;
        streams.close();
        threads.close();
        let mut ended = pin!(async {
            let (_, _) = tokio::join!(timeout(LINGER, streams.wait()), timeout(TIDYING, threads.wait()));
        });
        loop {
            tokio::select! {
                () = &mut ended => return,
                _ = inputs.recv() => {}
            }
        }
    }
}

/// Marks a connection's events with its path and generation.
struct PathSink {
    path: PathId,
    generation: u64,
    inputs: mpsc::Sender<Input>,
}

impl EventSink for PathSink {
    async fn deliver(&mut self, events: Vec<StreamEvent>) -> bool {
        self.inputs.send(Input::Stream { path: self.path, generation: self.generation, events }).await.is_ok()
    }
}

/// Sleeps until then; for ever where there is nothing to wait for.
pub(crate) async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns where a path led that does not lead where it should: to an interface of the peer, or, without one, to another machine.
///
/// That somebody else has an address says nothing of the peer while that is heard over other paths; without any, the peer may be another now.
fn stray(error: &Error, is_connected: bool) -> Option<Option<String>> {
    match error {
        Error::Astray { arrived, .. } => Some(Some(arrived.clone())),
        Error::UntrustedPeer { .. } if is_connected => Some(None),
        _ => None,
    }
}

fn loss_text(loss: PathLoss) -> &'static str {
    match loss {
        PathLoss::Unreachable => "could not connect",
        PathLoss::CarrierLost => "no carrier: cable unplugged or peer's port down",
        PathLoss::Silent => "nothing heard for 1.5 s",
        PathLoss::Reset => "connection closed",
        PathLoss::Damaged => "what it carried was damaged: suspect cable, card or switch",
        PathLoss::Protocol => "peer sent what makes no sense",
        PathLoss::WrongInterface => "arrives at another interface of the peer",
        _ => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Identity;

    #[test]
    fn another_machine_at_one_address_costs_a_path_and_not_the_session() {
        let key = Identity::generate().unwrap().public_key();
        let error = Error::UntrustedPeer { host: "nas".into(), key };
        assert_eq!(stray(&error, true), Some(None));
        assert_eq!(stray(&error, false), None, "with no path left, the peer itself is another");
        let refused = Error::Refused { host: "nas".into(), why: "it does not know the session".into() };
        assert_eq!(stray(&refused, true), None, "a daemon that was restarted has forgotten the session");
    }

    #[test]
    fn a_wrong_interface_is_named() {
        let error = Error::Astray { aimed_at: "enp2".into(), arrived: "enp1".into() };
        assert_eq!(stray(&error, true), Some(Some("enp1".into())));
    }

    #[tokio::test]
    async fn a_session_that_waits_for_its_first_connection_gives_way_to_nobody() {
        let handle = Driver::start(DriverConfig {
            role: Role::Daemon,
            access: Access::Client,
            host: "peer".into(),
            session: SessionConfig::default(),
            pool: IoPool::start().unwrap(),
            buffers: BufferPool::default(),
            connector: None,
            planner: None,
            events: EventSlot::default(),
        });
        assert!(handle.command(Command::GiveWay).await);
        assert!(timeout(Duration::from_millis(100), handle.ended.cancelled()).await.is_err());
        assert!(handle.command(Command::Close(CloseCode::Done)).await);
        timeout(Duration::from_secs(5), handle.ended.cancelled()).await.unwrap();
    }
}

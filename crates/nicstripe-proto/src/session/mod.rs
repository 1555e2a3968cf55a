//! The session: an association of two authenticated peers over any number of paths, which outlives
//! each of them.
//!
//! A [`Session`] does no I/O. [`handle_*`](Session::handle_frame) calls are its inputs,
//! [`poll_transmit`](Session::poll_transmit) returns data to send, and
//! [`poll_event`](Session::poll_event) all other actions. After `handle_*` calls, poll events until
//! `None`, then each path whose connection can take more. Then sleep until
//! [`poll_timeout`](Session::poll_timeout) at the latest and call
//! [`handle_timeout`](Session::handle_timeout).

mod asks;
mod chunks;
mod event;
mod load;
mod messages;
mod round_robin;
mod transfers;
mod unsent;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use minicbor::{Decode, Encode};

use self::{asks::Asks, load::BenchState, round_robin::RoundRobin, transfers::Transfer};
pub use self::{
    chunks::Incoming,
    event::{Event, Transmit},
    transfers::{MAX_OPEN_TRANSFERS, TransferStats, failure},
    unsent::{Acceptance, Offering},
};
use crate::{
    frame::Frame,
    grid::MOST_SIZE,
    hole::HoleError,
    message::{CloseCode, Message},
    pace::Pace,
    path::{Path, PathId, PathLoss, PathState, Verdict},
    receiver::ArrivalError,
    reliable::{Reliable, ReliableError},
    units::BitRate,
};

/// Identity of a session: 128 random bits. Not a secret; keys decide who may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct SessionId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// ID of a transfer in its session. The client assigns IDs in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct TransferId(#[n(0)] pub u32);

/// Role of an end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that connects, assigns IDs to paths and transfers, and retries failed paths.
    Client,
    /// The end that accepts connections.
    Daemon,
}

/// Limits and timing of a session. The defaults are for gigabit links on a LAN.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Number of data frames that the peer may have in flight on each path: 32, at most 8 MiB of
    /// memory per path.
    ///
    /// 8 MiB carry 10 Gbit/s at 6.7 ms; the queue of a gigabit interface (1000 frames) is 12 ms and
    /// 1.5 MB.
    pub credit_window: u64,
    /// Number of bytes written that trigger a sync: 16 MiB. A crash costs the retransmission of at
    /// most that and the bytes in flight.
    ///
    /// At 1 Gbit/s this means seven syncs a second, without measurable cost on a disk behind the
    /// page cache. 16 MiB are less than 1 % of 2 GiB.
    pub sync_bytes: u64,
    /// Maximum age of written data that is not durable: 1 s.
    pub sync_interval: Duration,
    /// Time without any connection after which the session is abandoned: 10 minutes.
    pub patience: Duration,
    /// Maximum rate of all paths together; unlimited by default.
    pub rate_limit: Option<BitRate>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            credit_window: 32,
            sync_bytes: 16 << 20,
            sync_interval: Duration::from_secs(1),
            patience: Duration::from_secs(600),
            rate_limit: None,
        }
    }
}

/// Protocol violation by the peer on a path. Ends the path, not the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Control message or acknowledgement with an invalid sequence number.
    #[error(transparent)]
    Reliable(#[from] ReliableError),
    /// Chunk, or end of a transfer, that is invalid.
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    /// List of holes that is invalid.
    #[error(transparent)]
    Holes(#[from] HoleError),
    /// Message about a chunk that is not being compared, or was compared before.
    #[error("peer sent {what} of chunk {chunk}, which is not being compared")]
    Compared {
        /// Content of the message, for the error text.
        what: &'static str,
        /// Index of the chunk.
        chunk: u64,
    },
    /// Frame that is not allowed at this point of a connection.
    #[error("peer sent {0} in the middle of a connection")]
    Unexpected(&'static str),
    /// Control message that cannot be decoded.
    #[error("peer sent a control message that cannot be read: {0}")]
    Message(String),
    /// Data frame beyond the credit granted on the connection.
    #[error("peer sent a chunk beyond its credit")]
    Credit,
    /// Message about a transfer in the wrong state.
    #[error("peer sent {what} for transfer {transfer}, which is not {expected}")]
    Transfer {
        /// Kind of message, for the error text.
        what: &'static str,
        /// ID of the transfer.
        transfer: u32,
        /// State that the message requires, for the error text.
        expected: &'static str,
    },
    /// Acknowledgement of a chunk that was never sent.
    #[error("peer acknowledged chunk {chunk} of transfer {transfer}, which was never sent")]
    NeverSent {
        /// ID of the chunk's transfer.
        transfer: u32,
        /// Index of the chunk.
        chunk: u64,
    },
    /// Transfer beyond the limit of concurrent transfers.
    #[error("peer exceeded the limit of {MAX_OPEN_TRANSFERS} open transfers")]
    TooManyTransfers,
    /// Chunk size that the protocol does not support, as base-2 logarithm.
    #[error("peer offered a file with chunks of 2^{0} bytes, expected 2^12 to 2^18")]
    ChunkSize(u8),
    /// Request about a file or directory that is not allowed now.
    #[error("peer sent request {id} {what}")]
    Ask {
        /// ID of the request.
        id: u32,
        /// Kind of violation, for the error text.
        what: &'static str,
    },
    /// Answer that does not match any request.
    #[error("peer answered request {id} {what}")]
    Answer {
        /// ID of the request in the answer.
        id: u32,
        /// Kind of violation, for the error text.
        what: &'static str,
    },
    /// File size in bytes that exceeds the protocol's limit.
    #[error("peer offered a file of {0} bytes, the limit is {MOST_SIZE}")]
    FileSize(u64),
}

/// Cause of a session's next timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Heartbeat, suspect timeout or connection retry is due on this path.
    Path(PathId),
    /// An acknowledgement that was delayed is due.
    Acknowledge,
    /// A sync of written data is due.
    Sync,
    /// The session has been without any connection for too long.
    Abandon,
    /// A rate limit permits another chunk.
    Pace,
    /// A chunk is late, and an idle path may send it as well.
    Hedge,
}

/// State machine of one end of a session.
#[derive(Debug)]
pub struct Session {
    role: Role,
    config: SessionConfig,
    /// Origin of the timestamps in this end's heartbeats.
    epoch: Instant,
    reliable: Reliable,
    paths: BTreeMap<PathId, Path>,
    transfers: BTreeMap<TransferId, Transfer>,
    turns: RoundRobin,
    /// Properties of sources whose transfers the receiver has not accepted yet.
    offerings: BTreeMap<TransferId, Offering>,
    /// Highest transfer ID so far. A lower ID that is not in `transfers` has ended.
    last_transfer: Option<TransferId>,
    events: VecDeque<Event>,
    /// Time since which the peer is unreachable. `None` once something was received on a
    /// connection.
    alone_since: Option<Instant>,
    closed: Option<CloseCode>,
    /// True once [`Event::Closed`] was emitted; the peer sends a close frame on each path.
    peer_closed: bool,
    pace: Option<Pace>,
    /// Earliest time at which a rate limit permits another chunk.
    paced_until: Option<Instant>,
    hedge_at: Option<Instant>,
    /// Time of the latest timeout. Frames due by then are sent when their path is ready, without
    /// another timeout.
    reminded: Instant,
    bench: BenchState,
    asks: Asks,
    /// Maximum number of chunks in memory, over all paths.
    chunk_budget: u64,
}

impl Session {
    /// Returns a session without paths.
    pub fn new(role: Role, config: SessionConfig, now: Instant) -> Self {
        let pace = config.rate_limit.map(|rate| Pace::new(rate, now));
        Self {
            role,
            config,
            epoch: now,
            reliable: Reliable::default(),
            paths: BTreeMap::new(),
            transfers: BTreeMap::new(),
            turns: RoundRobin::default(),
            offerings: BTreeMap::new(),
            last_transfer: None,
            events: VecDeque::new(),
            alone_since: Some(now),
            closed: None,
            peer_closed: false,
            pace,
            paced_until: None,
            hedge_at: None,
            reminded: now,
            bench: BenchState::default(),
            asks: Asks::default(),
            chunk_budget: u64::MAX,
        }
    }

    /// Iterates over the paths in ascending order of their IDs.
    pub fn paths(&self) -> impl Iterator<Item = (PathId, &Path)> {
        self.paths.iter().map(|(id, path)| (*id, path))
    }

    /// Returns the state and measurements of a path.
    pub fn path(&self, id: PathId) -> Option<&Path> {
        self.paths.get(&id)
    }

    /// Adds a path whose connection is being made, or reopens one that was
    /// [retired](Self::retire_path).
    pub fn add_path(&mut self, path: PathId, now: Instant) {
        let path = self.paths.entry(path).or_insert_with(|| Path::probing(now));
        if path.state() == (PathState::Failed { retry_at: None }) {
            path.on_retry(now);
        }
    }

    /// Limits the rate of all paths together. A lower limit that was set before remains.
    pub fn limit_rate(&mut self, limit: BitRate, now: Instant) {
        let limit = self
            .config
            .rate_limit
            .map_or(limit, |other| BitRate(other.0.min(limit.0)));
        self.config.rate_limit = Some(limit);
        self.pace = Some(Pace::new(limit, now));
    }

    /// Returns the rate limit of all paths together, if one is set.
    pub fn rate_limit(&self) -> Option<BitRate> {
        self.config.rate_limit
    }

    /// Excludes a path from data in both directions, so that it carries only control messages.
    pub fn exclude_from_data(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.carries_data = false;
        }
    }

    /// Sets or removes the rate limit of one path.
    pub fn limit_path(&mut self, id: PathId, limit: Option<BitRate>, now: Instant) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.pace = limit.map(|rate| Pace::new(rate, now));
        }
    }

    /// Records that a path is connected and has exchanged `Hello` and `Welcome`. Replaces its
    /// previous connection.
    pub fn handle_path_open(&mut self, id: PathId, now: Instant) {
        if self
            .paths
            .get(&id)
            .is_some_and(|path| path.state().is_connected())
        {
            self.handle_path_lost(id, PathLoss::Reset, now);
        }
        let path = self.paths.entry(id).or_insert_with(|| Path::probing(now));
        if matches!(path.state(), PathState::Failed { .. }) {
            path.on_retry(now);
        }
        if path.on_opened(now) {
            // `alone_since` stays set until data is received: a peer that accepts connections but
            // sends nothing is unreachable.
            self.changed(id, None);
        }
    }

    /// Records that a path has lost its connection, or could not connect.
    pub fn handle_path_lost(&mut self, id: PathId, loss: PathLoss, now: Instant) {
        let is_only = self.is_only_connected(id);
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        let was_connected = path.state().is_connected();
        if path.on_lost(now, self.role == Role::Client, is_only) {
            if loss == PathLoss::Damaged && was_connected {
                let pause = path.on_damaged(now);
                self.events.push_back(Event::Damaged {
                    path: id,
                    times: path.damages(),
                    pause,
                });
            }
            self.on_path_lost(id, loss, now);
        }
    }

    /// Ends a path without further connection attempts. The caller must close its connection.
    pub fn retire_path(&mut self, id: PathId, loss: PathLoss, now: Instant) {
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        if path.on_lost(now, false, false) {
            self.on_path_lost(id, loss, now);
        } else {
            path.on_retired();
        }
    }

    /// Records that bytes were received on a path, even if only part of a frame.
    pub fn handle_heard(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        let recovered = path.on_heard(now);
        if path.state().is_connected() {
            self.alone_since = None;
        }
        if recovered {
            self.changed(id, None);
        }
    }

    /// Handles a complete frame that was received on a path, of any type except data, load and
    /// echo.
    ///
    /// # Errors
    ///
    /// [`PathError`] if the frame violates the protocol. The caller must then end the path.
    pub fn handle_frame(
        &mut self,
        id: PathId,
        frame: Frame,
        now: Instant,
    ) -> Result<(), PathError> {
        self.handle_heard(id, now);
        match frame {
            Frame::Control { seq, body } => {
                let ready = self.reliable.handle(id, seq, body)?;
                // All of them are acknowledged, so an invalid message must not discard those after
                // it.
                let results = ready
                    .into_iter()
                    .map(|body| self.handle_body(&body, now))
                    .collect::<Vec<_>>();
                return results.into_iter().collect();
            }
            Frame::ControlAck { next } => self.reliable.handle_ack(next)?,
            Frame::Ack { transfer, ranges } => self.handle_acks(id, transfer, &ranges, now)?,
            Frame::Credit { frames } => {
                if let Some(path) = self.paths.get_mut(&id) {
                    path.flow.on_credit(frames);
                }
            }
            Frame::Heartbeat { sent_us, echo_us } => {
                self.handle_heartbeat(id, sent_us, echo_us, now);
            }
            Frame::Close { code } => {
                if !std::mem::replace(&mut self.peer_closed, true) {
                    self.events
                        .push_back(Event::Closed(CloseCode::from_u32(code)));
                }
            }
            Frame::Hello(_) => return Err(PathError::Unexpected("hello")),
            Frame::Welcome(_) => return Err(PathError::Unexpected("welcome")),
            Frame::Refuse(_) => return Err(PathError::Unexpected("refuse")),
        }
        Ok(())
    }

    fn handle_body(&mut self, body: &[u8], now: Instant) -> Result<(), PathError> {
        self.handle_message(
            minicbor::decode(body).map_err(|error| PathError::Message(error.to_string()))?,
            now,
        )
    }

    fn handle_heartbeat(&mut self, id: PathId, sent_us: u64, echo_us: u64, now: Instant) {
        let now_us = self.micros(now);
        let round_trip =
            (echo_us != 0).then(|| Duration::from_micros(now_us.saturating_sub(echo_us)));
        if let Some(path) = self.paths.get_mut(&id) {
            path.on_heartbeat(sent_us, round_trip, now);
        }
    }

    /// Returns the next item to send on a path, or `None` if nothing may be sent.
    pub fn poll_transmit(&mut self, id: PathId, now: Instant) -> Option<Transmit> {
        let path = self
            .paths
            .get_mut(&id)
            .filter(|path| path.state().is_connected())?;
        if let Some(code) = self.closed {
            let first = !std::mem::replace(&mut path.close_sent, true);
            return first.then_some(Transmit::Frame(Frame::Close { code: code as u32 }));
        }
        if let Some(load) = self.poll_load(id) {
            return Some(load);
        }
        if let Some(frame) = self.poll_frame(id, now) {
            if let Some(path) = self.paths.get_mut(&id) {
                path.on_sent(now);
            }
            return Some(Transmit::Frame(frame));
        }
        self.poll_chunk(id, now)
    }

    fn poll_frame(&mut self, id: PathId, now: Instant) -> Option<Frame> {
        if let Some(next) = self.reliable.poll_ack(id) {
            return Some(Frame::ControlAck { next });
        }
        if self.is_best_for_control(id, now)
            && let Some(due) = self.reliable.poll(id, now)
        {
            if let Some(late) = due.late_on.and_then(|late| self.paths.get_mut(&late)) {
                late.on_control_late(now);
            }
            return Some(Frame::Control {
                seq: due.seq,
                body: due.body,
            });
        }
        let now_us = self.micros(now);
        let (may_carry_data, window) = (self.may_carry_data(id, now), self.window_to_grant());
        let path = self.paths.get_mut(&id)?;
        if let Some((transfer, ranges)) = poll_acks(&mut self.transfers, id, now) {
            return Some(Frame::Ack { transfer, ranges });
        }
        if may_carry_data && let Some(frames) = path.flow.credit_due(window) {
            path.flow.on_granted(frames);
            return Some(Frame::Credit { frames });
        }
        path.heartbeat_is_due(now).then(|| Frame::Heartbeat {
            sent_us: now_us,
            echo_us: path.take_echo().unwrap_or(0),
        })
    }

    /// Returns the maximum number of chunks that each path may have in memory: its share of the
    /// session's budget. At least one, so that no path stalls.
    fn window(&self) -> u64 {
        let sharing = self
            .paths
            .values()
            .filter(|path| path.state().is_connected() && path.carries_data)
            .count() as u64;
        (self.chunk_budget / sharing.max(1)).clamp(1, self.config.credit_window.max(1))
    }

    /// Returns the receive window of each path in chunks. One chunk if the budget is limited and no
    /// transfer receives, to reserve no memory for data that does not come.
    fn window_to_grant(&self) -> u64 {
        let receives = self
            .transfers
            .values()
            .any(|transfer| transfer.receiver().is_some());
        if receives || self.chunk_budget == u64::MAX {
            self.window()
        } else {
            1
        }
    }

    /// Sets the maximum number of chunks in memory, per direction and over all paths. Each path may
    /// have one chunk regardless.
    ///
    /// Chunks above the limit stay, and granted credit stays valid. The session reads and grants no
    /// more until it is within the limit.
    pub fn set_chunk_budget(&mut self, chunks: u64) {
        self.chunk_budget = chunks;
    }

    /// Returns the number of chunks in memory, plus those for which the peer has unused credit.
    pub fn committed_chunks(&self) -> u64 {
        let of_path = |path: &Path| {
            if path.state().is_connected() {
                path.flow.committed()
            } else {
                path.held_chunks()
            }
        };
        self.paths.values().map(of_path).sum()
    }

    /// Returns true if any transfer has begun and not ended.
    pub fn is_busy(&self) -> bool {
        self.transfers
            .keys()
            .any(|transfer| self.is_under_way(*transfer))
    }

    /// Returns true if the path is open and no other open path has a lower expected delay for a
    /// control message: behind two chunks at 10 Mbit/s it is 0.4 s.
    fn is_best_for_control(&self, id: PathId, now: Instant) -> bool {
        let delay =
            |path: &Path| (path.state() == PathState::Open).then(|| path.control_delay(now));
        let Some(own) = self.paths.get(&id).and_then(delay) else {
            return false;
        };
        self.paths
            .values()
            .filter_map(delay)
            .all(|other| own <= other)
    }

    /// Returns true if a path may carry data in either direction. False for a path that is excluded
    /// from data, or in quarantine while another open path may carry data.
    fn may_carry_data(&self, id: PathId, now: Instant) -> bool {
        let may = |path: &Path| path.carries_data && path.quarantined_until(now).is_none();
        let Some(path) = self.paths.get(&id) else {
            return false;
        };
        may(path)
            || (path.carries_data
                && !self
                    .paths
                    .values()
                    .any(|other| other.state() == PathState::Open && may(other)))
    }

    /// Returns the next event, or `None` if all were returned.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time at which to call [`handle_timeout`](Self::handle_timeout), and its cause.
    /// `None` after a close.
    pub fn poll_timeout(&self) -> Option<(Instant, Reason)> {
        if self.closed.is_some() {
            return None;
        }
        let verdicts = self
            .paths
            .iter()
            .filter_map(|(id, path)| Some((path.verdict_at()?, Reason::Path(*id))));
        let heartbeats = self
            .paths
            .iter()
            .filter_map(|(id, path)| Some((path.heartbeat_at()?, Reason::Path(*id))));
        let receivers = || self.transfers.values().filter_map(Transfer::receiver);
        let acks = receivers()
            .filter_map(|receiver| Some((receiver.ack_deadline()?, Reason::Acknowledge)));
        let syncs = receivers().filter_map(|receiver| {
            Some((
                receiver.sync_deadline(self.config.sync_interval)?,
                Reason::Sync,
            ))
        });
        let to_send = heartbeats.chain(acks).filter(|(at, _)| *at > self.reminded);
        let alone_since = self.alone_since.filter(|_| !self.is_connected());
        let abandon = alone_since
            .and_then(|since| Some((since.checked_add(self.config.patience)?, Reason::Abandon)));
        let hedge = self.hedge_at.map(|at| (at, Reason::Hedge));
        let paced = self.paced_until.map(|at| (at, Reason::Pace));
        verdicts
            .chain(to_send)
            .chain(syncs)
            .chain(abandon)
            .chain(paced)
            .chain(hedge)
            .min_by_key(|(at, _)| *at)
    }

    /// Handles the timers that have expired: silence, connection retries, syncs, abandonment.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.paced_until = self.paced_until.filter(|at| *at > now);
        self.hedge_at = self.hedge_at.filter(|at| *at > now);
        self.reminded = self.reminded.max(now);
        let verdicts: Vec<(PathId, Verdict)> = self
            .paths
            .iter()
            .filter_map(|(id, path)| Some((*id, path.verdict(now)?)))
            .collect();
        for (id, verdict) in verdicts {
            self.judge(id, verdict, now);
        }
        self.poll_syncs(now);
        let is_over = self
            .alone_since
            .is_some_and(|since| now.saturating_duration_since(since) >= self.config.patience);
        if is_over && !self.is_connected() {
            self.alone_since = None;
            self.events.push_back(Event::Abandoned);
        }
    }

    fn judge(&mut self, id: PathId, verdict: Verdict, now: Instant) {
        let is_only = self.is_only_connected(id);
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        match verdict {
            Verdict::Suspect if path.on_suspect(now) => {
                self.reliable.on_path_doubtful(id);
                self.changed(id, None);
            }
            Verdict::Silent if path.on_lost(now, self.role == Role::Client, is_only) => {
                self.events.push_back(Event::Disconnect(id));
                self.on_path_lost(id, PathLoss::Silent, now);
            }
            Verdict::Retry if path.on_retry(now) => {
                self.changed(id, None);
                self.events.push_back(Event::Connect(id));
            }
            _ => {}
        }
    }

    /// Closes the session: each path sends a close frame as its last one.
    pub fn close(&mut self, code: CloseCode) {
        self.closed = Some(code);
    }

    /// Returns the measured rate of a path, or `None` before the first measurement.
    pub fn path_rate(&self, id: PathId) -> Option<BitRate> {
        self.paths.get(&id)?.rate.rate()
    }

    /// Returns true if a rate limit forbids a chunk on `path` now, and records the time at which it
    /// ends.
    fn is_paced(&mut self, path: PathId, now: Instant) -> bool {
        let own = self
            .paths
            .get(&path)
            .and_then(|path| path.pace.as_ref()?.wait(now));
        let wait = own.max(self.pace.as_ref().and_then(|pace| pace.wait(now)));
        if let Some(at) = wait {
            self.paced_until = Some(self.paced_until.map_or(at, |until| until.min(at)));
        }
        wait.is_some()
    }

    /// Charges `bytes` that are about to be sent on `path` to its rate limits.
    fn on_paced(&mut self, path: PathId, bytes: u64, now: Instant) {
        let own = self
            .paths
            .get_mut(&path)
            .and_then(|path| path.pace.as_mut());
        own.into_iter()
            .chain(self.pace.as_mut())
            .for_each(|pace| pace.on_sent(bytes, now));
    }

    /// Returns the time since which the peer is unreachable. `None` once something was received on
    /// a connection.
    pub fn alone_since(&self) -> Option<Instant> {
        self.alone_since
    }

    /// Returns true if any path is connected, even a suspect one.
    pub fn is_connected(&self) -> bool {
        self.paths.values().any(|path| path.state().is_connected())
    }

    fn is_only_connected(&self, id: PathId) -> bool {
        !self
            .paths
            .iter()
            .any(|(other, path)| *other != id && path.state().is_connected())
    }

    /// Returns the measured rate of a path, and true if the path is suspect.
    fn rate_of(paths: &BTreeMap<PathId, Path>, id: PathId) -> (Option<BitRate>, bool) {
        let path = paths.get(&id);
        let suspect = path.is_none_or(|path| path.state() != PathState::Open);
        (path.and_then(|path| path.rate.rate()), suspect)
    }

    fn on_path_lost(&mut self, id: PathId, loss: PathLoss, now: Instant) {
        self.reliable.on_path_doubtful(id);
        for transfer in self.transfers.values_mut() {
            transfer.on_path_lost(id);
        }
        if !self.is_connected() {
            self.alone_since.get_or_insert(now);
        }
        self.changed(id, Some(loss));
    }

    fn changed(&mut self, id: PathId, loss: Option<PathLoss>) {
        if let Some(path) = self.paths.get(&id) {
            self.events.push_back(Event::PathChanged {
                path: id,
                state: path.state(),
                loss,
            });
        }
    }

    fn send(&mut self, message: &Message) {
        // Writing to a vector cannot fail.
        if let Ok(body) = minicbor::to_vec(message) {
            self.reliable.push(body);
        }
    }

    /// Returns the time since the session began in microseconds, plus one: in a heartbeat, 0 means
    /// "none".
    fn micros(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_micros() as u64 + 1
    }
}

fn poll_acks(
    transfers: &mut BTreeMap<TransferId, Transfer>,
    path: PathId,
    now: Instant,
) -> Option<(TransferId, Vec<crate::extent::ChunkRange>)> {
    transfers
        .iter_mut()
        .find_map(|(id, transfer)| Some((*id, transfer.receiver_mut()?.poll_ack(path, now)?)))
}

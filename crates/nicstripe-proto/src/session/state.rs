//! State machine of a session. Dispatches frames, timers and messages to the other modules.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    bench::BenchState,
    config::SessionConfig,
    error::PathError,
    event::{Event, Transmit},
    links::Links,
    paths::Paths,
    transfers::Transfers,
};
use crate::{
    id::{PathId, Role},
    path::{machine::Path, reliable::Reliable},
    transfer::receiver::Receiver,
    wire::{
        frame::Frame,
        message::{AskKind, CloseCode, Message},
    },
};

/// State machine of one end of a session.
#[derive(Debug)]
pub struct Session {
    pub(super) role: Role,
    pub(super) config: SessionConfig,
    /// Origin of the timestamps in the heartbeats that this end sends.
    epoch: Instant,
    pub(super) reliable: Reliable,
    pub(super) paths: Paths,
    /// Client only: planning of the links, once it has begun.
    pub(super) links: Option<Links>,
    pub(super) transfers: Transfers,
    pub(super) events: VecDeque<Event>,
    /// Time since which the peer has been unreachable; `None` while the peer is reachable. Cleared
    /// by the first bytes received on a connection.
    pub(super) alone_since: Option<Instant>,
    pub(super) closed: Option<CloseCode>,
    /// True once [`Event::Closed`] was emitted. The peer sends a close frame on each path, and only
    /// the first one counts.
    peer_closed: bool,
    pub(super) hedge_at: Option<Instant>,
    /// Time of the latest `handle_timeout` call. Frames that were due by then need no further
    /// timeout, because they are sent as soon as their path can take them.
    reminded: Instant,
    pub(super) bench: BenchState,
    /// Unanswered requests by their IDs.
    pub(super) asks: BTreeMap<u32, AskKind>,
    /// Maximum number of chunks in memory over all paths, in each direction.
    pub(super) chunk_budget: u64,
}

impl Session {
    /// Returns a session without paths.
    pub fn new(role: Role, config: SessionConfig, now: Instant) -> Self {
        Self {
            role,
            paths: Paths::new(config.rate_limit, now),
            links: None,
            config,
            epoch: now,
            reliable: Reliable::default(),
            transfers: Transfers::default(),
            events: VecDeque::new(),
            alone_since: Some(now),
            closed: None,
            peer_closed: false,
            hedge_at: None,
            reminded: now,
            bench: BenchState::default(),
            asks: BTreeMap::new(),
            chunk_budget: u64::MAX,
        }
    }

    /// Handles a complete frame that was received on a path, of any type except data, load and
    /// echo.
    ///
    /// # Errors
    ///
    /// Returns [`PathError`] if the frame violates the protocol. The caller must then end the path.
    pub fn handle_frame(
        &mut self,
        id: PathId,
        frame: Frame,
        now: Instant,
    ) -> Result<(), PathError> {
        self.handle_heard(id, now);
        match frame {
            Frame::Control { seq, body } => {
                let ready = self.reliable.handle(id, seq, body, now)?;
                // All of the messages are acknowledged, so an invalid message must not discard the
                // messages after it.
                let results = ready
                    .into_iter()
                    .map(|body| self.handle_body(&body, now))
                    .collect::<Vec<_>>();
                return results.into_iter().collect();
            }
            Frame::ControlAck { next } => self.reliable.handle_ack(next)?,
            Frame::Ack { transfer, ranges } => self.handle_acks(id, transfer, &ranges, now)?,
            Frame::Credit { frames } => {
                if let Some(path) = self.paths.get_mut(id) {
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
        if let Some(path) = self.paths.get_mut(id) {
            path.on_heartbeat(sent_us, round_trip, now);
        }
    }

    /// Returns the next item to send on a path; `None` if nothing may be sent now.
    pub fn poll_transmit(&mut self, id: PathId, now: Instant) -> Option<Transmit> {
        let path = self.paths.connected_mut(id)?;
        if let Some(code) = self.closed {
            let first = !std::mem::replace(&mut path.close_sent, true);
            return first.then_some(Transmit::Frame(Frame::Close { code: code as u32 }));
        }
        if let Some(load) = self.poll_load(id) {
            return Some(load);
        }
        if let Some(frame) = self.poll_frame(id, now) {
            if let Some(path) = self.paths.get_mut(id) {
                path.on_sent(now);
            }
            return Some(Transmit::Frame(frame));
        }
        self.poll_chunk(id, now)
    }

    fn poll_frame(&mut self, id: PathId, now: Instant) -> Option<Frame> {
        let speaks = self.paths.is_best_for_control(id, now) && self.reliable.is_due(id, now);
        if let Some(next) = self.reliable.poll_ack(id, speaks, now) {
            return Some(Frame::ControlAck { next });
        }
        if speaks && let Some(due) = self.reliable.poll(id, now) {
            if let Some(late) = due.late_on.and_then(|late| self.paths.get_mut(late)) {
                late.on_control_late(now);
            }
            return Some(Frame::Control {
                seq: due.seq,
                body: due.body,
            });
        }
        if let Some((transfer, ranges)) = self.transfers.poll_acks(id, now) {
            return Some(Frame::Ack { transfer, ranges });
        }
        let now_us = self.micros(now);
        let (may_carry_data, window) = (self.paths.may_carry_data(id, now), self.window_to_grant());
        let path = self.paths.get_mut(id)?;
        if may_carry_data && let Some(frames) = path.flow.credit_due(window) {
            path.flow.on_granted(frames);
            return Some(Frame::Credit { frames });
        }
        path.heartbeat_is_due(now).then(|| Frame::Heartbeat {
            sent_us: now_us,
            echo_us: path.take_echo().unwrap_or(0),
        })
    }

    /// Returns the next event; `None` if no event is pending.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time at which the caller must call [`handle_timeout`](Self::handle_timeout);
    /// `None` after a close.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed.is_some() {
            return None;
        }
        let paths = || self.paths.iter().map(|(_, path)| path);
        let receivers = || self.transfers.receivers();
        // A heartbeat or acknowledgement that was due at the last timeout waits only for its path.
        let heartbeats = paths().filter_map(Path::heartbeat_at);
        let acks = receivers().filter_map(Receiver::ack_deadline);
        let acks = acks.chain(self.reliable.ack_deadline());
        let to_send = heartbeats.chain(acks).filter(|at| *at > self.reminded);
        let interval = self.config.sync_interval;
        let syncs = receivers().filter_map(|receiver| receiver.sync_deadline(interval));
        let alone_since = self.alone_since.filter(|_| !self.is_connected());
        let abandon = alone_since.and_then(|since| since.checked_add(self.config.patience));
        paths()
            .filter_map(Path::verdict_at)
            .chain(to_send)
            .chain(syncs)
            .chain(abandon)
            .chain(self.paths.paced_until)
            .chain(self.hedge_at)
            .chain(self.links_timeout())
            .min()
    }

    /// Handles the expired timers: silence, connection retries, syncs, abandonment.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.paths.paced_until = self.paths.paced_until.filter(|at| *at > now);
        self.hedge_at = self.hedge_at.filter(|at| *at > now);
        self.reminded = self.reminded.max(now);
        self.judge_paths(now);
        self.poll_links(now);
        self.poll_syncs(now);
        let is_over = self
            .alone_since
            .is_some_and(|since| now.saturating_duration_since(since) >= self.config.patience);
        if is_over && !self.is_connected() {
            self.alone_since = None;
            self.events.push_back(Event::Abandoned);
        }
    }

    /// Closes the session. Each path sends a close frame as its last frame.
    pub fn close(&mut self, code: CloseCode) {
        self.closed = Some(code);
    }

    /// Returns the time since which the peer has been unreachable; `None` while the peer is
    /// reachable. A peer counts as reachable once bytes were received on a connection.
    pub fn alone_since(&self) -> Option<Instant> {
        self.alone_since
    }

    /// Returns true if any path has a connection, even if the path is suspect.
    pub fn is_connected(&self) -> bool {
        self.paths
            .iter()
            .any(|(_, path)| path.state().is_connected())
    }

    pub(super) fn send(&mut self, message: &Message) {
        // Encoding into a vector cannot fail.
        if let Ok(body) = minicbor::to_vec(message) {
            self.reliable.push(body);
        }
    }

    /// Returns the time since the start of the session in microseconds, plus one. In a heartbeat, 0
    /// means "none".
    fn micros(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_micros() as u64 + 1
    }
}

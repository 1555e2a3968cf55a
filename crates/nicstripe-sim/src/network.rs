//! Simulated network: all links, and the virtual clock.

use std::{collections::VecDeque, time::Duration};

use crate::{
    agenda::{Agenda, Key},
    event::{CloseReason, Due, Event, Fault, Message, Refused, Route, next_retransmission},
    link::{CARRIER_DETECTION, End, LinkConfig, LinkId, PerEnd, Traffic},
    pipe::{Pipe, Segment},
    rng::Rng,
};

/// Simulated network: two ends, the links between them, and a virtual clock. The crate
/// documentation describes the model.
///
/// Iterates over [`Event`]s and ends when no event remains. Take one event with `next()`, respond
/// to it, then take the next: all methods act at the time of the latest event. A [`LinkId`] of
/// another network may cause a panic.
#[derive(Debug)]
pub struct Network<M> {
    now: Duration,
    agenda: Agenda<Due>,
    /// Events that occurred at the time `now` and have not been returned yet.
    ready: VecDeque<Event<M>>,
    links: Vec<Link<M>>,
    rng: Rng,
}

#[derive(Debug)]
struct Link<M> {
    config: LinkConfig,
    has_carrier: bool,
    /// Both directions of the link, by sending end.
    pipes: PerEnd<Pipe<M>>,
    views: PerEnd<View>,
    handshake: Option<Handshake>,
    /// Number of connection attempts on this link. The latest attempt has this number.
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Idle,
    Opening(u64),
    Open(u64),
}

#[derive(Debug)]
struct Handshake {
    by: End,
    since: Duration,
    /// Agenda key of the handshake's completion; `None` while a direction is silent.
    done: Option<Key>,
}

impl<M: Message> Network<M> {
    /// Creates a network without links, at time zero. Equal seeds produce equal jitter.
    pub const fn new(seed: u64) -> Network<M> {
        Network {
            now: Duration::ZERO,
            agenda: Agenda::new(),
            ready: VecDeque::new(),
            links: Vec::new(),
            rng: Rng::new(seed),
        }
    }

    /// Adds a link that has a carrier but no connection.
    pub fn add_link(&mut self, config: LinkConfig) -> LinkId {
        let link = LinkId(self.links.len());
        // Each direction has a separate random generator, so that traffic in one direction does not
        // affect the jitter of another.
        let pipes = PerEnd::new(|from| {
            Pipe::new(
                Route { link, from },
                config.clone(),
                Rng::new(self.rng.next_u64()),
            )
        });
        let views = PerEnd::new(|_| View::Idle);
        self.links.push(Link {
            config,
            has_carrier: true,
            pipes,
            views,
            handshake: None,
            generation: 0,
        });
        link
    }

    /// Returns the identifiers of all links in the order of creation.
    pub fn links(&self) -> impl ExactSizeIterator<Item = LinkId> + use<M> {
        (0..self.links.len()).map(LinkId)
    }

    /// Returns the virtual time since the creation of the network.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Returns the next event if it occurs at or before `limit`; otherwise advances the time to
    /// `limit` and returns `None`.
    pub fn next_until(&mut self, limit: Duration) -> Option<Event<M>> {
        let event = self.take_event(limit);
        if event.is_none() {
            self.now = self.now.max(limit);
        }
        event
    }

    /// Returns the time of the network's next state change; `None` if none is scheduled. A state
    /// change may cause no event. Suits callers with a clock of their own.
    pub fn next_at(&self) -> Option<Duration> {
        if self.ready.is_empty() {
            self.agenda.next_at()
        } else {
            Some(self.now)
        }
    }

    /// Schedules a fault for the time `at`. Applies the fault before the next event if `at` is in
    /// the past.
    pub fn schedule(&mut self, at: Duration, fault: Fault) {
        self.agenda.add(at.max(self.now), Due::Fault(fault));
    }

    /// Applies a fault immediately.
    pub fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(link) => self.cut(link),
            Fault::Silence(link, from) => self.silence(link, from),
            Fault::Heal(link) => self.heal(link),
            Fault::SetRate(link, from, bits_per_second) => {
                self.set_rate(link, from, bits_per_second);
            }
        }
    }

    /// Starts to open a connection over `link`. The end `by` later receives [`Event::Opened`] or
    /// [`Event::Closed`].
    ///
    /// [Closes](Network::close) an existing connection of `by` first. The other end receives
    /// [`CloseReason::Replaced`] if it still has a connection when the new one arrives, just before
    /// the new connection opens. The other end receives the event immediately if it is itself
    /// connecting at that moment. The attempt fails with [`CloseReason::NoCarrier`] if the link has
    /// no carrier. On a silent link, the attempt waits until the link is healed or
    /// [`close`](Network::close) cancels the attempt.
    pub fn connect(&mut self, link: LinkId, by: End) {
        self.close(link, by);
        let state = &mut self.links[link.0];
        state.abandon_handshake(&mut self.agenda);
        if let View::Opening(_) = state.views[by.other()] {
            state.views[by.other()] = View::Idle;
            self.ready.push_back(Event::Closed {
                link,
                end: by.other(),
                reason: CloseReason::Replaced,
            });
        }
        state.generation += 1;
        let generation = state.generation;
        state.views[by] = View::Opening(generation);
        if state.has_carrier {
            state.handshake = Some(Handshake {
                by,
                since: self.now,
                done: None,
            });
            state.start_handshake(link, self.now, &mut self.agenda);
        } else {
            let at = self.now.saturating_add(CARRIER_DETECTION);
            self.agenda.add(
                at,
                Due::Closes {
                    link,
                    end: by,
                    generation,
                    reason: CloseReason::NoCarrier,
                },
            );
        }
    }

    /// Closes the connection at `end`, or cancels the attempt of `end` to connect. `end` receives
    /// no event.
    ///
    /// Data that `end` has sent is still delivered; then the other end receives
    /// [`CloseReason::PeerClosed`]. Data in flight to `end` is lost.
    pub fn close(&mut self, link: LinkId, end: End) {
        let state = &mut self.links[link.0];
        match std::mem::replace(&mut state.views[end], View::Idle) {
            View::Idle => {}
            View::Opening(_) => state.abandon_handshake(&mut self.agenda),
            View::Open(_) => state.pipes[end].push(Segment::Close, self.now, &mut self.agenda),
        }
    }

    /// Returns true if `end` considers its connection open. The other end may already have closed
    /// it.
    pub fn is_open(&self, link: LinkId, end: End) -> bool {
        matches!(self.links[link.0].views[end], View::Open(_))
    }

    /// Returns true if a connection is open at `end` and its send buffer has space.
    /// [`offer`](Network::offer) then accepts a message.
    pub fn is_writable(&self, link: LinkId, end: End) -> bool {
        self.is_open(link, end) && !self.links[link.0].pipes[end].is_full()
    }

    /// Queues a message from `from` to the other end of `link`.
    ///
    /// # Errors
    ///
    /// Returns [`Refused`] with the message if the send buffer is full or no connection is open at
    /// `from`.
    pub fn offer(&mut self, link: LinkId, from: End, message: M) -> Result<(), Refused<M>> {
        if !self.is_open(link, from) {
            return Err(Refused::NotOpen(message));
        }
        let pipe = &mut self.links[link.0].pipes[from];
        if pipe.is_full() {
            return Err(Refused::Full(message));
        }
        pipe.push(Segment::Message(message), self.now, &mut self.agenda);
        Ok(())
    }

    /// Returns the counters of the data that `from` has sent on `link`.
    pub fn traffic(&self, link: LinkId, from: End) -> Traffic {
        self.links[link.0].pipes[from].traffic()
    }

    /// Cuts the carrier of a link. All data on the link is lost. Both ends are notified after the
    /// carrier detection time, even if the link is healed earlier, as on a system that monitors the
    /// carrier.
    pub fn cut(&mut self, link: LinkId) {
        let state = &mut self.links[link.0];
        if !std::mem::replace(&mut state.has_carrier, false) {
            return;
        }
        state.abandon_handshake(&mut self.agenda);
        for end in End::BOTH {
            state.pipes[end].kill(&mut self.agenda);
            if let View::Open(generation) | View::Opening(generation) = state.views[end] {
                let at = self.now.saturating_add(CARRIER_DETECTION);
                self.agenda.add(
                    at,
                    Due::Closes {
                        link,
                        end,
                        generation,
                        reason: CloseReason::CarrierLost,
                    },
                );
            }
        }
    }

    /// Silently drops all data that `from` sends on `link`, including data in flight. Neither end
    /// is notified.
    pub fn silence(&mut self, link: LinkId, from: End) {
        let state = &mut self.links[link.0];
        state.pipes[from].silence(self.now, &mut self.agenda);
        if let Some(key) = state
            .handshake
            .as_mut()
            .and_then(|handshake| handshake.done.take())
        {
            self.agenda.cancel(key);
        }
    }

    /// Restores the carrier of a cut link, and ends the silence of both directions.
    ///
    /// A connection that a cut ended is not restored. A silenced connection continues with TCP's
    /// next retransmission.
    pub fn heal(&mut self, link: LinkId) {
        let state = &mut self.links[link.0];
        state.has_carrier = true;
        for end in End::BOTH {
            if state.pipes[end].is_silent() {
                state.pipes[end].heal(self.now, &mut self.agenda);
                state.pipes[end.other()].repeat_acknowledgements(self.now, &mut self.agenda);
            }
        }
        state.start_handshake(link, self.now, &mut self.agenda);
    }

    /// Changes the rate of data from `from` on `link`, including the message in transmission. A
    /// rate of 0 stops transmission.
    pub fn set_rate(&mut self, link: LinkId, from: End, bits_per_second: u64) {
        self.links[link.0].pipes[from].set_rate(bits_per_second, self.now, &mut self.agenda);
    }

    fn take_event(&mut self, limit: Duration) -> Option<Event<M>> {
        while self.ready.is_empty() {
            let (at, due) = self.agenda.take_until(limit)?;
            self.now = at;
            self.on_due(due);
        }
        self.ready.pop_front()
    }

    fn on_due(&mut self, due: Due) {
        match due {
            Due::Sent(route) => self.on_sent(route),
            Due::Arrives(route) => self.on_arrives(route),
            Due::Acknowledged {
                route: Route { link, from },
                generation,
                bytes,
            } => {
                self.links[link.0].pipes[from].on_acknowledged(
                    generation,
                    bytes,
                    self.now,
                    &mut self.agenda,
                );
            }
            Due::Resumes(Route { link, from }) => {
                self.links[link.0].pipes[from].on_resumes(self.now, &mut self.agenda);
            }
            Due::HandshakeDone(link) => self.on_handshake_done(link),
            Due::Closes {
                link,
                end,
                generation,
                reason,
            } => self.on_closes(link, end, generation, reason),
            Due::Fault(fault) => self.apply(fault),
        }
    }

    fn on_sent(&mut self, Route { link, from }: Route) {
        let state = &mut self.links[link.0];
        let has_room = state.pipes[from].on_sent(self.now, &mut self.agenda);
        if has_room && matches!(state.views[from], View::Open(_)) {
            self.ready.push_back(Event::Writable { link, end: from });
        }
    }

    fn on_arrives(&mut self, Route { link, from }: Route) {
        let state = &mut self.links[link.0];
        let to = from.other();
        let acknowledgement_is_lost = state.pipes[to].is_silent();
        let Some((segment, generation)) =
            state.pipes[from].on_arrives(acknowledgement_is_lost, self.now, &mut self.agenda)
        else {
            return;
        };
        let is_open = state.views[to] == View::Open(generation);
        match segment {
            Segment::Open => self.on_opened(link, to, generation),
            Segment::Message(message) if is_open => {
                state.pipes[from].on_delivered(message.wire_len());
                self.ready.push_back(Event::Delivered { link, to, message });
            }
            Segment::Close if is_open => {
                state.pipes[to].kill(&mut self.agenda);
                self.on_closes(link, to, generation, CloseReason::PeerClosed);
            }
            // The end has closed its connection, or uses a newer one.
            Segment::Message(_) | Segment::Close => {}
        }
    }

    fn on_handshake_done(&mut self, link: LinkId) {
        let state = &mut self.links[link.0];
        let Some(Handshake { by, .. }) = state.handshake.take() else {
            return;
        };
        state.views[by] = View::Open(state.generation);
        state.pipes[by].open(state.generation, &mut self.agenda);
        state.pipes[by].push(Segment::Open, self.now, &mut self.agenda);
        self.ready.push_back(Event::Opened { link, end: by });
    }

    fn on_opened(&mut self, link: LinkId, end: End, generation: u64) {
        let state = &mut self.links[link.0];
        if let View::Open(newer) | View::Opening(newer) = state.views[end]
            && newer > generation
        {
            return self.reject(link, end.other(), generation);
        }
        let before = std::mem::replace(&mut state.views[end], View::Open(generation));
        state.pipes[end].open(generation, &mut self.agenda);
        if before != View::Idle {
            self.ready.push_back(Event::Closed {
                link,
                end,
                reason: CloseReason::Replaced,
            });
        }
        self.ready.push_back(Event::Opened { link, end });
    }

    /// Notifies `end` that the other end has opened a newer connection, unless the direction to
    /// `end` is silent.
    fn reject(&mut self, link: LinkId, end: End, generation: u64) {
        let state = &self.links[link.0];
        if !state.pipes[end.other()].is_silent() {
            let at = self.now.saturating_add(state.config.delay);
            self.agenda.add(
                at,
                Due::Closes {
                    link,
                    end,
                    generation,
                    reason: CloseReason::Replaced,
                },
            );
        }
    }

    fn on_closes(&mut self, link: LinkId, end: End, generation: u64, reason: CloseReason) {
        let view = &mut self.links[link.0].views[end];
        if matches!(*view, View::Open(its) | View::Opening(its) if its == generation) {
            *view = View::Idle;
            self.ready.push_back(Event::Closed { link, end, reason });
        }
    }
}

impl<M: Message> Iterator for Network<M> {
    type Item = Event<M>;

    fn next(&mut self) -> Option<Event<M>> {
        self.take_event(Duration::MAX)
    }
}

impl<M: Message> Link<M> {
    /// Starts the timer of a pending handshake, unless a direction of the link is silent.
    fn start_handshake(&mut self, link: LinkId, now: Duration, agenda: &mut Agenda<Due>) {
        let is_silent = End::BOTH.iter().any(|&end| self.pipes[end].is_silent());
        let Some(handshake) = self
            .handshake
            .as_mut()
            .filter(|handshake| handshake.done.is_none() && !is_silent)
        else {
            return;
        };
        let start = if handshake.since == now {
            now
        } else {
            next_retransmission(handshake.since, SYN_TIMEOUT, now)
        };
        handshake.done = Some(agenda.add(
            start.saturating_add(self.config.handshake()),
            Due::HandshakeDone(link),
        ));
    }

    fn abandon_handshake(&mut self, agenda: &mut Agenda<Due>) {
        if let Some(key) = self.handshake.take().and_then(|handshake| handshake.done) {
            agenda.cancel(key);
        }
    }
}

/// Interval between the first and the second attempt of a TCP handshake on Linux
/// (`TCP_TIMEOUT_INIT`; RFC 6298, section 2).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

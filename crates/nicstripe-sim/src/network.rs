//! The network: all links, one clock.

use std::{collections::VecDeque, time::Duration};

use crate::{
    agenda::{Agenda, Key},
    event::{CloseReason, Due, Event, Fault, Message, Refused, Route, next_retransmission},
    link::{End, LinkConfig, LinkId, PerEnd, Traffic},
    pipe::{Parcel, Pipe},
    rng::Rng,
};

/// Two ends, the links between them, and virtual time. The crate's documentation describes the
/// model.
///
/// An iterator of [`Event`]s that ends when none is left. Take one event with `next()`, respond,
/// take the next; all methods act at the time of the last event. A [`LinkId`] of another network
/// may panic.
#[derive(Debug)]
pub struct Network<M> {
    now: Duration,
    agenda: Agenda<Due>,
    /// Events of `now` that were not returned yet.
    ready: VecDeque<Event<M>>,
    links: Vec<Link<M>>,
    rng: Rng,
}

#[derive(Debug)]
struct Link<M> {
    config: LinkConfig,
    has_carrier: bool,
    /// Data sent by each end.
    pipes: PerEnd<Pipe<M>>,
    views: PerEnd<View>,
    handshake: Option<Handshake>,
    /// Number of connection attempts so far, and of the latest one.
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
    /// `None` while a direction is silent.
    done: Option<Key>,
}

impl<M: Message> Network<M> {
    /// Returns a network without links at time zero.
    pub const fn new(seed: u64) -> Network<M> {
        Network {
            now: Duration::ZERO,
            agenda: Agenda::new(),
            ready: VecDeque::new(),
            links: Vec::new(),
            rng: Rng::new(seed),
        }
    }

    /// Adds a link, with a carrier and without a connection.
    pub fn add_link(&mut self, config: LinkConfig) -> LinkId {
        let link = LinkId(self.links.len());
        // Each direction has a separate random generator, so that traffic on one does not affect
        // another.
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

    /// Returns all links in the order of creation.
    pub fn links(&self) -> impl ExactSizeIterator<Item = LinkId> + use<M> {
        (0..self.links.len()).map(LinkId)
    }

    /// Returns the time since the start.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Advances to the next event, if it is not after `limit`. Otherwise advances to `limit` and
    /// returns `None`. For callers that manage their deadlines without timers.
    pub fn next_until(&mut self, limit: Duration) -> Option<Event<M>> {
        let event = self.take_event(limit);
        if event.is_none() {
            self.now = self.now.max(limit);
        }
        event
    }

    /// Schedules an [`Event::Timer`] at `at`, or at once if that has passed.
    pub fn set_timer(&mut self, at: Duration, token: u64) {
        self.agenda.add(at.max(self.now), Due::Timer(token));
    }

    /// Schedules a fault at `at`, or with the next event if that has passed.
    pub fn schedule(&mut self, at: Duration, fault: Fault) {
        self.agenda.add(at.max(self.now), Due::Fault(fault));
    }

    /// Applies a fault now.
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

    /// Starts to open a connection over `link`; [`Event::Opened`] or [`Event::Closed`] follows at
    /// `by`.
    ///
    /// [Closes](Network::close) an existing connection of `by` first. If the other end still has
    /// one when the new one arrives, it gets [`CloseReason::Replaced`] just before; at once if it
    /// was connecting itself. Without a carrier the attempt fails with [`CloseReason::NoCarrier`].
    /// On a silent link it waits until [`close`](Network::close) cancels it.
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
            let at = self.now.saturating_add(state.config.carrier_detection);
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

    /// Ends the connection or attempt at `end`, which gets no event for it.
    ///
    /// Data from `end` is still delivered, then the other end gets [`CloseReason::PeerClosed`].
    /// Data to `end` is lost.
    pub fn close(&mut self, link: LinkId, end: End) {
        let state = &mut self.links[link.0];
        match std::mem::replace(&mut state.views[end], View::Idle) {
            View::Idle => {}
            View::Opening(_) => state.abandon_handshake(&mut self.agenda),
            View::Open(_) => state.pipes[end].push(Parcel::Close, self.now, &mut self.agenda),
        }
    }

    /// Returns true if a connection is open from the view of `end`.
    pub fn is_open(&self, link: LinkId, end: End) -> bool {
        matches!(self.links[link.0].views[end], View::Open(_))
    }

    /// Returns true if [`offer`](Network::offer) would accept a message.
    pub fn is_writable(&self, link: LinkId, end: End) -> bool {
        self.is_open(link, end) && !self.links[link.0].pipes[end].is_full()
    }

    /// Sends a message to the other end of `link`.
    ///
    /// # Errors
    ///
    /// [`Refused`] returns the message if the send buffer is full or no connection is open.
    pub fn offer(&mut self, link: LinkId, from: End, message: M) -> Result<(), Refused<M>> {
        if !self.is_open(link, from) {
            return Err(Refused::NotOpen(message));
        }
        let pipe = &mut self.links[link.0].pipes[from];
        if pipe.is_full() {
            return Err(Refused::Full(message));
        }
        pipe.push(Parcel::Message(message), self.now, &mut self.agenda);
        Ok(())
    }

    /// Returns the traffic that `from` has sent on `link`.
    pub fn traffic(&self, link: LinkId, from: End) -> Traffic {
        self.links[link.0].pipes[from].traffic()
    }

    /// Cuts the carrier: data on the link is lost. Both ends are notified after the carrier
    /// detection time, even if the link is healed before that, like a system that watches for
    /// carrier changes.
    pub fn cut(&mut self, link: LinkId) {
        let state = &mut self.links[link.0];
        if !std::mem::replace(&mut state.has_carrier, false) {
            return;
        }
        state.abandon_handshake(&mut self.agenda);
        for end in End::BOTH {
            state.pipes[end].kill(&mut self.agenda);
            if let View::Open(generation) | View::Opening(generation) = state.views[end] {
                let at = self.now.saturating_add(state.config.carrier_detection);
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

    /// Drops all data that `from` sends on `link`, including data in flight, without notice.
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

    /// Restores the carrier of a link that was cut, and ends its silence in both directions.
    ///
    /// A connection that a cut has ended stays ended. A silenced one continues with TCP's next
    /// retransmission.
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

    /// Changes the rate of data that `from` sends on `link`, also for the current message; at rate
    /// 0 nothing moves.
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
            Due::Timer(token) => self.ready.push_back(Event::Timer { token }),
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
        let Some((parcel, generation)) =
            state.pipes[from].on_arrives(acknowledgement_is_lost, self.now, &mut self.agenda)
        else {
            return;
        };
        let is_open = state.views[to] == View::Open(generation);
        match parcel {
            Parcel::Open => self.on_opened(link, to, generation),
            Parcel::Message(message) if is_open => {
                state.pipes[from].on_delivered(message.wire_len());
                self.ready.push_back(Event::Delivered { link, to, message });
            }
            Parcel::Close if is_open => {
                state.pipes[to].kill(&mut self.agenda);
                self.on_closes(link, to, generation, CloseReason::PeerClosed);
            }
            // The end has closed, or has moved to another connection.
            Parcel::Message(_) | Parcel::Close => {}
        }
    }

    fn on_handshake_done(&mut self, link: LinkId) {
        let state = &mut self.links[link.0];
        let Some(Handshake { by, .. }) = state.handshake.take() else {
            return;
        };
        state.views[by] = View::Open(state.generation);
        state.pipes[by].open(state.generation, &mut self.agenda);
        state.pipes[by].push(Parcel::Open, self.now, &mut self.agenda);
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

    /// Notifies an end, if reachable, that the other one has moved to a newer connection.
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
    /// Starts a waiting handshake, if there is one and no direction is silent.
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

/// Time to the second attempt of a TCP handshake on Linux (`TCP_TIMEOUT_INIT`; RFC 6298, section
/// 2).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

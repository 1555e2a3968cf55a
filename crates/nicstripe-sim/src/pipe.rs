//! One direction of a link: the cable and the current connection over it.

use std::{collections::VecDeque, mem, time::Duration};

use crate::{
    agenda::{Agenda, Key},
    event::{Due, FIRST_TIMEOUT, Message, Route, next_retransmission},
    link::{LinkConfig, Traffic},
    rng::Rng,
};

/// Direction of a link, with the data that its sending end transmits. Each new connection resets
/// `connection`; the other fields last as long as the link.
#[derive(Debug)]
pub(crate) struct Pipe<M> {
    route: Route,
    config: LinkConfig,
    rng: Rng,
    silent: bool,
    accepted_bytes: u64,
    delivered_bytes: u64,
    connection: Connection<M>,
}

/// Unit of transmission: a message of the caller, or a control segment of TCP.
#[derive(Debug)]
pub(crate) enum Segment<M> {
    Open,
    Message(M),
    Close,
}

#[derive(Debug)]
struct Connection<M> {
    generation: u64,
    /// False once the connection has ended. Nothing more is transmitted then, but the send buffer
    /// accepts data until the sending end is notified.
    alive: bool,
    /// Send buffer: segments whose transmission has not begun.
    queue: VecDeque<Segment<M>>,
    /// Number of bytes in `queue` and `sending`.
    unsent_bytes: u64,
    sending: Option<Sending<M>>,
    /// Segments in flight, oldest first: their last bit has left the sender.
    flying: VecDeque<Flying<M>>,
    last_arrival: Duration,
    /// Number of bytes whose transmission has begun and that are not yet acknowledged.
    unacknowledged_bytes: u64,
    /// Number of bytes that arrived but whose acknowledgement was lost in a silence of the other
    /// direction.
    held_acknowledgements: u64,
    /// Time at which a silence first blocked or dropped data; `None` while data flows.
    stalled_since: Option<Duration>,
    /// Agenda key of the retransmission after a silence; `None` if none is scheduled.
    resumes: Option<Key>,
}

#[derive(Debug)]
struct Sending<M> {
    segment: Segment<M>,
    bits_left: u128,
    /// Time at which `bits_left` was last updated.
    since: Duration,
    /// Agenda key of the end of this transmission; `None` while it is paused.
    done: Option<Key>,
}

#[derive(Debug)]
struct Flying<M> {
    segment: Segment<M>,
    /// Agenda key of this segment's arrival; `None` while the direction is silent.
    arrives: Option<Key>,
}

impl<M: Message> Segment<M> {
    fn wire_len(&self) -> u64 {
        match self {
            Segment::Message(message) => message.wire_len(),
            Segment::Open | Segment::Close => 0,
        }
    }
}

impl<M: Message> Pipe<M> {
    pub(crate) fn new(route: Route, config: LinkConfig, rng: Rng) -> Pipe<M> {
        let connection = Connection::new(0, false);
        Pipe {
            route,
            config,
            rng,
            silent: false,
            accepted_bytes: 0,
            delivered_bytes: 0,
            connection,
        }
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.silent
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.connection.unsent_bytes >= self.config.send_buffer
    }

    pub(crate) const fn traffic(&self) -> Traffic {
        Traffic {
            accepted_bytes: self.accepted_bytes,
            delivered_bytes: self.delivered_bytes,
            unsent_bytes: self.connection.unsent_bytes,
            unacknowledged_bytes: self.connection.unacknowledged_bytes,
        }
    }

    pub(crate) fn open(&mut self, generation: u64, agenda: &mut Agenda<Due>) {
        self.kill(agenda);
        self.connection = Connection::new(generation, true);
    }

    /// Stops the connection. Data in flight is lost; the send buffer keeps its content.
    pub(crate) fn kill(&mut self, agenda: &mut Agenda<Due>) {
        let connection = &mut self.connection;
        connection.alive = false;
        let sending = connection.sending.take();
        let keys = sending.into_iter().filter_map(|sending| sending.done);
        let keys = keys.chain(
            mem::take(&mut connection.flying)
                .into_iter()
                .filter_map(|flying| flying.arrives),
        );
        keys.chain(connection.resumes.take())
            .for_each(|key| agenda.cancel(key));
    }

    pub(crate) fn push(&mut self, segment: Segment<M>, now: Duration, agenda: &mut Agenda<Due>) {
        let len = segment.wire_len();
        self.accepted_bytes += len;
        self.connection.unsent_bytes += len;
        self.connection.queue.push_back(segment);
        self.send_next(now, agenda);
    }

    pub(crate) fn set_rate(
        &mut self,
        bits_per_second: u64,
        now: Duration,
        agenda: &mut Agenda<Due>,
    ) {
        self.pause_sending(now, agenda);
        self.config.rate[self.route.from] = bits_per_second;
        if !self.is_blocked() {
            self.resume_sending(now, agenda);
        }
    }

    pub(crate) fn silence(&mut self, now: Duration, agenda: &mut Agenda<Due>) {
        self.silent = true;
        self.pause_sending(now, agenda);
        let connection = &mut self.connection;
        let keys = connection
            .flying
            .iter_mut()
            .filter_map(|flying| flying.arrives.take());
        keys.chain(connection.resumes.take())
            .for_each(|key| agenda.cancel(key));
        if connection.alive && connection.has_unfinished() {
            connection.stalled_since.get_or_insert(now);
        }
    }

    pub(crate) fn heal(&mut self, now: Duration, agenda: &mut Agenda<Due>) {
        if !mem::take(&mut self.silent) || !self.connection.alive {
            return;
        }
        if let Some(since) = self.connection.stalled_since {
            let at = next_retransmission(since, FIRST_TIMEOUT, now);
            self.connection.resumes = Some(agenda.add(at, Due::Resumes(self.route)));
        }
    }

    /// Resends the acknowledgements that were lost while the other direction was silent.
    pub(crate) fn repeat_acknowledgements(&mut self, now: Duration, agenda: &mut Agenda<Due>) {
        let bytes = mem::take(&mut self.connection.held_acknowledgements);
        if bytes > 0 {
            self.schedule_acknowledgement(bytes, now, agenda);
        }
    }

    pub(crate) fn on_resumes(&mut self, now: Duration, agenda: &mut Agenda<Due>) {
        self.connection.resumes = None;
        self.connection.stalled_since = None;
        for index in 0..self.connection.flying.len() {
            let key = self.schedule_arrival(now, agenda);
            self.connection.flying[index].arrives = Some(key);
        }
        self.resume_sending(now, agenda);
        self.send_next(now, agenda);
    }

    /// Moves the transmitted segment into flight and starts the next one. Returns true if the send
    /// buffer was full and now has space.
    pub(crate) fn on_sent(&mut self, now: Duration, agenda: &mut Agenda<Due>) -> bool {
        let was_full = self.is_full();
        if let Some(Sending { segment, .. }) = self.connection.sending.take() {
            self.connection.unsent_bytes -= segment.wire_len();
            let arrives = Some(self.schedule_arrival(now, agenda));
            self.connection
                .flying
                .push_back(Flying { segment, arrives });
        }
        self.send_next(now, agenda);
        was_full && !self.is_full()
    }

    /// Removes the segment that arrives, and returns it with the generation of its connection.
    /// Holds back the acknowledgement if `acknowledgement_is_lost`.
    pub(crate) fn on_arrives(
        &mut self,
        acknowledgement_is_lost: bool,
        now: Duration,
        agenda: &mut Agenda<Due>,
    ) -> Option<(Segment<M>, u64)> {
        let segment = self.connection.flying.pop_front()?.segment;
        let bytes = segment.wire_len();
        if acknowledgement_is_lost {
            self.connection.held_acknowledgements += bytes;
        } else if bytes > 0 {
            self.schedule_acknowledgement(bytes, now, agenda);
        }
        Some((segment, self.connection.generation))
    }

    pub(crate) const fn on_delivered(&mut self, bytes: u64) {
        self.delivered_bytes += bytes;
    }

    pub(crate) fn on_acknowledged(
        &mut self,
        generation: u64,
        bytes: u64,
        now: Duration,
        agenda: &mut Agenda<Due>,
    ) {
        if generation == self.connection.generation {
            self.connection.unacknowledged_bytes -= bytes;
            self.send_next(now, agenda);
        }
    }

    /// Starts to send the first queued segment. Does nothing while another segment is being sent,
    /// or if silence or a full window blocks the direction.
    fn send_next(&mut self, now: Duration, agenda: &mut Agenda<Due>) {
        let blocked = self.is_blocked();
        let connection = &mut self.connection;
        if !connection.alive || connection.sending.is_some() {
            return;
        }
        let Some(next) = connection.queue.front() else {
            return;
        };
        if blocked {
            connection.stalled_since.get_or_insert(now);
            return;
        }
        let len = next.wire_len();
        if connection.unacknowledged_bytes > 0
            && connection.unacknowledged_bytes.saturating_add(len) > self.config.window
        {
            return;
        }
        let Some(segment) = connection.queue.pop_front() else {
            return;
        };
        connection.unacknowledged_bytes += len;
        connection.sending = Some(Sending {
            segment,
            bits_left: u128::from(len) * 8,
            since: now,
            done: None,
        });
        self.resume_sending(now, agenda);
    }

    const fn is_blocked(&self) -> bool {
        self.silent || self.connection.resumes.is_some()
    }

    fn pause_sending(&mut self, now: Duration, agenda: &mut Agenda<Due>) {
        let rate = self.config.rate[self.route.from];
        let Some(sending) = &mut self.connection.sending else {
            return;
        };
        let Some(key) = sending.done.take() else {
            return;
        };
        agenda.cancel(key);
        let bits_sent = now
            .saturating_sub(sending.since)
            .as_nanos()
            .saturating_mul(u128::from(rate))
            / NANOS_PER_SECOND;
        sending.bits_left = sending.bits_left.saturating_sub(bits_sent);
    }

    fn resume_sending(&mut self, now: Duration, agenda: &mut Agenda<Due>) {
        let rate = self.config.rate[self.route.from];
        let Some(sending) = &mut self.connection.sending else {
            return;
        };
        sending.since = now;
        sending.done = time_to_send(sending.bits_left, rate)
            .map(|time| agenda.add(now.saturating_add(time), Due::Sent(self.route)));
    }

    fn schedule_arrival(&mut self, now: Duration, agenda: &mut Agenda<Due>) -> Key {
        let most = u64::try_from(self.config.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(self.rng.below(most.saturating_add(1)));
        let arrival = now
            .saturating_add(self.config.delay)
            .saturating_add(jitter)
            .max(self.connection.last_arrival);
        self.connection.last_arrival = arrival;
        agenda.add(arrival, Due::Arrives(self.route))
    }

    fn schedule_acknowledgement(&self, bytes: u64, now: Duration, agenda: &mut Agenda<Due>) {
        let (route, generation) = (self.route, self.connection.generation);
        agenda.add(
            now.saturating_add(self.config.delay),
            Due::Acknowledged {
                route,
                generation,
                bytes,
            },
        );
    }
}

impl<M> Connection<M> {
    const fn new(generation: u64, alive: bool) -> Connection<M> {
        Connection {
            generation,
            alive,
            queue: VecDeque::new(),
            unsent_bytes: 0,
            sending: None,
            flying: VecDeque::new(),
            last_arrival: Duration::ZERO,
            unacknowledged_bytes: 0,
            held_acknowledgements: 0,
            stalled_since: None,
            resumes: None,
        }
    }

    fn has_unfinished(&self) -> bool {
        self.sending.is_some() || !self.flying.is_empty() || !self.queue.is_empty()
    }
}

/// Returns the transmission time of `bits` at `rate` bits per second; `None` if the time is
/// infinite.
fn time_to_send(bits: u128, rate: u64) -> Option<Duration> {
    let nanos =
        (bits * NANOS_PER_SECOND).checked_next_multiple_of(u128::from(rate))? / u128::from(rate);
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

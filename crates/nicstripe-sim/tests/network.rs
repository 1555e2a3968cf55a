//! Tests of the simulated network: exact times without jitter, and invariants under random faults.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use nicstripe_sim::{
    CloseReason, End, Event, Fault, LinkConfig, LinkId, Message, Network, Refused, Rng,
};

#[test]
fn messages_leave_at_the_rate_and_arrive_after_the_delay() {
    let (mut net, link) = connected(gigabit().send_buffer(1_000_000));
    let start = net.now();
    send(&mut net, link, 0..3, 125_000);
    // 125 kB take 1 ms each at 1 Gbit/s, plus a delay of 1 ms.
    assert_eq!(
        arrivals(&mut net),
        [(start + ms(2), 0), (start + ms(3), 1), (start + ms(4), 2)]
    );
}

#[test]
fn both_ends_may_send_once_the_handshake_is_done() {
    let mut net = Network::<Numbered>::new(SEED);
    let link = net.add_link(gigabit().handshake_round_trips(3));
    net.connect(link, End::B);
    assert!(!net.is_open(link, End::B));
    assert_eq!(
        net.offer(link, End::B, small(0)),
        Err(Refused::NotOpen(small(0)))
    );
    assert_eq!(
        timed(&mut net),
        [(ms(6), opened(link, End::B)), (ms(7), opened(link, End::A))]
    );
}

#[test]
fn directions_and_links_do_not_slow_each_other() {
    let mut net = Network::new(SEED);
    let links = [1, 10].map(|mbit| net.add_link(LinkConfig::new(mbit * MBIT, ms(0))));
    for link in links {
        net.set_rate(link, End::B, 100 * MBIT);
        net.connect(link, End::A);
    }
    run(&mut net);
    for (number, (link, from)) in links
        .iter()
        .flat_map(|&link| [(link, End::A), (link, End::B)])
        .enumerate()
    {
        net.offer(
            link,
            from,
            Numbered {
                number: number as u64,
                len: 12_500,
            },
        )
        .unwrap();
    }
    // 100 kbit at 100, 100, 10 and 1 Mbit/s. Simultaneous arrivals keep the order of the offers.
    assert_eq!(
        arrivals(&mut net),
        [(ms(1), 1), (ms(1), 3), (ms(10), 2), (ms(100), 0)]
    );
}

#[test]
fn a_full_send_buffer_refuses_until_it_has_room() {
    let (mut net, link) = connected(gigabit().send_buffer(200_000));
    let start = net.now();
    let numbered = |number| Numbered {
        number,
        len: 125_000,
    };
    net.offer(link, End::A, numbered(0)).unwrap();
    assert!(net.is_writable(link, End::A));
    net.offer(link, End::A, numbered(1)).unwrap();
    assert!(!net.is_writable(link, End::A));
    let refused = net.offer(link, End::A, numbered(2));
    assert_eq!(refused, Err(Refused::Full(numbered(2))));
    assert_eq!(net.traffic(link, End::A).unsent_bytes, 250_000);
    assert_eq!(net.next(), Some(Event::Writable { link, end: End::A }));
    assert_eq!(net.now(), start + ms(1));
    net.offer(link, End::A, numbered(2)).unwrap();
}

#[test]
fn the_window_holds_back_what_is_not_acknowledged() {
    // Two messages fit in the window. An acknowledgement returns 2 ms after the message left.
    let (mut net, link) = connected(gigabit().window(250_000).send_buffer(1_000_000));
    let start = net.now();
    send(&mut net, link, 0..4, 125_000);
    let expected = [(2, 0), (3, 1), (5, 2), (6, 3)].map(|(at, number)| (start + ms(at), number));
    assert_eq!(arrivals(&mut net), expected);
    assert_eq!(net.traffic(link, End::A).unacknowledged_bytes, 0);
}

#[test]
fn a_message_larger_than_the_window_goes_alone() {
    let (mut net, link) = connected(gigabit().window(1000).send_buffer(1_000_000));
    send(&mut net, link, 0..2, 125_000);
    let arrivals = arrivals(&mut net);
    assert_eq!(arrivals[1].0 - arrivals[0].0, ms(3));
}

#[test]
fn a_new_rate_holds_for_the_rest_of_the_message_that_is_leaving() {
    let (mut net, link) = connected(gigabit());
    let start = net.now();
    send(&mut net, link, 0..1, 1_250_000);
    net.schedule(start + ms(5), Fault::SetRate(link, End::A, 0));
    net.schedule(start + ms(100), Fault::SetRate(link, End::A, 100 * MBIT));
    // Half of the message in 5 ms, nothing for 95 ms, the rest in 50 ms, plus the delay.
    assert_eq!(arrivals(&mut net), [(start + ms(151), 0)]);
}

#[test]
fn a_cut_loses_what_is_under_way_and_both_ends_learn_it() {
    let (mut net, link) = connected(gigabit().send_buffer(1_000_000));
    let start = net.now();
    send(&mut net, link, 0..3, 125_000);
    net.schedule(start + ms(2) + us(1), Fault::Cut(link));
    let first = Numbered {
        number: 0,
        len: 125_000,
    };
    let lost = [End::A, End::B].map(|end| closed(link, end, CloseReason::CarrierLost));
    let events = timed(&mut net);
    assert_eq!(events[0].1, delivered(link, End::B, first));
    let at = start + ms(5) + us(1);
    assert_eq!(events[1..], lost.map(|closed| (at, closed)));
    assert_eq!(net.traffic(link, End::A).delivered_bytes, 125_000);
}

#[test]
fn the_send_buffer_of_a_cut_link_fills_up() {
    let (mut net, link) = connected(gigabit());
    net.cut(link);
    let message = Numbered {
        number: 0,
        len: 10_000,
    };
    let offers = std::iter::from_fn(|| net.offer(link, End::A, message).ok());
    let accepted = offers.count();
    // The last accepted message is the one that reaches 128 KiB.
    assert_eq!(accepted, 14);
}

#[test]
fn a_link_that_was_cut_carries_a_new_connection_once_it_is_healed() {
    let (mut net, link) = connected(gigabit());
    net.cut(link);
    run(&mut net);
    net.connect(link, End::A);
    assert_eq!(
        run(&mut net),
        [closed(link, End::A, CloseReason::NoCarrier)]
    );
    net.heal(link);
    net.connect(link, End::A);
    assert_eq!(run(&mut net), [opened(link, End::A), opened(link, End::B)]);
    net.offer(link, End::B, small(9)).unwrap();
    assert_eq!(arrivals(&mut net).len(), 1);
}

#[test]
fn a_cut_during_the_handshake_ends_the_attempt() {
    let mut net = Network::<Numbered>::new(SEED);
    let link = net.add_link(gigabit());
    net.connect(link, End::A);
    net.schedule(ms(1), Fault::Cut(link));
    assert_eq!(
        timed(&mut net),
        [(ms(4), closed(link, End::A, CloseReason::CarrierLost))]
    );
}

#[test]
fn silence_says_nothing_and_ends_with_the_next_retransmission() {
    let (mut net, link) = connected(LinkConfig::new(1000 * MBIT, ms(2)).send_buffer(1_000_000));
    let start = net.now();
    send(&mut net, link, 0..3, 125_000);
    // Messages 0 and 1 are on the cable; message 2 is half sent.
    let silence = start + us(2500);
    net.schedule(silence, Fault::Silence(link, End::A));
    assert_eq!(run(&mut net), []);
    assert_eq!(net.now(), silence);
    net.schedule(start + ms(700), Fault::Heal(link));
    // Retransmissions are due 200, 600 and 1400 ms after the silence began. Then 2 ms of delay
    // follow, and 0.5 ms for the other half of message 2.
    let arrival = silence + ms(1402);
    assert_eq!(
        arrivals(&mut net),
        [(arrival, 0), (arrival, 1), (arrival + us(500), 2)]
    );
}

#[test]
fn a_silence_that_returns_before_the_retransmission_goes_on() {
    let (mut net, link) = connected(gigabit());
    let start = net.now();
    net.silence(link, End::A);
    send(&mut net, link, 0..1, 125_000);
    net.schedule(start + ms(100), Fault::Heal(link));
    net.schedule(start + ms(150), Fault::Silence(link, End::A));
    net.schedule(start + ms(500), Fault::Heal(link));
    assert_eq!(arrivals(&mut net), [(start + ms(602), 0)]);
}

#[test]
fn an_idle_connection_does_not_notice_a_silence() {
    let (mut net, link) = connected(gigabit());
    net.silence(link, End::A);
    net.next_until(net.now() + ms(900));
    net.heal(link);
    let healed = net.now();
    send(&mut net, link, 0..1, 125_000);
    assert_eq!(arrivals(&mut net), [(healed + ms(2), 0)]);
}

#[test]
fn a_new_connection_is_not_held_up_by_an_old_silence() {
    let (mut net, link) = connected(gigabit());
    net.silence(link, End::A);
    net.offer(link, End::A, small(0)).unwrap();
    net.next_until(net.now() + secs(10));
    net.heal(link);
    let healed = net.now();
    net.connect(link, End::A);
    let replaced = closed(link, End::B, CloseReason::Replaced);
    assert_eq!(
        timed(&mut net),
        [
            (healed + ms(4), opened(link, End::A)),
            (healed + ms(5), replaced),
            (healed + ms(5), opened(link, End::B))
        ]
    );
}

#[test]
fn a_silent_direction_stops_the_other_one_when_the_window_is_full() {
    let (mut net, link) = connected(gigabit().window(200_000).send_buffer(1_000_000));
    let start = net.now();
    net.silence(link, End::B);
    send(&mut net, link, 0..3, 100_000);
    assert_eq!(arrivals(&mut net).len(), 2);
    assert_eq!(net.traffic(link, End::A).unacknowledged_bytes, 200_000);
    net.schedule(start + ms(500), Fault::Heal(link));
    // Acknowledged 1 ms after the link is healed; 0.8 ms to leave and 1 ms to arrive.
    assert_eq!(arrivals(&mut net), [(start + us(502_800), 2)]);
}

#[test]
fn a_handshake_on_a_silent_link_waits_and_can_be_given_up() {
    let mut net = Network::<Numbered>::new(SEED);
    let link = net.add_link(gigabit());
    net.silence(link, End::B);
    net.connect(link, End::A);
    net.schedule(ms(1500), Fault::Heal(link));
    // TCP retries after 1, 3 and 7 s; two round trips take 4 ms.
    assert_eq!(net.next(), Some(opened(link, End::A)));
    assert_eq!(net.now(), ms(3004));
    run(&mut net);

    net.silence(link, End::A);
    net.connect(link, End::A);
    net.close(link, End::A);
    net.schedule(net.now() + ms(10), Fault::Heal(link));
    // The attempt leaves no trace. The connection that it would have replaced ends normally.
    assert_eq!(
        run(&mut net),
        [closed(link, End::B, CloseReason::PeerClosed)]
    );
}

#[test]
fn a_close_comes_after_all_that_was_sent() {
    let (mut net, link) = connected(gigabit());
    net.offer(link, End::A, small(1)).unwrap();
    net.offer(link, End::B, small(2)).unwrap();
    net.close(link, End::A);
    assert!(!net.is_open(link, End::A) && net.is_open(link, End::B));
    let events = run(&mut net);
    assert_eq!(
        events,
        [
            delivered(link, End::B, small(1)),
            closed(link, End::B, CloseReason::PeerClosed)
        ]
    );
    assert_eq!(
        net.offer(link, End::B, small(3)),
        Err(Refused::NotOpen(small(3)))
    );
}

#[test]
fn of_two_ends_that_connect_the_later_one_wins() {
    let mut net = Network::<Numbered>::new(SEED);
    let link = net.add_link(gigabit());
    net.connect(link, End::A);
    net.connect(link, End::B);
    assert_eq!(
        run(&mut net),
        [
            closed(link, End::A, CloseReason::Replaced),
            opened(link, End::B),
            opened(link, End::A)
        ]
    );
}

#[test]
fn time_goes_by_until_the_limit_and_no_further() {
    let mut net = Network::<Numbered>::new(SEED);
    let link = net.add_link(gigabit());
    net.connect(link, End::A);
    assert_eq!(net.next_until(ms(2)), None);
    assert_eq!(net.now(), ms(2));
    assert_eq!(net.next_until(ms(6)), Some(opened(link, End::A)));
    assert_eq!(net.now(), ms(4));
}

#[test]
fn jitter_is_bounded_and_never_reorders() {
    let (mut net, link) = connected(gigabit().jitter(ms(3)).send_buffer(10_000_000));
    let start = net.now();
    for number in 0..500 {
        net.offer(link, End::A, Numbered { number, len: 1250 })
            .unwrap();
    }
    let arrivals = arrivals(&mut net);
    assert_eq!(
        arrivals
            .iter()
            .map(|&(_, number)| number)
            .collect::<Vec<_>>(),
        (0..500).collect::<Vec<_>>()
    );
    let late = arrivals
        .iter()
        .map(|&(at, number)| at - start - ms(1) - us(10) * (number as u32 + 1));
    assert!(late.clone().all(|late| late <= ms(3)));
    // Messages stay in order, so each waits for the latest one before it. One of 500 is almost
    // surely in the last 10 % of the jitter.
    assert!(late.max() > Some(us(2700)));
    assert!(
        arrivals.windows(2).any(|pair| pair[0].0 == pair[1].0),
        "none waited"
    );
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let trace = |seed| format!("{:?}", Chaos::new(seed, 1).run());
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn whatever_happens_each_connection_delivers_a_prefix_in_order() {
    let all = (0..300).map(|seed| check_trace(seed, Chaos::new(seed, seed ^ 0xff).run()));
    let delivered: usize = all.sum();
    // About 60 messages per seed. A run without deliveries would prove nothing.
    assert!(delivered > 300 * 30, "{delivered} messages delivered");
}

#[test]
fn a_healed_network_carries_everything_again() {
    for seed in 0..100 {
        let mut chaos = Chaos::new(seed, seed);
        chaos.run();
        let links: Vec<LinkId> = chaos.net.links().collect();
        for &link in &links {
            chaos.net.heal(link);
            End::BOTH
                .iter()
                .for_each(|&end| chaos.net.set_rate(link, end, 1000 * MBIT));
        }
        run(&mut chaos.net);
        for &link in &links {
            chaos.net.connect(link, End::A);
            run(&mut chaos.net);
            for from in End::BOTH {
                chaos.net.offer(link, from, small(77)).unwrap();
                let delivered = delivered(link, from.other(), small(77));
                assert_eq!(run(&mut chaos.net), [delivered], "seed {seed}");
            }
        }
    }
}

/// Test state: a randomly configured network under random calls, with a trace of their results.
struct Chaos {
    net: Network<Numbered>,
    rng: Rng,
    trace: Vec<(Duration, Entry)>,
}

/// Entry of a trace: an event, or a successful call of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Event(Event<Numbered>),
    /// This end sent the message with this sequence number, and the network accepted it.
    Accepted(LinkId, End, u64),
    /// This end closed its connection.
    Left(LinkId, End),
}

impl Chaos {
    fn new(network_seed: u64, seed: u64) -> Chaos {
        let mut rng = Rng::new(seed);
        let mut net = Network::new(network_seed);
        for _ in 0..=rng.below(3) {
            let config = LinkConfig::new(rng.below(1000) * MBIT, us(rng.below(20_000)));
            net.add_link(
                config
                    .jitter(us(rng.below(5000)))
                    .window(rng.below(500_000))
                    .send_buffer(rng.below(300_000)),
            );
        }
        Chaos {
            net,
            rng,
            trace: Vec::new(),
        }
    }

    fn run(&mut self) -> &[(Duration, Entry)] {
        for number in 0..400 {
            self.step(number);
            let limit = self.net.now() + us(self.rng.below(30_000));
            while let Some(event) = self.net.next_until(limit) {
                self.note(Entry::Event(event));
            }
        }
        &self.trace
    }

    fn step(&mut self, number: u64) {
        let link = self
            .net
            .links()
            .nth(self.rng.below(self.net.links().len() as u64) as usize)
            .unwrap();
        let end = End::BOTH[self.rng.below(2) as usize];
        match self.rng.below(24) {
            0 => self.net.cut(link),
            1 => self.net.silence(link, end),
            2..=4 => self.net.heal(link),
            5 => self.net.set_rate(link, end, self.rng.below(1000) * MBIT),
            6 => {
                self.net.close(link, end);
                self.note(Entry::Left(link, end));
            }
            7..=9 => self.connect(link, end),
            _ => self.offer(link, end, number),
        }
    }

    fn connect(&mut self, link: LinkId, end: End) {
        if !self.net.is_open(link, end) || self.rng.below(8) == 0 {
            self.net.connect(link, end);
            self.note(Entry::Left(link, end));
        }
    }

    fn offer(&mut self, link: LinkId, end: End, number: u64) {
        let numbered = Numbered {
            number,
            len: self.rng.below(200_000),
        };
        let is_writable = self.net.is_writable(link, end);
        assert_eq!(self.net.offer(link, end, numbered).is_ok(), is_writable);
        if is_writable {
            self.note(Entry::Accepted(link, end, number));
        }
    }

    fn note(&mut self, entry: Entry) {
        self.trace.push((self.net.now(), entry));
    }
}

/// Checks the invariants of a trace. Returns the number of delivered messages.
///
/// Each end must see one connection after the other. Each connection must deliver the messages that
/// the other end sent over one connection, from the first message on and without gaps.
fn check_trace(seed: u64, trace: &[(Duration, Entry)]) -> usize {
    let mut delivered_in_all = 0;
    let mut open = BTreeSet::new();
    let mut connections = BTreeMap::new();
    // Maps a message's number to the sender's connection and the messages before it in that
    // connection.
    let mut accepted = BTreeMap::new();
    let mut delivered: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    let mut last_time = Duration::ZERO;
    for (time, entry) in trace {
        assert!(
            last_time <= *time,
            "seed {seed}: time went back at {entry:?}"
        );
        last_time = *time;
        match entry {
            &Entry::Event(Event::Opened { link, end }) => {
                assert!(
                    open.insert((link, end)),
                    "seed {seed}: {entry:?} twice at {time:?}"
                );
                *connections.entry((link, end)).or_insert(0) += 1;
                delivered.remove(&(link, end));
            }
            &Entry::Event(Event::Closed { link, end, .. }) | &Entry::Left(link, end) => {
                open.remove(&(link, end));
            }
            &Entry::Accepted(link, from, number) => {
                let connection = (link, from, connections[&(link, from)]);
                let before = accepted
                    .values()
                    .filter(|(its, _)| *its == connection)
                    .count();
                accepted.insert(number, (connection, before));
            }
            &Entry::Event(Event::Delivered { link, to, message }) => {
                assert!(
                    open.contains(&(link, to)),
                    "seed {seed}: {entry:?} without a connection at {time:?}"
                );
                let so_far = delivered.entry((link, to)).or_default();
                let (connection, before) = accepted[&message.number];
                assert_eq!(
                    (connection.0, connection.1, before),
                    (link, to.other(), so_far.len()),
                    "seed {seed}: {entry:?} at {time:?}"
                );
                assert!(
                    so_far
                        .last()
                        .is_none_or(|last| accepted[last].0 == connection),
                    "seed {seed}: {entry:?} at {time:?}"
                );
                so_far.push(message.number);
                delivered_in_all += 1;
            }
            Entry::Event(Event::Writable { .. }) => {}
        }
    }
    delivered_in_all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbered {
    number: u64,
    len: u64,
}

impl Message for Numbered {
    fn wire_len(&self) -> u64 {
        self.len
    }
}

fn connected(config: LinkConfig) -> (Network<Numbered>, LinkId) {
    let mut net = Network::new(SEED);
    let link = net.add_link(config);
    net.connect(link, End::A);
    run(&mut net);
    (net, link)
}

/// Offers messages of this length at end A.
fn send(net: &mut Network<Numbered>, link: LinkId, numbers: Range<u64>, len: u64) {
    for number in numbers {
        let message = Numbered { number, len };
        net.offer(link, End::A, message).unwrap();
    }
}

fn opened(link: LinkId, end: End) -> Event<Numbered> {
    Event::Opened { link, end }
}

fn closed(link: LinkId, end: End, reason: CloseReason) -> Event<Numbered> {
    Event::Closed { link, end, reason }
}

fn delivered(link: LinkId, to: End, message: Numbered) -> Event<Numbered> {
    Event::Delivered { link, to, message }
}

const fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

fn run(net: &mut Network<Numbered>) -> Vec<Event<Numbered>> {
    net.collect()
}

fn timed(net: &mut Network<Numbered>) -> Vec<(Duration, Event<Numbered>)> {
    let mut events = Vec::new();
    while let Some(event) = net.next() {
        events.push((net.now(), event));
    }
    events
}

fn arrivals(net: &mut Network<Numbered>) -> Vec<(Duration, u64)> {
    let delivered = timed(net)
        .into_iter()
        .filter_map(|(at, event)| match event {
            Event::Delivered { message, .. } => Some((at, message.number)),
            _ => None,
        });
    delivered.collect()
}

fn gigabit() -> LinkConfig {
    LinkConfig::new(1000 * MBIT, ms(1))
}

fn small(number: u64) -> Numbered {
    Numbered { number, len: 100 }
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const MBIT: u64 = 1_000_000;
const SEED: u64 = 7;

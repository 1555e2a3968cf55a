//! Simulations of many receivers with unequal cables that die, lie and slow down at random. The bytes flow
//! as they would over cables that carry both directions at once: what a machine sends is shared by those
//! that it feeds.

use std::time::{Duration, Instant};

use nicstripe_testkit::trial::amount;

use super::{Chain, Change, Fault, Feed, Need, Order, item_size};

/// Bytes of an item, and their number.
const ITEM: u64 = 4 << 20;
const ITEMS: usize = 1024;

/// Step of the simulation.
const STEP: Duration = Duration::from_millis(5);

/// Machine with its cables' rate in bytes a second, in each direction.
#[derive(Debug, Clone, Copy)]
struct Machine {
    rate: f64,
    dies_at: Option<Duration>,
    /// It gives wrong bytes to those that it feeds.
    lies: bool,
    /// It takes only this part of its rate.
    part: f64,
}

impl Machine {
    fn of(rate: f64) -> Self {
        Self {
            rate,
            dies_at: None,
            lies: false,
            part: 1.0,
        }
    }

    fn is_dead(&self, now: Duration) -> bool {
        self.dies_at.is_some_and(|at| now >= at)
    }
}

/// Outcome of a run.
struct Run {
    /// Time after which each receiver had everything.
    ended: Vec<Option<Duration>>,
    changes: Vec<Change>,
    /// Receivers for which the others need not wait.
    slow: Vec<usize>,
    /// Bytes of all items, and those that the source has sent.
    whole: u64,
    sent: u64,
}

/// Runs a copy from a source with cables of `source` bytes a second.
fn run(source: f64, machines: &[Machine]) -> Run {
    let begun = now();
    let receivers = machines
        .iter()
        .map(|machine| (vec![Need::Missing; ITEMS], Some(machine.rate as u64)));
    let sizes: Vec<u64> = (0..ITEMS).map(|item| item_size(ITEM, item)).collect();
    let whole: u64 = sizes.iter().sum();
    let mut chain = Chain::new(sizes.clone(), receivers.collect());
    let mut flows: Vec<(Order, f64)> = Vec::new();
    let mut there = vec![0; machines.len()];
    let mut result = Run {
        ended: vec![None; machines.len()],
        changes: Vec::new(),
        slow: Vec::new(),
        whole,
        sent: 0,
    };
    let mut now = Duration::ZERO;
    while !chain.has_ended() {
        assert!(now < Duration::from_secs(3600), "it ends");
        for (index, machine) in machines.iter().enumerate() {
            if machine.is_dead(now) {
                chain.on_gone(index);
            }
        }
        flows.retain(|(order, _)| !machines[order.receiver].is_dead(now));
        while let Some(order) = chain.next_order() {
            if let Feed::Receiver(feed) = order.feed {
                assert!(feed != order.receiver);
            }
            flows.push((order, sizes[order.item] as f64));
        }
        step(source, machines, &mut flows, now);
        now += STEP;
        for (order, _) in flows.extract_if(.., |(_, left)| *left <= 0.0) {
            let Order {
                receiver,
                item,
                feed,
            } = order;
            match feed {
                Feed::Receiver(feed) if machines[feed].lies => chain.on_failed(order, Fault::Wrong),
                Feed::Receiver(feed) if machines[feed].is_dead(now) => {
                    chain.on_failed(order, Fault::Unreached);
                }
                feed => {
                    if feed == Feed::Source {
                        result.sent += sizes[item];
                    }
                    chain.on_done(receiver, item, begun + now);
                    there[receiver] += 1;
                    if there[receiver] == ITEMS {
                        result.ended[receiver] = Some(now);
                    }
                }
            }
        }
        result
            .changes
            .extend(std::iter::from_fn(|| chain.next_change()));
    }
    result.slow = (0..machines.len())
        .filter(|receiver| chain.is_slow(*receiver))
        .collect();
    result
}

/// Moves bytes for a step. Each machine shares what it sends among those that it feeds, and what one of
/// them cannot take is for the others.
fn step(source: f64, machines: &[Machine], flows: &mut [(Order, f64)], now: Duration) {
    let feeds = [Feed::Source]
        .into_iter()
        .chain((0..machines.len()).map(Feed::Receiver));
    for feed in feeds {
        let mut fed: Vec<usize> = flows
            .iter()
            .filter(|(order, _)| order.feed == feed)
            .map(|(order, _)| order.receiver)
            .collect();
        fed.sort_unstable();
        fed.dedup();
        let mut left = STEP.as_secs_f64()
            * match feed {
                Feed::Source => source,
                Feed::Receiver(index) if machines[index].is_dead(now) => f64::INFINITY,
                Feed::Receiver(index) => machines[index].rate,
            };
        let takes = |index: usize| machines[index].rate * machines[index].part * STEP.as_secs_f64();
        fed.sort_by(|one, other| takes(*one).total_cmp(&takes(*other)));
        let count = fed.len();
        for (at, receiver) in fed.into_iter().enumerate() {
            let moves = takes(receiver).min(left / (count - at) as f64);
            left -= moves;
            let of_it = |(order, _): &&mut (Order, f64)| order.receiver == receiver;
            let items = flows.iter_mut().filter(of_it).count();
            for (_, bytes) in flows.iter_mut().filter(of_it) {
                *bytes -= moves / items as f64;
            }
        }
    }
}

const GIGABIT: f64 = 117.7e6;

/// Time in which the source could send everything once to a receiver over these cables.
fn bound(source: f64, rate: f64) -> Duration {
    Duration::from_secs_f64(ITEM as f64 * ITEMS as f64 / source.min(rate))
}

#[test]
fn three_receivers_take_the_time_of_one() {
    let machines = [Machine::of(2.0 * GIGABIT); 3];
    let run = run(2.0 * GIGABIT, &machines);
    let one = bound(2.0 * GIGABIT, 2.0 * GIGABIT);
    for ended in run.ended {
        assert!(ended.unwrap() <= one.mul_f64(1.1), "{ended:?} of {one:?}");
    }
    assert_eq!(run.sent, run.whole, "each item once");
    assert_eq!(run.changes, []);
}

#[test]
fn sixty_four_receivers_with_unequal_cables_that_die_take_the_time_of_the_slowest() {
    let mut rng = nicstripe_sim::Rng::new(7);
    for seed in 0..amount(4, 100) {
        let mut machines: Vec<Machine> = (0..64)
            .map(|_| Machine::of(GIGABIT * (1 + rng.below(4)) as f64))
            .collect();
        machines.sort_by(|one, other| other.rate.total_cmp(&one.rate));
        let slowest = machines.last().unwrap().rate;
        let one = bound(4.0 * GIGABIT, slowest);
        let mut dead = 0;
        for machine in &mut machines {
            if rng.below(8) == 0 {
                machine.dies_at = Some(one.mul_f64(rng.below(1000) as f64 / 1000.0));
                dead += 1;
            }
        }
        let run = run(4.0 * GIGABIT, &machines);
        for (machine, ended) in machines.iter().zip(&run.ended) {
            match machine.dies_at {
                None => {
                    let ended = ended.expect("it has everything");
                    assert!(
                        ended <= one.mul_f64(1.15),
                        "seed {seed}: {ended:?} of {one:?}, {dead} dead"
                    );
                }
                Some(at) => assert!(ended.is_none_or(|ended| ended <= at)),
            }
        }
    }
}

#[test]
fn a_receiver_that_dies_is_bridged_from_what_its_successor_has() {
    let mut machines = [Machine::of(2.0 * GIGABIT); 3];
    let one = bound(2.0 * GIGABIT, 2.0 * GIGABIT);
    machines[1].dies_at = Some(one / 2);
    let run = run(2.0 * GIGABIT, &machines);
    // Its successor may see it first.
    let unreached = Change::Unreached {
        receiver: 2,
        feed: 1,
    };
    let mut changes = run.changes;
    changes.retain(|change| *change != unreached);
    assert_eq!(changes, [Change::Gone { receiver: 1 }]);
    assert!(run.ended[0].unwrap() <= one.mul_f64(1.05));
    assert!(run.ended[2].unwrap() <= one.mul_f64(1.1));
    assert_eq!(run.sent, run.whole, "the first one feeds the last");
}

#[test]
fn a_receiver_that_gives_wrong_bytes_is_named_and_feeds_nobody() {
    for liar in 0..2 {
        let mut machines = [Machine::of(2.0 * GIGABIT); 4];
        machines[liar].lies = true;
        let run = run(2.0 * GIGABIT, &machines);
        assert_eq!(run.changes, [Change::Wrong { receiver: liar }]);
        assert!(run.ended.iter().all(Option::is_some));
    }
}

#[test]
fn a_slow_receiver_is_named_and_holds_the_others_no_longer() {
    let mut machines = [Machine::of(2.0 * GIGABIT); 4];
    machines[1].part = 0.05;
    let run = run(2.0 * GIGABIT, &machines);
    assert_eq!(run.changes, [Change::Slow { receiver: 1 }]);
    assert_eq!(run.slow, [1]);
    let one = bound(2.0 * GIGABIT, 2.0 * GIGABIT);
    // The branch takes a twentieth of the cables, and the others wait until it is known.
    for index in [0, 2, 3] {
        let ended = run.ended[index].unwrap();
        let most = one.div_f64(0.95) + Duration::from_secs(6);
        assert!(ended <= most, "{index}: {ended:?} of {one:?}");
    }
    assert!(run.ended[1].is_some());
}

#[test]
fn an_item_that_a_receiver_refuses_is_left_to_it_alone() {
    let mut chain = Chain::new(
        vec![1; 2],
        vec![
            (vec![Need::Missing; 2], None),
            (vec![Need::Missing, Need::There], None),
        ],
    );
    let now = now();
    let first = chain.next_order().unwrap();
    chain.on_failed(first, Fault::Refused);
    // Items that the first one will never have come from the source.
    let mut orders: Vec<_> = std::iter::from_fn(|| chain.next_order()).collect();
    orders.sort_by_key(|order| order.receiver);
    let expected = [(0, 1), (1, 0)].map(|(receiver, item)| Order {
        receiver,
        item,
        feed: Feed::Source,
    });
    assert_eq!(orders, expected);
    for order in orders {
        chain.on_done(order.receiver, order.item, now);
    }
    assert!(chain.has_ended());
}

#[test]
fn an_item_that_no_other_receiver_can_give_is_left_after_some_tries() {
    let needed = || (vec![Need::Missing], None);
    let mut chain = Chain::new(vec![1], vec![needed(), needed(), needed()]);
    let mut tries = 0;
    while let Some(order) = chain.next_order() {
        match (order.receiver, order.feed) {
            (0, _) => chain.on_done(0, order.item, now()),
            (1, _) => chain.on_failed(order, Fault::Refused),
            // The one before it will never have the item.
            (_, feed) => {
                assert_eq!(feed, Feed::Receiver(0));
                chain.on_failed(order, Fault::Unreached);
                tries += 1;
            }
        }
    }
    assert!(chain.has_ended() && tries == 3, "{tries}");
}

#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

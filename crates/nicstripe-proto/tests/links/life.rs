//! Random lives: what is true of the paths after every sequence of faults and repairs.

use std::{collections::BTreeSet, time::Duration};

use nicstripe_proto::pairing::{CandidateState, Fact, LeftOut, PROBE_BURST, PROBES_PER_SECOND};
use nicstripe_sim::Rng;
use nicstripe_testkit::trial::amount;

use super::world::{Addressing, Begun, Joined, MS, Start, World};

/// Time in which data must move again if any pair of cards works.
const DATA_WITHIN: Duration = Duration::from_secs(3);

/// Time in which the links are those of the plan again: the rounds of probes and one more retry.
const SETTLED_WITHIN: Duration = Duration::from_secs(12);

const JOINED: [Joined; 3] = [Joined::Cables, Joined::Switch, Joined::Mixed];
const ADDRESSING: [Addressing; 3] = [Addressing::V4, Addressing::LinkLocal, Addressing::Both];
const COUNTS: [[usize; 2]; 5] = [[2, 2], [2, 3], [3, 2], [3, 3], [4, 4]];
const STARTS: [Start; 5] = [
    Start::Address,
    Start::Name,
    Start::Contact,
    Start::Nat,
    Start::Named,
];

/// One life: how it begins, and its faults.
struct Life {
    rng: Rng,
    world: World,
    begun: Begun,
    log: Vec<String>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let begun = Begun {
            joined: pick(&mut rng, &JOINED),
            addressing: pick(&mut rng, &ADDRESSING),
            counts: pick(&mut rng, &COUNTS),
            start: pick(&mut rng, &STARTS),
            has_routes: rng.below(2) == 0,
        };
        Self::begin(begun, rng)
    }

    /// Begins a session, and waits until its links are made.
    fn begin(begun: Begun, mut rng: Rng) -> Self {
        let mut life = Self {
            world: World::new(begun, rng.next_u64()),
            rng,
            begun,
            log: vec![format!("{begun:?}")],
        };
        life.world.run_for(SETTLED_WITHIN);
        life.check_settled();
        life
    }

    fn run(&mut self) {
        for _ in 0..3 + self.rng.below(6) {
            self.change();
            let pause = match self.rng.below(3) {
                0 => self.rng.below(300) as u32 * MS,
                1 => self.rng.below(3000) as u32 * MS,
                _ => DATA_WITHIN + self.rng.below(3000) as u32 * MS,
            };
            if pause >= DATA_WITHIN {
                self.check_data();
            }
            self.world.run_for(pause.saturating_sub(DATA_WITHIN));
        }
        self.heal();
        self.check_data();
        self.world.run_for(SETTLED_WITHIN);
        self.check_settled();
        let most =
            PROBE_BURST + PROBES_PER_SECOND * (self.world.now - self.world.began).as_secs() as u32;
        assert!(self.world.probes <= most, "{} probes", self.world.probes);
    }

    fn change(&mut self) {
        let machine = self.rng.below(2) as usize;
        let card = self.rng.below(self.world.cards[machine].len() as u64) as usize;
        let kind = self.rng.below(12);
        let other = self.rng.below(3) as usize;
        let number = self.rng.next_u64();
        let at = self.world.now - self.world.began;
        let name = self.world.cards[machine][card].name.clone();
        let mut said = String::new();
        self.world.change(|cards| {
            let card = &mut cards[machine][card];
            said = match kind {
                0..=3 => {
                    card.carrier = false;
                    "cut".to_owned()
                }
                4..=6 => {
                    card.carrier = true;
                    "plugged in".to_owned()
                }
                7 => {
                    card.is_mute = true;
                    "mute".to_owned()
                }
                8 => {
                    card.is_mute = false;
                    "heard".to_owned()
                }
                9 => {
                    card.name = format!("{}{}n{}", &card.name[..1], card.index, number % 100);
                    format!("renamed to {}", card.name)
                }
                10 => {
                    if let Some(v4) = &mut card.v4 {
                        let [a, b, c, _] = v4.octets();
                        let host = 100 + 50 * machine as u8 + (number % 50) as u8;
                        *v4 = [a, b, c, host].into();
                    }
                    "renumbered".to_owned()
                }
                _ => {
                    card.segment = other;
                    format!("moved to port {other}")
                }
            };
        });
        self.draw_answers(number);
        self.log.push(format!("{at:?}: {name} {said}"));
    }

    /// Has an arbitrary living card of the daemon answer for each of its addresses.
    fn draw_answers(&mut self, number: u64) {
        self.world.has_flux = number.is_multiple_of(3) && self.begun.addressing == Addressing::Both;
        let cards = &self.world.cards[1];
        self.world.answers = (0..cards.len())
            .map(|meant| {
                let lives = |other: &usize| {
                    let (own, other) = (&cards[meant], &cards[*other]);
                    other.carrier && !other.is_mute && other.segment == own.segment
                };
                let living: Vec<usize> = (0..cards.len()).filter(lives).collect();
                match living.len() {
                    0 => meant,
                    count => living[(number as usize / 3 + meant) % count],
                }
            })
            .collect();
    }

    fn heal(&mut self) {
        self.world.has_flux = false;
        let fewest = self.world.cards.iter().map(Vec::len).min().unwrap();
        self.world.change(|cards| {
            for card in cards.iter_mut().flatten() {
                (card.carrier, card.is_mute) = (true, false);
                card.segment = card.segment.min(fewest - 1);
            }
        });
        self.log.push("healed".to_owned());
    }

    /// Checks that data move soon if the client knows a way.
    fn check_data(&mut self) {
        let is_stuck = |life: &Self| life.world.ways().is_empty();
        if is_stuck(self) {
            self.world.run_for(DATA_WITHIN);
            return;
        }
        let moved = self.world.run_until(DATA_WITHIN, World::moves_data);
        // The client may learn meanwhile that it knew a wrong way.
        if moved.is_none() && !is_stuck(self) {
            self.fail("no data");
        }
        self.world
            .run_for(DATA_WITHIN - moved.unwrap_or(DATA_WITHIN));
    }

    /// Checks the links once nothing has changed for long.
    fn check_settled(&self) {
        if self.world.given_up {
            self.fail("given up");
        }
        if !self.world.is_automatic {
            return;
        }
        let links: BTreeSet<[usize; 2]> = self.world.links().map(|(_, ends)| ends).collect();
        let ways = self.world.ways();
        let is_used =
            |machine: usize, card: usize| links.iter().filter(|ends| ends[machine] == card).count();
        for machine in [0, 1] {
            // Nobody knows at which interface a path through NAT arrives.
            if machine == 1 && self.begun.start == Start::Nat {
                continue;
            }
            for card in 0..self.world.cards[machine].len() {
                if is_used(machine, card) > 1 {
                    self.fail(&format!("machine {machine} card {card} has two links"));
                }
            }
        }
        if self.begun.start == Start::Nat {
            return;
        }
        let idle = |[ours, theirs]: &&[usize; 2]| is_used(0, *ours) + is_used(1, *theirs) == 0;
        if let Some(way) = ways.iter().find(idle) {
            self.fail(&format!("{way:?} is idle"));
        }
        self.check_reasons(&|machine, card| is_used(machine, card) > 0);
        let paths = self.world.session.paths();
        let paths = paths
            .filter(|(_, path)| path.state().is_connected())
            .count();
        if paths != links.len() {
            self.fail(&format!("{paths} paths for {} links", links.len()));
        }
    }

    /// Checks that each own interface without a link has a reason that is true.
    fn check_reasons(&self, is_used: &dyn Fn(usize, usize) -> bool) {
        let view = self.world.session.links_view().unwrap();
        for one in view.explanations {
            let cards = &self.world.cards[0];
            let Some(card) = cards.iter().position(|card| card.name == one.interface) else {
                continue;
            };
            let is_true = match (&one.fact, is_used(0, card)) {
                (Fact::Paired { state, .. }, used) => used || *state != CandidateState::Verified,
                (Fact::Taken { .. }, used) => used,
                (Fact::LeftOut(LeftOut::NoCandidateHere), used) => !used && !cards[card].carrier,
                (Fact::LeftOut(_), used) => !used,
            };
            if !is_true {
                self.fail(&format!("{} is said to be {:?}", one.interface, one.fact));
            }
        }
    }

    fn fail(&self, why: &str) -> ! {
        let paths: Vec<String> = self
            .world
            .session
            .paths()
            .map(|(id, path)| {
                let plan = path.plan();
                format!(
                    "{id:?} {} → {} ({:?}), {:?}, {:?}, {:?}",
                    plan.interface,
                    plan.remote,
                    plan.peer_interface,
                    plan.origin,
                    path.state(),
                    self.world.connections.get(&id)
                )
            })
            .collect();
        let view = self.world.session.links_view().unwrap();
        let states: Vec<String> = view
            .pairing
            .candidates()
            .map(|one| format!("{}: {:?}", one.id(), view.pairing.state(one.id())))
            .collect();
        panic!(
            "{why} at {:?}\n{}\ncards {:#?}\nways {:?}\n{}\n{}",
            self.world.now - self.world.began,
            self.log.join("\n"),
            self.world.cards,
            self.world.ways(),
            paths.join("\n"),
            states.join("\n"),
        );
    }
}

fn pick<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.below(among.len() as u64) as usize]
}

/// Loses a subset of the interfaces, the client's first, and repairs them.
fn lose_and_heal(begun: Begun, lost: u32, is_mute: bool) {
    let mut life = Life::begin(begun, Rng::new(u64::from(lost)));
    life.world.change(|cards| {
        let all = cards.iter_mut().flatten().enumerate();
        for (_, card) in all.filter(|(number, _)| lost >> number & 1 == 1) {
            (card.carrier, card.is_mute) = (is_mute, is_mute);
        }
    });
    life.log.push(format!("lost {lost:b}, mute {is_mute}"));
    life.check_data();
    life.world.run_for(SETTLED_WITHIN);
    life.check_settled();
    life.heal();
    life.check_data();
    life.world.run_for(SETTLED_WITHIN);
    life.check_settled();
}

#[test]
fn whatever_ends_are_lost_data_move_again_if_any_pair_works() {
    let counts = amount(&COUNTS[..1], &COUNTS[..4]);
    let mut subsets = 0;
    for counts in counts {
        for (joined, addressing) in JOINED
            .into_iter()
            .flat_map(|one| ADDRESSING.map(|two| (one, two)))
        {
            for start in STARTS {
                let begun = Begun {
                    joined,
                    addressing,
                    counts: *counts,
                    start,
                    has_routes: false,
                };
                for lost in 0..1 << (counts[0] + counts[1]) {
                    for is_mute in [false, true] {
                        lose_and_heal(begun, lost, is_mute);
                    }
                    subsets += 2;
                }
            }
        }
    }
    println!("{subsets} subsets");
}

/// Seeds whose lives have failed.
const FAILED: [u64; 20] = [
    99, 184, 1_988, 7_717, 15_139, 15_683, 27_101, 32_542, 36_991, 50_116, 66_983, 78_492, 130_018,
    398_368, 168, 39_103, 1_801_611, 15_792_547, 16_712_793, 17_780_412,
];

#[test]
fn whatever_happens_data_move_over_every_way_that_works() {
    let (first, count) = range();
    for seed in FAILED {
        Life::new(seed).run();
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let live = |thread: usize| {
            let seeds = (first..first + count).skip(thread).step_by(threads);
            let fails = |seed: &u64| std::panic::catch_unwind(|| Life::new(*seed).run()).is_err();
            seeds.filter(fails).take(5).collect::<Vec<_>>()
        };
        let lives: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || live(thread)))
            .collect();
        lives
            .into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect()
    });
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// Returns the first seed and the number of seeds: those of `NICSTRIPE_LIVES=FIRST+COUNT`.
fn range() -> (u64, u64) {
    let given = std::env::var("NICSTRIPE_LIVES").ok();
    let given = given.as_deref().and_then(|text| text.split_once('+'));
    given.map_or((0, amount(100_000, 1_000_000)), |(first, count)| {
        (first.parse().unwrap(), count.parse().unwrap())
    })
}

//! `kill -9` of client, daemon or both at random moments of a copy, more than once, until it is done.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    case::{CASES, Case, VAST},
    field::Field,
    random::Random,
};
use crate::harness::Outcome;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Client,
    Daemon,
    Both,
}

/// A copy and its interruptions.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    case: Case,
    /// Who, and after which part of a copy's time, in thousandths.
    kills: Vec<(Victim, u64)>,
}

/// What came of rounds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Figures {
    pub(crate) rounds: u32,
    /// Kills that hit a client at work, and a daemon while a client was.
    pub(crate) clients: u32,
    pub(crate) daemons: u32,
    /// Copies that a client finished by itself when its daemon was back.
    pub(crate) by_itself: u32,
    /// Reruns that went on from something durable.
    pub(crate) resumed: u32,
    /// Copies that were done when somebody was killed, as a rerun found out by what has the name.
    pub(crate) unheard: u32,
    /// Most bytes that had arrived by the client's account and were not kept.
    pub(crate) lost: u64,
}

impl Figures {
    /// Kills of either side.
    pub(crate) fn kills(&self) -> u32 {
        self.clients + self.daemons
    }

    /// Adds those of others.
    #[allow(dead_code, reason = "the bench runs several at once")]
    pub(crate) fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.clients += other.clients;
        self.daemons += other.daemons;
        self.by_itself += other.by_itself;
        self.resumed += other.resumed;
        self.unheard += other.unheard;
        self.lost = self.lost.max(other.lost);
    }
}

impl Round {
    /// The round of a seed. One in forty moves a file of [`VAST`].
    pub(crate) fn of(seed: u64, only: Option<Case>) -> Self {
        let mut random = Random::new(seed);
        let drawn = if random.below(40) == 0 { random.of(VAST) } else { random.of(CASES) };
        let kills = 1 + random.below(3);
        let kill = |_| (random.of(&[Victim::Client, Victim::Daemon, Victim::Both]), random.below(1100));
        Self { case: only.unwrap_or(drawn), kills: (0..kills).map(kill).collect() }
    }
}

/// A client and a daemon, and how long each copy takes them.
pub(crate) struct Runner {
    field: Field,
    took: BTreeMap<&'static str, Duration>,
    pub(crate) figures: Figures,
}

impl Runner {
    /// Makes both sides.
    pub(crate) fn new() -> Self {
        Self { field: Field::new(), took: BTreeMap::new(), figures: Figures::default() }
    }

    /// Runs a round, and panics where anything is wrong.
    pub(crate) fn run(&mut self, round: &Round) {
        let case = &round.case;
        let takes = self.time_of(case);
        case.prepare(&self.field);
        let mut client = self.field.start_cp(case, &STREAM);
        let mut arrived = None;
        for (victim, part) in &round.kills {
            thread::sleep(takes.mul_f64(*part as f64 / 1000.0));
            let is_daemon = *victim != Victim::Client;
            if client.has_ended() {
                break;
            }
            let killed = (*victim != Victim::Daemon).then(|| {
                client.signal(rustix::process::Signal::KILL);
            });
            if is_daemon {
                self.field.kill_daemon();
            }
            case.check_between(&self.field);
            self.field.start_daemon();
            self.figures.daemons += u32::from(is_daemon);
            if killed.is_some() {
                let outcome = client.finish();
                self.figures.clients += u32::from(outcome.status.code().is_none());
                self.note_kept(case, arrived, &outcome);
                arrived = Some(outcome);
                client = self.field.start_cp(case, &STREAM);
            } else {
                self.figures.by_itself += 1;
            }
        }
        let outcome = client.finish();
        self.note_kept(case, arrived, &outcome);
        self.finish(case, outcome);
        case.check_end(&self.field, case.name);
        self.figures.rounds += 1;
    }

    /// Runs a copy again until it is done.
    fn finish(&mut self, case: &Case, mut outcome: Outcome) {
        for _ in 0..MOST_RERUNS {
            // What was killed was done, and nobody lived to hear it: what has the name is looked at next.
            let is_unheard = outcome.status.code() == Some(11) && outcome.stderr.contains("a file of that name exists");
            self.figures.unheard += u32::from(is_unheard);
            if outcome.status.success() || is_unheard {
                return;
            }
            // Whoever loses its daemon in the middle of a handshake says that it did not connect.
            assert!(matches!(outcome.status.code(), Some(5 | 10 | 30)), "{}: {outcome}", case.name);
            case.check_between(&self.field);
            outcome = self.field.cp(case);
        }
        panic!("{}: not done after {MOST_RERUNS} reruns: {outcome}", case.name);
    }

    /// What had arrived when a client was killed, and how much of it counted for the next.
    fn note_kept(&mut self, case: &Case, killed: Option<Outcome>, next: &Outcome) {
        // In place what is there is compared instead.
        let Some(killed) = killed.filter(|_| case.is_file() && !case.name.contains("in-place")) else { return };
        let Some(kept) = most(next, "started", "resumed_bytes") else { return };
        // The daemon had all of it, and put it in place: nothing is left to send.
        if most(next, "started", "size_bytes") == Some(0) {
            self.figures.unheard += 1;
            return;
        }
        let arrived = most(&killed, "progress", "bytes").unwrap_or(0);
        self.figures.resumed += u32::from(kept > 0);
        let lost = arrived.saturating_sub(kept);
        assert!(lost <= MOST_LOST, "{}: {arrived} bytes had arrived, {kept} were kept", case.name);
        self.figures.lost = self.figures.lost.max(lost);
    }

    /// How long a copy takes that nobody disturbs.
    fn time_of(&mut self, case: &Case) -> Duration {
        if let Some(took) = self.took.get(case.name) {
            return *took;
        }
        case.prepare(&self.field);
        let begun = Instant::now();
        self.field.cp(case).expect(0);
        let took = begun.elapsed();
        case.check_end(&self.field, case.name);
        self.took.insert(case.name, took);
        took
    }
}

/// The greatest number that events of a name have in a field.
pub(crate) fn most(outcome: &Outcome, event: &str, field: &str) -> Option<u64> {
    let lines = outcome.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == event).filter_map(|line| line[field].as_u64()).max()
}

const STREAM: [&str; 1] = ["--json-stream"];

/// A daemon that is killed while a client starts costs it one run.
const MOST_RERUNS: usize = 4;

/// The promise: 64 MiB and what is in flight.
pub(crate) const MOST_LOST: u64 = 72 << 20;

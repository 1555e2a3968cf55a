//! Kills of the client, the daemon or both by SIGKILL at random moments of a copy, until the copy
//! is complete.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    case::{CASES, Case, VAST},
    field::Field,
    random::choose,
};
use nicstripe_sim::Rng;

use crate::Outcome;

/// Process to kill: the client, the daemon, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    Client,
    Daemon,
    Both,
}

/// One copy, and the kills that interrupt it.
#[derive(Debug, Clone)]
pub struct Round {
    case: Case,
    /// Process to kill, and the moment in thousandths of the copy's duration.
    kills: Vec<(Victim, u64)>,
}

#[derive(Debug, Default, Clone)]
pub struct Figures {
    pub rounds: u32,
    /// Number of clients killed while running, and of daemons killed while a client was running.
    pub clients: u32,
    pub daemons: u32,
    /// Number of copies that a client completed after a restart of the daemon, without a rerun.
    pub continued: u32,
    /// Number of reruns that resumed from durable data.
    pub resumed: u32,
    /// Number of copies that were complete at the kill, but not yet reported by the client.
    pub unheard: u32,
    /// Maximum number of bytes that a kill lost although the client had reported them as received.
    pub lost: u64,
}

impl Figures {
    pub fn kills(&self) -> u32 {
        self.clients + self.daemons
    }

    /// Adds the counts of another runner.
    pub fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.clients += other.clients;
        self.daemons += other.daemons;
        self.continued += other.continued;
        self.resumed += other.resumed;
        self.unheard += other.unheard;
        self.lost = self.lost.max(other.lost);
    }
}

impl Round {
    /// Returns the round that `seed` determines. One round in forty copies a file of [`VAST`].
    pub fn of(seed: u64, only: Option<Case>) -> Self {
        let mut random = Rng::new(seed);
        let drawn = if random.below(40) == 0 {
            choose(&mut random, VAST)
        } else {
            choose(&mut random, CASES)
        };
        let kills = 1 + random.below(3);
        let kill = |_| {
            (
                choose(&mut random, &[Victim::Client, Victim::Daemon, Victim::Both]),
                random.below(1100),
            )
        };
        Self {
            case: only.unwrap_or(drawn),
            kills: (0..kills).map(kill).collect(),
        }
    }
}

/// Client and daemon of several rounds, and the duration of each kind of copy without kills.
pub struct Runner {
    field: Field,
    took: BTreeMap<&'static str, Duration>,
    pub figures: Figures,
}

impl Runner {
    pub fn new() -> Self {
        Self {
            field: Field::new(),
            took: BTreeMap::new(),
            figures: Figures::default(),
        }
    }

    /// Runs a round. Panics if a file is damaged, data is lost or a rerun fails.
    pub fn run(&mut self, round: &Round) {
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
                self.figures.continued += 1;
            }
        }
        let outcome = client.finish();
        self.note_kept(case, arrived, &outcome);
        self.finish(case, outcome);
        case.check_end(&self.field, case.name);
        self.figures.rounds += 1;
    }

    /// Reruns an interrupted copy until it succeeds.
    fn finish(&mut self, case: &Case, mut outcome: Outcome) {
        for _ in 0..MOST_RERUNS {
            // The killed copy was complete, but the client was killed before it could report that.
            // The content is checked next.
            let is_unheard = outcome.status.code() == Some(11)
                && outcome.stderr.contains("a file of that name exists");
            self.figures.unheard += u32::from(is_unheard);
            if outcome.status.success() || is_unheard {
                return;
            }
            // A client that loses the daemon during the handshake reports that it cannot connect.
            assert!(
                matches!(outcome.status.code(), Some(5 | 10 | 30)),
                "{}: {outcome}",
                case.name
            );
            case.check_between(&self.field);
            outcome = self.field.cp(case);
        }
        panic!(
            "{}: not done after {MOST_RERUNS} reruns: {outcome}",
            case.name
        );
    }

    /// Records how many of the bytes received before a kill the next run resumed.
    fn note_kept(&mut self, case: &Case, killed: Option<Outcome>, next: &Outcome) {
        // A copy in place compares the existing file instead of resuming.
        let Some(killed) = killed.filter(|_| case.is_file() && !case.name.contains("in-place"))
        else {
            return;
        };
        let Some(kept) = most(next, "started", "resumed_bytes") else {
            return;
        };
        // The daemon had received and renamed the whole file. Nothing remains to be sent.
        if most(next, "started", "size_bytes") == Some(0) {
            self.figures.unheard += 1;
            return;
        }
        let arrived = most(&killed, "progress", "bytes").unwrap_or(0);
        self.figures.resumed += u32::from(kept > 0);
        let lost = arrived.saturating_sub(kept);
        assert!(
            lost <= MOST_LOST,
            "{}: {arrived} bytes had arrived, {kept} were kept",
            case.name
        );
        self.figures.lost = self.figures.lost.max(lost);
    }

    /// Returns the duration of a copy without kills, measured at the first call.
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

/// Returns the maximum of `field` over all JSON events named `event`; `None` without such an event.
pub fn most(outcome: &Outcome, event: &str, field: &str) -> Option<u64> {
    let lines = outcome
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["event"] == event)
        .filter_map(|line| line[field].as_u64())
        .max()
}

const STREAM: [&str; 1] = ["--json-stream"];

/// Maximum number of reruns of a copy. A daemon that is killed while a client starts costs one
/// rerun.
const MOST_RERUNS: usize = 4;

/// Documented maximum number of bytes that a kill may lose: 64 MiB plus the bytes in flight.
pub const MOST_LOST: u64 = 72 << 20;

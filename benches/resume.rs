//! Cost of resuming after `kill -9` of client, daemon or both at half of a file.
//!
//! `cargo bench --bench resume -- --size 2G --runs 3 --links 2 --direction put,get`
//!
//! With put, the client sends and the daemon receives; with get, the daemon sends. The bench
//! restarts a killed process at once. A client whose daemon was killed resumes without a restart.
//! Retransmitted bytes are counted at the sender's interfaces: all bytes sent, minus the bytes of
//! an undisturbed copy. Fails if a file has its final name before the copy is complete.
#![forbid(unsafe_code)]

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use nicstripe_testkit::bench::{
    Cables, Cell, Contender, Copies, Place, Process, Result, Scene, Spread, Table, Way, cell,
    circumstances, cp, measure, parse_size, serve, start_daemon, time_limit, verdict,
};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the file in bytes
    #[arg(long, default_value = "2G", value_parser = parse_size)]
    size: u64,

    #[command(flatten)]
    copies: Copies,

    /// Cables: a number of cables of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, default_value = "2")]
    links: Cables,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let place = Place::in_memory(2 * arguments.size)?;
    let mut sample = place.sample(arguments.size)?;
    let mut table = Table::default();
    let mut failures = Vec::new();
    for way in &arguments.copies.direction {
        let undisturbed = measure(
            Contender::Nicstripe,
            &Scene::build(&arguments.links, &place, &mut sample, way.from())?,
        )?;
        let cost: u64 = undisturbed
            .cables
            .iter()
            .map(|cable| cable.at(way.from()).sent_bytes)
            .sum();
        for victim in [Victim::Client, Victim::Daemon, Victim::Both] {
            let mut run = || {
                let scene = Scene::build(&arguments.links, &place, &mut sample, way.from())?;
                Attempt {
                    scene: &scene,
                    victim,
                    cost,
                }
                .run()
            };
            match (0..arguments.copies.runs)
                .map(|_| run())
                .collect::<Result<Vec<_>>>()
            {
                Ok(runs) => table.row(row(*way, victim, &arguments.links, &runs)),
                Err(error) => {
                    failures.push(format!("{}, {} killed: {error}", way.name(), victim.name()));
                }
            }
        }
    }
    println!(
        "\n{}\n{}, {} MiB; median (least–greatest), {} runs each.",
        circumstances(&[Contender::Nicstripe]),
        arguments.links,
        arguments.size >> 20,
        arguments.copies.runs
    );
    println!(
        "The limit is 64 MiB plus data in flight: up to 8 MiB per cable, and the socket buffers.\n\n{table}"
    );
    verdict(&failures)
}

/// Process that the bench kills at half of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Daemon,
    Both,
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Daemon => "daemon",
            Self::Both => "both",
        }
    }
}

/// Copy that is interrupted at half of the file and then resumed.
#[derive(Debug)]
struct Attempt<'a> {
    scene: &'a Scene<'a>,
    victim: Victim,
    /// Bytes on the wire that an undisturbed copy costs the sender.
    cost: u64,
}

/// Result of an interrupted and resumed copy.
#[derive(Debug)]
struct Outcome {
    /// Size of the copied file in bytes.
    size: u64,
    /// File bytes that had arrived before the kill, estimated from the receiver's counters.
    arrived: f64,
    /// File bytes that were not retransmitted, by the report of the resumed copy.
    kept: u64,
    /// File bytes that were retransmitted, by the sender's counters. May be negative within the
    /// counters' precision.
    again: f64,
    /// Time from the restart until every cable carried data.
    flowing: Duration,
    /// Time from the restart until the copy was complete.
    rest: Duration,
}

impl Attempt<'_> {
    fn run(&self) -> Result<Outcome> {
        let size = self.scene.sample.size;
        let sent_before = self.sent()?;
        let (mut daemon, mut client) = (self.start_daemon()?, self.start_client()?);
        let (half, deadline) = (size / 2, Instant::now() + time_limit(size));
        self.await_bytes(&client, deadline, |received| {
            received.iter().sum::<u64>() >= half
        })?;
        match self.victim {
            Victim::Client => client.kill()?,
            Victim::Daemon => daemon.kill()?,
            Victim::Both => [&mut client, &mut daemon]
                .into_iter()
                .try_for_each(Process::kill)?,
        }
        let received = self.scene.received_bytes()?;
        if self.scene.received()?.exists() {
            return Err("the final name exists before the copy is complete".into());
        }

        let restart = Instant::now();
        let _daemon = if self.victim == Victim::Client {
            daemon
        } else {
            self.start_daemon()?
        };
        let mut client = if self.victim == Victim::Daemon {
            client
        } else {
            self.start_client()?
        };
        let is_flowing = |now: &[u64]| {
            now.iter()
                .zip(&received)
                .all(|(now, before)| *now >= before + DATA)
        };
        self.await_bytes(&client, deadline, is_flowing)?;
        let flowing = restart.elapsed();
        client.await_end(deadline)?;
        let rest = restart.elapsed();
        let report = self.scene.check(&mut client)?;
        let file_bytes = |counted: u64| counted as f64 * size as f64 / self.cost as f64;
        let again = file_bytes(self.sent()? - sent_before) - size as f64;
        let arrived = file_bytes(received.iter().sum());
        eprintln!(
            "{} killed: {again:.0} bytes retransmitted, data on all cables after {flowing:.3?}",
            self.victim.name()
        );
        Ok(Outcome {
            size,
            arrived,
            kept: report.resumed_bytes.unwrap_or(0),
            again,
            flowing,
            rest,
        })
    }

    fn start_daemon(&self) -> Result<Process> {
        start_daemon(serve(self.scene), self.scene.place)
    }

    fn start_client(&self) -> Result<Process> {
        let mut command = cp(self.scene)?;
        command.arg("--json");
        Process::spawn(command, "cp", &self.scene.place.logs())
    }

    /// Waits until the bytes received on each cable satisfy `is_enough`.
    ///
    /// # Errors
    ///
    /// The client exits first, or `deadline` passes.
    fn await_bytes(
        &self,
        client: &Process,
        deadline: Instant,
        is_enough: impl Fn(&[u64]) -> bool,
    ) -> Result<()> {
        while !is_enough(&self.scene.received_bytes()?) {
            if client.has_ended_within(Duration::ZERO)? {
                // A successful exit would mean that nothing remained to be resumed.
                return Err("the copy ended before data flowed on all cables".into());
            }
            if Instant::now() > deadline {
                return Err("no data flowed on all cables in time".into());
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Returns the bytes that the sending host has sent on all cables since the lab was built.
    fn sent(&self) -> Result<u64> {
        Ok(self
            .scene
            .lab
            .counters()?
            .iter()
            .map(|cable| cable.at(self.scene.from).sent_bytes)
            .sum())
    }
}

fn row(way: Way, victim: Victim, cables: &Cables, runs: &[Outcome]) -> [Cell; 11] {
    let ideal = |run: &Outcome| {
        run.size.saturating_sub(run.kept) as f64 * 8.0 / cables.theory().unwrap_or(f64::NAN)
    };
    let then = match victim {
        Victim::Daemon => "the copy continues",
        _ => "run again",
    };
    let mib = |of: fn(&Outcome) -> f64| Spread::of(runs, |run| of(run) / MIB);
    let flowing = Spread::of(runs, |run| run.flowing.as_secs_f64());
    [
        cell("way", way.name()),
        cell("killed", victim.name()),
        cell("then", then),
        cell("received before, MiB", mib(|run| run.arrived).middle(1)),
        cell("resumed, MiB", mib(|run| run.kept as f64).middle(1)),
        cell("resent, MiB", mib(|run| run.again).print(1)),
        cell("bar", "≤ 64"),
        cell("data on all cables after, s", flowing.print(3)),
        cell("bar", "≤ 1"),
        cell(
            "rest took, s",
            Spread::of(runs, |run| run.rest.as_secs_f64()).print(2),
        ),
        cell("ideal, s", Spread::of(runs, ideal).middle(2)),
    ]
}

const MIB: f64 = 1_048_576.0;

/// Number of received bytes from which a cable counts as carrying data. Handshakes are shorter.
const DATA: u64 = 1 << 20;

/// Interval at which the interface counters are polled.
const INTERVAL: Duration = Duration::from_millis(2);

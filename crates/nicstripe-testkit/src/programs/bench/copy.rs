//! Measurement of one copy: time, CPU time and traffic.

use std::{
    ops::ControlFlow,
    process::Command,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, LinkCounters};

use super::{
    contender::{Contender, CpReport, Ready},
    error::Result,
    process::{Process, busy},
    scene::Scene,
    spread::Spread,
    table::{Cell, cell},
};

/// Result of one measured copy.
#[derive(Debug)]
pub struct Copied {
    /// Wall-clock time from the start of the first client to the exit of the last.
    pub wall: Duration,
    /// CPU time of the processes on the sending host.
    pub sender_cpu: Duration,
    /// CPU time of the processes on the receiving host.
    pub receiver_cpu: Duration,
    /// CPU time of the rest of the machine during the copy: other processes and kernel threads.
    pub others_cpu: Duration,
    /// Traffic counters of each cable during the copy.
    pub cables: Vec<LinkCounters>,
    /// Size of the copied file in bytes.
    pub size: u64,
    /// Report of nicstripe; `None` for other programs.
    pub report: Option<CpReport>,
    /// Rate in bits per second that a program reports that only measures; `None` for others.
    pub reported_rate: Option<f64>,
}

/// Hooks that a bench runs before, during and after a copy. `()` is the implementation without hooks.
pub trait Watch {
    /// Called before each process of the program starts, servers first, and returns the command to
    /// start. A new process inherits what the hook changes in the calling thread.
    fn prepare(&mut self, _scene: &Scene<'_>, _host: Host, command: Command) -> Result<Command> {
        Ok(command)
    }

    /// Called every few milliseconds from the start of the clients, at `begun`, until all clients
    /// have exited or the hook returns `Break`.
    ///
    /// # Errors
    ///
    /// An error aborts the copy.
    fn during(&mut self, _scene: &Scene<'_>, _begun: Instant) -> Result<ControlFlow<()>> {
        Ok(ControlFlow::Break(()))
    }

    /// Called after all clients have exited successfully, while the servers still run.
    fn after(&mut self, _scene: &Scene<'_>) -> Result<()> {
        Ok(())
    }
}

impl Watch for () {}

/// Measures one copy of the scene's file by a program, and compares the result with the source.
///
/// The time to start the servers is excluded.
pub fn measure(contender: Contender, scene: &Scene<'_>) -> Result<Copied> {
    measure_watched(contender, scene, &mut ())
}

/// Like [`measure`], with hooks that run during and after the copy.
pub fn measure_watched(
    contender: Contender,
    scene: &Scene<'_>,
    watch: &mut impl Watch,
) -> Result<Copied> {
    let plan = contender.plan(scene)?;
    let ballast = if contender.copies_files() {
        scene.place.ballast(scene.sample.size)?
    } else {
        None
    };
    let servers = start_servers(contender, scene, plan.servers, watch)?;
    let cpu_before = [cpu(&servers, scene.from)?, cpu(&servers, scene.to())?];
    let (busy_before, counters_before) = (busy()?, scene.lab.counters()?);

    let begun = Instant::now();
    let mut clients = Vec::new();
    for (index, (host, command)) in plan.clients.into_iter().enumerate() {
        let command = watch.prepare(scene, host, command)?;
        clients.push((
            host,
            Process::spawn(
                command,
                &format!("{contender}-client-{index}"),
                &scene.place.logs(),
            )?,
        ));
    }
    let deadline = begun + time_limit(scene.sample.size);
    while watch.during(scene, begun)?.is_continue()
        && !has_ended(&clients)?
        && Instant::now() < deadline
    {}
    clients
        .iter()
        .try_for_each(|(_, client)| client.await_end(deadline))?;
    let wall = begun.elapsed();
    drop(ballast);

    let counters = scene.lab.counters()?;
    let of_clients = |host| {
        clients
            .iter()
            .filter(|(at, _)| *at == host)
            .map(|(_, client)| client.cpu())
            .sum::<Result<Duration>>()
    };
    let spent = |host, before: Duration| {
        Ok::<_, super::error::Error>(
            (cpu(&servers, host)? + of_clients(host)?).saturating_sub(before),
        )
    };
    let (sender_cpu, receiver_cpu) = (
        spent(scene.from, cpu_before[0])?,
        spent(scene.to(), cpu_before[1])?,
    );
    let others_cpu = busy()?
        .saturating_sub(busy_before)
        .saturating_sub(sender_cpu + receiver_cpu);
    clients
        .iter_mut()
        .try_for_each(|(_, client)| client.succeeded())?;

    watch.after(scene)?;

    let (mut report, mut reported_rate) = (None, None);
    for (_, client) in &clients {
        reported_rate = contender.reported_rate(&client.output()?, scene.from)?;
        report = contender.check_report(&client.output()?, scene.sample)?;
    }
    if contender.copies_files() {
        scene.sample.check(&scene.received()?)?;
        scene.discard()?;
    }
    let cables = counters
        .iter()
        .zip(&counters_before)
        .map(|(after, before)| after.since(before))
        .collect();
    Ok(Copied {
        wall,
        sender_cpu,
        receiver_cpu,
        others_cpu,
        cables,
        size: scene.sample.size,
        report,
        reported_rate,
    })
}

impl Copied {
    /// Returns the goodput in bits per second: file bits divided by wall-clock time, or what the program
    /// reports.
    pub fn goodput(&self) -> f64 {
        if let Some(rate) = self.reported_rate {
            return rate;
        }
        self.size as f64 * 8.0 / self.wall.as_secs_f64()
    }

    /// Returns CPU seconds per 10⁹ bytes of the file: sender, receiver, sum of both.
    pub fn cpu_per_gb(&self) -> [f64; 3] {
        [
            self.sender_cpu,
            self.receiver_cpu,
            self.sender_cpu + self.receiver_cpu,
        ]
        .map(|cpu| cpu.as_secs_f64() / (self.size as f64 / 1e9))
    }

    /// Returns the cells of the CPU seconds per GB of sender, receiver and both.
    pub fn cpu_cells(runs: &[Self], print: fn(&Spread, usize) -> String) -> [Cell; 3] {
        let of = |end: usize| print(&Spread::of(runs, |run| run.cpu_per_gb()[end]), 2);
        [
            cell("CPU s/GB sender", of(0)),
            cell("receiver", of(1)),
            cell("both", of(2)),
        ]
    }

    /// Returns the wall-clock times in seconds.
    pub fn seconds(runs: &[Self]) -> Spread {
        Spread::of(runs, |run| run.wall.as_secs_f64())
    }

    /// Returns the average number of CPUs that the rest of the machine kept busy.
    pub fn others(&self) -> f64 {
        self.others_cpu.as_secs_f64() / self.wall.as_secs_f64()
    }

    /// Formats the MB sent and received on each cable, in the direction of the copy: `537/537
    /// 537/537`.
    pub fn shares(&self, from: Host) -> String {
        let megabytes = |bytes: u64| (bytes as f64 / 1e6).round();
        let share = |cable: &LinkCounters| {
            format!(
                "{}/{}",
                megabytes(cable.at(from).sent_bytes),
                megabytes(cable.at(from.peer()).received_bytes)
            )
        };
        self.cables.iter().map(share).collect::<Vec<_>>().join(" ")
    }

    /// Returns the copy whose time is closest to the median; `None` if `runs` is empty.
    pub fn typical(runs: &[Self]) -> Option<&Self> {
        let median = Self::seconds(runs).median();
        runs.iter().min_by(|a, b| {
            let distance = |run: &Self| (run.wall.as_secs_f64() - median).abs();
            distance(a).total_cmp(&distance(b))
        })
    }
}

fn start_servers(
    contender: Contender,
    scene: &Scene<'_>,
    servers: Vec<super::contender::Server>,
    watch: &mut impl Watch,
) -> Result<Vec<(Host, Process)>> {
    let mut started = Vec::new();
    for (index, server) in servers.into_iter().enumerate() {
        let process = Process::spawn(
            watch.prepare(scene, server.host, server.command)?,
            &format!("{contender}-server-{index}"),
            &scene.place.logs(),
        )?;
        match server.ready {
            Ready::Listens(port) => process.await_listener(port)?,
            Ready::Says(line) => process.await_line(line)?,
        }
        started.push((server.host, process));
    }
    Ok(started)
}

/// Waits up to [`INTERVAL`] for the clients to exit. Returns true if all have exited.
fn has_ended(clients: &[(Host, Process)]) -> Result<bool> {
    let until = Instant::now() + INTERVAL;
    let mut left = clients.iter().map(|(_, client)| {
        client.has_ended_within(until.saturating_duration_since(Instant::now()))
    });
    left.try_fold(true, |all, ended| Ok(all && ended?))
}

fn cpu(processes: &[(Host, Process)], host: Host) -> Result<Duration> {
    processes
        .iter()
        .filter(|(at, _)| *at == host)
        .map(|(_, process)| process.cpu())
        .sum()
}

/// Returns the timeout of a copy: 60 s plus 1 s per 10⁶ bytes, at most 600 s.
pub fn time_limit(size: u64) -> Duration {
    (Duration::from_secs(60) + Duration::from_secs(size / 1_000_000)).min(Duration::from_secs(600))
}

/// Interval between two calls of [`Watch::during`].
const INTERVAL: Duration = Duration::from_millis(2);

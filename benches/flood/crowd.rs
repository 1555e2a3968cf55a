//! Load of many concurrent honest clients from one address, over the loopback interface of the
//! daemon's host.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use nicstripe::Limits;
use nicstripe_lab::Host;
use nicstripe_testkit::{
    bench::{Process, Result, Sample, Scene, serve, start_daemon},
    program,
};
use serde::Deserialize;

/// Parameters of a load of concurrent clients.
pub(crate) struct Crowd<'a> {
    pub(crate) clients: u32,
    /// `NICSTRIPE_HOME` folders with the clients' keys, assigned round-robin.
    pub(crate) homes: &'a [PathBuf],
    /// Session limit of the daemon; `None` for the daemon's default.
    pub(crate) sessions: Option<u32>,
}

/// Result of a load of concurrent clients.
pub(crate) struct Served {
    pub(crate) seconds: f64,
    pub(crate) failed: usize,
    /// Number of clients that connected more than 2.5 s ([`PATIENCE`]) after their start.
    pub(crate) late: usize,
    /// Number of late clients that did not report that they are waiting.
    pub(crate) silent: usize,
    /// Maximum number of concurrent sessions of the daemon during the load.
    pub(crate) sessions: usize,
    /// Peak resident memory of the daemon (VmHWM) in bytes.
    pub(crate) memory: u64,
}

/// Client process with its start and exit times.
struct Client {
    process: Process,
    begun: Instant,
    ended: Option<Instant>,
}

impl Crowd<'_> {
    /// Starts the daemon, and all clients simultaneously. Each client copies `sample` to a
    /// different name. Compares the copies with `sample`.
    pub(crate) fn measure(&self, scene: &Scene<'_>, sample: &Sample) -> Result<Served> {
        let settings = scene.place.home(Host::B).config_file();
        if let Some(sessions) = self.sessions {
            // A key may have at most half of the connections.
            fs::write(
                &settings,
                format!(
                    "[limits]\nsessions = {sessions}\nsessions-per-peer = {sessions}\npaths = {}\n",
                    2 * sessions
                ),
            )?;
        }
        let daemon = start_daemon(serve(scene), scene.place)?;
        let begun = Instant::now();
        let start = |number: u32| {
            start(
                scene,
                sample,
                &self.homes[number as usize % self.homes.len()],
                number,
            )
        };
        let mut clients = (0..self.clients).map(start).collect::<Result<Vec<_>>>()?;
        await_all(&mut clients)?;
        let seconds = begun.elapsed().as_secs_f64();
        let memory = daemon.memory().ok_or("the daemon has ended")?[0];
        let mut served = Served {
            seconds,
            failed: 0,
            late: 0,
            silent: 0,
            sessions: 0,
            memory,
        };
        let mut changes = BTreeMap::new();
        for (number, client) in clients.iter_mut().enumerate() {
            let copy = scene.place.files(Host::B).join(format!("crowd-{number}"));
            match client
                .process
                .succeeded()
                .and_then(|()| sample.check(&copy))
            {
                Ok(()) => fs::remove_file(copy)?,
                Err(error) => {
                    eprintln!("{error}");
                    served.failed += 1;
                    continue;
                }
            }
            let story = Story::read(&client.process.output()?);
            let is_late = story.connected > PATIENCE;
            served.late += usize::from(is_late);
            served.silent += usize::from(is_late && !story.is_told);
            *changes.entry(client.begun + story.connected).or_insert(0) += 1;
            *changes
                .entry(client.ended.unwrap_or(client.begun))
                .or_insert(0) -= 1;
        }
        let running = changes.values().scan(0_i32, |running, change| {
            *running += change;
            Some(*running)
        });
        // A client exits only after the end of its session.
        served.sessions = (running.max().unwrap_or(0).unsigned_abs() as usize).min(self.allowed());
        let _ = fs::remove_file(settings);
        Ok(served)
    }

    /// Returns the number of sessions that the daemon allows these clients.
    fn allowed(&self) -> usize {
        let limits = Limits::default();
        self.sessions.map_or(
            limits
                .sessions
                .min(limits.sessions_per_peer * self.homes.len()),
            |sessions| sessions as usize,
        )
    }
}

fn start(scene: &Scene<'_>, sample: &Sample, home: &PathBuf, number: u32) -> Result<Client> {
    let mut command = scene.lab.command(Host::B, program());
    command.env("NICSTRIPE_HOME", home).env_remove("RUST_LOG");
    command
        .args(["cp", "--json-stream"])
        .arg(&sample.path)
        .arg(format!("127.0.0.1:crowd-{number}"));
    let process = Process::spawn(command, &format!("crowd-{number}"), &scene.place.logs())?;
    Ok(Client {
        process,
        begun: Instant::now(),
        ended: None,
    })
}

fn await_all(clients: &mut [Client]) -> Result<()> {
    let deadline = Instant::now() + LONGEST;
    while clients.iter().any(|client| client.ended.is_none()) {
        if Instant::now() > deadline {
            return Err(format!("clients not served within {LONGEST:?}").into());
        }
        for client in clients.iter_mut().filter(|client| client.ended.is_none()) {
            client.ended = client
                .process
                .has_ended_within(Duration::ZERO)?
                .then(Instant::now);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Connection events from a client's `--json-stream` output.
struct Story {
    /// Time from the start to the connection; zero without a connection.
    connected: Duration,
    /// True if the client reported that the daemon had queued it.
    is_told: bool,
}

#[derive(Deserialize)]
struct Line {
    time_s: f64,
    event: String,
}

impl Story {
    fn read(stream: &str) -> Self {
        // The last line is the report, which has no time.
        let lines: Vec<Line> = stream.lines().flat_map(serde_json::from_str).collect();
        let first = |event: &str| lines.iter().find(|line| line.event == event);
        Self {
            connected: Duration::from_secs_f64(first("connected").map_or(0.0, |line| line.time_s)),
            is_told: first("queued").is_some(),
        }
    }
}

/// Connection time above which a client counts as late. Clients report after 2 s that they are
/// waiting.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Timeout of all clients together.
const LONGEST: Duration = Duration::from_secs(300);

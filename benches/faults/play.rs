//! A monitored copy under faults: received bytes over time, and memory of both ends.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    bench_support::{self, CpReport, Peak, Process, Result, Scene, cp, serve, time_limit},
    cgroup::Groups,
};

/// Start parameters of both commands.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// Options for `cp`.
    pub(crate) options: &'a [String],
    /// Memory limits.
    pub(crate) groups: Option<&'a Groups>,
}

/// A running copy.
pub(crate) struct Play<'a> {
    pub(crate) scene: &'a Scene<'a>,
    start: Start<'a>,
    client: Process,
    daemon: Process,
    begun: Instant,
    deadline: Instant,
    /// Bytes of the file per byte of the receiver's counters.
    scale: f64,
    before: Vec<u64>,
    samples: Vec<Sample>,
    /// Peak memory of client and daemon.
    peaks: [Peak; 2],
    /// Expected end of the file, if the cables carry their theory from here on.
    ideal: Option<Duration>,
}

/// Bytes delivered by each cable up to one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) received: Vec<u64>,
}

/// Result of the copy.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) wall: Duration,
    pub(crate) ideal: Duration,
    pub(crate) peaks: [Peak; 2],
    pub(crate) report: CpReport,
    pub(crate) samples: Vec<Sample>,
}

impl<'a> Play<'a> {
    /// Starts daemon and client.
    pub(crate) fn begin(scene: &'a Scene<'a>, start: Start<'a>) -> Result<Self> {
        let daemon = start_daemon(scene, start)?;
        let before = scene.received_bytes()?;
        let begun = Instant::now();
        let client = start_client(scene, start)?;
        let deadline = begun + time_limit(scene.sample.size) + PATIENCE;
        Ok(Self {
            scene,
            start,
            client,
            daemon,
            begun,
            deadline,
            scale: FILE_SHARE,
            before,
            samples: Vec::new(),
            peaks: [Peak::default(); 2],
            ideal: None,
        })
    }

    /// Returns the time since the start of the client.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes a sample, and returns true if the client has ended.
    pub(crate) fn look(&mut self) -> Result<bool> {
        if Instant::now() > self.deadline {
            return Err("the copy did not end in time".into());
        }
        let ended = self.client.has_ended_within(INTERVAL)?;
        let received = self.scene.received_bytes()?;
        let received = received
            .iter()
            .zip(&self.before)
            .map(|(now, before)| now - before)
            .collect();
        self.samples.push(Sample {
            at: self.now(),
            received,
        });
        if self.samples.len().is_multiple_of(SAMPLES_A_PEAK) || ended {
            self.peaks[0].update(&self.client);
            self.peaks[1].update(&self.daemon);
        }
        Ok(ended)
    }

    /// Samples for `time`, or until the client ends, and returns true if it has ended.
    pub(crate) fn watch_for(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if self.look()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Samples until a condition holds.
    ///
    /// # Errors
    ///
    /// The client ends before.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        while !is_so(self) {
            if self.look()? {
                return Err(
                    format!("the copy ended before {what}: expected a greater --size").into(),
                );
            }
        }
        Ok(())
    }

    /// Samples until this share of the file has arrived.
    pub(crate) fn until_share(&mut self, share: f64) -> Result<()> {
        self.until("this much was received", |play| {
            play.arrived() >= share * play.scene.sample.size as f64
        })
    }

    /// Returns the bytes delivered by a cable.
    pub(crate) fn received(&self, link: usize) -> u64 {
        self.samples
            .last()
            .and_then(|sample| sample.received.get(link))
            .copied()
            .unwrap_or(0)
    }

    /// Returns the received bytes of the file; a fault may make some count twice.
    pub(crate) fn arrived(&self) -> f64 {
        let received: u64 = self
            .samples
            .last()
            .map_or(0, |sample| sample.received.iter().sum());
        received as f64 * self.scale
    }

    /// Computes the ideal end, with `cables` cables for the rest.
    pub(crate) fn rest_on(&mut self, cables: f64) {
        let left = (self.scene.sample.size as f64 - self.arrived()).max(0.0);
        let theory =
            self.scene.cables.theory().unwrap_or(f64::NAN) / self.scene.cables.count() as f64;
        self.ideal = Some(self.now() + Duration::from_secs_f64(left * 8.0 / (theory * cables)));
    }

    /// Sends a signal to client or daemon.
    pub(crate) fn signal(&self, end: usize, signal: Signal) -> Result<()> {
        self.process(end).signal(signal)
    }

    /// Kills an end with `kill -9`.
    pub(crate) fn kill(&mut self, end: usize) -> Result<()> {
        self.peak(end);
        if end == 0 {
            self.client.kill()
        } else {
            self.daemon.kill()
        }
    }

    /// Restarts a killed end.
    pub(crate) fn start_again(&mut self, end: usize) -> Result<()> {
        match end {
            0 => self.client = start_client(self.scene, self.start)?,
            _ => self.daemon = start_daemon(self.scene, self.start)?,
        }
        Ok(())
    }

    /// Returns the peak memory of an end so far, in bytes.
    pub(crate) fn peak(&mut self, end: usize) -> u64 {
        let process = if end == 0 { &self.client } else { &self.daemon };
        self.peaks[end].update(process);
        self.peaks[end].resident
    }

    /// Waits for the end, and checks the copy.
    pub(crate) fn end(mut self) -> Result<Played> {
        while !self.look()? {}
        let wall = self.now();
        self.client.succeeded()?;
        let report = CpReport::parse(&self.client.output()?)?;
        self.scene
            .sample
            .check_digest(report.blake3.as_deref().unwrap_or_default(), "nicstripe")?;
        self.scene.sample.check(&self.scene.received()?)?;
        self.scene.discard()?;
        let ideal = self.ideal.ok_or("no ideal given")?;
        Ok(Played {
            wall,
            ideal,
            peaks: self.peaks,
            report,
            samples: self.samples,
        })
    }

    fn process(&self, end: usize) -> &Process {
        if end == 0 { &self.client } else { &self.daemon }
    }
}

impl Played {
    /// Returns the seconds over the ideal time.
    pub(crate) fn over_ideal(&self) -> f64 {
        self.wall.as_secs_f64() - self.ideal.as_secs_f64()
    }

    /// Returns the byte rate of a cable in each window of this length, with the window's end.
    pub(crate) fn rates(&self, link: usize, window: Duration) -> Vec<(Duration, f64)> {
        let mut first = 0;
        let mut rates = Vec::new();
        for sample in &self.samples {
            while self
                .samples
                .get(first + 1)
                .is_some_and(|next| next.at + window <= sample.at)
            {
                first += 1;
            }
            let start = &self.samples[first];
            if start.at + window <= sample.at {
                let bytes = sample.received[link] - start.received[link];
                rates.push((
                    sample.at,
                    bytes as f64 / (sample.at - start.at).as_secs_f64(),
                ));
            }
        }
        rates
    }
}

fn start_daemon(scene: &Scene<'_>, start: Start<'_>) -> Result<Process> {
    bench_support::start_daemon(limited(scene, start, serve(scene), 1), scene.place)
}

fn start_client(scene: &Scene<'_>, start: Start<'_>) -> Result<Process> {
    let mut command = cp(scene)?;
    command.arg("--json").args(start.options);
    Process::spawn(limited(scene, start, command, 0), "cp", &scene.place.logs())
}

fn limited(scene: &Scene<'_>, start: Start<'_>, command: Command, end: usize) -> Command {
    match start.groups {
        Some(groups) => groups.inside(scene, &command, end),
        None => command,
    }
}

const INTERVAL: Duration = Duration::from_millis(4);

/// Counter samples per memory sample, because reading memory costs more.
const SAMPLES_A_PEAK: usize = 8;

/// Extra time for faults in a copy's timeout.
const PATIENCE: Duration = Duration::from_secs(120);

/// Share of file bytes on the wire. The rest is headers, of TLS records and of packets (a
/// superpacket of 64 KiB has one): measured, 0.4 %.
const FILE_SHARE: f64 = 0.996;

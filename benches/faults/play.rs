//! Monitored copy under faults: received bytes over time, and the memory of client and daemon.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, MemoryLimit};
use nicstripe_testkit::bench::{CpReport, Peak, Process, Result, Scene, cp, serve, time_limit};
use rustix::process::Signal;

/// Parameters for starting client and daemon.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// Additional options of `nicstripe cp`.
    pub(crate) options: &'a [String],
    /// Memory cgroups of client and daemon; `None` for no limit.
    pub(crate) groups: Option<&'a [MemoryLimit; 2]>,
}

/// Running copy with samples of the interface counters. The argument `end` of its methods is 0 for
/// the client, 1 for the daemon.
pub(crate) struct Play<'a> {
    pub(crate) scene: &'a Scene<'a>,
    start: Start<'a>,
    client: Process,
    daemon: Process,
    begun: Instant,
    deadline: Instant,
    /// Estimated ratio of file bytes to bytes on the wire, below 1 because of headers.
    scale: f64,
    before: Vec<u64>,
    samples: Vec<Sample>,
    /// Peak memory of the client and the daemon.
    peaks: [Peak; 2],
    /// Ideal time of the copy: its end if the cables carried their theoretical goodput since the
    /// last fault; `None` before the first fault.
    ideal: Option<Duration>,
}

/// Bytes received on each cable up to a moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) received: Vec<u64>,
}

/// Result of a complete and verified copy.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) wall: Duration,
    pub(crate) ideal: Duration,
    pub(crate) peaks: [Peak; 2],
    pub(crate) report: CpReport,
    pub(crate) samples: Vec<Sample>,
}

impl<'a> Play<'a> {
    /// Starts the daemon, then the client.
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

    /// Waits up to [`INTERVAL`] for the client to exit, and samples the counters. Returns true if
    /// the client has exited.
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

    /// Samples the counters for `time`. Returns true if the client exits within that time.
    pub(crate) fn watch_for(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if self.look()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Samples the counters until a condition holds. `what` describes the condition in the error
    /// message.
    ///
    /// # Errors
    ///
    /// The client exits before the condition holds.
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

    /// Samples the counters until the given share of the file, from 0 to 1, has arrived.
    pub(crate) fn until_share(&mut self, share: f64) -> Result<()> {
        self.until("this much was received", |play| {
            play.arrived() >= share * play.scene.sample.size as f64
        })
    }

    /// Returns the bytes received on a cable up to the last sample, headers included.
    pub(crate) fn received(&self, link: usize) -> u64 {
        self.samples
            .last()
            .and_then(|sample| sample.received.get(link))
            .copied()
            .unwrap_or(0)
    }

    /// Estimates the received bytes of the file from the counters. Counts retransmitted data twice.
    pub(crate) fn arrived(&self) -> f64 {
        let received: u64 = self
            .samples
            .last()
            .map_or(0, |sample| sample.received.iter().sum());
        received as f64 * self.scale
    }

    /// Sets the ideal end of the copy: the current time, plus the time of the remaining bytes on
    /// `cables` cables.
    pub(crate) fn rest_on(&mut self, cables: f64) {
        let left = (self.scene.sample.size as f64 - self.arrived()).max(0.0);
        let theory =
            self.scene.cables.theory().unwrap_or(f64::NAN) / self.scene.cables.count() as f64;
        self.ideal = Some(self.now() + Duration::from_secs_f64(left * 8.0 / (theory * cables)));
    }

    /// Sends a signal to the client (`end` 0) or the daemon (`end` 1).
    pub(crate) fn signal(&self, end: usize, signal: Signal) -> Result<()> {
        self.process(end).signal(signal)
    }

    /// Kills the client (`end` 0) or the daemon (`end` 1) with SIGKILL.
    pub(crate) fn kill(&mut self, end: usize) -> Result<()> {
        self.peak(end);
        if end == 0 {
            self.client.kill()
        } else {
            self.daemon.kill()
        }
    }

    /// Restarts the killed client (`end` 0) or daemon (`end` 1).
    pub(crate) fn start_again(&mut self, end: usize) -> Result<()> {
        match end {
            0 => self.client = start_client(self.scene, self.start)?,
            _ => self.daemon = start_daemon(self.scene, self.start)?,
        }
        Ok(())
    }

    /// Returns the peak resident memory of the client (`end` 0) or the daemon (`end` 1) so far, in
    /// bytes.
    pub(crate) fn peak(&mut self, end: usize) -> u64 {
        let process = if end == 0 { &self.client } else { &self.daemon };
        self.peaks[end].update(process);
        self.peaks[end].resident
    }

    /// Waits until the client exits. Compares the copy with the source.
    pub(crate) fn end(mut self) -> Result<Played> {
        while !self.look()? {}
        let wall = self.now();
        let report = self.scene.check(&mut self.client)?;
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
    /// Returns the time in seconds by which the copy exceeded the ideal time.
    pub(crate) fn over_ideal(&self) -> f64 {
        self.wall.as_secs_f64() - self.ideal.as_secs_f64()
    }

    /// Returns the rate of a cable in bytes per second over a sliding window, with the end of each
    /// window.
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
    nicstripe_testkit::bench::start_daemon(limited(scene, start, serve(scene), 1), scene.place)
}

fn start_client(scene: &Scene<'_>, start: Start<'_>) -> Result<Process> {
    let mut command = cp(scene)?;
    command.arg("--json").args(start.options);
    Process::spawn(limited(scene, start, command, 0), "cp", &scene.place.logs())
}

fn limited(scene: &Scene<'_>, start: Start<'_>, command: Command, end: usize) -> Command {
    match start.groups {
        Some(groups) => scene.in_group(Host::ALL[end], &command, &groups[end].entrance()),
        None => command,
    }
}

const INTERVAL: Duration = Duration::from_millis(4);

/// Number of counter samples per memory sample. Reading memory is more expensive.
const SAMPLES_A_PEAK: usize = 8;

/// Additional time for faults, beyond the timeout of an undisturbed copy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Share of file bytes on the wire. The headers of TLS records and packets are 0.4 % of the bytes,
/// measured with superpackets of 64 KiB that count as one packet.
const FILE_SHARE: f64 = 0.996;

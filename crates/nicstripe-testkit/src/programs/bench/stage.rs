//! Measurement of a command against a daemon on the other host.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkCounters};

use super::{
    cables::Cables,
    contender::{Contender, CpReport, RSYNC_PORT, as_nicstripe, rsync_daemon},
    daemon::serve_in,
    error::Result,
    place::Place,
    process::{Peak, Process},
};
use crate::program;

/// New lab with a nicstripe or rsync daemon on host B, for measuring commands on host A.
#[derive(Debug)]
pub struct Stage<'a> {
    pub lab: Lab,
    place: &'a Place,
    contender: Contender,
    daemon: Process,
}

/// Result of one measured command.
#[derive(Debug)]
pub struct Measured {
    /// Wall-clock time from the start of the command to its exit.
    pub wall: Duration,
    /// CPU time of the command and the daemon together.
    pub cpu: Duration,
    /// Peak memory of the command and the daemon.
    pub peaks: [Peak; 2],
    /// Anonymous memory (RssAnon) of the command and the daemon in bytes, sampled every 20 ms.
    pub own: Vec<[u64; 2]>,
    /// Traffic counters of each cable during the command.
    pub cables: Vec<LinkCounters>,
    /// Standard output of the command. Empty if it was redirected.
    pub output: String,
    /// Standard error of the command.
    pub errors: String,
}

impl<'a> Stage<'a> {
    /// Builds a lab and starts the nicstripe or rsync daemon. Keeps the files of earlier stages.
    pub fn build(cables: &Cables, place: &'a Place, contender: Contender) -> Result<Self> {
        let lab = Lab::builder().links(cables.specs.iter().copied()).build()?;
        let daemon = match contender {
            Contender::Nicstripe => serve_in(&lab, place)?,
            Contender::Rsync => {
                let daemon = Process::spawn(
                    rsync_daemon(&lab, place, Host::B)?,
                    "rsync-daemon",
                    &place.logs(),
                )?;
                daemon.await_listener(RSYNC_PORT)?;
                daemon
            }
            other => return Err(format!("{other} copies no trees").into()),
        };
        Ok(Self {
            lab,
            place,
            contender,
            daemon,
        })
    }

    /// Kills nicstripe's daemon with SIGKILL and starts a new one.
    pub fn restart_daemon(&mut self) -> Result<()> {
        self.daemon.kill()?;
        self.daemon = serve_in(&self.lab, self.place)?;
        Ok(())
    }

    /// Returns a `nicstripe cp` or `rsync` command on host A with the arguments `words`.
    pub fn client(&self, words: &[&str]) -> Command {
        let mut command = match self.contender {
            Contender::Rsync => self.lab.command(Host::A, "rsync"),
            _ => as_nicstripe(
                self.lab.command(Host::A, program()),
                self.place,
                Host::A,
                "cp",
            ),
        };
        command.args(words);
        command
    }

    /// Returns the remote form of `path` on host B, in the syntax of nicstripe or rsync.
    pub fn remote(&self, path: &str) -> String {
        let address = self.lab.address(Host::B, 0);
        match self.contender {
            Contender::Rsync => format!("rsync://{address}:{RSYNC_PORT}/to/{path}"),
            _ => format!("{address}:{path}"),
        }
    }

    /// Runs a command from [`client`](Self::client) until it exits, and measures it.
    ///
    /// # Errors
    ///
    /// The command fails, or runs longer than `limit`.
    pub fn measure(&self, client: Command, limit: Duration) -> Result<Measured> {
        self.measure_process(|logs| Process::spawn(client, "client", logs), limit)
    }

    /// Like [`measure`](Self::measure), with the given standard input and output.
    pub fn measure_between(
        &self,
        client: Command,
        input: Stdio,
        output: Stdio,
        limit: Duration,
    ) -> Result<Measured> {
        let mut measured = self.measure_process(
            |logs| Process::spawn_between(client, "client", logs, input, output),
            limit,
        )?;
        measured.output.clear();
        Ok(measured)
    }

    fn measure_process(
        &self,
        spawn: impl FnOnce(&Path) -> Result<Process>,
        limit: Duration,
    ) -> Result<Measured> {
        let (counters_before, cpu_before) = (self.lab.counters()?, self.daemon.cpu()?);
        let begun = Instant::now();
        let mut client = spawn(&self.place.logs())?;
        let mut peaks = [Peak::default(); 2];
        let mut own = Vec::new();
        while !client.has_ended_within(INTERVAL)? {
            peaks[0].update(&client);
            peaks[1].update(&self.daemon);
            own.push(
                [&client, &self.daemon].map(|process| process.memory().map_or(0, |[_, own]| own)),
            );
            if begun.elapsed() > limit {
                client.await_end(Instant::now())?;
            }
        }
        let wall = begun.elapsed();
        peaks[1].update(&self.daemon);
        let cpu = client.cpu()? + self.daemon.cpu()?.saturating_sub(cpu_before);
        client.succeeded()?;
        let counters = self.lab.counters()?;
        let cables = counters
            .iter()
            .zip(&counters_before)
            .map(|(after, before)| after.since(before))
            .collect();
        Ok(Measured {
            wall,
            cpu,
            peaks,
            own,
            cables,
            output: client.output().unwrap_or_default(),
            errors: client.errors()?,
        })
    }
}

impl Measured {
    /// Returns the bytes received on all cables in both directions, headers included.
    pub fn wire_bytes(&self) -> u64 {
        self.cables
            .iter()
            .map(|cable| cable.a.received_bytes + cable.b.received_bytes)
            .sum()
    }

    /// Parses the report of `nicstripe cp --json` from the command's output.
    pub fn report(&self) -> Result<CpReport> {
        CpReport::parse(&self.output)
    }

    /// Returns the growth of the anonymous memory of the command and the daemon in bytes: the peak
    /// in the last quarter of the samples minus the peak in the second quarter.
    pub fn growth(&self) -> [i64; 2] {
        let quarter = self.own.len() / 4;
        let most = |samples: &[[u64; 2]], end: usize| {
            samples
                .iter()
                .map(|sample| sample[end])
                .max()
                .unwrap_or(0)
                .cast_signed()
        };
        [0, 1].map(|end| {
            most(&self.own[3 * quarter..], end) - most(&self.own[quarter..2 * quarter], end)
        })
    }
}

const INTERVAL: Duration = Duration::from_millis(20);

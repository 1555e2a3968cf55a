//! Lab in which nicstripe and iperf3 are measured under the same impairments.

use std::{
    fs,
    time::{Duration, Instant},
};

use nicstripe::bench::{BenchReport, LinkSummary};
use nicstripe_lab::{CpuQuota, Host, Lab};
use nicstripe_testkit::{
    bench::{Place, Process, Result, as_nicstripe, serve_in},
    program,
};

use crate::{
    Settings,
    burden::Burden,
    iperf::{self, Load},
};

/// Lab with the impairments of a case and a nicstripe daemon on host B.
pub(crate) struct Rig<'a> {
    pub(crate) lab: Lab,
    pub(crate) burden: &'a Burden,
    settings: &'a Settings,
    place: &'a Place,
    /// Daemon on host B; `None` with `--recorded`, which needs no daemon.
    daemon: Option<Process>,
    _quota: Option<CpuQuota>,
}

/// Result of one run of `nicstripe bench`.
#[derive(Debug)]
pub(crate) struct Benched {
    pub(crate) report: BenchReport,
    pub(crate) exit_code: Option<i32>,
    /// CPU time of the client and the daemon together.
    cpu: Duration,
    /// Bytes received on all cables in both directions, headers included.
    carried: u64,
}

impl<'a> Rig<'a> {
    pub(crate) fn build(
        burden: &'a Burden,
        settings: &'a Settings,
        place: &'a Place,
    ) -> Result<Self> {
        let lab = burden.lab()?;
        let daemon = if settings.recorded.is_none() {
            Some(serve_in(&lab, place)?)
        } else {
            None
        };
        let quota = burden.ration(&daemon.iter().collect::<Vec<_>>())?;
        Ok(Self {
            lab,
            burden,
            settings,
            place,
            daemon,
            _quota: quota,
        })
    }

    /// Runs `nicstripe bench --json` on host A with the additional arguments `words`. Reads the
    /// report from the file instead if `--recorded` is set.
    ///
    /// # Errors
    ///
    /// The command does not exit in time, or prints no valid report.
    pub(crate) fn bench(&self, words: &[&str]) -> Result<Benched> {
        let Some(daemon) = &self.daemon else {
            return self.recorded();
        };
        let (cpu_before, carried_before) = (daemon.cpu()?, iperf::carried(&self.lab)?);
        let mut command = as_nicstripe(
            self.lab.command(Host::A, program()),
            self.place,
            Host::A,
            "bench",
        );
        let Settings {
            seconds, repeat, ..
        } = self.settings;
        command.arg(self.lab.address(Host::B, 0).to_string());
        command
            .args([
                "-t",
                &seconds.to_string(),
                "--repeat",
                &repeat.to_string(),
                "--json",
                "--no-history",
            ])
            .args(words);
        let mut client = Process::spawn(command, "bench", &self.place.logs())?;
        let deadline = Instant::now() + self.time_limit(words);
        self.burden
            .while_stopped([&[&client], &[daemon]], || client.await_end(deadline))?;
        let cpu = client.cpu()? + daemon.cpu()?.saturating_sub(cpu_before);
        let exit_code = client.status()?.code();
        let output = client.output()?;
        let report = serde_json::from_str(&output).map_err(|error| {
            let said = client.errors().unwrap_or_default();
            format!(
                "nicstripe bench printed no report (exit code {exit_code:?}): {error}: {}",
                said.trim()
            )
        })?;
        Ok(Benched {
            report,
            exit_code,
            cpu,
            carried: iperf::carried(&self.lab)? - carried_before,
        })
    }

    /// Runs iperf3 on all cables concurrently. Host `from` sends.
    pub(crate) fn iperf3(&self, from: Host) -> Result<Load> {
        self.iperf3_on(&(0..self.burden.cables.len()).collect::<Vec<_>>(), from)
    }

    /// Like [`iperf3`](Self::iperf3), but only on the cables with the indexes `links`.
    pub(crate) fn iperf3_on(&self, links: &[usize], from: Host) -> Result<Load> {
        iperf::load(
            &self.lab,
            self.burden,
            self.place,
            links,
            from,
            self.settings.seconds,
        )
    }

    fn recorded(&self) -> Result<Benched> {
        let file = self
            .settings
            .recorded
            .as_ref()
            .ok_or("neither daemon nor recorded report")?;
        let report = serde_json::from_str(&fs::read_to_string(file)?)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Benched {
            report,
            exit_code: Some(0),
            cpu: Duration::ZERO,
            carried: 1,
        })
    }

    /// Returns the timeout of `nicstripe bench` with the arguments `words`: twice the expected time
    /// of all loads, plus 60 s, plus 600 s per sweep.
    fn time_limit(&self, words: &[&str]) -> Duration {
        let loads = 2 * self.burden.cables.len() + 4;
        let load = Duration::from_secs(u64::from(self.settings.seconds + 2));
        let sweeps = words.iter().filter(|word| **word == "--sweep").count();
        load * self.settings.repeat * 2 * u32::try_from(loads).unwrap_or(u32::MAX)
            + Duration::from_secs(60 + 600 * sweeps as u64)
    }
}

impl Benched {
    /// Returns CPU seconds per gigabit carried by the cables.
    pub(crate) fn cpu_per_gbit(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.carried as f64 * 8.0 / 1e9)
    }

    /// Returns the total rate of all cables to the daemon in bits per second; NaN if not measured.
    pub(crate) fn together(&self) -> f64 {
        self.report
            .summary
            .together
            .map_or(f64::NAN, |spread| spread.median_bps as f64)
    }

    /// Returns the total rate of all cables from the daemon in bits per second; NaN if not
    /// measured.
    pub(crate) fn reverse(&self) -> f64 {
        self.report
            .summary
            .reverse
            .map_or(f64::NAN, |spread| spread.median_bps as f64)
    }

    /// Returns the rate of a link while only this link is loaded, in bits per second; NaN if not
    /// measured.
    pub(crate) fn alone(&self, link: usize) -> f64 {
        self.link(link)
            .and_then(|link| link.alone)
            .map_or(f64::NAN, |spread| spread.median_bps as f64)
    }

    /// Returns the rate of a link while all links are loaded, in bits per second; NaN if not
    /// measured.
    pub(crate) fn part(&self, link: usize) -> f64 {
        self.link(link)
            .and_then(|link| link.together)
            .map_or(f64::NAN, |spread| spread.median_bps as f64)
    }

    /// Returns the summary of the link with index `link`, found by its interface name (index 0 is
    /// `eth1`); `None` if the report lacks the link.
    fn link(&self, link: usize) -> Option<&LinkSummary> {
        let interface = format!("eth{}", link + 1);
        let id = self
            .report
            .links
            .iter()
            .find(|link| link.ends.client.name == interface)?
            .id;
        self.report
            .summary
            .links
            .iter()
            .find(|link| link.link == id)
    }
}

//! Lab with the servers of a tool on host B, for measuring commands on host A.

use std::{
    fmt, fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    bench::{Place, Process, Result, as_nicstripe, busy, serve_in, time_limit},
    program,
};

use crate::ssh::{self, Ssh};

/// Configuration in which a tool is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// One gigabit cable, without nicstripe.
    Alone,
    /// Two gigabit cables, without nicstripe.
    Twice,
    /// One cable without a rate limit, without nicstripe.
    Unshaped,
    /// Two gigabit cables, with nicstripe.
    Road,
}

/// Lab with sshd on host B, and with nicstripe's daemon if the configuration uses nicstripe.
pub(crate) struct Rig<'a> {
    pub(crate) lab: Lab,
    pub(crate) place: &'a Place,
    pub(crate) way: Way,
    /// Total size of the source files in bytes.
    pub(crate) size: u64,
    pub(crate) ssh: Ssh,
    daemon: Option<Process>,
}

/// Result of one measured command.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) wall: Duration,
    /// Total size of the source files in bytes; for iperf3, the received bytes.
    pub(crate) bytes: u64,
    /// CPU time of host A, of host B, and of the rest of the machine during the command.
    cpu: [Duration; 3],
    /// Bytes received on all cables in the busier direction, headers included.
    carried: u64,
    /// Capacity of all cables in one direction in bytes per second; infinite if a cable is
    /// unlimited.
    capacity: f64,
}

impl<'a> Rig<'a> {
    /// Builds the lab and starts the servers. The daemon permits host A to reach sshd and iperf3 if
    /// `dials` is set.
    pub(crate) fn build(place: &'a Place, dials: bool, way: Way, size: u64) -> Result<Self> {
        let cables = match way {
            Way::Alone => vec![LinkSpec::gigabit()],
            Way::Twice | Way::Road => vec![LinkSpec::gigabit(); 2],
            Way::Unshaped => vec![LinkSpec::unshaped()],
        };
        let lab = Lab::builder().links(cables).build()?;
        place.clear(Host::B)?;
        let ssh = Ssh::start(&lab, place, way == Way::Road)?;
        let daemon = if way == Way::Road {
            Some(serve(&lab, place, dials)?)
        } else {
            None
        };
        Ok(Self {
            lab,
            place,
            way,
            size,
            ssh,
            daemon,
        })
    }

    /// Returns the address of host B on the first cable.
    pub(crate) fn peer(&self) -> String {
        self.lab.address(Host::B, 0).to_string()
    }

    /// Returns a command on host A with the bench's keys. `HOME` is the scratch folder.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.lab.command(Host::A, program);
        command
            .env("NICSTRIPE_HOME", self.place.home(Host::A).config())
            .env("HOME", self.scratch())
            .current_dir(self.place.files(Host::A));
        command
    }

    /// Returns a `nicstripe` command on host A.
    pub(crate) fn nicstripe(&self, subcommand: &str) -> Command {
        as_nicstripe(
            self.lab.command(Host::A, program()),
            self.place,
            Host::A,
            subcommand,
        )
    }

    /// Returns the folder for caches and received files. The folder is empty at the start of each
    /// run.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.place.base().join("scratch")
    }

    /// Empties the scratch folder.
    pub(crate) fn clear_scratch(&self) -> Result<()> {
        if self.scratch().exists() {
            fs::remove_dir_all(self.scratch())?;
        }
        Ok(fs::create_dir(self.scratch())?)
    }

    /// Returns a path below host B's folder of files.
    pub(crate) fn there(&self, name: &str) -> PathBuf {
        self.place.files(Host::B).join(name)
    }

    /// Runs a command on host A until it exits, without measuring it.
    pub(crate) fn prepare(&self, command: Command, name: &str) -> Result<()> {
        let mut process = Process::spawn(command, name, &self.place.logs())?;
        process.await_end(Instant::now() + time_limit(self.size))?;
        process.succeeded()
    }

    /// Runs a command until it exits, and measures it. The CPU time includes `helpers` on host A
    /// and `servers` on host B.
    pub(crate) fn measure(
        &self,
        command: Command,
        helpers: &[&Process],
        servers: &[&Process],
    ) -> Result<(Measured, Process)> {
        let of = |processes: &[&Process]| {
            processes
                .iter()
                .map(|process| process.cpu())
                .sum::<Result<Duration>>()
        };
        let daemon: Vec<&Process> = self.daemon.iter().collect();
        let far = || {
            Ok::<_, nicstripe_testkit::bench::Error>(of(servers)? + of(&daemon)? + self.ssh.cpu()?)
        };
        // Lets the tool's files use memory that has been used before, as on a physical machine.
        let _ballast = self.place.ballast(self.size)?;
        let (near_before, far_before, busy_before, counters_before) =
            (of(helpers)?, far()?, busy()?, self.lab.counters()?);
        let begun = Instant::now();
        let mut process = Process::spawn(command, "tool", &self.place.logs())?;
        process.await_end(begun + time_limit(self.size))?;
        let wall = begun.elapsed();
        let near = process.cpu()? + of(helpers)?.saturating_sub(near_before);
        let far = far()?.saturating_sub(far_before);
        let others = busy()?
            .saturating_sub(busy_before)
            .saturating_sub(near + far);
        let counters = self.lab.counters()?;
        process.succeeded()?;
        let received = |host: Host| -> u64 {
            counters
                .iter()
                .zip(&counters_before)
                .map(|(after, before)| after.since(before).at(host).received_bytes)
                .sum()
        };
        let rate = |spec: LinkSpec| {
            spec.line_rate()
                .map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64 / 8.0)
        };
        let measured = Measured {
            wall,
            bytes: self.size,
            cpu: [near, far, others],
            carried: Host::ALL.map(received).into_iter().max().unwrap_or(0),
            capacity: self.lab.links().into_iter().map(rate).sum(),
        };
        Ok((measured, process))
    }
}

impl Measured {
    /// Returns the goodput of the command in bits per second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.wall.as_secs_f64()
    }

    /// Returns the used share of the cables' capacity, 0 to 1. Headers up to and including Ethernet
    /// count.
    pub(crate) fn fullness(&self) -> f64 {
        self.carried as f64 / self.wall.as_secs_f64() / self.capacity
    }

    /// Returns the average number of CPUs kept busy by host A, by host B and by the rest of the
    /// machine.
    pub(crate) fn cpus(&self) -> [f64; 3] {
        self.cpu
            .map(|cpu| cpu.as_secs_f64() / self.wall.as_secs_f64())
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "alone, 1 cable",
            Self::Twice => "alone, 2 cables",
            Self::Unshaped => "alone, unshaped",
            Self::Road => "by nicstripe, 2 cables",
        })
    }
}

/// Starts nicstripe's daemon on host B. The daemon's list of peers permits host A to reach sshd and
/// iperf3 if `dials` is set.
fn serve(lab: &Lab, place: &Place, dials: bool) -> Result<Process> {
    let peers = place.home(Host::B).peers_file();
    let text = fs::read_to_string(&peers)?;
    let address = lab.address(Host::B, 0);
    let key = |line: &str| {
        line.split_ascii_whitespace()
            .skip_while(|word| *word != KEY)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let dial = if dials {
        format!("dial={address}:{},dial={address}:{IPERF3_PORT} ", ssh::PORT)
    } else {
        String::new()
    };
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            if line.contains(KEY) {
                format!("{dial}{}", key(line))
            } else {
                line.to_owned()
            }
        })
        .collect();
    fs::write(&peers, lines.join("\n") + "\n")?;
    serve_in(lab, place)
}

/// TCP port of iperf3's server on host B.
pub(crate) const IPERF3_PORT: u16 = 5201;

/// Prefix of a public key in the list of trusted peers.
const KEY: &str = "nicstripe-ed25519";

//! Results of `nicstripe bench` compared with known values: iperf3 on the same cables, theory, and
//! injected faults.
//!
//! `cargo bench --bench bench -- --case CASE,…`, with these cases:
//!
//! | case | scenario | threshold |
//! | --- | --- | --- |
//! | equal | 1, 2 and 4 gigabit cables, both directions | total within 1 % of the total of iperf3 and 2 % of theory; the links' bytes add up to the total |
//! | shared | 2 gigabit cables behind a bus of 1.2 Gbit/s | each alone ≥ 99 % of theory, scaling 0.61 ± 0.03, `shared` reported |
//! | slow-receiver | the daemon is stopped five sixths of the time (SIGSTOP) | `receiver` named |
//! | starved-sender | the client is stopped five sixths of the time | `sender` named |
//! | small-buffer | RTT 2 ms; maximum of the receiver's `tcp_rmem`, then of the sender's `tcp_wmem`, is 16 KiB | `receive_buffer`, `send_buffer` named, or `window` |
//! | cpu | the daemon has a quota of `--millicores` | `cpu` named |
//! | mixed | cables of 1000 and 100 Mbit/s | each within 2 % of theory, `cable` named |
//! | loss | 0.1 % of the frames are lost; then also with an RTT of 10 ms | `loss` named, or `cable` from 97 % of theory |
//! | delay | RTT 10 ms; then with windows of 256 KiB; then a sweep of buffer sizes | ≥ 97 %, `cable`; `window`; plateau within a factor of two of bandwidth × delay |
//! | jumbo | 2 gigabit cables, MTU 9000; a sweep of message sizes | 990 Mbit/s ± 1 % each; no size slower than a smaller one except for dropouts |
//! | unshaped | one cable without a rate limit | CPU time of both ends per Gbit ≤ 2 × that of iperf3 |
//! | regression | `--noise` benches against a report of the same cable, then one of a cable that is 10 % slower | only the last exits with 41 |
//!
//! iperf3 runs as one process per cable and host. All run concurrently, each client bound to its
//! interface. iperf3 runs after each run of `nicstripe bench`, with the same impairments, so that
//! other load on the machine affects both. The rate of iperf3 is the receiver's, without the first
//! second. CPU time is read from `/proc/PID/stat` after the exit of the processes (equal to
//! getrusage, truncated to 10 ms) and divided by the cables' counters. No program's own figures are
//! compared.
//!
//! With `--recorded FILE`, nicstripe does not run; the bench reads its report from the file. The
//! output marks a missed threshold. The bench fails only if a report is inconsistent or an exit
//! code differs from the manual.
#![forbid(unsafe_code)]

mod burden;
mod cost;
mod findings;
mod iperf;
mod limiters;
mod noise;
mod rates;
mod rig;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use nicstripe_testkit::bench::{Contender, Place, Result, circumstances};

use crate::findings::Findings;

#[derive(Debug, Args)]
struct Arguments {
    /// Cases to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Case::ALL)]
    case: Vec<Case>,

    #[command(flatten)]
    settings: Settings,
}

/// Options that set the number and length of the measurements.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Number of benchmark runs per case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,

    /// Maximum duration of one load in seconds, for nicstripe and for iperf3
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,

    /// Repeats of each load in one benchmark run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Numbers of cables to measure in the case `equal`
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) links: Vec<u8>,

    /// CPU quota of the daemon in the case `cpu`, in thousandths of a core
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(10..))]
    pub(crate) millicores: u32,

    /// Number of benchmark runs on an unchanged cable in the case `regression`
    #[arg(long, default_value_t = 20)]
    pub(crate) noise: u32,

    /// Use this JSON report for every benchmark run, and measure only iperf3
    #[arg(long)]
    pub(crate) recorded: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    Equal,
    Shared,
    SlowReceiver,
    StarvedSender,
    SmallBuffer,
    Cpu,
    Mixed,
    Loss,
    Delay,
    Jumbo,
    Unshaped,
    Regression,
}

impl Case {
    const ALL: [Self; 12] = [
        Self::Equal,
        Self::Shared,
        Self::SlowReceiver,
        Self::StarvedSender,
        Self::SmallBuffer,
        Self::Cpu,
        Self::Mixed,
        Self::Loss,
        Self::Delay,
        Self::Jumbo,
        Self::Unshaped,
        Self::Regression,
    ];
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let Arguments {
        case: cases,
        settings,
    } = arguments;
    let programs = Contender::installed(&[Contender::Nicstripe, Contender::Iperf3]);
    if programs.len() < 2 {
        return Err("nothing to compare with".into());
    }
    let place = Place::in_memory(0)?;
    let mut findings = Findings::default();
    for case in cases {
        let outcome = case.measure(&settings, &place, &mut findings);
        findings.end_of(case, outcome);
    }
    println!(
        "\n{}\nMedian (least–greatest), {} runs each.\n\n{}",
        circumstances(&programs),
        settings.runs,
        findings.table()
    );
    findings.verdict()
}

impl Case {
    fn measure(self, settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
        match self {
            Self::Equal => rates::equal(settings, place, findings),
            Self::Shared => rates::shared(settings, place, findings),
            Self::Mixed => rates::mixed(settings, place, findings),
            Self::Jumbo => rates::jumbo(settings, place, findings),
            Self::SlowReceiver => limiters::slow_receiver(settings, place, findings),
            Self::StarvedSender => limiters::starved_sender(settings, place, findings),
            Self::SmallBuffer => limiters::small_buffer(settings, place, findings),
            Self::Cpu => limiters::cpu(settings, place, findings),
            Self::Loss => limiters::loss(settings, place, findings),
            Self::Delay => limiters::delay(settings, place, findings),
            Self::Unshaped => cost::unshaped(settings, place, findings),
            Self::Regression => noise::regression(settings, place, findings),
        }
    }
}

//! `nicstripe bench` held against what is known: iperf3 on the same cables, theory, and what was done to them.
//!
//! `cargo bench --bench bench -- --case equal,shared,slow-receiver,starved-sender,small-buffer,cpu,mixed,loss,delay,jumbo,unshaped,regression`
//!
//! | case | what | bar |
//! | --- | --- | --- |
//! | equal | 1, 2 and 4 gigabit cables, both ways | total within 1 % of iperf3's and 2 % of theory; the links' bytes are the total's |
//! | shared | 2 gigabit cables behind a bus of 1.2 Gbit/s | alone ≥ 99 % of theory, scaling 0.61 ± 0.03, `shared` named |
//! | slow-receiver | the daemon is stopped five sixths of the time (SIGSTOP) | `receiver` named |
//! | starved-sender | the client is | `sender` named |
//! | small-buffer | a round trip of 2 ms; `tcp_rmem` of the receiver, then `tcp_wmem` of the sender ends at 16 KiB | `receive_buffer`, `send_buffer` named, or `window` |
//! | cpu | the daemon has a quota of `--millicores` | `cpu` named |
//! | mixed | cables of 1000 and 100 Mbit/s | each within 2 % of theory, `cable` named |
//! | loss | 0.1 % of the frames are lost; then with a round trip of 10 ms too | `loss` named, or `cable` from 97 % of theory |
//! | delay | a round trip of 10 ms; then with windows of 256 KiB; then a sweep of buffers | ≥ 97 %, `cable`; `window`; plateau within one doubling of bandwidth × delay |
//! | jumbo | 2 gigabit cables, MTU 9000; a sweep of messages | 990 Mbit/s ± 1 % each; no size slower than a lesser one but for dropouts |
//! | unshaped | one cable without a rate | CPU time of both ends per Gbit ≤ 2 × that of iperf3 |
//! | regression | `--noise` benches against a report of the same cable, then one of a cable that is 10 % slower | none exits 41, the last does |
//!
//! The iperf3 beside it is one process a cable and end, each client bound to its device, all at the same time; it runs after each bench of
//! nicstripe, under the same burden, so that what else the machine does hits both. Its rate is the receiver's, its first second does not
//! count. CPU time is that of the processes, from `/proc/PID/stat`, once they have ended (the same as getrusage, cut to 10 ms), by what the
//! cables' counters say, so that nothing that is told by a program about itself is compared.
//!
//! With `--recorded FILE` nicstripe is not run: what it would have printed is in the file. A bar that is missed is marked; the bench fails
//! when a report contradicts itself, or an exit code is not the one of the manual.
#![forbid(unsafe_code)]

#[path = "../bench_support/mod.rs"]
mod bench_support;
mod burden;
mod cost;
mod findings;
mod iperf;
mod limiters;
mod noise;
mod rates;
mod rig;

use std::{path::PathBuf, process::ExitCode};

use bench_support::{Contender, Place, Result, circumstances};
use clap::{Args, ValueEnum};

use crate::findings::Findings;

#[derive(Debug, Args)]
struct Arguments {
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Case::ALL)]
    case: Vec<Case>,

    #[command(flatten)]
    settings: Settings,
}

/// How much of each case.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Benches of each case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,

    /// Longest time of one load in seconds, of nicstripe and of iperf3
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,

    /// Repeats of each load in one bench
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Numbers of cables of the case equal
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) links: Vec<u8>,

    /// Thousandths of a core that the daemon has in the case cpu
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(10..))]
    pub(crate) millicores: u32,

    /// Benches that have nothing but noise to find, in the case regression
    #[arg(long, default_value_t = 20)]
    pub(crate) noise: u32,

    /// Take this report for that of every bench, and run iperf3 alone
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
    bench_support::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let Arguments { case: cases, settings } = arguments;
    let programs = Contender::installed(&[Contender::Nicstripe, Contender::Iperf3]);
    if programs.len() < 2 {
        return Err("there is nothing to compare with".into());
    }
    let place = Place::in_memory(0)?;
    let mut findings = Findings::default();
    for case in cases {
        let outcome = case.measure(&settings, &place, &mut findings);
        findings.end_of(case, outcome);
    }
    println!("\n{}\nMedian (least–greatest), {} runs each.\n\n{}", circumstances(&programs), settings.runs, findings.table());
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

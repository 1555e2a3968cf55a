//! Measures goodput and CPU cost of the lab's links: `cargo run --release -p nicstripe-lab
//! --example goodput [-- RUNS]`.
//!
//! Runs one TCP stream per link, both ends in this process, with 300 ms of ramp-up and two seconds
//! of measurement. Prints the median and range of the goodput as a share of theory, and this
//! process's CPU time per 10⁹ bytes. This CPU time includes nearly all of the kernel's network
//! work, which runs in the context of the sending or receiving thread.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]

fn main() {
    #[cfg(target_os = "linux")]
    measure::all();
}

#[cfg(target_os = "linux")]
mod measure {
    use std::{env, fs, time::Duration};

    use nicstripe_lab::{BitRate, Host, Lab, LinkSpec};

    use nicstripe_testkit::traffic::{Flow, goodput};

    pub(crate) fn all() {
        nicstripe_lab::gain_access().unwrap();
        let runs = env::args().nth(1).map_or(3, |runs| runs.parse().unwrap());
        let gigabit = LinkSpec::gigabit();
        println!(
            "{:<22} {:>28} {:>20} {:>16}",
            "links", "goodput, Mbit/s (range)", "of theory", "CPU s per GB"
        );
        report("1 × 1 Gbit/s", &[gigabit], runs);
        report("2 × 1 Gbit/s", &[gigabit; 2], runs);
        report("4 × 1 Gbit/s", &[gigabit; 4], runs);
        report("1 Gbit/s + 10 Mbit/s", &[gigabit, LinkSpec::mbit(10)], runs);
        report("100 Mbit/s", &[LinkSpec::mbit(100)], runs);
        report("10 Gbit/s", &[LinkSpec::new(BitRate::gbit(10))], runs);
        report("1 Gbit/s, MTU 9000", &[gigabit.with_mtu(9000)], runs);
        report("unshaped", &[LinkSpec::unshaped()], runs);
    }

    fn report(name: &str, specs: &[LinkSpec], runs: usize) {
        let lab = Lab::builder().links(specs.iter().copied()).build().unwrap();
        let mut samples: Vec<(f64, f64)> = (0..runs.max(1)).map(|_| sample(&lab)).collect();
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (median, cpu) = samples[samples.len() / 2];
        let (least, most) = (samples[0].0, samples[samples.len() - 1].0);
        let rates = format!(
            "{:.1} ({:.1} to {:.1})",
            median / 1e6,
            least / 1e6,
            most / 1e6
        );
        let theory: Option<u64> = specs
            .iter()
            .map(|spec| spec.goodput().map(BitRate::bits_per_second))
            .sum();
        let share = theory.map_or("-".to_owned(), |theory| {
            format!("{:.2} %", median / theory as f64 * 100.0)
        });
        println!("{name:<22} {rates:>28} {share:>20} {cpu:>16.3}");
    }

    /// Measures the total goodput of all links in bits per second, and the CPU seconds per 10⁹
    /// bytes.
    fn sample(lab: &Lab) -> (f64, f64) {
        let flows: Vec<Flow> = (0..lab.links().len())
            .map(|link| Flow::start(lab, link, Host::A))
            .collect();
        goodput(&flows, Duration::from_millis(300));
        let before = cpu_seconds();
        let rate: f64 = goodput(&flows, WINDOW).iter().sum();
        let bytes = rate / 8.0 * WINDOW.as_secs_f64();
        (rate, (cpu_seconds() - before) / (bytes / 1e9))
    }

    /// Returns the user and system time of this process in seconds (fields 14 and 15 of
    /// proc_pid_stat(5), in hundredths of a second).
    fn cpu_seconds() -> f64 {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        ticks as f64 / 100.0
    }

    const WINDOW: Duration = Duration::from_secs(2);
}

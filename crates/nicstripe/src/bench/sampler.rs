//! What a machine says of itself while it benches: processor time, its interfaces' counters, and facts for the report.

use std::{collections::BTreeMap, fs};

use nicstripe_link::{Interface, InterfaceIndex, counters, interfaces};
use nicstripe_proto::message::{BenchFacts, BenchInterface, CpuSample, MAX_CORES};

/// Reads processor time since the machine started; nothing where /proc is not there.
pub(crate) fn cpu() -> Option<CpuSample> {
    let process = fs::read_to_string("/proc/self/stat").ok().and_then(|text| process_ticks(&text))?;
    let mut sample = cpu_of(&fs::read_to_string("/proc/stat").ok()?, TICK_US)?;
    sample.process_us = process * TICK_US;
    Some(sample)
}

/// Microseconds of a tick in /proc: `USER_HZ` is 100 on every processor that this runs on.
const TICK_US: u64 = 10_000;

/// Reads `/proc/stat`, whose ticks are of so many microseconds.
fn cpu_of(text: &str, tick: u64) -> Option<CpuSample> {
    let fields = |line: &str| line.split_ascii_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).collect::<Vec<_>>();
    let mut sample = CpuSample::default();
    let mut lines = text.lines();
    // user nice system idle iowait irq softirq
    let [user, nice, system, _, _, irq, softirq, ..] = fields(lines.next().filter(|line| line.starts_with("cpu "))?)[..] else {
        return None;
    };
    (sample.user_us, sample.system_us, sample.softirq_us) = ((user + nice) * tick, system * tick, (irq + softirq) * tick);
    for line in lines.take_while(|line| line.starts_with("cpu")).take(MAX_CORES) {
        let [user, nice, system, _, _, irq, softirq, ..] = fields(line)[..] else { return None };
        sample.cores_us.push((user + nice + system + irq + softirq) * tick);
    }
    Some(sample)
}

/// Ticks of the process in user space and in the kernel; the name, in parentheses, may have anything in it.
fn process_ticks(text: &str) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(ticks.next()?.ok()? + ticks.next()?.ok()?)
}

/// Bytes that interfaces have received and sent, by their names.
#[derive(Debug, Default)]
pub(crate) struct InterfaceCounters(BTreeMap<String, InterfaceIndex>);

impl InterfaceCounters {
    /// Looks up the interfaces of these names.
    pub(crate) fn of(names: impl Iterator<Item = String>) -> Self {
        let here = interfaces().unwrap_or_default();
        let index = |name: String| here.iter().find(|interface| interface.is_called(&name)).map(|found| (name, found.index));
        Self(names.filter_map(index).collect())
    }

    /// Reads all of them.
    pub(crate) fn read(&self) -> BTreeMap<String, (u64, u64)> {
        let read = |(name, index): (&String, &InterfaceIndex)| {
            let counted = counters(*index).ok()?;
            Some((name.clone(), (counted.received, counted.sent)))
        };
        self.0.iter().filter_map(read).collect()
    }
}

/// What is known of this machine; of its interfaces, those of these names.
pub(crate) fn facts(names: impl Iterator<Item = String>) -> BenchFacts {
    let here = interfaces().unwrap_or_default();
    let uname = rustix::system::uname();
    let text = |bytes: &std::ffi::CStr| Some(bounded(&bytes.to_string_lossy())).filter(|text| !text.is_empty());
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu_field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        line.split_once(':').map(|(_, value)| bounded(value.trim()))
    };
    BenchFacts {
        version: env!("CARGO_PKG_VERSION").into(),
        name: text(uname.nodename()),
        os: text(uname.sysname()),
        kernel: text(uname.release()),
        cpu: cpu_field("model name"),
        cores: std::thread::available_parallelism().ok().and_then(|cores| u32::try_from(cores.get()).ok()),
        cpu_mhz: cpu_field("cpu MHz").and_then(|mhz| mhz.parse::<f64>().ok()).map(|mhz| mhz as u32),
        congestion: setting("ipv4/tcp_congestion_control"),
        receive_buffer_max: setting("core/rmem_max").and_then(|bytes| bytes.parse().ok()),
        send_buffer_max: setting("core/wmem_max").and_then(|bytes| bytes.parse().ok()),
        cpu_quota_millicores: None,
        interfaces: names.map(|name| interface_of(&name, &here)).collect(),
        timestamps: setting("ipv4/tcp_timestamps").map(|value| value != "0"),
    }
}

fn interface_of(name: &str, here: &[Interface]) -> BenchInterface {
    let found = here.iter().find(|interface| interface.is_called(name));
    let rates = found.and_then(|found| found.speed.into_iter().chain(found.egress_limit).map(|rate| rate.0).min());
    BenchInterface { name: bounded(name), mtu: found.map(|found| found.mtu), line_bps: rates, ..BenchInterface::default() }
}

fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    Some(bounded(text.trim())).filter(|text| !text.is_empty())
}

/// A text of which a peer takes no more.
fn bounded(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_from_the_kernels_text() {
        let text = "cpu  10 1 20 300 4 5 6 0 0 0\ncpu0 5 1 10 150 2 5 0 0 0 0\ncpu1 5 0 10 150 2 0 6 0 0 0\nintr 1 2\n";
        let sample = cpu_of(text, 10_000).unwrap();
        assert_eq!((sample.user_us, sample.system_us, sample.softirq_us), (110_000, 200_000, 110_000));
        assert_eq!(sample.cores_us, [210_000, 210_000]);
        assert_eq!(cpu_of("intr 1\n", 1), None);
        assert_eq!(cpu_of("", 1), None);
    }

    #[test]
    fn a_process_may_be_called_anything() {
        let text = "1234 (a) 1 2 (b) R 1 1 1 0 -1 4194304 100 0 0 0 7 3 0 0 20 0 1 0 100 1 1";
        assert_eq!(process_ticks(text), Some(10));
        assert_eq!(process_ticks("nothing"), None);
    }
}

//! Facts about a machine's processors and power.

use serde::{Deserialize, Serialize};

use crate::facts::{
    system::{MOST_NAMES, System},
    text::{is_numbered, list_len, number, plain},
};

/// State of a machine's processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessorFacts {
    /// Frequency governors that are in use, each once, such as `schedutil`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub governors: Vec<String>,
    /// Driver of the frequencies, such as `intel_pstate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_driver: Option<String>,
    /// Highest current frequency of any processor in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mhz_now: Option<u32>,
    /// Highest frequency that any processor can have, in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mhz_max: Option<u32>,
    /// Highest frequency that the governor may choose, in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mhz_limit: Option<u32>,
    /// Number of thermal throttling events of all cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal_throttles: Option<u64>,
    /// True if the machine runs on battery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_battery: Option<bool>,
    /// Number of memory nodes (NUMA).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<u32>,
    /// Hypervisor, such as `KVM`, or `unknown` if the machine does not name it; absent on hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// True if the process runs in a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_container: Option<bool>,
    /// Number of periods in which a control group's quota stopped this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_periods: Option<u64>,
    /// True if a program that distributes interrupts runs (`irqbalance`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irqbalance: Option<bool>,
}

impl ProcessorFacts {
    /// Reads the state of a machine's processors.
    pub(crate) fn read(system: &dyn System) -> Self {
        let names = system.list(CPUS).into_iter();
        let cpus: Vec<_> = names
            .filter(|name| is_numbered(name, "cpu"))
            .take(MOST_CPUS)
            .map(|name| format!("{CPUS}/{name}"))
            .collect();
        let governors = texts(system, &cpus, "cpufreq/scaling_governor");
        let drivers = texts(system, &cpus, "cpufreq/scaling_driver");
        // Without a governor there are no files about frequencies.
        let megahertz = |file| {
            let kilohertz = numbers(system, &cpus, file).max()?;
            u32::try_from(kilohertz / 1000).ok()
        };
        let megahertz = |file| (!governors.is_empty()).then(|| megahertz(file)).flatten();
        let throttles = numbers(system, &cpus, "thermal_throttle/core_throttle_count");
        let cpuinfo = system.read("/proc/cpuinfo").unwrap_or_default();
        let vendor = ["sys_vendor", "product_name"]
            .map(|file| system.read(&format!("/sys/class/dmi/id/{file}")))
            .map(Option::unwrap_or_default)
            .join(" ");
        Self {
            mhz_now: megahertz("cpufreq/scaling_cur_freq"),
            mhz_max: megahertz("cpufreq/cpuinfo_max_freq"),
            mhz_limit: megahertz("cpufreq/scaling_max_freq"),
            frequency_driver: drivers.into_iter().next(),
            governors,
            thermal_throttles: throttles.reduce(u64::saturating_add),
            on_battery: on_battery(system),
            numa_nodes: system
                .read("/sys/devices/system/node/online")
                .and_then(|text| list_len(&text)),
            hypervisor: hypervisor(&cpuinfo, &vendor).map(str::to_owned),
            in_container: in_container(system),
            throttled_periods: system.throttled_periods(),
            irqbalance: irqbalance(system),
        }
    }
}

/// Returns the different texts of a file of each processor, in alphabetical order.
fn texts(system: &dyn System, cpus: &[String], file: &str) -> Vec<String> {
    let read = |cpu: &String| plain(&system.read(&format!("{cpu}/{file}"))?);
    let mut texts: Vec<_> = cpus.iter().filter_map(read).collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Returns the numbers in a file of each processor.
fn numbers<'a>(
    system: &'a dyn System,
    cpus: &'a [String],
    file: &'a str,
) -> impl Iterator<Item = u64> + 'a {
    let read = move |cpu: &String| number(&system.read(&format!("{cpu}/{file}"))?);
    cpus.iter().filter_map(read)
}

/// Returns true if a battery is being discharged and no other supply is online; `None` without any
/// supply.
fn on_battery(system: &dyn System) -> Option<bool> {
    let (mut discharging, mut online, mut known) = (false, false, false);
    for name in system.list(SUPPLIES) {
        let value = |file| plain(&system.read(&format!("{SUPPLIES}/{name}/{file}"))?);
        // A wireless mouse has a battery too.
        if value("scope").as_deref() == Some("Device") {
            continue;
        }
        match value("type").as_deref() {
            Some("Battery") => discharging |= value("status").as_deref() == Some("Discharging"),
            Some(_) => online |= value("online").is_some_and(|online| online != "0"),
            None => continue,
        }
        known = true;
    }
    known.then_some(discharging && !online)
}

/// Returns the hypervisor from the text of `/proc/cpuinfo` and the machine's vendor and product.
///
/// On x86, the processor's flag is decisive: some servers of cloud providers are hardware. Other
/// architectures have no such flag.
fn hypervisor(cpuinfo: &str, vendor: &str) -> Option<&'static str> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let flagged = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let named = HYPERVISORS
        .iter()
        .find(|(mark, _)| vendor.contains(mark))
        .map(|(_, name)| *name);
    match flagged {
        Some(false) => None,
        Some(true) => named.or(Some("unknown")),
        None => named,
    }
}

/// Returns true if the process runs in a container. `None` without a clear sign.
fn in_container(system: &dyn System) -> Option<bool> {
    let marked = CONTAINER_MARKS
        .iter()
        .any(|path| system.read(path).is_some());
    let groups = system.read("/proc/self/cgroup").unwrap_or_default();
    if CONTAINER_GROUPS.iter().any(|name| groups.contains(name)) {
        return Some(true);
    }
    match (marked, sees_all_processes(system)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        // Either nothing is known, or the root file system of a virtual machine was made from a
        // container's image.
        (false, false) | (true, true) => None,
    }
}

/// Returns true if `/proc` shows the processes of the whole machine: process 2 is the parent of the
/// kernel's threads.
fn sees_all_processes(system: &dyn System) -> bool {
    system
        .read("/proc/2/comm")
        .is_some_and(|name| name.trim() == "kthreadd")
}

/// Returns true if a process is named `irqbalance`. `None` if it is not found and `/proc` does not
/// show all processes.
fn irqbalance(system: &dyn System) -> Option<bool> {
    let names = system.list("/proc");
    let is_complete = names.len() < MOST_NAMES;
    let runs = names
        .iter()
        .filter(|name| is_numbered(name, ""))
        .filter_map(|name| system.read(&format!("/proc/{name}/comm")))
        .any(|name| name.trim() == "irqbalance");
    (runs || is_complete && sees_all_processes(system)).then_some(runs)
}

/// Runs the parsers of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let _ = (hypervisor(text, text), list_len(text));
}

const CPUS: &str = "/sys/devices/system/cpu";
const SUPPLIES: &str = "/sys/class/power_supply";
/// Maximum number of processors that are read, at six files each (picked by eye).
const MOST_CPUS: usize = 256;

/// Files that container engines and systemd create in a container.
const CONTAINER_MARKS: [&str; 3] = [
    "/.dockerenv",
    "/run/.containerenv",
    "/run/systemd/container",
];
/// Parts of the names that container engines give to control groups.
const CONTAINER_GROUPS: [&str; 5] = ["docker", "kubepods", "libpod", "/lxc", "cri-containerd"];

/// Parts of the vendor and product in the DMI tables, and the hypervisor behind it.
const HYPERVISORS: [(&str, &str); 9] = [
    ("VMware", "VMware"),
    ("VirtualBox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("Microsoft", "Hyper-V"),
    ("Xen", "Xen"),
    ("QEMU", "KVM"),
    ("KVM", "KVM"),
    ("Amazon EC2", "KVM"),
    ("Google Compute Engine", "KVM"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypervisor_is_known_by_the_flag_and_the_vendor() {
        let flagged = "processor : 0\nflags\t\t: fpu hypervisor lm\n";
        let hardware = "flags\t\t: fpu lm\n";
        for (cpuinfo, vendor, expected) in [
            (flagged, "QEMU Standard PC", Some("KVM")),
            (flagged, "VMware, Inc. VMware7,1", Some("VMware")),
            (
                flagged,
                "Microsoft Corporation Virtual Machine",
                Some("Hyper-V"),
            ),
            (flagged, " ", Some("unknown")),
            (hardware, "Microsoft Corporation Surface", None),
            (hardware, "Amazon EC2 c5.metal", None),
            ("", "QEMU QEMU Virtual Machine", Some("KVM")),
            ("", "Raspberry Pi", None),
        ] {
            assert_eq!(hypervisor(cpuinfo, vendor), expected, "{vendor}");
        }
    }
}

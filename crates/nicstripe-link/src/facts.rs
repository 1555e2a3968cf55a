//! Facts about a machine: what its kernel, drivers and buses say of it, without any judgement.
//!
//! All facts are read through the trait [`System`], so a recorded `/sys`, `/proc` and recorded
//! answers of drivers can stand in for a real machine. An unknown fact is absent, never 0. Reading
//! needs no privileges, changes nothing, and loads no kernel module.
//!
//! Units are part of the names. In JSON, absent fields are unknown, and readers ignore fields that
//! they do not know, so that the format can grow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

mod host;
mod interface;

pub use self::{
    host::HostFacts,
    interface::{
        AddressFacts, BondFacts, BusHop, ChannelFacts, CoalesceFacts, EeeFacts, InterfaceFacts,
        InterruptFacts, LinkModes, PauseFacts, QdiscFacts, RingFacts,
    },
};

/// Facts about one machine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Version of nicstripe on the machine.
    pub version: Option<String>,
    /// Names and limits of the machine.
    pub host: HostFacts,
    /// State of the processors.
    pub processors: ProcessorFacts,
    /// Kernel settings by their sysctl names, such as `net.ipv4.tcp_rmem`, with the kernel's text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Counters of the kernel since its start: those of `/proc/net/netstat` as `TcpExt.PruneCalled`,
    /// and of `/proc/net/softnet_stat`, summed over all processors, as `softnet.dropped` and
    /// `softnet.squeezed`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// Network interfaces, in order of their indices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceFacts>,
    /// Disks, without partitions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskFacts>,
    /// Number of destinations whose TCP metrics the kernel has cached (`ip tcp_metrics`).
    pub cached_destinations: Option<u32>,
}

impl Facts {
    /// Returns the interface of this name.
    pub fn interface(&self, name: &str) -> Option<&InterfaceFacts> {
        self.interfaces.iter().find(|found| found.name == name)
    }

    /// Returns a kernel setting with one number; `None` if it is unknown or no number.
    pub fn setting(&self, name: &str) -> Option<u64> {
        self.settings.get(name)?.trim().parse().ok()
    }

    /// Returns the number at `index` of a kernel setting with several, such as the maximum (2) of
    /// `net.ipv4.tcp_rmem`.
    pub fn setting_at(&self, name: &str, index: usize) -> Option<u64> {
        let text = self.settings.get(name)?;
        text.split_whitespace().nth(index)?.parse().ok()
    }
}

/// State of a machine's processors.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessorFacts {
    /// Frequency governors that are in use, each once, such as `schedutil`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub governors: Vec<String>,
    /// Driver of the frequencies, such as `intel_pstate`.
    pub frequency_driver: Option<String>,
    /// Highest current frequency of any processor in MHz.
    pub mhz_now: Option<u32>,
    /// Highest frequency that any processor can have, in MHz.
    pub mhz_max: Option<u32>,
    /// Highest frequency that the governor may choose, in MHz.
    pub mhz_limit: Option<u32>,
    /// Number of thermal throttling events of all cores.
    pub thermal_throttles: Option<u64>,
    /// True if the machine runs on battery.
    pub on_battery: Option<bool>,
    /// Number of memory nodes (NUMA).
    pub numa_nodes: Option<u32>,
    /// Hypervisor, such as `KVM`; absent on hardware, and if it is unknown.
    pub hypervisor: Option<String>,
    /// True if the process runs in a container.
    pub in_container: Option<bool>,
    /// Number of periods in which a control group's quota stopped this process.
    pub throttled_periods: Option<u64>,
    /// True if a program that distributes interrupts runs (`irqbalance`).
    pub irqbalance: Option<bool>,
}

/// A disk.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFacts {
    /// Name of the block device, such as `nvme0n1`.
    pub name: String,
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// True if the disk has rotating platters, or its driver says so.
    pub rotational: Option<bool>,
}

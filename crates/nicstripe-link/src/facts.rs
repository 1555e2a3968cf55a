//! Facts about a machine: what its kernel, drivers and buses say of it, without any judgement.
//!
//! All facts are read through the trait [`System`], so a recorded `/sys`, `/proc` and recorded
//! answers of drivers can stand in for a real machine. An unknown fact is absent, never 0. Reading
//! needs no privileges, changes nothing, and loads no kernel module.
//!
//! Units are part of the names. In JSON, absent fields are unknown, and readers ignore fields that
//! they do not know, so that the format can grow.

use std::{collections::BTreeMap, io};

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
    /// Reads the facts of this machine.
    pub fn of_this_machine() -> Self {
        Self {
            host: HostFacts::read(),
            ..Self::default()
        }
    }

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

/// Maximum length of the JSON text of [`Facts`], in bytes.
pub const MAX_JSON: usize = 1 << 20;

impl Facts {
    /// Parses the JSON text of another machine's facts. Cuts lists that are longer than those of any
    /// machine.
    ///
    /// # Errors
    ///
    /// The text is longer than [`MAX_JSON`], or no JSON of facts.
    pub fn from_json(text: &[u8]) -> io::Result<Self> {
        if text.len() > MAX_JSON {
            let why = format!(
                "facts of {} bytes exceed the limit of {MAX_JSON}",
                text.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut facts: Self = serde_json::from_slice(text)?;
        facts.interfaces.truncate(MOST_INTERFACES);
        for interface in &mut facts.interfaces {
            interface.addresses.truncate(MOST_OF_INTERFACE);
            interface.bus.truncate(MOST_HOPS);
            interface.interrupts.truncate(MOST_OF_INTERFACE);
        }
        facts.disks.truncate(MOST_OF_INTERFACE);
        Ok(facts)
    }

    /// Returns the facts as JSON text of at most [`MAX_JSON`] bytes. Omits what takes most if they
    /// are longer: first the interrupts, then the interfaces.
    pub fn to_json(&self) -> Vec<u8> {
        let text = |facts: &Self| serde_json::to_vec(facts).unwrap_or_default();
        let mut json = text(self);
        if json.len() > MAX_JSON {
            let mut less = self.clone();
            for interface in &mut less.interfaces {
                interface.interrupts.clear();
            }
            json = text(&less);
            if json.len() > MAX_JSON {
                less.interfaces.clear();
                json = text(&less);
            }
        }
        json
    }
}

/// Maximum number of interfaces.
const MOST_INTERFACES: usize = 256;
/// Maximum number of addresses, interrupts or disks.
const MOST_OF_INTERFACE: usize = 256;
/// Maximum number of buses between a card and the processor.
const MOST_HOPS: usize = 16;

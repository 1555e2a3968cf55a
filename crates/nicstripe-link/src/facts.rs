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

mod bounds;
mod bus;
mod disks;
mod files;
mod host;
mod host_files;
mod interface;
mod interrupts;
mod kernel;
mod limits;
mod live;
mod processors;
mod recorded;
mod system;
mod text;

pub use self::{
    disks::DiskFacts,
    host::HostFacts,
    interface::{AddressFacts, BondFacts, BusHop, InterfaceFacts, InterruptFacts, QdiscFacts},
    live::Live,
    processors::ProcessorFacts,
    recorded::Recorded,
    system::System,
};
pub use crate::interface::ethtool_messages::{
    ChannelFacts, CoalesceFacts, EeeFacts, LinkModes, PauseFacts, RingFacts,
};

/// Facts about one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Version of nicstripe on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_destinations: Option<u32>,
}

impl Facts {
    /// Reads all facts about a machine except the version of nicstripe. Texts and lists are
    /// [`bounded`](Self::bounded).
    ///
    /// Took 2 ms on a machine of two cores with 4 interfaces, and 17 ms with 46. A card whose
    /// driver reads registers over a slow bus, such as USB, takes longer.
    pub fn read(system: &dyn System) -> Self {
        let interrupts = system.read("/proc/interrupts").unwrap_or_default();
        let table = interrupts::Table::parse(&interrupts);
        let mut interfaces = system.interfaces();
        interfaces.truncate(limits::MOST_INTERFACES);
        for interface in &mut interfaces {
            files::complete(interface, system, &table);
        }
        let facts = Self {
            version: None,
            host: HostFacts::of(system),
            processors: ProcessorFacts::read(system),
            settings: kernel::settings(system),
            counters: kernel::counters(system),
            interfaces,
            disks: disks::disks(system),
            cached_destinations: system.cached_destinations(),
        };
        facts.bounded()
    }

    /// Reads the facts about this machine, in the calling thread's network namespace.
    pub fn of_this_machine() -> Self {
        Self::read(&Live)
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

/// Runs all parsers of texts on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    host_files::parse(text);
    processors::parse(text);
    kernel::parse(text);
    bus::parse(text);
    interrupts::parse(text);
    files::parse(text);
    recorded::parse(text);
    let line = text::plain(text);
    assert!(line.is_none_or(|line| line.len() <= limits::MOST_TEXT));
}

/// Runs all parsers of netlink messages on one message, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse_message(message: &nicstripe_netlink::Message<'_>) {
    live::parse(message);
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
        let facts: Self = serde_json::from_slice(text)?;
        Ok(facts.bounded())
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

#[cfg(test)]
mod tests;

//! A case in a file, with names and addresses replaced.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use nicstripe_bench::BenchReport;
use nicstripe_link::facts::{AddressFacts, Facts, InterfaceFacts};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use thiserror::Error;

use crate::case::{Case, LinkFacts, Machine};

/// Name and version of a snapshot's JSON format.
pub const SNAPSHOT_SCHEMA: &str = "nicstripe-snapshot/1";

/// Facts about one or two machines, and the links between them, to be judged elsewhere.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Name and version of the format, see [`SNAPSHOT_SCHEMA`].
    pub schema: String,
    /// Facts about the machine that made it, and about the peer.
    pub machines: Vec<Facts>,
    /// Facts about the same machines some time later without a load, and that time in microseconds;
    /// null for a machine that was not read again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<Option<(Facts, u64)>>,
    /// Facts about the same machines after the bench; null for one that was not read again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<Option<Facts>>,
    /// Links that were tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkFacts>,
    /// Report of the bench.
    pub bench: Option<BenchReport>,
}

/// Error of reading a snapshot.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The text is no JSON of a snapshot.
    #[error("not a snapshot of nicstripe doctor")]
    Invalid(#[source] serde_json::Error),
    /// The snapshot has another format or version.
    #[error("snapshot has the format {found:?}, expected {SNAPSHOT_SCHEMA:?}")]
    Schema {
        /// Format that the file names.
        found: String,
    },
    /// The snapshot has another number of machines.
    #[error("snapshot has {found} machines, expected 1 or 2")]
    Machines {
        /// Number of machines in the file.
        found: usize,
    },
}

impl Snapshot {
    /// Parses the text of a snapshot.
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        let snapshot: Self = serde_json::from_str(text).map_err(SnapshotError::Invalid)?;
        if snapshot.schema != SNAPSHOT_SCHEMA {
            let found = snapshot.schema;
            return Err(SnapshotError::Schema { found });
        }
        match snapshot.machines.len() {
            1 | 2 => Ok(snapshot),
            found => Err(SnapshotError::Machines { found }),
        }
    }

    /// Returns the snapshot of a case, with names and addresses replaced.
    ///
    /// Host names become `a` and `b`. Addresses become others of the same length in subnets that are
    /// distinct where they were; MAC addresses are numbered. Interface names that are not those of
    /// the kernel or of systemd become `if0`, `if1` … Rates, counters, drivers and settings stay.
    pub fn of(case: &Case) -> Self {
        let machines = || case.machines().map(|(_, machine)| machine);
        let mut snapshot = Self {
            schema: SNAPSHOT_SCHEMA.into(),
            machines: machines().map(|machine| machine.facts.clone()).collect(),
            idle: machines().map(|machine| machine.idle.clone()).collect(),
            loaded: machines().map(|machine| machine.loaded.clone()).collect(),
            links: case.links.clone(),
            bench: case.bench.clone(),
        };
        let mut aliases = Aliases::default();
        let machines = snapshot.machines.iter_mut();
        let idle = snapshot.idle.iter_mut();
        let loaded = snapshot.loaded.iter_mut();
        for (((facts, idle), loaded), name) in machines.zip(idle).zip(loaded).zip(["a", "b"]) {
            let idle = idle.iter_mut().map(|(facts, _)| facts);
            for facts in std::iter::once(facts).chain(idle).chain(loaded) {
                aliases.replace_in(facts, name);
            }
        }
        if snapshot.idle.iter().all(Option::is_none) {
            snapshot.idle.clear();
        }
        if snapshot.loaded.iter().all(Option::is_none) {
            snapshot.loaded.clear();
        }
        for link in &mut snapshot.links {
            aliases.interface(&mut link.here);
            let names = [&mut link.there, &mut link.arrived, &mut link.routed_by];
            names
                .into_iter()
                .flatten()
                .for_each(|name| aliases.interface(name));
            let addresses = [&mut link.local, &mut link.remote];
            addresses
                .into_iter()
                .flatten()
                .for_each(|ip| *ip = aliases.known_address(*ip));
        }
        if let Some(report) = &mut snapshot.bench {
            aliases.replace_in_report(report);
        }
        snapshot
    }

    /// Returns the case of a snapshot, or of two snapshots of one machine each.
    pub fn into_case(self, other: Option<Self>) -> Case {
        let Self {
            machines,
            idle,
            loaded,
            links,
            bench,
            ..
        } = self;
        let mut machines = read_again(machines, idle, loaded);
        let mut case = Case {
            here: machines.next().unwrap_or_default(),
            there: machines.next(),
            links,
            bench,
        };
        if let Some(other) = other {
            let mut machine = read_again(other.machines, other.idle, other.loaded).next();
            // Each file calls its machine `a`.
            if let Some(machine) = &mut machine
                && machine.facts.host.name == case.here.facts.host.name
            {
                machine.facts.host.name = Some("b".into());
            }
            case.there = machine;
        }
        case
    }
}

/// Returns machines with their later readings.
fn read_again(
    machines: Vec<Facts>,
    idle: Vec<Option<(Facts, u64)>>,
    loaded: Vec<Option<Facts>>,
) -> impl Iterator<Item = Machine> {
    let idle = idle.into_iter().chain(std::iter::repeat(None));
    let loaded = loaded.into_iter().chain(std::iter::repeat(None));
    machines
        .into_iter()
        .zip(idle)
        .zip(loaded)
        .map(|((facts, idle), loaded)| Machine {
            facts,
            idle,
            loaded,
        })
}

/// Replacements of names and addresses, each the same wherever it occurs.
#[derive(Default)]
struct Aliases {
    interfaces: BTreeMap<String, String>,
    macs: BTreeMap<String, String>,
    subnets: BTreeMap<String, u32>,
    addresses: BTreeMap<IpAddr, IpAddr>,
}

impl Aliases {
    fn replace_in(&mut self, facts: &mut Facts, name: &str) {
        if let Some(own) = &mut facts.host.name {
            name.clone_into(own);
        }
        for interface in &mut facts.interfaces {
            self.replace_in_interface(interface);
        }
    }

    fn replace_in_interface(&mut self, interface: &mut InterfaceFacts) {
        self.interface(&mut interface.name);
        let others = [&mut interface.master, &mut interface.lower];
        others
            .into_iter()
            .flatten()
            .for_each(|name| self.interface(name));
        let members = interface.bond.iter_mut().flat_map(|bond| &mut bond.members);
        members.for_each(|name| self.interface(name));
        if let Some(mac) = &mut interface.mac {
            let number = self.macs.len();
            let alias = self.macs.entry(mac.clone()).or_insert_with(|| {
                format!(
                    "02:00:00:00:{:02x}:{:02x}",
                    number >> 8 & 0xff,
                    number & 0xff
                )
            });
            mac.clone_from(alias);
        }
        for address in &mut interface.addresses {
            address.ip = self.address(*address);
        }
        for address in &mut interface.duplicates {
            *address = self.known_address(*address);
        }
    }

    fn replace_in_report(&mut self, report: &mut BenchReport) {
        report.id = "0".repeat(32);
        for (host, name) in [
            (&mut report.hosts.client, "a"),
            (&mut report.hosts.daemon, "b"),
        ] {
            if let Some(own) = &mut host.name {
                name.clone_into(own);
            }
        }
        // Its sentence names the machines.
        report.summary.sentence.clear();
        for link in &mut report.links {
            for end in [&mut link.ends.client, &mut link.ends.daemon] {
                self.replace_in_interface(end);
            }
            for text in [&mut link.addresses.client, &mut link.addresses.daemon] {
                let known = text.parse().ok().map(|ip| self.known_address(ip));
                *text = known.map_or_else(String::new, |ip| ip.to_string());
            }
        }
    }

    fn interface(&mut self, name: &mut String) {
        if is_plain(name) {
            return;
        }
        let number = self.interfaces.len();
        let alias = self.interfaces.entry(name.clone());
        name.clone_from(alias.or_insert_with(|| format!("if{number}")));
    }

    fn address(&mut self, address: AddressFacts) -> IpAddr {
        if let Some(known) = self.addresses.get(&address.ip) {
            return *known;
        }
        let number = match address.subnet() {
            // Each cable has this prefix.
            None => 0,
            Some(subnet) => {
                let next = self.subnets.len() as u32 + 1;
                *self.subnets.entry(subnet).or_insert(next)
            }
        };
        let host = self.addresses.len() as u32 + 1;
        let alias = alias(address.ip, number, host);
        self.addresses.insert(address.ip, alias);
        alias
    }

    /// Returns the replacement of an address whose prefix is unknown.
    fn known_address(&mut self, ip: IpAddr) -> IpAddr {
        let prefix_len = if ip.is_ipv4() { 32 } else { 128 };
        self.address(AddressFacts { ip, prefix_len })
    }
}

/// Returns an address in the subnet of this number, which is in the first byte: no two subnets
/// overlap, however short their prefixes are.
fn alias(ip: IpAddr, subnet: u32, host: u32) -> IpAddr {
    let last = (host % 254 + 1) as u8;
    match ip {
        IpAddr::V4(_) => Ipv4Addr::new((subnet % 200 + 10) as u8, 0, 0, last).into(),
        IpAddr::V6(own) if own.is_unicast_link_local() => {
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host as u16).into()
        }
        IpAddr::V6(_) => Ipv6Addr::new(0xfd00, subnet as u16, 0, 0, 0, 0, 0, host as u16).into(),
    }
}

/// Returns true for names that the kernel or systemd gives: a known prefix, and digits, with the
/// letters of a position between them.
fn is_plain(name: &str) -> bool {
    const PREFIXES: [&str; 13] = [
        "eth",
        "en",
        "wl",
        "ww",
        "ib",
        "bond",
        "br",
        "veth",
        "usb",
        "tun",
        "tap",
        "thunderbolt",
        "wg",
    ];
    let is_position = |rest: &str| {
        // enp3s0f1np1, eno1, ens1d1, eth0.5: each letter belongs to a number.
        let numbers = rest.split(|c: char| "pofsnudixv.".contains(c));
        rest.ends_with(|c: char| c.is_ascii_digit())
            && rest.len() <= 12
            && numbers
                .clone()
                .all(|part| part.chars().all(|c| c.is_ascii_digit()))
            && numbers.filter(|part| part.is_empty()).count() <= 2
    };
    let is_of = |prefix: &&str| name.strip_prefix(prefix).is_some_and(is_position);
    // A name such as enx020000000001 contains the MAC address.
    let is_mac = name.starts_with("enx") || name.starts_with("wlx");
    name == "lo" || (!is_mac && PREFIXES.iter().any(is_of))
}

#[cfg(test)]
mod tests;

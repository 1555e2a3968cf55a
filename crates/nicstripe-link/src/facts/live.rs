//! Facts about this machine.

use std::{borrow::Cow, fs};

use nicstripe_netlink::Netlink;
use rustix::{system::uname, thread::sched_getaffinity};

use crate::{
    facts::{
        host::HostFacts,
        interface::{AddressFacts, BondFacts, InterfaceFacts, QdiscFacts},
        limits::MOST_INTERFACES,
        system::{System, list_directory, read_file},
        text::plain,
    },
    host::cpu::CpuMeter,
    interface::{
        Interface, InterfaceIndex, InterfaceKind,
        egress_limit::{RootDiscipline, root_disciplines, tick_nanoseconds},
        enumerate::{LinkDetails, LinkMessage, interfaces, links},
        ethtool::IoctlSocket,
        ethtool_messages::Ethtool,
        genl::Generic,
    },
};

/// This machine, in the calling thread's network namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl System for Live {
    fn read(&self, path: &str) -> Option<String> {
        read_file(of_this_thread(path).as_ref().as_ref())
    }

    fn list(&self, path: &str) -> Vec<String> {
        list_directory(of_this_thread(path).as_ref().as_ref())
    }

    fn follow(&self, path: &str) -> Option<String> {
        let path = fs::canonicalize(&*of_this_thread(path)).ok()?;
        path.into_os_string().into_string().ok()
    }

    fn interfaces(&self) -> Vec<InterfaceFacts> {
        let Ok(mut found) = interfaces() else {
            return Vec::new();
        };
        found.truncate(MOST_INTERFACES);
        let mut answers = Answers::open();
        found
            .iter()
            .map(|interface| answers.facts(interface, &found))
            .collect()
    }

    fn host(&self) -> HostFacts {
        let names = uname();
        let shown = |text: &std::ffi::CStr| plain(&text.to_string_lossy());
        HostFacts {
            name: shown(names.nodename()),
            os: shown(names.sysname()),
            kernel: shown(names.release()),
            cores: sched_getaffinity(None)
                .ok()
                .map(|set| set.count())
                .filter(|count| *count > 0),
            cpu_quota_millicores: CpuMeter::find().quota_millicores(),
            ..HostFacts::default()
        }
    }

    fn throttled_periods(&self) -> Option<u64> {
        CpuMeter::find().throttled_periods()
    }

    fn cached_destinations(&self) -> Option<u32> {
        let mut metrics = Generic::open("tcp_metrics").ok()?;
        let request = metrics.request(TCP_METRICS_CMD_GET);
        metrics.count(&request).ok()?.try_into().ok()
    }
}

/// `/proc/net` is that of the process's first thread, which can be in another network namespace.
fn of_this_thread(path: &str) -> Cow<'_, str> {
    match path.strip_prefix("/proc/net/") {
        Some(rest) => format!("/proc/thread-self/net/{rest}").into(),
        None => path.into(),
    }
}

/// Sockets for questions about interfaces, and the answers about all of them.
struct Answers {
    ethtool: Option<Ethtool>,
    ioctl: Option<IoctlSocket>,
    links: Vec<LinkMessage>,
    disciplines: Vec<RootDiscipline>,
    tick_nanoseconds: Option<u64>,
}

impl Answers {
    fn open() -> Self {
        let mut netlink = Netlink::route().ok();
        let links = netlink.as_mut().and_then(|netlink| links(netlink).ok());
        let disciplines = netlink.as_mut().map(root_disciplines);
        Self {
            ethtool: Ethtool::open().ok(),
            ioctl: IoctlSocket::open().ok(),
            links: links.unwrap_or_default(),
            disciplines: disciplines.unwrap_or_default(),
            tick_nanoseconds: Live
                .read("/proc/net/psched")
                .and_then(|text| tick_nanoseconds(&text)),
        }
    }

    fn facts(&mut self, interface: &Interface, all: &[Interface]) -> InterfaceFacts {
        let mut facts = facts_of(interface, all);
        let link = self.links.iter().find(|link| link.index == interface.index);
        let details = link.map(|link| &link.details);
        facts.mtu_max = details.and_then(|details| details.mtu_max);
        facts.carrier_changes = details.and_then(|details| details.carrier_changes);
        facts.qdisc = details.and_then(|details| self.qdisc(details, interface));
        if let Some(ioctl) = &self.ioctl {
            let driver = ioctl.driver(&interface.name);
            (facts.driver, facts.firmware) = (driver.name, driver.firmware);
            let offloads = ioctl.offloads(&interface.name);
            facts.offloads = offloads.map(owned);
        }
        match interface.kind {
            InterfaceKind::Ethernet => {
                self.ask_link(&mut facts, interface);
                self.ask_card(&mut facts, interface.index);
            }
            InterfaceKind::Tunnel if facts.driver.as_deref() == Some("tun") => {
                self.ask_tap(&mut facts, interface.index);
            }
            _ => {}
        }
        facts
    }

    fn qdisc(&self, details: &LinkDetails, interface: &Interface) -> Option<QdiscFacts> {
        let of_this = |root: &&RootDiscipline| root.interface == interface.index;
        let root = self.disciplines.iter().find(of_this);
        let bucket = root.and_then(|root| root.bucket);
        let burst = bucket.zip(self.tick_nanoseconds);
        Some(QdiscFacts {
            kind: details.qdisc.as_deref().and_then(plain)?,
            limit_bps: interface.egress_limit.map(|limit| limit.0),
            burst_bytes: burst.and_then(|(bucket, tick)| bucket.burst_bytes(tick)),
            queue_bytes: bucket.map(|bucket| bucket.queue_bytes.into()),
            dropped: root.and_then(|root| root.dropped),
        })
    }

    /// Asks for the negotiation of a card. A virtio card repeats the settings of the host.
    fn ask_link(&mut self, facts: &mut InterfaceFacts, interface: &Interface) {
        if facts.driver.as_deref() == Some("virtio_net") {
            return;
        }
        match &mut self.ethtool {
            Some(ethtool) => {
                if let Some(link) = ethtool.link_settings(interface.index) {
                    facts.duplex = link.duplex.map(str::to_owned);
                    facts.modes = Some(link.modes);
                }
            }
            None => {
                let duplex = self
                    .ioctl
                    .as_ref()
                    .map(|ioctl| ioctl.duplex(&interface.name));
                facts.duplex = duplex.flatten().map(str::to_owned);
            }
        }
    }

    /// Asks for the rate that somebody has given to a TAP device. The driver's own rates mean
    /// nothing.
    fn ask_tap(&mut self, facts: &mut InterfaceFacts, index: InterfaceIndex) {
        let link = self.ethtool.as_mut();
        let Some(link) = link.and_then(|ethtool| ethtool.link_settings(index)) else {
            return;
        };
        let rate = link.megabits.filter(|rate| (1..u32::MAX).contains(rate));
        if rate.is_none() || link.duplex == Some("full") && TUN_RATES.contains(&rate) {
            return;
        }
        facts.speed_mbps = rate;
        facts.duplex = link.duplex.map(str::to_owned);
        facts.modes = Some(link.modes);
    }

    fn ask_card(&mut self, facts: &mut InterfaceFacts, index: InterfaceIndex) {
        let Some(ethtool) = &mut self.ethtool else {
            return;
        };
        if let Some(pause) = ethtool.pause(index) {
            let frames = [
                ("pause.rx", pause.received_frames),
                ("pause.tx", pause.sent_frames),
            ];
            let known = frames
                .into_iter()
                .filter_map(|(name, count)| Some((name, count?)));
            let known = known.map(|(name, count)| (name.to_owned(), count));
            facts.statistics.extend(known);
            facts.pause = Some(pause.facts);
        }
        facts.statistics.extend(ethtool.statistics(index));
        facts.offloads_possible = ethtool.possible_offloads(index).map(owned);
        facts.eee = ethtool.eee(index);
        facts.rings = ethtool.rings(index);
        facts.channels = ethtool.channels(index);
        facts.coalesce = ethtool.coalesce(index);
    }
}

/// Returns the facts in the kernel's list of interfaces.
fn facts_of(interface: &Interface, all: &[Interface]) -> InterfaceFacts {
    let name_of = |index: Option<InterfaceIndex>| {
        let found = all.iter().find(|other| Some(other.index) == index)?;
        Some(found.name.to_string())
    };
    let has_cable = matches!(
        interface.kind,
        InterfaceKind::Ethernet | InterfaceKind::Bond
    );
    let speed = interface.speed.filter(|_| has_cable);
    let rates = [interface.speed, interface.egress_limit];
    let addresses = interface.addresses.iter().map(|address| AddressFacts {
        ip: address.ip,
        prefix_len: address.prefix_len,
    });
    InterfaceFacts {
        index: Some(interface.index.0),
        name: interface.name.to_string(),
        mtu: Some(interface.mtu),
        line_bps: rates.into_iter().flatten().min().map(|rate| rate.0),
        kind: Some(kind_name(interface.kind).to_owned()),
        up: Some(interface.up),
        carrier: Some(interface.carrier),
        mac: interface.mac.map(|mac| mac.to_string()),
        addresses: addresses.collect(),
        duplicates: interface.duplicates.clone(),
        master: name_of(interface.master),
        lower: name_of(interface.lower),
        speed_mbps: speed.and_then(|rate| u32::try_from(rate.0 / 1_000_000).ok()),
        bond: interface.bond.as_ref().map(|bond| BondFacts {
            members: bond.members.iter().map(ToString::to_string).collect(),
            ..BondFacts::default()
        }),
        ..InterfaceFacts::default()
    }
}

fn kind_name(kind: InterfaceKind) -> &'static str {
    match kind {
        InterfaceKind::Loopback => "loopback",
        InterfaceKind::Ethernet => "ethernet",
        InterfaceKind::Veth => "veth",
        InterfaceKind::Bridge => "bridge",
        InterfaceKind::Bond => "bond",
        InterfaceKind::Vlan => "vlan",
        InterfaceKind::Tunnel => "tunnel",
        InterfaceKind::WiFi => "wi-fi",
        InterfaceKind::Vrf => "vrf",
        InterfaceKind::Other => "other",
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// Runs all parsers of messages that this module uses on one message, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(message: &nicstripe_netlink::Message<'_>) {
    let bucket = RootDiscipline::parse(message).and_then(|root| root.bucket);
    let _ = bucket.and_then(|bucket| bucket.burst_bytes(u64::MAX));
}

/// Rates in Mbit/s of a TAP device whose rate no one has set, at full duplex: that of Linux 6.2 and
/// later, and that of older ones (`tun_default_link_ksettings`, drivers/net/tun.c).
const TUN_RATES: [Option<u32>; 2] = [Some(10_000), Some(10)];

/// Command to read cached metrics (include/uapi/linux/tcp_metrics.h).
const TCP_METRICS_CMD_GET: u8 = 1;

#[cfg(test)]
mod tests;

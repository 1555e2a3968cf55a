//! Facts about one network interface.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

use crate::interface::ethtool_messages::{
    ChannelFacts, CoalesceFacts, EeeFacts, LinkModes, PauseFacts, RingFacts,
};

/// Facts about one network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceFacts {
    /// Index by which the kernel identifies the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Interface name, such as `eth0`.
    pub name: String,
    /// MTU of the interface in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Largest MTU that the driver accepts, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_max: Option<u32>,
    /// Line rate of the interface in bit/s, or the rate of a slower shaper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_bps: Option<u64>,
    /// Name of the kernel driver, such as `ixgbe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version of the card's firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Duplex mode: `half` or `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplex: Option<String>,
    /// Enabled offloads, by kernel name: `tso`, `gso`, `gro`, `tx-checksum`, `rx-checksum`, `sg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloads: Option<Vec<String>>,
    /// Offloads that the driver can switch on, by the same names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloads_possible: Option<Vec<String>>,
    /// Kind of the interface, in lower case: `ethernet`, `veth`, `bridge`, `bond`, `vlan`,
    /// `tunnel`, `wi-fi`, `loopback`, `vrf`, `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// True if the interface is enabled (`ip link set up`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// True if the interface has a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<bool>,
    /// Hardware address, as six hexadecimal pairs with colons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Addresses of the interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressFacts>,
    /// IPv6 addresses that another machine on the cable has too, so that the kernel does not use them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub duplicates: Vec<IpAddr>,
    /// Name of the bridge or bond that has the interface as a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Name of the interface below a VLAN or macvlan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<String>,
    /// Negotiated line rate in Mbit/s. Virtual interfaces, whose drivers invent one, have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<u32>,
    /// Negotiation of rate and duplex mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<LinkModes>,
    /// Pause frames (IEEE 802.3x).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseFacts>,
    /// Energy-efficient Ethernet (IEEE 802.3az).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eee: Option<EeeFacts>,
    /// Rings of the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rings: Option<RingFacts>,
    /// Queues of the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<ChannelFacts>,
    /// Delays of interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesce: Option<CoalesceFacts>,
    /// Counters since the interface was created: those of `/sys/class/net/X/statistics`, and the
    /// standard ones of ethtool (`pause.rx`, `pause.tx`, `mac.FrameCheckSequenceErrors`,
    /// `mac.LateCollisions`, `ctrl.MACControlFramesReceived`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub statistics: BTreeMap<String, u64>,
    /// Number of changes of the carrier since the interface was created; a flap is two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier_changes: Option<u64>,
    /// Buses from the card upwards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bus: Vec<BusHop>,
    /// Memory node (NUMA) of the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Interrupts of the card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<InterruptFacts>,
    /// True if a receive queue is distributed over several processors by software (`rps_cpus`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rps: Option<bool>,
    /// Number of receive queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_queues: Option<u32>,
    /// Length of the send queue in packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_queue_packets: Option<u32>,
    /// Root queueing discipline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<QdiscFacts>,
    /// Settings and members of a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<BondFacts>,
    /// Effective `arp_ignore` (IPv4): the greater value of the interface and of `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_ignore: Option<u8>,
    /// Effective `arp_announce` (IPv4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_announce: Option<u8>,
    /// Effective `rp_filter` (IPv4): 0 off, 1 strict, 2 loose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rp_filter: Option<u8>,
}

impl InterfaceFacts {
    /// Returns a counter; `None` if it is unknown.
    pub fn statistic(&self, name: &str) -> Option<u64> {
        self.statistics.get(name).copied()
    }
}

/// An address of an interface with the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressFacts {
    /// IP address.
    pub ip: IpAddr,
    /// Length of the prefix in bits.
    pub prefix_len: u8,
}

impl AddressFacts {
    /// Returns the subnet as text, such as `10.1.0.0/24`; `None` for a link-local IPv6 address, whose
    /// prefix every cable has, and for a single address.
    pub fn subnet(&self) -> Option<String> {
        let (bits, len) = match self.ip {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
            IpAddr::V6(ip) if ip.is_unicast_link_local() => return None,
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let host = u32::checked_sub(len, self.prefix_len.into())?;
        let network = bits
            .checked_shr(host)
            .unwrap_or(0)
            .checked_shl(host)
            .unwrap_or(0);
        let network: IpAddr = match self.ip {
            // The value has 32 bits.
            IpAddr::V4(_) => Ipv4Addr::from_bits(network as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(network).into(),
        };
        (host > 0).then(|| format!("{network}/{}", self.prefix_len))
    }

    /// Returns true if `other` is in this address's subnet. A link-local IPv6 prefix is no subnet:
    /// every cable has it.
    pub fn covers(&self, other: IpAddr) -> bool {
        let same = |own: u128, other: u128, bits: u32| {
            let host = bits.saturating_sub(self.prefix_len.into());
            own.checked_shr(host).unwrap_or(0) == other.checked_shr(host).unwrap_or(0)
        };
        match (self.ip, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                !own.is_unicast_link_local() && same(own.to_bits(), other.to_bits(), 128)
            }
            _ => false,
        }
    }
}

/// One device between a card and the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BusHop {
    /// Kind of the bus: `pci`, `usb`, `thunderbolt`, `virtio`, `platform` …
    pub kind: String,
    /// Address of the device on its bus, such as `0000:03:00.0` or `2-1.4`.
    pub address: String,
    /// Rate of a PCI Express lane in MT/s: 2500, 5000, 8000, 16000 …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_mts: Option<u32>,
    /// Highest such rate that the device supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_max_mts: Option<u32>,
    /// Lanes in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
    /// Lanes that the device has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes_max: Option<u32>,
    /// Rate of a USB device's port in Mbit/s: 12, 480, 5000 …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usb_mbps: Option<u32>,
}

/// One interrupt of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterruptFacts {
    /// Number of the interrupt.
    pub irq: u32,
    /// Number of times that each processor handled it since the start.
    pub counts: Vec<u64>,
    /// Processors that may handle it, as a list such as `0-3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<String>,
}

/// Root queueing discipline of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QdiscFacts {
    /// Kind of the discipline, such as `fq_codel`.
    pub kind: String,
    /// Rate limit in bits per second of Ethernet frames, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bps: Option<u64>,
    /// Burst of a token bucket in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u64>,
    /// Queue of a token bucket in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// Packets that the discipline and its children dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
}

/// Settings and members of a bond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BondFacts {
    /// Mode, such as `802.3ad`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Hash by which packets are distributed, such as `layer2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Names of the members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

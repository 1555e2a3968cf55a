//! Answers of drivers over ethtool's netlink family (Linux 5.6; pause frames 5.9, statistics 5.13).
//!
//! One query for each kind of message and interface. A dump would ask the drivers of all interfaces
//! at once, but one driver's error ends it and hides the interfaces after that.
//!
//! The parsers are pure functions over attributes. A value that the driver does not report is
//! `None`. Formats and constants: `include/uapi/linux/ethtool_netlink.h`.

use std::io;

use nicstripe_netlink::{Attributes, attribute, push_attribute, text, u8_at, u32_at, u64_at};
use serde::{Deserialize, Serialize};

use crate::interface::{
    InterfaceIndex,
    ethtool_modes::{AUTONEG, is_set, names},
    genl::{Generic, NLA_F_NESTED},
};

/// Socket for queries to drivers.
pub(crate) struct Ethtool(Generic);

impl Ethtool {
    pub(crate) fn open() -> io::Result<Self> {
        Generic::open("ethtool").map(Self)
    }

    /// Queries the negotiation of rate and duplex mode.
    pub(crate) fn link_settings(&mut self, interface: InterfaceIndex) -> Option<LinkSettings> {
        self.query(ETHTOOL_MSG_LINKMODES_GET, interface, LinkSettings::parse)
    }

    pub(crate) fn pause(&mut self, interface: InterfaceIndex) -> Option<Pause> {
        self.query(ETHTOOL_MSG_PAUSE_GET, interface, Pause::parse)
    }

    pub(crate) fn eee(&mut self, interface: InterfaceIndex) -> Option<EeeFacts> {
        self.query(ETHTOOL_MSG_EEE_GET, interface, EeeFacts::parse)
    }

    pub(crate) fn rings(&mut self, interface: InterfaceIndex) -> Option<RingFacts> {
        self.query(ETHTOOL_MSG_RINGS_GET, interface, RingFacts::parse)
    }

    pub(crate) fn channels(&mut self, interface: InterfaceIndex) -> Option<ChannelFacts> {
        self.query(ETHTOOL_MSG_CHANNELS_GET, interface, ChannelFacts::parse)
    }

    pub(crate) fn coalesce(&mut self, interface: InterfaceIndex) -> Option<CoalesceFacts> {
        self.query(ETHTOOL_MSG_COALESCE_GET, interface, CoalesceFacts::parse)
    }

    /// Queries the offloads that can be switched, by the names of
    /// [`InterfaceFacts::offloads`](crate::facts::InterfaceFacts::offloads).
    pub(crate) fn possible_offloads(
        &mut self,
        interface: InterfaceIndex,
    ) -> Option<Vec<&'static str>> {
        // The numbers of features differ between kernels, so this bitset is read by names.
        let request = self
            .0
            .request(ETHTOOL_MSG_FEATURES_GET)
            .attribute(NLA_F_NESTED | ETHTOOL_A_HEADER, &header(interface, 0));
        let answer = self
            .0
            .query(&request, |answer| Some(possible_offloads(answer)));
        answer.ok().flatten().flatten()
    }

    /// Queries the standard statistics of a card, by names such as `mac.LateCollisions`.
    pub(crate) fn statistics(&mut self, interface: InterfaceIndex) -> Vec<(String, u64)> {
        let mut groups = attribute(ETHTOOL_A_BITSET_NOMASK, &[]);
        let size = GROUPS.len() as u32;
        push_attribute(&mut groups, ETHTOOL_A_BITSET_SIZE, &size.to_ne_bytes());
        let all = (1_u32 << size) - 1;
        push_attribute(&mut groups, ETHTOOL_A_BITSET_VALUE, &all.to_ne_bytes());
        let request = self
            .0
            .request(ETHTOOL_MSG_STATS_GET)
            .attribute(
                NLA_F_NESTED | ETHTOOL_A_STATS_HEADER,
                &header(interface, ETHTOOL_FLAG_COMPACT_BITSETS),
            )
            .attribute(NLA_F_NESTED | ETHTOOL_A_STATS_GROUPS, &groups);
        let answer = self.0.query(&request, |answer| Some(statistics(answer)));
        answer.ok().flatten().unwrap_or_default()
    }

    fn query<T>(
        &mut self,
        command: u8,
        interface: InterfaceIndex,
        parse: fn(Attributes<'_>) -> T,
    ) -> Option<T> {
        let flags = ETHTOOL_FLAG_COMPACT_BITSETS | flags_of(command);
        let request = self
            .0
            .request(command)
            .attribute(NLA_F_NESTED | ETHTOOL_A_HEADER, &header(interface, flags));
        let answer = self.0.query(&request, |answer| Some(parse(answer)));
        answer.ok().flatten()
    }
}

/// Only the query for pause frames has statistics. Other messages reject the flag on some kernels.
fn flags_of(command: u8) -> u32 {
    match command {
        ETHTOOL_MSG_PAUSE_GET => ETHTOOL_FLAG_STATS,
        _ => 0,
    }
}

fn header(interface: InterfaceIndex, flags: u32) -> Vec<u8> {
    let mut header = attribute(ETHTOOL_A_HEADER_DEV_INDEX, &interface.0.to_ne_bytes());
    push_attribute(&mut header, ETHTOOL_A_HEADER_FLAGS, &flags.to_ne_bytes());
    header
}

/// Rates and duplex modes that both ends of a cable can use, as ethtool names them, such as
/// `1000baseT/Full`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkModes {
    /// True if the interface negotiates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoneg: Option<bool>,
    /// Modes that the card supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supported: Option<Vec<String>>,
    /// Modes that the interface offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertised: Option<Vec<String>>,
    /// Modes that the other end of the cable offers, with those that the card detected without
    /// negotiation. Absent if there are none or the driver does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partner: Option<Vec<String>>,
    /// True if the other end of the cable negotiates. Only known together with its modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partner_autoneg: Option<bool>,
}

/// Negotiation of rate and duplex mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkSettings {
    /// Rate in Mbit/s, as the driver reports it; 0 and 2^32 - 1 mean that it is unknown.
    pub(crate) megabits: Option<u32>,
    /// Duplex mode, `half` or `full`.
    pub(crate) duplex: Option<&'static str>,
    /// Modes. The kernel omits an empty bitmap, so that those of the other end are absent if it
    /// offers none.
    pub(crate) modes: LinkModes,
}

impl LinkSettings {
    pub(crate) fn parse(answer: Attributes<'_>) -> Self {
        let ours = answer.find(ETHTOOL_A_LINKMODES_OURS);
        let words = |kind| bitmap(ours?, kind);
        let partner = answer.find(ETHTOOL_A_LINKMODES_PEER);
        let partner = partner.and_then(|bits| bitmap(bits, ETHTOOL_A_BITSET_VALUE));
        Self {
            megabits: u32_of(answer, ETHTOOL_A_LINKMODES_SPEED),
            duplex: match u8_of(answer, ETHTOOL_A_LINKMODES_DUPLEX) {
                Some(0) => Some("half"),
                Some(1) => Some("full"),
                _ => None,
            },
            modes: LinkModes {
                autoneg: bool_of(answer, ETHTOOL_A_LINKMODES_AUTONEG),
                supported: words(ETHTOOL_A_BITSET_MASK).map(|words| names(&words)),
                advertised: words(ETHTOOL_A_BITSET_VALUE).map(|words| names(&words)),
                partner_autoneg: partner.as_ref().map(|words| is_set(words, AUTONEG)),
                partner: partner.map(|words| names(&words)),
            },
        }
    }
}

/// Returns the value or the mask of a compact bitset, in 32-bit words.
fn bitmap(bitset: &[u8], kind: u16) -> Option<Vec<u32>> {
    let words = Attributes::new(bitset).find(kind)?.chunks_exact(4);
    Some(words.filter_map(|word| u32_at(word, 0)).collect())
}

/// Use of pause frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PauseFacts {
    /// True if the use is negotiated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoneg: Option<bool>,
    /// True if the card stops when it is asked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx: Option<bool>,
    /// True if the card asks the other end to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx: Option<bool>,
}

/// Pause frames: settings and numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) facts: PauseFacts,
    pub(crate) received_frames: Option<u64>,
    pub(crate) sent_frames: Option<u64>,
}

impl Pause {
    pub(crate) fn parse(answer: Attributes<'_>) -> Self {
        let numbers = Attributes::new(answer.find(ETHTOOL_A_PAUSE_STATS).unwrap_or_default());
        Self {
            facts: PauseFacts {
                autoneg: bool_of(answer, ETHTOOL_A_PAUSE_AUTONEG),
                rx: bool_of(answer, ETHTOOL_A_PAUSE_RX),
                tx: bool_of(answer, ETHTOOL_A_PAUSE_TX),
            },
            received_frames: numbers.find(ETHTOOL_A_PAUSE_STAT_RX_FRAMES).and_then(wide),
            sent_frames: numbers.find(ETHTOOL_A_PAUSE_STAT_TX_FRAMES).and_then(wide),
        }
    }
}

/// State of energy-efficient Ethernet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EeeFacts {
    /// True if it is allowed at this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// True if both ends agreed on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
}

impl EeeFacts {
    pub(crate) fn parse(answer: Attributes<'_>) -> Self {
        Self {
            enabled: bool_of(answer, ETHTOOL_A_EEE_ENABLED),
            active: bool_of(answer, ETHTOOL_A_EEE_ACTIVE),
        }
    }
}

/// Sizes of a card's rings in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingFacts {
    /// Size of the receive ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Largest size of the receive ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_max: Option<u32>,
    /// Size of the send ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Largest size of the send ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_max: Option<u32>,
}

impl RingFacts {
    pub(crate) fn parse(answer: Attributes<'_>) -> Self {
        Self {
            rx: u32_of(answer, ETHTOOL_A_RINGS_RX),
            rx_max: u32_of(answer, ETHTOOL_A_RINGS_RX_MAX),
            tx: u32_of(answer, ETHTOOL_A_RINGS_TX),
            tx_max: u32_of(answer, ETHTOOL_A_RINGS_TX_MAX),
        }
    }
}

/// Numbers of a card's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelFacts {
    /// Queues that receive and send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combined: Option<u32>,
    /// Largest number of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combined_max: Option<u32>,
    /// Queues that only receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Largest number of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_max: Option<u32>,
}

impl ChannelFacts {
    pub(crate) fn parse(answer: Attributes<'_>) -> Self {
        Self {
            combined: u32_of(answer, ETHTOOL_A_CHANNELS_COMBINED_COUNT),
            combined_max: u32_of(answer, ETHTOOL_A_CHANNELS_COMBINED_MAX),
            rx: u32_of(answer, ETHTOOL_A_CHANNELS_RX_COUNT),
            rx_max: u32_of(answer, ETHTOOL_A_CHANNELS_RX_MAX),
        }
    }
}

/// Delays of a card's receive interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoalesceFacts {
    /// Delay of an interrupt after a packet, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_usecs: Option<u32>,
    /// Packets after which the interrupt is not delayed any longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_frames: Option<u32>,
    /// True if the driver adapts the delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive_rx: Option<bool>,
}

impl CoalesceFacts {
    pub(crate) fn parse(answer: Attributes<'_>) -> Self {
        Self {
            rx_usecs: u32_of(answer, ETHTOOL_A_COALESCE_RX_USECS),
            rx_frames: u32_of(answer, ETHTOOL_A_COALESCE_RX_MAX_FRAMES),
            adaptive_rx: bool_of(answer, ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX),
        }
    }
}

/// Parses the offloads that can be switched; `None` if the answer has none of these features.
pub(crate) fn possible_offloads(answer: Attributes<'_>) -> Option<Vec<&'static str>> {
    let bitset = Attributes::new(answer.find(ETHTOOL_A_FEATURES_HW)?);
    let is_whole = bitset.find(ETHTOOL_A_BITSET_NOMASK).is_some();
    let bits = Attributes::new(bitset.find(ETHTOOL_A_BITSET_BITS)?);
    let mut found = Vec::new();
    for (_, bit) in bits.filter(|(kind, _)| *kind == ETHTOOL_A_BITSET_BITS_BIT) {
        let bit = Attributes::new(bit);
        let is_set = is_whole || bit.find(ETHTOOL_A_BITSET_BIT_VALUE).is_some();
        let name = bit.find(ETHTOOL_A_BITSET_BIT_NAME).map(text);
        let offload = name.filter(|_| is_set).and_then(|name| offload(&name));
        if let Some(offload) = offload.filter(|offload| !found.contains(offload)) {
            found.push(offload);
        }
    }
    Some(found)
}

/// Returns the short name of a feature (net/ethtool/common.c, `netdev_features_strings`).
fn offload(feature: &str) -> Option<&'static str> {
    Some(match feature {
        "tx-tcp-segmentation" => "tso",
        "tx-generic-segmentation" => "gso",
        "rx-gro" => "gro",
        "tx-scatter-gather" => "sg",
        "rx-checksum" => "rx-checksum",
        "tx-checksum-ipv4" | "tx-checksum-ip-generic" => "tx-checksum",
        _ => return None,
    })
}

/// Parses the standard statistics of a card. The kernel omits those that its driver does not count.
pub(crate) fn statistics(answer: Attributes<'_>) -> Vec<(String, u64)> {
    answer
        .filter(|(kind, _)| *kind == ETHTOOL_A_STATS_GRP)
        .flat_map(|(_, group)| group_statistics(Attributes::new(group)))
        .collect()
}

fn group_statistics(group: Attributes<'_>) -> Vec<(String, u64)> {
    let found = u32_of(group, ETHTOOL_A_STATS_GRP_ID).and_then(|id| GROUPS.get(id as usize));
    let Some((prefix, names)) = found else {
        return Vec::new();
    };
    group
        .filter(|(kind, _)| *kind == ETHTOOL_A_STATS_GRP_STAT)
        // The kind of the attribute inside is the number of the statistic. An attribute without a
        // value is padding.
        .flat_map(|(_, statistic)| Attributes::new(statistic))
        .filter_map(|(number, value)| {
            let name = names.get(usize::from(number))?;
            Some((format!("{prefix}.{name}"), wide(value)?))
        })
        .collect()
}

fn u8_of(attributes: Attributes<'_>, kind: u16) -> Option<u8> {
    u8_at(attributes.find(kind)?, 0)
}

fn u32_of(attributes: Attributes<'_>, kind: u16) -> Option<u32> {
    u32_at(attributes.find(kind)?, 0)
}

fn bool_of(attributes: Attributes<'_>, kind: u16) -> Option<bool> {
    u8_of(attributes, kind).map(|value| value != 0)
}

/// Reads a counter of four or eight bytes.
fn wide(value: &[u8]) -> Option<u64> {
    u64_at(value, 0).or_else(|| u32_at(value, 0).map(u64::from))
}

/// Runs all parsers of this module on the attributes of one answer, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(bytes: &[u8]) {
    let answer = Attributes::new(bytes);
    let _ = (LinkSettings::parse(answer), Pause::parse(answer));
    let _ = (EeeFacts::parse(answer), RingFacts::parse(answer));
    let _ = (ChannelFacts::parse(answer), CoalesceFacts::parse(answer));
    assert!(statistics(answer).len() <= bytes.len() / 4);
    assert!(possible_offloads(answer).is_none_or(|names| names.len() <= 6));
}

/// Prefix and counter names of each group of standard statistics, by their numbers
/// (net/ethtool/stats.c).
const GROUPS: [(&str, &[&str]); 3] = [
    ("phy", &["SymbolErrorDuringCarrier"]),
    (
        "mac",
        &[
            "FramesTransmittedOK",
            "SingleCollisionFrames",
            "MultipleCollisionFrames",
            "FramesReceivedOK",
            "FrameCheckSequenceErrors",
            "AlignmentErrors",
            "OctetsTransmittedOK",
            "FramesWithDeferredXmissions",
            "LateCollisions",
            "FramesAbortedDueToXSColls",
            "FramesLostDueToIntMACXmitError",
            "CarrierSenseErrors",
            "OctetsReceivedOK",
            "FramesLostDueToIntMACRcvError",
            "MulticastFramesXmittedOK",
            "BroadcastFramesXmittedOK",
            "FramesWithExcessiveDeferral",
            "MulticastFramesReceivedOK",
            "BroadcastFramesReceivedOK",
            "InRangeLengthErrors",
            "OutOfRangeLengthField",
            "FrameTooLongErrors",
        ],
    ),
    (
        "ctrl",
        &[
            "MACControlFramesTransmitted",
            "MACControlFramesReceived",
            "UnsupportedOpcodesReceived",
        ],
    ),
];

const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_RINGS_GET: u8 = 15;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
const ETHTOOL_MSG_PAUSE_GET: u8 = 21;
const ETHTOOL_MSG_EEE_GET: u8 = 23;
const ETHTOOL_MSG_STATS_GET: u8 = 32;

/// Attribute of the header, in all requests of this module except that for statistics.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_COMPACT_BITSETS: u32 = 1;
const ETHTOOL_FLAG_STATS: u32 = 4;

const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_SIZE: u16 = 2;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_VALUE: u16 = 4;
const ETHTOOL_A_BITSET_MASK: u16 = 5;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

const ETHTOOL_A_FEATURES_HW: u16 = 2;

const ETHTOOL_A_LINKMODES_AUTONEG: u16 = 2;
const ETHTOOL_A_LINKMODES_OURS: u16 = 3;
const ETHTOOL_A_LINKMODES_PEER: u16 = 4;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_LINKMODES_DUPLEX: u16 = 6;

const ETHTOOL_A_RINGS_RX_MAX: u16 = 2;
const ETHTOOL_A_RINGS_TX_MAX: u16 = 5;
const ETHTOOL_A_RINGS_RX: u16 = 6;
const ETHTOOL_A_RINGS_TX: u16 = 9;

const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

const ETHTOOL_A_COALESCE_RX_USECS: u16 = 2;
const ETHTOOL_A_COALESCE_RX_MAX_FRAMES: u16 = 3;
const ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: u16 = 11;

const ETHTOOL_A_PAUSE_AUTONEG: u16 = 2;
const ETHTOOL_A_PAUSE_RX: u16 = 3;
const ETHTOOL_A_PAUSE_TX: u16 = 4;
const ETHTOOL_A_PAUSE_STATS: u16 = 5;
const ETHTOOL_A_PAUSE_STAT_TX_FRAMES: u16 = 2;
const ETHTOOL_A_PAUSE_STAT_RX_FRAMES: u16 = 3;

const ETHTOOL_A_EEE_ACTIVE: u16 = 4;
const ETHTOOL_A_EEE_ENABLED: u16 = 5;

const ETHTOOL_A_STATS_HEADER: u16 = 2;
const ETHTOOL_A_STATS_GROUPS: u16 = 3;
const ETHTOOL_A_STATS_GRP: u16 = 4;
const ETHTOOL_A_STATS_GRP_ID: u16 = 2;
const ETHTOOL_A_STATS_GRP_STAT: u16 = 4;

#[cfg(test)]
pub(crate) mod tests;

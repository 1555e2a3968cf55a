//! Rules about buses between the cards and the processor.

use std::collections::BTreeMap;

use nicstripe_bench::{GOOD_SCALING, listed};
use nicstripe_link::facts::BusHop;
use nicstripe_proto::BitRate;

use super::measured::{BAD_SCALING, has_full_core, is_core_full, is_throttled};
use crate::{
    case::{Case, Place, Side, line},
    command::quoted,
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const SHARED: Rule = Rule {
    id: 4,
    needs: Needs::Bench,
    silences: &[],
    judge: |case| {
        let report = case.bench.iter();
        each(report, |report| {
            let scaling = report
                .summary
                .scaling
                .filter(|scaling| scaling.is_finite())?;
            let sides = || [Side::Here, Side::There].into_iter();
            let limited = sides()
                .filter(|side| case.machine(*side).is_some())
                .any(|side| is_core_full(report, side) || is_throttled(case, side));
            // Other programs that fill a core cost a measurement some per cent.
            let is_busy = sides().any(|side| has_full_core(report, side));
            let good = if is_busy { BAD_SCALING } else { GOOD_SCALING };
            if scaling >= good || limited || report.links.len() < 2 {
                return Some(Seen::Fine);
            }
            let severity = Severity::either(scaling < BAD_SCALING, Severity::Bad, Severity::Note);
            let names: Vec<String> = report
                .links
                .iter()
                .map(|link| quoted(&link.ends.client.name))
                .collect();
            let alone: u64 = report
                .summary
                .links
                .iter()
                .filter_map(|link| Some(link.alone?.median_bps))
                .fold(0, u64::saturating_add);
            let together = report.summary.together?.median_bps;
            let sentence = format!(
                "{} share a bottleneck: {} together instead of {}",
                listed(&names),
                BitRate(together),
                BitRate(alone)
            );
            let finding = Finding::new(severity, sentence)
                .costs(Some(alone.saturating_sub(together)))
                .proof("sum of each alone", BitRate(alone), "bench")
                .proof("all together", BitRate(together), "bench")
                .proof("scaling", format!("{scaling:.2}"), "bench")
                .advise("Move one card to another slot, USB port or switch, and measure again");
            report
                .links
                .iter()
                .fold(finding, Finding::about_link)
                .seen()
        })
    },
};

pub(super) const PCIE: Rule = Rule {
    id: 5,
    needs: Needs::Machine,
    silences: &[4, 7, 22, 23],
    judge: |case| {
        let sides = [Side::Here, Side::There];
        sides
            .into_iter()
            .flat_map(|side| narrow_hops(case, side))
            .collect()
    },
};

fn narrow_hops(case: &Case, side: Side) -> Vec<Option<Seen>> {
    let mut hops: BTreeMap<String, (Option<u64>, &BusHop, Vec<Place<'_>>)> = BTreeMap::new();
    for place in case.live_cards().filter(|place| place.side == side) {
        let pci = || place.interface.bus.iter().filter(|hop| hop.kind == "pci");
        let is_virtual = place.machine.facts.processors.hypervisor.is_some();
        let is_below_bridge = pci().nth(1).is_some() && !is_virtual;
        for (position, hop) in pci().enumerate() {
            let (key, capacity) = match (pci_express(hop), position) {
                (None, 0) if is_conventional(hop) && is_below_bridge => {
                    (bus_of(&hop.address), Some(CONVENTIONAL_BPS))
                }
                (capacity, _) => (hop.address.clone(), capacity),
            };
            // A card inside the processor has no lanes, and names some that could not carry it.
            let capacity = capacity.filter(|_| can_carry(hop, &place));
            hops.entry(key)
                .or_insert((capacity, hop, Vec::new()))
                .2
                .push(place);
        }
    }
    let mut all: Vec<_> = hops.into_values().collect();
    all.sort_by_key(|(capacity, ..)| *capacity);
    let known = all.into_iter().filter_map(|(capacity, hop, places)| {
        let usable = (capacity? as f64 * PCI_PAYLOAD) as u64;
        Some((usable, (hop, usable), places))
    });
    narrowest(known, |(hop, usable), places, needed| {
        narrow(case, hop, places, usable, needed)
    })
}

/// Judges what cards share on the way to the processor, from the narrowest up: the rate that it may
/// carry, what `tell` needs to know of it, and its cards. Tells only the narrowest above a card.
fn narrowest<'a, H>(
    hops: impl Iterator<Item = (u64, H, Vec<Place<'a>>)>,
    tell: impl Fn(H, &[Place<'a>], u64) -> Finding,
) -> Vec<Option<Seen>> {
    let mut told: Vec<String> = Vec::new();
    let judge = |(usable, hop, places): (u64, H, Vec<Place<'a>>)| {
        let rates: Option<Vec<u64>> = places.iter().map(Place::speed_bps).collect();
        let needed = rates?.into_iter().fold(0, u64::saturating_add);
        let mut names = places.iter().map(|place| &place.interface.name);
        if needed <= usable || names.all(|name| told.contains(name)) {
            return Some(Seen::Fine);
        }
        told.extend(places.iter().map(|place| place.interface.name.clone()));
        tell(hop, &places, needed).seen()
    };
    hops.map(judge).collect()
}

fn narrow(case: &Case, hop: &BusHop, places: &[Place<'_>], usable: u64, needed: u64) -> Finding {
    let names: Vec<String> = places.iter().map(|place| place.label(case)).collect();
    let what = match (hop.lanes, hop.lane_mts) {
        (Some(lanes), Some(mts)) => format!("PCIe {} x{lanes}", generation(mts)),
        _ => "a conventional PCI bus".into(),
    };
    let verb = if names.len() > 1 { "share" } else { "has" };
    let sentence = format!(
        "{} {verb} {what}: about {} for {}",
        listed(&names),
        BitRate(usable),
        BitRate(needed)
    );
    let trained_low = hop.lanes < hop.lanes_max && hop.lanes.is_some();
    let advice = match trained_low {
        true => "Reseat the card; try another slot: it trained fewer lanes than it has",
        false => "Move a card to another slot",
    };
    let mut finding = Finding::new(Severity::Bad, sentence)
        .costs(Some(needed.saturating_sub(usable)))
        .advise(advice);
    finding = places.iter().fold(finding, Finding::about_rate);
    let from = format!("/sys/bus/pci/devices/{}", hop.address);
    if let (Some(lanes), Some(mts)) = (hop.lanes, hop.lane_mts) {
        let max = hop
            .lanes_max
            .map_or_else(String::new, |max| format!(" of {max}"));
        finding = finding
            .proof("lanes", format!("{lanes}{max}"), from.clone())
            .proof(
                "rate of a lane",
                format!("{} GT/s", f64::from(mts) / 1000.0),
                from,
            );
    } else {
        finding = finding
            .likely()
            .proof("link of the device", "none: not PCI Express", from);
    }
    finding
}

/// Returns the data rate of a PCI Express device's lanes; `None` if it is unknown.
fn pci_express(hop: &BusHop) -> Option<u64> {
    let (mts, lanes) = (u64::from(hop.lane_mts?), u64::from(hop.lanes?));
    let bits = (mts * 1_000_000).saturating_mul(lanes);
    Some(if mts <= 5000 {
        bits / 10 * 8
    } else {
        bits / 130 * 128
    })
}

/// Returns true unless the device's highest rate is below that of the one card.
fn can_carry(hop: &BusHop, place: &Place<'_>) -> bool {
    let highest = pci_express(&BusHop {
        lane_mts: hop.lane_max_mts.or(hop.lane_mts),
        lanes: hop.lanes_max.or(hop.lanes),
        ..BusHop::default()
    });
    let speeds = highest.zip(place.speed_bps());
    speeds.is_none_or(|(highest, speed)| highest >= speed)
}

/// Returns true if a card without lanes is on a separate bus, not part of the chipset.
fn is_conventional(hop: &BusHop) -> bool {
    hop.lanes.is_none() && hop.lanes_max.is_none() && !bus_of(&hop.address).ends_with(":00")
}

/// Returns domain and bus of an address such as `0000:03:00.0`.
fn bus_of(address: &str) -> String {
    address
        .rsplit_once(':')
        .map_or(address, |(bus, _)| bus)
        .to_owned()
}

fn generation(mts: u32) -> String {
    match mts {
        2500 => "gen1".into(),
        5000 => "gen2".into(),
        8000 => "gen3".into(),
        16000 => "gen4".into(),
        32000 => "gen5".into(),
        64000 => "gen6".into(),
        other => format!("{} GT/s", f64::from(other) / 1000.0),
    }
}

/// Part of the data rate that is payload, with 128 bytes a packet and flow control.
const PCI_PAYLOAD: f64 = 0.83;
/// Rate of conventional PCI with 32 bits at 33 MHz, in bit/s.
const CONVENTIONAL_BPS: u64 = 1_064_000_000;

pub(super) const USB: Rule = Rule {
    id: 8,
    needs: Needs::Machine,
    silences: &[4, 7, 22, 23],
    judge: |case| {
        let sides = [Side::Here, Side::There];
        sides
            .into_iter()
            .flat_map(|side| slow_ports(case, side))
            .collect()
    },
};

fn slow_ports(case: &Case, side: Side) -> Vec<Option<Seen>> {
    let mut hops: BTreeMap<&str, (u32, Vec<Place<'_>>)> = BTreeMap::new();
    for place in case.live_cards().filter(|place| place.side == side) {
        for hop in place.interface.bus.iter().filter(|hop| hop.kind == "usb") {
            if let Some(mbps) = hop.usb_mbps {
                let entry = hops.entry(&hop.address);
                entry.or_insert((mbps, Vec::new())).1.push(place);
            }
        }
    }
    let mut all: Vec<_> = hops.into_iter().collect();
    all.sort_by_key(|(_, (mbps, places))| (*mbps, std::cmp::Reverse(places.len())));
    let known = all.into_iter().map(|(address, (mbps, places))| {
        let carries = u64::from(mbps) * 1_000_000 / USB_NEED.1 * USB_NEED.0;
        (carries, (address, mbps), places)
    });
    narrowest(known, |(address, mbps), places, needed| {
        slow_port(case, address, mbps, needed, places)
    })
}

fn slow_port(case: &Case, address: &str, mbps: u32, needed: u64, places: &[Place<'_>]) -> Finding {
    let names: Vec<String> = places.iter().map(|place| place.label(case)).collect();
    let usable = u64::from(mbps) * 1_000_000 / 100 * if mbps <= 480 { 73 } else { 64 };
    let verb = if names.len() > 1 { "share" } else { "is at" };
    let sentence = format!(
        "{} {verb} a USB port of {}: about {} for {}",
        listed(&names),
        line(mbps),
        BitRate(usable),
        line((needed / 1_000_000) as u32)
    );
    let lost = needed.saturating_sub(usable);
    let finding = Finding::new(Severity::Bad, sentence)
        .costs(Some(lost))
        .proof(format!("rate of USB device {address}"), line(mbps), format!("/sys/bus/usb/devices/{address}/speed"))
        .advise("Use a USB 3 socket (blue or marked SS) with a USB 3 cable, directly at the machine; one adapter a port");
    places.iter().fold(finding, Finding::about_rate)
}

/// Ratio of the line rate that a USB port can carry to the port's rate.
const USB_NEED: (u64, u64) = (10, 16);

pub(super) const NUMA: Rule = Rule {
    id: 29,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let nodes = machine.facts.processors.numa_nodes?;
            let mut by_node: BTreeMap<u32, (u64, Vec<Place<'_>>)> = BTreeMap::new();
            for place in case.live_cards().filter(|place| place.side == side) {
                if let (Some(node), Some(speed)) = (place.interface.numa_node, place.speed_bps()) {
                    let entry = by_node.entry(node).or_default();
                    entry.0 += speed;
                    entry.1.push(place);
                }
            }
            let fastest = by_node.into_iter().max_by_key(|(_, (rate, _))| *rate);
            let Some((node, (rate, places))) =
                fastest.filter(|(_, (rate, _))| *rate > FAST && nodes > 1)
            else {
                return Some(Seen::Fine);
            };
            let names: Vec<String> = places.iter().map(|place| place.label(case)).collect();
            let belong = if names.len() > 1 { "belong" } else { "belongs" };
            let sentence = format!(
                "{} {belong} to memory node {node} of {nodes}: run the program there",
                listed(&names)
            );
            let finding = Finding::new(Severity::Note, sentence)
                .possible()
                .proof("line rates on the node", BitRate(rate), "ethtool")
                .proof("memory nodes", nodes, "/sys/devices/system/node")
                .advise(format!(
                    "Start the program with `numactl --cpunodebind={node} --membind={node}`"
                ));
            places.iter().fold(finding, Finding::about).seen()
        })
    },
};

/// Rate above which the way between sockets matters, in bit/s.
const FAST: u64 = 10_000_000_000;

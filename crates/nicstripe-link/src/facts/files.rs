//! Facts about an interface from files of `/sys` and `/proc`.

use crate::{
    facts::{
        bus,
        interface::{BondFacts, InterfaceFacts},
        interrupts::{Table, interrupts},
        system::System,
        text::{last, number, number32, plain},
    },
    interface::name::InterfaceName,
};

/// Adds the facts from files to an interface. Facts that are known already are kept.
pub(crate) fn complete(facts: &mut InterfaceFacts, system: &dyn System, table: &Table<'_>) {
    // A name from a recorded answer could be a path.
    if facts.name.parse::<InterfaceName>().is_err() {
        return;
    }
    complete_settings(facts, system);
    complete_bond(facts, system);
    let directory = format!("/sys/class/net/{}", facts.name);
    let shown = system.read(&format!("{directory}/ifindex"));
    let shown = shown.and_then(|text| number32(&text));
    // A mounted sysfs can show another network namespace, with other interfaces of the same names.
    if shown.is_none() || facts.index.is_some() && facts.index != shown {
        return;
    }
    facts.index = shown;
    complete_state(facts, system, &directory);
    complete_device(facts, system, &directory, table);
}

/// Adds the settings for ARP and the reverse path filter: the greater of the interface's own value
/// and that of `all`, as in [`ipv4_setting`](crate::ipv4_setting).
fn complete_settings(facts: &mut InterfaceFacts, system: &dyn System) {
    let effective = |key: &str| -> Option<u8> {
        let value = |section: &str| -> Option<u8> {
            let path = format!("/proc/sys/net/ipv4/conf/{section}/{key}");
            number(&system.read(&path)?)?.try_into().ok()
        };
        Some(value(&facts.name)?.max(value("all")?))
    };
    let [ignore, announce, filter] = ["arp_ignore", "arp_announce", "rp_filter"].map(effective);
    facts.arp_ignore = facts.arp_ignore.or(ignore);
    facts.arp_announce = facts.arp_announce.or(announce);
    facts.rp_filter = facts.rp_filter.or(filter);
}

fn complete_bond(facts: &mut InterfaceFacts, system: &dyn System) {
    let Some(text) = system.read(&format!("/proc/net/bonding/{}", facts.name)) else {
        return;
    };
    let found = parse_bond(&text);
    let bond = facts.bond.get_or_insert_default();
    bond.mode = bond.mode.take().or(found.mode);
    bond.hash = bond.hash.take().or(found.hash);
    if bond.members.is_empty() {
        bond.members = found.members;
    }
}

/// Parses the text of `/proc/net/bonding/NAME` (drivers/net/bonding/bond_procfs.c).
fn parse_bond(text: &str) -> BondFacts {
    let values = |key: &str| {
        let key = format!("{key}: ");
        text.lines()
            .filter_map(move |line| Some(line.strip_prefix(&*key)?.trim().to_owned()))
    };
    let mode = values("Bonding Mode").next().and_then(|mode| {
        let known = BOND_MODES.iter().find(|(text, _)| mode.starts_with(text));
        known.map(|(_, name)| (*name).to_owned())
    });
    let hash = values("Transmit Hash Policy").next();
    BondFacts {
        mode,
        // A number in parentheses follows the name.
        hash: hash.and_then(|hash| plain(hash.split(' ').next()?)),
        members: values("Slave Interface").collect(),
    }
}

fn complete_state(facts: &mut InterfaceFacts, system: &dyn System, directory: &str) {
    let value = |file: &str| system.read(&format!("{directory}/{file}"));
    let statistics = system.list(&format!("{directory}/statistics"));
    for name in statistics.into_iter().take(MOST_STATISTICS) {
        let count = value(&format!("statistics/{name}")).and_then(|text| number(&text));
        if let Some(count) = count {
            facts.statistics.entry(name).or_insert(count);
        }
    }
    let changes = || number(&value("carrier_changes")?);
    facts.carrier_changes = facts.carrier_changes.or_else(changes);
    let length = || number32(&value("tx_queue_len")?);
    facts.send_queue_packets = facts.send_queue_packets.or_else(length);
    let queues = system.list(&format!("{directory}/queues"));
    let queues: Vec<_> = queues
        .iter()
        .filter(|name| name.starts_with("rx-"))
        .collect();
    let masks = queues
        .iter()
        .filter_map(|queue| value(&format!("queues/{queue}/rps_cpus")));
    let is_spread = masks
        .map(|mask| is_any_bit_set(&mask))
        .reduce(|a, b| a || b);
    facts.rps = facts.rps.or(is_spread);
    let count = u32::try_from(queues.len()).ok().filter(|count| *count > 0);
    facts.receive_queues = facts.receive_queues.or(count);
}

/// Returns true if a bit of a mask such as `00000000,0000000f` is set.
fn is_any_bit_set(mask: &str) -> bool {
    mask.trim()
        .bytes()
        .any(|digit| digit.is_ascii_hexdigit() && digit != b'0')
}

fn complete_device(
    facts: &mut InterfaceFacts,
    system: &dyn System,
    directory: &str,
    table: &Table<'_>,
) {
    let device = system.follow(&format!("{directory}/device"));
    if facts.driver.is_none() {
        let driver = system.follow(&format!("{directory}/device/driver"));
        facts.driver = driver.and_then(|path| plain(last(&path)));
    }
    let Some(device) = device else {
        return;
    };
    // A card without a known memory node has the node -1, which is no `u32`.
    let node = || number32(&system.read(&format!("{device}/numa_node"))?);
    facts.numa_node = facts.numa_node.or_else(node);
    if facts.bus.is_empty() {
        facts.bus = bus::hops(system, &device);
    }
    if facts.interrupts.is_empty() {
        facts.interrupts = interrupts(system, table, &facts.name, Some(&device));
    }
}

/// Runs the parsers of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let _ = (parse_bond(text), is_any_bit_set(text));
}

/// Beginning of the mode in the text, and the name that `ip link` and module parameters use.
const BOND_MODES: [(&str, &str); 7] = [
    ("load balancing (round-robin)", "balance-rr"),
    ("fault-tolerance (active-backup)", "active-backup"),
    ("load balancing (xor)", "balance-xor"),
    ("fault-tolerance (broadcast)", "broadcast"),
    ("IEEE 802.3ad Dynamic link aggregation", "802.3ad"),
    ("transmit load balancing", "balance-tlb"),
    ("adaptive load balancing", "balance-alb"),
];
/// Maximum number of counters that are read of an interface; Linux 6.18 has 24.
const MOST_STATISTICS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bond_is_described_by_the_kernels_text() {
        let text = "Ethernet Channel Bonding Driver: v6.1.0\n\nBonding Mode: IEEE 802.3ad Dynamic link aggregation\n\
                    Transmit Hash Policy: layer3+4 (1)\nMII Status: up\n\nSlave Interface: eth0\nMII Status: up\n\n\
                    Slave Interface: eth1\n";
        let bond = parse_bond(text);
        assert_eq!(bond.mode.as_deref(), Some("802.3ad"));
        assert_eq!(bond.hash.as_deref(), Some("layer3+4"));
        assert_eq!(bond.members, ["eth0", "eth1"]);
        let backup = "Bonding Mode: fault-tolerance (active-backup) (fail_over_mac active)\n";
        assert_eq!(parse_bond(backup).mode.as_deref(), Some("active-backup"));
        assert_eq!(parse_bond("Bonding Mode: new\n"), BondFacts::default());
    }

    #[test]
    fn a_mask_with_a_bit_spreads_packets() {
        assert!(is_any_bit_set("00000000,0000000f\n"));
        assert!(!is_any_bit_set("00000000,00000000\n") && !is_any_bit_set(""));
    }
}

//! Suggested fixes for several cables in one subnet: the exact commands, and the commands that undo
//! them.
//!
//! Turns facts into text; executes nothing.

use std::net::IpAddr;

use nicstripe_link::InterfaceName;
use nicstripe_proto::message::Ipv4Settings;

use crate::report::LinkRemedy;

/// Returns the fix for ARP flux, where a machine answers ARP requests for one card's address on
/// another card's cable. With the fix, each interface answers only for its own addresses
/// (`arp_ignore` 1), and its requests carry its own address (`arp_announce` 2).
///
/// `interfaces` are those of the machine that share a subnet. ARP flux depends on the settings of
/// the machine that receives packets on the wrong interface. Apply the fix to both machines, so
/// that it covers both directions. Raises only values that are too low, and only those of the
/// interfaces themselves. Neighbours drop wrong entries within a minute, or when their caches are
/// flushed. Returns `None` if no setting needs a change.
pub(super) fn arp_flux(
    is_peers: bool,
    interfaces: &[(InterfaceName, Ipv4Settings)],
) -> Option<LinkRemedy> {
    let (mut apply, mut undo) = (Vec::new(), Vec::new());
    for (name, settings) in interfaces {
        for (key, value, target) in [
            ("arp_ignore", settings.arp_ignore, 1),
            ("arp_announce", settings.arp_announce, 2),
        ] {
            if value < target {
                let command = |value: u8| format!("sysctl -w {}={value}", path(name, key));
                apply.push(command(target));
                undo.push(command(value));
            }
        }
    }
    if apply.is_empty() {
        return None;
    }
    let names = interfaces.iter().map(|(name, _)| name.to_string());
    let names: Vec<String> = names.collect();
    let flushes = names
        .iter()
        .map(|name| format!("ip neigh flush dev {name}"));
    apply.extend(flushes);
    Some(LinkRemedy {
        is_peers,
        problem: format!(
            "{} share a subnet, and each answers ARP for the addresses of all (ARP flux)",
            listed(&names)
        ),
        apply,
        undo,
    })
}

/// Returns the fix for an interface whose strict reverse-path filtering (`rp_filter=1`) drops the
/// packets from `remote`: a host route to that address, which also prevents ARP answers on the wrong
/// cable. Returns `None` for IPv6, which has no such filtering.
pub(super) fn strict_path(
    is_peers: bool,
    interface: InterfaceName,
    remote: IpAddr,
) -> Option<LinkRemedy> {
    let route = format!("{remote}/32 dev {interface}");
    remote.is_ipv4().then(|| LinkRemedy {
        is_peers,
        problem: format!(
            "{interface} drops what comes from {remote}: rp_filter is strict, and its route back is over another interface"
        ),
        apply: vec![format!("ip route add {route} scope link")],
        undo: vec![format!("ip route del {route}")],
    })
}

/// Returns the name of an interface's setting for sysctl(8). Slashes replace the dots if the
/// interface's name contains a dot, which would act as a separator.
fn path(name: &InterfaceName, key: &str) -> String {
    let name = name.to_string();
    let separator = if name.contains('.') { "/" } else { "." };
    ["net", "ipv4", "conf", &name, key].join(separator)
}

fn listed(names: &[String]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arp_ignore: u8, arp_announce: u8) -> Ipv4Settings {
        Ipv4Settings {
            arp_ignore,
            arp_announce,
            rp_filter: 0,
        }
    }

    fn name(text: &str) -> InterfaceName {
        text.parse().unwrap()
    }

    #[test]
    fn arp_flux_is_cured_by_two_settings_an_interface_and_undone_to_what_was() {
        let untouched = settings(0, 1);
        let remedy = arp_flux(
            true,
            &[(name("eth1"), untouched), (name("eth2.5"), untouched)],
        )
        .unwrap();
        assert_eq!(
            remedy.problem,
            "eth1 and eth2.5 share a subnet, and each answers ARP for the addresses of all (ARP flux)"
        );
        assert_eq!(
            remedy.apply,
            [
                "sysctl -w net.ipv4.conf.eth1.arp_ignore=1",
                "sysctl -w net.ipv4.conf.eth1.arp_announce=2",
                "sysctl -w net/ipv4/conf/eth2.5/arp_ignore=1",
                "sysctl -w net/ipv4/conf/eth2.5/arp_announce=2",
                "ip neigh flush dev eth1",
                "ip neigh flush dev eth2.5",
            ]
        );
        assert_eq!(
            remedy.undo,
            [
                "sysctl -w net.ipv4.conf.eth1.arp_ignore=0",
                "sysctl -w net.ipv4.conf.eth1.arp_announce=1",
                "sysctl -w net/ipv4/conf/eth2.5/arp_ignore=0",
                "sysctl -w net/ipv4/conf/eth2.5/arp_announce=1",
            ]
        );
    }

    #[test]
    fn what_is_right_already_is_not_changed() {
        let right = (name("eth1"), settings(1, 2));
        assert!(arp_flux(false, &[right]).is_none());
        let remedy = arp_flux(false, &[right, (name("eth2"), settings(1, 0))]).unwrap();
        assert_eq!(remedy.undo, ["sysctl -w net.ipv4.conf.eth2.arp_announce=0"]);
    }

    #[test]
    fn a_strict_filter_is_cured_by_a_route() {
        let remedy = strict_path(false, name("eth2"), "10.9.0.22".parse().unwrap()).unwrap();
        assert_eq!(
            remedy.apply,
            ["ip route add 10.9.0.22/32 dev eth2 scope link"]
        );
        assert_eq!(remedy.undo, ["ip route del 10.9.0.22/32 dev eth2"]);
        assert!(strict_path(false, name("eth2"), "fd00::1".parse().unwrap()).is_none());
    }
}

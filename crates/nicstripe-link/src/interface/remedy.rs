//! Suggested fixes for several cables in one subnet: the exact commands, and the commands that undo
//! them.
//!
//! Turns facts into text; executes nothing.

use std::net::IpAddr;

use crate::interface::{
    name::InterfaceName,
    sysctls::{ARP_ANNOUNCE, ARP_IGNORE, RP_FILTER, Setting, Sysctls},
};

/// Network problem of this machine, with the commands that fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remedy {
    /// Description of the problem in one sentence for the user.
    pub problem: String,
    /// Commands that fix the problem, to be run as root on the affected machine, in this order.
    pub apply: Vec<String>,
    /// Commands that restore the previous settings, in this order.
    pub undo: Vec<String>,
}

/// Returns the fix for ARP flux, where a machine answers ARP requests for one card's address on
/// another card's cable. With the fix, each interface answers only for its own addresses
/// (`arp_ignore` 1), and its requests carry its own address (`arp_announce` 2).
///
/// `interfaces` are those of the machine that share a subnet. ARP flux depends on the settings of
/// the machine that receives packets on the wrong interface. Apply the fix to both machines, so
/// that it covers both directions. Raises only values that are too low, and only those of the
/// interfaces themselves. Neighbours drop wrong entries within a minute, or when their caches are
/// flushed. Returns `None` if no setting needs a change, or if none can be read.
pub fn arp_flux_remedy(interfaces: &[(InterfaceName, Sysctls)]) -> Option<Remedy> {
    let (mut apply, mut undo) = (Vec::new(), Vec::new());
    for (name, sysctls) in interfaces {
        for (key, setting, target) in [
            (ARP_IGNORE, sysctls.arp_ignore, 1),
            (ARP_ANNOUNCE, sysctls.arp_announce, 2),
        ] {
            change(name, key, setting, target, &mut apply, &mut undo);
        }
    }
    if apply.is_empty() {
        return None;
    }
    let names: Vec<String> = interfaces
        .iter()
        .map(|(name, _)| name.to_string())
        .collect();
    apply.extend(
        names
            .iter()
            .map(|name| format!("ip neigh flush dev {name}")),
    );
    let problem = format!(
        "{} share a subnet, and each answers ARP for the addresses of all (ARP flux)",
        listed(&names)
    );
    Some(Remedy {
        problem,
        apply,
        undo,
    })
}

/// Facts about a remote address whose packets strict reverse-path filtering (`rp_filter=1`) may
/// drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrictPath {
    /// Interface on which the packets from `remote` arrive.
    pub interface: InterfaceName,
    /// Source address of the dropped packets.
    pub remote: IpAddr,
    /// Egress interface of this machine's route to `remote`, if any.
    pub kernel_takes: Option<InterfaceName>,
    /// Kernel settings of `interface`.
    pub sysctls: Sysctls,
}

/// Returns the fixes for IPv4 packets that strict reverse-path filtering (`rp_filter=1`) drops,
/// best first. The first is a host route to the address, which also prevents ARP answers on the
/// wrong cable. The second is loose filtering (`rp_filter=2`), which does not prevent them.
///
/// Returns no fix if the filter is not strict, if the kernel's route already uses that interface,
/// or for IPv6.
pub fn strict_path_remedies(facts: &StrictPath) -> Vec<Remedy> {
    let StrictPath {
        interface,
        remote,
        kernel_takes,
        sysctls,
    } = facts;
    if sysctls.is_reverse_path_strict() != Some(true)
        || *kernel_takes == Some(*interface)
        || !remote.is_ipv4()
    {
        return Vec::new();
    }
    let way = kernel_takes.map_or_else(
        || "no route back to it".to_owned(),
        |other| format!("the route back to it is by {other}"),
    );
    let problem =
        format!("{interface} drops what comes from {remote}: rp_filter is strict, and {way}");
    let route = format!("{remote}/32 dev {interface}");
    let by_route = Remedy {
        problem: problem.clone(),
        apply: vec![format!("ip route add {route} scope link")],
        undo: vec![format!("ip route del {route}")],
    };
    let (mut apply, mut undo) = (Vec::new(), Vec::new());
    change(
        interface,
        RP_FILTER,
        sysctls.rp_filter,
        2,
        &mut apply,
        &mut undo,
    );
    vec![
        by_route,
        Remedy {
            problem,
            apply,
            undo,
        },
    ]
}

/// Appends to `apply` the command that raises a setting of an interface to `target`, and to `undo`
/// the one that restores it. Appends nothing if the effective value is unknown or high enough.
fn change(
    name: &InterfaceName,
    key: &str,
    setting: Setting,
    target: u8,
    apply: &mut Vec<String>,
    undo: &mut Vec<String>,
) {
    let (Some(own), Some(effective)) = (setting.own, setting.effective()) else {
        return;
    };
    if effective < target {
        let command = |value: u8| format!("sysctl -w {}={value}", path(name, key));
        apply.push(command(target));
        undo.push(command(own));
    }
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

    fn setting(own: u8, all: u8) -> Setting {
        Setting {
            own: Some(own),
            all: Some(all),
        }
    }

    fn name(text: &str) -> InterfaceName {
        text.parse().unwrap()
    }

    #[test]
    fn arp_flux_is_cured_by_two_settings_an_interface_and_undone_to_what_was() {
        let untouched = Sysctls {
            arp_ignore: setting(0, 0),
            arp_announce: setting(1, 0),
            ..Sysctls::default()
        };
        let remedy =
            arp_flux_remedy(&[(name("eth1"), untouched), (name("eth2.5"), untouched)]).unwrap();
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
    fn what_is_right_already_or_unknown_is_not_changed() {
        let right = Sysctls {
            arp_ignore: setting(0, 1),
            arp_announce: setting(2, 0),
            ..Sysctls::default()
        };
        assert_eq!(
            arp_flux_remedy(&[(name("eth1"), right), (name("eth2"), Sysctls::default())]),
            None
        );
        let half = Sysctls {
            arp_announce: setting(0, 0),
            ..right
        };
        let remedy = arp_flux_remedy(&[(name("eth1"), right), (name("eth2"), half)]).unwrap();
        assert_eq!(remedy.undo, ["sysctl -w net.ipv4.conf.eth2.arp_announce=0"]);
    }

    fn strict(all: u8, kernel_takes: Option<&str>) -> StrictPath {
        StrictPath {
            interface: name("eth2"),
            remote: "10.9.0.22".parse().unwrap(),
            kernel_takes: kernel_takes.map(name),
            sysctls: Sysctls {
                rp_filter: setting(0, all),
                ..Sysctls::default()
            },
        }
    }

    #[test]
    fn a_strict_filter_is_cured_by_a_route_or_by_a_loose_one() {
        let [route, loose] = &strict_path_remedies(&strict(1, Some("eth1")))[..] else {
            panic!("two cures")
        };
        assert_eq!(
            route.problem,
            "eth2 drops what comes from 10.9.0.22: rp_filter is strict, and the route back to it is by eth1"
        );
        assert_eq!(
            route.apply,
            ["ip route add 10.9.0.22/32 dev eth2 scope link"]
        );
        assert_eq!(route.undo, ["ip route del 10.9.0.22/32 dev eth2"]);
        assert_eq!(loose.apply, ["sysctl -w net.ipv4.conf.eth2.rp_filter=2"]);
        assert_eq!(loose.undo, ["sysctl -w net.ipv4.conf.eth2.rp_filter=0"]);
        assert!(
            strict_path_remedies(&strict(1, None))[0]
                .problem
                .ends_with("no route back to it")
        );
    }

    #[test]
    fn a_filter_that_lets_it_pass_needs_no_cure() {
        assert_eq!(strict_path_remedies(&strict(1, Some("eth2"))), []);
        assert_eq!(strict_path_remedies(&strict(2, Some("eth1"))), []);
        assert_eq!(strict_path_remedies(&strict(0, Some("eth1"))), []);
        assert_eq!(
            strict_path_remedies(&StrictPath {
                remote: "fd00::1".parse().unwrap(),
                ..strict(1, Some("eth1"))
            }),
            []
        );
    }
}

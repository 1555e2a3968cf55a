//! Policy for host routes, which prevents a peer from redirecting traffic. Without it, a peer could
//! divert traffic for other hosts or for a router to a cable that it controls.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::{
    interface::{Interface, InterfaceIndex, InterfaceKind, enumerate::interfaces},
    routes::{
        HostRoute, RouteError,
        refusal::Refusal,
        table::{self, protocol_name},
    },
};

/// Existing routes and name servers that a host route must not interfere with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Gateways of all routes in all routing tables.
    pub gateways: BTreeSet<IpAddr>,
    /// Addresses of this machine's name servers.
    pub resolvers: BTreeSet<IpAddr>,
    /// Destinations of other programs' host routes, each with the route's protocol number.
    pub host_routes: BTreeMap<IpAddr, u8>,
}

impl Surroundings {
    /// Reads the kernel's routing tables, and the resolver files of libc, systemd and
    /// NetworkManager.
    ///
    /// Needs no privileges. An unreadable resolver file counts as empty.
    pub fn read() -> io::Result<Self> {
        let (gateways, host_routes) = table::survey()?;
        let files = RESOLVER_FILES
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok());
        Ok(Self {
            gateways,
            resolvers: files
                .flat_map(|text| resolvers(&text).collect::<Vec<_>>())
                .collect(),
            host_routes,
        })
    }
}

/// Checks the local conditions for a host route to `destination` through `interface`: the address
/// is on-link and unicast, and is no address, gateway, name server or host route destination of
/// this machine.
///
/// An authenticated handshake over the same interface must already have proved that the address
/// belongs to the peer.
///
/// # Errors
///
/// The first condition that is not met.
pub fn may_install(
    destination: IpAddr,
    interface: InterfaceIndex,
    interfaces: &[Interface],
    surroundings: &Surroundings,
) -> Result<(), Refusal> {
    if !is_unicast(destination) {
        return Err(Refusal::NotUnicast(destination));
    }
    let Some(by) = interfaces.iter().find(|known| known.index == interface) else {
        return Err(Refusal::NoInterface {
            destination,
            interface,
        });
    };
    if let Some(owner) = interfaces
        .iter()
        .find(|known| known.has_address(destination))
    {
        return Err(Refusal::Own {
            destination,
            interface: owner.name,
        });
    }
    let mut own = interfaces.iter().flat_map(|known| &known.addresses);
    if own.any(|own| own.is_broadcast(destination)) {
        return Err(Refusal::Broadcast(destination));
    }
    if surroundings.gateways.contains(&destination) {
        return Err(Refusal::Gateway(destination));
    }
    if surroundings.resolvers.contains(&destination) {
        return Err(Refusal::Resolver(destination));
    }
    // Every on-link address of loopback is this machine, whatever the prefix.
    if by.kind == InterfaceKind::Loopback || !by.is_on_link(destination) {
        return Err(Refusal::NotOnLink {
            destination,
            interface: by.name,
        });
    }
    if let Some(protocol) = surroundings.host_routes.get(&destination) {
        return Err(Refusal::Routed {
            destination,
            protocol: protocol_name(*protocol),
        });
    }
    Ok(())
}

/// Checks a route against the current interfaces, routes and name servers.
pub(crate) fn may_add(route: &HostRoute) -> Result<(), RouteError> {
    let interfaces = interfaces().map_err(|error| RouteError::List(io::Error::other(error)))?;
    let surroundings = Surroundings::read().map_err(RouteError::List)?;
    may_install(
        route.destination,
        route.interface,
        &interfaces,
        &surroundings,
    )?;
    Ok(may_prefer(route, &interfaces)?)
}

/// Checks that the route's preferred source, if any, is an address of its interface and of the
/// destination's family.
fn may_prefer(route: &HostRoute, interfaces: &[Interface]) -> Result<(), Refusal> {
    let HostRoute {
        destination,
        interface,
        prefer_source: Some(source),
        ..
    } = *route
    else {
        return Ok(());
    };
    match interfaces.iter().find(|known| known.index == interface) {
        Some(by) if by.has_address(source) && source.is_ipv4() == destination.is_ipv4() => Ok(()),
        Some(by) => Err(Refusal::Source {
            destination,
            interface: by.name,
        }),
        None => Err(Refusal::NoInterface {
            destination,
            interface,
        }),
    }
}

/// Returns true if a directly connected machine can have this address: not loopback, multicast,
/// reserved, unspecified or IPv4 embedded in IPv6.
fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_unicast_v4(ip),
        IpAddr::V6(ip) => is_unicast_v6(ip),
    }
}

fn is_unicast_v4(ip: Ipv4Addr) -> bool {
    // 0.0.0.0/8 is "this network", 240.0.0.0/4 is reserved (RFC 6890).
    !(ip.is_loopback() || ip.is_multicast() || ip.octets()[0] == 0 || ip.octets()[0] >= 240)
}

fn is_unicast_v6(ip: Ipv6Addr) -> bool {
    // ::/96 contains the unspecified address, loopback and the obsolete IPv4-compatible addresses.
    let embeds_v4 = ip.to_ipv4().is_some();
    !(ip.is_multicast() || embeds_v4)
}

/// Returns the `nameserver` addresses in the text of resolv.conf(5), without IPv6 scopes.
pub(crate) fn resolvers(text: &str) -> impl Iterator<Item = IpAddr> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words
            .next()
            .filter(|word| *word == "nameserver")
            .and(words.next())?;
        address.split('%').next()?.parse().ok()
    })
}

/// Files that list name servers: libc's, and two that list the real servers if libc's names a local
/// stub.
const RESOLVER_FILES: [&str; 3] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{InterfaceKind, tests::interface};

    const ETH1: InterfaceIndex = InterfaceIndex(3);

    fn interfaces() -> Vec<Interface> {
        vec![
            interface(
                2,
                "eth0",
                InterfaceKind::Ethernet,
                &["192.168.1.5/24", "fe80::5/64"],
            ),
            interface(
                3,
                "eth1",
                InterfaceKind::Ethernet,
                &["10.0.0.1/24", "fd00::1/64", "fe80::1/64"],
            ),
        ]
    }

    fn surroundings() -> Surroundings {
        Surroundings {
            gateways: ["10.0.0.254", "fe80::fe"]
                .map(|ip| ip.parse().unwrap())
                .into(),
            resolvers: ["10.0.0.53"].map(|ip| ip.parse().unwrap()).into(),
            host_routes: [("10.0.0.77".parse().unwrap(), 4)].into(),
        }
    }

    fn decide(destination: &str) -> Result<(), Refusal> {
        may_install(
            destination.parse().unwrap(),
            ETH1,
            &interfaces(),
            &surroundings(),
        )
    }

    #[test]
    fn a_neighbour_on_that_interface_is_allowed() {
        for destination in ["10.0.0.2", "fd00::2", "fe80::2"] {
            assert_eq!(decide(destination), Ok(()), "{destination}");
        }
    }

    #[test]
    fn only_unicast_addresses_are_allowed() {
        for destination in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::1",
            "::ffff:10.0.0.2",
            "::10.0.0.2",
        ] {
            assert!(
                matches!(decide(destination), Err(Refusal::NotUnicast { .. })),
                "{destination}"
            );
        }
    }

    #[test]
    fn own_addresses_are_refused_whichever_interface_has_them() {
        for destination in ["10.0.0.1", "192.168.1.5", "fe80::1"] {
            assert!(
                matches!(decide(destination), Err(Refusal::Own { .. })),
                "{destination}"
            );
        }
    }

    #[test]
    fn broadcasts_gateways_and_resolvers_are_refused() {
        assert!(matches!(
            decide("10.0.0.255"),
            Err(Refusal::Broadcast { .. })
        ));
        assert!(matches!(decide("10.0.0.0"), Err(Refusal::Broadcast { .. })));
        assert!(matches!(
            decide("192.168.1.255"),
            Err(Refusal::Broadcast { .. })
        ));
        assert!(matches!(decide("10.0.0.254"), Err(Refusal::Gateway { .. })));
        assert!(matches!(decide("fe80::fe"), Err(Refusal::Gateway { .. })));
        assert!(matches!(decide("10.0.0.53"), Err(Refusal::Resolver { .. })));
    }

    #[test]
    fn an_address_of_another_cable_or_of_the_world_is_refused() {
        for destination in ["192.168.1.9", "8.8.8.8", "2001:db8::1"] {
            assert!(
                matches!(decide(destination), Err(Refusal::NotOnLink { .. })),
                "{destination}"
            );
        }
    }

    #[test]
    fn somebody_elses_host_route_stands() {
        let refusal = decide("10.0.0.77").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "no route to 10.0.0.77: a foreign route (protocol static) exists"
        );
    }

    #[test]
    fn an_unknown_interface_is_refused() {
        let refusal = may_install(
            "10.0.0.2".parse().unwrap(),
            InterfaceIndex(99),
            &interfaces(),
            &Surroundings::default(),
        );
        assert_eq!(
            refusal.unwrap_err().to_string(),
            "no route to 10.0.0.2: no interface 99"
        );
    }

    #[test]
    fn what_is_on_link_on_loopback_is_refused() {
        let wide = [interface(3, "lo", InterfaceKind::Loopback, &["10.0.0.1/8"])];
        let refusal = may_install(
            "10.7.7.7".parse().unwrap(),
            ETH1,
            &wide,
            &Surroundings::default(),
        );
        assert!(
            matches!(refusal, Err(Refusal::NotOnLink { .. })),
            "{refusal:?}"
        );
    }

    #[test]
    fn a_preferred_source_is_the_interfaces_own_and_of_the_same_family() {
        let prefer = |source: &str| {
            let route = HostRoute {
                destination: "10.0.0.2".parse().unwrap(),
                interface: ETH1,
                prefer_source: Some(source.parse().unwrap()),
                metric: HostRoute::DEFAULT_METRIC,
            };
            may_prefer(&route, &interfaces())
        };
        assert_eq!(prefer("10.0.0.1"), Ok(()));
        for foreign in ["192.168.1.5", "10.0.0.3", "fd00::1"] {
            assert!(
                matches!(prefer(foreign), Err(Refusal::Source { .. })),
                "{foreign}"
            );
        }
    }

    #[test]
    fn resolvers_are_read_with_and_without_scope() {
        let text = "# nameserver 9.9.9.9\nnameserver 10.0.0.53\n nameserver  fe80::1%eth0 # x\nnameserver\nsearch a b\n";
        let expected: Vec<IpAddr> = vec!["10.0.0.53".parse().unwrap(), "fe80::1".parse().unwrap()];
        assert_eq!(resolvers(text).collect::<Vec<_>>(), expected);
    }
}

//! Names, indexes and addresses of a lab's interfaces. No I/O.

use std::net::Ipv4Addr;

use crate::{
    host::Host,
    kernel::message::End,
    spec::{MAX_LINKS, MAX_LINKS_IN_ONE_SUBNET},
};

/// Topology that connects the cables of the two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// Separate cables, each with its own subnet.
    #[default]
    Apart,
    /// One switch for all cables, in one subnet.
    OneSubnet,
}

impl Wiring {
    /// Returns the maximum number of links, which the address ranges determine.
    pub(crate) fn max_links(self) -> usize {
        match self {
            Self::Apart => MAX_LINKS,
            Self::OneSubnet => MAX_LINKS_IN_ONE_SUBNET,
        }
    }

    /// Returns the bridges that connect the cables of `links` links.
    pub(crate) fn middles(self, links: usize) -> impl Iterator<Item = End> {
        let bridges = match self {
            Self::Apart => links,
            Self::OneSubnet => 1,
        };
        (0..bridges).map(move |link| self.middle(link))
    }

    pub(crate) fn middle(self, link: usize) -> End {
        match self {
            Self::Apart => end("cable", 4010, link),
            Self::OneSubnet => End {
                name: "switch".to_owned(),
                index: 4010,
            },
        }
    }

    /// Returns a host's IPv4 address on a link. The link's index must be below
    /// [`Wiring::max_links`]; building a lab checks that.
    pub(crate) fn address(self, host: Host, link: usize) -> Ipv4Addr {
        let octet = |base: usize| u8::try_from(base + link).unwrap_or(u8::MAX);
        match (self, host) {
            (Self::Apart, Host::A) => Ipv4Addr::new(10, 77, octet(1), 1),
            (Self::Apart, Host::B) => Ipv4Addr::new(10, 77, octet(1), 2),
            (Self::OneSubnet, Host::A) => Ipv4Addr::new(10, 9, 0, octet(11)),
            (Self::OneSubnet, Host::B) => Ipv4Addr::new(10, 9, 0, octet(21)),
        }
    }
}

/// Returns the interface of a link inside a host's namespace.
pub(crate) fn host_end(host: Host, link: usize) -> End {
    let base = match host {
        Host::A => 10,
        Host::B => 1010,
    };
    end("eth", base, link)
}

/// Returns the interface of a link in the cables' namespace that is connected to a host.
pub(crate) fn cable_end(host: Host, link: usize) -> End {
    match host {
        Host::A => end("a", 2010, link),
        Host::B => end("b", 3010, link),
    }
}

pub(crate) fn bus(host: Host) -> End {
    let (name, index) = match host {
        Host::A => ("busa", 5010),
        Host::B => ("busb", 5011),
    };
    End {
        name: name.to_owned(),
        index,
    }
}

/// Returns an interface whose name has `prefix` and whose index is in the range from `base`. All
/// ranges are disjoint: see [`End`]. A's and B's ranges differ too, so that a mix-up causes an
/// error.
fn end(prefix: &str, base: u32, link: usize) -> End {
    let number = u32::try_from(link + 1).unwrap_or(u32::MAX - base);
    End {
        name: format!("{prefix}{number}"),
        index: base + number,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_interfaces_share_an_index() {
        let ends = (0..MAX_LINKS).flat_map(|link| {
            let hosts = Host::ALL
                .into_iter()
                .flat_map(move |host| [host_end(host, link), cable_end(host, link)]);
            hosts.chain([Wiring::Apart.middle(link)])
        });
        let indexes: Vec<u32> = ends
            .chain([Wiring::OneSubnet.middle(0), bus(Host::A), bus(Host::B)])
            .map(|end| end.index)
            .collect();
        assert_eq!(indexes.iter().collect::<HashSet<_>>().len(), indexes.len());
    }

    #[test]
    fn each_link_has_a_subnet_of_its_own() {
        assert_eq!(
            Wiring::Apart.address(Host::A, 0),
            Ipv4Addr::new(10, 77, 1, 1)
        );
        assert_eq!(
            Wiring::Apart.address(Host::B, MAX_LINKS - 1),
            Ipv4Addr::new(10, 77, 254, 2)
        );
    }

    #[test]
    fn all_addresses_of_one_subnet_differ() {
        let wiring = Wiring::OneSubnet;
        assert_eq!(wiring.address(Host::A, 0), Ipv4Addr::new(10, 9, 0, 11));
        assert_eq!(wiring.address(Host::B, 1), Ipv4Addr::new(10, 9, 0, 22));
        let links = 0..wiring.max_links();
        let addresses: HashSet<_> = links
            .flat_map(|link| Host::ALL.map(|host| wiring.address(host, link)))
            .collect();
        assert_eq!(addresses.len(), 2 * wiring.max_links());
    }
}

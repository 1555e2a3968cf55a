//! IP addresses of interfaces, with their prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP address of an interface, with its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// IP address of the interface, without the prefix length.
    pub ip: IpAddr,
    /// Prefix length in bits: at most 32 (IPv4) or 128 (IPv6).
    pub prefix_len: u8,
    /// Remote address of a point-to-point interface; the prefix then applies to it instead of to
    /// `ip`.
    pub peer: Option<IpAddr>,
    /// True for an IPv6 temporary address (RFC 8981), which the system replaces about once a
    /// day by default.
    pub temporary: bool,
}

impl InterfaceAddress {
    /// Creates an address without a peer that is not temporary.
    pub fn new(ip: IpAddr, prefix_len: u8) -> Self {
        Self {
            ip,
            prefix_len,
            peer: None,
            temporary: false,
        }
    }

    /// Returns true for an IPv6 link-local address, which is unambiguous only together with its
    /// interface (RFC 4007).
    pub fn is_link_local(&self) -> bool {
        matches!(self.ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
    }

    /// Returns true if `remote` is in the prefix of this address; a point-to-point address has the
    /// prefix of its peer.
    pub fn is_on_link(&self, remote: IpAddr) -> bool {
        network(self.peer.unwrap_or(self.ip), self.prefix_len) == network(remote, self.prefix_len)
    }

    /// Returns true if `remote` is the network or broadcast address of this prefix (IPv4 only).
    pub(crate) fn is_broadcast(&self, remote: IpAddr) -> bool {
        let (IpAddr::V4(remote), true) = (remote, self.prefix_len < 31 && self.is_on_link(remote))
        else {
            return false;
        };
        let host_bits = u32::MAX
            .checked_shr(u32::from(self.prefix_len))
            .unwrap_or(0);
        let host = remote.to_bits() & host_bits;
        host == 0 || host == host_bits
    }
}

/// Returns the address with all bits after the prefix cleared. Keeps all bits if the prefix is
/// longer than the address.
fn network(ip: IpAddr, prefix_len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let host_bits = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & !host_bits).into()
        }
        IpAddr::V6(ip) => {
            let host_bits = u128::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & !host_bits).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_decide_what_is_on_link() {
        let on_link = |own: &str, len, remote: &str| {
            InterfaceAddress::new(own.parse().unwrap(), len).is_on_link(remote.parse().unwrap())
        };
        assert!(on_link("10.0.0.1", 24, "10.0.0.255"));
        assert!(!on_link("10.0.0.1", 24, "10.0.1.1"));
        assert!(on_link("10.0.0.1", 0, "8.8.8.8"));
        assert!(!on_link("10.0.0.1", 32, "10.0.0.2"));
        assert!(on_link("fe80::1", 64, "fe80::2"));
        assert!(!on_link("fe80::1", 64, "10.0.0.1"));
        assert!(
            !on_link("10.0.0.1", 200, "10.0.0.2"),
            "a prefix longer than the address is the whole address"
        );
    }

    #[test]
    fn the_first_and_last_address_of_a_prefix_are_broadcasts() {
        let own = InterfaceAddress::new("10.0.0.5".parse().unwrap(), 30);
        let broadcasts: Vec<_> = (0..10)
            .filter(|last| own.is_broadcast(Ipv4Addr::new(10, 0, 0, *last).into()))
            .collect();
        assert_eq!(broadcasts, [4, 7]);
        let pair = InterfaceAddress::new("10.0.0.4".parse().unwrap(), 31);
        assert!(
            !pair.is_broadcast("10.0.0.5".parse().unwrap()),
            "a /31 has none (RFC 3021)"
        );
    }
}

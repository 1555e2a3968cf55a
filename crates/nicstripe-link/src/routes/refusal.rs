//! Reasons for which the policy rejects a host route.

use std::net::IpAddr;

use thiserror::Error;

use crate::interface::{InterfaceIndex, name::InterfaceName};

/// Reason for which the policy rejects a host route.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The destination is a loopback, multicast, broadcast, unspecified or reserved address, or
    /// IPv4 embedded in IPv6.
    #[error("no route to {0}: not a unicast address of one machine")]
    NotUnicast(IpAddr),
    /// No interface has the requested index.
    #[error("no route to {destination}: no interface {interface}")]
    NoInterface {
        /// Destination address of the rejected route.
        destination: IpAddr,
        /// Index of the rejected route's interface.
        interface: InterfaceIndex,
    },
    /// The destination is an address of this machine.
    #[error("no route to {destination}: it is this machine's own address on {interface}")]
    Own {
        /// Destination address of the rejected route.
        destination: IpAddr,
        /// Name of the interface with that address.
        interface: InterfaceName,
    },
    /// The destination is the network or broadcast address of a local prefix.
    #[error("no route to {0}: it is the network or broadcast address of a prefix of this machine")]
    Broadcast(IpAddr),
    /// The destination is the gateway of a route; the host route would divert all traffic through
    /// it.
    #[error("no route to {0}: it is the gateway of a route")]
    Gateway(IpAddr),
    /// The destination is a name server of this machine.
    #[error("no route to {0}: it is a name server of this machine")]
    Resolver(IpAddr),
    /// The destination is in no prefix of the interface.
    #[error(
        "no route to {destination} by {interface}: the address is in none of the interface's prefixes"
    )]
    NotOnLink {
        /// Destination address of the rejected route.
        destination: IpAddr,
        /// Name of the rejected route's interface.
        interface: InterfaceName,
    },
    /// Another program has installed a host route to the destination.
    #[error("no route to {destination}: a foreign route (protocol {protocol}) exists")]
    Routed {
        /// Destination address of the rejected route.
        destination: IpAddr,
        /// Protocol of the existing route, as `ip route` prints it.
        protocol: String,
    },
    /// The requested source is not an address of the interface, or is of another family than the
    /// destination.
    #[error(
        "no route to {destination} by {interface}: the requested source is not an address of the interface"
    )]
    Source {
        /// Destination address of the rejected route.
        destination: IpAddr,
        /// Name of the rejected route's interface.
        interface: InterfaceName,
    },
}

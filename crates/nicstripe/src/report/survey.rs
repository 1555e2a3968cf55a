//! Survey of the links between two machines, for display.

use std::net::IpAddr;

use nicstripe_link::facts::InterfaceFacts;
use nicstripe_proto::BitRate;

use super::event::{LinkName, LinkState};

/// Links between two machines, and the interfaces that no link uses.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LinkSurvey {
    /// Links that carry data or are being connected.
    pub links: Vec<SurveyedLink>,
    /// Interfaces of both machines that no link uses.
    pub unused: Vec<UnusedInterface>,
    /// Attempts to connect unused interfaces that failed.
    pub failed: Vec<FailedLink>,
    /// Interfaces of the peer that the session knows: names, MTUs, addresses, and settings
    /// for IPv4.
    pub peer_interfaces: Vec<InterfaceFacts>,
    /// Theoretical goodput of all links together towards the peer; `None` unless it is known for
    /// each.
    pub expected: Option<BitRate>,
    /// True while probes run or announced paths are not yet connected.
    pub(crate) is_probing: bool,
}

impl LinkSurvey {
    /// Returns true if no probe is running and no announced path is still to be connected.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_probing
            && self
                .links
                .iter()
                .all(|link| link.state != LinkState::Connecting)
    }
}

/// Link in a survey: its ends, state, rates and MTU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyedLink {
    /// Interfaces and addresses at both ends of the link.
    pub link: LinkName,
    /// Reason why the client chose this link.
    pub reason: LinkReason,
    /// Connection state of the link.
    pub state: LinkState,
    /// True if packets arrive at the intended interface of the peer; `None` if unknown or not
    /// connected.
    pub verified: Option<bool>,
    /// Smaller of the interface MTUs at both ends of the link, in bytes.
    pub mtu: u32,
    /// Path MTU in bytes, if smaller than `mtu`.
    pub path_mtu: Option<u32>,
    /// Line rate of the local interface; `None` if unknown.
    pub line_rate: Option<BitRate>,
    /// Line rate of the peer's interface; `None` if unknown.
    pub peer_line_rate: Option<BitRate>,
    /// Theoretical goodput towards the peer; `None` if unknown.
    pub theory: Option<BitRate>,
    /// Number of TCP connections over this link.
    pub streams: u32,
    /// Member interfaces of the local interface if it is a bond; otherwise empty.
    pub members: Vec<String>,
    /// Member interfaces of the peer's interface if it is a bond; otherwise empty.
    pub peer_members: Vec<String>,
    /// Destination of the local host route that the link needs; `None` if it needs none.
    pub route: Option<IpAddr>,
}

/// Attempt to connect two interfaces that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedLink {
    /// Interfaces and addresses of the attempt.
    pub link: LinkName,
    /// Reason of the failure.
    pub why: LinkFailure,
    /// True if a machine answered for the peer's address on the cable (ARP, neighbour discovery);
    /// `None` if unknown.
    pub is_neighbour: Option<bool>,
}

/// Reason why an attempt to connect two interfaces failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkFailure {
    /// No answer to the connection.
    Silent,
    /// The machine refused the connection: its daemon does not listen at this address.
    Refused,
    /// The machine accepted and reset the connection.
    Reset,
    /// A filter of this machine rejects the connection.
    FilteredHere,
    /// A filter of the peer or on the way rejects the connection.
    Filtered,
    /// The kernel needs a host route, which was not permitted.
    Unrouted,
    /// The connection arrived at this interface of the peer instead.
    Misdirected {
        /// Interface of the peer.
        arrived: String,
    },
    /// Another machine answered.
    Stranger,
    /// The session has used all its connections.
    NoConnectionLeft,
}

/// Reason why the client chose a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkReason {
    /// The user named the link.
    Named,
    /// The kernel routes the host's address over it, and no better pair was found.
    Contact,
    /// The two ends share an IPv4 subnet that no other link uses.
    OwnSubnet,
    /// The link-local IPv6 address of the peer answers over it.
    LinkLocal,
    /// The two ends share an IPv6 prefix that no other link uses.
    OwnPrefix,
    /// The two ends share a subnet with other links.
    SharedSubnet,
}

/// Interface that the session does not use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusedInterface {
    /// True if the interface belongs to the peer.
    pub is_peers: bool,
    /// Name of the interface on its machine.
    pub interface: String,
    /// Reason why the interface is not used, in a few words.
    pub why: String,
    /// True if the interface was planned as a link and failed.
    pub failed: bool,
    /// True if a cable could make the interface a link: neither loopback nor Wi-Fi, for example, nor
    /// excluded by the caller.
    pub is_card: bool,
    /// True if it could have a cable and can carry nothing now: no carrier, no address, or down.
    pub is_idle: bool,
}

impl UnusedInterface {
    /// Returns an interface of this machine that is not used, and why.
    pub const fn new(interface: String, why: String) -> Self {
        Self {
            is_peers: false,
            interface,
            why,
            failed: false,
            is_card: false,
            is_idle: false,
        }
    }
}

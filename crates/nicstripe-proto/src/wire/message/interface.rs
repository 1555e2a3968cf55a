//! Network interfaces of a peer, and announcements of connections to them.

use std::net::IpAddr;

use minicbor::{Decode, Encode};

/// Network interface of a peer, as the peer describes it. Untrusted until probed.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PeerInterface {
    /// Name of the interface on the peer's machine.
    #[n(0)]
    pub name: String,
    /// Interface index on the peer's machine.
    #[n(1)]
    pub index: u32,
    /// IP addresses of the interface.
    #[n(2)]
    pub addresses: Vec<PeerAddress>,
    /// MTU of the interface in bytes.
    #[n(3)]
    pub mtu: u32,
    /// Line rate in bit/s, if known.
    #[n(4)]
    pub line_rate_bps: Option<u64>,
    /// Rate of a traffic shaper on egress in bit/s, if one is set. Counts Ethernet frames without
    /// preamble, checksum and inter-frame gap.
    #[n(5)]
    pub egress_limit_bps: Option<u64>,
    /// True if the peer uses the interface as a link by default.
    #[n(6)]
    pub candidate: bool,
    /// Hardware address, if any.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub mac: Option<[u8; 6]>,
    /// Names of the member interfaces if the interface is a bond.
    #[n(8)]
    pub members: Option<Vec<String>>,
    /// Number of connections needed to use all members of the bond, if more than one.
    #[n(9)]
    pub streams: Option<u8>,
    /// Kernel settings that affect IPv4 with several interfaces in one subnet, if known.
    #[n(10)]
    pub settings: Option<Ipv4Settings>,
}

impl PeerInterface {
    /// Returns an interface that is used by default, with an MTU of 1500 bytes and no other
    /// properties.
    pub fn new(name: impl Into<String>, index: u32) -> Self {
        Self {
            name: name.into(),
            index,
            addresses: Vec::new(),
            mtu: 1500,
            line_rate_bps: None,
            egress_limit_bps: None,
            candidate: true,
            mac: None,
            members: None,
            streams: None,
            settings: None,
        }
    }
}

/// Linux IPv4 settings of an interface; each is the maximum of `conf/all` and `conf/<interface>`
/// (`Documentation/networking/ip-sysctl.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ipv4Settings {
    /// Value of `arp_ignore`: 0 answers ARP requests for any local address, 1 only for addresses of
    /// this interface.
    #[n(0)]
    pub arp_ignore: u8,
    /// Value of `arp_announce`, the source address of ARP requests: 0 any local address, 2 the best
    /// one of this interface.
    #[n(1)]
    pub arp_announce: u8,
    /// Value of `rp_filter` (reverse-path filtering): 1 (strict) drops packets whose reply would
    /// leave by another interface.
    #[n(2)]
    pub rp_filter: u8,
}

/// IP address and prefix length of a [`PeerInterface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PeerAddress {
    /// IP address of the interface.
    #[n(0)]
    pub ip: IpAddr,
    /// Prefix length of the address in bits.
    #[n(1)]
    pub prefix_len: u8,
}

/// Daemon's interfaces after a change. Body of [`crate::Message::Interfaces`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Interfaces {
    /// All interfaces, as in [`Welcome`](super::Welcome).
    #[n(0)]
    pub interfaces: Vec<PeerInterface>,
}

/// Client's announcement of connections that it is about to make. Body of
/// [`crate::Message::Expect`].
///
/// A kernel with strict `rp_filter` may drop the first packet of such a connection. The daemon may
/// then install a host route to its source, if its policy permits.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expect {
    /// Announced connections, at most [`MAX_EXPECTED`].
    #[n(0)]
    pub connections: Vec<Expected>,
}

/// Maximum number of connections in one [`Expect`]; a daemon ignores further ones.
pub const MAX_EXPECTED: usize = 64;

/// Connection that the client is about to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expected {
    /// Source address of the connection, one of the client's own.
    #[n(0)]
    pub from: IpAddr,
    /// Index of the daemon's interface that the connection targets.
    #[n(1)]
    pub interface: u32,
    /// UDP port at the source address to which the daemon may send a [token](Token), to verify that
    /// the client owns the address.
    #[n(2)]
    pub port: Option<u16>,
    /// Token that the client received on that port, as proof that it owns the address.
    #[n(3)]
    pub token: Option<u64>,
}

/// Random number that a daemon sends to an address by UDP. Its return proves that the peer owns the
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u64);

impl Token {
    /// Length of the UDP datagram in bytes.
    pub const LEN: usize = 16;

    const MAGIC: [u8; 8] = *b"nicstrip";

    /// Encodes the token as the payload of a UDP datagram.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut datagram = [0; Self::LEN];
        datagram[..8].copy_from_slice(&Self::MAGIC);
        datagram[8..].copy_from_slice(&self.0.to_be_bytes());
        datagram
    }

    /// Decodes the payload of a UDP datagram; returns `None` if it is not a token.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let number = datagram.strip_prefix(&Self::MAGIC)?;
        number
            .try_into()
            .ok()
            .map(|number| Self(u64::from_be_bytes(number)))
    }
}

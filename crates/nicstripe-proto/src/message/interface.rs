//! What a peer says of its interfaces, and of connections between them.

use std::net::IpAddr;

use minicbor::{Decode, Encode};

/// One interface of a peer, as it describes itself. Nothing in it is believed that was not probed.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PeerInterface {
    /// Its name there.
    #[n(0)]
    pub name: String,
    /// Its index there.
    #[n(1)]
    pub index: u32,
    /// Its addresses.
    #[n(2)]
    pub addresses: Vec<PeerAddress>,
    /// Its MTU in bytes.
    #[n(3)]
    pub mtu: u32,
    /// Its line rate in bit/s, if known.
    #[n(4)]
    pub line_rate_bps: Option<u64>,
    /// What a shaper lets out of it, in bit/s of Ethernet frames without preamble, checksum and gap, if there is one.
    #[n(5)]
    pub egress_limit_bps: Option<u64>,
    /// Whether the peer would use it as a link unasked.
    #[n(6)]
    pub candidate: bool,
    /// Its hardware address, if it has one.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub mac: Option<[u8; 6]>,
    /// The names of its cables, where it is a bond.
    #[n(8)]
    pub members: Option<Vec<String>>,
    /// Connections that it takes until its members are all used, if more than one.
    #[n(9)]
    pub streams: Option<u8>,
    /// What its kernel does with IPv4 packets that may be another interface's, if known.
    #[n(10)]
    pub settings: Option<Ipv4Settings>,
}

impl PeerInterface {
    /// Returns an interface that its machine would use unasked, with Ethernet's MTU of 1500 bytes, of which nothing else is known.
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

/// Settings of Linux for an interface, each the greater of its own and that of all interfaces
/// (`Documentation/networking/ip-sysctl.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ipv4Settings {
    /// Which ARP requests are answered: 0 those for any address of the machine, 1 those for an address of the interface.
    #[n(0)]
    pub arp_ignore: u8,
    /// Which address ARP requests carry: 0 any, 2 the best of the interface.
    #[n(1)]
    pub arp_announce: u8,
    /// Whether packets are dropped that would be answered by another interface: 1 strictly so.
    #[n(2)]
    pub rp_filter: u8,
}

/// An address of a [`PeerInterface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PeerAddress {
    /// The address.
    #[n(0)]
    pub ip: IpAddr,
    /// Bits of its network's prefix.
    #[n(1)]
    pub prefix_len: u8,
}

/// Body of [`crate::Message::Interfaces`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Interfaces {
    /// All of them, as in [`Welcome`](super::Welcome).
    #[n(0)]
    pub interfaces: Vec<PeerInterface>,
}

/// Body of [`crate::Message::Expect`].
///
/// A daemon whose kernel would drop the first packet of such a connection (strict `rp_filter`) may install a host route to its source, if its
/// own rules let it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expect {
    /// The connections, at most [`MAX_EXPECTED`].
    #[n(0)]
    pub connections: Vec<Expected>,
}

/// Most connections in one [`Expect`]; a daemon ignores those beyond.
pub const MAX_EXPECTED: usize = 64;

/// A connection that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expected {
    /// The address that it comes from, one of the client's own.
    #[n(0)]
    pub from: IpAddr,
    /// Index of the daemon's interface that it is aimed at.
    #[n(1)]
    pub interface: u32,
    /// UDP port at that address to which the daemon may send a [token](Token), to see whether the address is the client's.
    #[n(2)]
    pub port: Option<u16>,
    /// The token that came there.
    #[n(3)]
    pub token: Option<u64>,
}

/// A number that only the owner of an address hears of: the datagram that a daemon sends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u64);

impl Token {
    /// Bytes of a datagram.
    pub const LEN: usize = 16;

    const MAGIC: [u8; 8] = *b"nicstrip";

    /// Returns the datagram.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut datagram = [0; Self::LEN];
        datagram[..8].copy_from_slice(&Self::MAGIC);
        datagram[8..].copy_from_slice(&self.0.to_be_bytes());
        datagram
    }

    /// Reads a datagram; `None` for any other.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let number = datagram.strip_prefix(&Self::MAGIC)?;
        number.try_into().ok().map(|number| Self(u64::from_be_bytes(number)))
    }
}

//! Network interfaces of a peer, and announcements of connections to them.

use std::{fmt, net::IpAddr};

use minicbor::{
    Decode, Decoder, Encode, Encoder, decode,
    encode::{self, Write},
};

/// Network interface of a peer, as described by the peer. The description is untrusted until a
/// probe confirms it.
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
    /// Line rate in bit/s; `None` if unknown.
    #[n(4)]
    pub line_rate_bps: Option<u64>,
    /// Egress rate of a traffic shaper in bit/s; `None` without a shaper. Counts Ethernet frames
    /// without preamble, checksum and inter-frame gap.
    #[n(5)]
    pub egress_limit_bps: Option<u64>,
    /// True if the peer uses the interface as a link by default.
    #[n(6)]
    pub candidate: bool,
    /// Hardware address; `None` if the interface has none.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub mac: Option<[u8; 6]>,
    /// Names of the member interfaces; `None` if the interface is not a bond.
    #[n(8)]
    pub members: Option<Vec<String>>,
    /// Number of connections needed to use all members of the bond; `None` if one suffices.
    #[n(9)]
    pub streams: Option<u8>,
    /// Kernel settings that affect IPv4 if one subnet has several interfaces; `None` if unknown.
    #[n(10)]
    pub settings: Option<Ipv4Settings>,
    /// Reason why the interface carries nothing, if a cable could make it a link; `None` for all
    /// other interfaces.
    #[n(11)]
    pub idle: Option<Idle>,
    /// Name of the interface whose cable this one shares, such as the card of a VLAN or macvlan;
    /// `None` for its own cable.
    #[n(12)]
    pub card: Option<String>,
}

/// Reason why an interface that could have a cable carries nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// An administrator has disabled the interface.
    Down,
    /// No cable is plugged in, or nothing is active at its far end.
    NoCarrier,
    /// The interface has no address, not even a link-local one.
    NoAddress,
    /// A reason that this version does not know.
    Other,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::NoCarrier => "no carrier",
            Self::NoAddress => "no address",
            Self::Other => "not ready",
        })
    }
}

impl<C> Encode<C> for Idle {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.u8(match self {
            Self::Down => 0,
            Self::NoCarrier => 1,
            Self::NoAddress => 2,
            Self::Other => u8::MAX,
        })?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Idle {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(match decoder.u8()? {
            0 => Self::Down,
            1 => Self::NoCarrier,
            2 => Self::NoAddress,
            _ => Self::Other,
        })
    }
}

impl PeerInterface {
    /// Returns an interface that is used by default. Its MTU is 1500 bytes, and it has no other
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
            idle: None,
            card: None,
        }
    }
}

/// Linux IPv4 settings of an interface. Each is the maximum of `conf/all` and `conf/<interface>`
/// (`Documentation/networking/ip-sysctl.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ipv4Settings {
    /// Value of `arp_ignore`. With 0, the kernel answers ARP requests for any local address; with
    /// 1, only for addresses of this interface.
    #[n(0)]
    pub arp_ignore: u8,
    /// Value of `arp_announce`, which selects the source address of ARP requests: 0 any local
    /// address, 2 the best address of this interface.
    #[n(1)]
    pub arp_announce: u8,
    /// Value of `rp_filter` (reverse-path filtering). With 1 (strict), the kernel drops packets
    /// whose reply would leave through another interface.
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
    /// All interfaces of the daemon, as in [`Welcome`](super::Welcome).
    #[n(0)]
    pub interfaces: Vec<PeerInterface>,
}

/// Client's announcement of connections that it is about to make. Body of
/// [`crate::Message::Expect`].
///
/// A kernel with strict `rp_filter` may drop the first packet of such a connection. To prevent
/// this, the daemon may install a host route to the connection's source, if its policy permits.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expect {
    /// Announced connections, at most [`MAX_EXPECTED`].
    #[n(0)]
    pub connections: Vec<Expected>,
}

/// Maximum number of connections in one [`Expect`]. A daemon ignores further ones.
pub const MAX_EXPECTED: usize = 64;

/// Connection that the client is about to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Expected {
    /// Source address of the connection. One of the client's own addresses.
    #[n(0)]
    pub from: IpAddr,
    /// Index of the daemon's interface to which the client will connect.
    #[n(1)]
    pub interface: u32,
    /// UDP port at the source address; `None` without one. The daemon may send a [token](Token) to
    /// this port, to verify that the client owns the address.
    #[n(2)]
    pub port: Option<u16>,
    /// Token that the client received on that port, as proof that it owns the address; `None`
    /// before.
    #[n(3)]
    pub token: Option<u64>,
}

/// Random number that a daemon sends to an address by UDP. The peer returns the number to prove
/// that it owns the address.
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

    /// Decodes the payload of a UDP datagram; `None` if the payload is not a token.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let number = datagram.strip_prefix(&Self::MAGIC)?;
        number
            .try_into()
            .ok()
            .map(|number| Self(u64::from_be_bytes(number)))
    }
}

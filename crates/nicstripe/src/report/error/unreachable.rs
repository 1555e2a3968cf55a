//! Report of all failed attempts to reach a host.

use std::{fmt, io, net::SocketAddr};

use nicstripe_proto::name::printable;

use crate::trust::PublicKey;

/// Failed attempts to reach a host: the search on the cables, name resolution and connections.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unreachable {
    /// Host name or address as the user gave it.
    pub host: String,
    /// TCP port of the daemon.
    pub port: u16,
    /// Local public key, which the host must trust.
    pub ours: PublicKey,
    /// Result of the search for the host on the cables.
    pub cables: CableSearch,
    /// Error of the resolver; `None` if it returned addresses or was not queried.
    pub resolver: Option<String>,
    /// Failed connections, with address and error.
    pub tried: Vec<Attempt>,
}

/// Result of the multicast search for a peer on the cables.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CableSearch {
    /// Interfaces that were searched without an answer.
    Silent(Vec<String>),
    /// Interfaces on which the peer answered; no connection to it succeeded.
    Answered(Vec<String>),
    /// Not searched: the search needs IPv6, and IPv4 was requested.
    Ipv4Only,
    /// Not searched: no interface is suitable, for this reason.
    Unfit(String),
    /// Not searched: the host is not in the peers file.
    NoPeer,
}

/// Failed connection to one address.
#[derive(Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Address of the host.
    pub address: SocketAddr,
    /// Local interface that the connection was bound to; `None` if it was not bound.
    pub interface: Option<String>,
    /// Error of the operating system.
    pub source: io::Error,
}

impl Unreachable {
    /// Returns true if the host is in the peers file.
    pub fn is_peer(&self) -> bool {
        self.cables != CableSearch::NoPeer
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        let host = printable(host.as_bytes());
        match &self.cables {
            CableSearch::Silent(searched) => {
                write!(
                    f,
                    "{host} is in the list of peers, but nothing answered on {} (port {port})",
                    searched.join(", ")
                )
            }
            CableSearch::Answered(on) => {
                write!(
                    f,
                    "{host} answers on {}, but does not accept connections (TCP port {port})",
                    on.join(", ")
                )
            }
            CableSearch::Ipv4Only => write!(
                f,
                "{host} is in the list of peers, but cannot be reached by IPv4 (port {port})"
            ),
            CableSearch::Unfit(why) => write!(
                f,
                "{host} is in the list of peers, but cannot be reached (port {port}): {why}"
            ),
            CableSearch::NoPeer => write!(f, "cannot connect to {host} (port {port})"),
        }?;
        self.tried
            .iter()
            .try_for_each(|tried| write!(f, "; {tried}"))?;
        match &self.resolver {
            Some(why) => write!(f, "; resolver: {}", printable(why.as_bytes())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address.ip())?;
        if let Some(interface) = &self.interface {
            write!(f, " over {interface}")?;
        }
        write!(f, ": {}", crate::text::chain(&self.source))
    }
}

impl std::error::Error for Unreachable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_was_tried_is_told() {
        let silent = || CableSearch::Silent(vec!["eth1".into(), "eth2".into()]);
        let tried = |address: &str, interface: &str| Attempt {
            address: address.parse().unwrap(),
            interface: Some(interface.into()),
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        let unreached = |cables, tried| Unreachable {
            host: "nas".into(),
            port: 7747,
            ours: PublicKey::from_bytes([7; 32]).unwrap(),
            cables,
            resolver: Some("unknown".into()),
            tried,
        };
        for (cables, tried, expected) in [
            (
                silent(),
                vec![],
                "nas is in the list of peers, but nothing answered on eth1, eth2 (port 7747); resolver: unknown",
            ),
            (
                silent(),
                vec![tried("10.0.0.2:7747", "eth0")],
                "nas is in the list of peers, but nothing answered on eth1, eth2 (port 7747); 10.0.0.2 over eth0: connection refused; resolver: unknown",
            ),
            (
                CableSearch::Ipv4Only,
                vec![],
                "nas is in the list of peers, but cannot be reached by IPv4 (port 7747); resolver: unknown",
            ),
            (
                CableSearch::Unfit("no cable".into()),
                vec![],
                "nas is in the list of peers, but cannot be reached (port 7747): no cable; resolver: unknown",
            ),
        ] {
            assert_eq!(unreached(cables, tried).to_string(), expected);
        }
        let other = Unreachable {
            resolver: None,
            ..unreached(
                CableSearch::NoPeer,
                vec![
                    tried("10.0.0.2:7747", "eth0"),
                    tried("[fd00::2]:7747", "eth0"),
                ],
            )
        };
        assert_eq!(
            other.to_string(),
            "cannot connect to nas (port 7747); 10.0.0.2 over eth0: connection refused; fd00::2 over eth0: connection refused"
        );
    }
}

//! Links as users name them, and related options.

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use nicstripe_link::Interface;
use nicstripe_proto::{BitRate, SessionConfig};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::local;
use crate::{
    file::options::DEFAULT_PORT,
    report::event::Event,
    trust::{AddressBook, PublicKey, Sightings},
};

/// Link that a user names; as text `LOCAL[=REMOTE]`.
///
/// ```
/// use nicstripe::{LinkEnd, LinkRequest};
/// let link: LinkRequest = "eth1=10.0.1.2".parse()?;
/// assert_eq!(link.local, LinkEnd::Interface("eth1".into()));
/// # Ok::<(), nicstripe::LinkRequestError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRequest {
    /// Local end of the link: an interface or one of its addresses.
    pub local: LinkEnd,
    /// Peer's end of the link; if `None`, the client finds it by probing.
    pub remote: Option<LinkEnd>,
    /// Maximum send rate of the link; `None` for no limit.
    pub cap: Option<BitRate>,
}

impl LinkRequest {
    /// Returns the link with the kernel's name in place of an alternative name of a local
    /// interface.
    pub(crate) fn by_name(&self, interfaces: &[Interface]) -> Self {
        let mut link = self.clone();
        if let LinkEnd::Interface(name) = &mut link.local
            && let Some(interface) = local::find(interfaces, name)
        {
            *name = interface.name.to_string();
        }
        link
    }
}

/// End of a link, as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEnd {
    /// Interface given by its name.
    Interface(String),
    /// Interface given by one of its addresses.
    Address(IpAddr),
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for LinkRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.local.fmt(f)?;
        self.remote
            .iter()
            .try_for_each(|remote| write!(f, "={remote}"))
    }
}

/// Failure to parse a link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid link \"{text}\": {why}, expected LOCAL[=REMOTE] as in eth1 or eth1=10.0.1.2")]
pub struct LinkRequestError {
    text: String,
    why: &'static str,
}

impl FromStr for LinkRequest {
    type Err = LinkRequestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why| LinkRequestError {
            text: text.into(),
            why,
        };
        let (local, remote) = match text.split_once('=') {
            Some((local, remote)) => (local, Some(remote)),
            None => (text, None),
        };
        let end = |text: &str| match text {
            "" => Err(error("an end is empty")),
            text => Ok(text
                .parse()
                .map_or_else(|_| LinkEnd::Interface(text.into()), LinkEnd::Address)),
        };
        Ok(Self {
            local: end(local)?,
            remote: remote.map(end).transpose()?,
            cap: None,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SessionSettings {
    pub(crate) port: u16,
    /// Links that the user named; if empty, all usable links are used.
    pub(crate) links: Vec<LinkRequest>,
    /// Names of interfaces that the user excluded.
    pub(crate) excluded: Vec<String>,
    /// Number of connections per link that the user requested; `None` for the default.
    pub(crate) streams: Option<u8>,
    pub(crate) bandwidth: Option<BitRate>,
    pub(crate) patience: Duration,
    pub(crate) family: Option<Family>,
    pub(crate) socket_buffer: Option<u64>,
    pub(crate) address_book: Option<AddressBook>,
    pub(crate) sightings: Option<Sightings>,
    /// Peer that a trusted channel has introduced; `None` to find the host by its name.
    pub(crate) introduced: Option<Introduced>,
    /// Channel for events while the client waits for the daemon.
    pub(crate) events: Option<mpsc::Sender<Event>>,
    /// True to wait while the daemon has no capacity for another session.
    pub(crate) queues: bool,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            port: DEFAULT_PORT,
            links: Vec::new(),
            excluded: Vec::new(),
            streams: None,
            bandwidth: None,
            patience: SessionConfig::default().patience,
            family: None,
            socket_buffer: None,
            address_book: None,
            sightings: None,
            introduced: None,
            events: None,
            queues: true,
        }
    }
}

impl SessionSettings {
    /// Returns true if the client finds the links itself; false if the user named them.
    pub(crate) fn is_automatic(&self) -> bool {
        self.links.is_empty()
    }
}

/// Key and addresses of a peer that a trusted channel has introduced.
#[derive(Debug, Clone)]
pub(crate) struct Introduced {
    pub(crate) key: PublicKey,
    pub(crate) addresses: Vec<IpAddr>,
    /// Cancelled when the peer's program has ended for good.
    pub(crate) gone: CancellationToken,
}

/// IP version to which a client is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 addresses only.
    V4,
    /// IPv6 addresses only.
    V6,
}

impl Family {
    pub(crate) fn has(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == (self == Self::V4)
    }
}

/// Policy for installing host routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoutePolicy {
    /// Install a route only if pinning a socket to its interface does not carry traffic
    /// ([`needs_route`](crate::routes::needs_route)), and the process has the permission. On Linux,
    /// pinning always works for links in separate subnets, so that they never need a route.
    #[default]
    Auto,
    /// Install a route for every link; missing permission is an error.
    Always,
    /// Install no host routes.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_by_interface_or_address() {
        let link: LinkRequest = "eth0".parse().unwrap();
        assert_eq!(
            (link.local, link.remote),
            (LinkEnd::Interface("eth0".into()), None)
        );
        let link: LinkRequest = "fd00::1=fd00::2".parse().unwrap();
        assert_eq!(
            link.remote,
            Some(LinkEnd::Address("fd00::2".parse().unwrap()))
        );
        assert_eq!(link.to_string(), "fd00::1=fd00::2");
    }

    #[test]
    fn what_names_no_link_is_refused() {
        for bad in ["", "=10.0.0.1", "eth0="] {
            assert!(bad.parse::<LinkRequest>().is_err(), "{bad:?}");
        }
    }
}

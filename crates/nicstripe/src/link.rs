//! Links as users name them.

use std::{fmt, net::IpAddr, str::FromStr};

use nicstripe_proto::BitRate;

/// A link that is asked for by name; as text `LOCAL[=REMOTE]`.
///
/// ```
/// use nicstripe::{LinkEnd, LinkRequest};
/// let link: LinkRequest = "eth1=10.0.1.2".parse()?;
/// assert_eq!(link.local, LinkEnd::Interface("eth1".into()));
/// # Ok::<(), nicstripe::LinkRequestError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRequest {
    /// Our end.
    pub local: LinkEnd,
    /// The peer's end; found by probing where it is not given.
    pub remote: Option<LinkEnd>,
    /// Most that is sent over it, in bit/s.
    pub cap: Option<BitRate>,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEnd {
    /// By the interface's name.
    Interface(String),
    /// By an address on it.
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
        self.remote.iter().try_for_each(|remote| write!(f, "={remote}"))
    }
}

/// Text that names no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid link \"{text}\": {why}, expected LOCAL[=REMOTE] as in eth1 or eth1=10.0.1.2")]
pub struct LinkRequestError {
    text: String,
    why: &'static str,
}

impl FromStr for LinkRequest {
    type Err = LinkRequestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why| LinkRequestError { text: text.into(), why };
        let (local, remote) = match text.split_once('=') {
            Some((local, remote)) => (local, Some(remote)),
            None => (text, None),
        };
        let end = |text: &str| match text {
            "" => Err(error("an end is empty")),
            text => Ok(text.parse().map_or_else(|_| LinkEnd::Interface(text.into()), LinkEnd::Address)),
        };
        Ok(Self { local: end(local)?, remote: remote.map(end).transpose()?, cap: None })
    }
}

/// Which IP versions may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl Family {
    pub(crate) fn has(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == (self == Self::V4)
    }
}

/// When host routes are installed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoutePolicy {
    /// Where pinning a socket to its interface does not carry traffic ([`needs_route`](crate::routes::needs_route)), and the process
    /// may. Links in subnets of their own are always carried by pinning on Linux, so for them that is nowhere.
    #[default]
    Auto,
    /// For every link; it is an error if the process may not.
    Always,
    /// Nowhere.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_by_interface_or_address() {
        let link: LinkRequest = "eth0".parse().unwrap();
        assert_eq!((link.local, link.remote), (LinkEnd::Interface("eth0".into()), None));
        let link: LinkRequest = "fd00::1=fd00::2".parse().unwrap();
        assert_eq!(link.remote, Some(LinkEnd::Address("fd00::2".parse().unwrap())));
        assert_eq!(link.to_string(), "fd00::1=fd00::2");
    }

    #[test]
    fn what_names_no_link_is_refused() {
        for bad in ["", "=10.0.0.1", "eth0="] {
            assert!(bad.parse::<LinkRequest>().is_err(), "{bad:?}");
        }
    }
}

//! Where a peer is, as typed: a daemon's host, or a machine that ssh reaches.
//!
//! | typed | meaning |
//! | --- | --- |
//! | `host` | the daemon there; if none answers and `host` is no trusted peer, ssh |
//! | `nicstripe://host[:port]` | the daemon there |
//! | `user@host`, `ssh://[user@]host[:port]` | ssh, which starts this program there |

use std::{fmt, str::FromStr};

use nicstripe::escaped;

use super::host::{Host, NoHost, NoUser, User};
use crate::{
    failure::{CommandError, exit::Exit},
    text::shown,
};

/// Where a peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) via: Via,
    pub(crate) host: Host,
    /// TCP port in a URL: the daemon's, or that of ssh.
    pub(crate) port: Option<u16>,
}

/// How a peer is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Via {
    /// The daemon; ssh if none answers at a host that is no trusted peer.
    Either,
    Daemon,
    /// ssh, as this user; `None` for the one that ssh chooses.
    Ssh {
        user: Option<User>,
    },
}

impl Via {
    /// Returns how the scheme of a URL reaches a peer; `None` for that of another protocol.
    pub(super) fn of_scheme(scheme: &[u8]) -> Option<Self> {
        match scheme {
            b"nicstripe" => Some(Self::Daemon),
            b"ssh" => Some(Self::Ssh { user: None }),
            _ => None,
        }
    }
}

impl Place {
    pub(crate) fn is_ssh(&self) -> bool {
        matches!(self.via, Via::Ssh { .. })
    }

    /// Returns the same host, reached by ssh as this user.
    pub(crate) fn as_user(&self, user: &str) -> Result<Self, PlaceError> {
        let via = ssh_as(user, user.as_bytes())?;
        Ok(Self {
            via,
            ..self.by_ssh()
        })
    }

    pub(super) fn by_ssh(&self) -> Self {
        match &self.via {
            Via::Ssh { .. } => self.clone(),
            Via::Either | Via::Daemon => Self {
                via: Via::Ssh { user: None },
                host: self.host.clone(),
                port: None,
            },
        }
    }

    /// Parses the text before a colon, or all of an argument: `host` or `user@host`. `whole` is the
    /// argument, for errors.
    pub(super) fn parse_host(host: &[u8], whole: &[u8]) -> Result<Self, PlaceError> {
        let wrong = || no_host(whole);
        let text = str::from_utf8(host).map_err(|_| wrong())?;
        let (via, host) = match text.rsplit_once('@') {
            Some((user, host)) => (ssh_as(user, whole)?, host),
            None => (Via::Either, text),
        };
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        Ok(Self {
            via,
            host: bracketed.unwrap_or(host).parse().map_err(|_| wrong())?,
            port: None,
        })
    }

    /// Parses the part of a URL between `SCHEME://` and the path.
    pub(super) fn parse_authority(
        scheme: Via,
        authority: &[u8],
        whole: &[u8],
    ) -> Result<Self, PlaceError> {
        let at = authority.iter().rposition(|byte| *byte == b'@');
        let (user, authority) = match at {
            Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
            None => (None, authority),
        };
        let via = match (scheme, user) {
            (via, None) => via,
            (Via::Ssh { .. }, Some(user)) => {
                ssh_as(str::from_utf8(user).map_err(|_| no_host(whole))?, whole)?
            }
            (_, Some(_)) => {
                return Err(PlaceError::UserOfDaemon {
                    text: escaped(whole),
                });
            }
        };
        let (host, port) = split_port(authority, whole)?;
        // RFC 6874 encodes the percent sign of the zone as %25; users type %.
        let host = str::from_utf8(host).map(|host| host.replace("%25", "%"));
        let host = host.ok().and_then(|host| host.parse().ok());
        Ok(Self {
            via,
            host: host.ok_or_else(|| no_host(whole))?,
            port,
        })
    }
}

/// Prints the place as typed, but for a scheme and a port.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Via::Ssh { user: Some(user) } = &self.via {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.host)
    }
}

/// Parses a whole argument: a host, `user@host`, or a URL without a path.
impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let whole = text.as_bytes();
        let url = text
            .split_once("://")
            .and_then(|(scheme, rest)| Some((Via::of_scheme(scheme.as_bytes())?, rest)));
        match url {
            Some((scheme, rest)) => {
                let authority = rest.strip_suffix('/').unwrap_or(rest);
                Self::parse_authority(scheme, authority.as_bytes(), whole)
            }
            None if text.contains('@') => Self::parse_host(whole, whole),
            None => Ok(Self {
                via: Via::Either,
                host: text.parse()?,
                port: None,
            }),
        }
    }
}

fn ssh_as(user: &str, whole: &[u8]) -> Result<Via, PlaceError> {
    match user.parse() {
        Ok(user) => Ok(Via::Ssh { user: Some(user) }),
        Err(NoUser) => Err(PlaceError::User {
            user: shown(user),
            text: escaped(whole),
        }),
    }
}

fn split_port<'a>(
    authority: &'a [u8],
    whole: &[u8],
) -> Result<(&'a [u8], Option<u16>), PlaceError> {
    let (host, port) = match authority.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest
                .iter()
                .position(|byte| *byte == b']')
                .ok_or_else(|| no_host(whole))?;
            (&rest[..end], &rest[end + 1..])
        }
        None => authority.split_at(
            authority
                .iter()
                .position(|byte| *byte == b':')
                .unwrap_or(authority.len()),
        ),
    };
    let Some(digits) = port.strip_prefix(b":") else {
        return if port.is_empty() {
            Ok((host, None))
        } else {
            Err(no_host(whole))
        };
    };
    match number(digits).filter(|port| *port != 0) {
        Some(port) => Ok((host, Some(port))),
        None => Err(PlaceError::Port {
            text: escaped(digits),
        }),
    }
}

pub(super) fn number(digits: &[u8]) -> Option<u16> {
    str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn no_host(whole: &[u8]) -> PlaceError {
    PlaceError::Host {
        text: escaped(whole),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The text is not a host name or address.
    #[error("no host in \"{text}\": expected HOST:PATH, or [ADDRESS]:PATH for IPv6")]
    Host { text: String },
    /// The whole argument is not a host name or address.
    #[error(transparent)]
    Name(#[from] NoHost),
    /// The text before the `@` is not a user.
    #[error("\"{user}\" is not a user in \"{text}\": expected USER@HOST, which is reached by ssh")]
    User { user: String, text: String },
    /// Daemons know keys, not users.
    #[error("\"{text}\" has a user: expected nicstripe://HOST[:PORT]/PATH, or ssh:// to log in")]
    UserOfDaemon { text: String },
    /// The port in a URL is not a TCP port.
    #[error("\"{text}\" is not a port: expected 1 to 65535")]
    Port {
        /// Text that was expected to be a port.
        text: String,
    },
}

impl CommandError for PlaceError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(user: &str, host: &str, port: Option<u16>) -> Place {
        let user = (!user.is_empty()).then(|| user.parse().unwrap());
        Place {
            via: Via::Ssh { user },
            host: host.parse().unwrap(),
            port,
        }
    }

    #[test]
    fn a_peer_is_a_daemon_or_a_machine_of_ssh() {
        let plain = |via: Via, host: &str, port| Place {
            via,
            host: host.parse().unwrap(),
            port,
        };
        for (text, place) in [
            ("nas", plain(Via::Either, "nas", None)),
            ("fe80::1%eth1", plain(Via::Either, "fe80::1%eth1", None)),
            ("nicstripe://nas", plain(Via::Daemon, "nas", None)),
            ("nicstripe://nas:99/", plain(Via::Daemon, "nas", Some(99))),
            (
                "nicstripe://[fe80::1%25eth1]:99",
                plain(Via::Daemon, "fe80::1%eth1", Some(99)),
            ),
            ("me@nas", ssh("me", "nas", None)),
            ("me@corp@nas", ssh("me@corp", "nas", None)),
            ("CORP\\me@nas", ssh("CORP\\me", "nas", None)),
            ("ssh://nas", ssh("", "nas", None)),
            ("ssh://me@nas:2222/", ssh("me", "nas", Some(2222))),
            ("ssh://me@[fd00::2]:22", ssh("me", "fd00::2", Some(22))),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        assert_eq!(ssh("me", "nas", Some(22)).to_string(), "me@nas");
    }

    #[test]
    fn nothing_typed_becomes_an_option_of_ssh_or_a_command_of_a_shell() {
        for text in [
            "-oProxyCommand=x@nas",
            "-oProxyCommand=x",
            "-Fx",
            "nicstripe://-Fx",
            "a;id",
            "$(id)",
            "me;id@nas",
            "m$(id)@nas",
            "me\\@nas",
            "me@-oProxyCommand=x",
            "ssh://-oProxyCommand=x",
            "ssh://-l@nas",
            "ssh://me:secret@nas",
            "me:secret@nas",
            "@nas",
            "me@",
            "a b@nas",
            "me@nas$(x)",
            "ssh://nas/path",
            "ssh://nas:0",
            "nicstripe://me@nas",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}

//! Host and user as typed: what the resolver, discovery and ssh get.

use std::{fmt, net::Ipv6Addr, ops::Deref, str::FromStr};

use crate::text::shown;

/// Name or address of a host, without brackets; or an alias of ssh.
///
/// Has only letters, digits and `-._:%`, and no `-` first: ssh takes it for no option, and a shell
/// that ssh starts with `%h` takes it for nothing but a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host(String);

/// The text is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{}\" is not a host: expected a name or an address of letters, digits and \"-._:%\", not beginning with \"-\"",
    shown(.0)
)]
pub(crate) struct NoHost(String);

impl FromStr for Host {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        let is_known = |c: char| c.is_alphanumeric() || "-._:%".contains(c);
        let is_host = !text.is_empty()
            && text.len() <= MAX_LEN
            && !text.starts_with('-')
            && text.chars().all(is_known);
        match is_host {
            true => Ok(Self(unmapped(text))),
            false => Err(NoHost(text.chars().take(MAX_LEN).collect())),
        }
    }
}

/// Returns the IPv4 address that an IPv6 address maps (RFC 4291, section 2.5.5.2), or the text.
fn unmapped(text: &str) -> String {
    let mapped = text
        .parse()
        .ok()
        .and_then(|ip: Ipv6Addr| ip.to_ipv4_mapped());
    mapped.map_or_else(|| text.to_owned(), |ip| ip.to_string())
}

/// User of another machine.
///
/// Has no character with a meaning to a shell, and no `-` first: ssh takes it for no option, and a
/// shell that ssh starts with `%r` takes it for nothing but a word. A backslash separates a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User(String);

/// The text is not a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoUser;

impl FromStr for User {
    type Err = NoUser;

    fn from_str(text: &str) -> Result<Self, NoUser> {
        let is_known = |c: char| c.is_alphanumeric() || "-._@+~\\".contains(c);
        let is_user = !text.is_empty()
            && text.len() <= MAX_LEN
            && !text.starts_with('-')
            && !text.ends_with('\\')
            && text.chars().all(is_known);
        is_user.then(|| Self(text.to_owned())).ok_or(NoUser)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deref for Host {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Length of the longest name in DNS, in bytes (RFC 1035).
const MAX_LEN: usize = 255;

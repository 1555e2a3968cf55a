//! Parsing and printing of listen addresses.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use nicstripe::ListenAddress;
use serde::Deserialize;

use crate::{
    connect::arguments::parse_port,
    failure::{Fault, usage},
};

/// Listen address, with an interface name if it is an IPv6 address with a zone. Port 0 stands for
/// the port of `--port`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Listen {
    address: SocketAddr,
    zone: Option<String>,
}

impl Listen {
    /// Returns the socket address, with the interface name resolved to its index.
    pub(super) fn resolve(&self) -> Result<SocketAddr, Fault> {
        let (SocketAddr::V6(mut address), Some(zone)) = (self.address, &self.zone) else {
            return Ok(self.address);
        };
        let index = zone.parse().or_else(|_| interface_index(zone));
        address.set_scope_id(
            index.map_err(|error| usage(format!("no interface {zone:?}")).because(error))?,
        );
        Ok(address.into())
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_listen(&text)
    }
}

fn interface_index(name: &str) -> io::Result<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(name_to_index(any, name)?)
}

/// Parses `10.0.0.1`, `10.0.0.1:99`, `fe80::1%eth1`, `[fe80::1%eth1]` or `[fe80::1%eth1]:99`.
pub(super) fn parse_listen(text: &str) -> Result<Listen, String> {
    let wrong = || {
        "not an address: expected ADDRESS, ADDRESS:PORT, or for IPv6 [ADDRESS]:PORT or [ADDRESS%INTERFACE]:PORT".to_owned()
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
        None if text.matches(':').count() == 1 => {
            text.split_at(text.find(':').unwrap_or(text.len()))
        }
        None => (text, ""),
    };
    let port = match port.strip_prefix(':') {
        Some(digits) => parse_port(digits).map_err(|_| wrong())?,
        None if port.is_empty() => 0,
        None => return Err(wrong()),
    };
    let (address, zone) = host
        .split_once('%')
        .map_or((host, None), |(address, zone)| (address, Some(zone)));
    let ip: IpAddr = address.parse().map_err(|_| wrong())?;
    match zone {
        Some(zone) if zone.is_empty() || ip.is_ipv4() => Err(wrong()),
        zone => Ok(Listen {
            address: SocketAddr::new(ip, port),
            zone: zone.map(str::to_owned),
        }),
    }
}

/// Returns one line per interface or address that the daemon listens on. IPv4 and IPv6 share a
/// line.
pub(super) fn listening(listens: &[ListenAddress]) -> Vec<String> {
    let mut lines = Vec::new();
    for ListenAddress {
        interface, address, ..
    } in listens
    {
        let other_version = |other: &&ListenAddress| {
            other.interface == *interface
                && other.address.is_ipv4() != address.is_ipv4()
                && other.address.port() == address.port()
        };
        let has_other_version = listens
            .iter()
            .filter(|other| other.address.ip().is_unspecified())
            .any(|other| other_version(&other));
        let line = match (address.ip().is_unspecified(), has_other_version) {
            (false, _) => {
                format!(
                    "listening on {interface}, {}, port {}",
                    address.ip(),
                    address.port()
                )
            }
            (true, true) => format!("listening on {interface}, port {}", address.port()),
            (true, false) => format!(
                "listening on {interface}, port {} ({} only)",
                address.port(),
                version(address)
            ),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn version(address: &SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(String, Option<String>)> {
        parse_listen(text)
            .ok()
            .map(|listen| (listen.address.to_string(), listen.zone))
    }

    #[test]
    fn addresses_may_have_a_port_and_an_interface() {
        for (text, address, zone) in [
            ("10.0.0.1", "10.0.0.1:0", None),
            ("10.0.0.1:99", "10.0.0.1:99", None),
            ("::1", "[::1]:0", None),
            ("[::1]", "[::1]:0", None),
            ("[::1]:99", "[::1]:99", None),
            ("fe80::1%eth1", "[fe80::1]:0", Some("eth1")),
            ("[fe80::1%eth1]:99", "[fe80::1]:99", Some("eth1")),
        ] {
            assert_eq!(
                parse(text),
                Some((address.to_owned(), zone.map(str::to_owned))),
                "{text}"
            );
        }
        for text in [
            "",
            "eth1",
            "10.0.0.1:",
            "10.0.0.1:0",
            "10.0.0.1:99x",
            "10.0.0.1%eth1",
            "[::1",
            "[::1]x",
            "fe80::1%",
            "nas:99",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_interface_is_named_once_with_the_versions_of_ip_that_it_lacks() {
        let listen = |interface: &str, address: &str| {
            ListenAddress::new(interface.into(), address.parse().unwrap())
        };
        let all = [
            listen("eth1", "0.0.0.0:7"),
            listen("eth1", "[::]:7"),
            listen("eth2", "0.0.0.0:7"),
            listen("eth3", "10.0.0.1:7"),
            listen("eth3", "10.0.0.2:7"),
            listen("eth4", "0.0.0.0:7"),
            listen("eth4", "[::]:8"),
        ];
        let expected = [
            "listening on eth1, port 7",
            "listening on eth2, port 7 (IPv4 only)",
            "listening on eth3, 10.0.0.1, port 7",
            "listening on eth3, 10.0.0.2, port 7",
            "listening on eth4, port 7 (IPv4 only)",
            "listening on eth4, port 8 (IPv6 only)",
        ];
        assert_eq!(listening(&all), expected);
    }

    #[test]
    fn an_interface_is_found_by_name_or_refused_by_name() {
        let listen = |zone: &str| Listen {
            address: "[fe80::1]:0".parse().unwrap(),
            zone: Some(zone.into()),
        };
        // A number is taken as an interface index.
        assert_eq!(listen("7").resolve().unwrap().to_string(), "[fe80::1%7]:0");
        let error = listen("nosuch0").resolve().unwrap_err();
        assert!(error.to_string().contains("nosuch0"), "{error}");
    }
}

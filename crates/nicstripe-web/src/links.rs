//! Links to a web server: an HTTP client for each interface that may lead to it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper_util::client::proxy::matcher::Matcher;
use nicstripe_link::{Interface, InterfaceKind, LeftOut, interfaces};
use reqwest::{Client, Url, redirect::Policy};
use tokio::{net::lookup_host, time::timeout};

use crate::{
    ask::{Asked, Link},
    error::WebError,
    metered::metered,
};

/// Links by which a server may be reached, and interfaces that are not used, with the reason.
pub(crate) struct Links {
    pub(crate) links: Vec<Link>,
    pub(crate) left_out: Vec<(String, String)>,
}

/// Which interfaces the user wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted<'a> {
    /// Interfaces to use, and no others; empty for all that may lead to the server.
    pub(crate) only: &'a [String],
    pub(crate) excluded: &'a [String],
}

impl Links {
    /// Finds the interfaces that may lead to each URL, and makes a client for each.
    pub(crate) async fn find(asked: Vec<Asked>, wanted: &Wanted<'_>) -> Result<Self, WebError> {
        let mut found = Self {
            links: Vec::new(),
            left_out: Vec::new(),
        };
        for (source, asked) in asked.into_iter().enumerate() {
            let (names, left_out) = names(asked.url.url(), wanted).await?;
            let asked = Arc::new(asked);
            for interface in names {
                let client = client(&interface).map_err(|error| WebError::NoLink {
                    host: asked.url.host().to_owned(),
                    left_out: vec![(interface.clone(), error.to_string())],
                })?;
                found.links.push(Link {
                    interface,
                    client,
                    asked: asked.clone(),
                    source,
                });
            }
            if source == 0 {
                found.left_out = left_out;
            }
        }
        Ok(found)
    }
}

/// Returns the names of the interfaces that may lead to a URL, and the others with the reason.
async fn names(
    url: &Url,
    wanted: &Wanted<'_>,
) -> Result<(Vec<String>, Vec<(String, String)>), WebError> {
    let host = url.host_str().unwrap_or_default();
    let failed = |left_out| WebError::NoLink {
        host: host.to_owned(),
        left_out,
    };
    let all =
        interfaces().map_err(|error| failed(vec![("interfaces".to_owned(), error.to_string())]))?;
    let is_local = is_this_machine(first_host(url), &all).await;
    let (names, left_out) = choose(&all, is_local, wanted, &metered(&all).await);
    // A misspelled name would leave the intended interface out.
    let unknown: Vec<_> = left_out
        .iter()
        .filter(|(_, why)| why == UNKNOWN)
        .cloned()
        .collect();
    match (unknown.is_empty(), names.is_empty()) {
        (false, _) => Err(failed(unknown)),
        (true, true) => Err(failed(left_out)),
        (true, false) => Ok((names, left_out)),
    }
}

/// Returns host and port to which the connections for a URL lead: those of the proxy if the
/// environment names one.
fn first_host(url: &Url) -> (String, u16) {
    let proxy = || {
        let uri = url.as_str().parse().ok()?;
        let proxy = Matcher::from_env().intercept(&uri)?;
        let host = proxy.uri().host()?.to_owned();
        Some((host, proxy.uri().port_u16().unwrap_or_default()))
    };
    let host = || url.host_str().unwrap_or_default().to_owned();
    proxy().unwrap_or_else(|| (host(), url.port_or_known_default().unwrap_or_default()))
}

/// Returns true if the host is this machine: by its name, or because all its addresses are those of
/// interfaces here. The kernel leads to them over the loopback interface only.
async fn is_this_machine((host, port): (String, u16), all: &[Interface]) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let is_own =
        |ip: IpAddr| ip.is_loopback() || all.iter().any(|interface| interface.has_address(ip));
    if let Ok(ip) = host.parse() {
        return is_own(ip);
    }
    // A proxy may know names that the resolver does not.
    let Ok(Ok(found)) = timeout(LOOKUP_TIME, lookup_host((host, port))).await else {
        return false;
    };
    let mut found = found
        .map(|address: SocketAddr| is_own(address.ip()))
        .peekable();
    found.peek().is_some() && found.all(|is_own| is_own)
}

/// Returns the names of the interfaces to try, and those that are excluded, with the reason.
fn choose(
    all: &[Interface],
    is_local: bool,
    wanted: &Wanted<'_>,
    metered: &[String],
) -> (Vec<String>, Vec<(String, String)>) {
    let (mut names, mut left_out) = (Vec::new(), Vec::new());
    for interface in all {
        let name = interface.name.to_string();
        let is_named = |list: &[String]| list.iter().any(|typed| is_meant(interface, typed));
        let verdict = match is_named(wanted.excluded) {
            true => Err("excluded".to_owned()),
            false if !wanted.only.is_empty() => match is_named(wanted.only) {
                true => interface.usable().map_err(|why| why.to_string()),
                false => Err("not named".to_owned()),
            },
            false if !is_local && metered.contains(&name) => Err(METERED.to_owned()),
            false => may_lead(interface, all, is_local).map_err(|why| why.to_string()),
        };
        match verdict {
            Ok(()) => names.push(name),
            Err(why) => left_out.push((name, why)),
        }
    }
    for typed in wanted.only {
        if !all.iter().any(|interface| is_meant(interface, typed)) {
            left_out.push((typed.clone(), UNKNOWN.to_owned()));
        }
    }
    (names, left_out)
}

/// Returns true if an interface is typed by its name or one of its addresses.
fn is_meant(interface: &Interface, typed: &str) -> bool {
    interface.is_called(typed)
        || typed
            .parse()
            .is_ok_and(|address| interface.has_address(address))
}

const UNKNOWN: &str = "no such interface";

const METERED: &str = "metered (NetworkManager), used with --link only";

/// Decides whether an interface may lead to a web server: cables, and unlike between two daemons, also
/// Wi-Fi and telephones. A tunnel leads through one of the others.
fn may_lead(interface: &Interface, all: &[Interface], is_local: bool) -> Result<(), LeftOut> {
    if is_local {
        return match interface.kind {
            InterfaceKind::Loopback => interface.usable(),
            _ => Err(LeftOut::NoCable),
        };
    }
    match interface.candidate(all) {
        Err(LeftOut::WiFi) => interface.usable(),
        Err(LeftOut::NoCable) if interface.kind == InterfaceKind::Other => interface.usable(),
        verdict => verdict,
    }
}

fn client(interface: &str) -> reqwest::Result<Client> {
    Client::builder()
        .interface(interface)
        .user_agent(concat!("nicstripe/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .referer(false)
        .build()
}

/// Timeout of the lookup of the host's addresses. The clients look up again.
const LOOKUP_TIME: Duration = Duration::from_secs(5);

/// Time for a connection with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of one answer in flight over HTTP/2: 1 Gbit/s over a round trip of 64 ms.
const STREAM_WINDOW: u32 = 8 << 20;

const CONNECTION_WINDOW: u32 = 16 << 20;

#[cfg(test)]
mod tests {
    use nicstripe_link::{InterfaceAddress, InterfaceIndex};

    use super::*;

    fn interface(index: u32, name: &str, kind: InterfaceKind) -> Interface {
        let mut interface = Interface::new(InterfaceIndex(index), name.parse().unwrap(), kind);
        let address = InterfaceAddress::new([10, 0, index as u8, 1].into(), 24);
        interface.addresses = vec![address];
        interface
    }

    fn machine() -> Vec<Interface> {
        vec![
            interface(1, "lo", InterfaceKind::Loopback),
            interface(2, "eth0", InterfaceKind::Ethernet),
            interface(3, "wlan0", InterfaceKind::WiFi),
            interface(4, "wwan0", InterfaceKind::Other),
            interface(7, "wwan1", InterfaceKind::Other),
            interface(5, "wg0", InterfaceKind::Tunnel),
            interface(6, "docker0", InterfaceKind::Bridge),
        ]
    }

    fn names(is_local: bool, only: &[&str], excluded: &[&str]) -> Vec<String> {
        let owned = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let (only, excluded) = (owned(only), owned(excluded));
        let wanted = Wanted {
            only: &only,
            excluded: &excluded,
        };
        choose(&machine(), is_local, &wanted, &["wwan1".to_owned()]).0
    }

    #[test]
    fn cables_wi_fi_and_telephones_that_are_not_metered_may_lead_to_a_server() {
        assert_eq!(names(false, &[], &[]), ["eth0", "wlan0", "wwan0"]);
        assert_eq!(names(false, &[], &["wwan0"]), ["eth0", "wlan0"]);
        assert_eq!(names(true, &[], &[]), ["lo"]);
    }

    #[test]
    fn an_interface_that_is_named_is_taken_whatever_it_is() {
        assert_eq!(names(false, &["wg0", "eth0"], &[]), ["eth0", "wg0"]);
        assert_eq!(names(false, &["wwan1"], &[]), ["wwan1"], "it is metered");
        let only = ["eth7".to_owned()];
        let wanted = Wanted {
            only: &only,
            excluded: &[],
        };
        let (names, left_out) = choose(&machine(), false, &wanted, &[]);
        assert!(names.is_empty());
        assert!(left_out.contains(&("eth7".to_owned(), "no such interface".to_owned())));
    }

    #[tokio::test]
    async fn this_machine_is_known_by_its_names_and_addresses() {
        for (host, expected) in [
            ("127.0.0.1", true),
            ("[::1]", true),
            ("LocalHost", true),
            ("10.0.2.1", true),
            ("10.0.0.1", false),
            ("host.invalid", false),
        ] {
            let found = is_this_machine((host.to_owned(), 80), &machine()).await;
            assert_eq!(found, expected, "{host}");
        }
    }
}

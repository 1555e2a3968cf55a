//! Check of the `Host` header of requests to a local server, against DNS rebinding.
//!
//! In that attack, a page of another site points its own host name to this machine, so that the
//! browser treats the local server as part of that site. The `Host` header then carries the site's
//! name, and the request can be rejected.

use std::net::{IpAddr, SocketAddr};

/// Host name that requests may carry besides IP addresses and `localhost`. Only servers bound to a
/// loopback address check it.
#[derive(Debug, Clone)]
pub(crate) struct OwnNames(Option<String>);

impl OwnNames {
    /// Returns the allowed host names of a server that was configured as `HOST:PORT` in `typed` and
    /// is bound to `bound`. `None` if `bound` is not a loopback address, which allows every name.
    pub(crate) fn of(typed: &str, bound: SocketAddr) -> Option<Self> {
        bound
            .ip()
            .to_canonical()
            .is_loopback()
            .then(|| Self(Some(name_of(typed)).filter(|name| !name.is_empty())))
    }

    /// Returns true if a `Host` header, or an HTTP/2 authority, is an IP address, `localhost`, a
    /// subdomain of `localhost`, or the configured name.
    pub(crate) fn has(&self, host: &str) -> bool {
        let name = name_of(host);
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(&name);
        let is_local = name == "localhost" || name.ends_with(".localhost");
        is_local || bare.parse::<IpAddr>().is_ok() || self.0.as_ref() == Some(&name)
    }
}

/// Returns the host name without its port, in lower case and without a final dot.
fn name_of(host: &str) -> String {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (name.ends_with(']') || !name.contains(':')) => name,
        _ => host,
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_the_name_that_was_typed_are_its_own() {
        let names = OwnNames::of("box.lan:8000", ([127, 0, 0, 1], 8000).into()).unwrap();
        for own in [
            "localhost",
            "LOCALHOST.:8000",
            "a.localhost:1",
            "127.0.0.1:8000",
            "[::1]:8000",
            "[::1]",
            "10.0.0.1",
            "Box.lan:99",
        ] {
            assert!(names.has(own), "{own:?}");
        }
        for other in [
            "evil.com",
            "evil.com:8000",
            "localhost.evil.com",
            "127.0.0.1.evil.com",
            "127.0.0.1@evil.com",
            "",
            ":8000",
            "box",
            "x:y:1",
        ] {
            assert!(!names.has(other), "{other:?}");
        }
    }

    #[test]
    fn what_others_reach_may_have_any_name() {
        assert!(OwnNames::of("0.0.0.0:8000", ([0, 0, 0, 0], 8000).into()).is_none());
        assert!(OwnNames::of("localhost:0", "[::1]:8000".parse().unwrap()).is_some());
        assert!(OwnNames::of("localhost:0", "[::ffff:127.0.0.1]:8000".parse().unwrap()).is_some());
    }
}

//! Addresses and socket files at which a daemon may listen for a peer.

use std::{fmt, net::SocketAddr, path::Path, str::FromStr};

use super::{
    dial::{UNIX, is_socket_path},
    key::shorten,
    line::LineError,
};

/// Where to listen for connections: a TCP address and port, or a socket file.
///
/// Written as `[ADDRESS:]PORT` or `unix:/PATH`. The address is 127.0.0.1 by default, also for
/// `localhost`; an IPv6 address is in brackets. Port 0 stands for any free port, and only for that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListenTarget(Place);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Place {
    Tcp(SocketAddr),
    /// Absolute path.
    File(String),
}

impl ListenTarget {
    /// Returns the TCP address and port; `None` for a socket file.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.0 {
            Place::Tcp(address) => Some(address),
            Place::File(_) => None,
        }
    }

    /// Returns the absolute path of the socket file; `None` for a TCP address.
    pub fn socket_file(&self) -> Option<&Path> {
        match &self.0 {
            Place::Tcp(_) => None,
            Place::File(path) => Some(Path::new(path)),
        }
    }

    /// Returns the same TCP address with another port. A socket file has none and stays as it is.
    pub fn with_port(mut self, port: u16) -> Self {
        if let Place::Tcp(address) = &mut self.0 {
            address.set_port(port);
        }
        self
    }
}

/// Writes the address even if it is the default.
impl fmt::Display for ListenTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Tcp(address) => write!(f, "{address}"),
            Place::File(path) => write!(f, "{UNIX}{path}"),
        }
    }
}

impl FromStr for ListenTarget {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let place = match text.strip_prefix(UNIX) {
            Some(path) => is_socket_path(path).then(|| Place::File(path.to_owned())),
            None => address_of(text).map(Place::Tcp),
        };
        place.map(Self).ok_or_else(|| LineError::Listen {
            text: shorten(text),
        })
    }
}

fn address_of(text: &str) -> Option<SocketAddr> {
    let (address, port) = match text.rsplit_once(':') {
        Some(("localhost", port)) => (LOCALHOST, port),
        Some((address, port)) => (address, port),
        None => (LOCALHOST, text),
    };
    let is_plain = port == "0" || !port.starts_with('0');
    let address = format!("{address}:{port}").parse().ok();
    address.filter(|_| is_plain)
}

/// Default address, to which only programs on this machine can connect.
const LOCALHOST: &str = "127.0.0.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_localhost_unless_it_is_given() {
        for (text, canonical) in [
            ("8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:65535", "[::1]:65535"),
            ("[0::1]:1", "[::1]:1"),
            ("unix:/run/a b.sock", "unix:/run/a b.sock"),
        ] {
            let target: ListenTarget = text.parse().unwrap();
            assert_eq!(target.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(target));
        }
        let any: ListenTarget = "0".parse().unwrap();
        assert_eq!(any.with_port(9).to_string(), "127.0.0.1:9");
        for wrong in [
            "", ":", ":80", "a", "-1", "+1", "080", "65536", "nas:80", "::1:80", "[::1]", "80:",
            "*:80", "unix:", "unix:x", "unix:/\n", "/run/x",
        ] {
            let error = wrong.parse::<ListenTarget>().unwrap_err().to_string();
            assert!(error.contains("[ADDRESS:]PORT"), "{wrong}: {error}");
        }
    }
}

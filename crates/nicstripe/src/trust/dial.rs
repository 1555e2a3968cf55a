//! Services that a peer may connect to.

use std::{fmt, path::Path, str::FromStr};

use nicstripe_proto::tunnel::MAX_TARGET;

use super::{
    key::{is_hidden, shorten},
    line::LineError,
};

/// Service that a tunnel connects to: `HOST:PORT`, `[ADDRESS]:PORT` for an IPv6 address, or
/// `unix:/PATH` for a socket file.
///
/// Compared as text: `localhost:22` differs from `127.0.0.1:22`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DialTarget(String);

impl DialTarget {
    /// Returns the target as text, such as `localhost:22`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the absolute path of the socket file; `None` for a host and port.
    pub fn socket_file(&self) -> Option<&Path> {
        let path = self.0.strip_prefix(UNIX)?;
        path.starts_with('/').then(|| Path::new(path))
    }
}

impl fmt::Display for DialTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DialTarget {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let is_allowed = match text.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') => is_socket_path(path),
            _ => is_service(text),
        };
        if !is_allowed {
            return Err(LineError::Dial {
                text: shorten(text),
            });
        }
        Ok(Self(text.to_owned()))
    }
}

fn is_service(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_port = port.parse::<u16>().is_ok() && !port.starts_with(['+', '0']);
    is_port && is_host(host) && text.len() <= MAX_TARGET
}

/// Returns true if the text may be a host name or IP address. An IPv6 address must be in brackets.
fn is_host(text: &str) -> bool {
    let inside = text
        .strip_prefix('[')
        .map_or(Some(text), |rest| rest.strip_suffix(']'));
    let is_bracketed = text.starts_with('[');
    let bad = |c: char| {
        c.is_whitespace() || is_hidden(c) || matches!(c, '[' | ']' | '*' | '/' | '"' | ',')
    };
    inside.is_some_and(|host| {
        !host.is_empty() && !host.contains(bad) && (is_bracketed || !host.contains(':'))
    })
}

/// Returns true if the text may be the absolute path of a socket file.
pub(super) fn is_socket_path(path: &str) -> bool {
    path.starts_with('/') && path.len() <= MAX_SOCKET_PATH && !path.contains(is_hidden)
}

/// Text before the path of a socket file.
pub(super) const UNIX: &str = "unix:";

/// Maximum length of a socket file's path in bytes: `sun_path` of unix(7) without its final zero.
const MAX_SOCKET_PATH: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_port_or_a_socket_file() {
        let longest = format!("unix:/{}", "x".repeat(MAX_SOCKET_PATH - 1));
        for (text, file) in [
            ("localhost:22", None),
            ("[::1]:22", None),
            ("unix:22", None),
            ("unix:/run/x.sock", Some("/run/x.sock")),
            ("unix:/run/a b:1,\"c\"\\", Some("/run/a b:1,\"c\"\\")),
            (longest.as_str(), longest.strip_prefix("unix:")),
        ] {
            let target: DialTarget = text.parse().unwrap();
            assert_eq!(target.as_str(), text);
            assert_eq!(target.socket_file(), file.map(Path::new));
        }
        for wrong in [
            "unix:",
            "unix:run/x.sock",
            "unix:/run/\0",
            "unix:/run/\n",
            "unix:/run/\u{202e}",
            &format!("{longest}x"),
            "a/b:22",
            "listen/127.0.0.1:80",
            "accepted/1",
            "accepted/a:1",
            "::1:22",
        ] {
            let error = wrong.parse::<DialTarget>().unwrap_err().to_string();
            assert!(error.contains("or unix:/PATH"), "{wrong}: {error}");
        }
    }
}

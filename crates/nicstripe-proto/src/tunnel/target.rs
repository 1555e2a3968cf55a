//! Targets of tunnels, as the text of an open record.

use std::fmt;

/// Target that a client requests for a tunnel.
///
/// No host has a slash, so the text of a service never begins like one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// Connection to a service that the daemon reaches: `HOST:PORT` or `unix:/PATH`.
    Service(&'a str),
    /// Listener of the daemon at `ADDRESS:PORT` or `unix:/PATH`, which lives as long as the tunnel.
    Listen(&'a str),
    /// Connection with this number that a listener of the session has accepted.
    Accepted(u32),
}

impl<'a> Target<'a> {
    /// Parses the text of an open record. Text of no other form is a service.
    pub fn parse(text: &'a str) -> Self {
        let number = |digits: &str| digits.parse().ok().filter(|_| is_plain(digits));
        match (text.strip_prefix(LISTEN), text.strip_prefix(ACCEPTED)) {
            (Some(address), _) => Self::Listen(address),
            (_, Some(digits)) => number(digits).map_or(Self::Service(text), Self::Accepted),
            _ => Self::Service(text),
        }
    }
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(text) => f.write_str(text),
            Self::Listen(address) => write!(f, "{LISTEN}{address}"),
            Self::Accepted(number) => write!(f, "{ACCEPTED}{number}"),
        }
    }
}

/// Returns true for digits without a sign or leading zeros.
fn is_plain(digits: &str) -> bool {
    digits.starts_with(|first: char| first.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

const LISTEN: &str = "listen/";
const ACCEPTED: &str = "accepted/";

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn a_target_is_parsed_as_it_was_written() {
        for (text, target) in [
            ("localhost:22", Target::Service("localhost:22")),
            ("unix:/run/x.sock", Target::Service("unix:/run/x.sock")),
            ("listen:22", Target::Service("listen:22")),
            ("listen/127.0.0.1:0", Target::Listen("127.0.0.1:0")),
            ("listen/unix:/run/x", Target::Listen("unix:/run/x")),
            ("listen/", Target::Listen("")),
            ("accepted/0", Target::Accepted(0)),
            ("accepted/4294967295", Target::Accepted(u32::MAX)),
            ("accepted/", Target::Service("accepted/")),
            ("accepted/01", Target::Service("accepted/01")),
            ("accepted/+1", Target::Service("accepted/+1")),
            ("accepted/1 ", Target::Service("accepted/1 ")),
            (
                "accepted/4294967296",
                Target::Service("accepted/4294967296"),
            ),
            ("", Target::Service("")),
        ] {
            assert_eq!(Target::parse(text), target, "{text}");
            assert_eq!(target.to_string(), text);
        }
    }
}

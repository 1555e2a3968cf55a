//! Forwards as typed: where to accept connections, and the service that gets them.

use nicstripe::trust::{DialTarget, ListenTarget};

/// Place where connections are accepted at one machine, and the service at the other that they are
/// carried to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) from: ListenTarget,
    pub(super) to: DialTarget,
}

impl Spec {
    /// Parses a forward from this machine, whose socket file may be relative to the working
    /// directory.
    pub(super) fn local(text: &str) -> Result<Self, String> {
        let (from, to) = split(text).ok_or_else(|| not_a_forward(text))?;
        let path = std::path::absolute(from);
        let path = path.as_ref().ok().and_then(|path| path.to_str());
        match path.filter(|_| is_path(from)) {
            Some(path) => Self::of(&format!("{UNIX}{path}"), to, text),
            None => Self::of(from, to, text),
        }
    }

    /// Parses a forward from the peer, whose socket file is absolute.
    pub(super) fn remote(text: &str) -> Result<Self, String> {
        let (from, to) = split(text).ok_or_else(|| not_a_forward(text))?;
        match is_path(from) {
            true => Self::of(&format!("{UNIX}{from}"), to, text),
            false => Self::of(from, to, text),
        }
    }

    fn of(from: &str, to: &str, text: &str) -> Result<Self, String> {
        let because = |error: &dyn std::fmt::Display| format!("{}: {error}", not_a_forward(text));
        Ok(Self {
            from: from
                .parse::<ListenTarget>()
                .map_err(|error| because(&error))?,
            to: to.parse::<DialTarget>().map_err(|error| because(&error))?,
        })
    }
}

fn not_a_forward(text: &str) -> String {
    format!(
        "not a forward: {text:?}, expected [BIND:]PORT:HOST:HOSTPORT, as in 8080:localhost:80 or [::1]:5432:db:5432, with a path in place of [BIND:]PORT and unix:/PATH in place of HOST:HOSTPORT for socket files"
    )
}

/// Splits a forward into its two ends.
fn split(text: &str) -> Option<(&str, &str)> {
    let at = match is_path(text) {
        true => text.find(':')?,
        false => match text.find(TO_FILE) {
            Some(at) => at,
            None => before_service(text)?,
        },
    };
    Some((&text[..at], &text[at + 1..]))
}

/// Returns the position of the last colon but one that is not within brackets.
fn before_service(text: &str) -> Option<usize> {
    let mut depth = 0_i32;
    let is_between = |(_, c): &(usize, char)| {
        depth += i32::from(*c == '[') - i32::from(*c == ']');
        *c == ':' && depth == 0
    };
    let colons = text.char_indices().filter(is_between);
    let colons: Vec<usize> = colons.map(|(at, _)| at).collect();
    colons.len().checked_sub(2).map(|index| colons[index])
}

/// Returns true if a socket file is meant, as ssh reads it.
fn is_path(text: &str) -> bool {
    text.starts_with(['/', '.'])
}

const UNIX: &str = "unix:";

/// Colon before a socket file as the service, and how it begins.
const TO_FILE: &str = ":unix:/";

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(parse: fn(&str) -> Result<Spec, String>, text: &str) -> Option<(String, String)> {
        let spec = parse(text).ok()?;
        Some((spec.from.to_string(), spec.to.to_string()))
    }

    #[test]
    fn forwards_are_read_as_ssh_reads_them() {
        for (text, from, to) in [
            ("8080:localhost:80", "127.0.0.1:8080", "localhost:80"),
            ("0.0.0.0:8080:web:80", "0.0.0.0:8080", "web:80"),
            ("localhost:8080:web:80", "127.0.0.1:8080", "web:80"),
            ("[::1]:5432:[fe80::1]:5432", "[::1]:5432", "[fe80::1]:5432"),
            ("80:unix:/run/x:y", "127.0.0.1:80", "unix:/run/x:y"),
            ("[::1]:80:unix:/run/x", "[::1]:80", "unix:/run/x"),
            ("80:unix:81", "127.0.0.1:80", "unix:81"),
            ("/run/x.sock:web:80", "unix:/run/x.sock", "web:80"),
            ("unix:/run/x.sock:web:80", "unix:/run/x.sock", "web:80"),
            ("/run/x.sock:unix:/y", "unix:/run/x.sock", "unix:/y"),
        ] {
            let expected = Some((from.to_owned(), to.to_owned()));
            assert_eq!(spec(Spec::local, text), expected, "{text}");
            assert_eq!(spec(Spec::remote, text), expected, "{text}");
        }
        for wrong in [
            "",
            "80",
            "80:web",
            "a:web:80",
            "80:web:0",
            "80:web:x",
            "80::80",
            "x:80:web:80",
            "1:2:3:4:5",
            "/run/x",
            "/run/x:80",
            "/run/x:unix:y",
            "80:unix:y",
            "80:/run/x",
        ] {
            assert_eq!(spec(Spec::local, wrong), None, "{wrong}");
            assert_eq!(spec(Spec::remote, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_socket_file_here_may_be_relative() {
        let here = std::env::current_dir().unwrap();
        let (from, _) = spec(Spec::local, "./x.sock:web:80").unwrap();
        assert_eq!(from, format!("unix:{}/x.sock", here.display()));
        assert_eq!(spec(Spec::remote, "./x.sock:web:80"), None);
    }
}

//! Files and directories here and at a daemon, as typed.
//!
//! | typed | meaning |
//! | --- | --- |
//! | `host:path` | file at the daemon on `host`; a colon before the first slash makes it remote |
//! | `[fe80::1%eth1]:path` | the same by IPv6 address |
//! | `nicstripe://host[:port]/path` | the same as a URL; `%` and two hexadecimal digits in the path are a byte |
//! | `user@host:path`, `ssh://[user@]host[:port]/path` | file on a machine that ssh reaches |
//! | `./a:b`, `/a:b`, `a` | local file |
//! | `-` | standard input or output |
//!
//! Remote paths are relative to the daemon's root, also after `./` or `~/`. An absolute path must lie
//! in the root, whose place the daemon announces ([`rooted`]); in a URL it is relative. By ssh, paths
//! mean what they mean to scp ([`super::ssh_path`]). A trailing slash, or an empty path, means the
//! directory.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    net::{IpAddr, Ipv6Addr},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use nicstripe::{DEFAULT_PORT, Name, NameError, escaped};

use super::place::{Place, PlaceError, Via, no_host, number};
use crate::{
    failure::{CommandError, exit::Exit},
    text::{
        invocation::{Invocation, quoted},
        shown,
    },
};

/// Returns the path here that a name, or a part of one, stands for.
pub(crate) fn path_of<'a>(components: impl IntoIterator<Item = &'a [u8]>) -> PathBuf {
    components.into_iter().map(OsStr::from_bytes).collect()
}

/// Source or target of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    Local(PathBuf),
    /// File or directory at a daemon.
    Remote(Remote),
    /// Standard input or output.
    Pipe,
}

/// File or directory at a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) place: Place,
    /// Path of the file, relative to the daemon's root.
    pub(crate) path: RemotePath,
    /// True if the path begins at the root of the file system, which only ssh reaches.
    pub(crate) is_absolute: bool,
}

/// Path at a daemon, relative to its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemotePath {
    Root,
    /// Directory, typed with a trailing slash.
    Directory(Name),
    /// File, or directory typed without a trailing slash.
    File(Name),
}

/// Prints the location as a user could type it, with special characters escaped.
impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.is_absolute { "/" } else { "" };
        write!(f, "{}:{slash}", self.place)?;
        match &self.path {
            RemotePath::Root => Ok(()),
            RemotePath::Directory(name) => write!(f, "{name}/"),
            RemotePath::File(name) => write!(f, "{name}"),
        }
    }
}

impl Location {
    pub(crate) fn parse(argument: &OsStr) -> Result<Self, LocationError> {
        let bytes = argument.as_bytes();
        if bytes.is_empty() {
            return Err(LocationError::Empty);
        }
        if is_pipe(argument) {
            return Ok(Self::Pipe);
        }
        if let Some((scheme, rest)) = split_scheme(bytes) {
            return match Via::of_scheme(scheme) {
                Some(scheme) => parse_url(scheme, rest, argument).map(Self::Remote),
                None => Err(LocationError::Scheme {
                    scheme: escaped(scheme),
                }),
            };
        }
        let Some((host, path)) = split_host(bytes) else {
            return Ok(Self::Local(argument.into()));
        };
        match bytes {
            _ if host.ends_with(b"]") => parse_remote(host, path, bytes),
            _ => parse_host_and_path(host, path, bytes),
        }
        .map(Self::Remote)
    }
}

/// Returns `HOST:PATH` with its absolute path made relative to `root`, the directory that the daemon
/// serves; `None` if the argument has no absolute remote path. `HOST:/` is the root itself.
///
/// # Errors
///
/// The path is outside the root.
pub(super) fn rooted(argument: &OsStr, root: &Path) -> Result<Option<OsString>, LocationError> {
    let bytes = argument.as_bytes();
    let is_local = is_pipe(argument) || split_scheme(bytes).is_some();
    let Some((host, path)) = split_host(bytes).filter(|_| !is_local) else {
        return Ok(None);
    };
    if !path.starts_with(b"/") || path.iter().all(|byte| *byte == b'/') {
        return Ok(None);
    }
    let Ok(inside) = Path::new(OsStr::from_bytes(path)).strip_prefix(root) else {
        return Err(LocationError::OutsideRoot {
            host: escaped(host),
            path: escaped(path),
            root: shown(root),
        });
    };
    let inside = inside.as_os_str().as_bytes();
    let slash: &[u8] = match path.ends_with(b"/") && !inside.is_empty() {
        true => b"/",
        false => b"",
    };
    let whole = [host, separator(inside), inside, slash].concat();
    Ok(Some(OsString::from_vec(whole)))
}

/// Returns the path of a remote argument, and true if it is that of a URL; `None` if the argument is
/// local or malformed.
pub(super) fn remote_path(argument: &OsStr) -> Option<(Vec<u8>, bool)> {
    let bytes = argument.as_bytes();
    if is_pipe(argument) {
        return None;
    }
    let Some((_, rest)) = split_scheme(bytes) else {
        return split_host(bytes).map(|(_, path)| (path.to_vec(), false));
    };
    let slash = rest.iter().position(|byte| *byte == b'/');
    let path = slash.map_or(Some(OsString::new()), |slash| unescape(&rest[slash..]));
    Some((path?.into_vec(), true))
}

/// Returns what joins a host and a relative path. Without `./`, some paths look like a port or a home
/// directory.
fn separator(path: &[u8]) -> &'static [u8] {
    let is_odd = path.contains(&b':') || matches!(path.first(), Some(b'~' | b'0'..=b'9'));
    if is_odd { b":./" } else { b":" }
}

/// Returns an address of a daemon as `cp` takes it for the daemon's root: `[fe80::1%eth1]:`, or a URL
/// if the port is not the default one.
pub(crate) fn as_target(ip: &Ipv6Addr, zone: &str, port: u16) -> String {
    match port {
        DEFAULT_PORT => format!("[{ip}%{zone}]:"),
        port => format!("nicstripe://[{ip}%{zone}]:{port}/"),
    }
}

/// Returns an argument of a copy for display: as typed, but for a URL of ssh, which
/// [`super::ssh_path`] also makes.
pub(crate) fn shown_place(argument: &OsStr) -> String {
    match Location::parse(argument) {
        Ok(Location::Remote(remote)) if remote.place.is_ssh() => remote.to_string(),
        _ => shown(argument),
    }
}

/// Returns the parent directory of a typed remote name, with a trailing slash, or `host:` for the root.
pub(crate) fn parent(typed: &OsStr) -> &OsStr {
    let bytes = typed.as_bytes();
    let name = bytes.strip_suffix(b"/").unwrap_or(bytes);
    let end = name
        .iter()
        .rposition(|byte| matches!(byte, b'/' | b':'))
        .map_or(0, |at| at + 1);
    OsStr::from_bytes(&bytes[..end])
}

/// Returns true if the argument is a file at a web server or in an S3 store.
pub(crate) fn is_elsewhere(argument: &OsStr) -> bool {
    is_of_scheme(argument, &[b"http", b"https", b"s3"])
}

fn is_of_scheme(argument: &OsStr, schemes: &[&[u8]]) -> bool {
    split_scheme(argument.as_bytes()).is_some_and(|(found, _)| {
        schemes
            .iter()
            .any(|scheme| found.eq_ignore_ascii_case(scheme))
    })
}

#[cfg(feature = "web")]
pub(crate) fn is_web_url(argument: &OsStr) -> bool {
    is_of_scheme(argument, &[b"http", b"https"])
}

#[cfg(feature = "web")]
pub(crate) fn is_s3(argument: &OsStr) -> bool {
    is_of_scheme(argument, &[b"s3"])
}

pub(crate) fn is_pipe(argument: &OsStr) -> bool {
    matches!(argument.as_bytes(), b"-" | b"/dev/stdin" | b"/dev/stdout")
}

impl RemotePath {
    pub(crate) fn name(&self) -> Option<&Name> {
        match self {
            Self::Root => None,
            Self::Directory(name) | Self::File(name) => Some(name),
        }
    }

    /// Parses the path after `host:`.
    fn parse(bytes: &[u8]) -> Result<Self, LocationError> {
        // The home of a peer is the daemon's root.
        let bytes = match bytes {
            [b'~'] | [b'~' | b'.', b'/', ..] => &bytes[1..],
            _ => bytes,
        };
        let relative = &bytes[bytes.iter().take_while(|byte| **byte == b'/').count()..];
        match relative {
            b"" | b"." | b"./" => Ok(Self::Root),
            [.., b'/'] => Ok(Self::Directory(Name::parse(relative)?)),
            _ => Ok(Self::File(Name::parse(relative)?)),
        }
    }
}

/// Splits a URL into its scheme and the text after `://`. `None` if the text is no URL.
fn split_scheme(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = bytes.windows(3).position(|three| three == b"://")?;
    let scheme = &bytes[..colon];
    let is_scheme = scheme.first()?.is_ascii_alphabetic()
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    is_scheme.then_some((scheme, &bytes[colon + 3..]))
}

/// Splits `HOST:PATH` at the colon: the one behind an address in brackets, or the first one, if no
/// slash comes before it. `None` if the argument is local.
fn split_host(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    // `[ADDRESS]:PATH`, or `USER@[ADDRESS]:PATH`.
    let at = bytes
        .iter()
        .position(|byte| matches!(byte, b'@' | b':' | b'/'));
    let user = at.filter(|at| bytes[*at] == b'@').map_or(0, |at| at + 1);
    let bracket = || bytes.windows(2).position(|pair| pair == b"]:");
    let colon = match &bytes[user..] {
        [b'[', ..] if let Some(end) = bracket() => end + 1,
        _ => {
            let end = bytes.iter().position(|byte| matches!(byte, b':' | b'/'))?;
            (bytes[end] == b':').then_some(end)?
        }
    };
    Some((&bytes[..colon], &bytes[colon + 1..]))
}

fn parse_host_and_path(host: &[u8], path: &[u8], whole: &[u8]) -> Result<Remote, LocationError> {
    if host.is_empty() || path.first() == Some(&b':') || is_hex_group(host, path) {
        return Err(no_host(whole).into());
    }
    parse_remote(host, path, whole)
}

fn parse_remote(host: &[u8], path: &[u8], whole: &[u8]) -> Result<Remote, LocationError> {
    let place = Place::parse_host(host, whole)?;
    check_port(&place.host, path, whole)?;
    let inside = match place.is_ssh() {
        // Resolved once the home directory is known.
        true => without_parents(path),
        false => path,
    };
    Ok(Remote {
        is_absolute: place.is_ssh() && path.starts_with(b"/"),
        place,
        path: RemotePath::parse(inside)?,
    })
}

fn without_parents(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            b".." => &[],
            [b'.', b'.', b'/', rest @ ..] => rest,
            _ => return path,
        };
    }
}

/// Rejects `host:7747:/x`, `host:7747` and `10.0.0.2:80`, because a port belongs in `-P` or a URL. A
/// file of that name can be typed as `host:./7747`, a directory named `7747:` as `host:/7747:/x`.
fn check_port(host: &str, path: &[u8], whole: &[u8]) -> Result<(), LocationError> {
    let (digits, rest, is_port) = match path.iter().position(|byte| *byte == b':') {
        Some(colon) => (&path[..colon], &path[colon + 1..], true),
        // As `discover` and `ss` print an address with its port.
        None => (path, &[][..], is_address(host)),
    };
    let port = number(digits).filter(|port| is_port || *port == DEFAULT_PORT);
    match port.filter(|_| rest.first().is_none_or(|byte| *byte == b'/')) {
        Some(port) => Err(LocationError::PortInPath {
            text: escaped(whole),
            host: host.to_owned(),
            port,
            rest: escaped(rest),
        }),
        None => Ok(()),
    }
}

fn is_address(host: &str) -> bool {
    let without_zone = host.split('%').next().unwrap_or_default();
    without_zone.parse::<IpAddr>().is_ok()
}

/// Returns true for an IPv6 address typed without brackets, such as `fd00:1::2:file`.
fn is_hex_group(host: &[u8], path: &[u8]) -> bool {
    let is_group =
        |bytes: &[u8]| (1..=4).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_hexdigit);
    let groups = path.iter().filter(|byte| **byte == b':').count();
    is_group(host) && groups >= 2 && path.windows(2).any(|pair| pair == b"::")
}

fn parse_url(scheme: Via, rest: &[u8], argument: &OsStr) -> Result<Remote, LocationError> {
    let whole = argument.as_bytes();
    let slash = rest
        .iter()
        .position(|byte| *byte == b'/')
        .unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let place = Place::parse_authority(scheme, authority, whole)?;
    let path = unescape(path).ok_or_else(|| LocationError::Escape {
        text: escaped(whole),
    })?;
    let path = path.as_bytes();
    // A URL of ssh has an absolute path, or /~/ for the home directory, as for git and rsync.
    let path = match path.strip_prefix(b"/~") {
        Some(rest) if place.is_ssh() && (rest.is_empty() || rest.starts_with(b"/")) => {
            rest.strip_prefix(b"/").unwrap_or(rest)
        }
        _ => path,
    };
    Ok(Remote {
        path: RemotePath::parse(path)?,
        is_absolute: place.is_ssh() && path.starts_with(b"/"),
        place,
    })
}

/// Decodes percent escapes, `%41` to `A`. `None` if a percent sign is not followed by two
/// hexadecimal digits.
fn unescape(bytes: &[u8]) -> Option<OsString> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            plain.push(*byte);
            continue;
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        plain.push(u8::try_from(value).ok()?);
    }
    Some(OsString::from_vec(plain))
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LocationError {
    #[error("an empty source or target is not allowed: expected a path or HOST:PATH")]
    Empty,
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(
        "\"{scheme}://\" is not supported: expected nicstripe://HOST[:PORT]/PATH or ssh://[USER@]HOST[:PORT]/PATH"
    )]
    Scheme { scheme: String },
    /// The path begins with a port, as in `host:7747:/x`.
    #[error("\"{text}\" has port {port} where the path begins")]
    PortInPath {
        text: String,
        host: String,
        port: u16,
        /// Text after the port: empty, or a path that begins with a slash.
        rest: String,
    },
    /// A percent sign in the path of a URL is not followed by two hexadecimal digits.
    #[error(
        "\"{text}\" has a percent sign without two hexadecimal digits: expected %25 for the sign itself"
    )]
    Escape { text: String },
    /// The path is absolute, and not in the directory that the daemon serves.
    #[error("\"{path}\" is outside \"{root}\", the directory that {host} serves")]
    OutsideRoot {
        host: String,
        path: String,
        root: String,
    },
    /// The path begins at the home directory of a user whom the other machine does not have.
    #[error("there is no user \"{user}\" on {host}")]
    NoUser { user: String, host: String },
    /// The remote path is not a valid relative path.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl CommandError for LocationError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn hint(&self, _: &Invocation) -> Option<String> {
        match self {
            Self::PortInPath {
                host, port, rest, ..
            } => Some(port_hint(host, *port, rest.trim_start_matches('/'))),
            Self::OutsideRoot { host, path, .. } => Some(format!(
                "remote paths are relative to that directory: {}",
                quoted(format!("{host}:{}", path.trim_start_matches('/')))
            )),
            _ => None,
        }
    }
}

fn port_hint(host: &str, port: u16, path: &str) -> String {
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    format!(
        "give the port in a URL, nicstripe://{host}:{port}/{path}, or with -P {port}; a file of that name is {host}:./{port}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(text.as_ref())
    }

    fn remote(text: &str) -> (String, Option<u16>, RemotePath) {
        match parse(text) {
            Ok(Location::Remote(Remote { place, path, .. })) => {
                (place.host.to_string(), place.port, path)
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    fn file(path: &str) -> RemotePath {
        RemotePath::File(Name::parse(path.as_bytes()).unwrap())
    }

    fn directory(path: &str) -> RemotePath {
        RemotePath::Directory(Name::parse(path.as_bytes()).unwrap())
    }

    #[test]
    fn a_colon_before_the_first_slash_means_remote() {
        assert_eq!(remote("nas:a/b:c"), ("nas".into(), None, file("a/b:c")));
        assert_eq!(remote("10.77.1.2:x"), ("10.77.1.2".into(), None, file("x")));
        for local in [
            "a", "./a:b", "/a:b", "a/b:c", "../x", "dir/", "[x", "[x]y", "a@b", "./-",
        ] {
            assert_eq!(parse(local), Ok(Location::Local(local.into())), "{local}");
        }
        for pipe in ["-", "/dev/stdin", "/dev/stdout"] {
            assert_eq!(parse(pipe), Ok(Location::Pipe));
        }
        assert_eq!(remote("nas:-"), ("nas".into(), None, file("-")));
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        assert_eq!(
            remote("[fe80::1%eth1]:a"),
            ("fe80::1%eth1".into(), None, file("a"))
        );
        assert_eq!(
            remote("[fd00::2]:"),
            ("fd00::2".into(), None, RemotePath::Root)
        );
        // With a user, as scp has it; and an IPv4 address that is mapped.
        for (typed, host) in [
            ("me@[fe80::1%eth1]:a", "fe80::1%eth1"),
            ("me@[::1]:a", "::1"),
            ("[::ffff:10.77.1.2]:a", "10.77.1.2"),
            ("[::ffff:a4d:102]:a", "10.77.1.2"),
        ] {
            assert_eq!(remote(typed).0, host, "{typed}");
        }
        for bare in ["::1:a", "fe80::1:a", "fd00:1::2:a", "fe80::1%eth1:a"] {
            let error = parse(bare).unwrap_err().to_string();
            assert!(error.starts_with("no host in "), "{bare}: {error}");
        }
    }

    #[test]
    fn a_leading_slash_is_the_daemons_root_and_a_trailing_one_a_directory() {
        assert_eq!(remote("nas:/a/b").2, file("a/b"));
        assert_eq!(remote("nas:a//b").2, file("a/b"));
        assert_eq!(remote("nas:a/").2, directory("a"));
        assert_eq!(remote("nas:~/a").2, file("a"));
        assert_eq!(remote("nas:./a/").2, directory("a"));
        assert_eq!(remote("nas:~a").2, file("~a"));
        for root in [
            "nas:",
            "nas:/",
            "nas:.",
            "nas:./",
            "nas:~",
            "nas:~/",
            "nicstripe://nas",
            "nicstripe://nas/",
        ] {
            assert_eq!(remote(root).2, RemotePath::Root, "{root}");
        }
    }

    #[test]
    fn an_absolute_path_is_understood_within_the_served_directory() {
        let rooted = |typed: &str, root: &str| {
            let made = rooted(typed.as_ref(), root.as_ref());
            made.map(|made| made.map(|made| made.into_string().unwrap()))
        };
        for (typed, root, made) in [
            ("nas:/srv/in", "/srv/in", "nas:"),
            ("nas:/srv/in/", "/srv/in", "nas:"),
            ("nas:/srv/in/", "/srv/in/", "nas:"),
            ("nas:/srv//in/x", "/srv/in", "nas:x"),
            ("nas:/srv/in/a/b/", "/srv/in", "nas:a/b/"),
            ("nas:/srv/in/*.img", "/srv/in", "nas:*.img"),
            ("nas:/srv/in/~x", "/srv/in", "nas:./~x"),
            ("nas:/srv/in/7747", "/srv/in", "nas:./7747"),
            ("10.0.0.2:/srv/in/22", "/srv/in", "10.0.0.2:./22"),
            ("nas:/srv/in/7747:/x", "/srv/in", "nas:./7747:/x"),
            ("nas:/etc/x", "/", "nas:etc/x"),
            ("[fe80::1%eth1]:/srv/in/x", "/srv/in", "[fe80::1%eth1]:x"),
        ] {
            assert_eq!(rooted(typed, root), Ok(Some(made.into())), "{typed}");
            assert!(parse(made).is_ok(), "{made}");
        }
        for relative in [
            "nas:x",
            "nas:",
            "nas:/",
            "nas:~/x",
            "nas:./x",
            "/srv/x",
            "./a:/b",
            "-",
            "nicstripe://nas/etc/x",
        ] {
            assert_eq!(rooted(relative, "/srv/in"), Ok(None), "{relative}");
        }
        for outside in ["nas:/etc/x", "nas:/srv/inner", "nas:/srv", "nas:/in/x"] {
            let error = rooted(outside, "/srv/in").unwrap_err();
            assert!(
                error.to_string().contains("is outside \"/srv/in\""),
                "{error}"
            );
        }
        // A name that climbs is refused when the result is parsed.
        let climbing = rooted("nas:/srv/in/../x", "/srv/in").unwrap().unwrap();
        assert!(matches!(parse(&climbing), Err(LocationError::Name(_))));
    }

    #[test]
    fn a_url_may_have_a_port_and_escapes() {
        assert_eq!(
            remote("nicstripe://nas:99/a%20b/c"),
            ("nas".into(), Some(99), file("a b/c"))
        );
        assert_eq!(
            remote("nicstripe://[fe80::1%25eth1]:99/a"),
            ("fe80::1%eth1".into(), Some(99), file("a"))
        );
        assert_eq!(
            remote("nicstripe://[fe80::1%eth1]/a/"),
            ("fe80::1%eth1".into(), None, directory("a"))
        );
        for (text, said) in [
            ("nicstripe://nas:0/a", "\"0\" is not a port"),
            ("nicstripe://nas:/a", "\"\" is not a port"),
            ("nicstripe://nas:65536/a", "\"65536\" is not a port"),
            ("nicstripe:///a", "no host in"),
            ("nicstripe://[fe80::1/a", "no host in"),
            ("nicstripe://nas/a%2", "percent sign"),
            ("nicstripe://nas/a%zz", "percent sign"),
            ("nicstripe://nas/%2e%2e/a", "\"..\" is not allowed"),
            ("nicstripe://nas/a%2f..%2fb", "\"..\" is not allowed"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_port_behind_the_host_is_no_path() {
        for text in ["nas:7747:/x", "nas:7747:", "[fd00::2]:7747:/x"] {
            let Err(LocationError::PortInPath { port, .. }) = parse(text) else {
                panic!("{text}: {:?}", parse(text))
            };
            assert_eq!(port, 7747, "{text}");
        }
        for text in [
            "nas:7747",
            "10.77.1.2:7747",
            "10.77.1.2:22",
            "[fe80::1%eth1]:7747",
        ] {
            assert!(
                matches!(parse(text), Err(LocationError::PortInPath { .. })),
                "{text}: {:?}",
                parse(text)
            );
        }
        assert_eq!(remote("nas:./7747").2, file("7747"));
        assert_eq!(remote("10.77.1.2:./7747").2, file("7747"));
        assert_eq!(remote("nas:2026").2, file("2026"));
        assert_eq!(remote("nas:/7747:/x").2, file("7747:/x"));
        assert_eq!(remote("nas:12:30.log").2, file("12:30.log"));
        assert_eq!(remote("nas:99999:/x").2, file("99999:/x"));
    }

    #[test]
    fn a_printed_address_is_a_target() {
        let host = "fe80::1%eth1".to_owned();
        for (port, printed, typed) in [
            (7747, "[fe80::1%eth1]:", None),
            (99, "nicstripe://[fe80::1%eth1]:99/", Some(99)),
        ] {
            assert_eq!(
                as_target(&"fe80::1".parse().unwrap(), "eth1", port),
                printed
            );
            assert_eq!(remote(printed), (host.clone(), typed, RemotePath::Root));
        }
    }

    #[test]
    fn names_that_leave_the_root_are_refused_not_cleaned() {
        for text in ["nas:../a", "nas:a/../b", "nas:..", "nas:a/./b", "nas:././a"] {
            assert!(matches!(parse(text), Err(LocationError::Name(_))), "{text}");
        }
    }

    #[test]
    fn another_protocol_is_refused_by_name() {
        for (text, scheme) in [("https://nas/a", "https"), ("nas://a", "nas")] {
            let scheme = scheme.into();
            assert_eq!(parse(text), Err(LocationError::Scheme { scheme }));
        }
    }

    #[test]
    fn machines_of_ssh_are_typed_as_for_scp_or_as_a_url() {
        for (text, shown) in [
            ("me@nas:a", "me@nas:a"),
            ("me@nas:", "me@nas:"),
            ("me@nas:~/a/", "me@nas:a/"),
            ("me@nas:/srv/in/", "me@nas:/srv/in/"),
            ("ssh://nas/", "nas:/"),
            ("ssh://nas", "nas:"),
            ("ssh://me@nas:2222/srv/a%20b", "me@nas:/srv/a b"),
            ("ssh://nas/~/a", "nas:a"),
            ("ssh://nas/~a", "nas:/~a"),
            // A daemon's paths are relative.
            ("nas:/a", "nas:a"),
        ] {
            let Ok(Location::Remote(remote)) = parse(text) else {
                panic!("{text}: {:?}", parse(text))
            };
            assert_eq!(remote.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn hosts_are_plain_and_control_characters_reach_no_terminal() {
        for text in [":a", "a b:c", "nas\n:a", "\u{202e}nas:a", "$(x):a"] {
            let error = parse(text).unwrap_err();
            assert!(
                matches!(error, LocationError::Place(PlaceError::Host { .. })),
                "{text}"
            );
            assert!(!error.to_string().contains(['\n', '\u{202e}']));
        }
        assert_eq!(parse(""), Err(LocationError::Empty));
    }
}

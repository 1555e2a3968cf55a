//! `hint:` lines for errors of the library, with the command to type if one helps.

use std::{
    error,
    io::{self, ErrorKind},
    iter::successors,
    net::SocketAddr,
    path::PathBuf,
};

use nicstripe::{
    CableSearch, DEFAULT_PORT, Error, FailCode, TargetRefusal, Unreachable,
    trust::{DialTarget, Identity, ListenTarget, PeerOptions, Peers, PublicKey},
};
use rustix::io::Errno;

use crate::{
    places,
    text::{
        granting::allow_command,
        invocation::{Invocation, quoted},
        shown,
        spelling::nearest,
    },
};

/// Returns the hint for an error whose cause is a resource limit of this process.
pub(super) fn of_limit(error: &(dyn error::Error + 'static)) -> Option<&'static str> {
    successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .find_map(|error| match Errno::from_io_error(error)? {
            Errno::MFILE => Some(MORE_OPEN_FILES),
            Errno::FBIG => Some(LARGER_FILES),
            _ => None,
        })
}

const MORE_OPEN_FILES: &str =
    "raise the limit of open files: ulimit -n 1024, or LimitNOFILE=1024 in a systemd unit";

/// Hint for an EFBIG, which also a file system returns whose largest file is smaller.
const LARGER_FILES: &str =
    "show the limit of file sizes: ulimit -f, or LimitFSIZE= of a systemd unit; FAT allows 4 GiB";

pub(super) fn of_thread(error: &io::Error) -> Option<String> {
    (error.kind() == ErrorKind::WouldBlock).then(|| MORE_THREADS.to_owned())
}

/// Hint for an EAGAIN from the kernel when a thread cannot be started.
const MORE_THREADS: &str = "process and thread limit of this user or container reached: end some, or raise the limit (ulimit -u, pids.max)";

/// Returns the command that gives this machine rights at a daemon, where this machine is known by
/// its key.
pub(crate) fn to_allow(host: &str, options: &PeerOptions) -> Option<String> {
    let own = Identity::load(places::home().ok()?.identity_file()).ok()?;
    let (host, which) = (shown(host), own.public_key().fingerprint());
    Some(match allow_command(&which, options) {
        Some(command) => format!(
            "to allow it, on {host} as the daemon's user: {command}; `nicstripe trust show {which}` there prints the peers file"
        ),
        None => format!(
            "{host} must allow it, but its text cannot be shown: nicstripe trust allow --help"
        ),
    })
}

pub(super) fn of_error(error: &Error, invocation: &Invocation) -> Option<String> {
    let program = invocation.program();
    match error {
        Error::Reconnect { source, .. } => of_error(source, invocation),
        Error::Resolve { host, source } if source.kind() == ErrorKind::InvalidInput => {
            Some(format!("use the peer's name, or add the interface: {}", quoted(format!("[{host}%INTERFACE]:PATH"))))
        }
        Error::Resolve { host, .. } => {
            let advice = match near_peer(host) {
                Some(name) => format!("did you mean the trusted peer {}? If not, check", quoted(name)),
                None => "check".to_owned(),
            };
            Some(format!("{advice} the spelling, or use an address, as in 10.0.1.2:PATH; list daemons on the cables: {program} discover"))
        }
        Error::Link { link, .. } if link.contains(',') => {
            let each = link.split(',').map(|name| format!("--link {}", quoted(name)));
            Some(format!("one --link for each: {}", each.collect::<Vec<_>>().join(" ")))
        }
        Error::Link { link, .. } => {
            let with_it = invocation.without_value("--exclude-link", link)?;
            Some(format!("show where each interface leads: {program} links HOST; use {link}: {with_it}"))
        }
        Error::NoInterface { .. } => Some("plug in a cable, and check its interface: ip -6 address show scope link".into()),
        Error::Connect { address, .. } | Error::Protocol { address, .. } if address.port() == SSH => {
            Some(format!("port {SSH} is ssh's; the daemon's is {DEFAULT_PORT}, without -P"))
        }
        Error::Connect { address, source } => Some(of_answer(*address, source).unwrap_or_else(|| {
            format!("check that the machine is on, the cable plugged in, and TCP port {} open in its firewall", address.port())
        })),
        Error::Unreachable(unreached) => Some(of_unreached(unreached)),
        Error::UntrustedPeer { host, key } => Some(of_untrusted(host, key)),
        Error::Untrusted { host, ours } => Some(format!("on {host}: {}", trust_us(ours))),
        Error::Full { .. } => {
            Some("retry later, or wait longer: --timeout TIME; to allow more: `sessions` in the daemon's config.toml".into())
        }
        Error::Version { host, .. } => Some(format!("update nicstripe on {host} or here")),
        Error::Unsupported { host, .. } => Some(format!("update nicstripe on {host}")),
        Error::Protocol { address, .. } => {
            Some(format!("check that a nicstripe daemon of this version listens on port {} there: nicstripe --version", address.port()))
        }
        Error::System { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            Some("another daemon may be running; to run a second one: --port PORT".into())
        }
        Error::System { source, .. } => of_thread(source),
        Error::Target { host, target, code: TargetRefusal::NotAllowed, .. } => match target.parse::<DialTarget>() {
            Ok(target) => to_allow(host, &PeerOptions { dial: vec![target], ..PeerOptions::unrestricted() }),
            Err(error) => Some(error.to_string()),
        },
        Error::Listen { host, address, code: TargetRefusal::NotAllowed, .. } => match address.parse::<ListenTarget>() {
            Ok(target) => to_allow(host, &PeerOptions { listen: vec![target], ..PeerOptions::unrestricted() }),
            Err(error) => Some(error.to_string()),
        },
        Error::Digest { .. } => {
            let state = match invocation.has("--inplace") {
                true => format!("the target is inconsistent until a rerun: {}", invocation.typed()),
                false => "the target was not replaced".to_owned(),
            };
            Some(format!("check the memory and disks of both machines; {state}"))
        }
        // The target of a failed sync is unknown.
        error if error.fail_code() == Some(FailCode::NoSpace) && !error.is_resumable() => {
            Some(format!("free space there, then run the same command again: {}", invocation.typed()))
        }
        error => {
            error.fail_code().and_then(|code| of_fail_code(code, invocation)).or_else(|| error.is_resumable().then(|| again(invocation)))
        }
    }
}

/// Returns what to do about a peer's key that is not trusted: new, changed, or this machine's own.
fn of_untrusted(host: &str, key: &PublicKey) -> String {
    let add = key.trust_command(host);
    let home = places::home().ok();
    let own = home.as_ref().map(|home| home.identity_file());
    let is_own = |path: &PathBuf| Identity::load(path).is_ok_and(|own| own.public_key() == *key);
    if let Some(path) = own.filter(is_own) {
        return format!(
            "it is this machine's own key: was the disk cloned? For a new key, on one of the two machines: rm {}; nicstripe key",
            quoted(path)
        );
    }
    let peers = home.and_then(|home| Peers::load(home.peers_file()).ok());
    let known = peers.as_ref().and_then(|peers| peers.by_name(host));
    match known {
        Some(known) => format!(
            "the key of {host} has changed, {} is trusted: it has a new key, or another machine answers in its place; compare with `nicstripe key` there, and if they match: {add} --replace",
            known.key.fingerprint()
        ),
        None => {
            format!("compare it with the output of `nicstripe key` on {host}; if they match: {add}")
        }
    }
}

/// Returns the hint for a failed connection that was not merely unanswered; `None` for silence.
fn of_answer(address: SocketAddr, source: &io::Error) -> Option<String> {
    let (ip, port) = (address.ip(), address.port());
    Some(match source.kind() {
        ErrorKind::ConnectionRefused => {
            format!("nothing listens there; start the daemon on that machine: {}; {ANOTHER_PORT}", serve_on(port))
        }
        ErrorKind::ConnectionReset => {
            format!("something there closed the connection; check that port {port} is a nicstripe daemon's, and read its log")
        }
        ErrorKind::PermissionDenied if source.raw_os_error().is_some() => {
            "a filter of this machine forbids it: check its firewall (nft list ruleset), and IPAddressDeny= of a systemd unit".to_owned()
        }
        ErrorKind::PermissionDenied => {
            format!("allow TCP port {port} in the firewall of the machine that rejects it")
        }
        ErrorKind::NetworkUnreachable => {
            format!("give an interface an address in the subnet of {ip}, or add a route; show the kernel's choice: ip route get {ip}; ip rule")
        }
        ErrorKind::HostUnreachable => {
            format!("no machine answers at {ip}; check the address, that the machine is on, and the cable")
        }
        _ => return None,
    })
}

/// Returns the checks to make if a host does not answer, the most likely cause first.
fn of_unreached(unreached: &Unreachable) -> String {
    let Unreachable {
        host,
        port,
        ours,
        cables,
        tried,
        ..
    } = unreached;
    let failed_as = |kinds: &[ErrorKind]| {
        let mut tried = tried.iter();
        tried.find(|tried| kinds.contains(&tried.source.kind()))
    };
    let is_refused = failed_as(&[ErrorKind::ConnectionRefused]).is_some();
    let rejected = failed_as(&[ErrorKind::PermissionDenied, ErrorKind::ConnectionReset]);
    let rejected = rejected.and_then(|tried| of_answer(tried.address, &tried.source));
    let checks = match cables {
        CableSearch::Answered(_) => format!("check that TCP port {port} is open in the firewall of {host}"),
        _ if is_refused => format!("nothing listens on port {port} there; on {host}: {}; {ANOTHER_PORT}", serve_on(*port)),
        _ if rejected.is_some() => rejected.unwrap_or_default(),
        CableSearch::Unfit(_) => "plug in a cable, or exclude fewer interfaces; list them with the reasons: nicstripe links".to_owned(),
        CableSearch::NoPeer => format!("check that {host} is on, the cable plugged in, and TCP port {port} open in its firewall"),
        // A daemon does not answer discovery probes of untrusted keys.
        _ => format!(
            "on {host}, start the daemon: {}; trust this key: {}; open port {port} for TCP and UDP in the firewall; {ANOTHER_PORT}",
            serve_on(*port),
            trust_us(ours)
        ),
    };
    match cables {
        CableSearch::Ipv4Only => format!("without -4, the cables are searched as well; {checks}"),
        _ => checks,
    }
}

/// Port of ssh, which scp's `-P` would name.
const SSH: u16 = 22;

const ANOTHER_PORT: &str = "if it listens on another port: --port PORT";

/// Returns the `nicstripe trust add` command that makes the other machine trust this one.
fn trust_us(ours: &PublicKey) -> String {
    let system = rustix::system::uname();
    ours.trust_command(&system.nodename().to_string_lossy())
}

/// Returns the hint for an error code of the peer or of a local file. `None` if the code alone
/// needs none; the caller may then hint that a rerun resumes.
fn of_fail_code(code: FailCode, invocation: &Invocation) -> Option<String> {
    Some(match code {
        FailCode::NotAFile if !invocation.is_recursive() => {
            format!("if it is a directory: {}", invocation.with_flag("-r"))
        }
        FailCode::Busy => "wait for the other copy, or stop it".to_owned(),
        FailCode::Exists => NextStep::Replace.text(invocation),
        FailCode::NoSpace => NextStep::Room.text(invocation),
        FailCode::SourceChanged => NextStep::Rerun.text(invocation),
        FailCode::NotPermitted => NextStep::Rights.text(invocation),
        _ => return None,
    })
}

/// Remedy for a file that could not be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Replace existing files that differ, or what is no regular file with `-f`.
    Replace,
    /// Copy directories: `-r`.
    Recurse,
    /// Create the target's missing directory: `--mkpath`.
    Create,
    /// Rerun the copy once nothing writes to the sources.
    Rerun,
    /// Grant the missing right on the peer.
    Rights,
    /// Free disk space on the receiver.
    Room,
}

impl NextStep {
    /// Returns the hint, with the command `invocation` changed as needed.
    pub(crate) fn text(self, invocation: &Invocation) -> String {
        match self {
            Self::Replace if is_of_one_copy(invocation) => {
                "move it away there: a sender by code replaces nothing".to_owned()
            }
            Self::Rerun if is_of_one_copy(invocation) => {
                format!("when nothing writes to the source, {WITH_A_NEW_CODE}")
            }
            Self::Room if is_of_one_copy(invocation) => {
                format!("free space there; received data is kept: {WITH_A_NEW_CODE}")
            }
            Self::Replace => match KEEPING.iter().find_map(|option| invocation.without(option)) {
                Some(command) => format!("to replace it: {command}"),
                None => format!("-f overwrites a block device, and replaces a symbolic link itself: {}", invocation.with_flag("-f")),
            },
            Self::Recurse => format!("to copy the directory: {}", invocation.with_flag("-r")),
            Self::Create => format!("to create it: {}", invocation.with_flag("--mkpath")),
            Self::Rerun => format!(
                "retry when nothing writes to the source; to copy what is read meanwhile: {}",
                invocation.with_flag("--allow-changing")
            ),
            Self::Rights => "rights are set there by nicstripe trust allow, which names the peers file, and by serve options; \
                             append-only forbids replacing and --delete"
                .to_owned(),
            Self::Room => format!("free space there; received data is kept, the same command resumes: {}", invocation.resuming()),
        }
    }
}

/// Returns true for a copy by code, which cannot be repeated with the same code.
fn is_of_one_copy(invocation: &Invocation) -> bool {
    invocation.is_of("send") || invocation.is_of("receive")
}

/// How a copy by code is repeated.
pub(crate) const WITH_A_NEW_CODE: &str =
    "run `nicstripe receive` again, and `nicstripe send` with the new code";

/// Options of `cp` that keep existing files.
const KEEPING: [&str; 3] = ["--no-replace", "--no-clobber", "--ignore-existing"];

pub(super) fn again(invocation: &Invocation) -> String {
    if is_of_one_copy(invocation) {
        return format!("what has arrived is kept: {WITH_A_NEW_CODE}");
    }
    format!(
        "to resume, run the same command again: {}",
        invocation.resuming()
    )
}

fn serve_on(port: u16) -> String {
    match port {
        DEFAULT_PORT => "nicstripe serve".to_owned(),
        port => format!("nicstripe serve --port {port}"),
    }
}

/// Returns the name of the trusted peer that `host` seems to misspell.
fn near_peer(host: &str) -> Option<String> {
    let peers = Peers::load(places::home().ok()?.peers_file()).ok()?;
    let names = peers
        .iter()
        .filter_map(|peer| Some(peer.name.as_ref()?.as_str()));
    nearest(host, names).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use nicstripe::trust::PublicKey;

    use super::*;
    use crate::{
        commands::cp::{
            hint,
            tests::{directory, shortfall},
        },
        failure::{Failure, exit::Stop, tests::file_error},
    };

    fn hint_of(failure: impl Into<Failure>) -> Option<String> {
        hint(
            &failure.into(),
            &Invocation::of(&["nicstripe", "cp", "a b", "nas:"]),
        )
    }

    fn connecting(source: impl Into<io::Error>, port: u16) -> Failure {
        let address = ([10, 0, 0, 2], port).into();
        let source = source.into();
        Error::Connect { address, source }.into()
    }

    fn told(code: FailCode, resumable: bool) -> Failure {
        Error::Peer {
            host: "nas".into(),
            code,
            text: "no".into(),
            resumable,
        }
        .into()
    }

    #[test]
    fn whoever_is_not_trusted_gets_the_command_that_changes_it() {
        let key = PublicKey::from_bytes([7; 32]).unwrap();
        let host = || "nas".to_owned();
        let text = hint_of(Error::UntrustedPeer { host: host(), key }).unwrap();
        assert!(
            text.ends_with("nicstripe trust add 'nicstripe-ed25519 BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=' --name nas"),
            "{text}"
        );
        let (host, ours) = (host(), key);
        let text = hint_of(Error::Untrusted { host, ours }).unwrap();
        let start = "on nas: nicstripe trust add 'nicstripe-ed25519 BwcH";
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn each_way_to_fail_says_what_is_wrong_and_where() {
        let ssh = "port 22 is ssh's; the daemon's is 7747, without -P";
        let refused = ErrorKind::ConnectionRefused;
        let rejected = io::Error::new(
            ErrorKind::PermissionDenied,
            "a filter at 10.0.0.2 rejects it",
        );
        let protocol = Error::Protocol {
            address: ([10, 0, 0, 2], 22).into(),
            why: "it answers as ssh does".into(),
        };
        for (failure, said) in [
            (protocol.into(), ssh),
            (connecting(refused, 22), ssh),
            (connecting(refused, 7747), "nothing listens there"),
            (connecting(refused, 7747), ": nicstripe serve; if"),
            (connecting(refused, 99), ": nicstripe serve --port 99; if"),
            (connecting(ErrorKind::TimedOut, 99), "TCP port 99"),
            (
                connecting(ErrorKind::ConnectionReset, 99),
                "something there closed",
            ),
            (
                connecting(Errno::CONNRESET, 99),
                "something there closed the connection",
            ),
            (
                connecting(Errno::PERM, 99),
                "a filter of this machine forbids it",
            ),
            (
                connecting(Errno::ACCESS, 99),
                "a filter of this machine forbids it",
            ),
            (
                connecting(rejected, 7747),
                "allow TCP port 7747 in the firewall of the machine that rejects it",
            ),
            (connecting(Errno::NETUNREACH, 99), "ip route get 10.0.0.2"),
            (
                connecting(Errno::HOSTUNREACH, 99),
                "no machine answers at 10.0.0.2",
            ),
            (
                connecting(ErrorKind::TimedOut, 99),
                "check that the machine is on",
            ),
        ] {
            let text = hint_of(failure).unwrap();
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn what_helps_is_said_with_the_command_to_type() {
        let again = "to resume, run the same command again: nicstripe cp 'a b' nas:";
        let exists = Failure::from(file_error(FailCode::Exists, ErrorKind::AlreadyExists));
        let tree = |codes: &[FailCode]| shortfall(codes, "-c --no-replace").into();
        let system = |source| {
            Failure::from(Error::System {
                what: "open a socket",
                source,
            })
        };
        let stop = Stop::Interrupt;
        let interrupted = |resumable| Failure::Interrupted { stop, resumable };
        let host = || "nas".to_owned();
        let waited = Duration::from_secs(600);
        let abandoned = Error::Abandoned {
            host: host(),
            waited,
        };
        let why = "it shuts down".into();
        let ended = Error::Ended { host: host(), why };
        for (failure, said) in [
            (
                exists,
                "-f overwrites a block device, and replaces a symbolic link itself: nicstripe cp -f 'a b' nas:",
            ),
            (directory("nas:").into(), "to copy the directory: "),
            (
                told(FailCode::NotAFile, false),
                "if it is a directory: nicstripe cp -r 'a b' nas:",
            ),
            (tree(&[FailCode::Exists]), "-f overwrites a block device, "),
            (
                tree(&[FailCode::NotAFile]),
                "to copy the directory: nicstripe cp -r 'a b' nas:",
            ),
            (tree(&[FailCode::NotPermitted]), "append-only"),
            (told(FailCode::NotPermitted, false), "append-only"),
            (told(FailCode::Refused, false), ""),
            (tree(&[FailCode::Io, FailCode::Exists]), ""),
            (system(Errno::MFILE.into()), MORE_OPEN_FILES),
            (system(Errno::FBIG.into()), LARGER_FILES),
            (system(Errno::IO.into()), ""),
            (system(ErrorKind::WouldBlock.into()), MORE_THREADS),
            (interrupted(true), again),
            (interrupted(false), ""),
            (abandoned.into(), again),
            (ended.into(), again),
            (told(FailCode::Io, true), again),
            (
                told(FailCode::NoSpace, true),
                "the same command resumes: nicstripe cp 'a b' nas:",
            ),
        ] {
            let text = failure.one_line();
            let hint = hint_of(failure).unwrap_or_default();
            assert!(hint.contains(said), "{text}: {hint}");
            assert_eq!(hint.is_empty(), said.is_empty(), "{text}: {hint}");
        }
        let of = |failure: Failure, words: &[&str]| {
            hint(
                &failure,
                &Invocation::of(&[&["nicstripe", "cp"], words].concat()),
            )
        };
        for flag in ["-a", "-vr", "--recursive"] {
            let words = [flag, "nas:x", "."];
            assert_eq!(of(told(FailCode::NotAFile, false), &words), None, "{flag}");
        }
        let exists = file_error(FailCode::Exists, ErrorKind::AlreadyExists).into();
        let keeping = of(exists, &["--no-clobber", "a", "nas:"]);
        assert_eq!(keeping.unwrap(), "to replace it: nicstripe cp a nas:");
        // Repeating the flags would start over.
        let started_over = of(interrupted(true), &["--no-resume", "a b", "nas:"]);
        assert_eq!(started_over.as_deref(), Some(again));
    }

    #[test]
    fn the_command_for_a_refused_service_permits_that_service() {
        for target in [
            "localhost:22",
            "[::1]:22",
            "[fe80::1%eth0]:22",
            "it's:22",
            "a=b:22",
            "a\\b:22",
            "unix:/run/a b,c.sock",
        ] {
            let options = PeerOptions {
                dial: vec![target.parse().unwrap()],
                ..PeerOptions::unrestricted()
            };
            let command = allow_command("abcd-efgh-ijkl", &options).unwrap();
            let words = shell_words::split(&command).unwrap();
            let at = words.iter().position(|word| word == "--dial").unwrap();
            assert_eq!(words[at + 1], target, "{command}");
        }
        for target in ["localhost", "a:0", "a,b:1", "a b:1"] {
            let refused = Error::Target {
                host: "nas".into(),
                target: target.into(),
                code: TargetRefusal::NotAllowed,
                why: "no".into(),
            };
            let text = hint_of(refused).unwrap();
            assert!(text.contains("expected HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn a_link_that_was_left_out_is_used_by_the_command_without_that() {
        let left_out = || Error::Link {
            link: "eth1".into(),
            why: "excluded by option".into(),
        };
        for words in [&["--exclude-link", "eth1"][..], &["--exclude-link=eth1"]] {
            let words = [&["nicstripe", "cp"], words, &["a", "nas:"]].concat();
            let text = hint(&left_out().into(), &Invocation::of(&words)).unwrap();
            assert!(text.ends_with("; use eth1: nicstripe cp a nas:"), "{text}");
        }
        assert_eq!(hint_of(left_out()), None, "it was named");
    }

    #[test]
    fn a_wrong_digest_says_what_became_of_the_target() {
        let hint_of = |words: &[&str]| {
            let [sent, received] = [1, 2].map(|byte| nicstripe::Digest([byte; 32]));
            let words = [&["nicstripe", "cp"], words, &["nas:a", "b"]].concat();
            let error = Failure::from(Error::Digest { sent, received });
            hint(&error, &Invocation::of(&words)).unwrap()
        };
        assert!(hint_of(&["--delta"]).ends_with("; the target was not replaced"));
        assert!(hint_of(&["--inplace"]).ends_with(
            "; the target is inconsistent until a rerun: nicstripe cp --inplace nas:a b"
        ));
    }
}

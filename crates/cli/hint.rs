//! What the user can do about a failure: the exact command where there is one.

use std::io::ErrorKind;

use nicstripe::{DEFAULT_PORT, Error, FailCode, trust::PeersError};

use crate::{
    cp::{LocationError, PlanError},
    failure::Failure,
    invocation::{Invocation, quoted},
};

/// Returns what to do about a failure of this invocation, in one line; `None` where the error says all there is.
pub(crate) fn hint(failure: &Failure, invocation: &Invocation) -> Option<String> {
    let program = invocation.program();
    match failure {
        Failure::Library(error) => of_error(error, invocation),
        Failure::Interrupted { resumable: true, .. } => Some(again(invocation)),
        Failure::Location(LocationError::Ssh { host, .. }) => {
            Some(format!("start the daemon on {host}: nicstripe serve; then copy to or from {host}:PATH"))
        }
        Failure::Plan(PlanError::BothLocal) => {
            Some("a path becomes remote by the host's name and a colon before it, as in nas:backup/".into())
        }
        Failure::Plan(PlanError::BothRemote) => Some("run the command on one of the two machines".into()),
        Failure::Directory { path } => {
            let name = path.file_name().map_or_else(|| "tree".into(), |name| name.to_string_lossy());
            Some(format!("pack it first: tar -cf {} {}", quoted(format!("{name}.tar")), quoted(path)))
        }
        Failure::Peers(PeersError::Unknown { .. }) => Some(format!("see who is trusted: {program} trust list")),
        _ => None,
    }
}

fn of_error(error: &Error, invocation: &Invocation) -> Option<String> {
    let program = invocation.program();
    match error {
        Error::Resolve { .. } => {
            Some(format!("check the spelling, or use an address, as in 10.0.1.2:PATH; who is on the cables: {program} discover"))
        }
        Error::NoInterface { .. } => Some("plug in a cable, and see what `ip -6 address show scope link` says of its interface".into()),
        Error::Connect { address, source } => Some(match source.kind() {
            ErrorKind::ConnectionRefused => {
                format!("nothing listens there; start the daemon on that machine: {}", serve_on(address.port()))
            }
            _ => format!("check that the machine is on, the cable in, and TCP port {} open in its firewall", address.port()),
        }),
        Error::UntrustedPeer { host, key } => {
            let add = format!("{program} trust add {} --name {}", quoted(key.to_string()), quoted(host));
            Some(format!("compare it with what `nicstripe key` prints on {host}; if it is the same: {add}"))
        }
        Error::Untrusted { host, ours } => {
            let add = format!("nicstripe trust add {} --name {}", quoted(ours.to_string()), quoted(own_name()));
            Some(format!("on {host}: {add}"))
        }
        Error::Protocol { address, .. } => {
            Some(format!("check that a nicstripe daemon of this version listens on port {} there: nicstripe --version", address.port()))
        }
        Error::System { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            Some("another daemon may be running already; to run this one beside it, give it another port: --port PORT".into())
        }
        Error::Digest { .. } => Some("suspect the memory or disk of either machine; nothing was put in place".into()),
        error => {
            error.fail_code().and_then(|code| of_fail_code(code, invocation)).or_else(|| error.is_resumable().then(|| again(invocation)))
        }
    }
}

/// `None` where the code alone calls for nothing; whether a rerun goes on is said by the caller then.
fn of_fail_code(code: FailCode, invocation: &Invocation) -> Option<String> {
    match code {
        FailCode::Exists => Some(format!("to replace it: {}", invocation.with_flag("-f"))),
        FailCode::NoSpace => Some(format!("make room there; what has arrived is kept, the same command goes on: {}", invocation.typed())),
        FailCode::SourceChanged => Some(format!("when nothing writes to the source any more: {}", invocation.typed())),
        FailCode::Busy => Some("wait for the other copy to end, or end it".into()),
        FailCode::Refused => {
            Some("what this machine may do there is in the other's peers file (nicstripe trust list) and the options of its serve".into())
        }
        _ => None,
    }
}

fn again(invocation: &Invocation) -> String {
    format!("run the same command again to go on: {}", invocation.typed())
}

fn serve_on(port: u16) -> String {
    match port {
        DEFAULT_PORT => "nicstripe serve".to_owned(),
        port => format!("nicstripe serve --port {port}"),
    }
}

fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use nicstripe::trust::PublicKey;

    use super::*;
    use crate::{failure::tests::file_error, signals::Stop};

    fn hint_of(failure: impl Into<Failure>) -> Option<String> {
        hint(&failure.into(), &Invocation::of(&["nicstripe", "cp", "a b", "nas:"]))
    }

    fn refused_at(address: &str, kind: ErrorKind) -> Option<String> {
        hint_of(Error::Connect { address: address.parse().unwrap(), source: io::Error::from(kind) })
    }

    #[test]
    fn whoever_is_not_trusted_gets_the_command_that_changes_it() {
        let key = PublicKey::from_bytes([0; 32]);
        let text = hint_of(Error::UntrustedPeer { host: "nas".into(), key }).unwrap();
        assert!(
            text.ends_with("nicstripe trust add 'nicstripe-ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=' --name nas"),
            "{text}"
        );
        let text = hint_of(Error::Untrusted { host: "nas".into(), ours: key }).unwrap();
        assert!(text.starts_with("on nas: nicstripe trust add 'nicstripe-ed25519 AAAA"), "{text}");
    }

    #[test]
    fn a_refused_connection_names_the_daemon_and_its_port() {
        assert!(refused_at("10.0.0.2:7747", ErrorKind::ConnectionRefused).unwrap().ends_with(": nicstripe serve"));
        assert!(refused_at("10.0.0.2:99", ErrorKind::ConnectionRefused).unwrap().ends_with(": nicstripe serve --port 99"));
        assert!(refused_at("10.0.0.2:99", ErrorKind::TimedOut).unwrap().contains("TCP port 99"));
    }

    #[test]
    fn an_existing_target_is_replaced_by_the_command_with_f() {
        let exists = file_error(FailCode::Exists, ErrorKind::AlreadyExists);
        assert_eq!(hint_of(exists).unwrap(), "to replace it: nicstripe cp -f 'a b' nas:");
    }

    #[test]
    fn whatever_can_be_resumed_says_so_with_the_command() {
        let again = "run the same command again to go on: nicstripe cp 'a b' nas:";
        let host = || "nas".to_owned();
        let io_failed = Error::Peer { host: host(), code: FailCode::Io, text: "no".into(), resumable: true };
        assert_eq!(hint_of(Failure::Interrupted { stop: Stop::Interrupt, resumable: true }).as_deref(), Some(again));
        assert_eq!(hint_of(Error::Abandoned { host: host(), waited: Duration::from_secs(600) }).as_deref(), Some(again));
        assert_eq!(hint_of(Error::Ended { host: host(), why: "it shuts down".into() }).as_deref(), Some(again));
        assert_eq!(hint_of(io_failed).as_deref(), Some(again));
        let no_space = Error::Peer { host: host(), code: FailCode::NoSpace, text: "no".into(), resumable: true };
        assert!(hint_of(no_space).unwrap().ends_with("the same command goes on: nicstripe cp 'a b' nas:"));
        assert_eq!(hint_of(Failure::Interrupted { stop: Stop::Interrupt, resumable: false }), None);
    }
}

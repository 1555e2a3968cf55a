//! Codes of invitations as typed, and the errors of both ends.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use nicstripe::invitation::{
    Code, CodeError, INVITATION_PORT, Invitation, InvitationError, InvitationOptions, JoinOptions,
    LONGEST_INVITATION, Purpose,
};
use nicstripe::{Error, trust::Identity};

use crate::{
    failure::{CommandError, Failure, Fault, exit::Exit},
    output::terminal::Terminal,
    places,
    text::{
        invocation::Invocation,
        quantity::{Limit, parse_time},
    },
};

/// Options of both ends of an invitation.
#[derive(Debug, Clone, Args)]
pub(crate) struct InvitationArgs {
    /// Meet on this interface only; may be repeated [default: every interface that is up]
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,

    /// Wait this long for the other machine: seconds, or with ms, s, m or h
    /// [default: 10m with a new code, 10s with a given one]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
}

impl InvitationArgs {
    pub(crate) fn to_invite(
        &self,
        purpose: Purpose,
        daemon_port: Option<u16>,
    ) -> InvitationOptions {
        InvitationOptions {
            purpose,
            daemon_port,
            lifetime: self.timeout.unwrap_or(LONGEST_INVITATION),
            interfaces: self.interface.clone(),
            ..InvitationOptions::default()
        }
    }
}

/// Code as typed, perhaps with the host that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub(crate) code: Code,
    pub(crate) host: Option<String>,
    port: Option<u16>,
}

impl Meeting {
    /// Parses `[HOST[:PORT]] CODE`. The parts of the code may be words of their own.
    pub(crate) fn parse(words: &[String]) -> Result<Self, CodeError> {
        let (host, code) = match words.len() {
            2 | 4 => (Some(&words[0]), &words[1..]),
            _ => (None, words),
        };
        let code = code.join("-").parse()?;
        let (host, port) = match host {
            None => (None, None),
            Some(host) => split_port(host),
        };
        Ok(Self { code, host, port })
    }

    pub(crate) fn to_join(
        &self,
        purpose: Purpose,
        daemon_port: Option<u16>,
        interfaces: &[String],
    ) -> JoinOptions {
        JoinOptions {
            purpose,
            daemon_port,
            host: self.host.clone(),
            port: self.port,
            interfaces: interfaces.to_vec(),
            ..JoinOptions::default()
        }
    }
}

/// Splits `HOST:PORT`; an IPv6 address with a port is in brackets.
fn split_port(host: &str) -> (Option<String>, Option<u16>) {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return (Some(address.ip().to_string()), Some(address.port()));
    }
    let split = host.split_once(':').filter(|(_, port)| !port.contains(':'));
    match split.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => (Some(host.to_owned()), Some(port)),
        None => (Some(host.to_owned()), None),
    }
}

/// Prints the code on standard output, and what to type at the other machine, such as
/// `nicstripe pair`.
pub(crate) fn show(
    invitation: &Invitation,
    options: &InvitationOptions,
    there: &str,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let code = invitation.code().to_text();
    terminal.result(&code)?;
    let limit = Limit(options.lifetime.min(LONGEST_INVITATION));
    let addresses = invitation.addresses();
    let port = addresses.first().map(|listen| listen.address.port());
    let by_name = match port.filter(|port| *port != INVITATION_PORT) {
        Some(port) => {
            let option = if options.purpose == Purpose::OneCopy {
                "--host "
            } else {
                ""
            };
            format!(" (without a common cable: {there} {option}HOST:{port} {code})")
        }
        None => String::new(),
    };
    terminal.say(format_args!(
        "on the other machine, within {limit}: {there} {code}{by_name}"
    ));
    Ok(())
}

impl CommandError for CodeError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        let (shows, takes) = match invocation.is_of("send") {
            true => ("nicstripe receive", "nicstripe send FILE... CODE"),
            false => ("nicstripe pair", "nicstripe pair CODE"),
        };
        Some(format!(
            "{shows} on one machine shows a code, for the other: {takes}"
        ))
    }
}

impl CommandError for InvitationError {
    fn exit(&self) -> Exit {
        match self {
            Self::Nobody { .. } | Self::Connect { .. } | Self::NotWaiting { .. } => Exit::NoLink,
            Self::Expired { .. } | Self::Lost { .. } | Self::TimedOut { .. } => Exit::TimedOut,
            Self::Protocol { .. } | Self::Bootstrap(_) => Exit::Protocol,
            Self::TooMany { .. } => Exit::Usage,
            Self::Exists { .. } => Exit::Files,
            _ => Exit::Refused,
        }
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        let (takes, shows) = commands(invocation);
        match self {
            Self::Nobody { .. } => Some(format!(
                "check that `{shows}` still waits there and that UDP and TCP port {INVITATION_PORT} are open in its firewall; without a common cable: {takes}"
            )),
            Self::Connect { .. } | Self::NotWaiting { .. } => Some(format!(
                "`{shows}` must wait there, and TCP port {INVITATION_PORT} be open in its firewall"
            )),
            Self::Unfinished { .. } => {
                let home = places::home().ok()?;
                let own = Identity::load(home.identity_file()).ok()?.public_key();
                Some(format!(
                    "this machine has not stored its key; if that one lists {0} (nicstripe trust list), there: nicstripe trust remove {0}",
                    own.fingerprint()
                ))
            }
            Self::OtherNumber { .. } => Some("the code's number and that host do not belong together: check both".into()),
            Self::OtherPurpose { .. } => Some(
                "`pair` on one machine goes with `pair CODE` on the other, `receive` with `send FILE... CODE`".into(),
            ),
            _ => None,
        }
    }
}

/// Returns the command that takes a code by the name of the other machine, and the one that shows it.
fn commands(invocation: &Invocation) -> (&'static str, &'static str) {
    match invocation.is_of("send") || invocation.is_of("receive") {
        true => (
            "nicstripe send --host HOST FILE... CODE",
            "nicstripe receive",
        ),
        false => ("nicstripe pair HOST CODE", "nicstripe pair"),
    }
}

/// Returns the failure of an invitation. One of the library keeps its own exit code and hint, but for
/// a search that needs IPv6.
pub(crate) fn failed(error: InvitationError) -> Failure {
    match error {
        InvitationError::System(error @ Error::NoInterface { .. }) => {
            let (takes, _) = commands(&Invocation::of_this_process());
            let hint = format!(
                "a code alone is searched by IPv6 link-local addresses: plug in a cable, or name the other machine: {takes}"
            );
            Fault::new(Exit::NoLink, error.to_string())
                .with_hint(hint)
                .into()
        }
        InvitationError::System(error) => error.into(),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_may_follow_a_host_and_be_typed_in_parts() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Meeting::parse(&words)
        };
        let code: Code = "7-crossover-violin".parse().unwrap();
        let meeting = |host: Option<&str>, port| Meeting {
            code,
            host: host.map(str::to_owned),
            port,
        };
        for (words, expected) in [
            (&["7-crossover-violin"][..], meeting(None, None)),
            (&["7", "Crossover", "violin"], meeting(None, None)),
            (&["nas", "7-crossover-violin"], meeting(Some("nas"), None)),
            (
                &["nas", "7", "crossover", "violin"],
                meeting(Some("nas"), None),
            ),
            (
                &["nas:99", "7-crossover-violin"],
                meeting(Some("nas"), Some(99)),
            ),
            (
                &["fe80::1%eth1", "7-crossover-violin"],
                meeting(Some("fe80::1%eth1"), None),
            ),
            (
                &["[fd00::1]:99", "7-crossover-violin"],
                meeting(Some("fd00::1"), Some(99)),
            ),
        ] {
            assert_eq!(parse(words), Ok(expected), "{words:?}");
        }
        for words in [
            &["nas"][..],
            &["7-crossover-violin", "nas"],
            &["7-violin-crossover"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}

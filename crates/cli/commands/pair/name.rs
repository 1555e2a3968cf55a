//! Name of the other machine here, if none was typed: the one that it says, unless that is doubtful.

use std::{
    io::{IsTerminal as _, stdin},
    net::IpAddr,
    time::Duration,
};

use nicstripe::{
    invitation::Paired,
    trust::{PeerName, Peers, PublicKey},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::lookup_host,
    time::timeout,
};

use crate::{
    failure::{Failure, usage},
    output::terminal::Terminal,
    process::streams,
    text::shown,
};

/// Returns the name that the peer says, or asks the user for another one if a command with that name
/// might mean another machine.
pub(super) async fn chosen(
    paired: &Paired,
    peers: &Peers,
    terminal: &Terminal,
) -> Result<String, Failure> {
    let name = paired.host.clone();
    let doubt = match Doubt::of(&name, &paired.key, peers) {
        Some(doubt) => Some(doubt),
        None => Doubt::of_addresses(&name, paired.address.ip()).await,
    };
    let Some(doubt) = doubt else {
        return Ok(name);
    };
    let text = format!("the other machine calls itself {name:?}: {doubt}");
    let hint =
        "neither machine trusts the other; start again with a new code, and here with --name NAME";
    let doubtful = usage(text).with_hint(hint);
    if !stdin().is_terminal() || !terminal.is_interactive() {
        return Err(doubtful.into());
    }
    terminal.say(&doubtful);
    let asked = timeout(LONGEST_QUESTION, ask(&paired.key, peers, terminal)).await;
    asked.unwrap_or(Ok(None))?.ok_or_else(|| doubtful.into())
}

/// Asks until the answer is a name that can be used. `None` at the end of the input.
async fn ask(
    key: &PublicKey,
    peers: &Peers,
    terminal: &Terminal,
) -> Result<Option<String>, Failure> {
    let mut input = BufReader::new(streams::input(LINE).map_err(Failure::Output)?);
    loop {
        terminal.say("name for that machine:");
        let mut line = String::new();
        let read = input.read_line(&mut line).await;
        if read.map_err(Failure::Output)? == 0 {
            return Ok(None);
        }
        let name = line.trim();
        match Doubt::of(name, key, peers) {
            None => return Ok(Some(name.to_owned())),
            Some(doubt) => terminal.say(format_args!("{:?}: {doubt}", shown(name))),
        }
    }
}

/// Reason why a name is not used for a peer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Doubt {
    #[error("expected a name of letters, digits, -, . and _")]
    NoHost,
    #[error("an address may become another machine's: expected a name")]
    Address,
    #[error("it means this machine: expected another name")]
    Here,
    #[error("it is the name of another peer, {0}: expected another name")]
    Taken(String),
    #[error(
        "it resolves to {found}, but this machine was met at {met}: expected another name, or this one again"
    )]
    Elsewhere { found: IpAddr, met: IpAddr },
}

impl Doubt {
    fn of(name: &str, key: &PublicKey, peers: &Peers) -> Option<Self> {
        let is_name = name.parse::<PeerName>().is_ok_and(|name| name.is_host());
        let address = name.split('%').next().unwrap_or_default();
        let lower = name.trim_end_matches('.').to_ascii_lowercase();
        let is_local = |label: Option<&str>| label == Some("localhost");
        if !is_name || lower.is_empty() {
            return Some(Self::NoHost);
        }
        if address.parse::<IpAddr>().is_ok() {
            return Some(Self::Address);
        }
        if is_local(lower.split('.').next()) || is_local(lower.rsplit('.').next()) {
            return Some(Self::Here);
        }
        let other = peers.by_name(name).filter(|peer| peer.key != *key)?;
        Some(Self::Taken(other.key.fingerprint()))
    }

    /// Asks the system's resolver. A name without addresses, or without an answer in time, is used.
    async fn of_addresses(name: &str, met: IpAddr) -> Option<Self> {
        let found = timeout(RESOLVER_PATIENCE, lookup_host((name, 0))).await;
        let found = found.ok()?.ok()?;
        let found: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
        let met = met.to_canonical();
        let first = *found.first()?;
        (!found.contains(&met)).then_some(Self::Elsewhere { found: first, met })
    }
}

/// Longest wait for the resolver. The other machine waits meanwhile.
const RESOLVER_PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait for the user, less than the other machine waits.
const LONGEST_QUESTION: Duration = Duration::from_secs(100);

/// Buffer size for an answer in bytes, if standard input is a pipe.
const LINE: usize = 4096;

#[cfg(test)]
mod tests {
    use nicstripe::trust::PublicLine;

    use super::*;

    #[test]
    fn a_name_that_may_mean_another_machine_is_doubted() {
        let key = |number| PublicKey::from_bytes([number; 32]).unwrap();
        let mut peers = Peers::default();
        peers
            .add(&PublicLine::new(key(7), "nas"), Some("nas"))
            .unwrap();
        for (name, doubt) in [
            ("", Doubt::NoHost),
            (".", Doubt::NoHost),
            ("..", Doubt::NoHost),
            ("-oProxyCommand=x", Doubt::NoHost),
            ("-x", Doubt::NoHost),
            ("a b", Doubt::NoHost),
            ("a:b", Doubt::NoHost),
            ("10.0.1.2", Doubt::Address),
            ("::1", Doubt::Address),
            ("fe80::1%eth1", Doubt::Address),
            ("localhost", Doubt::Here),
            ("LocalHost.", Doubt::Here),
            ("localhost.localdomain", Doubt::Here),
            ("a.localhost", Doubt::Here),
            ("nas", Doubt::Taken(key(7).fingerprint())),
        ] {
            assert_eq!(Doubt::of(name, &key(8), &peers), Some(doubt), "{name}");
        }
        for name in ["laptop", "nas.example", "x1"] {
            assert_eq!(Doubt::of(name, &key(8), &peers), None);
        }
        assert_eq!(Doubt::of("nas", &key(7), &peers), None);
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_another_address_is_doubted() {
        // A number is an address to the system's resolver.
        let met = |text: &str| text.parse::<IpAddr>().unwrap();
        let doubt = Doubt::of_addresses("127.1", met("127.0.0.2")).await;
        let found = met("127.0.0.1");
        let met = met("127.0.0.2");
        assert_eq!(doubt, Some(Doubt::Elsewhere { found, met }));
        assert_eq!(Doubt::of_addresses("127.1", found).await, None);
        let unknown = "no-such-host.invalid";
        assert_eq!(Doubt::of_addresses(unknown, met).await, None);
    }
}

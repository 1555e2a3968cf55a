//! `nicstripe discover`: lists the daemons on directly connected networks.

mod document;

use std::time::{Duration, Instant};

use clap::Args;
use nicstripe::{
    DEFAULT_PORT,
    discovery::{self, DiscoveredPeer, SearchOptions},
    trust::{Identity, Peers},
};

use self::document::document;
use crate::{
    connect::{arguments::parse_port, location::as_target},
    failure::Failure,
    output::{json::print_document, logging, stdout, terminal::Terminal},
    places,
    process::runtime,
    text::{
        invocation::{Invocation, quoted},
        quantity::parse_time,
        table::left_aligned,
    },
};

/// List the daemons on the cables of this machine, with their keys and cables
///
/// Asks by multicast on each interface; needs no address, name server or privilege. A daemon
/// answers only trusted keys, unless started with --announce. Every answer is signed and verified.
/// No answer is not an error.
#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// Wait this long for answers: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    timeout: Duration,

    /// Port of the daemons
    #[arg(short = 'P', long, default_value_t = DEFAULT_PORT, value_parser = parse_port)]
    port: u16,

    /// Ask on this interface only; may be repeated [default: every interface that is up]
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,

    /// Print one JSON document on standard output, also after a failure
    /// (docs/schema/discover.schema.json)
    #[arg(long)]
    json: bool,
}

impl Discover {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let started_at = Instant::now();
        let json = self.json;
        let result = self.search(terminal);
        if json {
            let printed = print_document(&document(&result, started_at.elapsed()));
            // A failed search outranks failed output.
            return result.and(printed);
        }
        let answers = result?;
        table(&answers).into_iter().try_for_each(stdout::line)?;
        advise(&answers, terminal);
        Ok(())
    }

    fn search(self, terminal: &Terminal) -> Result<Vec<DiscoveredPeer>, Failure> {
        logging::start(terminal)?;
        let home = places::home()?;
        let identity = Identity::load_or_create(home.identity_file())?;
        let peers = Peers::load(home.peers_file())?;
        let options = SearchOptions {
            port: self.port,
            duration: self.timeout,
            interfaces: self.interface,
            ..SearchOptions::default()
        };
        runtime::run(async { Ok(discovery::discover(&identity, &peers, options).await?) })
    }
}

fn table(answers: &[DiscoveredPeer]) -> Vec<String> {
    if answers.is_empty() {
        return Vec::new();
    }
    let titles = ["NAME", "FINGERPRINT", "TRUSTED", "CABLE", "ADDRESS", "RTT"].map(str::to_owned);
    let mut rows = vec![titles];
    rows.extend(answers.iter().map(row));
    left_aligned(&rows)
}

fn row(peer: &DiscoveredPeer) -> [String; 6] {
    let trusted = if peer.trusted { "yes" } else { "no" };
    let cable = format!("{} → {}", peer.interface, peer.peer_interface);
    let address = as_target(peer.address.ip(), &peer.interface, peer.address.port());
    let rtt = format!("{:.1} ms", peer.rtt.as_secs_f64() * 1e3);
    [
        name(peer),
        peer.key.fingerprint(),
        trusted.to_owned(),
        cable,
        address,
        rtt,
    ]
}

/// Returns the local name of a trusted peer. The name that an untrusted daemon gives itself is
/// marked as a claim.
fn name(peer: &DiscoveredPeer) -> String {
    match &peer.name {
        Some(name) => name.clone(),
        None if peer.trusted => "-".to_owned(),
        None if peer.host_hint.is_empty() => "unknown key".to_owned(),
        // The library has escaped the claimed name already.
        None => format!("unknown key, claims \"{}\"", peer.host_hint),
    }
}

/// Prints hints if no daemon answered, or how to trust the daemons whose keys are not trusted yet.
fn advise(answers: &[DiscoveredPeer], terminal: &Terminal) {
    if answers.is_empty() {
        terminal.say("no daemon answered");
        terminal.hint(
            "a daemon answers only trusted keys, or all keys with: nicstripe serve --announce",
        );
    }
    let program = Invocation::of_this_process().program();
    let peers = answers.chunk_by(|one, other| one.key == other.key);
    let firsts = peers.filter_map(|cables| cables.first());
    for stranger in firsts.filter(|one| !one.trusted) {
        let add = format!(
            "{program} trust add {} --name NAME",
            quoted(stranger.key.to_string())
        );
        let fingerprint = stranger.key.fingerprint();
        terminal.hint(&format!(
            "if `nicstripe serve` prints {fingerprint} there: {add}"
        ));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use nicstripe::trust::PublicKey;
    use nicstripe_testkit::with;

    use super::*;

    /// Returns the answer of a daemon on `interface`, for tests. The daemon is trusted if it has a
    /// name.
    pub(crate) fn answer_of(key: u8, name: Option<&str>, interface: &str) -> DiscoveredPeer {
        let key = PublicKey::from_bytes([key; 32]).unwrap();
        with!(
            DiscoveredPeer::new(key, "[fe80::2%7]:7747".parse().unwrap()),
            trusted: name.is_some(),
            name: name.map(str::to_owned),
            host_hint: "x".into(),
            interface: interface.into(),
            peer_interface: "eth1".into(),
            peer_index: 3,
            rtt: Duration::from_micros(730),
        )
    }

    #[test]
    fn the_table_shows_each_cable_under_its_title() {
        let lines = table(&[
            answer_of(1, Some("nas"), "eth1"),
            answer_of(2, None, "enp3s0"),
        ]);
        assert_eq!(
            lines,
            [
                "NAME                     FINGERPRINT     TRUSTED  CABLE          ADDRESS            RTT",
                "nas                      AQEB-AQEB-AQEB  yes      eth1 → eth1    [fe80::2%eth1]:    0.7 ms",
                "unknown key, claims \"x\"  AgIC-AgIC-AgIC  no       enp3s0 → eth1  [fe80::2%enp3s0]:  0.7 ms",
            ]
        );
        assert!(table(&[]).is_empty());
    }
}

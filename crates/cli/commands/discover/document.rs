//! The JSON document of `nicstripe discover`.

use std::{net::Ipv6Addr, time::Duration};

use nicstripe::discovery::DiscoveredPeer;
use serde::Serialize;

use crate::{
    failure::Failure,
    output::json::{Outcome, micros, seconds},
};

/// JSON document of `nicstripe discover`, described in `docs/schema/discover.schema.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Discovery<'a> {
    schema: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
    elapsed_s: f64,
    peers: Vec<PeerDocument<'a>>,
}

/// JSON object of one discovered daemon.
#[derive(Debug, Serialize)]
struct PeerDocument<'a> {
    key: String,
    fingerprint: String,
    trusted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    cables: Vec<CableDocument<'a>>,
}

/// JSON object of one cable on which a daemon answered.
#[derive(Debug, Serialize)]
struct CableDocument<'a> {
    interface: &'a str,
    peer_interface: &'a str,
    address: Ipv6Addr,
    scope: u32,
    port: u16,
    rtt_us: u64,
}

impl<'a> Discovery<'a> {
    pub(crate) fn of(
        result: &'a Result<Vec<DiscoveredPeer>, Failure>,
        elapsed: Duration,
        hint: Option<String>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            outcome: Outcome::of(result.as_ref().err(), hint),
            elapsed_s: seconds(elapsed),
            peers: result
                .as_ref()
                .map_or_else(|_| Vec::new(), |heard| peers(heard)),
        }
    }
}

/// Groups answers by the daemon's key. The input must be sorted by key.
fn peers(heard: &[DiscoveredPeer]) -> Vec<PeerDocument<'_>> {
    heard
        .chunk_by(|one, other| one.key == other.key)
        .filter_map(peer)
        .collect()
}

fn peer(cables: &[DiscoveredPeer]) -> Option<PeerDocument<'_>> {
    let first = cables.first()?;
    Some(PeerDocument {
        key: first.key.to_string(),
        fingerprint: first.key.fingerprint(),
        trusted: first.trusted,
        name: first.name.as_deref(),
        host: Some(first.host_hint.as_str()).filter(|host| !host.is_empty()),
        cables: cables.iter().map(CableDocument::from).collect(),
    })
}

impl<'a> From<&'a DiscoveredPeer> for CableDocument<'a> {
    fn from(heard: &'a DiscoveredPeer) -> Self {
        Self {
            interface: &heard.interface,
            peer_interface: &heard.peer_interface,
            address: *heard.address.ip(),
            scope: heard.address.scope_id(),
            port: heard.address.port(),
            rtt_us: micros(heard.rtt),
        }
    }
}

/// Name and version of the schema. The version is raised when a field is removed or changes its
/// meaning, not for a new field.
const SCHEMA: &str = "nicstripe-discover/1";

#[cfg(test)]
mod tests {
    use nicstripe::Error;
    use serde_json::{Value, to_value};

    use super::*;
    use nicstripe_testkit::Schema;

    use crate::commands::discover::tests::heard;

    fn document(result: &Result<Vec<DiscoveredPeer>, Failure>) -> Value {
        let hint = result.is_err().then(|| "plug it in".to_owned());
        let document = to_value(Discovery::of(result, Duration::from_millis(2003), hint)).unwrap();
        Schema::load("discover").check(&document);
        document
    }

    #[test]
    fn a_peer_is_told_once_with_all_its_cables() {
        let found = document(&Ok(vec![
            heard(1, Some("nas"), "eth1"),
            heard(1, Some("nas"), "eth2"),
            heard(2, None, "eth1"),
        ]));
        assert_eq!(found["peers"].as_array().unwrap().len(), 2, "{found:#}");
        let nas = &found["peers"][0];
        assert_eq!(
            (&nas["name"], &nas["trusted"]),
            (&"nas".into(), &true.into())
        );
        assert_eq!(nas["cables"][1]["interface"], "eth2");
        assert_eq!(nas["cables"][0]["address"], "fe80::2");
        let stranger = &found["peers"][1];
        assert_eq!(
            (stranger.get("name"), &stranger["trusted"]),
            (None, &false.into())
        );
    }

    #[test]
    fn silence_and_failure_are_told_apart() {
        let silence = document(&Ok(Vec::new()));
        assert_eq!(
            (&silence["ok"], &silence["exit_code"]),
            (&true.into(), &0.into())
        );
        let failure = document(&Err(Error::NoInterface { why: "none is up" }.into()));
        assert_eq!(
            (&failure["ok"], &failure["exit_code"], &failure["hint"]),
            (&false.into(), &10.into(), &"plug it in".into())
        );
    }
}

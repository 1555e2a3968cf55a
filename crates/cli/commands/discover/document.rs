//! The JSON document of `nicstripe discover`.

use std::time::Duration;

use nicstripe::discovery::DiscoveredPeer;

use crate::{
    failure::Failure,
    output::json::{Object, hinted_outcome, micros, seconds},
};

/// Returns the document, described in `docs/schema/discover.schema.json`. Groups the answers by the
/// daemon's key, by which they are sorted.
pub(crate) fn document(result: &Result<Vec<DiscoveredPeer>, Failure>, elapsed: Duration) -> Object {
    let answers = result.as_deref().unwrap_or_default();
    let peers = answers.chunk_by(|one, other| one.key == other.key);
    Object::default()
        .with("schema", SCHEMA)
        .and(hinted_outcome(result.as_ref().err()))
        .with("elapsed_s", seconds(elapsed))
        .list("peers", peers, of_peer)
}

fn of_peer(cables: &[DiscoveredPeer]) -> Object {
    let first = &cables[0];
    Object::default()
        .with("key", first.key.to_string())
        .with("fingerprint", first.key.fingerprint())
        .with("trusted", first.trusted)
        .with("name", &first.name)
        .with(
            "host",
            Some(&first.host_hint).filter(|host| !host.is_empty()),
        )
        .list("cables", cables, of_cable)
}

fn of_cable(peer: &DiscoveredPeer) -> Object {
    Object::default()
        .with("interface", &peer.interface)
        .with("peer_interface", &peer.peer_interface)
        .with("address", peer.address.ip())
        .with("scope", peer.address.scope_id())
        .with("port", peer.address.port())
        .with("rtt_us", micros(peer.rtt))
}

const SCHEMA: &str = "nicstripe-discover/1";

#[cfg(test)]
mod tests {
    use nicstripe::Error;

    use serde_json::{Value, to_value};

    use super::*;
    use nicstripe_testkit::Schema;

    use crate::commands::discover::tests::answer_of;

    fn document(result: &Result<Vec<DiscoveredPeer>, Failure>) -> Value {
        let document = to_value(super::document(result, Duration::from_millis(2003))).unwrap();
        Schema::load("discover").check(&document);
        document
    }

    #[test]
    fn a_peer_is_told_once_with_all_its_cables() {
        let found = document(&Ok(vec![
            answer_of(1, Some("nas"), "eth1"),
            answer_of(1, Some("nas"), "eth2"),
            answer_of(2, None, "eth1"),
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
            (
                &failure["ok"],
                &failure["exit_code"],
                failure["hint"].is_string()
            ),
            (&false.into(), &10.into(), true)
        );
    }
}

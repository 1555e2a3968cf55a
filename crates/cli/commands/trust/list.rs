//! `nicstripe trust list`: the trusted peers, and when and from where they were last seen.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use nicstripe::trust::{DialTarget, FileError, Home, Peer, Peers, PublicKey, Sighting, Sightings};

use super::{name_of, rights};
use crate::{
    failure::Failure,
    output::{
        json::{Object, hinted_outcome, print_document},
        stdout,
        terminal::Terminal,
    },
    places,
    text::{date::Date, shown, table::left_aligned},
};

/// Last sighting of each peer that was seen.
type Seen = HashMap<PublicKey, Sighting>;

/// Prints a line for each trusted peer. Without the sightings if they cannot be read.
pub(super) fn print(home: &Home, terminal: &Terminal) -> Result<(), Failure> {
    let peers = Peers::load(home.peers_file())?;
    let seen = seen(home);
    let now = SystemTime::now();
    table(&peers, seen.as_ref().ok(), now)
        .into_iter()
        .try_for_each(stdout::line)?;
    if let Err(error) = seen {
        terminal.warning(&nicstripe::chain(&error));
    }
    if peers.iter().next().is_none() {
        terminal.say("no trusted peers yet: nicstripe trust add LINE, with the output of `nicstripe key` on the other machine");
    }
    Ok(())
}

pub(super) fn print_json() -> Result<(), Failure> {
    let found = places::home().map_err(Failure::from).and_then(|home| {
        let peers = Peers::load(home.peers_file())?;
        Ok((peers, seen(&home)))
    });
    let printed = print_document(&document(&found));
    // A failed list outranks failed output.
    found.map(drop).and(printed)
}

fn seen(home: &Home) -> Result<Seen, FileError> {
    let sightings = Sightings::at(home.sightings_file()).read()?;
    // The most recent one comes first.
    let by_key = sightings.into_iter().rev();
    Ok(by_key.map(|seen| (seen.key, seen)).collect())
}

/// Returns the lines of the list, without sightings if `seen` is `None`.
fn table(peers: &Peers, seen: Option<&Seen>, now: SystemTime) -> Vec<String> {
    let row = |peer: &Peer| {
        let mut row = vec![name_of(peer), peer.key.fingerprint(), rights(&peer.options)];
        row.extend(seen.map(|seen| said(seen.get(&peer.key), now)));
        row.push(peer.key.to_string());
        row
    };
    left_aligned(&peers.iter().map(row).collect::<Vec<_>>())
}

/// Returns when and from where a peer was last seen, such as `seen 2 h ago from 10.0.1.2 on eth1`.
fn said(sighting: Option<&Sighting>, now: SystemTime) -> String {
    let Some(seen) = sighting else {
        return "never seen".to_owned();
    };
    let on = seen.interface.as_ref();
    let on = on.map_or_else(String::new, |name| format!(" on {}", shown(name)));
    // A time in the future comes from a clock that was wrong.
    let ago = ago(now.duration_since(seen.time).unwrap_or_default());
    format!("seen {ago} from {}{on}", seen.address)
}

fn ago(time: Duration) -> String {
    match time.as_secs() {
        0..60 => "just now".to_owned(),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

type Loaded = (Peers, Result<Seen, FileError>);

/// Returns the document, described in `docs/schema/trust-list.schema.json`.
fn document(found: &Result<Loaded, Failure>) -> Object {
    let loaded = found.as_ref().ok();
    let seen = loaded.map(|(_, seen)| seen);
    let peers = loaded.into_iter().flat_map(|(peers, seen)| {
        let sighting = |peer: &Peer| seen.as_ref().ok()?.get(&peer.key);
        peers.iter().map(move |peer| (peer, sighting(peer)))
    });
    Object::default()
        .with("schema", SCHEMA)
        .and(hinted_outcome(found.as_ref().err()))
        .list("peers", peers, of_peer)
        .with(
            "seen_error",
            seen.and_then(|seen| seen.as_ref().err())
                .map(|error| nicstripe::chain(error)),
        )
}

fn of_peer((peer, sighting): (&Peer, Option<&Sighting>)) -> Object {
    let options = &peer.options;
    let access = options.access.word();
    let dial: Vec<&str> = options.dial.iter().map(DialTarget::as_str).collect();
    let listen: Vec<String> = options.listen.iter().map(ToString::to_string).collect();
    let exec: Vec<String> = options.exec.iter().map(ToString::to_string).collect();
    Object::default()
        .with("name", peer.name.as_ref().map(ToString::to_string))
        .with("key", peer.key.to_string())
        .with("fingerprint", peer.key.fingerprint())
        .with("access", access)
        .with("root", options.root.as_ref().map(shown))
        .with("rate_bps", options.rate.map(|rate| rate.bits_per_second()))
        .with("no_bench", options.no_bench)
        .with("special_modes", options.special_modes)
        .with("dial", dial)
        .with("listen", listen)
        .with("exec", exec)
        .with("seen", sighting.map(of_sighting))
}

fn of_sighting(seen: &Sighting) -> Object {
    Object::default()
        .with("time", Date::of(seen.time).rfc3339())
        .with("address", seen.address)
        .with("interface", &seen.interface)
}

const SCHEMA: &str = "nicstripe-trust-list/1";

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "nicstripe-ed25519 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn the_list_is_aligned_and_ends_with_the_key() {
        let mut peers = Peers::default();
        peers.add(&KEY.parse().unwrap(), Some("nas")).unwrap();
        let line = |seen: Option<&Seen>| table(&peers, seen, SystemTime::now()).join("\n");
        assert_eq!(
            line(Some(&Seen::new())),
            format!("nas  AAEC-AwQF-BgcI  may read, write and replace  never seen  {KEY}")
        );
        assert_eq!(
            line(None),
            format!("nas  AAEC-AwQF-BgcI  may read, write and replace  {KEY}")
        );
    }

    #[test]
    fn times_are_told_in_one_unit() {
        for (seconds, said) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 min ago"),
            (3_599, "59 min ago"),
            (7_200, "2 h ago"),
            (172_799, "47 h ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(ago(Duration::from_secs(seconds)), said);
        }
    }
}

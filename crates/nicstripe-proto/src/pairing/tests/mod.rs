//! Tests of the pairing of two machines. Each test has different cabling.

mod candidates;
mod explanations;
mod plans;
mod verdicts;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::*;
use crate::wire::message::{PeerAddress, PeerInterface};

const GIGABIT: u64 = 1_000_000_000;

/// Returns an enabled interface with addresses in the form `ip/len`. The interface's index is the
/// number in its name.
fn interface(name: &str, addresses: &[&str]) -> PeerInterface {
    let address = |text: &&str| {
        let (ip, len) = text.split_once('/').unwrap();
        PeerAddress {
            ip: ip.parse().unwrap(),
            prefix_len: len.parse().unwrap(),
        }
    };
    let index = name
        .trim_start_matches(|letter: char| !letter.is_ascii_digit())
        .parse()
        .unwrap_or(0);
    PeerInterface {
        addresses: addresses.iter().map(address).collect(),
        ..PeerInterface::new(name, index)
    }
}

fn rated(name: &str, line_rate_bps: u64, addresses: &[&str]) -> PeerInterface {
    PeerInterface {
        line_rate_bps: Some(line_rate_bps),
        ..interface(name, addresses)
    }
}

/// Returns interfaces `a0`, `a1`, … that have only a link-local address.
fn bare(letter: &str, count: usize) -> Vec<PeerInterface> {
    (0..count)
        .map(|number| {
            interface(
                &format!("{letter}{number}"),
                &[&format!("fe80::{letter}:{number}/64")],
            )
        })
        .collect()
}

/// Returns the interfaces `a0` and `a1` of one machine, and `b0` and `b1` of the other, all in one
/// IPv4 subnet.
fn one_subnet() -> (Vec<PeerInterface>, Vec<PeerInterface>) {
    let local = vec![
        interface("a0", &["10.9.0.11/24"]),
        interface("a1", &["10.9.0.12/24"]),
    ];
    let remote = vec![
        interface("b0", &["10.9.0.21/24"]),
        interface("b1", &["10.9.0.22/24"]),
    ];
    (local, remote)
}

fn ends(candidates: &[Candidate]) -> Vec<(&str, &str)> {
    candidates
        .iter()
        .map(|candidate| {
            (
                candidate.local.interface.as_str(),
                candidate.remote.interface.as_str(),
            )
        })
        .collect()
}

fn taken(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(ours, theirs)| (ours.to_string(), theirs.to_string()))
        .collect()
}

/// Returns the best candidate of a class between two interfaces.
fn between(pairing: &Pairing, ours: &str, theirs: &str, preference: Preference) -> CandidateId {
    let is_it = |candidate: &&Candidate| {
        ends(std::slice::from_ref(*candidate)) == [(ours, theirs)]
            && candidate.preference == preference
    };
    pairing.candidates().find(is_it).unwrap().id()
}

/// Answers all probes as if cables joined `a0` with `b(wiring[0])`, `a1` with `b(wiring[1])`, and
/// so on.
///
/// Returns the number of probes.
fn probe_all(pairing: &mut Pairing, wiring: &[usize]) -> usize {
    let mut probes = 0;
    loop {
        let wanted = pairing.to_probe(&[]);
        assert!(wanted.len() <= MOST_PROBES);
        if wanted.is_empty() {
            return probes;
        }
        for candidate in wanted {
            probes += 1;
            match wiring.get(candidate.local.index as usize) {
                Some(&number) if number == candidate.remote.index as usize => {
                    pairing.reached(candidate.id());
                }
                _ => pairing.failed(candidate.id(), Failure::Unreachable(Obstacle::Silence)),
            }
        }
    }
}

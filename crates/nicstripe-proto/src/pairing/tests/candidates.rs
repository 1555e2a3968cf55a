//! Tests of the candidates derived from the interface lists of two machines.

use super::*;

fn found(local: Vec<PeerInterface>, remote: Vec<PeerInterface>) -> Vec<Candidate> {
    Pairing::new(local, remote).candidates().cloned().collect()
}

#[test]
fn an_address_that_both_sides_have_leads_nowhere() {
    let local = vec![interface("docker0", &["172.17.0.1/16"])];
    let remote = vec![
        interface("docker0", &["172.17.0.1/16"]),
        interface("y", &["172.17.0.9/16"]),
    ];
    assert_eq!(found(local, remote), []);
}

#[test]
fn a_link_local_address_that_both_ends_have_leads_nowhere() {
    let ends = [
        interface("a0", &["fe80::1/64"]),
        interface("b0", &["fe80::1/64"]),
        interface("b1", &["fe80::2/64"]),
    ];
    let [ours, same, other] = ends;
    assert_eq!(
        super::ends(&found(vec![ours], vec![same, other])),
        [("a0", "b1")]
    );
}

#[test]
fn interfaces_in_one_subnet_are_candidates_crosswise_and_marked() {
    let (local, remote) = one_subnet();
    let found = found(local, remote);
    assert_eq!(found.len(), 4);
    assert!(
        found
            .iter()
            .all(|candidate| candidate.preference == Preference::SharedSubnet)
    );
}

#[test]
fn an_interface_that_is_no_candidate_still_makes_its_subnet_a_shared_one() {
    let wifi = PeerInterface {
        candidate: false,
        ..interface("wlan0", &["10.0.1.9/24"])
    };
    let found = found(
        vec![interface("a0", &["10.0.1.1/24"]), wifi],
        vec![interface("b0", &["10.0.1.2/24"])],
    );
    assert_eq!(
        found
            .iter()
            .map(|candidate| candidate.preference)
            .collect::<Vec<_>>(),
        [Preference::SharedSubnet]
    );
}

#[test]
fn link_local_addresses_join_each_interface_with_each_and_once() {
    let local = vec![
        interface("a0", &["fe80::a/64", "fe80::b/64"]),
        interface("a1", &["fe80::c/64"]),
    ];
    let remote = vec![
        interface("b0", &["10.0.0.1/24", "fe80::d/64", "fe80::e/64"]),
        interface("b1", &["10.0.1.1/24"]),
    ];
    let found = found(local, remote);
    assert_eq!(ends(&found), [("a0", "b0"), ("a1", "b0")]);
    assert!(
        found
            .iter()
            .all(|candidate| candidate.preference == Preference::LinkLocal)
    );
    assert_eq!(
        found[0].remote.address,
        "fe80::d".parse::<IpAddr>().unwrap()
    );
}

#[test]
fn better_preferences_come_first_and_within_each_the_higher_rate() {
    let local = vec![
        rated(
            "a0",
            GIGABIT,
            &["10.9.0.1/24", "fd00:1::1/64", "fe80::1/64", "10.1.0.1/24"],
        ),
        rated("a1", 10 * GIGABIT, &["10.9.0.3/24"]),
    ];
    let remote = vec![rated(
        "b0",
        10 * GIGABIT,
        &["10.9.0.2/24", "fd00:1::2/64", "fe80::2/64", "10.1.0.2/24"],
    )];
    let found: Vec<(Preference, Option<u64>)> = found(local, remote)
        .into_iter()
        .map(|candidate| (candidate.preference, candidate.rate_bps))
        .collect();
    let gigabit = Some(GIGABIT);
    assert_eq!(
        found,
        [
            (Preference::OwnSubnet, gigabit),
            (Preference::LinkLocal, gigabit),
            (Preference::OwnPrefix, gigabit),
            (Preference::SharedSubnet, Some(10 * GIGABIT)),
            (Preference::SharedSubnet, gigabit),
        ]
    );
}

#[test]
fn a_shaper_at_either_end_lowers_the_rate() {
    let shaped = |name, limit, address| PeerInterface {
        egress_limit_bps: limit,
        ..rated(name, 10 * GIGABIT, &[address])
    };
    let found = found(
        vec![shaped("a0", None, "10.0.0.1/24")],
        vec![shaped("b0", Some(GIGABIT), "10.0.0.2/24")],
    );
    assert_eq!(found[0].rate_bps, Some(GIGABIT));
}

#[test]
fn nonsense_from_a_peer_is_harmless() {
    let local = vec![interface(
        "a0",
        &[
            "10.0.1.1/99",
            "fd00::1/255",
            "0.0.0.0/0",
            "fe80::1/64",
            "10.0.0.1/8",
        ],
    )];
    let many: Vec<String> = (0..1000)
        .map(|host| format!("10.0.{}.{}/8", 3 + host / 250, host % 250))
        .collect();
    let many = many.iter().map(String::as_str).collect::<Vec<_>>();
    let nonsense = |name| PeerInterface {
        line_rate_bps: Some(u64::MAX),
        egress_limit_bps: Some(u64::MAX),
        ..interface(
            name,
            &[
                "10.0.1.2/99",
                "fd00::2/255",
                "1.0.0.0/0",
                "::/0",
                "255.255.255.255/0",
                "fe80::2/0",
            ],
        )
    };
    let nothing = PeerInterface {
        line_rate_bps: Some(0),
        ..interface("", &["10.0.0.7/8"])
    };
    let mut remote = vec![
        nonsense("b0"),
        nonsense("b0"),
        nonsense("b1"),
        interface("b2", &many),
        nothing,
    ];
    remote.extend(
        (0..1000).map(|number| interface(&format!("c{number}"), &["10.0.0.9/8", "fe80::3/64"])),
    );
    let mut pairing = Pairing::new(local.clone(), remote.clone());
    assert!(pairing.candidates().count() <= MOST_INTERFACES * (MOST_ADDRESSES + 1));
    assert_eq!(pairing.plan(&[]).len(), 1);
    probe_all(&mut pairing, &[0]);
    pairing.update(remote, local);
    assert_eq!(pairing.plan(&[]).len(), 1);
    let explained = pairing.explain(&[]);
    let ours = explained
        .iter()
        .filter(|explanation| explanation.side == Side::Local);
    let names: BTreeSet<&str> = ours
        .clone()
        .map(|explanation| explanation.interface.as_str())
        .collect();
    assert_eq!(
        (ours.count(), names.len()),
        (MOST_INTERFACES, MOST_INTERFACES)
    );
}

#[test]
fn no_two_candidates_have_the_same_identity() {
    let double = |name| PeerInterface {
        index: 7,
        ..interface(name, &["10.0.0.2/24", "10.0.0.2/24", "fe80::2/64"])
    };
    let local = vec![interface("a0", &["10.0.0.1/24", "fe80::1/64"])];
    let found = found(local, vec![double("b0"), double("b1")]);
    let ids: BTreeSet<CandidateId> = found.iter().map(Candidate::id).collect();
    assert_eq!((found.len(), ids.len()), (2, 2));
}

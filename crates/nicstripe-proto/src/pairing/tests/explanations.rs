//! Tests of the explanations of a plan for each interface.

use super::*;

/// Returns the outcome for the interface `name`; `None` if it has no explanation.
fn fact_of(explanations: &[Explanation], name: &str) -> Option<Fact> {
    explanations
        .iter()
        .find(|explanation| explanation.interface == name)
        .map(|explanation| explanation.fact.clone())
}

fn left_out(pairing: &Pairing, name: &str) -> LeftOut {
    match fact_of(&pairing.explain(&[]), name) {
        Some(Fact::LeftOut(why)) => why,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn each_of_ours_is_explained_and_of_theirs_those_left_over() {
    let wifi = PeerInterface {
        candidate: false,
        ..interface("wlan0", &["192.168.0.9/24"])
    };
    let local = vec![interface("a0", &["10.0.0.1/24"]), wifi.clone()];
    let remote = vec![
        interface("b0", &["10.0.0.2/24"]),
        PeerInterface {
            name: "wlan1".into(),
            ..wifi
        },
    ];
    let explained = Pairing::new(local, remote).explain(&[]);
    let who: Vec<(Side, &str)> = explained
        .iter()
        .map(|explanation| (explanation.side, explanation.interface.as_str()))
        .collect();
    assert_eq!(
        who,
        [
            (Side::Local, "a0"),
            (Side::Local, "wlan0"),
            (Side::Remote, "wlan1")
        ]
    );
    assert_eq!(
        fact_of(&explained, "wlan0"),
        Some(Fact::LeftOut(LeftOut::NoCandidateHere))
    );
    assert_eq!(
        fact_of(&explained, "wlan1"),
        Some(Fact::LeftOut(LeftOut::NoCandidateHere))
    );
}

#[test]
fn a_link_is_told_with_its_state_and_the_next_best() {
    let local = vec![interface(
        "a0",
        &["10.0.0.1/24", "fd00::1/64", "fe80::1/64"],
    )];
    let remote = vec![interface(
        "b0",
        &["10.0.0.2/24", "fd00::2/64", "fe80::2/64"],
    )];
    let mut pairing = Pairing::new(local, remote);
    let id = between(&pairing, "a0", "b0", Preference::OwnSubnet);
    pairing.verified(id);
    let Some(Fact::Paired {
        candidate,
        state,
        next_best,
    }) = fact_of(&pairing.explain(&[]), "a0")
    else {
        panic!("not paired")
    };
    assert_eq!((candidate.id(), state), (id, CandidateState::Verified));
    // The link-local candidate was not probed.
    assert_eq!(
        next_best.map(|next| next.preference),
        Some(Preference::OwnPrefix)
    );
    let link_local = between(&pairing, "a0", "b0", Preference::LinkLocal);
    pairing.reached(link_local);
    let Some(Fact::Paired { next_best, .. }) = fact_of(&pairing.explain(&[]), "a0") else {
        panic!("not paired")
    };
    assert_eq!(next_best.map(|next| next.id()), Some(link_local));
}

#[test]
fn the_next_best_is_the_first_of_equals_or_nothing() {
    let (local, remote) = one_subnet();
    let mut both = remote.clone();
    both.push(interface("b2", &["10.9.0.23/24"]));
    let pairing = Pairing::new(local[..1].to_vec(), both);
    let Some(Fact::Paired { next_best, .. }) = fact_of(&pairing.explain(&[]), "a0") else {
        panic!("not paired")
    };
    assert_eq!(
        next_best.map(|next| next.remote.interface),
        Some("b1".to_owned())
    );
    let pairing = Pairing::new(local[..1].to_vec(), remote[..1].to_vec());
    let Some(Fact::Paired { next_best, .. }) = fact_of(&pairing.explain(&[]), "a0") else {
        panic!("not paired")
    };
    assert_eq!(next_best, None);
}

#[test]
fn interfaces_without_a_common_subnet_have_nothing_in_common() {
    let pairing = Pairing::new(
        vec![interface("a0", &["10.0.0.1/24", "fe80::1/64"])],
        vec![interface("b0", &["10.1.0.1/24"])],
    );
    assert_eq!(left_out(&pairing, "a0"), LeftOut::NothingInCommon);
    assert_eq!(left_out(&pairing, "b0"), LeftOut::NothingInCommon);
}

#[test]
fn what_is_restricted_away_is_told_so() {
    let mut pairing = Pairing::new(
        vec![interface("a0", &["10.0.0.1/24"])],
        vec![interface("b0", &["10.0.0.2/24"])],
    );
    pairing.restrict(IpAddr::is_ipv6);
    assert_eq!(left_out(&pairing, "a0"), LeftOut::NotPermitted);
}

#[test]
fn bare_cables_wait_for_a_probe_and_then_say_what_came_of_it() {
    let mut pairing = Pairing::new(bare("a", 2), bare("b", 1));
    assert_eq!(left_out(&pairing, "a0"), LeftOut::AwaitsProbe);
    assert_eq!(left_out(&pairing, "b0"), LeftOut::AwaitsProbe);
    probe_all(&mut pairing, &[7, 0]);
    let LeftOut::Failed(failed) = left_out(&pairing, "a0") else {
        panic!("not failed")
    };
    assert_eq!(
        failed.iter().map(|(_, why)| why).collect::<Vec<_>>(),
        [&Failure::Unreachable(Obstacle::Silence)]
    );
    assert!(matches!(
        fact_of(&pairing.explain(&[]), "a1"),
        Some(Fact::Paired {
            state: CandidateState::Reached,
            ..
        })
    ));
}

#[test]
fn an_interface_too_many_is_told_that_the_peer_has_no_more() {
    let (local, remote) = one_subnet();
    assert_eq!(
        left_out(&Pairing::new(local.clone(), remote[..1].to_vec()), "a1"),
        LeftOut::PeerHasNoMore
    );
    assert_eq!(
        left_out(&Pairing::new(local[..1].to_vec(), remote), "b1"),
        LeftOut::PeerHasNoMore
    );
    let mut pairing = Pairing::new(bare("a", 2), bare("b", 1));
    let id = between(&pairing, "a0", "b0", Preference::LinkLocal);
    pairing.verified(id);
    assert_eq!(left_out(&pairing, "a1"), LeftOut::PeerHasNoMore);
}

#[test]
fn a_failure_that_made_no_difference_is_not_the_reason() {
    let (mut local, remote) = one_subnet();
    local.push(interface("a2", &["10.9.0.13/24"]));
    let mut pairing = Pairing::new(local, remote);
    let id = between(&pairing, "a2", "b0", Preference::SharedSubnet);
    pairing.failed(id, Failure::Unreachable(Obstacle::Silence));
    assert_eq!(left_out(&pairing, "a2"), LeftOut::PeerHasNoMore);
}

#[test]
fn one_subnet_where_nothing_arrives_rightly_is_told_with_where_it_arrived() {
    let (local, remote) = one_subnet();
    let mut pairing = Pairing::new(local, remote);
    // As measured: all packets from a0 and a1 arrive at b1, so only the link from a0 is usable.
    for (ours, theirs) in [("a0", "b0"), ("a1", "b0")] {
        let id = between(&pairing, ours, theirs, Preference::SharedSubnet);
        pairing.failed(
            id,
            Failure::WrongInterface {
                arrived: "b1".into(),
            },
        );
    }
    let id = between(&pairing, "a0", "b1", Preference::SharedSubnet);
    pairing.verified(id);
    for (name, failures) in [("a1", 1), ("b0", 2)] {
        let LeftOut::Failed(failed) = left_out(&pairing, name) else {
            panic!("{name} did not fail")
        };
        assert_eq!(failed.len(), failures);
        assert!(failed.iter().all(|(_, why)| *why
            == Failure::WrongInterface {
                arrived: "b1".into()
            }));
    }
}

#[test]
fn interfaces_that_are_taken_say_with_what() {
    let (local, remote) = one_subnet();
    let explained = Pairing::new(local, remote).explain(&taken(&[("a1", "b0")]));
    assert_eq!(
        fact_of(&explained, "a1"),
        Some(Fact::Taken { with: "b0".into() })
    );
    assert!(
        matches!(fact_of(&explained, "a0"), Some(Fact::Paired { candidate, .. }) if candidate.remote.interface == "b1")
    );
    assert_eq!(explained.len(), 2);
}

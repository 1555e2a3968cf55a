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
    let wifi = |name| PeerInterface {
        candidate: false,
        ..interface(name, &["192.168.0.9/24"])
    };
    let local = vec![interface("a0", &["10.0.0.1/24"]), wifi("wlan0")];
    let remote = vec![interface("b0", &["10.0.0.2/24"]), wifi("wlan1")];
    let explained = Pairing::new(local, remote).explain(&[]);
    let left_out = Fact::LeftOut(LeftOut::NoCandidateHere);
    let told: Vec<(Side, &str, bool)> = explained
        .iter()
        .map(|one| (one.side, one.interface.as_str(), one.fact == left_out))
        .collect();
    assert_eq!(
        told,
        [
            (Side::Local, "a0", false),
            (Side::Local, "wlan0", true),
            (Side::Remote, "wlan1", true)
        ]
    );
}

/// Returns the planned candidate of the interface `a0`, its state, and the next best one.
fn paired(pairing: &Pairing) -> (CandidateId, CandidateState, Option<CandidateId>) {
    match fact_of(&pairing.explain(&[]), "a0") {
        Some(Fact::Paired {
            candidate,
            state,
            next_best,
        }) => (candidate.id(), state, next_best.map(|next| next.id())),
        other => panic!("not paired: {other:?}"),
    }
}

#[test]
fn a_link_is_told_with_its_state_and_the_next_best() {
    let side = |name, host| {
        let addresses = ["10.0.0.", "fd00::", "fe80::"].map(|net| match net {
            "10.0.0." => format!("{net}{host}/24"),
            _ => format!("{net}{host}/64"),
        });
        vec![interface(name, &addresses.each_ref().map(|all| &**all))]
    };
    let mut pairing = Pairing::new(side("a0", 1), side("b0", 2));
    let [own, prefix, link_local] = [
        Preference::OwnSubnet,
        Preference::OwnPrefix,
        Preference::LinkLocal,
    ]
    .map(|preference| between(&pairing, "a0", "b0", preference));
    pairing.verified(own);
    // The link-local candidate was not probed.
    let verified = CandidateState::Verified;
    assert_eq!(paired(&pairing), (own, verified.clone(), Some(prefix)));
    pairing.reached(link_local);
    assert_eq!(paired(&pairing), (own, verified, Some(link_local)));
}

#[test]
fn the_next_best_is_the_first_of_equals_or_nothing() {
    let (local, remote) = one_subnet();
    let with =
        |more: &[PeerInterface]| Pairing::new(local[..1].to_vec(), [&remote[..1], more].concat());
    let pairing = with(&[remote[1].clone(), interface("b2", &["10.9.0.23/24"])]);
    let second = between(&pairing, "a0", "b1", Preference::SharedSubnet);
    assert_eq!(paired(&pairing).2, Some(second));
    assert_eq!(paired(&with(&[])).2, None);
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

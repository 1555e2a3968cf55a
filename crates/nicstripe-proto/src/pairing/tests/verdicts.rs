//! Tests of a plan after probe and connection results, and after changes of interfaces.

use super::*;

fn wrong(arrived: &str) -> Failure {
    Failure::WrongInterface {
        arrived: arrived.into(),
    }
}

/// Plans and connects until nothing changes. Returns the links. `works` returns the result of each
/// connection.
fn settle(
    pairing: &mut Pairing,
    works: impl Fn(&Candidate) -> Result<(), Failure>,
) -> Vec<Candidate> {
    for _ in 0..100 {
        let plan = pairing.plan(&[]);
        let untried: Vec<&Candidate> = plan
            .iter()
            .filter(|candidate| *pairing.state(candidate.id()) != CandidateState::Verified)
            .collect();
        if untried.is_empty() {
            return plan;
        }
        let verdicts: Vec<(CandidateId, Result<(), Failure>)> = untried
            .into_iter()
            .map(|candidate| (candidate.id(), works(candidate)))
            .collect();
        for (id, verdict) in verdicts {
            match verdict {
                Ok(()) => pairing.verified(id),
                Err(why) => pairing.failed(id, why),
            }
        }
    }
    panic!("it does not converge");
}

#[test]
fn bare_cables_are_found_as_they_are_crossed() {
    let mut pairing = Pairing::new(bare("a", 3), bare("b", 3));
    assert_eq!(pairing.plan(&[]), []);
    assert_eq!(probe_all(&mut pairing, &[2, 0, 1]), 9);
    let plan = pairing.plan(&[]);
    assert_eq!(ends(&plan), [("a0", "b2"), ("a1", "b0"), ("a2", "b1")]);
    assert!(
        plan.iter()
            .all(|candidate| candidate.preference == Preference::LinkLocal)
    );
}

#[test]
fn a_cable_without_a_partner_is_probed_and_left_out() {
    let mut pairing = Pairing::new(bare("a", 2), bare("b", 3));
    probe_all(&mut pairing, &[1]);
    assert_eq!(ends(&pairing.plan(&[])), [("a0", "b1")]);
}

#[test]
fn each_interface_is_probed_early_and_each_pair_once() {
    let mut pairing = Pairing::new(bare("a", 40), bare("b", 50));
    let first = pairing.to_probe(&[]);
    let local: BTreeSet<&str> = first
        .iter()
        .map(|candidate| candidate.local.interface.as_str())
        .collect();
    assert_eq!((first.len(), local.len()), (MOST_PROBES, 40));
    assert_eq!(probe_all(&mut pairing, &[]), 40 * 50);
}

#[test]
fn interfaces_with_a_verified_link_or_taken_are_not_probed() {
    let mut pairing = Pairing::new(bare("a", 3), bare("b", 3));
    let id = between(&pairing, "a0", "b1", Preference::LinkLocal);
    pairing.verified(id);
    assert_eq!(
        ends(&pairing.to_probe(&taken(&[("a1", "b0")]))),
        [("a2", "b2")]
    );
}

#[test]
fn where_arp_answers_on_the_wrong_interface_link_local_takes_over() {
    let (mut local, mut remote) = one_subnet();
    for (side, letter) in [(&mut local, "a"), (&mut remote, "b")] {
        side.iter_mut()
            .zip(bare(letter, 2))
            .for_each(|(interface, bare)| interface.addresses.extend(bare.addresses));
    }
    let mut pairing = Pairing::new(local, remote);
    // As measured: every IPv4 connection arrives at b1.
    let works = |candidate: &Candidate| match candidate.remote.interface.as_str() {
        _ if candidate.preference == Preference::LinkLocal => Ok(()),
        "b1" => Ok(()),
        _ => Err(wrong("b1")),
    };
    let links = settle(&mut pairing, works);
    assert_eq!(ends(&links), [("a1", "b1")]);
    for candidate in pairing.to_probe(&[]) {
        pairing.reached(candidate.id());
    }
    let links = settle(&mut pairing, works);
    assert_eq!(ends(&links), [("a0", "b0"), ("a1", "b1")]);
    assert_eq!(
        links.iter().map(|link| link.preference).collect::<Vec<_>>(),
        [Preference::LinkLocal, Preference::SharedSubnet]
    );
}

#[test]
fn a_pair_that_failed_beside_a_link_is_tried_again_when_that_link_lost_its_interface() {
    let (local, remote) = one_subnet();
    let mut pairing = Pairing::new(local.clone(), remote.clone());
    let [straight, flux] = [("a1", "b1"), ("a0", "b0")]
        .map(|(ours, theirs)| between(&pairing, ours, theirs, Preference::SharedSubnet));
    pairing.verified(straight);
    pairing.failed(flux, wrong("b1"));
    let mut unplugged = local;
    unplugged[1].candidate = false;
    pairing.update(unplugged, remote);
    assert_eq!(*pairing.state(flux), CandidateState::Untried);
    assert_eq!(ends(&pairing.plan(&[])).len(), 1);
}

#[test]
fn a_link_that_was_replaced_keeps_no_interface_when_its_successor_is_lost() {
    let (local, remote) = one_subnet();
    let mut pairing = Pairing::new(local.clone(), remote.clone());
    let [kept, replaced, flux] = [("a1", "b1"), ("a0", "b1"), ("a0", "b0")]
        .map(|(a, b)| between(&pairing, a, b, Preference::SharedSubnet));
    pairing.verified(kept);
    pairing.verified(replaced);
    pairing.closed(replaced);
    pairing.failed(flux, wrong("b1"));

    let mut unplugged = local;
    unplugged[1].candidate = false;
    pairing.update(unplugged, remote);
    pairing.lost(kept);
    assert!(!pairing.is_in_use(replaced));
    assert_eq!(*pairing.state(flux), CandidateState::Untried);
}

#[test]
fn a_connection_that_arrives_at_an_idle_interface_is_a_link_to_that_one() {
    let (local, remote) = one_subnet();
    let mut pairing = Pairing::new(local.clone(), remote.clone());
    // Only a0 and b1 have a cable, and b1 answers for both addresses.
    let works = |candidate: &Candidate| {
        let [ours, theirs] =
            [&candidate.local, &candidate.remote].map(|end| end.interface.as_str());
        match (ours, theirs, candidate.remote.address.to_string().as_str()) {
            ("a0", "b0", "10.9.0.21") => Err(wrong("b1")),
            ("a0", "b1", "10.9.0.21") => Ok(()),
            _ => Err(Failure::Unreachable(Obstacle::Silence)),
        }
    };
    let links = settle(&mut pairing, works);
    assert_eq!(ends(&links), [("a0", "b1")]);
    assert_eq!(links[0].remote.address.to_string(), "10.9.0.21");
    pairing.update(local.clone(), remote.clone());
    assert!(pairing.is_in_use(links[0].id()), "a change elsewhere");
    let mut unplugged = remote;
    unplugged[1].candidate = false;
    pairing.update(local, unplugged);
    assert_eq!(pairing.candidate(links[0].id()), None);
}

#[test]
fn a_connection_that_arrives_at_an_interface_with_a_link_is_none() {
    let (local, remote) = one_subnet();
    let mut pairing = Pairing::new(local, remote);
    let links = settle(&mut pairing, |candidate| {
        match candidate.remote.interface.as_str() {
            "b1" => Ok(()),
            _ => Err(wrong("b1")),
        }
    });
    assert_eq!(ends(&links), [("a1", "b1")]);
}

#[test]
fn where_all_ways_fail_nothing_is_planned() {
    let (local, remote) = one_subnet();
    let mut pairing = Pairing::new(local, remote);
    assert_eq!(settle(&mut pairing, |_| Err(wrong("eth9"))), []);
}

#[test]
fn another_way_between_the_same_interfaces_is_tried_when_the_better_one_fails() {
    let side = |name, host| {
        vec![interface(
            name,
            &[&format!("10.0.0.{host}/24"), &format!("fd00::{host}/64")],
        )]
    };
    let mut pairing = Pairing::new(side("a0", 1), side("b0", 2));
    assert_eq!(pairing.plan(&[])[0].preference, Preference::OwnSubnet);
    let links = settle(&mut pairing, |candidate| {
        if candidate.remote.address.is_ipv4() {
            Err(Failure::Unreachable(Obstacle::Silence))
        } else {
            Ok(())
        }
    });
    assert_eq!(
        links.iter().map(|link| link.preference).collect::<Vec<_>>(),
        [Preference::OwnPrefix]
    );
}

#[test]
fn a_link_that_works_gives_way_to_a_greater_total_and_returns_if_that_fails() {
    let local = vec![
        rated("a0", 10 * GIGABIT, &["10.9.0.1/24"]),
        rated("a1", GIGABIT, &["10.9.0.2/24"]),
    ];
    let mut remote = vec![rated("b0", GIGABIT, &["10.9.0.3/24"])];
    let mut pairing = Pairing::new(local.clone(), remote.clone());
    let working = between(&pairing, "a0", "b0", Preference::SharedSubnet);
    pairing.verified(working);
    remote.push(rated("b1", 10 * GIGABIT, &["10.9.0.4/24"]));
    pairing.update(local, remote);
    assert_eq!(
        ends(&pairing.plan(&[])),
        [("a0", "b0"), ("a1", "b1")],
        "an unanswered probe holds no place"
    );
    let [faster, slower] = [("a0", "b1"), ("a1", "b0")]
        .map(|(ours, theirs)| between(&pairing, ours, theirs, Preference::SharedSubnet));
    pairing.reached(faster);
    pairing.reached(slower);
    assert_eq!(ends(&pairing.plan(&[])), [("a0", "b1"), ("a1", "b0")]);
    pairing.failed(faster, wrong("b0"));
    assert_eq!(ends(&pairing.plan(&[])), [("a0", "b0"), ("a1", "b1")]);
    assert!(pairing.is_in_use(working));
}

#[test]
fn of_two_equal_links_that_were_verified_the_older_is_kept() {
    let (local, remote) = one_subnet();
    for (first, second) in [("a0", "a1"), ("a1", "a0")] {
        let mut pairing = Pairing::new(local.clone(), remote[..1].to_vec());
        let [older, newer] =
            [first, second].map(|ours| between(&pairing, ours, "b0", Preference::SharedSubnet));
        pairing.verified(older);
        pairing.verified(newer);
        assert_eq!(ends(&pairing.plan(&[])), [(first, "b0")]);
        assert!(pairing.is_in_use(older) && !pairing.is_in_use(newer));
    }
}

#[test]
fn a_late_answer_to_a_probe_does_not_undo_what_a_connection_proved() {
    let mut pairing = Pairing::new(bare("a", 1), bare("b", 1));
    let id = between(&pairing, "a0", "b0", Preference::LinkLocal);
    pairing.verified(id);
    pairing.reached(id);
    assert_eq!(*pairing.state(id), CandidateState::Verified);
    pairing.failed(id, Failure::Stranger);
    pairing.reached(id);
    assert_eq!(*pairing.state(id), CandidateState::Reached);
}

#[test]
fn a_cable_plugged_in_later_is_planned_and_the_others_stay() {
    let (local, remote) = (bare("a", 3), bare("b", 3));
    let mut pairing = Pairing::new(local[..2].to_vec(), remote[..2].to_vec());
    probe_all(&mut pairing, &[0, 1]);
    let links = settle(&mut pairing, |_| Ok(()));
    pairing.update(local, remote);
    assert_eq!(pairing.plan(&[]), links);
    assert_eq!(ends(&pairing.to_probe(&[])), [("a2", "b2")]);
    probe_all(&mut pairing, &[0, 1, 2]);
    assert_eq!(
        ends(&pairing.plan(&[])),
        [("a0", "b0"), ("a1", "b1"), ("a2", "b2")]
    );
}

#[test]
fn an_interface_that_goes_takes_its_verdicts_along() {
    let (local, remote) = (bare("a", 1), bare("b", 1));
    let mut pairing = Pairing::new(local.clone(), remote.clone());
    let id = between(&pairing, "a0", "b0", Preference::LinkLocal);
    pairing.verified(id);
    pairing.update(local.clone(), vec![]);
    assert_eq!(pairing.plan(&[]), []);
    // A late result for an interface that has disappeared must not affect an interface that
    // returns.
    pairing.verified(id);
    pairing.reached(id);
    pairing.update(local, remote);
    assert_eq!(*pairing.state(id), CandidateState::Untried);
}

#[test]
fn what_came_back_is_tried_again_and_the_rest_is_not() {
    type Change = fn(&mut PeerInterface);
    let changes: [(&str, Change); 3] = [
        ("another address", |interface| {
            interface.addresses.push(PeerAddress {
                ip: [10, 3, 0, 1].into(),
                prefix_len: 24,
            });
        }),
        ("another line rate", |interface| {
            interface.line_rate_bps = Some(GIGABIT);
        }),
        ("its carrier again", |interface| interface.candidate = true),
    ];
    for (what, change) in changes {
        let (mut local, remote) = one_subnet();
        let mut pairing = Pairing::new(local.clone(), remote.clone());
        let ids: Vec<CandidateId> = pairing.candidates().map(Candidate::id).collect();
        ids.iter()
            .for_each(|id| pairing.failed(*id, Failure::Unreachable(Obstacle::Silence)));
        pairing.update(local.clone(), remote.clone());
        assert_eq!(pairing.plan(&[]), [], "nothing changed");
        if what == "its carrier again" {
            local[0].candidate = false;
            pairing.update(local.clone(), remote.clone());
        }
        change(&mut local[0]);
        pairing.update(local, remote);
        let plan = pairing.plan(&[]);
        assert_eq!(ends(&plan), [("a0", "b0")], "{what}");
        assert_eq!(
            *pairing.state(plan[0].id()),
            CandidateState::Untried,
            "{what}"
        );
    }
}

#[test]
fn a_subnet_that_is_not_shared_any_more_is_tried_again() {
    let (local, remote) = one_subnet();
    let mut pairing = Pairing::new(local[..1].to_vec(), remote.clone());
    let id = between(&pairing, "a0", "b0", Preference::SharedSubnet);
    pairing.failed(id, wrong("b1"));
    pairing.update(local[..1].to_vec(), remote[..1].to_vec());
    assert_eq!(*pairing.state(id), CandidateState::Untried);
    assert_eq!(pairing.plan(&[])[0].preference, Preference::OwnSubnet);
}

#[test]
fn restrictions_outlive_changes() {
    let side = |name, host| {
        vec![interface(
            name,
            &[&format!("10.0.0.{host}/24"), &format!("fd00::{host}/64")],
        )]
    };
    let mut pairing = Pairing::new(side("a0", 1), side("b0", 2));
    pairing.restrict(IpAddr::is_ipv6);
    pairing.update([side("a0", 1), side("a1", 3)].concat(), side("b0", 2));
    let plan = pairing.plan(&[]);
    assert!(plan[0].remote.address.is_ipv6());
}

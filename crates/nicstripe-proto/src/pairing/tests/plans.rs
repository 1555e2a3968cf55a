//! Tests of the candidates that a plan selects.

use nicstripe_sim::Rng;

use super::{super::candidate::End, *};

#[test]
fn cables_in_separate_subnets_pair_by_subnet() {
    let local = vec![
        interface("eth1", &["10.0.1.1/24"]),
        interface("eth2", &["10.0.2.1/24"]),
    ];
    let remote = vec![
        interface("enp2", &["10.0.2.2/24"]),
        interface("enp1", &["10.0.1.2/24"]),
        interface("enp3", &["192.168.0.2/24"]),
    ];
    let plan = Pairing::new(local, remote).plan(&[]);
    assert_eq!(ends(&plan), [("eth1", "enp1"), ("eth2", "enp2")]);
}

#[test]
fn interfaces_that_share_a_cable_get_one_link_and_the_other_one_once_that_fails() {
    let over = |name: &str, address: &str| PeerInterface {
        card: Some("a1".into()),
        ..interface(name, &[address])
    };
    let local = vec![
        interface("a1", &["10.0.1.1/24"]),
        over("vlan2", "10.0.2.1/24"),
        over("vlan3", "10.0.3.1/24"),
        interface("a4", &["10.0.4.1/24"]),
    ];
    let remote = (1..=4)
        .map(|n| interface(&format!("b{n}"), &[&format!("10.0.{n}.2/24")]))
        .collect();
    let mut pairing = Pairing::new(local, remote);
    assert_eq!(ends(&pairing.plan(&[])), [("a1", "b1"), ("a4", "b4")]);
    let explained = pairing.explain(&[]);
    let vlan = explained
        .iter()
        .find(|one| one.interface == "vlan2")
        .unwrap();
    let sharing = LeftOut::SharesCable("a1".into());
    assert_eq!(vlan.fact, Fact::LeftOut(sharing));
    let first = between(&pairing, "a1", "b1", Preference::OwnSubnet);
    pairing.failed(first, Failure::Unreachable(Obstacle::Silence));
    assert_eq!(ends(&pairing.plan(&[])), [("vlan2", "b2"), ("a4", "b4")]);
}

#[test]
fn equal_interfaces_pair_in_their_order() {
    let side = |letter: &str, hosts: std::ops::Range<u32>| -> Vec<PeerInterface> {
        hosts
            .map(|host| {
                interface(
                    &format!("{letter}{}", host % 20),
                    &[&format!("10.9.0.{host}/24")],
                )
            })
            .collect()
    };
    // Sorting by name would put a10 before a9; sorting by index does not.
    let plan = Pairing::new(side("a", 8..12), side("b", 28..33)).plan(&[]);
    assert_eq!(
        ends(&plan),
        [("a8", "b8"), ("a9", "b9"), ("a10", "b10"), ("a11", "b11")]
    );
}

#[test]
fn a_side_without_interfaces_gets_no_plan() {
    let one = || vec![interface("a0", &["10.0.0.1/24"])];
    assert_eq!(Pairing::new(one(), vec![]).plan(&[]), []);
    assert_eq!(Pairing::new(vec![], one()).plan(&[]), []);
}

#[test]
fn interfaces_that_are_taken_or_no_candidates_are_left_out() {
    let local = vec![
        interface("eth1", &["10.0.1.1/24"]),
        interface("eth2", &["10.0.2.1/24"]),
    ];
    let mut remote = vec![
        interface("enp1", &["10.0.1.2/24"]),
        interface("enp2", &["10.0.2.2/24"]),
    ];
    let plan = Pairing::new(local.clone(), remote.clone()).plan(&taken(&[("eth1", "enp1")]));
    assert_eq!(ends(&plan), [("eth2", "enp2")]);
    remote[1].candidate = false;
    assert_eq!(
        ends(&Pairing::new(local, remote).plan(&[])),
        [("eth1", "enp1")]
    );
}

/// Returns interfaces at these rates, all in one subnet.
fn on_the_switch(letter: &str, first: usize, rates: &[u64]) -> Vec<PeerInterface> {
    let one = |(number, rate): (usize, &u64)| {
        let address = format!("10.9.0.{}/24", first + number);
        rated(&format!("{letter}{number}"), *rate, &[&address])
    };
    rates.iter().enumerate().map(one).collect()
}

#[test]
fn several_links_end_at_a_fast_interface_as_far_as_its_rate_suffices() {
    let count = |ours: &[u64], theirs: &[u64]| {
        let sides = || (on_the_switch("a", 1, ours), on_the_switch("b", 101, theirs));
        let (local, remote) = sides();
        let there = Pairing::new(local, remote).plan(&[]).len();
        let (local, remote) = sides();
        assert_eq!(Pairing::new(remote, local).plan(&[]).len(), there);
        there
    };
    let (slow, fast) = (GIGABIT, 10 * GIGABIT);
    assert_eq!(count(&[slow; 2], &[fast]), 2);
    assert_eq!(count(&[slow; 3], &[5 * GIGABIT / 2]), 2);
    assert_eq!(count(&[slow; 12], &[fast]), 10);
    assert_eq!(count(&[slow; 2], &[slow]), 1, "the interface is full");
    assert_eq!(count(&[fast, slow], &[fast]), 1, "the interface is full");
    assert_eq!(count(&[slow; 3], &[slow, fast]), 3);
    let unknown = vec![interface("b0", &["10.9.0.101/24"])];
    let local = on_the_switch("a", 1, &[GIGABIT / 5; 2]);
    assert_eq!(Pairing::new(local, unknown).plan(&[]).len(), 2);
}

#[test]
fn a_working_link_to_a_fast_interface_is_not_replaced_by_one_to_an_idle_interface() {
    let mut pairing = Pairing::new(
        on_the_switch("a", 1, &[GIGABIT; 2]),
        on_the_switch("b", 101, &[10 * GIGABIT]),
    );
    for candidate in pairing.plan(&[]) {
        pairing.verified(candidate.id());
    }
    pairing.update(
        on_the_switch("a", 1, &[GIGABIT; 2]),
        on_the_switch("b", 101, &[10 * GIGABIT, GIGABIT]),
    );
    assert_eq!(ends(&pairing.plan(&[])), [("a0", "b0"), ("a1", "b0")]);
    assert_eq!(pairing.to_probe(&[]), []);
}

#[test]
fn senseless_rates_are_harmless() {
    for rate in [0, 1 << 62, u64::MAX] {
        let side = |letter: &str, host: u32| -> Vec<PeerInterface> {
            let one = |net| {
                rated(
                    &format!("{letter}{net}"),
                    rate,
                    &[
                        &format!("10.{net}.0.{host}/24"),
                        &format!("11.0.{host}.{net}/8"),
                    ],
                )
            };
            (0..MOST_INTERFACES).map(one).collect()
        };
        let (mut local, remote) = (side("a", 1), side("b", 2));
        let plan = Pairing::new(local.clone(), remote[..5].to_vec()).plan(&[]);
        assert_eq!(plan.len(), 5);
        local[0].egress_limit_bps = Some(0);
        let plan = Pairing::new(local, remote).plan(&[]);
        assert_eq!(plan.len(), MOST_INTERFACES);
    }
    let side = |host| {
        [1, 2]
            .map(|net| {
                rated(
                    &format!("x{net}"),
                    u64::MAX,
                    &[&format!("10.{net}.0.{host}/24")],
                )
            })
            .to_vec()
    };
    assert_eq!(Pairing::new(side(1), side(2)).plan(&[]).len(), 2);
}

#[test]
fn no_other_plan_is_worth_more() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let (ours, theirs) = (1 + rng.below(4) as usize, 1 + rng.below(4) as usize);
        let mut local = random_side(&mut rng, "a", ours, 1);
        if rng.below(3) == 0 {
            local[0].egress_limit_bps = Some(GIGABIT / 4);
        }
        let mut pairing = Pairing::new(local, random_side(&mut rng, "b", theirs, 101));
        judge_at_random(&mut pairing, &mut rng);
        let plan = pairing.plan(&[]);
        assert!(
            plan.iter()
                .all(|candidate| may_be_planned(&pairing, candidate)),
            "seed {seed}"
        );
        let scores: Vec<Score> = plan
            .iter()
            .map(|candidate| score(&pairing, candidate))
            .collect();
        let slots = [slots(&pairing, End::Local), slots(&pairing, End::Remote)];
        assert_eq!(
            sum(&scores),
            best_score(&best_of_each_pair(&pairing), slots),
            "seed {seed}"
        );
    }
}

/// Returns interfaces with random rates and addresses: IPv4 addresses in one of three subnets, and
/// IPv6 addresses that are link-local, have a prefix, are both or are missing.
fn random_side(rng: &mut Rng, letter: &str, count: usize, first_host: usize) -> Vec<PeerInterface> {
    let mut one = |number: usize| {
        let host = first_host + number;
        let mut addresses = vec![format!("10.{}.0.{host}/24", rng.below(3))];
        if rng.below(2) == 0 {
            addresses.push(format!("fe80::{host}/64"));
        }
        if rng.below(3) == 0 {
            addresses.push(format!("fd00:{}::{host}/64", rng.below(2)));
        }
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let rates = [None, Some(GIGABIT / 10), Some(GIGABIT), Some(10 * GIGABIT)];
        let line_rate_bps = rates[rng.below(4) as usize];
        PeerInterface {
            line_rate_bps,
            candidate: rng.below(10) > 0,
            ..interface(&format!("{letter}{number}"), &addresses)
        }
    };
    (0..count).map(&mut one).collect()
}

fn judge_at_random(pairing: &mut Pairing, rng: &mut Rng) {
    let ids: Vec<CandidateId> = pairing.candidates().map(Candidate::id).collect();
    for id in ids {
        match rng.below(6) {
            0 => pairing.verified(id),
            1 | 2 => pairing.reached(id),
            3 => pairing.failed(id, Failure::Stranger),
            _ => {}
        }
    }
}

/// Value of a candidate by the documented criteria of a plan, most important criterion first.
type Score = [i64; 8];

fn score(pairing: &Pairing, candidate: &Candidate) -> Score {
    let rate = candidate.rate_bps.unwrap_or(GIGABIT);
    let mut score = [rate as i64, 0, 0, 0, 0, 0, 0, 0];
    score[1] = i64::from(pairing.is_in_use(candidate.id()));
    let place = match candidate.preference {
        Preference::OwnSubnet => 2,
        Preference::LinkLocal => 3,
        Preference::OwnPrefix => 4,
        Preference::SharedSubnet => 5,
    };
    score[place] = 1;
    score[6] = i64::from(matches!(
        pairing.state(candidate.id()),
        CandidateState::Reached | CandidateState::Verified
    ));
    let (ours, theirs): (BTreeSet<u32>, BTreeSet<u32>) = pairing
        .candidates()
        .map(|candidate| (candidate.local.index, candidate.remote.index))
        .unzip();
    let before = |indices: &BTreeSet<u32>, index| indices.range(..index).count() as i64;
    score[7] =
        -(before(&ours, candidate.local.index) - before(&theirs, candidate.remote.index)).pow(2);
    score
}

fn sum(scores: &[Score]) -> Score {
    let add = |sum: Score, score: &Score| std::array::from_fn(|part| sum[part] + score[part]);
    scores.iter().fold([0; 8], add)
}

fn may_be_planned(pairing: &Pairing, candidate: &Candidate) -> bool {
    match pairing.state(candidate.id()) {
        CandidateState::Failed(_) => false,
        CandidateState::Untried => {
            candidate.preference != Preference::LinkLocal && pairing.fits(candidate)
        }
        CandidateState::Reached | CandidateState::Verified => true,
    }
}

/// Returns the best candidate of each pair of interfaces that may be planned, with its score.
fn best_of_each_pair(pairing: &Pairing) -> Vec<(Candidate, Score)> {
    let mut best: BTreeMap<(&str, &str), (Candidate, Score)> = BTreeMap::new();
    for candidate in pairing.candidates() {
        let pair = ends(std::slice::from_ref(candidate))[0];
        let score = score(pairing, candidate);
        if may_be_planned(pairing, candidate)
            && best.get(&pair).is_none_or(|(_, other)| *other < score)
        {
            best.insert(pair, (candidate.clone(), score));
        }
    }
    best.into_values().collect()
}

/// Returns the number of links that each interface can serve, at the rate of its fastest candidate.
fn slots(pairing: &Pairing, end: End) -> BTreeMap<String, u64> {
    let mut fastest: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for candidate in pairing
        .candidates()
        .filter(|one| may_be_planned(pairing, one))
    {
        let own = end.of(candidate);
        let (rate, most) = fastest.entry(own.interface.clone()).or_default();
        *rate = own.rate_bps.unwrap_or(GIGABIT);
        *most = (*most).max(candidate.rate_bps.unwrap_or(GIGABIT));
    }
    let count = |(name, (rate, most)): (String, (u64, u64))| (name, (rate / most).max(1));
    fastest.into_iter().map(count).collect()
}

/// Returns the best total score of all selections from `pairs`, if the interfaces of both machines
/// have this number of links left.
fn best_score(pairs: &[(Candidate, Score)], slots: [BTreeMap<String, u64>; 2]) -> Score {
    let Some(((candidate, score), rest)) = pairs.split_first() else {
        return [0; 8];
    };
    let without = best_score(rest, slots.clone());
    let mut left = slots;
    for (side, end) in left.iter_mut().zip(End::BOTH) {
        let slots = side.get_mut(&end.of(candidate).interface).unwrap();
        let Some(fewer) = slots.checked_sub(1) else {
            return without;
        };
        *slots = fewer;
    }
    without.max(sum(&[*score, best_score(rest, left)]))
}

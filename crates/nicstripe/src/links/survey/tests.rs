use std::net::IpAddr;

use nicstripe_proto::message::{Ipv4Settings, PeerAddress};

use super::*;
use nicstripe_proto::path::{Capacities, LinkRates, PathPlan, PathStatus};

/// Two simulated machines, and the paths between them.
struct Scene {
    pairing: Pairing,
    paths: Vec<PathView>,
    is_automatic: bool,
}

impl Scene {
    fn new(local: Vec<PeerInterface>, remote: Vec<PeerInterface>) -> Self {
        Self {
            pairing: Pairing::new(local, remote),
            paths: Vec::new(),
            is_automatic: true,
        }
    }

    /// Adds a connected path over the best address pair of two interfaces.
    fn link(&mut self, ours: &str, theirs: &str, verified: Option<bool>) -> &mut PathView {
        let joins = |candidate: &&Candidate| {
            candidate.local.interface == ours && candidate.remote.interface == theirs
        };
        let candidate = self.pairing.candidates().find(joins).unwrap().clone();
        self.pairing.verified(candidate.id());
        let plan = PathPlan {
            origin: Origin::Planned,
            pair: Some(candidate.clone()),
            ..plan(ours, candidate.remote.address, Some(theirs))
        };
        self.paths.push(PathView {
            plan,
            status: PathStatus::Up,
            was_open: true,
            verified,
            path_mtu: None,
        });
        self.paths.last_mut().unwrap()
    }

    fn fail(&mut self, ours: &str, theirs: &str, failure: Failure) {
        let joins = |candidate: &&Candidate| {
            candidate.local.interface == ours && candidate.remote.interface == theirs
        };
        let ids: Vec<_> = self
            .pairing
            .candidates()
            .filter(joins)
            .map(Candidate::id)
            .collect();
        ids.into_iter()
            .for_each(|id| self.pairing.failed(id, failure.clone()));
    }

    fn survey(&self) -> LinkSurvey {
        let view = LinksView {
            pairing: self.pairing.clone(),
            paths: self.paths.clone(),
            explanations: self.pairing.explain(&[]),
            is_automatic: self.is_automatic,
            is_probing: false,
        };
        of(&Known {
            view: &view,
            interfaces: &[],
            excluded: &[],
        })
    }
}

fn plan(interface: &str, remote: IpAddr, peer_interface: Option<&str>) -> PathPlan {
    PathPlan {
        peer_interface: peer_interface.map(Into::into),
        capacity: Capacities {
            rates: LinkRates {
                line: Some(BitRate(1_000_000_000)),
                ..LinkRates::default()
            },
            mtu: 9000,
            is_ipv6: false,
        },
        ..PathPlan::new(interface.into(), (remote, 7747).into())
    }
}

fn interface(name: &str, index: u32, address: &str) -> PeerInterface {
    let (ip, prefix_len) = address.split_once('/').unwrap();
    PeerInterface {
        addresses: vec![PeerAddress {
            ip: ip.parse().unwrap(),
            prefix_len: prefix_len.parse().unwrap(),
        }],
        mtu: 9000,
        line_rate_bps: Some(1000),
        settings: Some(Ipv4Settings {
            arp_ignore: 0,
            arp_announce: 0,
            rp_filter: 0,
        }),
        ..PeerInterface::new(name, index)
    }
}

/// Returns two machines with two interfaces each, at these addresses.
fn machines(ours: [&str; 2], theirs: [&str; 2]) -> Scene {
    let of = |names: [&str; 2], [first, second]: [&str; 2]| {
        vec![
            interface(names[0], 1, first),
            interface(names[1], 2, second),
        ]
    };
    Scene::new(of(["eth1", "eth2"], ours), of(["enp1", "enp2"], theirs))
}

/// Returns two machines joined by two cables with separate subnets.
fn two_cables() -> Scene {
    machines(
        ["10.0.1.1/24", "10.0.2.1/24"],
        ["10.0.1.2/24", "10.0.2.2/24"],
    )
}

/// Returns two machines joined by two cables in one subnet.
fn one_subnet() -> Scene {
    let theirs = ["10.9.0.21/24", "10.9.0.22/24"];
    machines(["10.9.0.11/24", "10.9.0.12/24"], theirs)
}

/// Asserts that no interface has failed, and why those without a link have none.
fn assert_unused(survey: &LinkSurvey, why: &str) {
    let mut unused = survey.unused.iter();
    assert!(
        unused.all(|unused| !unused.failed && unused.why == why),
        "{survey:?}"
    );
}

fn astray() -> Failure {
    Failure::WrongInterface {
        arrived: "enp1".into(),
    }
}

#[test]
fn streams_of_one_link_are_one_line_and_verified_together() {
    let mut scene = two_cables();
    scene.link("eth1", "enp1", None);
    scene.link("eth1", "enp1", Some(true));
    let survey = scene.survey();
    assert_eq!(survey.links.len(), 1);
    assert_eq!(
        (survey.links[0].streams, survey.links[0].verified),
        (2, None)
    );
}

#[test]
fn the_expectation_is_the_sum_of_what_gets_through_and_unknown_if_one_is() {
    let mut scene = two_cables();
    scene.link("eth1", "enp1", Some(true));
    scene.link("eth2", "enp2", Some(true)).path_mtu = Some(1500);
    assert_eq!(
        scene.survey().expected,
        Some(BitRate(990_042_044 + 941_482_444))
    );
    scene.link("eth2", "enp2", Some(true));
    scene.paths[1].plan.capacity = Capacities::default();
    assert_eq!(scene.survey().expected, None);
    assert_eq!(two_cables().survey().expected, None, "no links");
}

#[test]
fn a_first_contact_is_shown_only_while_it_is_alone() {
    let mut scene = two_cables();
    scene.paths.push(PathView {
        plan: PathPlan {
            origin: Origin::ContactOnly,
            ..plan("wlan0", "192.0.2.7".parse().unwrap(), None)
        },
        status: PathStatus::Up,
        was_open: true,
        verified: None,
        path_mtu: None,
    });
    assert_eq!(scene.survey().links[0].reason, LinkReason::Contact);
    scene.link("eth1", "enp1", Some(true));
    let reasons: Vec<LinkReason> = scene
        .survey()
        .links
        .iter()
        .map(|link| link.reason)
        .collect();
    assert_eq!(reasons, [LinkReason::OwnSubnet]);
}

#[test]
fn what_strays_has_failed_on_both_sides_with_the_reason() {
    let mut scene = one_subnet();
    scene.link("eth1", "enp1", Some(true));
    [("eth1", "enp2"), ("eth2", "enp1"), ("eth2", "enp2")]
        .into_iter()
        .for_each(|(ours, theirs)| scene.fail(ours, theirs, astray()));
    let survey = scene.survey();
    let failed: Vec<(bool, &str)> = survey
        .unused
        .iter()
        .filter(|unused| unused.failed)
        .map(|unused| (unused.is_peers, &*unused.interface))
        .collect();
    assert_eq!(failed, [(false, "eth2"), (true, "enp2")]);
    assert!(survey.unused[0].why.contains("enp1"), "{survey:?}");
    let failed: Vec<_> = survey.failed.iter().map(|failed| &failed.why).collect();
    let arrived = LinkFailure::Misdirected {
        arrived: "enp1".into(),
    };
    assert!(failed.contains(&&arrived), "{survey:?}");
}

#[test]
fn interfaces_that_no_cable_joins_are_no_failure() {
    let mut scene = machines(
        ["10.0.1.1/24", "fe80::2/64"],
        ["10.0.1.2/24", "fe80::12/64"],
    );
    scene.link("eth1", "enp1", Some(true));
    scene.fail("eth2", "enp2", Failure::Unreachable(Obstacle::Silence));
    let survey = scene.survey();
    assert_eq!(survey.unused.len(), 2);
    assert_unused(&survey, "no answer");
}

#[test]
fn nothing_has_failed_where_the_links_were_named() {
    let mut scene = one_subnet();
    scene.is_automatic = false;
    scene.fail("eth2", "enp2", astray());
    let survey = scene.survey();
    assert_unused(&survey, "other interfaces were named");
}

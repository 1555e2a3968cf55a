use std::net::IpAddr;

use nicstripe_proto::message::{Ipv4Settings, PeerAddress};

use super::*;
use crate::{
    links::request::SessionSettings,
    report::event::LinkState,
    session::{Capacities, LinkRates, PathPlan},
};

/// Two simulated machines, and the paths between them.
struct Scene {
    facts: Facts,
    pairing: Pairing,
    paths: BTreeMap<PathId, Linked>,
    config: LinkerConfig,
}

impl Scene {
    fn new(local: Vec<PeerInterface>, remote: Vec<PeerInterface>) -> Self {
        let facts = Facts {
            local,
            remote,
            port: 7747,
            family: None,
        };
        let pairing = facts.pairing();
        let config = LinkerConfig {
            settings: SessionSettings::default(),
            announces: true,
            routes: None,
            connector: None,
        };
        Self {
            facts,
            pairing,
            paths: BTreeMap::new(),
            config,
        }
    }

    /// Adds a connected path over the best address pair of two interfaces.
    fn link(&mut self, path: u16, ours: &str, theirs: &str, verified: Option<bool>) -> &mut Linked {
        let joins = |candidate: &&Candidate| {
            candidate.local.interface == ours && candidate.remote.interface == theirs
        };
        let candidate = self.pairing.candidates().find(joins).unwrap().clone();
        self.pairing.verified(candidate.id());
        let plan = plan(ours, candidate.remote.address, Some(theirs));
        let linked = Linked {
            plan,
            candidate: Some(candidate),
            state: LinkState::Up,
            opened: true,
            verified,
            path_mtu: None,
        };
        self.paths.entry(PathId(path)).or_insert(linked)
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
        of(&Known {
            interfaces: &[],
            facts: &self.facts,
            pairing: &self.pairing,
            taken: &[],
            paths: &self.paths,
            config: &self.config,
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

/// Returns two machines joined by two cables with separate subnets.
fn two_cables() -> Scene {
    Scene::new(
        vec![
            interface("eth1", 1, "10.0.1.1/24"),
            interface("eth2", 2, "10.0.2.1/24"),
        ],
        vec![
            interface("enp1", 1, "10.0.1.2/24"),
            interface("enp2", 2, "10.0.2.2/24"),
        ],
    )
}

/// Returns two machines joined by two cables in one subnet.
fn one_subnet() -> Scene {
    Scene::new(
        vec![
            interface("eth1", 1, "10.9.0.11/24"),
            interface("eth2", 2, "10.9.0.12/24"),
        ],
        vec![
            interface("enp1", 1, "10.9.0.21/24"),
            interface("enp2", 2, "10.9.0.22/24"),
        ],
    )
}

fn astray() -> Failure {
    Failure::WrongInterface {
        arrived: "enp1".into(),
    }
}

#[test]
fn streams_of_one_link_are_one_line_and_verified_together() {
    let mut scene = two_cables();
    scene.link(0, "eth1", "enp1", None);
    scene.link(1, "eth1", "enp1", Some(true));
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
    scene.link(0, "eth1", "enp1", Some(true));
    scene.link(1, "eth2", "enp2", Some(true)).path_mtu = Some(1500);
    assert_eq!(
        scene.survey().expected,
        Some(BitRate(990_042_044 + 941_482_444))
    );
    scene.link(2, "eth2", "enp2", Some(true));
    scene.paths.get_mut(&PathId(1)).unwrap().plan.capacity = Capacities::default();
    assert_eq!(scene.survey().expected, None);
    assert_eq!(two_cables().survey().expected, None, "no links");
}

#[test]
fn a_first_contact_is_shown_only_while_it_is_alone() {
    let mut scene = two_cables();
    let contact = Linked {
        plan: PathPlan {
            contact_only: true,
            ..plan("wlan0", "192.0.2.7".parse().unwrap(), None)
        },
        candidate: None,
        state: LinkState::Up,
        opened: true,
        verified: None,
        path_mtu: None,
    };
    scene.paths.insert(PathId(0), contact);
    assert_eq!(scene.survey().links[0].reason, LinkReason::Contact);
    scene.link(1, "eth1", "enp1", Some(true));
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
    scene.link(0, "eth1", "enp1", Some(true));
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
    let mut scene = Scene::new(
        vec![
            interface("eth1", 1, "10.0.1.1/24"),
            interface("eth2", 2, "fe80::2/64"),
        ],
        vec![
            interface("enp1", 1, "10.0.1.2/24"),
            interface("enp2", 2, "fe80::12/64"),
        ],
    );
    scene.link(0, "eth1", "enp1", Some(true));
    scene.fail("eth2", "enp2", Failure::Unreachable(Obstacle::Silence));
    let survey = scene.survey();
    assert_eq!(survey.unused.len(), 2);
    assert!(
        survey
            .unused
            .iter()
            .all(|unused| !unused.failed && unused.why == "no answer"),
        "{survey:?}"
    );
}

#[test]
fn nothing_has_failed_where_the_links_were_named() {
    let mut scene = one_subnet();
    scene.config.settings.links = vec!["eth1".parse().unwrap()];
    scene.fail("eth2", "enp2", astray());
    let survey = scene.survey();
    assert!(
        survey
            .unused
            .iter()
            .all(|unused| !unused.failed && unused.why == "other interfaces were named"),
        "{survey:?}"
    );
}

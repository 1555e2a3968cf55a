//! Planning of a session's links, fact by fact.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    Event, LAST_PATH, PathId, PathLoss, Role, Session, SessionConfig,
    message::{Idle, Ipv4Settings, PeerAddress, PeerInterface},
    pairing::{Obstacle, Pairing},
    path::{Arrival, NotConnected, Origin, PathPlan, PathState},
    session::{FIRST_PATH, LinkTerms, MOST_STREAMS, Routed},
};

const GBIT: u64 = 1_000_000_000;

/// Session of a client, with the facts that a test gives it.
struct Client {
    session: Session,
    local: Vec<PeerInterface>,
    now: Instant,
}

impl Client {
    /// Begins by a contact that is no link, at a card that the planner does not know.
    fn new(local: Vec<PeerInterface>, remote: Vec<PeerInterface>, streams: Option<u8>) -> Self {
        let first = PathPlan {
            origin: Origin::ContactOnly,
            ..contact("wlan0", "198.51.100.7")
        };
        Self::met(first, local, remote, streams)
    }

    fn met(
        mut first: PathPlan,
        local: Vec<PeerInterface>,
        remote: Vec<PeerInterface>,
        streams: Option<u8>,
    ) -> Self {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        let mut session = Session::new(Role::Client, SessionConfig::default(), now);
        let pairing = Pairing::new(local.clone(), remote);
        first.complete(&pairing);
        session.handle_arrived(FIRST_PATH, first, &Arrival::default(), now);
        session
            .begin_links(terms(streams), pairing, Vec::new(), now)
            .unwrap();
        Self {
            session,
            local,
            now,
        }
    }

    /// Carries out all steps; host routes are held at once, and returns the others.
    fn steps(&mut self) -> Vec<Event> {
        let mut steps = Vec::new();
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::HoldRoutes(paths) => {
                    let held: Vec<_> = paths.iter().map(|path| (*path, Routed::Held)).collect();
                    self.session.handle_routed(&held, self.now);
                }
                Event::PathChanged { .. } => {}
                event => steps.push(event),
            }
        }
        steps
    }

    /// Returns the paths that are to be connected now.
    fn made(&mut self) -> Vec<PathId> {
        let made = |event| match event {
            Event::Connect(path) => Some(path),
            _ => None,
        };
        self.steps().into_iter().filter_map(made).collect()
    }

    fn opened(&mut self, path: PathId) {
        self.session
            .handle_connected(path, &Arrival::default(), self.now);
    }

    fn failed(&mut self, path: PathId) {
        let why = NotConnected::Obstacle(Obstacle::Silence);
        self.session
            .handle_not_connected(path, why, "timed out".into(), self.now);
    }

    fn lost(&mut self, path: PathId) {
        self.session
            .handle_path_lost(path, PathLoss::Reset, self.now);
    }

    fn tell(&mut self, remote: Vec<PeerInterface>) {
        self.session.handle_peer_interfaces(remote, self.now);
    }

    /// Returns the peer's interfaces, as the session knows them.
    fn known(&self) -> Vec<PeerInterface> {
        let view = self.session.links_view().unwrap();
        view.pairing.remote().to_vec()
    }

    fn tell_own(&mut self, local: Vec<PeerInterface>) {
        let names: BTreeSet<String> = self.local.iter().map(|own| own.name.clone()).collect();
        self.session.handle_interfaces(local, &names, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_heard(FIRST_PATH, self.now);
        self.session.handle_timeout(self.now);
    }

    fn state(&self, path: PathId) -> PathState {
        self.session.path(path).unwrap().state()
    }
}

fn terms(streams: Option<u8>) -> LinkTerms {
    LinkTerms {
        is_automatic: true,
        streams,
        has_routes: true,
        port: 7747,
    }
}

fn interface(name: &str, index: u32, addresses: &[&str]) -> PeerInterface {
    let address = |text: &&str| {
        let (ip, prefix_len) = text.split_once('/').unwrap();
        PeerAddress {
            ip: ip.parse().unwrap(),
            prefix_len: prefix_len.parse().unwrap(),
        }
    };
    PeerInterface {
        addresses: addresses.iter().map(address).collect(),
        line_rate_bps: Some(GBIT),
        ..PeerInterface::new(name, index)
    }
}

/// Returns the interfaces of two machines joined by one cable.
fn cable() -> (Vec<PeerInterface>, Vec<PeerInterface>) {
    (
        vec![interface("eth1", 1, &["10.0.1.1/24"])],
        vec![interface("enp1", 1, &["10.0.1.2/24"])],
    )
}

fn contact(interface: &str, remote: &str) -> PathPlan {
    let remote = (remote.parse::<std::net::IpAddr>().unwrap(), 7747).into();
    PathPlan::new(interface.into(), remote)
}

#[test]
fn a_link_is_kept_when_its_rate_changes_and_when_its_subnet_gets_another_member() {
    let (local, remote) = cable();
    let mut client = Client::new(local.clone(), remote.clone(), None);
    let made = client.made();
    client.opened(made[0]);
    assert!(matches!(&client.steps()[..], [Event::Retire(FIRST_PATH)]));
    client.tell_own(vec![PeerInterface {
        line_rate_bps: Some(GBIT / 10),
        ..local[0].clone()
    }]);
    client.tell(vec![
        remote[0].clone(),
        interface("enp2", 2, &["10.0.1.3/24"]),
    ]);
    assert!(client.steps().is_empty());
    assert_eq!(client.state(made[0]), PathState::Open);
}

#[test]
fn one_stream_that_does_not_connect_does_not_end_a_link_that_works() {
    let (local, remote) = cable();
    let mut client = Client::new(local, remote, Some(2));
    let made = client.made();
    assert_eq!(made.len(), 2);
    client.opened(made[0]);
    client.steps();
    client.failed(made[1]);
    assert!(client.steps().is_empty());
    assert!(!client.session.path(made[1]).unwrap().is_retired());
}

#[test]
fn a_link_that_never_connected_is_replaced_by_another() {
    let (local, mut remote) = cable();
    remote.push(interface("enp2", 2, &["10.0.1.3/24"]));
    let mut client = Client::new(local, remote, None);
    let first = client.made();
    client.failed(first[0]);
    let steps = client.steps();
    assert!(
        matches!(&steps[..], [Event::Retire(path), Event::Connect(_)] if *path == first[0]),
        "{steps:?}"
    );
}

#[test]
fn a_link_that_is_made_again_and_again_takes_no_further_ids() {
    let (local, remote) = cable();
    let mut client = Client::new(local.clone(), remote, None);
    for _ in 0..200 {
        assert_eq!(client.made(), [PathId(1)]);
        client.tell_own(vec![PeerInterface {
            candidate: false,
            idle: Some(Idle::Down),
            addresses: Vec::new(),
            ..local[0].clone()
        }]);
        client
            .session
            .handle_interfaces(Vec::new(), &BTreeSet::new(), client.now);
        client.steps();
        client.tell_own(local.clone());
    }
}

#[test]
fn where_another_machine_answers_the_path_is_given_up_and_not_planned_again() {
    let (local, remote) = cable();
    let mut client = Client::new(local, remote, None);
    let made = client.made();
    let text = "another key".to_owned();
    client
        .session
        .handle_not_connected(made[0], NotConnected::Stranger, text, client.now);
    assert!(matches!(&client.steps()[..], [Event::Retire(path)] if *path == made[0]));
    client.pass(Duration::from_secs(20));
    assert_eq!(client.made(), []);
}

#[test]
fn what_a_peer_tells_in_a_flood_is_planned_with_ten_times_a_second() {
    let (local, remote) = cable();
    let mut client = Client::new(local, remote.clone(), None);
    let told = |number: u32| {
        let other = interface("x", 9, &[&format!("10.7.0.{number}/24")]);
        vec![remote[0].clone(), other]
    };
    client.tell(told(1));
    assert_eq!(client.known(), told(1), "the first at once");
    client.tell(told(2));
    client.tell(told(3));
    assert_eq!(client.known(), told(1));
    client.pass(Duration::from_millis(100));
    assert_eq!(client.known(), told(3));
}

/// Returns a client whose peer has strict reverse-path filtering, so that planned paths are
/// announced.
fn with_a_strict_peer() -> Client {
    let (mut local, mut remote) = cable();
    local.push(interface("eth2", 2, &["10.0.1.3/24"]));
    remote[0].settings = Some(Ipv4Settings {
        arp_ignore: 0,
        arp_announce: 0,
        rp_filter: 1,
    });
    Client::new(local, remote, None)
}

#[test]
fn a_link_that_was_announced_and_is_not_made_is_announced_again_in_the_next_round() {
    let mut client = with_a_strict_peer();
    let mut announced = 0;
    for _ in 0..40 {
        for step in client.steps() {
            match step {
                Event::Announce(_) => {
                    announced += 1;
                    client.tell(client.known());
                }
                Event::Connect(path) => {
                    client.failed(path);
                    assert!(client.session.path(path).unwrap().is_retired());
                }
                _ => {}
            }
        }
        client.pass(Duration::from_millis(500));
    }
    assert!((4..=40).contains(&announced), "{announced}");
}

#[test]
fn what_is_not_answered_is_announced_three_times_before_it_is_tried() {
    let mut client = with_a_strict_peer();
    for _ in 0..3 {
        assert!(matches!(&client.steps()[..], [Event::Announce(_)]));
        client.pass(Duration::from_secs(1));
    }
    assert_eq!(client.made().len(), 1);
}

#[test]
fn without_a_connection_nothing_is_announced_and_all_is_tried_at_once() {
    let mut client = with_a_strict_peer();
    client.lost(FIRST_PATH);
    // The step to hold the routes was given before.
    assert_eq!(client.made().len(), 1);
}

#[test]
fn a_peer_that_drops_each_connection_is_tried_four_times_a_second_at_each_path() {
    let (local, remote) = cable();
    let mut client = Client::new(local, remote, Some(2));
    let mut attempts = 0;
    for _ in 0..1000 {
        client.pass(Duration::from_millis(10));
        for path in client.made() {
            attempts += 1;
            client.opened(path);
            client.lost(path);
        }
    }
    assert!((10..=2 * 4 * 10 + 4).contains(&attempts), "{attempts}");
}

#[test]
fn what_was_announced_for_a_plan_that_is_no_more_is_not_connected() {
    let mut client = with_a_strict_peer();
    assert!(matches!(&client.steps()[..], [Event::Announce(_)]));
    client.tell_own(Vec::new());
    client.tell(client.known());
    assert_eq!(client.made(), []);
}

#[test]
fn an_interface_whose_contact_goes_to_an_unknown_address_is_not_used_twice() {
    let (local, remote) = cable();
    let mut client = Client::met(contact("eth1", "198.51.100.7"), local, remote, None);
    assert_eq!(client.made(), []);
    client.lost(FIRST_PATH);
    assert_eq!(client.made(), [PathId(1)], "what is down holds nothing");
    client.opened(PathId(1));
    assert!(client.session.path(FIRST_PATH).unwrap().is_retired());
}

#[test]
fn further_streams_of_the_contact_belong_to_its_link() {
    let (local, remote) = cable();
    let mut client = Client::met(contact("eth1", "10.0.1.2"), local, remote, Some(3));
    assert_eq!(client.made().len(), 2);
    let mut paths = client.session.paths();
    assert!(paths.all(|(_, path)| path.plan().candidate().is_some()));
}

#[test]
fn more_named_connections_than_a_session_has_are_an_error() {
    let (local, remote) = cable();
    let mut client = Client::new(local.clone(), remote.clone(), None);
    let named = |_| PathPlan {
        origin: Origin::Named,
        ..contact("eth1", "10.0.1.2")
    };
    let begun = client.session.begin_links(
        terms(Some(MOST_STREAMS)),
        Pairing::new(local, remote),
        (0..4).map(named).collect(),
        client.now,
    );
    assert_eq!(begun.unwrap_err().count, usize::from(LAST_PATH.0) + 2);
}

#[test]
fn where_only_the_interface_that_is_excluded_works_the_session_says_so_once_all_is_tried() {
    let (local, remote) = cable();
    let first = PathPlan {
        origin: Origin::Excluded,
        ..contact("wlan0", "198.51.100.7")
    };
    let mut client = Client::met(first.clone(), local.clone(), remote.clone(), None);
    let mut given_up = false;
    for _ in 0..400 {
        for step in client.steps() {
            match step {
                Event::Connect(path) => client.failed(path),
                Event::Probe(one) => {
                    let answer = Err(Obstacle::Silence);
                    client.session.handle_probed(one.id(), answer, client.now);
                }
                Event::GivenUp(FIRST_PATH) => given_up = true,
                _ => {}
            }
        }
        client.pass(Duration::from_millis(100));
    }
    assert!(given_up);
    // A session that has had a link waits for it.
    let mut client = Client::met(first, local, remote, None);
    let made = client.made();
    client.opened(made[0]);
    client.lost(made[0]);
    client.tell_own(Vec::new());
    client.pass(Duration::from_secs(20));
    let steps = client.steps();
    assert!(
        !steps.iter().any(|step| matches!(step, Event::GivenUp(_))),
        "{steps:?}"
    );
}

use nicstripe_proto::{message::PeerAddress, pairing::Pairing};

use super::*;
use crate::session::SessionHandle;

const GBIT: u64 = 1_000_000_000;

/// Linker between two simulated machines, with the commands it sends to the session.
struct LinkerHarness {
    linker: Linker,
    inputs: mpsc::Receiver<Input>,
}

impl LinkerHarness {
    fn new(local: Vec<PeerInterface>, remote: Vec<PeerInterface>) -> Self {
        Self::with_streams(local, remote, None)
    }

    fn with_streams(
        local: Vec<PeerInterface>,
        remote: Vec<PeerInterface>,
        streams: Option<u8>,
    ) -> Self {
        let (sender, inputs) = mpsc::channel(1000);
        let session = SessionHandle::new(sender, Default::default());
        let config = LinkerConfig {
            settings: SessionSettings {
                streams,
                ..SessionSettings::default()
            },
            announces: true,
            routes: None,
            connector: None,
        };
        let facts = Facts {
            local,
            remote,
            port: 7747,
            family: None,
        };
        let linker = Linker::new(config, session, Vec::new(), facts);
        Self { linker, inputs }
    }

    /// Plans again and returns the identifiers of the added paths.
    async fn replan(&mut self) -> Vec<PathId> {
        self.linker.replan().await.unwrap();
        self.made()
    }

    fn made(&mut self) -> Vec<PathId> {
        self.commands()
            .into_iter()
            .filter_map(made_by)
            .flatten()
            .collect()
    }

    fn commands(&mut self) -> Vec<Command> {
        let command = |input| match input {
            Input::Command(command) => command,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| self.inputs.try_recv().ok())
            .map(command)
            .collect()
    }

    fn opened(&mut self, path: PathId, verified: Option<bool>) {
        self.linker.on_opened(path, verified, None);
    }

    async fn lost(&mut self, path: PathId) {
        let why = "connection closed".into();
        self.linker.on_lost(path, why, Obstacle::Silence).await;
    }

    fn interfaces(&self) -> Vec<&str> {
        self.linker
            .paths
            .values()
            .map(|linked| linked.plan.interface.as_str())
            .collect()
    }
}

fn made_by(command: Command) -> Option<Vec<PathId>> {
    match command {
        Command::AddPaths(paths) => Some(paths.into_iter().map(|(path, _)| path).collect()),
        _ => None,
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

/// Returns the interfaces of two machines joined by `count` cables that only have link-local IPv6
/// addresses.
fn bare(count: u32) -> (Vec<PeerInterface>, Vec<PeerInterface>) {
    let side = |name: &str, host: u32| {
        (1..=count)
            .map(|index| {
                interface(
                    &format!("{name}{index}"),
                    index,
                    &[&format!("fe80::{host}:{index}/64")],
                )
            })
            .collect()
    };
    (side("eth", 1), side("enp", 2))
}

#[tokio::test]
async fn a_link_whose_line_rate_changes_is_not_made_anew() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local.clone(), remote);
    let made = bench.replan().await;
    assert_eq!(made.len(), 1);
    bench.opened(made[0], Some(true));
    bench.linker.facts.local = vec![PeerInterface {
        line_rate_bps: Some(GBIT / 10),
        ..local[0].clone()
    }];
    bench.linker.changed();
    bench.linker.replan().await.unwrap();
    assert!(bench.commands().is_empty());
}

#[tokio::test]
async fn a_link_whose_subnet_gets_another_member_is_not_made_anew() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local.clone(), remote.clone());
    let made = bench.replan().await;
    bench.opened(made[0], Some(true));
    bench.linker.facts.remote = vec![remote[0].clone(), interface("enp2", 2, &["10.0.1.3/24"])];
    bench.linker.changed();
    bench.linker.replan().await.unwrap();
    assert!(bench.commands().is_empty());
}

#[tokio::test]
async fn one_stream_that_does_not_connect_does_not_end_a_link_that_works() {
    let (local, mut remote) = cable();
    remote.push(interface("enp2", 2, &["10.0.2.2/24"]));
    let local = vec![PeerInterface {
        addresses: [
            local[0].addresses.clone(),
            interface("", 0, &["10.0.2.1/24"]).addresses,
        ]
        .concat(),
        ..local[0].clone()
    }];
    let mut bench = LinkerHarness::with_streams(local, remote, Some(2));
    let made = bench.replan().await;
    assert_eq!(made.len(), 2);
    bench.opened(made[0], Some(true));
    bench.lost(made[1]).await;
    bench.linker.replan().await.unwrap();
    assert!(bench.commands().is_empty());
}

#[tokio::test]
async fn a_link_whose_arrival_nobody_told_is_waited_for_like_any_other() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    let made = bench.replan().await;
    bench.opened(made[0], None);
    bench.lost(made[0]).await;
    bench.lost(made[0]).await;
    bench.linker.replan().await.unwrap();
    assert!(bench.commands().is_empty());
}

#[tokio::test]
async fn a_link_that_is_made_again_and_again_takes_no_further_numbers() {
    let (local, mut remote) = cable();
    remote.push(interface("enp2", 2, &["10.0.1.3/24"]));
    let mut bench = LinkerHarness::new(local, remote);
    let mut made = bench.replan().await;
    for _ in 0..200 {
        bench.lost(made[0]).await;
        bench.linker.retire(made[0]).await;
        bench.linker.planner = Planner::new(Pairing::new(
            bench.linker.facts.local.clone(),
            bench.linker.facts.remote.clone(),
        ));
        made = bench.replan().await;
        assert_eq!(made, [PathId(1)]);
    }
}

#[tokio::test]
async fn a_link_that_never_connected_is_replaced_by_another() {
    let (local, mut remote) = cable();
    remote.push(interface("enp2", 2, &["10.0.1.3/24"]));
    let mut bench = LinkerHarness::new(local, remote);
    let first = bench.replan().await;
    bench.lost(first[0]).await;
    bench.linker.replan().await.unwrap();
    let commands = bench.commands();
    assert!(
        matches!(&commands[..], [Command::Retire(path), Command::AddPaths(_)] if *path == first[0]),
        "{commands:?}"
    );
}

#[tokio::test]
async fn the_first_contact_is_kept_for_a_path_that_opens_when_it_was_given_up_already() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    let first = PathPlan {
        contact_only: true,
        ..contact("wlan0", "198.51.100.7", None)
    };
    bench
        .linker
        .begin(&first, None, None, Vec::new())
        .await
        .unwrap();
    let made = bench.made();
    let kept = bench.linker.paths.remove(&made[0]).unwrap();
    bench.opened(made[0], Some(true));
    bench.linker.retire_contact().await;
    assert!(bench.commands().is_empty());
    bench.linker.paths.insert(made[0], kept);
    bench.opened(made[0], Some(true));
    bench.linker.retire_contact().await;
    assert!(matches!(
        &bench.commands()[..],
        [Command::Retire(FIRST_PATH)]
    ));
}

/// During duplicate address detection a machine does not list an IPv6 address. A contact at one has
/// no address pair until then, and must not hold its interfaces for good.
#[tokio::test]
async fn a_first_contact_is_a_link_like_others_once_its_addresses_are_listed() {
    let (local, remote) = bare(2);
    let mut early = local.clone();
    early[0].addresses.clear();
    let mut bench = LinkerHarness::new(early, remote);
    let first = contact("eth1", "fe80::2:2", Some("enp2"));
    let begun = bench.linker.begin(&first, Some(true), None, Vec::new());
    begun.await.unwrap();
    assert_eq!(bench.linker.taken().len(), 1);
    bench.linker.facts.local = local;
    bench.linker.changed();
    assert!(bench.linker.paths[&FIRST_PATH].candidate.is_some());
    assert!(bench.linker.taken().is_empty());
    assert!(
        bench
            .linker
            .planner
            .pairing()
            .plan(&[])
            .iter()
            .any(|candidate| is_plan_of(candidate, &first))
    );
}

#[tokio::test]
async fn a_contact_of_unknown_ends_that_is_lost_takes_no_interface() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    let first = contact("eth1", "198.51.100.7", None);
    let begun = bench.linker.begin(&first, None, None, Vec::new());
    begun.await.unwrap();
    bench.made();
    assert_eq!(bench.linker.taken(), [("eth1".to_owned(), String::new())]);
    bench.lost(FIRST_PATH).await;
    assert!(bench.linker.taken().is_empty());
    assert_eq!(bench.replan().await.len(), 1);
}

#[tokio::test]
async fn where_another_machine_answers_the_path_is_given_up_and_not_planned_again() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    let made = bench.replan().await;
    bench.linker.on_astray(made[0], None, "another key").await;
    assert_eq!(bench.replan().await, []);
    assert!(bench.interfaces().is_empty());
}

#[tokio::test]
async fn what_a_peer_tells_in_a_flood_is_planned_with_ten_times_a_second() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote.clone());
    let told = |number: u32| {
        vec![
            remote[0].clone(),
            interface("x", 9, &[&format!("10.7.0.{number}/24")]),
        ]
    };
    let now = Instant::now();
    bench.linker.on_interfaces_received(told(1), now);
    assert_eq!(
        bench.linker.apply_announced_at,
        Some(now),
        "the first at once"
    );
    bench.linker.apply_interfaces(now);
    bench.linker.on_interfaces_received(told(2), now);
    bench.linker.on_interfaces_received(told(3), now);
    assert_eq!(bench.linker.apply_announced_at, Some(now + ANNOUNCED_PAUSE));
    bench.linker.apply_interfaces(now + ANNOUNCED_PAUSE);
    assert_eq!(bench.linker.facts.remote, told(3));
    bench
        .linker
        .on_interfaces_received(told(3), now + ANNOUNCED_PAUSE);
    assert_eq!(bench.linker.apply_announced_at, None, "nothing changed");
}

#[tokio::test]
async fn all_pairs_of_many_bare_cables_are_asked_at_not_only_the_first_64() {
    let (local, remote) = bare(9);
    let mut bench = LinkerHarness::new(local, remote);
    bench.linker.probe();
    while let Some((candidate, _)) = bench.linker.probes.next().await {
        bench.linker.on_probed(candidate, Err(Obstacle::Silence));
    }
    let pairing = bench.linker.planner.pairing();
    let states = pairing
        .candidates()
        .map(|candidate| pairing.state(candidate.id()));
    assert_eq!(states.filter(|state| state.failure().is_some()).count(), 81);
}

#[tokio::test]
async fn changes_in_quick_succession_do_not_ask_twice() {
    let (local, remote) = bare(8);
    let mut bench = LinkerHarness::new(local, remote);
    (0..10).for_each(|_| bench.linker.changed());
    let mut asked = 0;
    while bench.linker.probes.next().await.is_some() {
        asked += 1;
    }
    assert_eq!(asked, 64);
}

/// Returns a linker whose peer has strict reverse-path filtering, so that planned paths are
/// announced. The first connection used another interface.
fn with_a_strict_peer() -> LinkerHarness {
    let (mut local, mut remote) = cable();
    local.push(interface("eth2", 2, &["10.0.1.3/24"]));
    let strict = nicstripe_proto::message::Ipv4Settings {
        arp_ignore: 0,
        arp_announce: 0,
        rp_filter: 1,
    };
    remote[0].settings = Some(strict);
    let mut bench = LinkerHarness::new(local, remote);
    let plan = PathPlan {
        contact_only: true,
        ..contact("eth0", "198.51.100.7", None)
    };
    let met = Linked {
        plan,
        candidate: None,
        state: LinkState::Up,
        opened: true,
        verified: None,
        path_mtu: None,
    };
    bench.linker.paths.insert(FIRST_PATH, met);
    bench
}

#[tokio::test]
async fn an_announced_link_that_is_not_made_is_announced_again_in_the_next_round() {
    let mut bench = with_a_strict_peer();
    for _ in 0..4 {
        bench.linker.replan().await.unwrap();
        assert!(matches!(&bench.commands()[..], [Command::Expect(_)]));
        bench.linker.connect_awaiting().await;
        let [path] = bench.made()[..] else {
            panic!("one path")
        };
        bench.lost(path).await;
        assert!(matches!(&bench.commands()[..], [Command::Retire(retired)] if *retired == path));
        let next_round = bench.linker.planner.poll_timeout().unwrap();
        bench.linker.planner.handle_timeout(&[], next_round);
    }
}

#[tokio::test]
async fn what_is_not_answered_is_announced_three_times_before_it_is_tried() {
    let mut bench = with_a_strict_peer();
    bench.linker.replan().await.unwrap();
    for _ in 0..3 {
        assert!(matches!(&bench.commands()[..], [Command::Expect(_)]));
        bench.linker.on_unanswered().await;
    }
    assert_eq!(bench.made().len(), 1);
}

#[tokio::test]
async fn without_a_link_nothing_is_announced_and_all_is_tried_at_once() {
    let mut bench = with_a_strict_peer();
    bench.linker.paths.get_mut(&FIRST_PATH).unwrap().state =
        LinkState::Down("connection closed".into());
    assert_eq!(bench.replan().await.len(), 1);
}

#[tokio::test]
async fn a_session_out_of_path_numbers_asks_nothing_of_its_peer() {
    let mut bench = with_a_strict_peer();
    bench.linker.numbers.use_up();
    for _ in 0..2 {
        bench.linker.replan().await.unwrap();
        bench.linker.connect_awaiting().await;
    }
    assert_eq!(bench.made(), []);
}

#[tokio::test]
async fn what_was_announced_for_a_plan_that_is_no_more_is_not_connected() {
    let mut bench = with_a_strict_peer();
    bench.linker.replan().await.unwrap();
    assert!(matches!(&bench.commands()[..], [Command::Expect(_)]));
    bench.linker.facts.local.clear();
    bench.linker.changed();
    bench.linker.replan().await.unwrap();
    bench.linker.connect_awaiting().await;
    assert!(bench.commands().is_empty());
}

fn contact(interface: &str, remote: &str, peer_interface: Option<&str>) -> PathPlan {
    PathPlan {
        peer_interface: peer_interface.map(Into::into),
        ..PathPlan::new(
            interface.into(),
            (remote.parse::<IpAddr>().unwrap(), 7747).into(),
        )
    }
}

#[tokio::test]
async fn an_interface_whose_first_contact_goes_to_an_address_the_peer_does_not_know_is_not_used_twice()
 {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    bench
        .linker
        .begin(
            &contact("eth1", "198.51.100.7", None),
            None,
            None,
            Vec::new(),
        )
        .await
        .unwrap();
    assert_eq!(bench.made(), []);
}

#[tokio::test]
async fn further_streams_of_the_first_contact_belong_to_its_link() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::with_streams(local, remote, Some(3));
    bench
        .linker
        .begin(
            &contact("eth1", "10.0.1.2", Some("enp1")),
            Some(true),
            None,
            Vec::new(),
        )
        .await
        .unwrap();
    assert_eq!(bench.made().len(), 2);
    assert!(
        bench
            .linker
            .paths
            .values()
            .all(|linked| linked.candidate.is_some())
    );
}

#[tokio::test]
async fn more_named_connections_than_a_session_has_are_an_error() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::with_streams(local, remote, Some(MOST_STREAMS));
    let named: Vec<PathPlan> = (1..=4)
        .map(|_| PathPlan {
            named: true,
            ..contact("eth1", "10.0.1.2", Some("enp1"))
        })
        .collect();
    let begun = bench
        .linker
        .begin(
            &contact("eth1", "10.0.1.2", Some("enp1")),
            Some(true),
            None,
            named,
        )
        .await;
    assert!(matches!(begun, Err(Error::Link { .. })), "{begun:?}");
}

#[tokio::test]
async fn where_only_the_link_that_is_left_out_works_the_session_says_so() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    let first = PathPlan {
        contact_only: true,
        no_data: true,
        ..contact("wlan0", "198.51.100.7", None)
    };
    bench
        .linker
        .begin(&first, None, None, Vec::new())
        .await
        .unwrap();
    let made = bench.made();
    assert!(
        bench.linker.given_up().is_none(),
        "a path is being connected"
    );
    bench.lost(made[0]).await;
    assert!(
        bench.linker.given_up().is_none(),
        "cables are probed again later"
    );
    while let Some(at) = bench.linker.planner.poll_timeout() {
        bench.linker.planner.handle_timeout(&[], at);
        bench.linker.planner.probe(&[], at, |_| true);
        assert!(bench.linker.given_up().is_none() || bench.linker.planner.poll_timeout().is_none());
    }
    assert!(matches!(bench.linker.given_up(), Some(Error::Link { link, .. }) if link == "wlan0"));
}

#[tokio::test]
async fn a_session_that_has_had_a_link_waits_for_it() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    let first = PathPlan {
        contact_only: true,
        no_data: true,
        ..contact("wlan0", "198.51.100.7", None)
    };
    bench
        .linker
        .begin(&first, None, None, Vec::new())
        .await
        .unwrap();
    let made = bench.made();
    bench.opened(made[0], Some(true));
    bench.linker.paths.remove(&made[0]);
    bench.linker.planner = Planner::new(Pairing::new(Vec::new(), Vec::new()));
    assert!(bench.linker.given_up().is_none());
}

#[tokio::test]
async fn a_session_that_nobody_holds_any_more_is_ended() {
    let (local, remote) = cable();
    let mut bench = LinkerHarness::new(local, remote);
    bench.linker.config.settings.links = vec!["eth1".parse().unwrap()];
    let (_news, receiver) = mpsc::channel(1);
    let (survey, requests) = mpsc::channel(1);
    drop(survey);
    let ran = tokio::time::timeout(
        Duration::from_secs(10),
        bench.linker.run(receiver, requests),
    )
    .await;
    assert!(ran.is_ok());
    assert!(matches!(
        bench.inputs.recv().await,
        Some(Input::Command(Command::Close(CloseCode::Done)))
    ));
}

//! Tests of a trusted read-only peer that announces connections but never makes them. The announced
//! addresses belong to the peer or to another host.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use nicstripe::trust::{Access, PeerOptions, Peers, PublicLine};
use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_proto::{
    Message,
    message::{Expect, Expected, MAX_EXPECTED, PeerAddress, PeerInterface, Token},
};
use nicstripe_testkit::{
    kernel_routes::{NICSTRIPE, Watch, host_routes},
    tests,
    trial::Test,
};

use crate::{
    hosts::{Hosts, Rights},
    wire::{Key, Wire},
};

pub(crate) const TESTS: &[Test] = tests![
    claims_of_anothers_address_get_no_route_and_few_datagrams,
    a_route_by_which_no_connection_comes_goes_and_is_not_had_again_at_once,
];

/// Address of a third party on the cable of eth1. The peer claims to connect to eth2 from this
/// address.
const OTHERS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 99);

/// Address of the peer on the cable of eth1.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 11);

const DAEMON: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 21);

const SESSIONS: u8 = 20;

fn claims_of_anothers_address_get_no_route_and_few_datagrams() {
    let (hosts, key) = hosts();
    let watch = hosts.lab.on(Host::B, Watch::begin).unwrap();
    let eth2 = hosts.lab.interface_index(Host::B, 1);
    let (received, elapsed) = hosts
        .lab
        .on(Host::A, || {
            insist((DAEMON, hosts.daemon.port).into(), &key, eth2)
        })
        .unwrap();

    let routes: Vec<_> = watch
        .added()
        .into_iter()
        .filter(|route| route.protocol == NICSTRIPE)
        .collect();
    assert!(routes.is_empty(), "{routes:?}");
    // A burst of 64, plus 16 per second. At least one, because the daemon did send a query.
    let most = 64 + 16 * (elapsed.as_secs() + 1);
    assert!(
        (1..=most).contains(&received),
        "{received} datagrams in {elapsed:?}, expected at most {most}"
    );
}

/// Starts a daemon on a host with two interfaces in one subnet and strict reverse-path filtering.
/// Returns the hosts and the key of a read-only peer.
fn hosts() -> (Hosts, Key) {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200).bare(); 2])
        .without_ipv6();
    let lab = lab
        .sysctl(Host::B, "net/ipv4/conf/all/rp_filter", "1")
        .build()
        .unwrap();
    // The peer's host also simulates the third party, so that the test can count the datagrams to
    // it.
    let addresses = [
        (Host::B, 0, DAEMON),
        (Host::B, 1, Ipv4Addr::new(10, 9, 0, 22)),
        (Host::A, 0, OWN),
        (Host::A, 0, OTHERS),
    ];
    for (host, link, address) in addresses {
        lab.add_address(host, link, &format!("{address}/24"))
            .unwrap();
    }
    let hosts = Hosts::in_lab(lab, Rights::None, Rights::All);
    let key = Key::generate();
    let line = PublicLine::new(key.public, "");
    Peers::edit(hosts.server.peers_file(), |peers| {
        peers.add(&line, Some("reader"))?;
        peers.set_options(
            &key.public,
            PeerOptions {
                access: Access::ReadOnly,
                ..PeerOptions::unrestricted()
            },
        )
    })
    .unwrap();
    (hosts, key)
}

/// Opens a session as a peer that claims to have `addresses`.
fn session(daemon: SocketAddr, key: &Key, number: u8, addresses: &[Ipv4Addr]) -> Wire {
    let mut claimed = PeerInterface::new("eth9", 9);
    claimed
        .addresses
        .extend(addresses.iter().map(|address| PeerAddress {
            ip: IpAddr::from(*address),
            prefix_len: 24,
        }));
    Wire::session(daemon, key, [number; 16], vec![claimed])
}

fn a_route_by_which_no_connection_comes_goes_and_is_not_had_again_at_once() {
    let (hosts, key) = hosts();
    let eth2 = hosts.lab.interface_index(Host::B, 1);
    let daemon = (DAEMON, hosts.daemon.port).into();
    let routes = || {
        let routes = hosts.lab.on(Host::B, host_routes).unwrap().into_iter();
        routes
            .filter(|route| route.protocol == NICSTRIPE)
            .map(|route| (route.destination, route.interface))
            .collect::<Vec<_>>()
    };
    let watch = hosts.lab.on(Host::B, Watch::begin).unwrap();

    // The peer proves that it owns the address, and the daemon installs a route. The peer makes no
    // connection.
    let ended = hosts
        .lab
        .on(Host::A, || {
            prove(session(daemon, &key, 1, &[OWN, OTHERS]), eth2)
        })
        .unwrap();
    let deadline = Instant::now() + WAIT;
    while routes() != [(OWN, eth2)] {
        assert!(Instant::now() < deadline, "no route: {:?}", routes());
        thread::sleep(Duration::from_millis(20));
    }
    // The session ends without the announced connection. The end of the probation removes the
    // route.
    drop(ended);
    thread::sleep(PROBATION);
    assert_eq!(routes(), [], "a probation that did not end");

    // The daemon rejects the announcement at once, without a token or another probation.
    watch.added();
    hosts
        .lab
        .on(Host::A, || {
            let mut wire = session(daemon, &key, 2, &[OWN]);
            let socket = UdpSocket::bind((OWN, 0)).unwrap();
            wire.say(&Message::Expect(Expect {
                connections: vec![announced(OWN, eth2, &socket)],
            }));
            wire.wait_for(|message| matches!(message, Message::Interfaces(_)));
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 64]).is_err(), "asked for a proof");
        })
        .unwrap();
    assert!(watch.added().is_empty());
}

fn announced(from: Ipv4Addr, interface: u32, socket: &UdpSocket) -> Expected {
    Expected {
        from: from.into(),
        interface,
        port: Some(socket.local_addr().unwrap().port()),
        token: None,
    }
}

/// Announces a connection from the peer's own address, and answers with the token that the daemon
/// sends to that address. The second message also announces an unproven connection from the third
/// party.
fn prove(mut wire: Wire, eth2: u32) -> Wire {
    let socket = UdpSocket::bind((OWN, 0)).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    wire.say(&Message::Expect(Expect {
        connections: vec![announced(OWN, eth2, &socket)],
    }));
    let mut datagram = [0; 64];
    let len = socket.recv(&mut datagram).unwrap();
    let Token(token) = Token::decode(&datagram[..len]).unwrap();
    let proved = Expected {
        from: OWN.into(),
        interface: eth2,
        port: None,
        token: Some(token),
    };
    wire.say(&Message::Expect(Expect {
        connections: vec![proved, announced(OTHERS, eth2, &socket)],
    }));
    wire
}

/// Announces the maximum number of connections per message from the third party, in several
/// sessions. Returns the number of datagrams that the third party received, and the elapsed time.
fn insist(daemon: SocketAddr, key: &Key, eth2: u32) -> (u64, Duration) {
    let third_party = UdpSocket::bind((OTHERS, 0)).unwrap();
    third_party.set_nonblocking(true).unwrap();
    let port = third_party.local_addr().unwrap().port();
    let (mut received, begun) = (0, Instant::now());
    for session in 0..SESSIONS {
        let mut wire = self::session(daemon, key, session, &[OTHERS]);
        for token in [
            None,
            None,
            Some(u64::from(session)),
            None,
            Some(0),
            Some(u64::MAX),
        ] {
            let expected = Expected {
                from: OTHERS.into(),
                interface: eth2,
                port: token.map_or(Some(port), |_| None),
                token,
            };
            wire.say(&Message::Expect(Expect {
                connections: vec![expected; MAX_EXPECTED],
            }));
            thread::sleep(Duration::from_millis(20));
        }
        while third_party.recv(&mut [0; 64]).is_ok() {
            received += 1;
        }
    }
    (received, begun.elapsed())
}

/// Timeout for a datagram or a route.
const WAIT: Duration = Duration::from_secs(10);

/// Time after which the daemon removes the route of an announced connection that the client did not
/// make, plus a margin.
const PROBATION: Duration = Duration::from_secs(11);

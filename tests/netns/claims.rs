//! A trusted peer that may only read, and announces connections from an address that is not its own.

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use nicstripe::trust::{Access, PeerOptions, Peers, PublicLine};
use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_proto::{
    Message,
    message::{Expect, Expected, MAX_EXPECTED, PeerAddress, PeerInterface},
};

use crate::{
    hosts::{Hosts, Rights},
    kernel_routes::Watch,
    wire::{Key, Wire},
};

pub(crate) const TESTS: &[(&str, fn())] = tests![claims_of_anothers_address_get_no_route_and_few_datagrams];

/// A third party's, on the cable of eth1. The peer says that it connects from there to eth2.
const OTHERS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 99);

const SESSIONS: u8 = 20;

fn claims_of_anothers_address_get_no_route_and_few_datagrams() {
    let lab = Lab::builder().links([LinkSpec::mbit(200).bare(); 2]).without_ipv6();
    let lab = lab.sysctl(Host::B, "net/ipv4/conf/all/rp_filter", "1").build().unwrap();
    for (host, link, address) in [(Host::B, 0, "10.9.0.21/24"), (Host::B, 1, "10.9.0.22/24"), (Host::A, 0, "10.9.0.11/24")] {
        lab.add_address(host, link, address).unwrap();
    }
    // The peer's host is the third party's, too: what the daemon sends there can be counted.
    lab.add_address(Host::A, 0, &format!("{OTHERS}/24")).unwrap();
    let hosts = Hosts::in_lab(lab, Rights::None, Rights::All);
    let key = Key::generate();
    let line = PublicLine::new(key.public, "");
    Peers::edit(&hosts.server.peers_file(), |peers| {
        peers.add(&line, Some("reader"))?;
        peers.set_options(&key.public, PeerOptions { access: Access::ReadOnly, ..PeerOptions::unrestricted() })
    })
    .unwrap();

    let watch = hosts.lab.on(Host::B, Watch::begin).unwrap();
    let eth2 = hosts.lab.interface_index(Host::B, 1);
    let daemon = (Ipv4Addr::new(10, 9, 0, 21), hosts.daemon.port).into();
    let (received, elapsed) = hosts.lab.on(Host::A, || insist(daemon, &key, eth2)).unwrap();

    let routes: Vec<_> = watch.added().into_iter().filter(|route| route.protocol == 83).collect();
    assert!(routes.is_empty(), "{routes:?}");
    // 64 at once and 16 a second, and at least one: the daemon did ask.
    let most = 64 + 16 * (elapsed.as_secs() + 1);
    assert!((1..=most).contains(&received), "{received} datagrams in {elapsed:?}, expected at most {most}");
}

/// Announces as much as a session takes, in one session after the other. Returns how many datagrams the third party got meanwhile.
fn insist(daemon: std::net::SocketAddr, key: &Key, eth2: u32) -> (u64, Duration) {
    let third_party = UdpSocket::bind((OTHERS, 0)).unwrap();
    third_party.set_nonblocking(true).unwrap();
    let port = third_party.local_addr().unwrap().port();
    let (mut received, begun) = (0, Instant::now());
    for session in 0..SESSIONS {
        let mut claimed = PeerInterface::new("eth9", 9);
        claimed.addresses.push(PeerAddress { ip: IpAddr::from(OTHERS), prefix_len: 24 });
        let mut wire = Wire::session(daemon, key, [session; 16], vec![claimed]);
        for token in [None, None, Some(u64::from(session)), None, Some(0), Some(u64::MAX)] {
            let expected = Expected { from: OTHERS.into(), interface: eth2, port: token.map_or(Some(port), |_| None), token };
            wire.say(&Message::Expect(Expect { connections: vec![expected; MAX_EXPECTED] }));
            thread::sleep(Duration::from_millis(20));
        }
        while third_party.recv(&mut [0; 64]).is_ok() {
            received += 1;
        }
    }
    (received, begun.elapsed())
}

//! Tests of frame loss and corruption.

use std::{
    net::{IpAddr, Ipv6Addr, TcpListener, TcpStream},
    time::Duration,
};

use crate::claims::{in_first_user_namespace, two_links};

use nicstripe_lab::{Direction, Host, Lab, LabError, LinkSpec, Transport, can_corrupt};
use nicstripe_testkit::{
    tests,
    traffic::{Pair, carry},
    trial::Test,
};

pub(crate) const TESTS: &[Test] = tests![
    a_cable_loses_a_share_of_one_direction,
    what_is_corrupted_is_taken_by_tcp_and_counted,
    a_firewall_drops_what_goes_to_its_port,
    a_share_that_is_none_is_refused,
];

fn a_cable_loses_a_share_of_one_direction() {
    let lab = two_links();
    let mut pairs = [0, 1].map(|link| Pair::new(&lab, link));
    lab.lose(1, Direction::AToB, 0.25).unwrap();
    assert_eq!(
        [arrived(&pairs[0], Host::A), arrived(&pairs[1], Host::B)],
        [DATAGRAMS; 2]
    );
    let left = arrived(&pairs[1], Host::A);
    // The expected count is 1500 of 2000, with a standard deviation of 19.
    assert!(
        (1400..=1600).contains(&left),
        "{left} of {DATAGRAMS} datagrams arrived"
    );
    lab.lose(1, Direction::AToB, 1.0).unwrap();
    pairs[1].expect([false, true]);
    lab.lose(1, Direction::AToB, 0.0).unwrap();
    assert_eq!(arrived(&pairs[1], Host::A), DATAGRAMS);
    lab.lose(1, Direction::Both, 0.5).unwrap();
    lab.pass(1).unwrap();
    assert_eq!(
        [Host::A, Host::B].map(|from| arrived(&pairs[1], from)),
        [DATAGRAMS; 2]
    );
}

fn what_is_corrupted_is_taken_by_tcp_and_counted() {
    let lab = two_links();
    if !in_first_user_namespace() {
        let error = lab.corrupt(0, Direction::AToB, SHARE).unwrap_err();
        assert!(matches!(error, LabError::Kernel { .. }), "{error}");
        can_corrupt().unwrap_err();
        return;
    }
    can_corrupt().unwrap();
    for direction in [Direction::AToB, Direction::Both] {
        lab.corrupt(1, direction, SHARE).unwrap();
    }
    for from in Host::ALL {
        let before = lab.corrupted(1).unwrap();
        let arrived = carry(&lab, 1, from, BYTES, PATTERN);
        assert_eq!(arrived.len(), BYTES);
        let bits: u64 = arrived
            .iter()
            .map(|byte| u64::from((byte ^ PATTERN).count_ones()))
            .sum();
        let counted = lab.corrupted(1).unwrap() - before;
        // Of at least 700 frames, a tenth are changed; the probability of none is 10⁻¹⁹. A second
        // change may restore a bit.
        assert!(
            counted > 0 && bits <= counted && bits + 4 >= counted,
            "{bits} bits changed, {counted} frames counted"
        );
    }
    assert_eq!(lab.corrupted(0).unwrap(), 0);
    lab.pass(1).unwrap();
    let counted = lab.corrupted(1).unwrap();
    assert_eq!(
        carry(&lab, 1, Host::A, BYTES, PATTERN),
        vec![PATTERN; BYTES]
    );
    assert_eq!(lab.corrupted(1).unwrap(), counted);
}

fn a_firewall_drops_what_goes_to_its_port() {
    let lab = two_links();
    let ipv6 = [1u16, 2].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host));
    Host::ALL
        .into_iter()
        .zip(ipv6)
        .for_each(|(host, address)| lab.add_address(host, 0, &format!("{address}/64")).unwrap());
    let addresses: [[IpAddr; 2]; 2] = [
        Host::ALL.map(|host| lab.address(host, 0).into()),
        ipv6.map(IpAddr::from),
    ];
    for [a, b] in addresses {
        let mut pair = Pair::between(&lab, a, b);
        let port = pair.sockets()[1].local_addr().unwrap().port();
        let listener = lab
            .on(Host::B, || TcpListener::bind((b, port)))
            .unwrap()
            .unwrap();
        let connects = || {
            lab.on(Host::A, || {
                TcpStream::connect_timeout(&(b, port).into(), Duration::from_millis(300)).is_ok()
            })
            .unwrap()
        };
        lab.block(0, Direction::AToB, Transport::Udp, port).unwrap();
        pair.expect([false, true]);
        assert!(connects(), "TCP is another port");
        lab.block(0, Direction::AToB, Transport::Udp, port ^ 1)
            .unwrap();
        pair.expect([true, true]);
        lab.block(0, Direction::AToB, Transport::Tcp, port).unwrap();
        assert!(!connects());
        lab.block(0, Direction::AToB, Transport::Udp, port).unwrap();
        pair.expect([false, true]);
        lab.pass(0).unwrap();
        pair.expect([true, true]);
        assert!(connects());
        drop(listener);
    }
}

fn a_share_that_is_none_is_refused() {
    let lab = Lab::builder().link(LinkSpec::gigabit()).build().unwrap();
    let error = lab.lose(0, Direction::Both, 1.5).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid share 1.5: expected a number from 0 to 1"
    );
    assert!(matches!(
        lab.lose(1, Direction::Both, 0.5),
        Err(LabError::NoSuchLink { .. })
    ));
}

/// Sends [`DATAGRAMS`] from host `from`, a few at a time so that no queue overflows. Returns the
/// number of datagrams that arrive.
fn arrived(pair: &Pair, from: Host) -> usize {
    let [a, b] = pair.sockets();
    let (sender, receiver) = if from == Host::A { (a, b) } else { (b, a) };
    let mut bytes = [0; 8];
    receiver.set_nonblocking(true).unwrap();
    let mut arrived = 0;
    for index in 0..DATAGRAMS {
        sender.send(&bytes).unwrap();
        while index % 16 == 15 && receiver.recv(&mut bytes).is_ok() {
            arrived += 1;
        }
    }
    receiver.set_nonblocking(false).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    while receiver.recv(&mut bytes).is_ok() {
        arrived += 1;
    }
    arrived
}

const DATAGRAMS: usize = 2000;
/// Number of bytes to send, in at least 700 superpackets.
const BYTES: usize = 48 << 20;
const PATTERN: u8 = 0x5a;
const SHARE: f64 = 0.1;

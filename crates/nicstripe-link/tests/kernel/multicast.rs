//! Tests of link-local UDP sockets.

use std::{
    net::{Ipv6Addr, SocketAddrV6, UdpSocket},
    time::{Duration, Instant},
};

use nicstripe_link::{
    multicast_listener, multicast_sender, receive_from_neighbour, send_to_neighbour,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use crate::lab::{Lab, Namespace};

crate::tests![
    a_group_is_heard_on_its_interface_alone,
    an_answer_comes_from_the_address_that_was_named,
    what_a_router_may_have_passed_on_is_passed_over,
    what_is_too_long_is_passed_over,
    listeners_of_several_interfaces_share_the_port,
    a_machine_does_not_hear_itself,
];

fn a_group_is_heard_on_its_interface_alone() {
    let lab = Lab::two_cables();
    let (first, second) = (listener(&lab.far, "b0"), listener(&lab.far, "b1"));
    let asker = sender(&lab.near, "a1");
    ask(&lab.near, &asker, "a1", b"hello");
    let (heard, from) = receive(&second).unwrap();
    assert_eq!(heard, b"hello");
    assert_eq!(*from.ip(), link_local(&lab.near, "a1"));
    assert_eq!(from.port(), asker.local_addr().unwrap().port());
    assert_eq!(from.scope_id(), lab.far.index("b1").0);
    assert_silent(&first);
}

fn an_answer_comes_from_the_address_that_was_named() {
    let lab = Lab::new().cable(("a0", &[]), ("b0", &["fe80::77/64"]));
    let listener = listener(&lab.far, "b0");
    let asker = sender(&lab.near, "a0");
    ask(&lab.near, &asker, "a0", b"hello");
    let (_, from) = receive(&listener).unwrap();
    let addresses = usable_link_locals(&lab.far, "b0", 2);
    for own in addresses {
        send_to_neighbour(&listener, b"here", own, lab.far.index("b0"), from).unwrap();
        let (heard, daemon) = receive(&asker).unwrap();
        assert_eq!(
            (heard, *daemon.ip(), daemon.port()),
            (b"here".to_vec(), own, PORT)
        );
        assert_eq!(daemon.scope_id(), lab.near.index("a0").0);
    }
    let not_ours: Ipv6Addr = "fe80::78".parse().unwrap();
    let error =
        send_to_neighbour(&listener, b"here", not_ours, lab.far.index("b0"), from).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}

fn what_a_router_may_have_passed_on_is_passed_over() {
    let lab = Lab::one_cable();
    let listener = listener(&lab.far, "b0");
    let asker = sender(&lab.near, "a0");
    for hops in [254, 64, 1] {
        SockRef::from(&asker).set_multicast_hops_v6(hops).unwrap();
        ask(&lab.near, &asker, "a0", b"hello");
        assert_eq!(receive(&listener), None, "hop limit {hops}");
    }
    SockRef::from(&asker).set_multicast_hops_v6(255).unwrap();
    ask(&lab.near, &asker, "a0", b"hello");
    assert!(receive(&listener).is_some());
}

fn what_is_too_long_is_passed_over() {
    let lab = Lab::one_cable();
    let listener = listener(&lab.far, "b0");
    let asker = sender(&lab.near, "a0");
    ask(&lab.near, &asker, "a0", &[7; BUFFER + 1]);
    assert_eq!(receive(&listener), None);
    ask(&lab.near, &asker, "a0", &[7; BUFFER]);
    assert_eq!(
        receive(&listener).map(|(heard, _)| heard.len()),
        Some(BUFFER)
    );
}

fn listeners_of_several_interfaces_share_the_port() {
    let lab = Lab::two_cables();
    let _both = [listener(&lab.far, "b0"), listener(&lab.far, "b1")];
    let again = lab
        .far
        .run(|| multicast_listener(&lab.far.interface("b0"), GROUP, PORT))
        .unwrap_err();
    assert_eq!(again.raw_os_error(), Some(libc::EADDRINUSE));
}

fn a_machine_does_not_hear_itself() {
    let lab = Lab::one_cable();
    let (own, others) = (listener(&lab.near, "a0"), listener(&lab.far, "b0"));
    ask(&lab.near, &sender(&lab.near, "a0"), "a0", b"hello");
    assert!(receive(&others).is_some());
    assert_silent(&own);
}

fn listener(host: &Namespace, interface: &str) -> UdpSocket {
    host.run(|| multicast_listener(&host.interface(interface), GROUP, PORT).unwrap())
}

fn sender(host: &Namespace, interface: &str) -> UdpSocket {
    host.run(|| multicast_sender(&host.interface(interface), link_local(host, interface)).unwrap())
}

fn ask(host: &Namespace, socket: &UdpSocket, interface: &str, datagram: &[u8]) {
    let group = SocketAddrV6::new(GROUP, PORT, 0, 0);
    send_to_neighbour(
        socket,
        datagram,
        link_local(host, interface),
        host.index(interface),
        group,
    )
    .unwrap();
}

/// Waits for one datagram and receives it. Returns `None` if `receive_from_neighbour` ignores the
/// datagram.
fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddrV6)> {
    let deadline = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    assert_eq!(
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&deadline)).unwrap(),
        1,
        "nothing came in 10 s"
    );
    let mut buffer = [0; BUFFER];
    let received = receive_from_neighbour(socket, &mut buffer).unwrap();
    received.map(|(len, from)| (buffer[..len].to_vec(), from))
}

/// Panics if a datagram arrives. Datagrams sent earlier have already arrived, because veth delivers
/// within the send call.
fn assert_silent(socket: &UdpSocket) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        let received = receive_from_neighbour(socket, &mut [0; BUFFER]);
        assert_eq!(received.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

fn link_local(host: &Namespace, interface: &str) -> Ipv6Addr {
    host.interface(interface).link_local().unwrap()
}

/// Waits until an interface has `count` usable link-local addresses. Returns the addresses.
fn usable_link_locals(host: &Namespace, interface: &str, count: usize) -> Vec<Ipv6Addr> {
    let start = Instant::now();
    loop {
        let all = host
            .interface(interface)
            .addresses
            .into_iter()
            .filter(nicstripe_link::InterfaceAddress::is_link_local);
        let all: Vec<Ipv6Addr> = all
            .filter_map(|own| own.ip.to_string().parse().ok())
            .collect();
        if all.len() == count {
            return all;
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{all:?} after 10 s"
        );
    }
}

const GROUP: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0, 0x8001);
const PORT: u16 = 7747;
const BUFFER: usize = 300;

//! Tests of sockets bound to an interface, and of a connection's TCP statistics.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use nicstripe_link::{InterfaceName, arrival_interface, listen, pinned_socket, tcp_info, tune};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lab::{Lab, Namespace, name};

crate::tests![
    a_pinned_listener_accepts_only_what_arrives_on_its_interface,
    listeners_of_several_interfaces_share_a_port,
    an_unpinned_listener_is_told_the_arrival_interface,
    a_pinned_socket_leaves_by_its_interface_whatever_the_route_says,
    link_local_addresses_are_pinned_by_scope_and_by_device,
    tcp_info_is_plausible_after_a_mebibyte,
    a_closed_window_counts_as_limited_by_the_receiver,
];

fn a_pinned_listener_accepts_only_what_arrives_on_its_interface() {
    let lab = Lab::two_cables();
    let listener = lab
        .far
        .run(|| listen(Some(&name("b0")), "0.0.0.0:0".parse().unwrap(), 8).unwrap());
    let port = listener.local_addr().unwrap().port();

    let client = connect(
        &lab.near,
        None,
        SocketAddr::new("10.1.0.2".parse().unwrap(), port),
    )
    .unwrap();
    let accepted = accept(&listener);
    assert_eq!(arrival_interface(&accepted).unwrap(), Some(name("b0")));
    drop(client);

    let error = connect(
        &lab.near,
        None,
        SocketAddr::new("10.2.0.2".parse().unwrap(), port),
    )
    .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
}

fn listeners_of_several_interfaces_share_a_port() {
    let lab = Lab::two_cables();
    let listen_on = |interface: &str, address: &str| {
        lab.far
            .run(|| listen(Some(&name(interface)), address.parse().unwrap(), 8))
    };
    let first = listen_on("b0", "0.0.0.0:0").unwrap();
    let port = first.local_addr().unwrap().port();
    let second = listen_on("b1", &format!("0.0.0.0:{port}")).unwrap();
    let _third =
        listen_on("b1", &format!("[::]:{port}")).expect("an IPv6 listener takes IPv6 only");
    let error = listen_on("b1", &format!("0.0.0.0:{port}")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));

    let _client = connect(
        &lab.near,
        None,
        SocketAddr::new("10.2.0.2".parse().unwrap(), port),
    )
    .unwrap();
    assert_eq!(
        arrival_interface(&accept(&second)).unwrap(),
        Some(name("b1"))
    );
}

fn an_unpinned_listener_is_told_the_arrival_interface() {
    let lab = Lab::two_cables().cable(("a2", &["fd02::1/64"]), ("b2", &["fd02::2/64"]));
    let v4 = lab
        .far
        .run(|| listen(None, "0.0.0.0:0".parse().unwrap(), 8).unwrap());
    let v6 = lab
        .far
        .run(|| listen(None, "[::]:0".parse().unwrap(), 8).unwrap());
    let both = lab.far.run(|| TcpListener::bind("[::]:0").unwrap());
    for (listener, remote, expected) in [
        (&v4, "10.1.0.2", "b0"),
        (&v4, "10.2.0.2", "b1"),
        (&v6, "fd02::2", "b2"),
        (&both, "10.2.0.2", "b1"),
        (&both, "fd02::2", "b2"),
    ] {
        let remote = SocketAddr::new(
            remote.parse().unwrap(),
            listener.local_addr().unwrap().port(),
        );
        let _client = connect(&lab.near, None, remote).unwrap();
        assert_eq!(
            arrival_interface(&accept(listener)).unwrap(),
            Some(name(expected)),
            "{remote}"
        );
    }
}

fn a_pinned_socket_leaves_by_its_interface_whatever_the_route_says() {
    // One subnet over two cables. The kernel routes both remote addresses through the first cable.
    let lab = Lab::new()
        .cable(("a0", &["10.9.0.11/24"]), ("b0", &["10.9.0.21/24"]))
        .cable(("a1", &["10.9.0.12/24"]), ("b1", &["10.9.0.22/24"]));
    let listener = lab
        .far
        .run(|| listen(Some(&name("b1")), "0.0.0.0:0".parse().unwrap(), 8).unwrap());
    let remote = SocketAddr::new(
        "10.9.0.22".parse().unwrap(),
        listener.local_addr().unwrap().port(),
    );
    let before = ["a0", "a1"].map(|name| lab.near.sent_bytes(name));

    let client = connect(&lab.near, Some(&name("a1")), remote).unwrap();
    let accepted = accept(&listener);
    assert_eq!(
        client.local_addr().unwrap().ip().to_string(),
        "10.9.0.12",
        "the kernel takes the interface's address"
    );
    transfer(&client, accepted, MEBIBYTE);

    let after = ["a0", "a1"].map(|name| lab.near.sent_bytes(name));
    assert!(
        after[1] - before[1] > MEBIBYTE as u64,
        "{before:?} {after:?}"
    );
    // Allows for a few neighbour solicitations.
    assert!(after[0] - before[0] < 4096, "{before:?} {after:?}");
}

fn link_local_addresses_are_pinned_by_scope_and_by_device() {
    let lab = Lab::two_cables();
    let listener = lab
        .far
        .run(|| listen(Some(&name("b1")), "[::]:0".parse().unwrap(), 8).unwrap());
    let remote = |interface: &str| link_local(&lab.far, interface);
    let target =
        |ip, scope| SocketAddrV6::new(ip, listener.local_addr().unwrap().port(), 0, scope).into();
    let scope = lab.near.index("a1").0;

    let _by_scope = connect(&lab.near, None, target(remote("b1"), scope)).unwrap();
    assert_eq!(
        arrival_interface(&accept(&listener)).unwrap(),
        Some(name("b1"))
    );
    let _by_device = connect(&lab.near, Some(&name("a1")), target(remote("b1"), 0)).unwrap();
    assert_eq!(
        arrival_interface(&accept(&listener)).unwrap(),
        Some(name("b1"))
    );

    let own = link_local(&lab.near, "a1").into();
    let from = |interface: Option<&InterfaceName>, scope| {
        lab.near
            .run(|| pinned_socket(interface, Some(own), target(remote("b1"), scope)))
            .map(drop)
    };
    from(Some(&name("a1")), 0).unwrap();
    from(None, scope).unwrap();
}

fn tcp_info_is_plausible_after_a_mebibyte() {
    let lab = Lab::one_cable();
    let listener = lab
        .far
        .run(|| listen(Some(&name("b0")), "0.0.0.0:0".parse().unwrap(), 8).unwrap());
    let remote = SocketAddr::new(
        "10.1.0.2".parse().unwrap(),
        listener.local_addr().unwrap().port(),
    );
    let client = connect(&lab.near, Some(&name("a0")), remote).unwrap();
    assert!(tune(&client, None).is_empty());
    let accepted = accept(&listener);
    transfer(&client, accepted, MEBIBYTE);

    let sender = tcp_info(&client).unwrap();
    eprintln!("tcp_info(): {sender:?}");
    // The SYN counts as one byte.
    assert_eq!(sender.bytes_acked, Some(MEBIBYTE as u64 + 1));
    assert_eq!(
        sender.bytes_sent.unwrap() - sender.bytes_retrans.unwrap(),
        MEBIBYTE as u64
    );
    assert!((500..=1460).contains(&sender.mss), "{}", sender.mss);
    assert!(
        sender.rtt > Duration::ZERO && sender.rtt < Duration::from_secs(1),
        "{:?}",
        sender.rtt
    );
    // The kernel measures in timer ticks, and a mebibyte may take less than one tick.
    assert!(sender.busy.unwrap() < Duration::from_secs(10));
    assert!(sender.snd_cwnd > 0);
}

fn a_closed_window_counts_as_limited_by_the_receiver() {
    let lab = Lab::one_cable();
    let listener = lab
        .far
        .run(|| listen(None, "0.0.0.0:0".parse().unwrap(), 8).unwrap());
    let remote = SocketAddr::new(
        "10.1.0.2".parse().unwrap(),
        listener.local_addr().unwrap().port(),
    );
    let mut client = connect(&lab.near, None, remote).unwrap();
    let _never_reads = accept(&listener);

    client.set_nonblocking(true).unwrap();
    let block = vec![0; MEBIBYTE];
    let start = Instant::now();
    let limited = loop {
        // The window closes once both buffers are full. Until the kernel notices that, more data is
        // always queued.
        let _ = client.write(&block);
        let info = tcp_info(&client).unwrap();
        if info.rwnd_limited.unwrap() > Duration::from_millis(100) {
            break info;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{info:?}");
        thread::sleep(Duration::from_millis(20));
    };
    assert!(limited.busy >= limited.rwnd_limited, "{limited:?}");
}

/// Opens a connection from a namespace through an interface. Waits until the connection succeeds or
/// fails.
fn connect(
    from: &Namespace,
    interface: Option<&InterfaceName>,
    remote: SocketAddr,
) -> std::io::Result<TcpStream> {
    let socket = from.run(|| pinned_socket(interface, None, remote).unwrap());
    match socket.connect(&remote.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    let deadline = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&deadline)).unwrap();
    assert_eq!(ready, 1, "no answer from {remote} in 10 s");
    socket.take_error()?.map_or(Ok(()), Err)?;
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener) -> TcpStream {
    let deadline = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&deadline)).unwrap();
    assert_eq!(ready, 1, "no connection in 10 s");
    let (accepted, _) = listener.accept().unwrap();
    accepted.set_nonblocking(false).unwrap();
    accepted
}

/// Sends `len` bytes. Returns when the receiver has read and acknowledged all of them.
fn transfer(mut client: &TcpStream, mut accepted: TcpStream, len: usize) {
    let receiver = thread::spawn(move || {
        let mut received = vec![0; len];
        accepted.read_exact(&mut received).unwrap();
        accepted
    });
    client.write_all(&vec![7; len]).unwrap();
    let _open = receiver.join().unwrap();
    let start = Instant::now();
    // The SYN counts as one byte.
    while tcp_info(client).unwrap().bytes_acked <= Some(len as u64) {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "not acknowledged after 5 s"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

fn link_local(namespace: &Namespace, interface: &str) -> Ipv6Addr {
    let addresses = namespace.interface(interface).addresses;
    match addresses
        .into_iter()
        .find(|own| own.is_link_local())
        .unwrap()
        .ip
    {
        std::net::IpAddr::V6(ip) => ip,
        std::net::IpAddr::V4(_) => unreachable!("link-local is IPv6"),
    }
}

const MEBIBYTE: usize = 1 << 20;

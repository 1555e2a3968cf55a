//! Tests of adverse setups: one subnet, no addresses, no IPv6, lost jumbo frames, cables plugged in
//! later.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd,
    thread,
    time::Duration,
};

use crate::claims::{carriers, fs_in, two_links};

use nicstripe_lab::{Direction, Host, Lab, LabBuilder, LabError, LinkCounters, LinkSpec};
use nicstripe_testkit::{
    tests,
    traffic::{Flow, Pair},
    trial::Test,
};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

pub(crate) const TESTS: &[Test] = tests![
    on_one_subnet_all_leaves_by_the_first_interface,
    on_one_subnet_a_pinned_stream_keeps_to_its_ports,
    on_one_subnet_any_port_reaches_any_other,
    on_one_subnet_a_cut_and_a_silent_drop_act_on_the_ports_of_one_link,
    bare_cables_have_link_local_addresses_and_no_others,
    bare_cables_on_one_switch_reach_each_other,
    without_ipv6_there_is_not_even_a_link_local_address,
    settings_are_written_in_one_host_before_and_after_it_has_interfaces,
    settings_of_the_machine_are_refused,
    jumbo_frames_vanish_in_a_narrow_middle_without_a_word,
    one_narrow_link_of_a_switch_takes_no_jumbo_frame_from_another,
    a_cable_that_is_plugged_in_later_works_from_then_on,
    addresses_come_and_go,
    an_interface_that_is_down_keeps_its_ipv4_address_and_comes_back,
    a_cable_may_change_while_an_interface_is_down,
    a_link_on_one_host_is_missing_on_the_other,
];

fn on_one_subnet_all_leaves_by_the_first_interface() {
    let lab = one_subnet(3).build().unwrap();
    for (host, first) in [(Host::A, "10.9.0.11"), (Host::B, "10.9.0.21")] {
        assert_eq!(lab.address(host, 0).to_string(), first);
        let table = fs_in(&lab, host, "/proc/thread-self/net/fib_trie");
        assert!(
            (0..3).all(|link| table.contains(&format!("{}\n", lab.address(host, link)))),
            "{table}"
        );
    }
    let carried = carried(&lab, || Pair::new(&lab, 2).train(TRAIN, 1000));
    assert!(carried[0].a.sent_bytes > TRAIN_BYTES, "{carried:?}");
    assert!(carried[2].a.sent_bytes < TRAIN_BYTES / 10, "{carried:?}");
}

fn on_one_subnet_a_pinned_stream_keeps_to_its_ports() {
    let lab = Host::ALL
        .into_iter()
        .fold(one_subnet(3), own_arp)
        .build()
        .unwrap();
    for link in 0..3 {
        let carried = carried(&lab, || Pair::pinned(&lab, link, link).train(TRAIN, 1000));
        for (other, carried) in carried.iter().enumerate() {
            let (sent, received) = (carried.a.sent_bytes, carried.b.received_bytes);
            assert_eq!(
                [sent > TRAIN_BYTES, received > TRAIN_BYTES],
                [other == link; 2],
                "link {other} when {link} was used: {carried:?}"
            );
        }
    }
}

fn on_one_subnet_any_port_reaches_any_other() {
    let lab = Host::ALL
        .into_iter()
        .fold(one_subnet(2), own_arp)
        .build()
        .unwrap();
    for (a, b) in [(0, 1), (1, 0)] {
        let carried = carried(&lab, || Pair::pinned(&lab, a, b).train(TRAIN, 1000));
        assert!(
            carried[a].a.sent_bytes > TRAIN_BYTES && carried[b].b.received_bytes > TRAIN_BYTES,
            "{a} to {b}: {carried:?}"
        );
        assert!(
            carried[b].a.sent_bytes < TRAIN_BYTES && carried[a].b.received_bytes < TRAIN_BYTES,
            "{a} to {b}: {carried:?}"
        );
    }
}

fn on_one_subnet_a_cut_and_a_silent_drop_act_on_the_ports_of_one_link() {
    let lab = Host::ALL
        .into_iter()
        .fold(one_subnet(2), own_arp)
        .build()
        .unwrap();
    let mut straight = [0, 1].map(|link| Pair::pinned(&lab, link, link));
    let mut across = [Pair::pinned(&lab, 0, 1), Pair::pinned(&lab, 1, 0)];
    lab.drop_silently(1, Direction::AToB).unwrap();
    assert_eq!(carriers(&lab), [[true; 2]; 2]);
    straight[0].expect([true, true]);
    straight[1].expect([false, true]);
    across[0].expect([false, true]);
    across[1].expect([true, true]);
    lab.pass(1).unwrap();
    lab.cut(1).unwrap();
    assert_eq!(carriers(&lab), [[true; 2], [false; 2]]);
    straight[0].expect([true, true]);
    straight[1].expect([false, false]);
    lab.heal(1).unwrap();
    straight[1].expect([true, true]);
}

fn bare_cables_have_link_local_addresses_and_no_others() {
    let lab = Lab::builder()
        .link(LinkSpec::gigabit())
        .link(LinkSpec::gigabit().bare())
        .build()
        .unwrap();
    for host in Host::ALL {
        let ipv4 = fs_in(&lab, host, "/proc/thread-self/net/fib_trie");
        assert!(
            ipv4.contains("10.77.1.") && !ipv4.contains("10.77.2."),
            "{ipv4}"
        );
        let ipv6 = fs_in(&lab, host, "/proc/thread-self/net/if_inet6");
        let [bare] = ipv6
            .lines()
            .filter(|line| line.ends_with("eth2"))
            .collect::<Vec<_>>()[..]
        else {
            panic!("{ipv6}")
        };
        assert!(bare.starts_with("fe80"), "{ipv6}");
    }
    connect_by_link_local(&lab, 1, 1);
}

fn bare_cables_on_one_switch_reach_each_other() {
    let lab = Lab::builder()
        .links([LinkSpec::gigabit().bare(); 2])
        .one_subnet()
        .build()
        .unwrap();
    for (a, b) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        connect_by_link_local(&lab, a, b);
    }
}

fn without_ipv6_there_is_not_even_a_link_local_address() {
    let lab = Lab::builder()
        .link(LinkSpec::gigabit())
        .without_ipv6()
        .build()
        .unwrap();
    for host in Host::ALL {
        assert_eq!(fs_in(&lab, host, "/proc/thread-self/net/if_inet6"), "");
        assert_eq!(lab.link_local(host, 0).unwrap(), None);
        let error = lab.add_address(host, 0, "fd00::1/64").unwrap_err();
        assert!(matches!(error, LabError::Kernel { .. }), "{error}");
        lab.on(host, || UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)))
            .unwrap()
            .unwrap_err();
    }
    Pair::new(&lab, 0);
}

fn settings_are_written_in_one_host_before_and_after_it_has_interfaces() {
    let name = |interface: &str| format!("net/ipv4/conf/{interface}/rp_filter");
    let read = |lab: &Lab, host| {
        ["all", "default", "eth1", "eth2"].map(|interface| setting(lab, host, &name(interface)))
    };
    let outside = fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter").unwrap();
    let builder = Lab::builder().links([LinkSpec::gigabit(); 2]);
    let lab = builder
        .sysctl(Host::A, name("default"), "2")
        .sysctl(Host::A, "net.ipv4.conf.eth2.rp_filter", "1")
        .build()
        .unwrap();
    assert_eq!(read(&lab, Host::A), ["0", "2", "2", "1"]);
    assert_eq!(read(&lab, Host::B), ["0"; 4]);
    lab.set_sysctl(Host::B, &name("all"), "1").unwrap();
    lab.set_sysctl(Host::B, &name("eth1"), "2").unwrap();
    assert_eq!(read(&lab, Host::B), ["1", "0", "2", "0"]);
    assert_eq!(read(&lab, Host::A), ["0", "2", "2", "1"]);
    assert_eq!(
        fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter").unwrap(),
        outside
    );
}

fn settings_of_the_machine_are_refused() {
    let lab = two_links();
    for result in [
        lab.set_sysctl(Host::A, "kernel/hostname", "a"),
        one_subnet(1)
            .sysctl(Host::A, "vm.swappiness", "1")
            .build()
            .map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, LabError::Invalid(_)), "{error}");
    }
    let missing = "net/ipv4/conf/eth3/rp_filter";
    for result in [
        lab.set_sysctl(Host::A, missing, "1"),
        one_subnet(2)
            .sysctl(Host::B, missing, "1")
            .build()
            .map(drop),
    ] {
        assert_eq!(
            result.unwrap_err().to_string(),
            format!("cannot set {missing} to \"1\"")
        );
    }
}

fn jumbo_frames_vanish_in_a_narrow_middle_without_a_word() {
    let jumbo = |spec: LinkSpec| spec.with_mtu(9000);
    let specs =
        [LinkSpec::gigabit(), LinkSpec::unshaped()].map(|spec| jumbo(spec).with_middle_mtu(1500));
    let lab = Lab::builder()
        .links(specs)
        .link(jumbo(LinkSpec::gigabit()))
        .build()
        .unwrap();
    for link in [0, 1] {
        let mut pair = Pair::new(&lab, link);
        dont_fragment(&pair);
        for from in Host::ALL {
            // Repeated, because the kernel would refuse the next packet after an ICMP message about
            // this one.
            for len in [1500, 1501, 9000, 1501, 9000, 1500] {
                assert_eq!(
                    pair.passes(from, len - HEADERS),
                    len == 1500,
                    "{len} bytes from {from} over link {link}"
                );
            }
        }
    }
    let mut wide = Pair::new(&lab, 2);
    dont_fragment(&wide);
    assert!(
        Host::ALL
            .map(|from| wide.passes(from, 9000 - HEADERS))
            .iter()
            .all(|&passes| passes)
    );
}

fn one_narrow_link_of_a_switch_takes_no_jumbo_frame_from_another() {
    let jumbo = LinkSpec::gigabit().with_mtu(9000);
    let builder = Lab::builder()
        .links([jumbo, jumbo.with_middle_mtu(1500)])
        .one_subnet();
    let lab = Host::ALL
        .into_iter()
        .fold(builder, own_arp)
        .build()
        .unwrap();
    for (a, b, passes) in [(0, 0, true), (0, 1, false), (1, 0, false), (1, 1, false)] {
        let mut pair = Pair::pinned(&lab, a, b);
        dont_fragment(&pair);
        for from in Host::ALL {
            assert!(pair.passes(from, 1500 - HEADERS), "{from}, link {a} to {b}");
            assert_eq!(
                pair.passes(from, 9000 - HEADERS),
                passes,
                "{from}, link {a} to {b}"
            );
        }
    }
    // B answers to A's eth1 with small packets only. A's packets to B's second address leave
    // through eth1 and arrive at the port with the small MTU.
    let flow = Flow::start(&lab, 1, Host::A);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(flow.received_bytes(), 0);
}

fn a_cable_that_is_plugged_in_later_works_from_then_on() {
    let later = LinkSpec::gigabit().unplugged();
    let lab = Lab::builder()
        .links([LinkSpec::gigabit(), later, later.bare()])
        .build()
        .unwrap();
    assert_eq!(carriers(&lab), [[true; 2], [false; 2], [false; 2]]);
    for host in Host::ALL {
        assert_eq!(
            [1, 2].map(|link| lab.link_local(host, link).unwrap()),
            [None; 2]
        );
        // The interface exists and is up, with an address.
        lab.on(host, || UdpSocket::bind((lab.address(host, 1), 0)))
            .unwrap()
            .unwrap();
    }
    lab.heal(1).unwrap();
    assert_eq!(carriers(&lab), [[true; 2], [true; 2], [false; 2]]);
    let mut pair = Pair::new(&lab, 1);
    connect_by_link_local(&lab, 1, 1);
    lab.heal(2).unwrap();
    connect_by_link_local(&lab, 2, 2);
    lab.cut(1).unwrap();
    assert_eq!(carriers(&lab), [[true; 2], [false; 2], [true; 2]]);
    pair.expect([false, false]);
    lab.heal(1).unwrap();
    pair.expect([true, true]);
}

fn addresses_come_and_go() {
    let lab = two_links();
    for [a, b] in [["10.0.9.1", "10.0.9.2"], ["fd00:9::1", "fd00:9::2"]] {
        let prefix = if a.contains(':') { 64 } else { 24 };
        for (host, address) in [(Host::A, a), (Host::B, b)] {
            lab.add_address(host, 1, &format!("{address}/{prefix}"))
                .unwrap();
            let error = lab
                .add_address(host, 1, &format!("{address}/{prefix}"))
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("cannot add {address}/{prefix} to eth2")
            );
        }
        let [a, b] = [a, b].map(|address| address.parse::<IpAddr>().unwrap());
        let carried = carried(&lab, || Pair::between(&lab, a, b).train(TRAIN, 1000));
        assert!(carried[1].a.sent_bytes > TRAIN_BYTES, "{carried:?}");
        lab.remove_address(Host::A, 1, &format!("{a}/{prefix}"))
            .unwrap();
        lab.on(Host::A, || UdpSocket::bind((a, 0)))
            .unwrap()
            .unwrap_err();
        lab.remove_address(Host::A, 1, &format!("{a}/{prefix}"))
            .unwrap_err();
    }
    lab.remove_address(Host::B, 0, "10.77.1.2/24").unwrap();
    let error = lab.add_address(Host::B, 0, "10.77.1.2").unwrap_err();
    assert!(matches!(error, LabError::Invalid(_)), "{error}");
}

fn an_interface_that_is_down_keeps_its_ipv4_address_and_comes_back() {
    let lab = two_links();
    let mut pairs = [0, 1].map(|link| Pair::new(&lab, link));
    lab.set_up(Host::A, 1, false).unwrap();
    assert_eq!(carriers(&lab), [[true; 2], [false, true]]);
    assert_eq!(lab.link_local(Host::A, 1).unwrap(), None);
    lab.on(Host::A, || UdpSocket::bind((lab.address(Host::A, 1), 0)))
        .unwrap()
        .unwrap();
    pairs[0].expect([true, true]);
    pairs[1].expect([false, false]);
    lab.set_up(Host::A, 1, true).unwrap();
    pairs[1].expect([true, true]);
    // Twenty times, without pauses.
    for host in [Host::A, Host::B].repeat(10) {
        lab.set_up(host, 1, false).unwrap();
        lab.set_up(host, 1, true).unwrap();
        assert_eq!(carriers(&lab), [[true; 2]; 2]);
        connect_by_link_local(&lab, 1, 1);
    }
}

fn a_cable_may_change_while_an_interface_is_down() {
    let lab = two_links();
    lab.set_up(Host::A, 0, false).unwrap();
    lab.cut(0).unwrap();
    assert_eq!(carriers(&lab)[0], [false, false]);
    lab.heal(0).unwrap();
    assert_eq!(carriers(&lab)[0], [false, true]);
    lab.cut(0).unwrap();
    lab.set_up(Host::A, 0, true).unwrap();
    assert_eq!(carriers(&lab)[0], [false, false]);
    lab.heal(0).unwrap();
    Pair::new(&lab, 0);
}

fn a_link_on_one_host_is_missing_on_the_other() {
    for builder in [Lab::builder(), Lab::builder().one_subnet()] {
        let lab = builder
            .links([LinkSpec::gigabit(), LinkSpec::gigabit().only_on(Host::A)])
            .build()
            .unwrap();
        let [a, b] = Host::ALL.map(|host| fs_in(&lab, host, "/proc/thread-self/net/dev"));
        assert!(
            a.contains("eth2:") && b.contains("eth1:") && !b.contains("eth2:"),
            "{a}{b}"
        );
        lab.on(Host::A, || UdpSocket::bind((lab.address(Host::A, 1), 0)))
            .unwrap()
            .unwrap();
        assert!(lab.has_carrier(Host::A, 1).unwrap());
        lab.cut(1).unwrap();
        assert!(!lab.has_carrier(Host::A, 1).unwrap());
        lab.heal(1).unwrap();
        lab.drop_silently(1, Direction::Both).unwrap();
        lab.pass(1).unwrap();
        lab.set_rate(1, None).unwrap();
        assert_eq!(lab.counters().unwrap()[1].b, LinkCounters::default().b);
        let error = lab.has_carrier(Host::B, 1).unwrap_err();
        assert_eq!(error.to_string(), "link 1 has no interface on host B");
        lab.set_up(Host::B, 1, true).unwrap_err();
        Pair::new(&lab, 0);
    }
}

fn one_subnet(links: usize) -> LabBuilder {
    Lab::builder()
        .links(vec![LinkSpec::gigabit(); links])
        .one_subnet()
}

/// Makes each interface of a host answer ARP only for its own addresses (`arp_ignore` 1,
/// `arp_announce` 2). This is the usual setting for several cards in one subnet.
fn own_arp(builder: LabBuilder, host: Host) -> LabBuilder {
    builder
        .sysctl(host, "net/ipv4/conf/all/arp_ignore", "1")
        .sysctl(host, "net/ipv4/conf/all/arp_announce", "2")
}

/// Runs `action`. Returns the traffic of each link during the call.
fn carried<T>(lab: &Lab, action: impl FnOnce() -> T) -> Vec<LinkCounters> {
    let before = lab.counters().unwrap();
    action();
    lab.counters()
        .unwrap()
        .iter()
        .zip(&before)
        .map(|(now, before)| now.since(before))
        .collect()
}

/// Connects A's interface of link `a` to B's interface of link `b`, with link-local addresses only.
/// Panics if this takes longer than two seconds.
fn connect_by_link_local(lab: &Lab, a: usize, b: usize) {
    let address = lab.link_local(Host::B, b).unwrap().unwrap();
    let scoped = |host, link| SocketAddrV6::new(address, 0, 0, lab.interface_index(host, link));
    let listener = lab
        .on(Host::B, || TcpListener::bind(scoped(Host::B, b)))
        .unwrap()
        .unwrap();
    let mut target = scoped(Host::A, a);
    target.set_port(listener.local_addr().unwrap().port());
    let stream = lab
        .on(Host::A, || {
            TcpStream::connect_timeout(&target.into(), Duration::from_secs(2))
        })
        .unwrap()
        .unwrap();
    assert_eq!(
        Some(stream.local_addr().unwrap().ip()),
        lab.link_local(Host::A, a).unwrap().map(IpAddr::V6)
    );
}

/// Sets the don't-fragment bit on the datagrams of both sockets, and makes the kernel report ICMP
/// errors. The kernel then refuses to send a datagram larger than the path MTU.
fn dont_fragment(pair: &Pair) {
    for socket in pair.sockets() {
        set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO).unwrap();
        let (on, len) = (1i32, 4);
        // SAFETY: the descriptor is open, and the option's value is the four bytes of `on`, which
        // outlives the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_IP,
                libc::IP_RECVERR,
                (&raw const on).cast(),
                len,
            )
        };
        assert_eq!(result, 0);
    }
}

fn setting(lab: &Lab, host: Host, name: &str) -> String {
    fs_in(lab, host, &format!("/proc/sys/{name}"))
        .trim()
        .to_owned()
}

/// Length of the IPv4 and UDP headers, in bytes.
const HEADERS: usize = 28;
/// Number of 1000-byte datagrams that fit into the buffer of a socket without a reader.
const TRAIN: usize = 60;
/// Payload of [`TRAIN`] datagrams, in bytes.
const TRAIN_BYTES: u64 = 60_000;

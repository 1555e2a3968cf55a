use nicstripe_netlink::Messages;

use super::*;

#[test]
fn a_message_tells_the_discipline_the_largest_mtu_and_the_changes_of_the_carrier() {
    let mut header = [0; IFINFO_LEN];
    header[4] = 3;
    let message = |mtu: u32| {
        Request::new(libc::RTM_NEWLINK, &header)
            .attribute(libc::IFLA_QDISC, b"fq_codel\0")
            .attribute(libc::IFLA_MAX_MTU, &mtu.to_ne_bytes())
            .attribute(libc::IFLA_CARRIER_CHANGES, &6_u32.to_ne_bytes())
            .encode(0, 1)
    };
    let read = |bytes: &[u8]| LinkDetails::parse(&Messages::new(bytes).next()?);
    let expected = LinkDetails {
        index: InterfaceIndex(3),
        qdisc: Some("fq_codel".to_owned()),
        mtu_max: Some(9216),
        carrier_changes: Some(6),
    };
    assert_eq!(read(&message(9216)), Some(expected));
    assert_eq!(read(&message(0)).unwrap().mtu_max, None);
    let whole = message(9216);
    for len in 0..whole.len() {
        assert_eq!(read(&whole[..len]), None, "{len}");
    }
}

#[test]
fn files_of_the_network_are_those_of_the_thread() {
    assert_eq!(
        of_this_thread("/proc/net/netstat"),
        "/proc/thread-self/net/netstat"
    );
    assert_eq!(of_this_thread("/proc/stat"), "/proc/stat");
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn this_machine_has_loopback_and_settings() {
    let facts = crate::facts::Facts::of_this_machine();
    let loopback = facts.interface("lo").unwrap();
    assert_eq!(
        (loopback.index, loopback.kind.as_deref()),
        (Some(1), Some("loopback"))
    );
    assert_eq!(
        (loopback.speed_mbps, &loopback.duplex, &loopback.bus),
        (None, &None, &vec![])
    );
    assert!(
        facts.setting_at("net.ipv4.tcp_rmem", 2).is_some(),
        "{:?}",
        facts.settings
    );
    assert!(
        facts.counters.contains_key("TcpExt.ListenDrops"),
        "{:?}",
        facts.counters
    );
    assert_eq!(facts.clone().bounded(), facts);
    assert_eq!(facts.host, HostFacts::read());
}

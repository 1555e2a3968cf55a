use super::*;

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

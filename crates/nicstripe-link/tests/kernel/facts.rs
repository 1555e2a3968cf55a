//! Tests of the facts about a machine as read from the kernel.

use std::time::{Duration, Instant};

use nicstripe_link::facts::{Facts, InterfaceFacts};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};

use crate::{
    lab::{Lab, Namespace},
    qdiscs::{BURST_BYTES, QUEUE_BYTES},
};

crate::tests![
    a_shaped_veth_has_its_bucket_and_no_invented_rate,
    facts_are_those_of_the_threads_namespace,
    reading_the_facts_of_21_interfaces_is_quick,
];

fn facts_of(namespace: &Namespace, name: &str) -> InterfaceFacts {
    let facts = namespace.run(Facts::of_this_machine);
    facts.interface(name).unwrap().clone()
}

fn a_shaped_veth_has_its_bucket_and_no_invented_rate() {
    let lab = Lab::one_cable();
    lab.near.tbf("a0", 123_049_500);
    let a0 = facts_of(&lab.near, "a0");
    assert_eq!(a0.kind.as_deref(), Some("veth"));
    assert_eq!(
        (a0.driver.as_deref(), a0.line_bps),
        (Some("veth"), Some(984_396_000))
    );
    assert_eq!((a0.speed_mbps, a0.duplex, a0.modes), (None, None, None));
    assert_eq!((a0.pause, a0.eee, a0.rings), (None, None, None));
    assert!(a0.offloads.unwrap().contains(&"tso".to_owned()));
    assert!(a0.mtu_max > Some(9000) && a0.up == Some(true) && a0.carrier == Some(true));
    assert!(
        a0.addresses
            .iter()
            .any(|own| own.ip.is_ipv4() && own.prefix_len == 24)
    );

    let qdisc = a0.qdisc.unwrap();
    assert_eq!(
        (qdisc.kind.as_str(), qdisc.limit_bps),
        ("tbf", Some(984_396_000))
    );
    assert_eq!(
        (qdisc.queue_bytes, qdisc.dropped),
        (Some(QUEUE_BYTES.into()), Some(0))
    );
    // The kernel keeps the burst as a time of whole ticks of 64 ns, in which 7.9 bytes arrive.
    let burst = qdisc.burst_bytes.unwrap();
    assert!(burst.abs_diff(BURST_BYTES.into()) <= 16, "{burst}");
    assert_eq!(facts_of(&lab.far, "b0").qdisc.unwrap().limit_bps, None);
}

fn facts_are_those_of_the_threads_namespace() {
    let lab = Lab::one_cable();
    lab.near.sysctl("ipv4/conf/a0/rp_filter", "1");
    lab.near.sysctl("ipv4/tcp_rmem", "4096 131072 1000000");
    let facts = lab.near.run(Facts::of_this_machine);
    assert_eq!(facts.interface("a0").unwrap().rp_filter, Some(1));
    assert_eq!(facts.setting_at("net.ipv4.tcp_rmem", 2), Some(1_000_000));
    assert_eq!(facts.counters.get("TcpExt.ListenDrops"), Some(&0));
    // The test's /sys shows the interfaces of the namespace in which it was mounted.
    let a0 = facts.interface("a0").unwrap();
    assert_eq!((a0.receive_queues, a0.statistics.len()), (None, 0));
}

fn reading_the_facts_of_21_interfaces_is_quick() {
    let namespace = Namespace::new().unwrap();
    for number in 0..10 {
        let (near, far) = (format!("n{number}"), format!("f{number}"));
        namespace.add_link(LinkVeth::new(&near, &far).build());
        namespace.set(&near, LinkMessageBuilder::<LinkUnspec>::up);
    }
    let mut times = namespace.run(|| [(); 11].map(|()| time_of_reading()));
    times.sort();
    eprintln!(
        "Facts::of_this_machine(): median {:?} for 21 interfaces",
        times[5]
    );
    // A loose limit: the documented time applies to an idle machine.
    assert!(times[5] < Duration::from_millis(200), "{times:?}");
}

fn time_of_reading() -> Duration {
    let start = Instant::now();
    assert_eq!(Facts::of_this_machine().interfaces.len(), 21);
    start.elapsed()
}

//! Tests of interface enumeration and of the selection of default interfaces.

use std::time::{Duration, Instant};

use nicstripe_link::{
    Change, Changes, InterfaceKind, LeftOut, interface_for, interfaces, route_to,
};
use rtnetlink::{
    LinkBridge, LinkMacVlan, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVxlan,
    packet_route::link::MacVlanMode,
};

use crate::lab::{Lab, Namespace};

crate::tests![
    interfaces_are_found_with_kind_state_and_addresses,
    a_cable_without_its_far_end_has_no_carrier,
    a_bridge_of_veths_is_left_out_and_its_port_names_it,
    an_ipv6_address_is_left_out_until_duplicate_detection_ends,
    alternative_names_are_names,
    a_macvlan_names_the_interface_it_shares_and_a_vxlan_is_a_tunnel,
    listing_interfaces_takes_a_millisecond_at_most,
    the_kernels_way_to_an_address_is_told,
];

fn interfaces_are_found_with_kind_state_and_addresses() {
    let lab = Lab::new().cable(("a0", &["10.1.0.1/24", "fd01::1/64"]), ("b0", &[]));
    let found = lab.near.interfaces();
    assert_eq!(found.len(), 2, "{found:?}");

    let lo = &found[0];
    assert_eq!(
        (lo.name.to_string().as_str(), lo.kind, lo.mac),
        ("lo", InterfaceKind::Loopback, None)
    );
    assert_eq!(lo.candidate(&found), Err(LeftOut::Loopback));
    assert!(lo.has_address("127.0.0.1".parse().unwrap()) && lo.has_address("::1".parse().unwrap()));

    let a0 = &found[1];
    assert_eq!(
        (a0.kind, a0.mtu, a0.up, a0.carrier),
        (InterfaceKind::Veth, 1500, true, true)
    );
    assert_eq!((a0.master, a0.lower), (None, None));
    assert!(a0.mac.is_some());
    assert_eq!(a0.speed, None, "a veth's 10 Gbit/s are fictitious");
    let addresses: Vec<_> = a0
        .addresses
        .iter()
        .map(|own| format!("{}/{}", own.ip, own.prefix_len))
        .collect();
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    assert!(
        addresses.contains(&"10.1.0.1/24".to_owned())
            && addresses.contains(&"fd01::1/64".to_owned())
    );
    assert_eq!(
        a0.addresses
            .iter()
            .filter(|own| own.is_link_local())
            .count(),
        1
    );
    assert_eq!(a0.candidate(&found), Ok(()));
}

fn a_cable_without_its_far_end_has_no_carrier() {
    let lab = Lab::one_cable();
    lab.far.down("b0");
    let a0 = lab.near.interface("a0");
    assert!(a0.up && !a0.carrier);
    assert_eq!(a0.candidate(&[]), Err(LeftOut::NoCarrier));

    lab.near.down("a0");
    let a0 = lab.near.interface("a0");
    assert!(!a0.up && !a0.carrier);
    assert_eq!(a0.candidate(&[]), Err(LeftOut::Down));
}

fn a_bridge_of_veths_is_left_out_and_its_port_names_it() {
    let lab = Lab::one_cable();
    lab.near.add_link(LinkBridge::new("br0").build());
    lab.near.up("br0");
    lab.near.add_address("br0", "10.5.0.1/24");
    let bridge = lab.near.index("br0");
    lab.near.set("a0", |link| link.controller(bridge.0));

    let found = lab.near.interfaces();
    let find = |name| {
        found
            .iter()
            .find(|interface| interface.is_called(name))
            .unwrap()
    };
    assert_eq!(
        (find("br0").kind, find("br0").speed),
        (InterfaceKind::Bridge, None)
    );
    assert_eq!(
        find("br0").candidate(&found),
        Err(LeftOut::BridgeWithoutPhysicalPort)
    );
    assert_eq!(find("a0").master, Some(bridge));
    assert_eq!(
        find("a0").candidate(&found),
        Err(LeftOut::PortOf(find("br0").name))
    );
    assert_eq!(find("a0").usable(), Ok(()), "it is available by name");
}

fn an_ipv6_address_is_left_out_until_duplicate_detection_ends() {
    let lab = Lab::new();
    lab.near.sysctl("ipv6/conf/default/accept_dad", "1");
    let lab = lab.cable(("a0", &[]), ("b0", &[]));
    lab.near.add_address("a0", "fd01::1/64");
    let address = "fd01::1".parse().unwrap();
    assert!(
        !lab.near.interface("a0").has_address(address),
        "it is tentative for a second"
    );

    let index = lab.near.index("a0");
    lab.near.block_on(|| async {
        let mut changes = Changes::open().unwrap();
        while changes.next().await.unwrap()
            != (Change::Address {
                index,
                address,
                usable: true,
            })
        {}
    });
    assert!(lab.near.interface("a0").has_address(address));
}

fn a_macvlan_names_the_interface_it_shares_and_a_vxlan_is_a_tunnel() {
    let lab = Lab::one_cable();
    let a0 = lab.near.index("a0");
    lab.near
        .add_link(LinkMacVlan::new("mac0", a0.0, MacVlanMode::Bridge).build());
    lab.near
        .add_link(LinkVxlan::new("vx0", 7).dev(a0.0).port(4789).build());
    let (macvlan, vxlan) = (lab.near.interface("mac0"), lab.near.interface("vx0"));
    assert_eq!(
        (macvlan.kind, macvlan.lower, macvlan.speed),
        (InterfaceKind::Vlan, Some(a0), None)
    );
    assert_eq!(vxlan.candidate(&[]), Err(LeftOut::Tunnel));
}

fn alternative_names_are_names() {
    let lab = Lab::one_cable();
    let index = lab.near.index("a0").0;
    lab.near.netlink(|handle| async move {
        handle
            .link()
            .property_add(index)
            .alt_ifname(&["cable-to-the-attic"])
            .execute()
            .await
            .unwrap();
    });
    let a0 = lab.near.interface("cable-to-the-attic");
    assert_eq!((a0.name.to_string(), a0.index.0), ("a0".to_owned(), index));
}

fn listing_interfaces_takes_a_millisecond_at_most() {
    let namespace = Namespace::new().unwrap();
    for number in 0..8 {
        let (near, far) = (format!("n{number}"), format!("f{number}"));
        namespace.add_link(LinkVeth::new(&near, &far).build());
        namespace.set(&near, LinkMessageBuilder::<LinkUnspec>::up);
        namespace.add_address(&near, &format!("10.{number}.0.1/24"));
    }
    let median = |namespace: &Namespace| {
        let mut times: Vec<_> = namespace.run(|| (0..101).map(|_| time_of_listing()).collect());
        times.sort();
        times[50]
    };
    let in_lab = median(&namespace);
    namespace.tbf("n0", 125_000_000);
    let limited = median(&namespace);
    let mut here: Vec<_> = (0..101).map(|_| time_of_listing()).collect();
    here.sort();
    eprintln!(
        "interfaces(): median {in_lab:?} for 17 interfaces, {limited:?} with a limiter, {:?} for this machine's own",
        here[50]
    );
    // A loose limit: the documented time applies to an idle machine.
    assert!(
        in_lab < Duration::from_millis(5) && limited < Duration::from_millis(5),
        "{in_lab:?} {limited:?}"
    );
}

fn time_of_listing() -> Duration {
    let start = Instant::now();
    assert!(!interfaces().unwrap().is_empty());
    start.elapsed()
}

fn the_kernels_way_to_an_address_is_told() {
    let lab = Lab::two_cables();
    let found = lab.near.interfaces();
    let (a1, own) = (lab.near.index("a1"), "10.2.0.1".parse().unwrap());
    lab.near.run(|| {
        let route = route_to("10.2.0.2".parse().unwrap()).unwrap();
        assert_eq!(
            (route.interface, route.local, route.gateway),
            (a1, Some(own), None)
        );
        assert_eq!(
            interface_for("10.2.0.2".parse().unwrap(), &found)
                .unwrap()
                .index,
            a1
        );
        assert_eq!(
            interface_for("10.2.0.1".parse().unwrap(), &found)
                .unwrap()
                .kind,
            InterfaceKind::Loopback
        );
        let error = route_to("10.3.0.1".parse().unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH));
        assert!(route_to("fd01::9".parse().unwrap()).is_err());
    });
}

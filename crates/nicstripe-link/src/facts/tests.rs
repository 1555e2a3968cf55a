use std::{fs, os::unix::fs::symlink, path::Path};

use super::*;

/// Directory of a recorded machine.
struct Tree(tempfile::TempDir);

impl Tree {
    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Adds the directory of an interface in `folder`, with files that each one has.
    fn interface(&self, folder: &str, name: &str, index: u32, files: &[(&str, &str)]) {
        let folder = format!("{folder}/net/{name}");
        self.link(&format!("sys/class/net/{name}"), &format!("/{folder}"));
        self.write(&format!("{folder}/ifindex"), &format!("{index}\n"));
        for (file, text) in [
            ("flags", "0x1003\n"),
            ("carrier", "1\n"),
            ("type", "1\n"),
            ("mtu", "1500\n"),
        ] {
            self.write(&format!("{folder}/{file}"), text);
        }
        for (file, text) in files {
            self.write(&format!("{folder}/{file}"), text);
        }
    }

    fn pci(&self, path: &str, now: (&str, u8), max: (&str, u8)) {
        for (kind, (speed, width)) in [("current", now), ("max", max)] {
            self.write(
                &format!("{path}/{kind}_link_speed"),
                &format!("{speed} GT/s PCIe\n"),
            );
            self.write(&format!("{path}/{kind}_link_width"), &format!("{width}\n"));
        }
    }
}

const PORT: &str = "sys/devices/pci0000:00/0000:00:1c.0";
const CARD: &str = "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0";
const USB: &str = "sys/devices/pci0000:00/0000:00:14.0/usb2/2-1";

/// Returns a machine with a card behind a port of one PCIe 2.0 lane, a USB adapter in a USB 2
/// socket, a VLAN on the card, and a bond with the adapter.
fn machine() -> Tree {
    let tree = Tree(tempfile::tempdir().unwrap());
    card(&tree);
    adapter(&tree);
    tree.interface(
        "sys/devices/virtual",
        "eth0.7",
        4,
        &[
            ("uevent", "DEVTYPE=vlan\nINTERFACE=eth0.7\nIFINDEX=4\n"),
            ("lower_eth0/x", ""),
        ],
    );
    tree.interface(
        "sys/devices/virtual",
        "bond0",
        5,
        &[
            ("uevent", "DEVTYPE=bond\n"),
            ("lower_eth1/x", ""),
            ("speed", "480\n"),
        ],
    );
    tree.write(
        "proc/net/bonding/bond0",
        "Bonding Mode: load balancing (xor)\nTransmit Hash Policy: layer2 (0)\n",
    );
    tree.interface(
        "sys/devices/virtual",
        "lo",
        1,
        &[("type", "772\n"), ("address", "00:00:00:00:00:00\n")],
    );
    host(&tree);
    tree
}

fn card(tree: &Tree) {
    tree.pci(PORT, ("5.0", 1), ("8.0", 4));
    tree.pci(CARD, ("5.0", 1), ("8.0", 4));
    tree.write(&format!("{CARD}/numa_node"), "-1\n");
    for irq in ["124", "125"] {
        tree.write(&format!("{CARD}/msi_irqs/{irq}"), "msix\n");
    }
    tree.link(
        &format!("{CARD}/driver"),
        "../../../../bus/pci/drivers/atlantic",
    );
    tree.write("sys/bus/pci/drivers/atlantic/x", "");
    tree.interface(
        CARD,
        "eth0",
        2,
        &[
            ("address", "52:54:00:00:00:02\n"),
            ("speed", "1000\n"),
            ("duplex", "half\n"),
            ("carrier_changes", "6\n"),
            ("tx_queue_len", "1000\n"),
            ("statistics/rx_crc_errors", "37\n"),
            ("statistics/rx_missed_errors", "x\n"),
            ("queues/rx-0/rps_cpus", "00000000\n"),
            ("queues/rx-1/rps_cpus", "00000003\n"),
            ("queues/tx-0/x", ""),
        ],
    );
    tree.link(&format!("{CARD}/net/eth0/device"), "../../../0000:03:00.0");
    tree.write("proc/sys/net/ipv4/conf/eth0/rp_filter", "1\n");
    tree.write("proc/sys/net/ipv4/conf/all/rp_filter", "2\n");
}

fn adapter(tree: &Tree) {
    tree.write(&format!("{USB}/speed"), "480\n");
    tree.write(&format!("{USB}/busnum"), "2\n");
    tree.write(&format!("{USB}/../speed"), "480\n");
    tree.write(&format!("{USB}/../busnum"), "2\n");
    let folder = format!("{USB}/2-1:1.0");
    tree.write(&format!("{folder}/bInterfaceNumber"), "00\n");
    tree.interface(
        &folder,
        "eth1",
        3,
        &[
            ("speed", "2500\n"),
            ("duplex", "full\n"),
            ("carrier", "0\n"),
        ],
    );
    tree.link(&format!("{folder}/net/eth1/device"), "../../../2-1:1.0");
    tree.link(&format!("{folder}/net/eth1/master"), "/sys/class/net/bond0");
}

fn host(tree: &Tree) {
    let files = [
        ("proc/sys/kernel/hostname", "depot\n"),
        ("proc/sys/kernel/osrelease", "6.12.1\n"),
        ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 13\"\n"),
        (
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu lm\n",
        ),
        ("sys/devices/system/cpu/online", "0-3\n"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave\n",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
            "intel_pstate\n",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
            "800000\n",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
            "1200000\n",
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq",
            "900000\n",
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq",
            "3600000\n",
        ),
        (
            "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
            "3\n",
        ),
        ("sys/devices/system/node/online", "0-1\n"),
        ("sys/class/power_supply/BAT0/type", "Battery\n"),
        ("sys/class/power_supply/BAT0/status", "Discharging\n"),
        ("sys/class/power_supply/AC/type", "Mains\n"),
        ("sys/class/power_supply/AC/online", "0\n"),
        ("proc/2/comm", "kthreadd\n"),
        ("proc/812/comm", "irqbalance\n"),
        ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
        ("proc/net/softnet_stat", "0000d3a8 00000002 0000000a\n"),
        ("proc/net/netstat", "TcpExt: PruneCalled\nTcpExt: 4\n"),
        (
            "proc/interrupts",
            "  CPU0 CPU1\n124: 900 1 PCI-MSI eth0-rx-0\n125: 5 6 PCI-MSI eth0-tx-0\n130: 1 1 x eth1\n",
        ),
        ("proc/irq/124/smp_affinity_list", "0\n"),
        ("sys/block/sda/size", "2000\n"),
        ("sys/block/sda/queue/rotational", "1\n"),
        ("sys/block/loop0/size", "8\n"),
    ];
    for (path, text) in files {
        tree.write(path, text);
    }
}

fn facts_of(root: &Path) -> Facts {
    Facts::read(&Recorded::open(root).unwrap())
}

#[test]
#[cfg_attr(miri, ignore = "makes symbolic links")]
fn a_recorded_card_has_its_state_and_buses() {
    let tree = machine();
    let facts = facts_of(tree.0.path());
    let names: Vec<_> = facts
        .interfaces
        .iter()
        .map(|found| found.name.as_str())
        .collect();
    assert_eq!(names, ["lo", "eth0", "eth1", "eth0.7", "bond0"]);
    let card = facts.interface("eth0").unwrap();
    let hop = |address: &str| BusHop {
        kind: "pci".to_owned(),
        address: address.to_owned(),
        lane_mts: Some(5000),
        lane_max_mts: Some(8000),
        lanes: Some(1),
        lanes_max: Some(4),
        usb_mbps: None,
    };
    let interrupt = |irq, counts: [u64; 2], affinity: Option<&str>| InterruptFacts {
        irq,
        counts: counts.to_vec(),
        affinity: affinity.map(str::to_owned),
    };
    let expected = InterfaceFacts {
        index: Some(2),
        name: "eth0".to_owned(),
        mtu: Some(1500),
        line_bps: Some(1_000_000_000),
        driver: Some("atlantic".to_owned()),
        duplex: Some("half".to_owned()),
        kind: Some("ethernet".to_owned()),
        up: Some(true),
        carrier: Some(true),
        mac: Some("52:54:00:00:00:02".to_owned()),
        speed_mbps: Some(1000),
        statistics: BTreeMap::from([("rx_crc_errors".to_owned(), 37)]),
        carrier_changes: Some(6),
        bus: vec![hop("0000:03:00.0"), hop("0000:00:1c.0")],
        interrupts: vec![
            interrupt(124, [900, 1], Some("0")),
            interrupt(125, [5, 6], None),
        ],
        rps: Some(true),
        receive_queues: Some(2),
        send_queue_packets: Some(1000),
        rp_filter: Some(2),
        ..InterfaceFacts::default()
    };
    assert_eq!(card, &expected);
}

#[test]
#[cfg_attr(miri, ignore = "makes symbolic links")]
fn interfaces_of_a_recorded_machine_belong_together() {
    let tree = machine();
    let facts = facts_of(tree.0.path());
    let adapter = facts.interface("eth1").unwrap();
    let hops: Vec<_> = adapter
        .bus
        .iter()
        .map(|hop| (hop.kind.as_str(), hop.address.as_str(), hop.usb_mbps))
        .collect();
    assert_eq!(
        hops,
        [
            ("usb", "2-1", Some(480)),
            ("usb", "usb2", Some(480)),
            ("pci", "0000:00:14.0", None)
        ]
    );
    assert_eq!(
        (adapter.carrier, adapter.master.as_deref()),
        (Some(false), Some("bond0"))
    );
    assert_eq!(adapter.interrupts[0].irq, 130);
    let vlan = facts.interface("eth0.7").unwrap();
    assert_eq!(
        (vlan.kind.as_deref(), vlan.lower.as_deref()),
        (Some("vlan"), Some("eth0"))
    );
    let bond = facts.interface("bond0").unwrap();
    let expected = BondFacts {
        mode: Some("balance-xor".to_owned()),
        hash: Some("layer2".to_owned()),
        members: vec!["eth1".to_owned()],
    };
    assert_eq!(
        (bond.bond.as_ref(), bond.speed_mbps),
        (Some(&expected), None)
    );
    assert_eq!(facts.interface("lo").unwrap().mac, None);
}

#[test]
#[cfg_attr(miri, ignore = "makes symbolic links")]
fn a_recorded_host_has_its_own_name_and_processors() {
    let tree = machine();
    let facts = facts_of(tree.0.path());
    let expected = HostFacts {
        name: Some("depot".to_owned()),
        os: Some("Debian GNU/Linux 13".to_owned()),
        kernel: Some("6.12.1".to_owned()),
        cpu: Some("Xeon".to_owned()),
        cores: Some(4),
        cpu_mhz: None,
        ..HostFacts::default()
    };
    assert_eq!(facts.host, expected);
    let expected = ProcessorFacts {
        governors: vec!["powersave".to_owned()],
        frequency_driver: Some("intel_pstate".to_owned()),
        mhz_now: Some(900),
        mhz_max: Some(3600),
        mhz_limit: Some(1200),
        thermal_throttles: Some(3),
        on_battery: Some(true),
        numa_nodes: Some(2),
        in_container: Some(false),
        irqbalance: Some(true),
        ..ProcessorFacts::default()
    };
    assert_eq!(facts.processors, expected);
    assert_eq!(facts.setting_at("net.ipv4.tcp_rmem", 2), Some(6_291_456));
    let counters = [
        ("TcpExt.PruneCalled", 4),
        ("softnet.dropped", 2),
        ("softnet.squeezed", 10),
    ];
    assert_eq!(
        facts.counters,
        counters
            .map(|(name, count)| (name.to_owned(), count))
            .into()
    );
    let disk = DiskFacts {
        name: "sda".to_owned(),
        bytes: Some(1_024_000),
        rotational: Some(true),
    };
    assert_eq!(facts.disks, [disk]);
}

#[test]
#[cfg_attr(miri, ignore = "makes symbolic links")]
fn an_interface_of_another_namespace_has_no_facts_from_sysfs() {
    let tree = machine();
    tree.write(
        "interfaces.json",
        r#"[{"name":"eth0","index":7},{"name":"../../net/eth0"},{"name":"eth1","mtu":9000}]"#,
    );
    let facts = facts_of(tree.0.path());
    let other = facts.interface("eth0").unwrap();
    assert_eq!(
        (other.bus.len(), other.receive_queues, other.rp_filter),
        (0, None, Some(2))
    );
    assert_eq!(facts.interfaces[1].bus, []);
    let same = facts.interface("eth1").unwrap();
    assert_eq!(
        (same.index, same.mtu, same.bus.len()),
        (Some(3), Some(9000), 3)
    );
}

#[test]
#[cfg_attr(miri, ignore = "makes symbolic links")]
fn facts_survive_json_with_fields_of_a_newer_version() {
    let tree = machine();
    let facts = facts_of(tree.0.path());
    let mut json = serde_json::to_value(&facts).unwrap();
    add_unknown(&mut json);
    assert_eq!(serde_json::from_value::<Facts>(json).unwrap(), facts);
    assert_eq!(
        serde_json::to_string(&Facts::default()).unwrap(),
        r#"{"host":{},"processors":{}}"#
    );
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn a_container_needs_a_clear_sign() {
    let (mark, group, kernel) = (".dockerenv", "proc/self/cgroup", "proc/2/comm");
    let (docker, threads) = ((group, "0::/docker/1f\n"), (kernel, "kthreadd\n"));
    for (files, expected) in [
        (&[][..], None),
        (&[threads][..], Some(false)),
        (&[(mark, "")][..], Some(true)),
        (&[(mark, ""), threads][..], None),
        (&[docker, threads][..], Some(true)),
        (&[(group, "0::/user.slice\n")][..], None),
    ] {
        let tree = Tree(tempfile::tempdir().unwrap());
        for (path, text) in files {
            tree.write(path, text);
        }
        let facts = facts_of(tree.0.path());
        assert_eq!(facts.processors.in_container, expected, "{files:?}");
    }
}

/// Adds an unknown field to all objects except maps of settings and counters.
fn add_unknown(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if !["settings", "counters", "statistics"].contains(&name.as_str()) {
                    add_unknown(value);
                }
            }
            fields.insert("unknown".to_owned(), serde_json::json!({ "deep": [1] }));
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(add_unknown),
        _ => {}
    }
}

#[test]
fn facts_of_another_machine_are_cut_to_their_limits() {
    let named = |name: &str| InterfaceFacts {
        name: name.to_owned(),
        ..InterfaceFacts::default()
    };
    let long = InterruptFacts {
        counts: vec![0; 5000],
        ..InterruptFacts::default()
    };
    let interface = InterfaceFacts {
        name: "eth0\u{1b}[31m".to_owned(),
        driver: Some("x".repeat(1000)),
        mac: Some("\n".to_owned()),
        statistics: (0..1000).map(|number| (format!("s{number}"), 1)).collect(),
        interrupts: [vec![long], vec![InterruptFacts::default(); 1000]].concat(),
        bus: vec![BusHop::default(); 100],
        offloads: Some(vec!["tso".to_owned(); 1000]),
        ..InterfaceFacts::default()
    };
    let facts = Facts {
        interfaces: [vec![interface], vec![named("eth1"); 1000]].concat(),
        settings: BTreeMap::from([
            ("a\nb".to_owned(), String::new()),
            ("c".to_owned(), "1\t2".to_owned()),
        ]),
        disks: vec![DiskFacts::default(); 1000],
        ..Facts::default()
    };
    let facts = facts.bounded();
    let first = &facts.interfaces[0];
    assert_eq!(
        (
            facts.interfaces.len(),
            facts.disks.len(),
            first.statistics.len()
        ),
        (256, 64, 256)
    );
    assert_eq!((first.name.as_str(), &first.mac), ("eth0 [31m", &None));
    assert_eq!(first.driver.as_ref().unwrap().len(), 128);
    assert_eq!(
        (first.interrupts.len(), first.interrupts[0].counts.len()),
        (256, 1024)
    );
    assert_eq!(
        (first.bus.len(), first.offloads.as_ref().unwrap().len()),
        (16, 128)
    );
    assert_eq!(
        facts.settings,
        BTreeMap::from([("c".to_owned(), "1 2".to_owned())])
    );
    assert_eq!(facts.clone().bounded(), facts);
}

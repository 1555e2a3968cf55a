//! Fuzzing entry points: kernel answers, files of `/proc`, `/sys` and resolvers, facts about a
//! machine, and messages between the program and the route helper.
//!
//! Called by `fuzz/fuzz_targets`, and by the tests below with every file of `fuzz/corpus`.

use std::path::Path;

use nicstripe_netlink::{Attributes, Message, Messages};

use crate::{
    facts::{self, Facts},
    helper::protocol::{ANSWER_LEN, REQUEST_LEN, Reply, Request},
    host::{cpu, file_system},
    interface::{
        InterfaceIndex, counters,
        egress_limit::{Class, Limiter},
        enumerate::{AddressMessage, LinkMessage},
        ethtool, ethtool_messages,
        name::InterfaceName,
        sysfs::device_type_of,
    },
    ledger::{Recorded, Stat, records_of},
    mtu::manager::MtuRecord,
    routes::{lookup, manager::RouteRecord, policy::resolvers, table::Entry},
    socket::tcp_info,
};

/// Parses fuzzer input as a kernel answer. The first byte selects the format: a netlink datagram,
/// `TCP_INFO`, or a text of `/proc`, `/sys` or a resolver's file.
pub fn netlink(data: &[u8]) {
    let Some((kind, answer)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 | 1 => datagram(answer),
        2 => _ = tcp_info::parse(answer),
        _ => texts(&String::from_utf8_lossy(answer)),
    }
}

fn datagram(bytes: &[u8]) {
    let (mut limiters, mut classes, mut count) = (Vec::new(), Vec::new(), 0);
    for message in Messages::new(bytes) {
        count += 1;
        assert!(count <= bytes.len() / 16, "more messages than headers");
        parse(&message);
        limiters.extend(Limiter::parse(&message));
        classes.extend(Class::parse(&message));
    }
    for limiter in limiters {
        if let Limiter::Htb(htb) = limiter {
            let _ = htb.limit(&classes);
        }
    }
}

fn parse(message: &Message<'_>) {
    let link = LinkMessage::parse(message);
    assert!(
        link.is_none_or(|link| InterfaceName::new(link.link.name.as_bytes()) == Ok(link.link.name))
    );
    let _ = AddressMessage::parse(message);
    let _ = lookup::parse(message);
    let _ = counters::parse(message);
    let _ = Entry::parse(message).and_then(|entry| entry.as_ours());
    let Some((_, attributes)) = message.split(4) else {
        return;
    };
    let found: usize = attributes.map(|(_, value)| 4 + value.len()).sum();
    assert!(found <= message.body.len(), "attributes overlap");
    attributes.for_each(|(_, value)| Attributes::new(value).for_each(drop));
}

fn texts(text: &str) {
    let _ = Stat::parse(text);
    resolvers(text).for_each(drop);
    let _ = device_type_of(text, InterfaceIndex(3));
    cpu::parse(text);
    facts::parse(text);
    file_system::parse(text);
}

/// Decodes fuzzer input as a request to the route helper, its answer, or a record file; the first
/// byte selects which.
///
/// # Panics
///
/// Panics if a decoded value does not encode to the same bytes.
pub fn routes(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 3 {
        0 => {
            let request = filled::<REQUEST_LEN>(bytes);
            let read = Request::decode(&request);
            assert!(read.is_none_or(|read| read.encode() == request));
        }
        1 => {
            let answer = filled::<ANSWER_LEN>(bytes);
            let read = Reply::decode(&answer);
            assert!(read.is_none_or(|read| read.encode() == answer));
        }
        _ => ledger(bytes),
    }
}

/// Parses fuzzer input as facts about a machine. The first byte selects the format: a text of
/// `/proc` or `/sys`, an answer of a driver, a netlink datagram, or JSON of another machine.
///
/// # Panics
///
/// Panics if facts from JSON change when they are cut to their limits again, or are not the same
/// after they were written and read.
pub fn facts(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => facts::parse(&String::from_utf8_lossy(bytes)),
        1 => {
            ethtool_messages::parse(bytes);
            ethtool::parse(bytes);
        }
        2 => Messages::new(bytes).for_each(|message| facts::parse_message(&message)),
        _ => {
            let Ok(read) = serde_json::from_slice::<Facts>(bytes) else {
                return;
            };
            let bounded = read.bounded();
            assert_eq!(bounded.clone().bounded(), bounded);
            let written = serde_json::to_vec(&bounded).expect("facts are plain data");
            let again = serde_json::from_slice::<Facts>(&written).expect("written facts are read");
            assert_eq!(again, bounded);
        }
    }
}

/// Pads or cuts the input to a message of `N` bytes: the decoder takes no other length.
fn filled<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut filled = [0; N];
    let len = bytes.len().min(N);
    filled[..len].copy_from_slice(&bytes[..len]);
    filled
}

fn ledger(bytes: &[u8]) {
    read_back::<RouteRecord>(bytes);
    read_back::<MtuRecord>(bytes);
}

fn read_back<R: Recorded + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let records = records_of::<R>(bytes, Path::new(R::KIND));
    let lines = records
        .iter()
        .map(|record| serde_json::to_string(record).expect("a record is plain data"));
    let written: String = lines.map(|line| line + "\n").collect();
    assert_eq!(
        records_of::<R>(written.as_bytes(), Path::new(R::KIND)),
        records
    );
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use nicstripe_netlink::{Request as NetlinkRequest, push_attribute};
    use nicstripe_testkit::replay;

    use super::*;
    use crate::routes::HostRoute;

    /// Returns an `RTM_NEWLINK` message in the format of Linux 6.18, with all attributes that the
    /// parser reads.
    fn link(name: &[u8], kind: &[u8], alternative: &[u8]) -> Vec<u8> {
        let (mut info, mut properties) = (Vec::new(), Vec::new());
        push_attribute(&mut info, 1, kind);
        let mut bond = Vec::new();
        push_attribute(&mut bond, 1, &[4]);
        push_attribute(&mut bond, 14, &[1]);
        push_attribute(&mut info, 2, &bond);
        push_attribute(&mut properties, 53, alternative);
        let header = [0, 0, 1, 0, 3, 0, 0, 0, 0x43, 0, 1, 0, 0, 0, 0, 0];
        let request = NetlinkRequest::new(16, &header)
            .attribute(3, name)
            .attribute(4, &1500_u32.to_ne_bytes())
            .attribute(1, &[2, 0, 0, 0, 0, 1])
            .attribute(6, b"htb\0")
            .attribute(5, &7_u32.to_ne_bytes())
            .attribute(10, &8_u32.to_ne_bytes())
            .attribute(18, &info)
            .attribute(52, &properties)
            .attribute(57, b"virtio\0");
        request.encode(0, 1)
    }

    fn address(ip: IpAddr) -> Vec<u8> {
        let header = [2, 24, 0x80, 0, 3, 0, 0, 0];
        NetlinkRequest::new(20, &header)
            .address(1, ip)
            .address(2, ip)
            .attribute(8, &0x80_u32.to_ne_bytes())
            .encode(0, 1)
    }

    fn route() -> Vec<u8> {
        let mut hop = vec![16, 0, 0, 0, 3, 0, 0, 0];
        push_attribute(&mut hop, 5, &[10, 0, 0, 3]);
        let header = [2, 32, 0, 0, 254, 83, 253, 1, 0, 0, 0, 0];
        let request = NetlinkRequest::new(24, &header)
            .address(1, [10, 0, 0, 2].into())
            .attribute(4, &3_u32.to_ne_bytes());
        request
            .attribute(6, &50_u32.to_ne_bytes())
            .address(7, [10, 0, 0, 1].into())
            .attribute(9, &hop)
            .attribute(18, &[2, 0, 10, 0, 0, 9])
            .encode(0, 1)
    }

    /// Returns traffic-control messages: an htb with a top class and a default class below it, and
    /// a tbf.
    fn limiters() -> Vec<u8> {
        let tc = |kind: u16, handle: u32, parent: u32, name: &[u8], options: &[(u16, Vec<u8>)]| {
            let mut nested = Vec::new();
            options
                .iter()
                .for_each(|(kind, value)| push_attribute(&mut nested, *kind, value));
            let mut header = vec![0, 0, 0, 0, 3, 0, 0, 0];
            header.extend(handle.to_ne_bytes());
            header.extend(parent.to_ne_bytes());
            header.extend([0; 4]);
            NetlinkRequest::new(kind, &header)
                .attribute(1, name)
                .attribute(2, &nested)
                .encode(0, 1)
        };
        let rates = |rate: u32| {
            [
                &[0; 8][..],
                &rate.to_ne_bytes(),
                &[0; 8],
                &rate.to_ne_bytes(),
                &[0; 20],
            ]
            .concat()
        };
        let global = [3_u32, 10, 0x10, 0, 0]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        [
            tc(36, 0x1_0000, u32::MAX, b"htb\0", &[(2, global)]),
            tc(40, 0x1_0001, u32::MAX, b"htb\0", &[(1, rates(12_500_000))]),
            tc(
                40,
                0x1_0010,
                0x1_0001,
                b"htb\0",
                &[
                    (1, rates(1_250_000)),
                    (7, 9_000_000_000_u64.to_ne_bytes().to_vec()),
                ],
            ),
            tc(
                36,
                0x2_0000,
                u32::MAX,
                b"tbf\0",
                &[
                    (1, rates(123_049_500)),
                    (4, 5_000_000_000_u64.to_ne_bytes().to_vec()),
                ],
            ),
        ]
        .concat()
    }

    #[test]
    fn netlink_corpus() {
        let with = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
        let (link4, v6) = (
            link(b"eth0\0", b"bond\0", b"enp1s0\0"),
            "fe80::1".parse().unwrap(),
        );
        let all = [
            link4.clone(),
            address([10, 0, 0, 1].into()),
            address(v6),
            route(),
            limiters(),
        ]
        .concat();
        let mut short = link4.clone();
        short[..4].copy_from_slice(&15_u32.to_ne_bytes());
        let mut long = route();
        long[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        replay(
            "netlink",
            netlink,
            vec![
                ("link", with(0, &link4)),
                ("link-of-nobody", with(0, &link(b"a/b\0", b"\xff", b"\0"))),
                ("addresses", with(0, &[address([10, 0, 0, 1].into()), address(v6)].concat())),
                ("route", with(0, &route())),
                ("limiters", with(0, &limiters())),
                ("all", with(0, &all)),
                ("message-shorter-than-its-header", with(0, &short)),
                ("message-of-4-gib", with(0, &long)),
                ("tcp-info", with(2, &[1; 248])),
                ("tcp-info-short", with(2, &[1; 103])),
                ("stat", with(3, b"17 (a) S) b) S 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0")),
                ("resolv-conf", with(3, b"# a\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver\nsearch x\n")),
                ("uevent", with(3, b"DEVTYPE=wlan\nINTERFACE=wlan0\nIFINDEX=3\n")),
            ],
        );
    }

    #[test]
    fn facts_corpus() {
        let with = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
        let text = |text: &str| with(0, text.as_bytes());
        let answer = ethtool_messages::tests::statistics_answer();
        let json = |text: &str| with(3, text.as_bytes());
        let full = r#"{"host":{"name":"a\u001b","cores":4},"settings":{"net.ipv4.tcp_rmem":"4096\t1\t2"},
            "interfaces":[{"name":"eth0","addresses":[{"ip":"fe80::1","prefix_len":64}],"statistics":{"rx_errors":1},
            "bus":[{"kind":"pci","address":"0000:03:00.0","lanes":1}],"interrupts":[{"irq":9,"counts":[1]}],
            "modes":{"supported":["1000baseT/Full"]},"new":[]}],"disks":[{"name":"sda"}]}"#;
        assert!(serde_json::from_str::<Facts>(full).is_ok());
        replay(
            "facts",
            facts,
            vec![
                (
                    "interrupts",
                    text("  CPU0 CPU2\n 24: 10 11 PCI-MSI 1-edge eth0-rx-0\n NMI: 1 2 x\n"),
                ),
                (
                    "interrupts-of-a-cpu-too-high",
                    text("  CPU99999999999\n 24: 10 x\n"),
                ),
                (
                    "netstat",
                    text("TcpExt: PruneCalled ListenDrops\nTcpExt: 3 4\n"),
                ),
                (
                    "softnet",
                    text(
                        "0000d3a8 00000002 0000000a\nffffffffffffffff ffffffffffffffff ffffffffffffffff\n",
                    ),
                ),
                (
                    "bond",
                    text(
                        "Bonding Mode: IEEE 802.3ad Dynamic link aggregation\nTransmit Hash Policy: layer2 (0)\nSlave Interface: eth0\n",
                    ),
                ),
                ("lane", text("8.0 GT/s PCIe\n")),
                ("list", text("0-4294967295,0-1")),
                ("uevent", text("DEVTYPE=vlan\nINTERFACE=eth0.7\n")),
                (
                    "cpuinfo",
                    text("processor : 0\nflags : fpu hypervisor\ncpu MHz : 1e999\n"),
                ),
                ("statistics", with(1, &answer)),
                ("statistics-cut", with(1, &answer[..answer.len() - 5])),
                ("limiters", with(2, &limiters())),
                ("link", with(2, &link(b"eth0\0", b"bond\0", b"enp1s0\0"))),
                ("json", json(full)),
                ("json-deep", json(&"[".repeat(300))),
                ("json-empty", json("{}")),
            ],
        );
    }

    #[test]
    fn routes_corpus() {
        let with = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
        let v4 = HostRoute {
            destination: [10, 1, 2, 3].into(),
            interface: InterfaceIndex(7),
            prefer_source: None,
            metric: HostRoute::DEFAULT_METRIC,
        };
        let v6 = HostRoute {
            destination: "fd00::2".parse().unwrap(),
            prefer_source: Some("fd00::1".parse().unwrap()),
            ..v4
        };
        let line = |text: &str| with(2, text.as_bytes());
        let owner = r#"{"owner":{"pid":17,"start_time":4711,"boot":"b"},"namespace":7,"#;
        let record = format!(
            "{owner}\"destination\":\"fd00::2\",\"interface\":3,\"prefer_source\":\"fd00::1\",\"metric\":50}}\n"
        );
        let mtu = format!(
            "{owner}\"interface\":3,\"name\":\"eth1\",\"mac\":\"52:54:00:12:34:56\",\"was\":1500,\"set\":[4000,9000]}}\n"
        );
        assert_eq!(
            records_of::<MtuRecord>(mtu.as_bytes(), Path::new("")).len(),
            1
        );
        assert_eq!(
            records_of::<RouteRecord>(record.as_bytes(), Path::new("")).len(),
            1
        );
        let answer = Reply {
            status: 17,
            detail: 4,
            interface: 3,
            address: Some(v4.destination),
        };
        let mut half = Request::Add(v6).encode();
        half[2] = 4;
        replay(
            "routes",
            routes,
            vec![
                ("add", with(0, &Request::Add(v4).encode())),
                ("remove", with(0, &Request::Remove(v6).encode())),
                (
                    "restore",
                    with(0, &Request::Restore(InterfaceIndex(7)).encode()),
                ),
                ("clean", with(0, &Request::Clean.encode())),
                ("half-of-an-address-too-much", with(0, &half)),
                ("answer", with(1, &answer.encode())),
                (
                    "answer-malformed",
                    with(1, &Reply::not_understood().encode()),
                ),
                (
                    "set-mtu",
                    with(
                        0,
                        &Request::SetMtu {
                            interface: InterfaceIndex(7),
                            mtu: 9000,
                            seconds: 60,
                        }
                        .encode(),
                    ),
                ),
                (
                    "restore-mtu",
                    with(0, &Request::RestoreMtu(InterfaceIndex(7)).encode()),
                ),
                ("record-mtu", line(&mtu)),
                ("record", line(&record)),
                (
                    "records-torn",
                    line(&format!("\u{fffd}{{\n{record}\n{}", &record[..40])),
                ),
                ("record-metric-0", line(&record.replace("50}", "0}"))),
                ("record-deep", line(&"[".repeat(300))),
                (
                    "record-twice-the-same-key",
                    line(&record.replace("\"interface\":3", "\"interface\":3,\"interface\":4")),
                ),
            ],
        );
    }
}

//! Settings and counters of the kernel.

use std::collections::BTreeMap;

use crate::facts::{system::System, text::plain};

/// Reads the kernel settings that limit transfers, by their sysctl names. Those of another network
/// namespace, and those of modules that are not loaded, are absent.
pub(crate) fn settings(system: &dyn System) -> BTreeMap<String, String> {
    let read = |name: &&str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        Some(((*name).to_owned(), plain(&system.read(&path)?)?))
    };
    SETTINGS.iter().filter_map(read).collect()
}

/// Reads the counters of lost and delayed packets.
pub(crate) fn counters(system: &dyn System) -> BTreeMap<String, u64> {
    let netstat = system.read("/proc/net/netstat").unwrap_or_default();
    let mut counters = extended_tcp(&netstat);
    let softnet = system.read("/proc/net/softnet_stat");
    if let Some(softnet) = softnet.and_then(|text| Softnet::parse(&text)) {
        counters.insert("softnet.dropped".to_owned(), softnet.dropped);
        counters.insert("softnet.squeezed".to_owned(), softnet.squeezed);
    }
    counters
}

/// Parses the counters of [`COUNTERS`] from the text of `/proc/net/netstat`: a line of names, and a
/// line of numbers with the same prefix.
fn extended_tcp(netstat: &str) -> BTreeMap<String, u64> {
    let mut lines = netstat
        .lines()
        .filter_map(|line| line.strip_prefix("TcpExt:"));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else {
        return BTreeMap::new();
    };
    let pairs = names.split_whitespace().zip(numbers.split_whitespace());
    pairs
        .filter(|(name, _)| COUNTERS.contains(name))
        .filter_map(|(name, number)| Some((format!("TcpExt.{name}"), number.parse().ok()?)))
        .collect()
}

/// Numbers of packets that wait for processing, summed over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Softnet {
    /// Packets dropped because the backlog was full.
    dropped: u64,
    /// Times that the budget ended before the packets did.
    squeezed: u64,
}

impl Softnet {
    /// Parses the text of `/proc/net/softnet_stat`: a line of hexadecimal numbers per processor,
    /// with processed, dropped and squeezed as the first.
    fn parse(text: &str) -> Option<Self> {
        let mut sum = None::<Self>;
        for line in text.lines() {
            let mut numbers = line
                .split_whitespace()
                .skip(1)
                .map(|number| u64::from_str_radix(number, 16).ok());
            let (dropped, squeezed) = (numbers.next()??, numbers.next()??);
            let before = sum.unwrap_or_default();
            sum = Some(Self {
                dropped: before.dropped.saturating_add(dropped),
                squeezed: before.squeezed.saturating_add(squeezed),
            });
        }
        sum
    }
}

/// Runs the parsers of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    assert!(extended_tcp(text).len() <= COUNTERS.len());
    let _ = Softnet::parse(text);
}

const SETTINGS: [&str; 22] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.default_qdisc",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.arp_announce",
    "net.ipv4.conf.all.rp_filter",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
];

/// Names of counters in `/proc/net/netstat`: lack of memory for received packets, full queues, and
/// packets that could not be sent.
const COUNTERS: [&str; 12] = [
    "PruneCalled",
    "RcvPruned",
    "OfoPruned",
    "TCPRcvCollapsed",
    "TCPMemoryPressures",
    "TCPMemoryPressuresChrono",
    "TCPBacklogDrop",
    "TCPRcvQDrop",
    "TCPZeroWindowDrop",
    "TCPRetransFail",
    "ListenOverflows",
    "ListenDrops",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let netstat = "TcpExt: SyncookiesSent PruneCalled TCPRcvCollapsed ListenDrops New\n\
                       TcpExt: 7 3 18446744073709551615 -1 9\nIpExt: InNoRoutes\nIpExt: 5\n";
        let expected = [
            ("TcpExt.PruneCalled".to_owned(), 3),
            ("TcpExt.TCPRcvCollapsed".to_owned(), u64::MAX),
        ];
        assert_eq!(extended_tcp(netstat), BTreeMap::from(expected));
        for broken in [
            "",
            "TcpExt: PruneCalled\n",
            "IpExt: PruneCalled\nIpExt: 3\n",
        ] {
            assert_eq!(extended_tcp(broken), BTreeMap::new(), "{broken:?}");
        }
    }

    #[test]
    fn drops_of_all_processors_are_added() {
        let text = "0000d3a8 00000002 0000000a 00000000\n00001111 00000001 00000010 00000000\n";
        let sum = Softnet {
            dropped: 3,
            squeezed: 26,
        };
        assert_eq!(Softnet::parse(text), Some(sum));
        for broken in ["", "\n", "1 2\n", "1 x 3\n"] {
            assert_eq!(Softnet::parse(broken), None, "{broken:?}");
        }
    }
}

//! Summary of a finished copy, for users.

use nicstripe::{LinkReport, LinkState, Report};

use super::tree_summary;
use crate::text::{
    known, link_text,
    quantity::{Grouped, Size, Speed},
    shown,
    table::aligned,
};

/// Returns a table with one line per link: rates, bytes, retransmissions, RTT and state.
pub(crate) fn link_table(report: &Report) -> Vec<String> {
    let heads = ["link", "got", "expected", "bytes", "resent", "rtt", "state"];
    let links = report.links.iter();
    aligned(heads, links.map(|link| row(link, is_alone(link, report))))
}

/// Returns true if no other link in the report joins the same two interfaces.
fn is_alone(link: &LinkReport, report: &Report) -> bool {
    report
        .links
        .iter()
        .filter(|other| link_text::ends(&other.link) == link_text::ends(&link.link))
        .count()
        == 1
}

fn row(link: &LinkReport, is_alone: bool) -> [String; 7] {
    let mut name = link_text::ends(&link.link);
    if !is_alone {
        let local = link.link.local;
        let local = local.map_or_else(String::new, |local| format!("{local} → "));
        name.push_str(&format!(" ({local}{})", link.link.remote));
    }
    let rtt = link.kernel.rtt;
    [
        name,
        Speed(link.goodput).to_string(),
        known(link.theory.map(Speed)),
        Size(link.bytes).to_string(),
        known(link.kernel.retransmitted_bytes.map(Size)),
        known(rtt.map(|rtt| format!("{:.1} ms", rtt.as_secs_f64() * 1e3))),
        state(link),
    ]
}

fn state(link: &LinkReport) -> String {
    let state = match &link.state {
        LinkState::Connecting => "never connected".to_owned(),
        LinkState::Up => "up".to_owned(),
        state => link_text::trouble(state).unwrap_or_else(|| "?".to_owned()),
    };
    let lost = match link.failures {
        0 => state,
        1 => format!("{state}, lost once"),
        times => format!("{state}, lost {times} times"),
    };
    match link.damaged {
        0 => lost,
        times => format!("{lost}, {times} of them by damaged data"),
    }
}

/// Returns the warnings for a successful copy: failed links, links limited to small packets, and
/// links whose packets took another interface.
pub(crate) fn warnings(report: &Report) -> Vec<String> {
    // A missing peer interface is reported by its local counterpart.
    let ours = report.failed.iter().filter(|failed| !failed.is_peers);
    let failed = ours.map(|failed| {
        format!(
            "{} was not used: {}",
            shown(&failed.interface),
            shown(&failed.why)
        )
    });
    let narrow = report.links.iter().filter_map(|link| {
        let text = link_text::narrow(link.path_mtu?);
        Some(format!("{}: {text}", shown(&link.link.interface)))
    });
    failed
        .chain(narrow)
        .chain(report.links.iter().filter_map(|link| doubt(link, report)))
        .collect()
}

/// Returns a warning if the interface of a link carried fewer bytes than its connections delivered,
/// so that some took another interface.
fn doubt(link: &LinkReport, report: &Report) -> Option<String> {
    let carried = link
        .interface_bytes
        .filter(|_| link.verified == Some(false))?;
    let on_it = report
        .links
        .iter()
        .filter(|other| other.link.interface == link.link.interface);
    let delivered: u64 = on_it.map(|other| other.wire_bytes).sum();
    let name = shown(&link.link.interface);
    (carried < delivered).then(|| {
        format!(
            "{name} carried {} of {} delivered: the rest took another interface",
            Size(carried),
            Size(delivered)
        )
    })
}

/// Returns the totals of a copy in the format of `rsync --stats`, one line each.
pub(crate) fn stats(report: &Report) -> Vec<String> {
    let bytes = |bytes: u64| format!("{} bytes", Grouped(bytes));
    let seconds = |time: std::time::Duration| format!("{:.3} seconds", time.as_secs_f64());
    let mut lines = report.tree.as_ref().map_or_else(
        || vec!["Number of files: 1".to_owned()],
        tree_summary::stats,
    );
    lines.extend([
        format!("Total file size: {}", bytes(report.size)),
        format!("Bytes already present: {}", bytes(report.resumed_bytes)),
        format!(
            "Bytes moved: {}",
            bytes(report.size.saturating_sub(report.resumed_bytes))
        ),
        format!("Bytes sent over the links: {}", bytes(report.wire_bytes)),
        format!("Bytes sent more than once: {}", bytes(report.resent_bytes)),
        format!("Elapsed time: {}", seconds(report.elapsed)),
        format!("Transfer time: {}", seconds(report.moving)),
        format!(
            "Goodput: {} ({})",
            Speed(report.goodput()),
            report.goodput()
        ),
    ]);
    lines.extend(
        report
            .expected
            .map(|rate| format!("Expected rate: {} ({rate})", Speed(rate))),
    );
    lines.extend([
        format!("Links lost: {}", report.failovers),
        format!("Host routes installed: {}", report.routes_installed),
    ]);
    lines.extend(report.digest.map(|digest| format!("BLAKE3: {digest}")));
    lines
}

#[cfg(test)]
pub(crate) mod tests {
    use nicstripe_testkit::with;
    use std::time::Duration;

    use nicstripe::{BitRate, Digest, KernelView, Limit, TreeReport, UnusedInterface};

    use super::*;
    use crate::commands::cp::view::tests::link;

    pub(crate) fn report() -> Report {
        let link_report = |name: &str| with!(LinkReport::new(link(name)), bytes: 268_435_456, wire_bytes: 268_435_456, goodput: BitRate(940_400_000), theory: Some(BitRate(941_482_000)), state: LinkState::Up, verified: Some(true), interface_bytes: Some(268_900_000), path_mtu: None, failures: 0, damaged: 0, kernel: with!(KernelView::default(), retransmitted_bytes: Some(0), rtt: Some(Duration::from_micros(1_234)), busy: Some(Duration::from_millis(2_270)), rwnd_limited: Some(Duration::ZERO)));
        with!(Report::default(), size: 536_870_912, digest: Some(Digest([0xab; 32])), tree: None, wire_bytes: 536_870_912, elapsed: Duration::from_millis(2_284), moving: Duration::from_millis(2_270), resumed_bytes: 0, resent_bytes: 0, failovers: 0, routes_installed: 0, expected: Some(BitRate(1_882_964_000)), limited_by: Limit::Cables, links: vec![link_report("eth1"), link_report("eth2")], failed: Vec::new(), unused: Vec::new(), survey: None)
    }

    #[test]
    fn the_table_is_aligned_and_unknown_cells_say_so() {
        let mut report = report();
        report.links[1].theory = None;
        report.links[1].failures = 2;
        report.links[1].damaged = 1;
        report.links[1].link.peer_interface = Some("enp5s0".into());
        assert_eq!(
            link_table(&report),
            [
                "  link                  got    expected      bytes  resent     rtt  state",
                "  eth1           117.5 MB/s  117.7 MB/s  256.0 MiB     0 B  1.2 ms  up",
                "  eth2 → enp5s0  117.5 MB/s           ?  256.0 MiB     0 B  1.2 ms  up, lost 2 times, 1 of them by damaged data",
            ]
        );
    }

    #[test]
    fn a_link_that_did_not_work_and_one_of_small_packets_are_told() {
        let mut report = report();
        assert!(warnings(&report).is_empty());
        report.failed.push(with!(UnusedInterface::new("eth3".into(), "no answer".into()), is_peers: false, failed: true, is_card: true, is_idle: false));
        report.links[0].path_mtu = Some(1500);
        let warnings = warnings(&report);
        assert_eq!(warnings[0], "eth3 was not used: no answer");
        assert!(
            warnings[1].starts_with("eth1: packets above 1500 bytes are dropped on the path"),
            "{}",
            warnings[1]
        );
    }

    #[test]
    fn a_link_whose_interface_carried_too_little_is_told_with_both_numbers() {
        let mut report = report();
        (report.links[1].verified, report.links[1].interface_bytes) =
            (Some(false), Some(1_048_576));
        assert_eq!(
            warnings(&report),
            ["eth2 carried 1.0 MiB of 256.0 MiB delivered: the rest took another interface"]
        );
    }

    #[test]
    fn totals_are_rsyncs_in_words_and_commas() {
        let lines = stats(&report());
        assert!(
            lines.contains(&"Total file size: 536,870,912 bytes".to_owned()),
            "{lines:?}"
        );
        assert!(
            lines.contains(&"Number of files: 1".to_owned()),
            "{lines:?}"
        );
        let tree = stats(&with!(report(), tree: Some(with!(TreeReport::default(), files: 1234))));
        assert!(
            tree.contains(&"Number of files transferred: 1,234".to_owned()),
            "{tree:?}"
        );
        assert!(
            lines.contains(&"Goodput: 235.1 MB/s (1.88 Gbit/s)".to_owned()),
            "{lines:?}"
        );
    }
}

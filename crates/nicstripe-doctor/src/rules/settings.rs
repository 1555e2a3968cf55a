//! Rules about the kernel's settings.

use super::addressing::each;
use crate::{
    command::{Line, quoted},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen},
};

pub(super) const CONGESTION: Rule = Rule {
    id: 33,
    title: "Unusual congestion control",
    needs: Needs::Machine,
    reads: "`tcp_congestion_control`, `default_qdisc`",
    threshold: "another than cubic, bbr or reno (note); bbr without fq (for information)",
    source: "Documentation/networking/ip-sysctl.rst of Linux; measured: cubic and bbr fill a cable equally, without fq TCP paces bbr by itself",
    meaning: "The algorithm decides how fast TCP sends. The usual ones fill a cable; one made for other networks may not.",
    story: "",
    lookalike: "cubic, bbr and reno",
    silences: &[],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let facts = &machine.facts;
            let name = facts
                .settings
                .get("net.ipv4.tcp_congestion_control")
                .or(facts.host.congestion.as_ref())?;
            let who = case.name(side);
            let is_paced = facts
                .settings
                .get("net.core.default_qdisc")
                .is_none_or(|qdisc| qdisc == "fq");
            let finding = match name.as_str() {
                "bbr" if !is_paced => Finding::new(
                    Severity::Info,
                    format!("{who} uses bbr without fq: fine on most cables"),
                ),
                "cubic" | "bbr" | "reno" => return Some(Seen::Fine),
                other => Finding::new(
                    Severity::Note,
                    format!(
                        "{who} uses {}, not made for fast cables perhaps",
                        quoted(other)
                    ),
                )
                .possible()
                .advise("Compare with cubic")
                .run(
                    side,
                    Line::own("sysctl -w net.ipv4.tcp_congestion_control=cubic"),
                    Some(Line::new(
                        "sysctl -w net.ipv4.tcp_congestion_control={}",
                        &[&other],
                    )),
                ),
            };
            Some(
                finding
                    .about(side)
                    .proof("tcp_congestion_control", name, "sysctl")
                    .into(),
            )
        })
    },
};

pub(super) const TCP_FEATURES: Rule = Rule {
    id: 34,
    title: "TCP features switched off",
    needs: Needs::Machine,
    reads: "`tcp_window_scaling`, `tcp_sack`, `tcp_timestamps`",
    threshold: "0",
    source: "RFC 7323 (window scaling, timestamps), RFC 2018 (selective acknowledgements)",
    meaning: "Without window scaling at most 64 KiB are on the way. Without selective acknowledgements one loss resends much. Timestamps measure the round trip.",
    story: "e: the window of FreeBSD grew only with rfc1323 enabled",
    lookalike: "the defaults, which are on",
    silences: &[22],
    judge: |case| {
        let features = [
            (
                "tcp_window_scaling",
                Severity::Bad,
                "window scaling is off: at most 64 KiB are on the way",
            ),
            (
                "tcp_sack",
                Severity::Warning,
                "selective acknowledgements are off: a loss costs more",
            ),
            (
                "tcp_timestamps",
                Severity::Note,
                "timestamps are off: round trips are measured less often",
            ),
        ];
        let all = case
            .machines()
            .flat_map(|(side, machine)| features.map(|feature| (side, machine, feature)));
        each(all, |(side, machine, (name, severity, what))| {
            let path = format!("net.ipv4.{name}");
            if machine.facts.setting(&path)? != 0 {
                return Some(Seen::Fine);
            }
            let sentence = format!("on {} {what}", case.name(side));
            Some(
                Finding::new(severity, sentence)
                    .about(side)
                    .proof(name, 0, "sysctl")
                    .advise("Switch it on")
                    .run(
                        side,
                        Line::new("sysctl -w {}=1", &[&path]),
                        Some(Line::new("sysctl -w {}=0", &[&path])),
                    )
                    .into(),
            )
        })
    },
};

pub(super) const CONNECTION_TABLE: Rule = Rule {
    id: 42,
    title: "Connection table nearly full",
    needs: Needs::Machine,
    reads: "`nf_conntrack_count` and `nf_conntrack_max`",
    threshold: "more than 80 %",
    source: "nf_conntrack-sysctl.rst of Linux: new connections are dropped when the table is full",
    meaning: "The firewall remembers each connection. If its table is full, it drops new ones.",
    story: "",
    lookalike: "a table with room; no connection tracking",
    silences: &[],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let count = machine.facts.setting("net.netfilter.nf_conntrack_count")?;
            let max = machine
                .facts
                .setting("net.netfilter.nf_conntrack_max")
                .filter(|max| *max > 0)?;
            if count <= max / 5 * 4 {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "the connection table of {} has {count} of {max} entries",
                case.name(side)
            );
            let name = "net.netfilter.nf_conntrack_max";
            Some(
                Finding::new(Severity::Warning, sentence)
                    .about(side)
                    .proof("nf_conntrack_count", count, "sysctl")
                    .proof("nf_conntrack_max", max, "sysctl")
                    .advise("Enlarge the table")
                    .run(
                        side,
                        Line::new("sysctl -w {}={}", &[&name, &max.saturating_mul(2)]),
                        Some(Line::new("sysctl -w {}={}", &[&name, &max])),
                    )
                    .into(),
            )
        })
    },
};

pub(super) const CACHED_METRICS: Rule = Rule {
    id: 46,
    title: "Cached results of earlier connections",
    needs: Needs::Machine,
    reads: "number of destinations in `ip tcp_metrics`",
    threshold: "any",
    source: "ip-tcp_metrics(8); measured: no harm seen",
    meaning: "The kernel remembers round trips and thresholds of earlier connections to an address. After a bad run they may start the next one slowly.",
    story: "",
    lookalike: "an empty cache",
    silences: &[],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let count = machine.facts.cached_destinations?;
            if count == 0 {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "{} remembers {count} destinations of earlier connections",
                case.name(side)
            );
            Some(
                Finding::new(Severity::Info, sentence)
                    .possible()
                    .about(side)
                    .proof("destinations", count, "ip tcp_metrics")
                    .advise("Forget them before a measurement that is kept")
                    .run(side, Line::own("ip tcp_metrics flush all"), None)
                    .into(),
            )
        })
    },
};

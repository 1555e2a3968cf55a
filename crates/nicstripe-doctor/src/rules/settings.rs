//! Rules about the kernel's settings.

use crate::{
    command::{Line, quoted},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const CONGESTION: Rule = Rule {
    id: 33,
    needs: Needs::Machine,
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
                .set(side, "net.ipv4.tcp_congestion_control", "cubic", other),
            };
            finding
                .about(side)
                .proof("tcp_congestion_control", name, "sysctl")
                .seen()
        })
    },
};

pub(super) const TCP_FEATURES: Rule = Rule {
    id: 34,
    needs: Needs::Machine,
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
            Finding::new(severity, sentence)
                .about(side)
                .proof(name, 0, "sysctl")
                .advise("Switch it on")
                .set(side, &path, 1, 0)
                .seen()
        })
    },
};

pub(super) const CONNECTION_TABLE: Rule = Rule {
    id: 42,
    needs: Needs::Machine,
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
            Finding::new(Severity::Warning, sentence)
                .about(side)
                .proof("nf_conntrack_count", count, "sysctl")
                .proof("nf_conntrack_max", max, "sysctl")
                .advise("Enlarge the table")
                .set(side, name, max.saturating_mul(2), max)
                .seen()
        })
    },
};

pub(super) const CACHED_METRICS: Rule = Rule {
    id: 46,
    needs: Needs::Machine,
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
            Finding::new(Severity::Info, sentence)
                .possible()
                .about(side)
                .proof("destinations", count, "ip tcp_metrics")
                .advise("Forget them before a measurement that is kept")
                .run(side, Line::own("ip tcp_metrics flush all"), None)
                .seen()
        })
    },
};

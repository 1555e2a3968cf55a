//! Rules about socket buffers and the programs at both ends.

use std::time::Duration;

use nicstripe_bench::{
    BUSY_FROM, BenchLink, BenchReport, HELD_BACK_FROM, LONG_ROUND_TRIP, Limiter, LinkSummary,
    SUFFICIENT_BUFFER_BYTES, TcpUse,
};
use nicstripe_proto::BitRate;

use super::measured::{lost, part_of, spoken, way_of};
use crate::{
    case::{Case, Machine, Side, sides},
    command::Line,
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const CUT: Rule = Rule {
    id: 20,
    needs: Needs::Bench,
    silences: &[22],
    judge: |case| {
        each(case.bench.iter(), |report| {
            let Some(asked) = report.plan.socket_buffer_bytes else {
                return Some(Seen::Fine);
            };
            let buffers = |of: fn(&TcpUse) -> Option<u64>| {
                let flows = report.runs.iter().flat_map(|run| &run.flows);
                flows.filter_map(|flow| of(flow.tcp.as_ref()?)).min()
            };
            let got = buffers(|tcp| tcp.receive_buffer_bytes)
                .into_iter()
                .chain(buffers(|tcp| tcp.send_buffer_bytes))
                .min()?;
            if got >= asked.saturating_mul(2) {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "asked for socket buffers of {asked} bytes, the system grants {}",
                got / 2
            );
            let is_limit = matches!(
                report.summary.limiter,
                Some(Limiter::Window | Limiter::ReceiveBuffer | Limiter::SendBuffer)
            );
            let severity = Severity::either(is_limit, Severity::Bad, Severity::Note);
            let mut finding = Finding::new(severity, sentence)
                .proof("size asked for", format!("{asked} bytes"), "plan")
                .proof("size granted", format!("{} bytes", got / 2), "getsockopt")
                .advise("Ask for no size: the kernel then chooses; or raise the maximum");
            for (side, machine) in case.machines() {
                let host = &machine.facts.host;
                for (name, max) in [
                    ("net.core.rmem_max", host.receive_buffer_max_bytes),
                    ("net.core.wmem_max", host.send_buffer_max_bytes),
                ] {
                    if let Some(max) = max.filter(|max| *max < asked) {
                        finding = finding.about(side).set(side, name, asked, max);
                    }
                }
            }
            finding.seen()
        })
    },
};

pub(super) const CEILING: Rule = Rule {
    id: 21,
    needs: Needs::Bench,
    silences: &[4, 22],
    judge: |case| {
        each(case.measured(), |(report, link, summary)| {
            ceiling(case, report, link, summary)
        })
    },
};

fn ceiling(
    case: &Case,
    report: &BenchReport,
    link: &BenchLink,
    summary: &LinkSummary,
) -> Option<Seen> {
    let is_unscaled = |(_, machine): (Side, &Machine)| {
        machine.facts.setting("net.ipv4.tcp_window_scaling") == Some(0)
    };
    // Rules 20 and 34 explain these.
    if report.plan.socket_buffer_bytes.is_some() || case.machines().any(is_unscaled) {
        return Some(Seen::Fine);
    }
    let rate = link
        .theory_bps
        .or(summary.alone.map(|rate| rate.median_bps))?;
    let round_trip = Duration::try_from_secs_f64(link.rtt_idle?.p50_us / 1e6).ok()?;
    let product = BitRate(rate).bytes_in(round_trip);
    let is_limit = matches!(
        summary.limiter,
        Some(Limiter::Window | Limiter::ReceiveBuffer | Limiter::SendBuffer)
    );
    let needed = match round_trip >= LONG_ROUND_TRIP {
        true => product.saturating_mul(2).max(SUFFICIENT_BUFFER_BYTES),
        false if is_limit => SUFFICIENT_BUFFER_BYTES,
        false => return Some(Seen::Fine),
    };
    let way = report
        .runs
        .iter()
        .flat_map(|run| &run.flows)
        .find(|flow| flow.link == link.id)?
        .way;
    let (sender, receiver) = sides(way);
    let ends = [
        (receiver, "net.ipv4.tcp_rmem", [4096, 131_072]),
        (sender, "net.ipv4.tcp_wmem", [4096, 16_384]),
    ];
    let mut low = Vec::new();
    let mut is_known = false;
    for (side, name, defaults) in ends {
        let facts = case.machine(side).map(|machine| &machine.facts);
        let Some((facts, max)) = facts.and_then(|facts| Some((facts, facts.setting_at(name, 2)?)))
        else {
            continue;
        };
        is_known = true;
        if max < needed {
            let numbers = (0..3).map(|index| facts.setting_at(name, index));
            let old: Option<Vec<u64>> = numbers.collect();
            low.push((side, name, defaults, max, old));
        }
    }
    if low.is_empty() || !(is_limit || round_trip >= LONG_ROUND_TRIP) {
        return is_known.then_some(Seen::Fine);
    }
    let at_most = low.iter().map(|(.., max, _)| *max).min()?;
    let most = BitRate::from_bytes_over(at_most / 2, round_trip.max(Duration::from_micros(1)));
    let sentence = format!(
        "{}: the window ends at {} KiB, {} ms and {} need {} KiB",
        spoken(link),
        at_most / 1024,
        shown_ms(round_trip),
        BitRate(rate),
        needed.div_ceil(1024)
    );
    let severity = Severity::either(is_limit, Severity::Bad, Severity::Warning);
    let mut finding = Finding::new(severity, sentence)
        .about_link(link)
        .costs(lost(link, summary))
        .proof(
            "round trip",
            format!("{} ms", shown_ms(round_trip)),
            "bench",
        )
        .proof("rate × round trip", format!("{product} bytes"), "bench")
        .proof("rate that the window allows", most, "window ÷ round trip")
        .advise("Raise the maximum; the kernel uses only as much as needed");
    for (side, name, defaults, max, old) in low {
        let target = needed.checked_next_power_of_two().unwrap_or(needed);
        let set = |[least, first, most]: [u64; 3]| {
            Line::new("sysctl -w {}='{} {} {}'", &[&name, &least, &first, &most])
        };
        finding = finding
            .proof(
                format!("maximum of {name} on {}", case.name(side)),
                format!("{max} bytes"),
                "sysctl",
            )
            .run(
                side,
                set([defaults[0], defaults[1], target]),
                old.and_then(|old| old.try_into().ok()).map(set),
            );
    }
    finding.seen()
}

fn shown_ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}

pub(super) const RECEIVER: Rule = Rule {
    id: 22,
    needs: Needs::Bench,
    silences: &[],
    judge: |case| {
        each(case.measured(), |(report, link, summary)| {
            let limited = matches!(
                summary.limiter,
                Some(Limiter::Receiver | Limiter::ReceiveBuffer)
            );
            let part = part_of(report, link.id, |_, _, tcp| {
                Some((tcp.rwnd_limited_us?, tcp.busy_us?))
            })?;
            if !limited || part < HELD_BACK_FROM {
                return Some(Seen::Fine);
            }
            let (_, receiver) = way_of(report, link.id)?;
            let sentence = format!(
                "{} was the brake for {:.0} % of the time on {}",
                case.name(receiver),
                part * 100.0,
                spoken(link)
            );
            Finding::new(Severity::Bad, sentence).likely().about_link(link)
                .costs(lost(link, summary))
                .proof("time limited by the receiver", format!("{:.0} %", part * 100.0), "TCP_INFO")
                .advise("Look for other load on that machine, for its disk (rule 6) and its processor (rule 7)").seen()
        })
    },
};

pub(super) const SENDER: Rule = Rule {
    id: 23,
    needs: Needs::Bench,
    silences: &[35],
    judge: |case| {
        each(case.measured(), |(report, link, summary)| {
            let part = part_of(report, link.id, |run, _, tcp| {
                Some((tcp.busy_us?, run.window_us))
            })?;
            if summary.limiter != Some(Limiter::Sender) || part >= BUSY_FROM {
                return Some(Seen::Fine);
            }
            let (sender, _) = way_of(report, link.id)?;
            let sentence = format!(
                "{} had nothing to send for {:.0} % of the time on {}",
                case.name(sender),
                (1.0 - part) * 100.0,
                spoken(link)
            );
            Finding::new(Severity::Bad, sentence).likely().about_link(link)
                .costs(lost(link, summary))
                .proof("time with data to send", format!("{:.0} %", part * 100.0), "TCP_INFO")
                .advise("Look for other load on that machine, for its disk (rule 6) and its processor (rule 7)").seen()
        })
    },
};

pub(super) const SLOW_START: Rule = Rule {
    id: 35,
    needs: Needs::Bench,
    silences: &[],
    judge: |case| {
        each(case.measured(), |(report, link, _)| {
            let (sender, _) = way_of(report, link.id)?;
            let setting = case
                .machine(sender)?
                .facts
                .setting("net.ipv4.tcp_slow_start_after_idle")?;
            let part = part_of(report, link.id, |run, _, tcp| {
                Some((tcp.busy_us?, run.window_us))
            })?;
            if setting == 0 || part >= BUSY_FROM {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "{} begins slowly after each pause in sending",
                case.name(sender)
            );
            Finding::new(Severity::Note, sentence)
                .possible()
                .about_link(link)
                .proof("tcp_slow_start_after_idle", setting, "sysctl")
                .proof(
                    "time with data to send",
                    format!("{:.0} %", part * 100.0),
                    "TCP_INFO",
                )
                .advise("Keep the window, if the pauses cannot be avoided")
                .set(sender, "net.ipv4.tcp_slow_start_after_idle", 0, 1)
                .seen()
        })
    },
};

pub(super) const MEMORY: Rule = Rule {
    id: 36,
    needs: Needs::Bench,
    silences: &[16],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let growth = |name: &str| machine.growth(&format!("TcpExt.{name}"));
            let (pressure, drops) = (growth("TCPMemoryPressures"), growth("TCPBacklogDrop"));
            let total = pressure.unwrap_or(0).saturating_add(drops.unwrap_or(0));
            if pressure.is_none() && drops.is_none() {
                return None;
            }
            if total == 0 {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "the kernel of {} ran short of memory for TCP during the bench",
                case.name(side)
            );
            Finding::new(Severity::Bad, sentence)
                .about(side)
                .proof(
                    "TCPMemoryPressures",
                    format!("+{}", pressure.unwrap_or(0)),
                    "/proc/net/netstat",
                )
                .proof(
                    "TCPBacklogDrop",
                    format!("+{}", drops.unwrap_or(0)),
                    "/proc/net/netstat",
                )
                .advise("Lower the maxima of tcp_rmem and tcp_wmem, or use fewer connections")
                .seen()
        })
    },
};

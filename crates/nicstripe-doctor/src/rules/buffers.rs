//! Rules about socket buffers and the programs at both ends.

use std::time::Duration;

use nicstripe_bench::{
    BUSY_FROM, BenchLink, BenchReport, Flow, HELD_BACK_FROM, LONG_ROUND_TRIP, Limiter, LinkSummary,
    Phase, Run, SUFFICIENT_BUFFER_BYTES, TcpUse,
};
use nicstripe_proto::BitRate;

use super::addressing::each;
use crate::{
    case::{Case, Machine, Side, sides},
    command::{Line, quoted},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen},
};

pub(super) const CUT: Rule = Rule {
    id: 20,
    title: "Socket buffer silently cut",
    needs: Needs::Bench,
    reads: "size asked for, and size that getsockopt returns; `net.core.rmem_max` and `wmem_max`",
    threshold: "less than twice the size asked for, which Linux grants; bad if the buffer is the limit",
    source: "socket(7): the kernel doubles the size, and cuts it to the maximum without an error",
    meaning: "A program that requests more than the maximum gets the maximum, without an error. The window then never grows.",
    story: "a, e: buffers were set by hand, and the system's maximum before",
    lookalike: "no size asked for, as nicstripe does by default: the kernel then sizes the buffers by itself",
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
            let severity = if is_limit {
                Severity::Bad
            } else {
                Severity::Note
            };
            let mut finding = Finding::new(severity, sentence)
                .proof("size asked for", format!("{asked} bytes"), "plan")
                .proof("size granted", format!("{} bytes", got / 2), "getsockopt")
                .advise("Ask for no size: the kernel then chooses; or raise the maximum");
            for (side, machine) in case.machines() {
                let host = &machine.facts.host;
                for (name, max) in [
                    ("rmem_max", host.receive_buffer_max_bytes),
                    ("wmem_max", host.send_buffer_max_bytes),
                ] {
                    if let Some(max) = max.filter(|max| *max < asked) {
                        finding = finding.about(side).run(
                            side,
                            Line::new("sysctl -w net.core.{}={}", &[&name, &asked]),
                            Some(Line::new("sysctl -w net.core.{}={}", &[&name, &max])),
                        );
                    }
                }
            }
            Some(finding.into())
        })
    },
};

pub(super) const CEILING: Rule = Rule {
    id: 21,
    title: "Window cannot grow enough",
    needs: Needs::Bench,
    reads: "maximum of `tcp_rmem` at the receiver and of `tcp_wmem` at the sender; round trip and rate of the link",
    threshold: "less than twice the bandwidth-delay product, or less than 256 KiB while the buffer is what limits",
    source: "RFC 6349 (bandwidth × delay); tcp(7): Linux counts its own overhead into the buffer; measured: 64 KiB give 874 and 256 KiB 941 of 941.5 Mbit/s on a direct cable",
    meaning: "TCP can have only a window of data on the way. If the window is smaller than rate × round trip, the sender waits for acknowledgements most of the time.",
    story: "e: the rate rose with the window up to 256 KiB, from 134 to 626 Mbit/s; a: buffers by bandwidth × delay",
    lookalike: "a direct cable, on which the defaults are enough; a size that the program asked for (rule 20)",
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
        "{} → {}: the window ends at {} KiB, {} ms and {} need {} KiB",
        quoted(&link.ends.client.name),
        quoted(&link.ends.daemon.name),
        at_most / 1024,
        shown_ms(round_trip),
        BitRate(rate),
        needed.div_ceil(1024)
    );
    let severity = if is_limit {
        Severity::Bad
    } else {
        Severity::Warning
    };
    let mut finding = Finding::new(severity, sentence)
        .about((Side::Here, &*link.ends.client.name))
        .about((Side::There, &*link.ends.daemon.name))
        .costs(
            summary
                .together
                .map(|now| rate.saturating_sub(now.median_bps)),
        )
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
    Some(finding.into())
}

fn shown_ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}

pub(super) const RECEIVER: Rule = Rule {
    id: 22,
    title: "Receiver is the brake",
    needs: Needs::Bench,
    reads: "time for which the receiver's window held the sender back, of its busy time (TCP_INFO)",
    threshold: "20 % or more, on a link below 97 % of theory",
    source: "tcpi_rwnd_limited (Linux 4.10); measured: a slow reader gave 54 % at 390 Mbit/s",
    meaning: "The other end tells TCP to wait, because the receiving program does not fetch the data fast enough: its disk or processor, or a fixed small buffer.",
    story: "",
    lookalike: "a full cable, on which windows are full as well",
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
                "{} was the brake for {:.0} % of the time on {} → {}",
                case.name(receiver),
                part * 100.0,
                quoted(&link.ends.client.name),
                quoted(&link.ends.daemon.name)
            );
            Some(
            about_link(Finding::new(Severity::Bad, sentence).likely(), link)
                .costs(lost(link, summary))
                .proof("time limited by the receiver", format!("{:.0} %", part * 100.0), "TCP_INFO")
                .advise("Look for other load on that machine, for its disk (rule 6) and its processor (rule 7)")
                .into(),
        )
        })
    },
};

pub(super) const SENDER: Rule = Rule {
    id: 23,
    title: "Sender is the brake",
    needs: Needs::Bench,
    reads: "time for which TCP had data to send, of all time (TCP_INFO)",
    threshold: "less than 80 %, on a link below 97 % of theory",
    source: "tcpi_busy_time (Linux 4.10); measured: a sender that sleeps gave 2 %",
    meaning: "The network waited for data. The sending program, its disk or its processor is slower than the cable.",
    story: "",
    lookalike: "a full cable",
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
                "{} had nothing to send for {:.0} % of the time on {} → {}",
                case.name(sender),
                (1.0 - part) * 100.0,
                quoted(&link.ends.client.name),
                quoted(&link.ends.daemon.name)
            );
            Some(
            about_link(Finding::new(Severity::Bad, sentence).likely(), link)
                .costs(lost(link, summary))
                .proof("time with data to send", format!("{:.0} %", part * 100.0), "TCP_INFO")
                .advise("Look for other load on that machine, for its disk (rule 6) and its processor (rule 7)")
                .into(),
        )
        })
    },
};

fn about_link(finding: Finding, link: &BenchLink) -> Finding {
    finding
        .about((Side::Here, &*link.ends.client.name))
        .about((Side::There, &*link.ends.daemon.name))
}

fn lost(link: &BenchLink, summary: &LinkSummary) -> Option<u64> {
    let expected = link
        .theory_bps
        .or(summary.alone.map(|rate| rate.median_bps))?;
    Some(expected.saturating_sub(summary.together?.median_bps))
}

/// Returns the ratio of the sums of two times over the loads of all links, which the limiter is of.
fn part_of(
    report: &BenchReport,
    link: u32,
    of: impl Fn(&Run, &Flow, &TcpUse) -> Option<(u64, u64)>,
) -> Option<f64> {
    let (mut above, mut below) = (0_u64, 0_u64);
    let is_whole = |run: &&Run| !matches!(run.phase, Phase::Idle | Phase::Solo | Phase::Pair);
    let has_whole = report.runs.iter().any(|run| is_whole(&run));
    for run in report.runs.iter().filter(|run| is_whole(run) || !has_whole) {
        for flow in run.flows.iter().filter(|flow| flow.link == link) {
            if let Some((part, whole)) = flow.tcp.as_ref().and_then(|tcp| of(run, flow, tcp)) {
                above = above.saturating_add(part);
                below = below.saturating_add(whole);
            }
        }
    }
    (below > 0).then(|| above as f64 / below as f64)
}

/// Returns the sender's and the receiver's side of a link's first load.
fn way_of(report: &BenchReport, link: u32) -> Option<(Side, Side)> {
    let mut flows = report.runs.iter().flat_map(|run| &run.flows);
    flows
        .find(|flow| flow.link == link)
        .map(|flow| sides(flow.way))
}

pub(super) const SLOW_START: Rule = Rule {
    id: 35,
    title: "Slow start after each pause",
    needs: Needs::Bench,
    reads: "`tcp_slow_start_after_idle` of the sender; time with data to send",
    threshold: "1, and less than 80 % of the time with data to send",
    source: "RFC 5681 section 4.1; ip-sysctl.rst of Linux",
    meaning: "After a pause longer than the retransmission timeout, TCP restarts with a small window. A program that sends in bursts never gets up to speed.",
    story: "",
    lookalike: "a sender without pauses, as nicstripe's bench is on a healthy machine",
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
            Some(
                about_link(Finding::new(Severity::Note, sentence).possible(), link)
                    .proof("tcp_slow_start_after_idle", setting, "sysctl")
                    .proof(
                        "time with data to send",
                        format!("{:.0} %", part * 100.0),
                        "TCP_INFO",
                    )
                    .advise("Keep the window, if the pauses cannot be avoided")
                    .run(
                        sender,
                        Line::own("sysctl -w net.ipv4.tcp_slow_start_after_idle=0"),
                        Some(Line::own("sysctl -w net.ipv4.tcp_slow_start_after_idle=1")),
                    )
                    .into(),
            )
        })
    },
};

pub(super) const MEMORY: Rule = Rule {
    id: 36,
    title: "Kernel short of network memory",
    needs: Needs::Bench,
    reads: "TCPMemoryPressures and TCPBacklogDrop of /proc/net/netstat",
    threshold: "memory pressure or backlog drops grow under load",
    source: "ip-sysctl.rst of Linux (tcp_mem)",
    meaning: "The kernel's limit for all TCP buffers was reached: it drops data that has arrived, and the sender sends it again.",
    story: "",
    lookalike: "a few pruned buffers on a healthy machine, which cost nothing",
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
            Some(
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
                    .into(),
            )
        })
    },
};

//! Rules about queues in the card and in the kernel.

use nicstripe_proto::BitRate;

use super::measured::is_frequent;
use crate::{
    case::{Case, Place, line},
    command::quoted,
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const RING: Rule = Rule {
    id: 25,
    needs: Needs::Machine,
    silences: &[16],
    judge: |case| {
        each(case.live_cards(), |place| {
            let (grown, (counter, total)) = place.worst(&["rx_missed_errors", "rx_fifo_errors"])?;
            let frames = place.interface.statistic("rx_packets")?;
            let name = place.label(case);
            let finding = match grown {
            Some((counter, grown @ 1..)) => Finding::new(Severity::Bad, format!("{name} dropped {grown} frames during the bench: its receive ring was full"))
                .proof(counter, format!("+{grown}"), "/sys/class/net"),
            _ if is_frequent(total, frames) => Finding::new(Severity::Warning, format!("{name} has dropped {total} frames since the start: its receive ring was full"))
                .likely()
                .proof(counter, total, "/sys/class/net")
                .proof("frames received", frames, "/sys/class/net"),
            _ => return Some(Seen::Fine),
        };
            enlarge(finding.about(&place), &place).seen()
        })
    },
};

fn enlarge(finding: Finding, place: &Place<'_>) -> Finding {
    let rings = place.interface.rings.unwrap_or_default();
    match (rings.rx, rings.rx_max) {
        (Some(now), Some(max)) if now < max => finding
            .proof("receive ring", format!("{now} of {max}"), "ethtool -g")
            .advise("Enlarge the ring; look for a full core (rule 7)")
            .turn_at(place, "ethtool -G {} rx {}", max, now),
        _ => finding.advise("Look for a full core (rule 7): the ring cannot grow"),
    }
}

pub(super) const BACKLOG: Rule = Rule {
    id: 26,
    needs: Needs::Machine,
    silences: &[16],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let total = *machine.facts.counters.get("softnet.dropped")?;
            let who = case.name(side);
            let finding = match machine.growth("softnet.dropped") {
            Some(grown @ 1..) => Finding::new(Severity::Bad, format!("the kernel of {who} dropped {grown} packets before TCP saw them"))
                .proof("dropped", format!("+{grown}"), "/proc/net/softnet_stat"),
            _ if total > 0 => Finding::new(Severity::Note, format!("the kernel of {who} has dropped {total} packets before TCP saw them, since the start"))
                .possible()
                .proof("dropped", total, "/proc/net/softnet_stat"),
            _ => return Some(Seen::Fine),
        };
            let finding = finding
                .about(side)
                .advise("Lengthen the queue; distribute the interrupts (rule 28)");
            let name = "net.core.netdev_max_backlog";
            match machine.facts.setting(name) {
                Some(old) => finding.set(side, name, old.saturating_mul(10), old),
                None => finding,
            }
            .seen()
        })
    },
};

pub(super) const SHAPER: Rule = Rule {
    id: 31,
    needs: Needs::Machine,
    silences: &[3, 4, 16, 22, 32],
    judge: |case| {
        each(
            case.interfaces()
                .filter(|place| place.interface.carrier != Some(false)),
            |place| {
                let qdisc = place.interface.qdisc.as_ref()?;
                let Some(limit) = qdisc.limit_bps else {
                    return Some(Seen::Fine);
                };
                let whole = place.speed_bps();
                if whole.is_some_and(|whole| limit as f64 >= BELOW * whole as f64) {
                    return Some(Seen::Fine);
                }
                let sentence = format!(
                    "{} is limited to {} by a {} shaper",
                    place.label(case),
                    BitRate(limit),
                    quoted(&qdisc.kind)
                );
                let severity = Severity::either(whole.is_some(), Severity::Bad, Severity::Warning);
                let mut finding = Finding::new(severity, sentence)
                    .about(&place)
                    .costs(whole.map(|whole| whole.saturating_sub(limit)))
                    .proof(
                        place.fact("root qdisc"),
                        format!("{} {}", qdisc.kind, BitRate(limit)),
                        "tc qdisc",
                    );
                if let Some(mbps) = place.interface.speed_mbps {
                    finding = finding.proof("line rate", line(mbps), "ethtool");
                }
                let undo = match (&*qdisc.kind, qdisc.burst_bytes, qdisc.queue_bytes) {
                    ("tbf", Some(burst), Some(queue)) => Some(place.line(
                        "tc qdisc replace dev {} root tbf rate {}bit burst {} limit {}",
                        &[&limit, &burst, &queue],
                    )),
                    _ => None,
                };
                let advice = match undo {
                    Some(_) => "Remove it if it is not needed",
                    None => {
                        "Remove it if it is not needed; save the output of `tc -s qdisc` and `tc class` before"
                    }
                };
                finding
                    .advise(advice)
                    .run(
                        place.side,
                        place.line("tc qdisc del dev {} root", &[]),
                        undo,
                    )
                    .seen()
            },
        )
    },
};

/// Part of the line rate below which a limit costs.
const BELOW: f64 = 0.95;

pub(super) const SEND_QUEUE: Rule = Rule {
    id: 32,
    needs: Needs::Bench,
    silences: &[16],
    judge: |case| {
        each(case.interfaces(), |place| {
            let after = place
                .machine
                .loaded
                .as_ref()?
                .interface(&place.interface.name)?;
            let grown = after
                .qdisc
                .as_ref()?
                .dropped?
                .checked_sub(place.interface.qdisc.as_ref()?.dropped?)?;
            let sent = place.growth("tx_packets")?;
            let is_shaper = place.interface.qdisc.as_ref()?.limit_bps.is_some();
            if grown.saturating_mul(10_000) < sent || grown == 0 || is_shaper {
                return Some(Seen::Fine);
            }
            let kind = &*place.interface.qdisc.as_ref()?.kind;
            let sentence = format!(
                "the send queue of {} dropped {grown} packets during the bench",
                place.label(case)
            );
            let finding = Finding::new(Severity::Warning, sentence)
                .about(&place)
                .proof(
                    format!("drops of {kind}"),
                    format!("+{grown}"),
                    "tc -s qdisc",
                )
                .advise("Use a discipline that knows flows");
            let simple = matches!(kind, "pfifo" | "pfifo_fast" | "bfifo");
            Some(match simple {
                true => finding
                    .run(
                        place.side,
                        place.line("tc qdisc replace dev {} root fq_codel", &[]),
                        Some(place.line("tc qdisc replace dev {} root {}", &[&kind])),
                    )
                    .into(),
                false => finding.into(),
            })
        })
    },
};

pub(super) const OTHER_TRAFFIC: Rule = Rule {
    id: 37,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| each(case.live_cards(), |place| other_traffic(case, &place)),
};

fn other_traffic(case: &Case, place: &Place<'_>) -> Option<Seen> {
    let (later, micros) = place.machine.idle.as_ref()?;
    let later = later.interface(&place.interface.name)?;
    let bps = |name: &str| {
        let grown = later
            .statistic(name)?
            .checked_sub(place.interface.statistic(name)?)?;
        grown.saturating_mul(8_000_000).checked_div(*micros)
    };
    let (received, sent) = (bps("rx_bytes")?, bps("tx_bytes")?);
    let line = place.speed_bps()?;
    let most = received.max(sent);
    if most < LITTLE || most < line / 100 {
        return Some(Seen::Fine);
    }
    let sentence = format!(
        "other programs use {} of {}",
        BitRate(most),
        place.label(case)
    );
    let severity = Severity::either(most >= line / 10, Severity::Warning, Severity::Note);
    let finding = Finding::new(severity, sentence)
        .about(place)
        .costs(Some(most))
        .proof("received", BitRate(received), "/sys/class/net")
        .proof("sent", BitRate(sent), "/sys/class/net")
        .advise("Find the program with `ss -tinp`, and wait for its end");
    finding.seen()
}

/// Rate of housekeeping, in bit/s.
const LITTLE: u64 = 1_000_000;

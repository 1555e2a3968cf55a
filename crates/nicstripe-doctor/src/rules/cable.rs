//! Rules about what happens to frames on the cable.

use nicstripe_bench::{BenchReport, Direction, GOOD_SCALING, LOSS_FROM, listed};

use super::{addressing::each, bus::BAD_SCALING};
use crate::{
    case::{Case, Place, Side, sides},
    command::{Line, quoted},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen},
};

pub(super) const ERRORS: Rule = Rule {
    id: 15,
    title: "Damaged frames",
    needs: Needs::Machine,
    reads: "`rx_crc_errors`, `tx_carrier_errors` and ethtool's FrameCheckSequenceErrors of each card",
    threshold: "at least 10, and more than 1 in 10⁶ received frames; certain if they grow under load",
    source: "IEEE 802.3 demands a bit error ratio of 10⁻¹⁰ on copper: 1 frame of 1500 bytes in 10⁶",
    meaning: "The card received frames with a wrong checksum and dropped them. TCP sends them again, so the copy is right, but slower. The cause is a cable, a plug or a port.",
    story: "",
    lookalike: "a few errors since the start, from plugging the cable; frames that were dropped for lack of room (rule 25)",
    silences: &[16],
    judge: |case| {
        each(case.live_cards(), |place| {
            let frames = place.interface.statistic("rx_packets")?;
            let counters = [
                "rx_crc_errors",
                "mac.FrameCheckSequenceErrors",
                "tx_carrier_errors",
            ];
            let known: Vec<(&str, u64)> = counters
                .iter()
                .filter_map(|name| Some((*name, place.interface.statistic(name)?)))
                .collect();
            let grown = known
                .iter()
                .filter_map(|(name, _)| Some((*name, place.growth(name)?)))
                .max_by_key(|(_, count)| *count);
            let total = *known.iter().max_by_key(|(_, count)| *count)?;
            let name = place.label(case);
            let finding = match (grown, total) {
                (Some((counter, count)), _)
                    if is_frequent(count, place.growth("rx_packets").unwrap_or(0)) =>
                {
                    Finding::new(
                        Severity::Bad,
                        format!("{name} received {count} damaged frames during the bench"),
                    )
                    .proof(counter, format!("+{count}"), "/sys/class/net")
                }
                (_, (counter, count)) if is_frequent(count, frames) => Finding::new(
                    Severity::Warning,
                    format!("{name} has received {count} damaged frames since the start"),
                )
                .likely()
                .proof(counter, count, "/sys/class/net")
                .proof("frames received", frames, "/sys/class/net"),
                _ => return Some(Seen::Fine),
            };
            Some(
                finding
                    .about(&place)
                    .advise("Change the cable, then the port; see whether the counter still grows")
                    .into(),
            )
        })
    },
};

/// Returns true for at least [`MANY`] errors, and more than one in 10⁶ frames.
pub(super) fn is_frequent(errors: u64, frames: u64) -> bool {
    errors >= MANY && errors > frames / 1_000_000
}

/// Number of errors below which plugging a cable may be the cause (picked by eye).
const MANY: u64 = 10;

pub(super) const LOSS: Rule = Rule {
    id: 16,
    title: "Lost packets",
    needs: Needs::Bench,
    reads: "retransmitted bytes, of all bytes sent (TCP_INFO)",
    threshold: "more than 0.1 % (warning), more than 1 % (bad); of the loads of this link alone, if all links together share a bottleneck",
    source: "measured: 1 % loss costs a cubic connection 16 % of a gigabit; 0.08 % is 0.1 % less the deviation of 240,000 packets",
    meaning: "Packets vanish on the way and TCP sends them again. Each loss makes it slow down.",
    story: "",
    lookalike: "a queue that overflows only while several links are loaded together (rule 4)",
    silences: &[4],
    judge: |case| {
        each(case.measured(), |(report, link, _)| {
            let (loss, way) = worse_loss(report, link.id)?;
            if loss < LOSS_FROM {
                return Some(Seen::Fine);
            }
            let severity = if loss > MUCH_LOSS {
                Severity::Bad
            } else {
                Severity::Warning
            };
            let ends = [&*link.ends.client.name, &*link.ends.daemon.name];
            let (sender, _) = sides(way);
            let sentence = format!(
                "{:.2} % of the bytes that {} sent over {} → {} were lost and retransmitted",
                loss * 100.0,
                case.name(sender),
                quoted(ends[usize::from(sender == Side::There)]),
                quoted(ends[usize::from(sender == Side::Here)]),
            );
            let interface = ends[usize::from(sender == Side::Here)];
            let receiver = if sender == Side::Here {
                Side::There
            } else {
                Side::Here
            };
            Some(
                Finding::new(severity, sentence)
                    .about((Side::Here, ends[0]))
                    .about((Side::There, ends[1]))
                    .proof(
                        "retransmitted bytes",
                        format!("{:.3} %", loss * 100.0),
                        "TCP_INFO",
                    )
                    .advise("Change the cable, then the port; look which counter grows")
                    .run(receiver, Line::new("ethtool -S {}", &[&interface]), None)
                    .into(),
            )
        })
    },
};

/// Loss that costs a tenth of the rate or more.
const MUCH_LOSS: f64 = 0.01;

pub(super) const FLAPS: Rule = Rule {
    id: 17,
    title: "Link that comes and goes",
    needs: Needs::Machine,
    reads: "`carrier_changes` of each card",
    threshold: "grows under load (2 for each flap); 20 since the start are noted",
    source: "measured: `ip link set down; up` at one end adds 2 at the other",
    meaning: "The carrier was lost for a moment. A copy continues on the other cables and returns, but each flap costs seconds of this one.",
    story: "",
    lookalike: "a cable that was unplugged by hand a few times",
    silences: &[16],
    judge: |case| {
        each(case.cables(), |place| {
            let changes = place.interface.carrier_changes?;
            let name = place.label(case);
            let during = place
                .machine
                .loaded
                .as_ref()
                .and_then(|facts| facts.interface(&place.interface.name)?.carrier_changes)
                .map(|after| after.saturating_sub(changes));
            let finding = match during {
                Some(grown @ 1..) => Finding::new(
                    Severity::Bad,
                    format!(
                        "{name} lost its carrier {} during the bench",
                        times(grown.div_ceil(2))
                    ),
                )
                .proof("carrier_changes", format!("+{grown}"), "/sys/class/net"),
                _ if changes >= MANY_CHANGES => Finding::new(
                    Severity::Note,
                    format!(
                        "{name} has lost its carrier {} since the start",
                        times(changes / 2)
                    ),
                )
                .possible()
                .proof("carrier_changes", changes, "/sys/class/net"),
                _ => return Some(Seen::Fine),
            };
            Some(
                finding
                    .about(&place)
                    .advise("Change the cable; switch off energy-efficient Ethernet at both ends")
                    .into(),
            )
        })
    },
};

fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        count => format!("{count} times"),
    }
}

/// Changes of the carrier since the start that are noted (picked by eye).
const MANY_CHANGES: u64 = 20;

impl Case {
    /// Returns cards, and the virtual cables of containers.
    fn cables(&self) -> impl Iterator<Item = Place<'_>> {
        self.interfaces()
            .filter(|place| matches!(place.interface.kind.as_deref(), Some("ethernet" | "veth")))
    }
}

pub(super) const EEE: Rule = Rule {
    id: 18,
    title: "Energy-efficient Ethernet with loss or jitter",
    needs: Needs::Bench,
    reads: "state of EEE at both ends (ethtool), loss, idle round trips",
    threshold: "active, and more than 0.1 % loss or a 99th percentile above 10 × the median",
    source: "IEEE 802.3az; drivers' bug reports of some pairs of chips",
    meaning: "The port sleeps between packets. Some pairs of chips wake too late and lose the first packet, or add delay.",
    story: "",
    lookalike: "EEE that is active without loss or jitter, as on most machines",
    silences: &[16, 38],
    judge: |case| {
        each(case.measured(), |(report, link, _)| {
            let ends = [
                (Side::Here, &link.ends.client.name),
                (Side::There, &link.ends.daemon.name),
            ];
            let known: Vec<(Place<'_>, bool)> = ends
                .into_iter()
                .filter_map(|(side, name)| {
                    let place = case.place(side, name)?;
                    Some((place, place.interface.eee?.active?))
                })
                .collect();
            if known.is_empty() {
                return None;
            }
            let active: Vec<&Place<'_>> = known
                .iter()
                .filter(|(_, active)| *active)
                .map(|(place, _)| place)
                .collect();
            let jitter = link
                .rtt_idle
                .is_some_and(|trips| trips.p99_us > JITTER * trips.p50_us);
            let lost = loss(report, link.id).is_some_and(|lost| lost >= LOSS_FROM);
            if active.is_empty() || !(jitter || lost) {
                return Some(Seen::Fine);
            }
            let names: Vec<String> = active.iter().map(|place| place.label(case)).collect();
            let what = if lost {
                "packets are lost"
            } else {
                "round trips vary"
            };
            let mut finding = Finding::new(
                Severity::Warning,
                format!(
                    "energy-efficient Ethernet is active on {}, and {what}",
                    listed(&names)
                ),
            )
            .possible()
            .advise("Switch it off at both ends, and measure again");
            for place in active {
                finding = finding
                    .about(place)
                    .proof(
                        format!("EEE of {}", place.interface.name),
                        "active",
                        "ethtool --show-eee",
                    )
                    .run(
                        place.side,
                        place.line("ethtool --set-eee {} eee off", &[]),
                        Some(place.line("ethtool --set-eee {} eee on", &[])),
                    );
            }
            Some(finding.into())
        })
    },
};

/// Ratio of the 99th percentile of the round trips to their median that counts as jitter.
const JITTER: f64 = 10.0;

pub(super) const PAUSE: Rule = Rule {
    id: 24,
    title: "Pause frames",
    needs: Needs::Bench,
    reads: "pause frames received by the card (ethtool statistics)",
    threshold: "grow under load, and all links together are below 95 % of the sum of each alone; bad below 85 %",
    source: "IEEE 802.3x: a pause frame stops the whole port, not one connection",
    meaning: "The switch asked the card to stop, because one of its other ports is full. One slow port behind a switch thus slows all cables through it.",
    story: "",
    lookalike: "pause frames without a loss of rate; cards that need them for their own small buffers",
    silences: &[4],
    judge: |case| {
        each(case.live_cards(), |place| {
            let grown = ["pause.rx", "ctrl.MACControlFramesReceived", "rx_pause"]
                .iter()
                .find_map(|name| place.growth(name))?;
            let scaling = case.bench.as_ref()?.summary.scaling;
            if grown == 0 || scaling.is_none_or(|scaling| scaling >= 0.95) {
                return Some(Seen::Fine);
            }
            let severity = match scaling {
                Some(scaling) if scaling < BAD_SCALING => Severity::Bad,
                _ => Severity::Warning,
            };
            let sentence = format!(
                "the switch asked {} to stop {grown} times during the bench",
                place.label(case)
            );
            Some(
            Finding::new(severity, sentence)
                .likely()
                .about(&place)
                .proof("pause frames received", format!("+{grown}"), "ethtool -I -a")
                .proof("scaling", format!("{:.2}", scaling.unwrap_or_default()), "bench")
                .advise("Look for a port of lower rate on the same switch; for a test, ignore pause frames")
                .run(
                    place.side,
                    place.line("ethtool -A {} rx off", &[]),
                    Some(place.line("ethtool -A {} rx on", &[])),
                )
                .into(),
        )
        })
    },
};

pub(super) const ROUND_TRIPS: Rule = Rule {
    id: 38,
    title: "Round trips that do not fit a cable",
    needs: Needs::Bench,
    reads: "200 idle round trips of each link",
    threshold: "a median of 1 ms or more that is 5 × that of the fastest link; or a minimum of 1 ms or more and a deviation above 25 % of the mean",
    source: "c: a deviation of 0.28 of the mean was the clue there; a direct cable answers in 0.05 to 0.3 ms",
    meaning: "The cable is not direct: a router, Wi-Fi bridge, or a machine that saves power is between. Its window must be larger, and its loss costs more.",
    story: "c: ping with 50.25/55.96/133.89/15.94 ms (min/avg/max/std) showed that something was wrong",
    lookalike: "links that are all equally far; microseconds of jitter on a direct cable; a busy machine, which answers late, but not always",
    silences: &[],
    judge: |case| {
        let medians = || {
            case.measured()
                .filter_map(|(_, link, _)| Some(link.rtt_idle?.p50_us))
        };
        let fastest = medians().min_by(f64::total_cmp);
        each(case.measured(), |(_, link, summary)| {
            let trips = link.rtt_idle?;
            let fastest = fastest?;
            let is_far = trips.p50_us >= MILLISECOND && trips.p50_us > APART * fastest;
            // The minimum, because a busy machine delays most answers over a direct cable, not all.
            let varies = trips.min_us >= MILLISECOND
                && trips.std_us > VARIES * trips.avg_us
                && trips.count >= ENOUGH;
            let (here, there) = (&*link.ends.client.name, &*link.ends.daemon.name);
            let spoken = format!("{} → {}", quoted(here), quoted(there));
            let sentence = match (is_far, varies) {
                (true, _) => format!(
                    "{spoken} answers in {:.1} ms, another link in {:.2} ms: it is not a direct cable",
                    trips.p50_us / 1000.0,
                    fastest / 1000.0
                ),
                (_, true) => format!(
                    "round trips of {spoken} vary: {:.1} ms ± {:.1}",
                    trips.avg_us / 1000.0,
                    trips.std_us / 1000.0
                ),
                _ => return Some(Seen::Fine),
            };
            let lost = summary
                .together
                .zip(link.theory_bps)
                .map(|(rate, theory)| theory.saturating_sub(rate.median_bps));
            Some(
                Finding::new(Severity::Warning, sentence)
                    .about((Side::Here, here))
                    .about((Side::There, there))
                    .costs(lost)
                    .proof(
                        "idle round trips (min/avg/max/std)",
                        format!(
                            "{:.2}/{:.2}/{:.2}/{:.2} ms",
                            trips.min_us / 1e3,
                            trips.avg_us / 1e3,
                            trips.max_us / 1e3,
                            trips.std_us / 1e3
                        ),
                        "bench",
                    )
                    .advise("Follow the cable: a direct one answers in less than 0.3 ms")
                    .into(),
            )
        })
    },
};

const MILLISECOND: f64 = 1000.0;
/// Ratio of two links' medians that sets them apart.
const APART: f64 = 5.0;
/// Minimum reported deviation, as a part of the mean.
const VARIES: f64 = 0.25;
/// Round trips from which on a deviation is believed.
const ENOUGH: u64 = 20;

/// Returns the ratio of retransmitted to sent bytes of a link, in the worse direction.
pub(super) fn loss(report: &BenchReport, link: u32) -> Option<f64> {
    worse_loss(report, link).map(|(loss, _)| loss)
}

/// Like [`loss`], with the direction. Counts only loads of one link if all together share a
/// bottleneck, whose queue overflows.
fn worse_loss(report: &BenchReport, link: u32) -> Option<(f64, Direction)> {
    let scaling = report.summary.scaling;
    let is_shared = scaling.is_some_and(|scaling| scaling < GOOD_SCALING);
    let of = |way| {
        let loads = report.runs.iter();
        let loads = loads.filter(|run| !is_shared || run.flows.len() == 1);
        let flows = loads.flat_map(|run| &run.flows);
        let counted = flows.filter(|flow| flow.link == link && flow.way == way);
        let counted = counted.filter_map(|flow| {
            let tcp = flow.tcp?;
            Some((tcp.retransmitted_bytes?, tcp.sent_bytes?))
        });
        let (again, sent) = counted.fold((0, 0), |(a, b): (u64, u64), (c, d)| {
            (a.saturating_add(c), b.saturating_add(d))
        });
        (sent > 0).then(|| (again as f64 / sent as f64, way))
    };
    let ways = [Direction::ToDaemon, Direction::ToClient];
    ways.into_iter()
        .filter_map(of)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
}

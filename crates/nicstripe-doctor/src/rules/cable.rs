//! Rules about what happens to frames on the cable.

use nicstripe_bench::{LOSS_FROM, listed};

use super::measured::{BAD_SCALING, is_frequent, loss, spoken, worse_loss};
use crate::{
    case::{Case, Place, Side, sides},
    command::{Line, quoted},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const ERRORS: Rule = Rule {
    id: 15,
    needs: Needs::Machine,
    silences: &[16],
    judge: |case| {
        each(case.live_cards(), |place| {
            let frames = place.interface.statistic("rx_packets")?;
            let (grown, total) = place.worst(&[
                "rx_crc_errors",
                "mac.FrameCheckSequenceErrors",
                "tx_carrier_errors",
            ])?;
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
            finding
                .about(&place)
                .advise("Change the cable, then the port; see whether the counter still grows")
                .seen()
        })
    },
};

pub(super) const LOSS: Rule = Rule {
    id: 16,
    needs: Needs::Bench,
    silences: &[4],
    judge: |case| {
        each(case.measured(), |(report, link, _)| {
            let (loss, way) = worse_loss(report, link.id)?;
            if loss < LOSS_FROM {
                return Some(Seen::Fine);
            }
            let severity = Severity::either(loss > MUCH_LOSS, Severity::Bad, Severity::Warning);
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
            Finding::new(severity, sentence)
                .about_link(link)
                .proof(
                    "retransmitted bytes",
                    format!("{:.3} %", loss * 100.0),
                    "TCP_INFO",
                )
                .advise("Change the cable, then the port; look which counter grows")
                .run(receiver, Line::new("ethtool -S {}", &[&interface]), None)
                .seen()
        })
    },
};

/// Loss that costs a tenth of the rate or more.
const MUCH_LOSS: f64 = 0.01;

pub(super) const FLAPS: Rule = Rule {
    id: 17,
    needs: Needs::Machine,
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
            finding
                .about(&place)
                .advise("Change the cable; switch off energy-efficient Ethernet at both ends")
                .seen()
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
    needs: Needs::Bench,
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
                    .proof(place.fact("EEE"), "active", "ethtool --show-eee")
                    .turn_at(place, "ethtool --set-eee {} eee {}", "off", "on");
            }
            finding.seen()
        })
    },
};

/// Ratio of the 99th percentile of the round trips to their median that counts as jitter.
const JITTER: f64 = 10.0;

pub(super) const PAUSE: Rule = Rule {
    id: 24,
    needs: Needs::Bench,
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
            Finding::new(severity, sentence)
                .likely()
                .about(&place)
                .proof("pause frames received", format!("+{grown}"), "ethtool -I -a")
                .proof("scaling", format!("{:.2}", scaling.unwrap_or_default()), "bench")
                .advise("Look for a port of lower rate on the same switch; for a test, ignore pause frames")
                .turn_at(&place, "ethtool -A {} rx {}", "off", "on")
                .seen()
        })
    },
};

pub(super) const ROUND_TRIPS: Rule = Rule {
    id: 38,
    needs: Needs::Bench,
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
            let spoken = spoken(link);
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
            Finding::new(Severity::Warning, sentence)
                .about_link(link)
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
                .seen()
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

//! Rules about disks, drivers and the two machines as a whole.

use nicstripe_bench::{LOSS_FROM, LinkSummary, listed};

use super::measured::loss;
use crate::{
    case::{Side, sides},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const DISK: Rule = Rule {
    id: 6,
    needs: Needs::Bench,
    silences: &[],
    judge: |case| {
        each(case.bench.iter(), |report| {
            let Some(disk) = &report.disk else {
                return Some(Seen::Fine);
            };
            let network = disk.network?.median_bps;
            let (sender, receiver) = sides(disk.way);
            let stages = [
                ("reading", disk.read, sender),
                ("writing", disk.write, receiver),
            ];
            let slowest = stages
                .into_iter()
                .filter_map(|(what, rate, side)| Some((rate?.median_bps, what, side)))
                .min_by_key(|(rate, ..)| *rate)?;
            let (rate, what, side) = slowest;
            if rate as f64 >= DISK_NEED * network as f64 {
                return Some(Seen::Fine);
            }
            let file_system = match side {
                Side::Here => &disk.file_systems.client,
                Side::There => &disk.file_systems.daemon,
            };
            let kind = file_system
                .as_deref()
                .map_or_else(String::new, |kind| format!(" ({kind})"));
            let sentence = format!(
                "{what} on {}{kind} takes {} of {} that the cables carry",
                case.name(side),
                shown(rate),
                shown(network)
            );
            Finding::new(Severity::Bad, sentence)
                .about(side)
                .costs(Some(network.saturating_sub(rate)))
                .proof(format!("rate of {what}"), shown(rate), "bench --disk")
                .proof("rate of the network", shown(network), "bench --disk")
                .advise("Use a faster disk; more cables will not help")
                .seen()
        })
    },
};

/// Formats a rate as bytes per second, the unit of disks.
fn shown(bps: u64) -> String {
    format!("{:.1} MB/s", bps as f64 / 8e6)
}

/// Ratio of a disk's rate to the network's below which the disk is named.
const DISK_NEED: f64 = 1.1;

pub(super) const DRIVER: Rule = Rule {
    id: 43,
    needs: Needs::Bench,
    silences: &[],
    judge: |case| {
        each(case.measured(), |(report, link, summary)| {
            let ends = [
                (Side::Here, &link.ends.client),
                (Side::There, &link.ends.daemon),
            ];
            let lost = loss(report, link.id);
            let is_lossy = lost.is_some_and(|lost| lost >= LOSS_FROM);
            let is_slow = summary.efficiency.is_some_and(|part| part < SLOW);
            if lost.is_none() && summary.efficiency.is_none() {
                return None;
            }
            if !is_lossy && !is_slow {
                return Some(Seen::Fine);
            }
            for (side, end) in ends {
                let Some(place) = case.place(side, &end.name) else {
                    continue;
                };
                let (driver, speed) = (
                    place.interface.driver.as_deref(),
                    place.interface.speed_mbps,
                );
                let known = KNOWN_TROUBLE.iter().find(|trouble| {
                    driver == Some(trouble.driver)
                        && trouble.mbps.is_none_or(|mbps| speed == Some(mbps))
                });
                if let Some(trouble) = known {
                    let sentence = format!(
                        "{} has the driver {}: {}",
                        place.label(case),
                        trouble.driver,
                        trouble.what
                    );
                    return Finding::new(Severity::Note, sentence)
                        .possible()
                        .about(&place)
                        .proof("driver", trouble.driver, "ethtool -i")
                        .proof("symptom", symptom(summary, lost), "bench")
                        .advise(trouble.advice)
                        .seen();
                }
            }
            Some(Seen::Fine)
        })
    },
};

/// Efficiency of a link below which it shows a symptom.
const SLOW: f64 = 0.9;

fn symptom(summary: &LinkSummary, lost: Option<f64>) -> String {
    let efficiency = summary
        .efficiency
        .map(|part| format!("{:.0} % of theory", part * 100.0));
    let lost = lost.map(|lost| format!("{:.2} % retransmitted", lost * 100.0));
    let all: Vec<String> = efficiency.into_iter().chain(lost).collect();
    all.join(", ")
}

struct Trouble {
    driver: &'static str,
    /// Line rate at which it shows, in Mbit/s; `None` for any.
    mbps: Option<u32>,
    what: &'static str,
    advice: &'static str,
}

/// Drivers with known trouble, each from public reports.
const KNOWN_TROUBLE: [Trouble; 4] = [
    Trouble {
        driver: "r8169",
        mbps: Some(2500),
        what: "slow receiving at 2.5 Gbit/s was reported",
        advice: "Try the vendor's r8125, or a newer kernel",
    },
    Trouble {
        driver: "igc",
        mbps: Some(2500),
        what: "early revisions of the I225 lose packets at 2.5 Gbit/s",
        advice: "Update the card's firmware; set the port to 1000 Mb/s to compare",
    },
    Trouble {
        driver: "e1000e",
        mbps: None,
        what: "hangs of the transmit unit with segmentation offload were reported (\"Detected Hardware Unit Hang\")",
        advice: "Look into `dmesg`; compare with `ethtool -K IFACE tso off`",
    },
    Trouble {
        driver: "r8152",
        mbps: None,
        what: "some USB ports and hubs reset the adapter under load",
        advice: "Look into `dmesg` for resets; use another port and no hub",
    },
];

pub(super) const ENDS_DIFFER: Rule = Rule {
    id: 44,
    needs: Needs::Both,
    silences: &[],
    judge: |case| {
        let there = case.there.iter();
        each(there, |there| {
            let (ours, theirs) = (&case.here.facts.host, &there.facts.host);
            let pairs = [
                ("kernel", ours.kernel.clone(), theirs.kernel.clone()),
                (
                    "congestion control",
                    ours.congestion.clone(),
                    theirs.congestion.clone(),
                ),
                (
                    "cores",
                    ours.cores.map(|n| n.to_string()),
                    theirs.cores.map(|n| n.to_string()),
                ),
            ];
            let differing: Vec<_> = pairs
                .into_iter()
                .filter_map(|(what, one, other)| Some((what, one?, other?)))
                .filter(|(_, one, other)| one != other)
                .collect();
            if differing.is_empty() {
                return Some(Seen::Fine);
            }
            let names: Vec<&str> = differing.iter().map(|(what, ..)| *what).collect();
            let sentence = format!("the machines differ in {}", listed(&names));
            let finding = Finding::new(Severity::Info, sentence);
            let finding = differing
                .into_iter()
                .fold(finding, |finding, (what, one, other)| {
                    finding.proof(what, format!("{one} here, {other} there"), "both machines")
                });
            finding.about(Side::Here).about(Side::There).seen()
        })
    },
};

//! Rules about a link's rate, duplex mode, MTU and kind.

use nicstripe_bench::{SweepKind, listed};

use crate::{
    case::{Case, LinkFacts, Place, Side, line},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const SLOW_LINK: Rule = Rule {
    id: 3,
    needs: Needs::Machine,
    silences: &[4, 16],
    judge: |case| each(case.live_cards(), |place| slow_link(case, &place)),
};

fn slow_link(case: &Case, place: &Place<'_>) -> Option<Seen> {
    let speed = place.interface.speed_mbps?;
    let modes = place.interface.modes.as_ref();
    let supported = modes.and_then(|modes| modes.supported.as_deref());
    let own = supported.and_then(best)?;
    let partner = modes.and_then(|modes| modes.partner.as_deref());
    let at_peer = || {
        let (.., there) = case
            .pairs()
            .find(|(_, here, there)| [here, there].iter().any(|end| is_same(end, place)))?;
        best(there.interface.modes.as_ref()?.supported.as_deref()?)
    };
    let other = match partner.filter(|modes| !modes.is_empty()) {
        Some(modes) => best(modes),
        None => at_peer(),
    };
    let name = place.label(case);
    let common = other.map_or(own, |other| own.min(other));
    let is_fallback = speed <= FAST_ETHERNET && own > FAST_ETHERNET;
    let finding = match other {
        Some(_) if speed < common => Finding::new(
            Severity::Bad,
            format!("{name} runs at {}, both ends can do {common}", line(speed)),
        )
        .advise("Change the cable, then the port; use a cable with four pairs (Cat 5e or better)"),
        Some(_) if is_fallback => Finding::new(
            Severity::Note,
            format!(
                "{name} runs at {}: the other end offers no more",
                line(speed)
            ),
        )
        .advise("Use a faster port at the other end"),
        None if is_fallback => Finding::new(
            Severity::Warning,
            format!("{name} runs at {}, the card can do {own}", line(speed)),
        )
        .likely()
        .advise("Change the cable, then the port at the other end"),
        _ => return Some(Seen::Fine),
    };
    let mut finding = finding
        .costs(Some(u64::from(common.saturating_sub(speed)) * 1_000_000))
        .about_rate(place)
        .proof("best mode of the card", line(own), "ethtool (supported)");
    if let Some(other) = other {
        finding = finding.proof(
            "best mode of the other end",
            line(other),
            "ethtool (partner)",
        );
    }
    negotiate(finding, place).seen()
}

fn is_same(one: &Place<'_>, other: &Place<'_>) -> bool {
    one.side == other.side && one.interface.name == other.interface.name
}

/// Returns the highest rate of link modes such as `1000baseT/Full`, in Mbit/s.
fn best(modes: &[String]) -> Option<u32> {
    modes.iter().filter_map(|mode| mode_rate(mode)).max()
}

fn mode_rate(mode: &str) -> Option<u32> {
    let digits = mode.find(|c: char| !c.is_ascii_digit())?;
    mode[digits..]
        .starts_with("base")
        .then(|| mode[..digits].parse().ok())?
}

/// Highest rate of a link with two pairs, in Mbit/s.
const FAST_ETHERNET: u32 = 100;

pub(super) const DUPLEX: Rule = Rule {
    id: 19,
    needs: Needs::Machine,
    silences: &[3, 15, 16],
    judge: |case| {
        let halves = case.live_cards().map(|place| half_duplex(case, &place));
        let pairs = case
            .pairs()
            .map(|(_, here, there)| mismatch(case, &here, &there));
        pairs.chain(halves).collect()
    },
};

fn half_duplex(case: &Case, place: &Place<'_>) -> Option<Seen> {
    let interface = place.interface;
    let duplex = interface.duplex.as_deref()?;
    let modes = interface.modes.as_ref();
    // Some drivers of virtual and USB cards name a duplex mode and no modes.
    let supported = modes.and_then(|modes| modes.supported.as_ref())?;
    let can_full = supported.iter().any(|mode| mode.ends_with("/Full"));
    if duplex != "half" || !can_full || is_mismatched(case, place) {
        return Some(Seen::Fine);
    }
    let is_silent = modes.is_some_and(|modes| {
        modes.autoneg == Some(true) && modes.partner.as_ref().is_some_and(Vec::is_empty)
    });
    let why = match is_silent {
        true => ": the other end does not negotiate, and probably runs at full duplex",
        false => "",
    };
    let speed = interface
        .speed_mbps
        .map_or_else(String::new, |speed| format!(" at {}", line(speed)));
    let sentence = format!("{} runs at half duplex{speed}{why}", place.label(case));
    let mut finding = Finding::new(Severity::Bad, sentence).about(place).proof(
        place.fact("duplex mode"),
        "half",
        "ethtool",
    );
    if let Some(partner) = modes.and_then(|modes| modes.partner.as_ref()) {
        let offers = if partner.is_empty() {
            "nothing".into()
        } else {
            partner.join(", ")
        };
        finding = finding.proof(
            "modes that the other end offers",
            offers,
            "ethtool (partner)",
        );
    }
    let finding = finding.advise("Let both ends negotiate");
    negotiate(finding, place).seen()
}

/// Adds the command that lets a card with a fixed mode negotiate, and the one that fixes it again.
fn negotiate(finding: Finding, place: &Place<'_>) -> Finding {
    let modes = place.interface.modes.as_ref();
    if modes.is_none_or(|modes| modes.autoneg != Some(false)) {
        return finding;
    }
    let known = place
        .interface
        .speed_mbps
        .zip(place.interface.duplex.as_deref());
    let undo = known.map(|(speed, duplex)| {
        let text = "ethtool -s {} autoneg off speed {} duplex {}";
        place.line(text, &[&speed, &duplex])
    });
    let line = place.line("ethtool -s {} autoneg on", &[]);
    finding.run(place.side, line, undo)
}

/// Returns true if the interface is the end of a link whose other end has another duplex mode.
fn is_mismatched(case: &Case, place: &Place<'_>) -> bool {
    case.pairs().any(|(_, here, there)| {
        let differ = match (&here.interface.duplex, &there.interface.duplex) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        };
        differ && (is_same(&here, place) || is_same(&there, place))
    })
}

fn mismatch(case: &Case, here: &Place<'_>, there: &Place<'_>) -> Option<Seen> {
    let (ours, theirs) = (
        here.interface.duplex.as_deref()?,
        there.interface.duplex.as_deref()?,
    );
    if ours == theirs {
        return Some(Seen::Fine);
    }
    let sentence = format!(
        "duplex mismatch: {} runs at {ours}, {} at {theirs} duplex",
        here.label(case),
        there.label(case)
    );
    let mut finding = Finding::new(Severity::Bad, sentence)
        .about(here)
        .about(there)
        .proof(
            format!("duplex mode of {}", here.label(case)),
            ours,
            "ethtool",
        )
        .proof(
            format!("duplex mode of {}", there.label(case)),
            theirs,
            "ethtool",
        )
        .advise("Let both ends negotiate: one end with a fixed mode is enough to cause this");
    for place in [here, there] {
        finding = negotiate(finding, place);
    }
    finding.seen()
}

pub(super) const MTU_DIFFERS: Rule = Rule {
    id: 9,
    needs: Needs::Links,
    silences: &[],
    judge: |case| {
        each(case.pairs(), |(_, here, there)| {
            let (ours, theirs) = (here.interface.mtu?, there.interface.mtu?);
            if ours == theirs {
                return Some(Seen::Fine);
            }
            let small = ours.min(theirs);
            let low = if ours < theirs { &here } else { &there };
            let sentence = format!(
                "the MTU of {} is {ours}, of {} {theirs}: TCP uses {small}",
                here.label(case),
                there.label(case)
            );
            Finding::new(Severity::Note, sentence)
                .about(&here)
                .about(&there)
                .proof(format!("MTU of {}", here.label(case)), ours, "ip link")
                .proof(format!("MTU of {}", there.label(case)), theirs, "ip link")
                .advise("Set one MTU at both ends, and on the switch between them")
                .turn_at(low, SET_MTU, ours.max(theirs), small)
                .seen()
        })
    },
};

pub(super) const BLACK_HOLE: Rule = Rule {
    id: 10,
    needs: Needs::Links,
    silences: &[9, 16, 22],
    judge: |case| {
        each(case.pairs(), |(link, here, there)| {
            let both = here.interface.mtu?.min(there.interface.mtu?);
            let Some(path) = link.path_mtu.filter(|path| *path < both) else {
                return Some(Seen::Fine);
            };
            let sentence = format!(
                "frames of {both} bytes vanish between {} and {}: a device between drops all above {path}",
                here.label(case),
                there.label(case)
            );
            let mut finding = Finding::new(Severity::Bad, sentence)
                .about(&here)
                .about(&there)
                .proof(format!("MTU of {}", here.label(case)), both, "ip link")
                .proof(
                    format!("path MTU of {}", ends(link)),
                    path,
                    "padded greeting",
                )
                .advise(match path {
                    1500.. => "Enable jumbo frames on the switch, or lower the MTU at both ends",
                    _ => "Let the tunnel or router on the way report it (ICMP: packet too big), or lower the MTU at both ends",
                });
            for place in [&here, &there] {
                let mtu = place.interface.mtu.unwrap_or(both);
                finding = finding.turn_at(place, SET_MTU, path, mtu);
            }
            finding.seen()
        })
    },
};

/// Command that sets the MTU of an interface.
const SET_MTU: &str = "ip link set dev {} mtu {}";

fn ends(link: &LinkFacts) -> String {
    let there = link.there.as_deref().unwrap_or("?");
    format!("{} → {there}", link.here)
}

pub(super) const BOND: Rule = Rule {
    id: 11,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(
            case.interfaces()
                .filter(|place| place.interface.bond.is_some()),
            |place| {
                let bond = place.interface.bond.as_ref()?;
                let mode = bond.mode.as_deref()?;
                let hash = bond.hash.as_deref();
                let members = listed(&bond.members);
                let name = place.label(case);
                let by_ports = hash.is_some_and(|hash| hash.contains("3+4"));
                let (severity, sentence, advice) = match mode {
                    "802.3ad" | "balance-xor" if by_ports => return Some(Seen::Fine),
                    "802.3ad" | "balance-xor" => {
                        let hash = hash?;
                        (
                            Severity::Warning,
                            format!(
                                "{name} ({members}) is a bond in {mode} with the hash {hash}: one pair of machines uses one cable"
                            ),
                            "Hash by ports, at the switch as well; or take the bond apart for the copy",
                        )
                    }
                    "balance-tlb" | "balance-alb" => (
                        Severity::Warning,
                        format!(
                            "{name} ({members}) is a bond in {mode}: one pair of machines uses one cable"
                        ),
                        "Use 802.3ad with a hash by ports, or take the bond apart for the copy",
                    ),
                    "active-backup" => (
                        Severity::Note,
                        format!(
                            "{name} ({members}) is a bond in {mode}: all but one cable are spares"
                        ),
                        "Take the bond apart to use all cables",
                    ),
                    "balance-rr" => (
                        Severity::Note,
                        format!(
                            "{name} ({members}) is a bond in {mode}: packets arrive out of order"
                        ),
                        "Take the bond apart: nicstripe stripes without reordering",
                    ),
                    _ => return Some(Seen::Fine),
                };
                let mut finding = Finding::new(severity, sentence)
                    .about(&place)
                    .proof(place.fact("mode"), mode, "/proc/net/bonding")
                    .advise(advice);
                if let Some(hash) = hash {
                    finding = finding.proof("hash", hash, "/proc/net/bonding");
                }
                if severity == Severity::Warning && mode != "balance-tlb" && mode != "balance-alb" {
                    finding = finding.run(
                        place.side,
                        place.line(
                            "ip link set dev {} type bond xmit_hash_policy layer3+4",
                            &[],
                        ),
                        hash.map(|hash| {
                            let old = hash.split(' ').next().unwrap_or(hash);
                            place.line("ip link set dev {} type bond xmit_hash_policy {}", &[&old])
                        }),
                    );
                }
                finding.seen()
            },
        )
    },
};

pub(super) const NO_CABLE: Rule = Rule {
    id: 13,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(
            case.interfaces()
                .filter(|place| place.interface.up != Some(false)),
            |place| {
                let kind = place.interface.kind.as_deref()?;
                let what = match kind {
                    "wi-fi" => "Wi-Fi",
                    "tunnel" => "a tunnel",
                    _ => return Some(Seen::Fine),
                };
                if place.interface.addresses.is_empty() {
                    return Some(Seen::Fine);
                }
                let sentence = format!(
                    "{} is {what}, no cable: not used unless it is named",
                    place.label(case)
                );
                Finding::new(Severity::Info, sentence)
                    .about(&place)
                    .proof(place.fact("kind"), kind, "netlink")
                    .seen()
            },
        )
    },
};

pub(super) const JUMBO: Rule = Rule {
    id: 39,
    needs: Needs::Bench,
    silences: &[],
    judge: |case| {
        let is_large = |place: Place<'_>| place.interface.mtu.is_some_and(|mtu| mtu >= 9000);
        if case.pairs().any(|(_, here, _)| is_large(here)) {
            return std::iter::once(Some(Seen::Fine)).collect();
        }
        let sweeps = case.bench.iter().flat_map(|report| &report.sweeps);
        each(
            sweeps.filter(|sweep| sweep.kind == SweepKind::Mtu),
            |sweep| {
                let at = |size: u64| {
                    let point = sweep
                        .points
                        .iter()
                        .find(|point| point.size == Some(size) && !point.computed)?;
                    point.cpu_s_per_gbit
                };
                let (small, large) = (at(1500)?, at(9000)?);
                let saved = 1.0 - large / small;
                if !saved.is_finite() {
                    return None;
                }
                let percent = saved * 100.0;
                let sentence = match saved >= WORTH {
                    true => format!("jumbo frames save {percent:.0} % of the processor time"),
                    false => format!(
                        "jumbo frames would save {percent:.0} % of the processor time: not worth it"
                    ),
                };
                let severity = Severity::either(saved >= WORTH, Severity::Note, Severity::Info);
                let finding = Finding::new(severity, sentence)
                    .about(Side::Here)
                    .proof(
                        "processor time at 1500",
                        format!("{small:.3} s/Gbit"),
                        "bench",
                    )
                    .proof(
                        "processor time at 9000",
                        format!("{large:.3} s/Gbit"),
                        "bench",
                    );
                Some(match saved >= WORTH {
                    true => finding
                        .advise("Set an MTU of 9000 at both ends and on the switch between them")
                        .into(),
                    false => finding.into(),
                })
            },
        )
    },
};

/// Minimum part of the processor time that jumbo frames must save.
const WORTH: f64 = 0.1;

pub(super) const MTU_NAME: Rule = Rule {
    id: 40,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(case.cards(), |place| {
            let mtu = place.interface.mtu?;
            if ![9014, 9018, 9216].contains(&mtu) {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "the MTU of {} is {mtu}, which counts the frame; Linux means 9000",
                place.label(case)
            );
            Finding::new(Severity::Note, sentence)
                .likely()
                .about(&place)
                .proof(place.fact("MTU"), mtu, "ip link")
                .advise("Set 9000 at both ends, unless the other end has the same value")
                .turn_at(&place, SET_MTU, 9000, mtu)
                .seen()
        })
    },
};

pub(super) const UNPLUGGED: Rule = Rule {
    id: 45,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(
            case.cards()
                .filter(|place| place.interface.up == Some(true)),
            |place| {
                let carrier = place.interface.carrier?;
                if carrier {
                    return Some(Seen::Fine);
                }
                let sentence = format!(
                    "{} has no carrier; any cable will do, crossed or not",
                    place.label(case)
                );
                Finding::new(Severity::Info, sentence)
                    .about(&place)
                    .proof(place.fact("carrier"), "none", "ip link")
                    .seen()
            },
        )
    },
};

//! Rules about a link's rate, duplex mode, MTU and kind.

use nicstripe_bench::{SweepKind, listed};

use super::addressing::each;
use crate::{
    case::{Case, LinkFacts, Place, Side},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen},
};

pub(super) const SLOW_LINK: Rule = Rule {
    id: 3,
    title: "Link slower than its ends",
    needs: Needs::Machine,
    reads: "negotiated rate, supported modes and modes offered by the other end (ethtool)",
    threshold: "rate below the best mode that both ends can use; or at most 100 Mb/s on a card of 1000 Mb/s or more",
    source: "IEEE 802.3 clause 28 (negotiation): both ends take the best common mode; a damaged pair makes many cards fall back to two pairs, which carry 100 Mb/s at most",
    meaning: "Ten times slower than possible. The usual causes are a cable with a damaged or missing pair, a bad plug, or an old port at the other end.",
    story: "",
    lookalike: "a 2.5G card at a gigabit port: the port offers no more; virtual cards, whose drivers invent a rate",
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
        .about(place)
        .costs(Some(u64::from(common.saturating_sub(speed)) * 1_000_000))
        .proof(
            format!("rate of {}", place.interface.name),
            line(speed),
            "ethtool",
        )
        .proof("best mode of the card", line(own), "ethtool (supported)");
    if let Some(other) = other {
        finding = finding.proof(
            "best mode of the other end",
            line(other),
            "ethtool (partner)",
        );
    }
    Some(negotiate(finding, place).into())
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

/// Formats a line rate in the unit of its name: `100 Mb/s`.
pub(super) fn line(mbps: u32) -> String {
    format!("{mbps} Mb/s")
}

/// Highest rate of a link with two pairs, in Mbit/s.
const FAST_ETHERNET: u32 = 100;

pub(super) const DUPLEX: Rule = Rule {
    id: 19,
    title: "Half duplex, or duplex mismatch",
    needs: Needs::Machine,
    reads: "duplex mode at both ends, negotiation, modes offered by the other end (ethtool)",
    threshold: "half duplex on a card that can do full; full at one end and half at the other",
    source: "IEEE 802.3 clause 28 (parallel detection takes half duplex); Shalunov and Carlson, PAM 2005. No active test: its patents are unchecked",
    meaning: "At half duplex only one end may send at a time. If one end believes full and the other half, frames collide: one direction is fast, the other crawls, and ping looks fine.",
    story: "c: a link with a duplex mismatch carried 17 instead of 91 Mbit/s in one direction",
    lookalike: "full duplex at both ends; hubs, which are half duplex by nature: the card then supports no full mode",
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
        format!("duplex mode of {}", interface.name),
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
    Some(negotiate(finding, place).into())
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
    Some(finding.into())
}

pub(super) const MTU_DIFFERS: Rule = Rule {
    id: 9,
    title: "MTU differs between the ends",
    needs: Needs::Links,
    reads: "MTU of both interfaces of a link",
    threshold: "not equal",
    source: "RFC 6691: each end announces its segment size, so TCP uses the smaller; measured: 941.4 Mbit/s at 9000 and 1500",
    meaning: "TCP agrees on the smaller packets, so nothing breaks. The end with the larger MTU gains nothing from it, and datagrams of its full size are lost.",
    story: "",
    lookalike: "equal MTUs with a switch between that drops large frames (rule 10)",
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
            Some(
                Finding::new(Severity::Note, sentence)
                    .about(&here)
                    .about(&there)
                    .proof(format!("MTU of {}", here.label(case)), ours, "ip link")
                    .proof(format!("MTU of {}", there.label(case)), theirs, "ip link")
                    .advise("Set one MTU at both ends, and on the switch between them")
                    .run(
                        low.side,
                        low.line("ip link set dev {} mtu {}", &[&ours.max(theirs)]),
                        Some(low.line("ip link set dev {} mtu {}", &[&small])),
                    )
                    .into(),
            )
        })
    },
};

pub(super) const BLACK_HOLE: Rule = Rule {
    id: 10,
    title: "Large frames vanish",
    needs: Needs::Links,
    reads: "path MTU found by the padded greeting of each connection; MTU of both interfaces",
    threshold: "frames of the MTU of both ends get no answer, smaller ones do (1500, 1450, 1400 and 1280 bytes are tried)",
    source: "RFC 2923 (black holes); measured: 0.68 Mbit/s until TCP probes",
    meaning: "Both cards send large frames, and a switch, tunnel or DSL router between them drops these without a word. Small packets such as ping pass, large transfers stall. nicstripe falls back to small segments; other programs stall.",
    story: "",
    lookalike: "different MTUs at the ends (rule 9), where TCP never sends a large frame",
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
                finding = finding.run(
                    place.side,
                    place.line("ip link set dev {} mtu {}", &[&path]),
                    place
                        .interface
                        .mtu
                        .map(|mtu| place.line("ip link set dev {} mtu {}", &[&mtu])),
                );
            }
            Some(finding.into())
        })
    },
};

fn ends(link: &LinkFacts) -> String {
    let there = link.there.as_deref().unwrap_or("?");
    format!("{} → {there}", link.here)
}

pub(super) const BOND: Rule = Rule {
    id: 11,
    title: "A bond that hides its cables",
    needs: Needs::Machine,
    reads: "/proc/net/bonding, IFLA_BOND_MODE",
    threshold: "a mode or hash that sends one pair of machines over one cable: 802.3ad or balance-xor without ports in the hash, balance-tlb, balance-alb, active-backup; balance-rr, which reorders",
    source: "Documentation/networking/bonding.rst of Linux, sections 2 and 12; serverfault 287475: balance-rr over two cables 70 MB/s, one alone 98",
    meaning: "A bond is one interface. By its hash all packets between two machines may use the same cable, so a copy gets the rate of one.",
    story: "",
    lookalike: "a hash with ports (layer3+4): nicstripe opens enough connections to use all members",
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
                    .proof(
                        format!("mode of {}", place.interface.name),
                        mode,
                        "/proc/net/bonding",
                    )
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
                Some(finding.into())
            },
        )
    },
};

pub(super) const NO_CABLE: Rule = Rule {
    id: 13,
    title: "Interface that is no cable",
    needs: Needs::Machine,
    reads: "kind of each interface with an address",
    threshold: "Wi-Fi, tunnel or another interface without a cable",
    source: "by definition",
    meaning: "Its medium is shared, or lies over another interface. nicstripe leaves it out unless it is named with --link.",
    story: "",
    lookalike: "loopback; an interface without an address",
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
                Some(
                    Finding::new(Severity::Info, sentence)
                        .about(&place)
                        .proof(format!("kind of {}", place.interface.name), kind, "netlink")
                        .into(),
                )
            },
        )
    },
};

pub(super) const JUMBO: Rule = Rule {
    id: 39,
    title: "Worth of jumbo frames",
    needs: Needs::Bench,
    reads: "processor time per Gbit and goodput at MTU 1500 and at 9000 (`bench --sweep mtu`)",
    threshold: "less than 10 % of processor time saved: not worth it",
    source: "measured by the sweep; headers take 5.8 % at 1500 and 1.0 % at 9000 (nicstripe-proto::theory)",
    meaning: "Larger packets are fewer packets: less work for each byte, and 5 % less header. Both ends and every device between must agree.",
    story: "a, d: jumbo frames halved the processor load (40 to 20 %) and moved the rate",
    lookalike: "a link that is already at 9000",
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
                let severity = if saved >= WORTH {
                    Severity::Note
                } else {
                    Severity::Info
                };
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
    title: "MTU that counts the header",
    needs: Needs::Machine,
    reads: "MTU of each card",
    threshold: "9014, 9018 or 9216",
    source: "drivers for other systems count the Ethernet header (14 bytes), or header and checksum (18); 9216 is a switch's frame size",
    meaning: "On Linux the MTU is the size of the IP packet. With 9014 the frames are 14 bytes longer than those of a machine whose tool says 9014, and a switch or card at the other end may drop them.",
    story: "e: the cards were set to jumbo frames of 9014 bytes, as their tool names it",
    lookalike: "an MTU of 9000, which is 9014 there",
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
            Some(
                Finding::new(Severity::Note, sentence)
                    .likely()
                    .about(&place)
                    .proof(format!("MTU of {}", place.interface.name), mtu, "ip link")
                    .advise("Set 9000 at both ends, unless the other end has the same value")
                    .run(
                        place.side,
                        place.line("ip link set dev {} mtu 9000", &[]),
                        Some(place.line("ip link set dev {} mtu {}", &[&mtu])),
                    )
                    .into(),
            )
        })
    },
};

pub(super) const UNPLUGGED: Rule = Rule {
    id: 45,
    title: "Card without a cable",
    needs: Needs::Machine,
    reads: "carrier of each enabled card",
    threshold: "enabled, and no carrier",
    source: "IEEE 802.3 clause 40: 1000BASE-T crosses its pairs by itself (auto-MDIX)",
    meaning: "No signal: no cable, no machine that is switched on at its far end, or a defect. A crossover cable is not needed: gigabit cards cross by themselves.",
    story: "a: the machines were joined directly; whether the cable must be crossed was a question then",
    lookalike: "a card that is switched off (`ip link set down`)",
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
                Some(
                    Finding::new(Severity::Info, sentence)
                        .about(&place)
                        .proof(
                            format!("carrier of {}", place.interface.name),
                            "none",
                            "ip link",
                        )
                        .into(),
                )
            },
        )
    },
};

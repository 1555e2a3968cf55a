//! Rules about processors and the work that packets cost them.

use nicstripe_bench::listed;
use nicstripe_link::facts::Facts;

use super::measured::{is_core_full, is_throttled, worst_core};
use crate::{
    case::{Machine, Place, Side},
    command::Line,
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const FULL_CORE: Rule = Rule {
    id: 7,
    needs: Needs::Bench,
    silences: &[4, 22, 23, 35],
    judge: |case| {
        let report = case.bench.as_ref();
        each([Side::Here, Side::There].into_iter(), |side| {
            let report = report?;
            let worst = worst_core(report, side)?;
            if !is_core_full(report, side) || is_throttled(case, side) {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "one core of {} is {worst:.0} % busy, and the cables are not full",
                case.name(side)
            );
            let together = report.summary.together.map(|rate| rate.median_bps);
            let lost = together
                .zip(report.summary.theory_bps)
                .map(|(rate, theory)| theory.saturating_sub(rate));
            Finding::new(Severity::Bad, sentence)
                    .about(side)
                    .costs(lost)
                    .proof("busiest core", format!("{worst:.0} %"), "/proc/stat")
                    .advise("Distribute interrupts over the cores (rule 28), switch offloads on (rule 27), use jumbo frames (rule 39), end other programs").seen()
        })
    },
};

pub(super) const QUOTA: Rule = Rule {
    id: 41,
    needs: Needs::Machine,
    silences: &[4, 7, 22, 23, 35],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let facts = &machine.facts;
            let under_load = is_throttled(case, side) || was_stopped(machine);
            let Some(quota) = facts.host.cpu_quota_millicores else {
                // Without a quota the rule is silent.
                let is_known = facts.host.cores.is_some() && !under_load;
                return is_known.then_some(Seen::Fine);
            };
            let idle = machine.idle.as_ref().map(|(later, _)| later);
            let readings = [Some(facts), idle, machine.loaded.as_ref()];
            let periods = readings.into_iter().flatten();
            let periods = periods.filter_map(|facts| facts.processors.throttled_periods);
            let periods = periods.max().unwrap_or(0);
            if periods == 0 && !under_load {
                return Some(Seen::Fine);
            }
            let severity = Severity::either(under_load, Severity::Bad, Severity::Warning);
            let cores = quota as f64 / 1000.0;
            let sentence = format!(
                "a control group limits nicstripe on {} to {cores:.2} cores, and it was stopped for that",
                case.name(side)
            );
            Finding::new(severity, sentence)
                .about(side)
                .proof("quota", format!("{cores:.2} cores"), "cpu.max")
                .proof("periods in which it was stopped", periods, "cpu.stat")
                .advise("Raise the quota: CPUQuota= of a systemd unit, --cpus of a container")
                .seen()
        })
    },
};

/// Returns true if a quota stopped the process in [`STOPS`] periods or more during the bench.
fn was_stopped(machine: &Machine) -> bool {
    let periods = |facts: &Facts| facts.processors.throttled_periods;
    let after = machine.loaded.as_ref().and_then(periods);
    let grown = after.zip(periods(&machine.facts));
    grown.is_some_and(|(after, before)| after.saturating_sub(before) >= STOPS)
}

/// Minimum reported number of periods: one lasts 0.1 s, and a load 3 s or more.
const STOPS: u64 = 10;

pub(super) const OFFLOADS: Rule = Rule {
    id: 27,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(case.live_cards(), |place| {
            let on = place.interface.offloads.as_ref()?;
            let possible = place.interface.offloads_possible.as_ref();
            let has = |list: &[String], name: &str| list.iter().any(|one| one == name);
            let driver = place.interface.driver.as_deref().unwrap_or_default();
            let is_off = |name: &&str| {
                let can = match possible {
                    Some(possible) => has(possible, name),
                    // Linux does these two by itself, on any card.
                    None => matches!(*name, "gso" | "gro"),
                };
                // The kernel switches segmentation off without scatter-gather.
                let lacks = *name == "gso" && !has(on, "sg");
                let chosen = CHOSEN_OFF
                    .iter()
                    .any(|(of, names)| *of == driver && names.contains(name));
                can && !has(on, name) && !lacks && !chosen
            };
            let off: Vec<&str> = OFFLOAD_NAMES.into_iter().filter(is_off).collect();
            if off.is_empty() {
                return Some(Seen::Fine);
            }
            // These two the kernel does by itself; for the others a driver may have a reason.
            let severity = Severity::either(
                off.contains(&"gro") || off.contains(&"gso"),
                Severity::Warning,
                Severity::Note,
            );
            let sentence = format!(
                "{} {} off on {}: more work for each byte",
                listed(&off),
                if off.len() > 1 { "are" } else { "is" },
                place.label(case)
            );
            let switched = |to: &str| {
                let line = place.line("ethtool -K {}", &[])?;
                off.iter().try_fold(line, |line, name| {
                    line.then(" {} {}", &[&option(name), &to])
                })
            };
            Finding::new(severity, sentence)
                .about(&place)
                .proof(
                    place.fact("offloads"),
                    format!("{} off", off.join(", ")),
                    "ethtool -k",
                )
                .advise("Switch them on, unless a bug of the driver is why they are off")
                .run(place.side, switched("on"), Some(switched("off")))
                .seen()
        })
    },
};

/// Offloads that drivers leave off by themselves: r8169 before Linux 6.13 and for some chips
/// (net-next b8bf38440ba9), e1000e for segmentation below 1000 Mb/s and for some chips, e1000 for
/// received checksums.
const CHOSEN_OFF: [(&str, &[&str]); 4] = [
    ("r8169", &["tso", "sg", "tx-checksum"]),
    ("e1000e", &["tso"]),
    ("e1000", &["rx-checksum"]),
    ("r8125", &["tso", "sg", "tx-checksum"]),
];

const OFFLOAD_NAMES: [&str; 6] = ["tso", "gso", "gro", "sg", "tx-checksum", "rx-checksum"];

/// Returns the word by which ethtool switches an offload.
fn option(offload: &str) -> &str {
    match offload {
        "tx-checksum" => "tx",
        "rx-checksum" => "rx",
        other => other,
    }
}

pub(super) const INTERRUPTS: Rule = Rule {
    id: 28,
    needs: Needs::Bench,
    silences: &[7],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let report = case.bench.as_ref()?;
            let mut cards = case.live_cards().filter(|place| place.side == side);
            if cards.any(|place| place.interface.rps == Some(true)) {
                return Some(Seen::Fine);
            }
            let counts = interrupts_under_load(machine)?;
            let total = counts
                .iter()
                .fold(0, |sum: u64, count| sum.saturating_add(*count));
            let (core, most) = counts
                .iter()
                .copied()
                .enumerate()
                .max_by_key(|(_, count)| *count)?;
            let one_sided =
                total > 1000 && most as f64 > ONE_SIDED * total as f64 && counts.len() > 1;
            if !is_core_full(report, side) || !one_sided {
                return Some(Seen::Fine);
            }
            let sentence = format!(
                "core {core} of {} handles {:.0} % of the cards' interrupts, and is full",
                case.name(side),
                most as f64 * 100.0 / total as f64
            );
            let mut finding = Finding::new(Severity::Bad, sentence)
            .about(side)
            .proof(format!("interrupts on core {core}"), format!("{most} of {total}"), "/proc/interrupts")
            .advise("Run irqbalance; give each card's interrupt a separate core; distribute a card with one queue by software (RPS)");
            let cores = counts.len();
            let cards = case.live_cards().filter(|place| place.side == side);
            for (position, place) in cards.enumerate() {
                finding = spread(finding, &place, position, cores);
            }
            finding.seen()
        })
    },
};

/// Adds the commands that move the busiest interrupt of a card to a separate core.
fn spread(finding: Finding, place: &Place<'_>, position: usize, cores: usize) -> Finding {
    let Some(interrupt) = place
        .interface
        .interrupts
        .iter()
        .max_by_key(|one| one.counts.iter().max().copied())
    else {
        return finding;
    };
    let core = position % cores.max(1);
    let set = |cores: &str| {
        let mut cores = cores.split(',');
        let line = Line::new("echo {}", &[&cores.next().unwrap_or_default()])?;
        cores
            .try_fold(line, |line, core| line.then(",{}", &[&core]))?
            .then(" > /proc/irq/{}/smp_affinity_list", &[&interrupt.irq])
    };
    finding.run(
        place.side,
        set(&core.to_string()),
        interrupt.affinity.as_deref().map(set),
    )
}

/// Returns the interrupts of all cards under load, for each core.
fn interrupts_under_load(machine: &Machine) -> Option<Vec<u64>> {
    let after = machine.loaded.as_ref()?;
    let mut sums: Vec<u64> = Vec::new();
    for interface in &machine.facts.interfaces {
        let Some(later) = after.interface(&interface.name) else {
            continue;
        };
        for interrupt in &interface.interrupts {
            let Some(now) = later.interrupts.iter().find(|one| one.irq == interrupt.irq) else {
                continue;
            };
            sums.resize(sums.len().max(now.counts.len()), 0);
            for (core, (now, then)) in now.counts.iter().zip(&interrupt.counts).enumerate() {
                sums[core] = sums[core].saturating_add(now.saturating_sub(*then));
            }
        }
    }
    (!sums.is_empty()).then_some(sums)
}

/// Part of the interrupts on one core that counts as one-sided.
const ONE_SIDED: f64 = 0.8;

pub(super) const SLOW_MODE: Rule = Rule {
    id: 30,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(case.machines(), |(side, machine)| {
            let facts = &machine.facts.processors;
            let hot = machine.loaded.as_ref().and_then(|after| {
                let grown = after
                    .processors
                    .thermal_throttles?
                    .checked_sub(facts.thermal_throttles?)?;
                (grown > 0).then_some(grown)
            });
            let is_scaling = facts
                .frequency_driver
                .as_deref()
                .is_some_and(|driver| SCALING_POWERSAVE.contains(&driver));
            let is_slow = facts.frequency_driver.is_some()
                && !is_scaling
                && facts.governors.iter().any(|name| name == "powersave");
            let limit = facts
                .mhz_limit
                .zip(facts.mhz_max)
                .filter(|(limit, max)| f64::from(*limit) < LIMITED * f64::from(*max));
            let who = case.name(side);
            let finding = if let Some(grown) = hot {
                Finding::new(
                    Severity::Bad,
                    format!(
                        "the processor of {who} became too hot and slowed down during the bench"
                    ),
                )
                .proof(
                    "thermal throttling events",
                    format!("+{grown}"),
                    "/sys/devices/system/cpu",
                )
                .advise("Clean the fans; give the machine air")
            } else if is_slow {
                let now = facts
                    .mhz_now
                    .map_or_else(String::new, |mhz| format!(" at {mhz} MHz"));
                Finding::new(
                    Severity::Warning,
                    format!("the processor of {who} stays slow{now}: governor powersave"),
                )
                .proof(
                    "governor",
                    "powersave",
                    "/sys/devices/system/cpu/cpu0/cpufreq",
                )
                .proof(
                    "driver",
                    facts.frequency_driver.as_deref().unwrap_or_default(),
                    "/sys/devices/system/cpu/cpu0/cpufreq",
                )
                .advise("Use another governor")
                .turn(
                    side,
                    "cpupower frequency-set -g {}",
                    &[&"performance"],
                    &[&"powersave"],
                )
            } else if let Some((limit, max)) = limit {
                Finding::new(
                    Severity::Warning,
                    format!("the processor of {who} is limited to {limit} of {max} MHz"),
                )
                .proof(
                    "highest rate allowed",
                    format!("{limit} MHz"),
                    "/sys/devices/system/cpu/cpu0/cpufreq",
                )
                .advise("Raise the limit")
                .turn(side, "cpupower frequency-set -u {}MHz", &[&max], &[&limit])
            } else if facts.on_battery == Some(true) {
                Finding::new(
                    Severity::Note,
                    format!("{who} runs on battery, and saves power"),
                )
                .possible()
                .proof("power supply", "battery", "/sys/class/power_supply")
                .advise("Connect the power supply")
            } else {
                let is_known = facts.frequency_driver.is_some() || facts.on_battery.is_some();
                return is_known.then_some(Seen::Fine);
            };
            finding.about(side).seen()
        })
    },
};

/// Drivers whose governor named powersave scales with the load.
const SCALING_POWERSAVE: [&str; 4] = ["intel_pstate", "amd-pstate", "amd-pstate-epp", "amd_pstate"];
/// Part of the highest rate below which a limit is reported (picked by eye).
const LIMITED: f64 = 0.6;

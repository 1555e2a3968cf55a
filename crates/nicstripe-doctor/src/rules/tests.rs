mod absurd;
mod fixture;
mod rows;

use std::{collections::BTreeSet, fs};

use nicstripe_bench::{BenchLink, CpuUse, Ends, LinkSummary, Summary};
use nicstripe_link::facts::{Facts, InterfaceFacts};

use self::{
    fixture::healthy,
    rows::{ROWS, card, grow, lose, set, shape, use_idle},
};
use super::RULES;
use crate::{
    Case, Diagnosis, Examined, Finding, LinkFacts, LinkState, Machine, Needs, Severity, Side,
    Snapshot, Subject, examine,
};

#[test]
fn a_healthy_case_is_clean() {
    let expected = Diagnosis {
        clean: RULES.iter().map(|rule| rule.id).collect(),
        ..Diagnosis::default()
    };
    assert_eq!(examine(&healthy(), &[]), expected);
}

#[test]
fn each_rule_speaks_where_it_is_true_and_is_silent_beside_its_lookalike() {
    let mut wrong = Vec::new();
    for (rule, claim, change, expected) in ROWS {
        let found = words(&examine(&changed(*change), &[]).findings);
        if found != *expected {
            wrong.push(format!(
                "rule {rule}, {claim}: found {found:?}, expected {expected:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_rule_that_needs_a_bench_has_a_row_where_it_speaks_and_one_where_not() {
    let with_bench = RULES.iter().filter(|rule| rule.needs == Needs::Bench);
    for rule in with_bench {
        let own = || ROWS.iter().filter(|(id, ..)| *id == rule.id);
        let speaks = |expected: &str| {
            let mut told = expected.split(' ');
            told.any(|word| word.starts_with(&format!("{}:", rule.id)))
        };
        assert!(own().any(|(.., expected)| speaks(expected)), "{rule:?}");
        assert!(own().any(|(.., expected)| !speaks(expected)), "{rule:?}");
    }
}

/// Rows of this module, and the made-up machines of `tests/machines`.
#[test]
fn each_rule_is_found_somewhere() {
    let mut found: BTreeSet<u8> = BTreeSet::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let machines = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let machines = machines.map(|path| {
        let text = fs::read_to_string(path).unwrap();
        Snapshot::parse(&text).unwrap().into_case(None)
    });
    for case in ROWS
        .iter()
        .map(|(.., change, _)| changed(*change))
        .chain(machines)
    {
        found.extend(
            examine(&case, &[])
                .findings
                .iter()
                .map(|finding| finding.rule),
        );
    }
    let all: BTreeSet<u8> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(found, all);
}

#[test]
fn a_snapshot_has_the_diagnosis_of_its_case() {
    for (rule, claim, change, _) in ROWS {
        let case = changed(*change);
        let text = serde_json::to_string(&Snapshot::of(&case)).unwrap();
        let later = Snapshot::parse(&text).unwrap().into_case(None);
        let (one, other) = (examine(&case, &[]), examine(&later, &[]));
        for (one, other) in [
            (&one.findings, &other.findings),
            (&one.silenced, &other.silenced),
        ] {
            assert_eq!(words(one), words(other), "rule {rule}, {claim}");
        }
        assert_eq!(one.not_visible, other.not_visible, "rule {rule}, {claim}");
    }
}

#[test]
fn unknown_facts_give_no_finding() {
    for kind in [None, Some("ethernet"), Some("bond"), Some("wi-fi")] {
        for state in [LinkState::Untried, LinkState::Up, LinkState::Silent] {
            let diagnosis = examine(&unknown(kind, state), &[]);
            let told = [diagnosis.findings, diagnosis.silenced].concat();
            assert!(told.is_empty(), "{kind:?} {state:?}: {told:?}");
        }
    }
}

/// Returns the healthy case without its facts: names, and kinds of interfaces, remain.
fn unknown(kind: Option<&str>, state: LinkState) -> Case {
    let mut case = healthy();
    let stripped = |machine: &Machine| {
        let names = machine.facts.interfaces.iter();
        let interfaces = names.map(|interface| InterfaceFacts {
            name: interface.name.clone(),
            kind: kind.map(str::to_owned),
            ..InterfaceFacts::default()
        });
        let facts = Facts {
            interfaces: interfaces.collect(),
            ..Facts::default()
        };
        Machine {
            idle: Some((facts.clone(), 1_000_000)),
            loaded: Some(facts.clone()),
            facts,
        }
    };
    for machine in std::iter::once(&mut case.here).chain(&mut case.there) {
        *machine = stripped(machine);
    }
    for link in &mut case.links {
        *link = LinkFacts {
            here: link.here.clone(),
            there: link.there.clone(),
            state,
            ..LinkFacts::default()
        };
    }
    let report = case.bench.as_mut().unwrap();
    for link in &mut report.links {
        (link.theory_bps, link.theory, link.rtt_idle) = (None, None, None);
    }
    for run in &mut report.runs {
        run.cpu = Ends {
            client: None,
            daemon: Some(CpuUse::default()),
        };
        run.flows.iter_mut().for_each(|flow| flow.tcp = None);
    }
    let nothing = |link: &BenchLink| LinkSummary {
        link: link.id,
        ..LinkSummary::default()
    };
    report.summary = Summary {
        links: report.links.iter().map(nothing).collect(),
        ..Summary::default()
    };
    case
}

#[test]
fn a_rule_whose_facts_are_all_unknown_is_not_visible() {
    let mut case = healthy();
    for machine in [&mut case.here, case.there.as_mut().unwrap()] {
        for interface in &mut machine.facts.interfaces {
            interface.carrier_changes = None;
        }
    }
    let diagnosis = examine(&case, &[17]);
    assert!(diagnosis.clean.is_empty());
    assert_eq!(diagnosis.not_visible, [17]);

    card(&mut case, 0).carrier_changes = Some(6);
    let diagnosis = examine(&case, &[17]);
    assert_eq!(diagnosis.clean, [17]);
    assert!(diagnosis.not_visible.is_empty());
}

#[test]
fn a_rule_without_its_needs_is_not_examined() {
    let alone = Case {
        here: healthy().here,
        ..Case::default()
    };
    let needs = [(9, "a peer"), (16, "--bench"), (44, "both machines")];
    let expected = needs.map(|(rule, needs)| Examined {
        rule,
        needs: needs.into(),
    });
    let diagnosis = examine(&alone, &[9, 15, 16, 44]);
    assert_eq!(diagnosis.not_examined, expected);
    assert_eq!(diagnosis.clean, [15]);
}

#[test]
fn only_the_rules_that_were_asked_for_are_applied() {
    let mut case = healthy();
    grow(&mut case, 0, "rx_crc_errors", 40);
    lose(&mut case, 1, 5_000);
    let all = examine(&case, &[]);
    assert_eq!(
        [words(&all.findings), words(&all.silenced)],
        ["15:bad", "16:warning"]
    );
    let only = examine(&case, &[3, 16]);
    assert_eq!(words(&only.findings), "16:warning");
    assert!(only.silenced.is_empty());
    assert_eq!(only.clean, [3]);
}

#[test]
fn of_two_that_explain_each_other_the_lower_number_speaks_unless_the_other_is_worse() {
    let mut case = healthy();
    card(&mut case, 1).addresses[0].ip = [10, 0, 1, 101].into();
    let equal = examine(&case, &[1, 2]);
    assert_eq!(
        [words(&equal.findings), words(&equal.silenced)],
        ["1:note", "2:note"]
    );

    case.links[1].state = LinkState::Misdirected;
    case.links[1].arrived = Some("enp1s0".into());
    let worse = examine(&case, &[1, 2]);
    assert_eq!(
        [words(&worse.findings), words(&worse.silenced)],
        ["2:bad", "1:warning"]
    );
}

#[test]
fn a_machine_and_its_interfaces_overlap() {
    let interface = |side: Side, name: &str| Subject::from((side, name));
    let here = interface(Side::Here, "eth0");
    assert!(here.overlaps(&here));
    assert!(here.overlaps(&Side::Here.into()));
    assert!(Subject::from(Side::Here).overlaps(&here));
    assert!(!here.overlaps(&interface(Side::Here, "eth1")));
    assert!(!here.overlaps(&interface(Side::There, "eth0")));
    assert!(!here.overlaps(&Side::There.into()));
}

#[test]
fn the_worst_comes_first_then_what_costs_most() {
    let mut case = healthy();
    set(&mut case, "net.ipv4.tcp_congestion_control", "vegas");
    use_idle(&mut case, 50_000_000);
    shape(&mut case, 0, 500);
    shape(&mut case, 1, 100);
    let diagnosis = examine(&case, &[]);
    let order = diagnosis.findings.iter();
    let order: Vec<(u8, Severity, Option<u64>)> = order
        .map(|finding| (finding.rule, finding.severity, hundreds(finding)))
        .collect();
    let expected = [
        (31, Severity::Bad, Some(9)),
        (31, Severity::Bad, Some(5)),
        (37, Severity::Warning, Some(2)),
        (33, Severity::Note, None),
    ];
    assert_eq!(order, expected);
    assert!(diagnosis.is_ill());
}

/// Returns the loss of rate in units of 100 Mbit/s.
fn hundreds(finding: &Finding) -> Option<u64> {
    finding.lost_bps.map(|bps| bps / 100_000_000)
}

#[test]
fn notes_are_no_illness() {
    let mut case = healthy();
    set(&mut case, "net.ipv4.tcp_congestion_control", "vegas");
    assert!(!examine(&case, &[]).is_ill());
}

fn changed(change: fn(&mut Case)) -> Case {
    let mut case = healthy();
    change(&mut case);
    case
}

/// Returns findings as `rule:severity`, in order of the rules.
fn words(findings: &[Finding]) -> String {
    let mut told: Vec<(u8, Severity)> = findings
        .iter()
        .map(|finding| (finding.rule, finding.severity))
        .collect();
    told.sort_unstable();
    let words = told
        .into_iter()
        .map(|(rule, severity)| format!("{rule}:{severity:?}").to_lowercase());
    words.collect::<Vec<_>>().join(" ")
}

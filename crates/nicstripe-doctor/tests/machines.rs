//! Made-up machines, each a snapshot under `machines/`: what must be found on them, and nothing
//! else. `expected.tsv` has a line for each.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fs, path::PathBuf};

use nicstripe_doctor::{Diagnosis, Finding, RULES, Severity, Side, Snapshot, examine};

#[test]
fn each_machine_has_what_is_expected_and_nothing_else() {
    let expected = read("machines/expected.tsv");
    let expected: BTreeMap<&str, &str> = expected
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect();
    let files = fs::read_dir(folder().join("machines")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();
    names.sort();
    assert_eq!(names, expected.keys().copied().collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for name in &names {
        let found = summary(&diagnosis(name));
        if found != expected[&**name] {
            wrong.push(format!(
                "{name}\n  found    {found}\n  expected {}",
                expected[&**name]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the findings that are no mere information, as `rule:severity:side/interface+…`.
fn summary(diagnosis: &Diagnosis) -> String {
    let told = diagnosis
        .findings
        .iter()
        .filter(|finding| finding.severity < Severity::Info);
    let words: Vec<String> = told.map(word).collect();
    match words.is_empty() {
        true => "-".into(),
        false => words.join(" "),
    }
}

fn word(finding: &Finding) -> String {
    let severity = format!("{:?}", finding.severity).to_lowercase();
    let mut subjects: Vec<String> = finding
        .subjects
        .iter()
        .map(|subject| {
            let side = match subject.side {
                Side::Here => "here",
                Side::There => "there",
            };
            match &subject.interface {
                Some(interface) => format!("{side}/{interface}"),
                None => side.into(),
            }
        })
        .collect();
    subjects.sort();
    format!("{}:{severity}:{}", finding.rule, subjects.join("+"))
}

/// Remedies and undos are lines for a POSIX shell: each splits into words, and names of interfaces
/// are single words.
#[test]
fn commands_are_words_for_a_shell() {
    let mut count = 0;
    for entry in fs::read_dir(folder().join("machines")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".json") {
            continue;
        }
        let diagnosis = diagnosis(&name);
        for finding in diagnosis.findings.iter().chain(&diagnosis.silenced) {
            let Some(remedy) = &finding.remedy else {
                assert_eq!(finding.severity, Severity::Info, "{name}: {finding:?}");
                continue;
            };
            assert!(!remedy.advice.is_empty(), "{name}: {finding:?}");
            for command in remedy.commands.iter().chain(&remedy.undo) {
                let words = shell_words::split(command.line.as_str());
                let words =
                    words.unwrap_or_else(|error| panic!("{name}: {}: {error}", command.line));
                assert!(PROGRAMS.contains(&&*words[0]), "{name}: {}", command.line);
                count += 1;
            }
        }
    }
    assert!(count > 40, "only {count} commands");
}

const PROGRAMS: [&str; 8] = [
    "ip", "ethtool", "sysctl", "tc", "nft", "cpupower", "echo", "numactl",
];

#[test]
fn the_five_reports_quote_what_is_found() {
    let path = folder().join("../../../docs/FIVE-REPORTS.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut machine = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let named = line
            .strip_prefix('`')
            .and_then(|line| line.strip_suffix("`:"));
        if let Some(name) = named {
            machine = Some(name);
        }
        match (line.starts_with("> "), machine) {
            (true, Some(name)) => {
                let first = diagnosis(name).findings.swap_remove(0);
                lines.push(format!("> {} (rule {})", first.sentence, first.rule));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let quoted = lines.join("\n") + "\n";
    if std::env::var_os("NICSTRIPE_RULES").is_some_and(|value| value == "write") {
        fs::write(&path, &quoted).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written == quoted,
        "docs/FIVE-REPORTS.md is out of date: run this test with NICSTRIPE_RULES=write"
    );
}

#[test]
fn rules_are_numbered_and_refer_to_rules() {
    let ids: Vec<u8> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(ids, (1..=RULES.len() as u8).collect::<Vec<_>>());
    for rule in RULES {
        for silenced in rule.silences {
            assert!(ids.contains(silenced) && *silenced != rule.id, "{rule:?}");
        }
    }
}

/// Changes bytes, digits and lengths of each machine's file at random (seeded), `NICSTRIPE_MUTATIONS`
/// times.
#[test]
fn no_changed_machine_panics() {
    let count = std::env::var("NICSTRIPE_MUTATIONS").map_or(20, |text| text.parse().unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |end: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end.max(1)
    };
    let mut judged = 0;
    for entry in fs::read_dir(folder().join("machines")).unwrap() {
        let original = fs::read(entry.unwrap().path()).unwrap();
        for _ in 0..count {
            let mut text = original.clone();
            for _ in 0..=below(4) {
                let at = below(text.len());
                match below(4) {
                    0 => text[at] = b' ' + below(95) as u8,
                    1 => {
                        // Another number: 0, or one that overflows much.
                        let number = [&b"0"[..], b"18446744073709551615", b"4294967295"][below(3)];
                        let digits = text
                            .iter()
                            .enumerate()
                            .skip(at)
                            .find(|(_, byte)| byte.is_ascii_digit());
                        if let Some((start, _)) = digits {
                            let rest = &text[start..];
                            let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                            text.splice(start..start + len, number.iter().copied());
                        }
                    }
                    2 => drop(text.drain(at..(at + below(8)).min(text.len()))),
                    _ => {
                        let part = text[at..(at + below(40)).min(text.len())].to_vec();
                        text.splice(at..at, part);
                    }
                }
            }
            let Ok(snapshot) = Snapshot::parse(&String::from_utf8_lossy(&text)) else {
                continue;
            };
            judged += 1;
            let case = snapshot.into_case(None);
            examine(&case, &[]);
            examine(&Snapshot::of(&case).into_case(None), &[]);
        }
    }
    assert!(judged > 0);
}

fn diagnosis(name: &str) -> Diagnosis {
    let snapshot = Snapshot::parse(&read(&format!("machines/{name}")));
    let snapshot = snapshot.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    examine(&snapshot.into_case(None), &[])
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

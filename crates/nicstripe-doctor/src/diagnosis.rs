//! Examination of a case by all rules.

use serde::Serialize;

use crate::{
    case::Case,
    finding::{Finding, Severity, Subject},
    rule::Rule,
    rules::{RULES, rule},
};

/// Result of an examination.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// Findings that another finding explains.
    pub silenced: Vec<Finding>,
    /// Rules that found nothing.
    pub clean: Vec<u8>,
    /// Rules whose facts this system, or the peer, does not show.
    pub not_visible: Vec<u8>,
    /// Rules that need a peer or a bench.
    pub not_examined: Vec<Examined>,
}

/// Rule that was not examined, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examined {
    /// Number of the rule.
    pub rule: u8,
    /// Missing input: a peer or a bench.
    pub needs: String,
}

impl Diagnosis {
    /// Returns true if a finding costs rate, or is likely to.
    pub fn is_ill(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity <= Severity::Warning)
    }
}

/// Applies all rules to a case, or only those in `only` if it is not empty.
pub fn examine(case: &Case, only: &[u8]) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    let is_wanted = |rule: &&Rule| only.is_empty() || only.contains(&rule.id);
    for rule in RULES.iter().filter(is_wanted) {
        if !rule.needs.are_met(case) {
            diagnosis.not_examined.push(Examined {
                rule: rule.id,
                needs: rule.needs.to_string(),
            });
            continue;
        }
        let judgement = (rule.judge)(case);
        if judgement.known == 0 && judgement.unknown > 0 {
            diagnosis.not_visible.push(rule.id);
        } else if judgement.findings.is_empty() {
            diagnosis.clean.push(rule.id);
        }
        let numbered = judgement.findings.into_iter().map(|finding| Finding {
            rule: rule.id,
            ..finding
        });
        diagnosis.findings.extend(numbered);
    }
    silence(&mut diagnosis);
    diagnosis
}

/// Sorts the findings, the worst first, and moves those out of the way that others explain.
fn silence(diagnosis: &mut Diagnosis) {
    let mut all = std::mem::take(&mut diagnosis.findings);
    all.sort_by_key(rank);
    // Of two that explain each other, the rule with the lower number speaks.
    let yields = |finding: &Finding, by: &Finding| {
        explains(by, finding) && !(explains(finding, by) && finding.rule < by.rule)
    };
    let is_explained = |finding: &Finding| all.iter().any(|by| yields(finding, by));
    (diagnosis.silenced, diagnosis.findings) = all
        .iter()
        .cloned()
        .partition(|finding| is_explained(finding));
}

/// Returns true if a finding explains another one about the same interface or machine, which is not
/// worse.
fn explains(by: &Finding, finding: &Finding) -> bool {
    let silences = rule(by.rule).is_some_and(|rule| rule.silences.contains(&finding.rule));
    let touches = || {
        let overlaps = |one: &Subject| finding.subjects.iter().any(|other| one.overlaps(other));
        by.subjects.is_empty() || finding.subjects.is_empty() || by.subjects.iter().any(overlaps)
    };
    silences && by.severity <= finding.severity && touches()
}

/// Returns the order of findings: severity, estimated loss, certainty, number of the rule.
fn rank(finding: &Finding) -> impl Ord + use<> {
    (
        finding.severity,
        std::cmp::Reverse(finding.lost_bps),
        finding.confidence,
        finding.rule,
    )
}

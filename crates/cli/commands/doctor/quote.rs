//! Findings of doctor in the output of other commands, one line each.

use nicstripe::bench::BenchReport;
use nicstripe_doctor::{Case, Finding, Severity, examine};

use crate::text::shown;

/// Returns the worst fault that a bench's report shows, with the command that explains it.
pub(crate) fn of_report(report: &BenchReport) -> Option<String> {
    let diagnosis = examine(&Case::of_report(report), &[]);
    diagnosis.findings.iter().find(is_fault).map(line)
}

/// Returns a finding with the command that explains it.
fn line(finding: &Finding) -> String {
    format!("{}: {}", shown(&finding.sentence), command(finding))
}

/// Returns the command that explains a finding.
pub(crate) fn command(finding: &Finding) -> String {
    format!("nicstripe doctor --explain {}", finding.rule)
}

fn is_fault(finding: &&Finding) -> bool {
    finding.severity <= Severity::Warning
}

//! Findings of doctor in the output of other commands, one line each.

use nicstripe::{LinkSurvey, Report, bench::BenchReport};
use nicstripe_doctor::{Case, Command, Diagnosis, Finding, Severity, Side, examine};
use nicstripe_link::facts::Facts;

use super::gather;
use crate::text::shown;

/// Returns the worst fault that a bench's report shows, with the command that explains it.
pub(crate) fn of_report(report: &BenchReport) -> Option<String> {
    let diagnosis = examine(&Case::of_report(report), &[]);
    diagnosis.findings.iter().find(is_fault).map(line)
}

/// Returns the worst fault of this machine that concerns an interface of a copy, with the command
/// that explains it. Omits the rules of [`remedies`].
pub(crate) fn of_copy(report: &Report) -> Option<String> {
    let survey = report.survey.as_ref()?;
    let diagnosis = examine(&case_of(survey, None), &[]);
    let used: Vec<&str> = report
        .links
        .iter()
        .map(|link| &*link.link.interface)
        .collect();
    let concerns = |finding: &&Finding| {
        let mut subjects = finding.subjects.iter();
        subjects.any(|subject| {
            let interface = subject.interface.as_deref();
            subject.side == Side::Here && interface.is_some_and(|name| used.contains(&name))
        })
    };
    let mut findings = diagnosis.findings.iter();
    findings
        .find(|finding| is_fault(finding) && !is_of_links(finding) && concerns(finding))
        .map(line)
}

/// Returns the faults of this machine and of the links to a peer, one line each, with the command
/// that explains each. Omits the rules of [`remedies`].
pub(crate) fn of_survey(survey: &LinkSurvey) -> Vec<String> {
    let diagnosis = examine(&case_of(survey, None), &[]);
    let findings = diagnosis.findings.iter();
    let told = findings.filter(|finding| is_fault(finding) && !is_of_links(finding));
    told.map(line).collect()
}

/// Returns the cures of links that failed, a line for each machine, its commands included.
pub(crate) fn remedies(survey: &LinkSurvey, port: Option<u16>) -> Vec<String> {
    if survey.failed.is_empty() {
        return Vec::new();
    }
    let Diagnosis { findings, .. } = examine(&case_of(survey, port), &OF_LINKS);
    let faults = || findings.iter().filter(is_fault);
    let of_side = |side| faults().filter_map(move |finding| remedy(finding, side));
    let without_commands = faults().filter(|finding| {
        let remedy = finding.remedy.as_ref();
        remedy.is_none_or(|remedy| remedy.commands.is_empty())
    });
    of_side(Side::There)
        .chain(of_side(Side::Here))
        .chain(without_commands.map(line))
        .collect()
}

/// Returns the commands of a finding for one machine in one line; `None` if it has none.
fn remedy(finding: &Finding, side: Side) -> Option<String> {
    let place = match side {
        Side::Here => "here",
        Side::There => "on the peer",
    };
    let remedy = finding.remedy.as_ref()?;
    let of = |commands: &[Command]| {
        let lines = commands.iter().filter(|command| command.side == side);
        let lines: Vec<&str> = lines.map(|command| command.line.as_str()).collect();
        lines.join("; ")
    };
    let (run, undo) = (of(&remedy.commands), of(&remedy.undo));
    let sentence = shown(&finding.sentence);
    (!run.is_empty()).then(|| format!("{place} ({sentence}), as root: {run}; to undo: {undo}"))
}

/// Returns what is known after a copy or a survey: facts about this machine, and what the session
/// knows of the peer.
fn case_of(survey: &LinkSurvey, port: Option<u16>) -> Case {
    let there = Facts {
        interfaces: survey.peer_interfaces.clone(),
        ..Facts::default()
    };
    Case {
        here: Facts::of_this_machine().into(),
        there: Some(there.into()),
        links: gather::links(survey, port),
        bench: None,
    }
}

fn line(finding: &Finding) -> String {
    format!("{}: {}", shown(&finding.sentence), command(finding))
}

pub(crate) fn command(finding: &Finding) -> String {
    format!("nicstripe doctor --explain {}", finding.rule)
}

/// Returns true if a finding costs rate, or is likely to.
pub(super) fn is_fault(finding: &&Finding) -> bool {
    finding.severity <= Severity::Warning
}

fn is_of_links(finding: &Finding) -> bool {
    OF_LINKS.contains(&finding.rule)
}

/// Rules about links that fail, although both ends have a cable.
const OF_LINKS: [u8; 4] = [1, 2, 12, 14];

//! The diagnosis on a screen, the worst first.

use clap::builder::styling::{AnsiColor, Style};
use nicstripe::BitRate;
use nicstripe_doctor::{Case, Command, Diagnosis, Finding, Severity, Side};

use super::picture;
use crate::{failure::Failure, output::stdout, text::shown};

/// Prints the diagnosis: the picture, the findings, and how much was examined. Only the first three
/// findings are in full, unless `all` is set.
pub(super) fn print(case: &Case, diagnosis: &Diagnosis, all: bool) -> Result<(), Failure> {
    let picture = picture::lines(case);
    picture.iter().try_for_each(stdout::line)?;
    if !picture.is_empty() {
        stdout::line("")?;
    }
    let told = |finding: &&Finding| all || finding.severity < Severity::Info;
    let findings: Vec<&Finding> = diagnosis.findings.iter().filter(told).collect();
    for (index, finding) in findings.iter().enumerate() {
        print_finding(case, finding, all || index < IN_FULL)?;
    }
    if findings.len() > IN_FULL && !all {
        stdout::line("         --all shows these in full")?;
    }
    if findings.is_empty() {
        stdout::line("no fault found")?;
    }
    stdout::line(summary(diagnosis))
}

fn print_finding(case: &Case, finding: &Finding, in_full: bool) -> Result<(), Failure> {
    let (word, style) = word(finding.severity);
    let cost = finding.lost_bps.filter(|bps| *bps > 0);
    let cost = cost.map_or_else(String::new, |bps| format!(", costs up to {}", BitRate(bps)));
    let sentence = shown(&finding.sentence);
    let rule = finding.rule;
    stdout::line(format_args!(
        "{style}{word:8}{style:#} {sentence}  [rule {rule}{cost}]"
    ))?;
    if !in_full {
        return Ok(());
    }
    let proofs = finding
        .evidence
        .iter()
        .map(|one| shown(format!("{} = {} ({})", one.fact, one.value, one.from)));
    for (index, proof) in proofs.enumerate() {
        let head = if index == 0 { "proof:" } else { "" };
        stdout::line(format_args!("         {head:7}{proof}"))?;
    }
    let Some(remedy) = &finding.remedy else {
        return Ok(());
    };
    stdout::line(format_args!("         try:   {}", shown(&remedy.advice)))?;
    print_commands(case, "run:", &remedy.commands)?;
    print_commands(case, "undo:", &remedy.undo)
}

/// Prints commands for root, and where to type them if there are two machines. The peer claims its
/// name, so it stands in quotes after our own word.
fn print_commands(case: &Case, head: &str, commands: &[Command]) -> Result<(), Failure> {
    let mut head = head;
    for command in commands {
        let place = match command.side {
            Side::Here if case.there.is_none() => String::new(),
            Side::Here => "   (here)".into(),
            Side::There => {
                let there = case.there.as_ref();
                let name = there.and_then(|machine| machine.facts.host.name.as_deref());
                let name = name.map_or_else(String::new, |name| format!(", {:?}", shown(name)));
                format!("   (there{name})")
            }
        };
        // The line has only plain words: escapes would change what a shell reads.
        stdout::line(format_args!("         {head:7}{}{place}", command.line))?;
        head = "";
    }
    Ok(())
}

/// Returns the last line: what was examined, and what was not.
fn summary(diagnosis: &Diagnosis) -> String {
    let mut parts = vec![format!("{} rules found nothing", diagnosis.clean.len())];
    if !diagnosis.not_visible.is_empty() {
        parts.push(format!(
            "{} cannot see their facts here",
            diagnosis.not_visible.len()
        ));
    }
    let mut needs: Vec<&str> = diagnosis
        .not_examined
        .iter()
        .map(|one| &*one.needs)
        .collect();
    needs.sort_unstable();
    needs.dedup();
    let wanted = needs.iter().map(|need| match *need {
        "--bench" => "HOST --bench",
        _ => "HOST",
    });
    let mut wanted: Vec<&str> = wanted.collect();
    wanted.dedup();
    if let Some(most) = wanted.into_iter().max_by_key(|words| words.len()) {
        let count = diagnosis.not_examined.len();
        parts.push(format!("{count} need `nicstripe doctor {most}`"));
    }
    parts.join("; ")
}

fn word(severity: Severity) -> (&'static str, Style) {
    match severity {
        Severity::Bad => ("BAD", AnsiColor::Red.on_default().bold()),
        Severity::Warning => ("WARN", AnsiColor::Yellow.on_default().bold()),
        Severity::Note => ("NOTE", AnsiColor::Cyan.on_default()),
        Severity::Info => ("INFO", Style::new()),
    }
}

/// Number of findings in full, so that they fit on one screen.
const IN_FULL: usize = 3;

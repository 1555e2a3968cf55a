//! The diagnosis as a JSON document, described in `docs/schema/doctor.schema.json`.

use nicstripe_doctor::{Case, Diagnosis, Finding, Section};

use crate::{
    failure::Failure,
    output::json::{Object, hinted_outcome},
};

/// Returns the document of what was examined, if anything was, and of the end of the command.
pub(super) fn of(examined: Option<(&Case, &Diagnosis)>, failure: Option<&Failure>) -> Object {
    Object::default()
        .with("schema", SCHEMA)
        .and(hinted_outcome(failure))
        .and(examined.map_or_else(Object::default, |(case, diagnosis)| judged(case, diagnosis)))
}

fn judged(case: &Case, diagnosis: &Diagnosis) -> Object {
    let names = std::iter::once(&case.here).chain(&case.there);
    let names: Vec<&str> = names
        .map(|machine| machine.facts.host.name.as_deref().unwrap_or_default())
        .collect();
    Object::default()
        .with("machines", names)
        .with("measured", case.bench.is_some())
        .list("findings", &diagnosis.findings, finding)
        .list("silenced", &diagnosis.silenced, finding)
        .with("clean", &diagnosis.clean)
        .with("not_visible", &diagnosis.not_visible)
        .with("not_examined", &diagnosis.not_examined)
        .with("links", Some(&case.links).filter(|links| !links.is_empty()))
}

fn finding(finding: &Finding) -> Object {
    Object::default()
        .with("rule", finding.rule)
        .with(
            "title",
            Section::of(finding.rule).map(|section| section.title),
        )
        .with("severity", finding.severity)
        .with("confidence", finding.confidence)
        .with("subjects", &finding.subjects)
        .with("sentence", &finding.sentence)
        .with("evidence", &finding.evidence)
        .with("remedy", &finding.remedy)
        .with("lost_bps", finding.lost_bps)
}

const SCHEMA: &str = "nicstripe-doctor/1";

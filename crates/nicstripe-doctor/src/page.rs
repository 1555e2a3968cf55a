//! The page of the rules, `docs/RULES.md`.

use std::fmt::Write as _;

use crate::rules::RULES;

/// Returns the text of `docs/RULES.md`, generated from the entries.
pub fn page() -> String {
    let mut text = String::from(HEAD);
    for rule in RULES {
        let _ = writeln!(
            text,
            "| [{id}](#rule-{id}) | {} | {} | {} | {} |",
            rule.title,
            rule.needs,
            cell(rule.threshold),
            cell(rule.lookalike),
            id = rule.id,
        );
    }
    for rule in RULES {
        let _ = write!(
            text,
            "\n## Rule {}\n\n**{}.** {}\n\n- Reads: {}.\n- Speaks: {}.\n- Source: {}.\n- Silent: {}.\n",
            rule.id,
            rule.title,
            rule.meaning,
            rule.reads,
            rule.threshold,
            rule.source,
            rule.lookalike
        );
        if !rule.silences.is_empty() {
            let silenced: Vec<String> = rule.silences.iter().map(u8::to_string).collect();
            let _ = writeln!(
                text,
                "- Explains, and so silences about the same interface: {}.",
                silenced.join(", ")
            );
        }
        if !rule.story.is_empty() {
            let _ = writeln!(text, "- Old report {}.", rule.story);
        }
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const HEAD: &str = "\
# The rules of `nicstripe doctor`

Generated from the entries in `crates/nicstripe-doctor/src/rules`; a test compares it. `nicstripe doctor --explain N` prints one of them.
The old reports are those of [FIVE-REPORTS.md](FIVE-REPORTS.md).

A rule speaks only if its facts are known. Doctor omits a finding that another one explains; `--json` lists it under `silenced`.

| rule | finding | needs | threshold | silent for |
| --- | --- | --- | --- | --- |
";

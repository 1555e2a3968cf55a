//! `doctor --explain N`: one rule in full.

use nicstripe_doctor::{Section, rule};

use crate::{failure::Failure, output::stdout};

pub(super) fn print(id: u8) -> Result<(), Failure> {
    let Some((rule, section)) = rule(id).zip(Section::of(id)) else {
        return Ok(());
    };
    stdout::line(format_args!("rule {id}: {}", section.title))?;
    let silences = rule.silences.iter().map(u8::to_string);
    let silences = silences.collect::<Vec<_>>().join(", ");
    let item = |name| section.item(name).unwrap_or_default().to_owned();
    let parts = [
        ("", section.meaning.to_owned()),
        ("reads", item("Reads")),
        ("speaks", item("Speaks")),
        ("silent", item("Silent")),
        ("source", item("Source")),
        ("needs", rule.needs.to_string()),
        ("explains", silences),
        ("report", item("Old report")),
    ];
    for (head, text) in parts.iter().filter(|(_, text)| !text.is_empty()) {
        stdout::line("")?;
        for (index, line) in wrapped(text).into_iter().enumerate() {
            let head = if index == 0 { head } else { "" };
            stdout::line(format!("  {head:9}{line}").trim_end())?;
        }
    }
    Ok(())
}

/// Breaks a text into lines of at most 80 columns.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > WIDTH {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

const WIDTH: usize = 80;

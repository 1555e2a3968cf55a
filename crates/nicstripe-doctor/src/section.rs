//! The texts of a rule: its section of `docs/RULES.md`.

/// Texts of a rule: its facts, its threshold, its reason.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Title, a noun phrase.
    pub title: &'static str,
    /// Meaning, and the reason why it costs rate, for a user without prior knowledge.
    pub meaning: &'static str,
    text: &'static str,
}

impl Section {
    /// Returns the section of the rule of this number; `None` if it has none.
    pub fn of(id: u8) -> Option<Self> {
        let (_, rest) = PAGE.split_once(&format!("\n## Rule {id}\n\n**"))?;
        let text = rest.split_once("\n## ").map_or(rest, |(text, _)| text);
        let (title, rest) = text.split_once(".** ")?;
        let meaning = rest.lines().next()?;
        Some(Self {
            title,
            meaning,
            text,
        })
    }

    /// Returns the item of this name, such as `Reads`; `None` if the section does not have it.
    pub fn item(&self, name: &str) -> Option<&'static str> {
        let mut lines = self.text.lines();
        lines.find_map(|line| {
            let item = line.strip_prefix("- ")?.strip_prefix(name)?;
            item.trim_start_matches([':', ' ']).strip_suffix('.')
        })
    }
}

pub(crate) const PAGE: &str = include_str!("../../../docs/RULES.md");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RULES;

    #[test]
    fn the_page_has_a_section_of_each_rule_which_says_what_the_rule_does() {
        for rule in RULES {
            let id = rule.id;
            let section = Section::of(id).unwrap_or_else(|| panic!("no section of rule {id}"));
            let row = format!(
                "| [{id}](#rule-{id}) | {} | {} |",
                section.title, rule.needs
            );
            assert!(PAGE.lines().any(|line| line == row), "{row}");
            for name in ["Reads", "Speaks", "Source", "Silent"] {
                let item = section.item(name).unwrap_or_default();
                assert!(!item.is_empty(), "rule {id}: {name}");
            }
            let silences: Vec<String> = rule.silences.iter().map(u8::to_string).collect();
            let told = section.item("Explains, and so silences about the same interface");
            assert_eq!(told.unwrap_or_default(), silences.join(", "), "rule {id}");
        }
        let sections = PAGE.matches("\n## Rule ").count();
        assert_eq!(sections, RULES.len());
    }
}

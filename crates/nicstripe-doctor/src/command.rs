//! Written lines for a shell, made of our own text and of plain words.

use std::fmt::{self, Display};

use serde::Serialize;

/// Line for a POSIX shell: text of this crate, in which each fact about a machine is a plain word.
///
/// A line has no quoted facts, so that what prints it can neither break nor add quotes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Line(String);

/// Line, or the fact that is in its way.
pub(crate) type Written = Result<Line, StrangeWord>;

/// Fact that a shell, or the program that it starts, could take for more than a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StrangeWord(String);

impl Line {
    /// Creates a line without a fact.
    pub(crate) fn own(text: &'static str) -> Written {
        Ok(Self(text.to_owned()))
    }

    /// Creates a line of the text, with a fact in place of each `{}`.
    ///
    /// # Errors
    ///
    /// A fact that is not [plain](is_plain).
    pub(crate) fn new(text: &'static str, facts: &[&dyn Display]) -> Written {
        Self(String::new()).then(text, facts)
    }

    /// Extends the line by a text, with a fact in place of each `{}`.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub(crate) fn then(mut self, text: &'static str, facts: &[&dyn Display]) -> Written {
        debug_assert_eq!(text.matches("{}").count(), facts.len());
        let mut facts = facts.iter().peekable();
        for (index, part) in text.split("{}").enumerate() {
            if let Some(fact) = facts.next_if(|_| index > 0) {
                let word = fact.to_string();
                if !is_plain(&word) {
                    return Err(StrangeWord(word));
                }
                self.0 += &word;
            }
            self.0 += part;
        }
        Ok(self)
    }

    /// Returns the line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Display for StrangeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, which is no plain word", self.0)
    }
}

/// Returns true if a word means only itself, to a shell and as an argument: letters, digits and
/// `._:@+-`, no `-` first, and neither `.` nor `..`.
pub fn is_plain(word: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._:@+-".contains(c);
    !word.is_empty()
        && !word.starts_with('-')
        && !matches!(word, "." | "..")
        && word.chars().all(is_known)
}

/// Returns a word for a sentence: as it is if it is plain, otherwise in quotes.
pub(crate) fn quoted(word: &str) -> String {
    match is_plain(word) {
        true => word.to_owned(),
        false => format!("{word:?}"),
    }
}

//! Code of an invitation and its text form.

use std::{fmt, str::FromStr};

use super::words::{FIRST, SECOND};
use crate::name::printable;

/// Maximum length of a code's text in bytes.
pub const MOST_CODE: usize = 25;

/// Number of an invitation, 1 to 999: finds the inviter on the network, and is not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(u16);

impl Number {
    /// Largest number.
    pub const LAST: Self = Self(999);

    /// Returns the number; `None` if it is not 1 to 999.
    pub fn new(number: u16) -> Option<Self> {
        (1..=Self::LAST.0).contains(&number).then_some(Self(number))
    }

    /// Returns the number as an integer.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Code of an invitation: its [`Number`] and two secret words, such as `7-crossover-violin`.
///
/// The words carry 16 bits, which suffice because an invitation ends at the first wrong guess.
/// `Debug` shows only the number, and there is no `Display`: a program prints [`Code::to_text`] on
/// purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    number: Number,
    first: u8,
    second: u8,
}

impl Code {
    /// Returns the code for four random bytes. Every pair of words is equally likely.
    pub fn from_random([low, high, first, second]: [u8; 4]) -> Self {
        let number = 1 + u16::from_le_bytes([low, high]) % Number::LAST.0;
        Self {
            number: Number(number),
            first,
            second,
        }
    }

    /// Returns the number.
    pub fn number(self) -> Number {
        self.number
    }

    /// Returns the text form, at most [`MOST_CODE`] bytes. It is secret until the invitation has
    /// ended.
    pub fn to_text(self) -> String {
        let (first, second) = (usize::from(self.first), usize::from(self.second));
        format!("{}-{}-{}", self.number, FIRST[first], SECOND[second])
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code")
            .field("number", &self.number.0)
            .finish_non_exhaustive()
    }
}

/// Reads a code as people type it: capitals, and blanks or underscores in place of dashes, are
/// accepted.
impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let is_separator = |c: char| c.is_whitespace() || "-_\u{2010}\u{2011}\u{2013}".contains(c);
        let parts: Vec<String> = text
            .split(is_separator)
            .filter(|part| !part.is_empty())
            .take(MOST_PARTS)
            .map(str::to_lowercase)
            .collect();
        let [number, first, second] = &parts[..] else {
            return Err(CodeError::Parts { found: parts.len() });
        };
        let invalid = || CodeError::Number {
            text: shown(number),
        };
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        let value = number.parse().ok().filter(|_| is_plain);
        let number = value.and_then(Number::new).ok_or_else(invalid)?;
        if position(&SECOND, first).is_some() && position(&FIRST, second).is_some() {
            return Err(CodeError::Swapped);
        }
        Ok(Self {
            number,
            first: word(&FIRST, first)?,
            second: word(&SECOND, second)?,
        })
    }
}

/// Reason why a text is not a code. Contains what was typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The text does not have three parts.
    #[error(
        "expected a number and two words, such as 7-crossover-violin, found {found} part{}",
        if *found == 1 { "" } else { "s" }
    )]
    Parts {
        /// Number of parts of the text.
        found: usize,
    },
    /// The first part is not a number from 1 to 999.
    #[error("invalid number \"{text}\" of a code: expected 1 to 999")]
    Number {
        /// Part as typed, escaped and truncated.
        text: String,
    },
    /// A word is in neither list.
    #[error("\"{text}\" is not a word of codes{}", did_you_mean(*nearest))]
    Word {
        /// Word as typed, escaped and truncated.
        text: String,
        /// Most similar word of the list; `None` if none is similar.
        nearest: Option<&'static str>,
    },
    /// Both words are valid, in the other order.
    #[error("the two words of the code are swapped")]
    Swapped,
}

fn did_you_mean(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |word| format!("; did you mean \"{word}\"?"))
}

fn position(list: &[&str; 256], word: &str) -> Option<u8> {
    let at = list.iter().position(|known| *known == word)?;
    u8::try_from(at).ok()
}

fn word(list: &[&'static str; 256], text: &str) -> Result<u8, CodeError> {
    position(list, text).ok_or_else(|| CodeError::Word {
        text: shown(text),
        nearest: nearest(list, text),
    })
}

/// Returns the word of `list` with the fewest changed letters from `text`; `None` if that is more
/// than half of them.
fn nearest(list: &[&'static str; 256], text: &str) -> Option<&'static str> {
    let text: Vec<char> = text.chars().take(MOST_SHOWN).collect();
    let distances = list.iter().map(|word| (distance(word, &text), *word));
    let (changes, word) = distances.min()?;
    (2 * changes <= word.len()).then_some(word)
}

/// Returns the Levenshtein distance of two words.
fn distance(word: &str, text: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=text.len()).collect();
    for (number, letter) in word.chars().enumerate() {
        let mut diagonal = number;
        row[0] = number + 1;
        for (at, other) in text.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[text.len()]
}

/// Returns a part as typed, for a message.
fn shown(part: &str) -> String {
    let start: String = part.chars().take(MOST_SHOWN).collect();
    printable(start.as_bytes())
}

/// Maximum number of characters of a typed part in a message. The longest word has 9.
const MOST_SHOWN: usize = 24;

/// Maximum number of parts that are counted.
const MOST_PARTS: usize = 9;

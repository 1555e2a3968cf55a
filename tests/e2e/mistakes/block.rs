//! Block of a transcript: a command line, its output and its exit code.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// Blank lines and comments before the command line.
    pub(super) preface: Vec<String>,
    /// Simulated machine on which the command runs, `laptop` or `nas`.
    pub(super) machine: String,
    pub(super) typed: String,
    /// Output lines: standard error, then standard output with a `> ` prefix.
    pub(super) printed: Vec<String>,
    /// Exit code of the command; `None` in a new block that has never run.
    pub(super) code: Option<i32>,
}

impl Block {
    /// Parses a transcript into its blocks.
    pub(super) fn all(text: &str) -> Vec<Self> {
        let (mut blocks, mut lines) = (Vec::new(), text.lines());
        let mut preface = Vec::new();
        while let Some(line) = lines.next() {
            let Some((machine, typed)) = line
                .split_once("$ ")
                .filter(|(machine, _)| ["laptop", "nas"].contains(machine))
            else {
                assert!(
                    line.is_empty() || line.starts_with('#'),
                    "neither a command line nor a comment: {line:?}"
                );
                preface.push(line.to_owned());
                continue;
            };
            let mut printed = Vec::new();
            let code = loop {
                let line = lines
                    .next()
                    .unwrap_or_else(|| panic!("{typed:?} has no exit code"));
                match code_of(line) {
                    Some(code) => break code,
                    None => printed.push(line.to_owned()),
                }
            };
            blocks.push(Self {
                preface: std::mem::take(&mut preface),
                machine: machine.into(),
                typed: typed.into(),
                printed,
                code,
            });
        }
        blocks
    }

    /// Returns a copy of the block with the actual output and exit code. Keeps an expected line
    /// with `[..]` if it matches the actual line.
    pub(super) fn ran(&self, printed: Vec<String>, code: Option<i32>) -> Self {
        let is_same = printed.len() == self.printed.len();
        let kept = |(index, line): (usize, String)| {
            self.printed
                .get(index)
                .filter(|expected| is_same && is_match(expected, &line))
                .cloned()
                .unwrap_or(line)
        };
        Self {
            printed: printed.into_iter().enumerate().map(kept).collect(),
            code,
            ..self.clone()
        }
    }

    /// Returns the block as text, with the differences from `ran` marked; `None` if there are no
    /// differences.
    pub(super) fn difference(&self, ran: &Self) -> Option<String> {
        if self == ran {
            return None;
        }
        let (expected, printed) = (self.body(), ran.body());
        let front = expected
            .iter()
            .zip(&printed)
            .take_while(|(one, other)| one == other)
            .count();
        let ends = expected[front..]
            .iter()
            .rev()
            .zip(printed[front..].iter().rev());
        let back = ends.take_while(|(one, other)| one == other).count();
        let marked = |mark: &str, lines: &[String]| {
            lines
                .iter()
                .map(|line| format!("{mark}{line}\n"))
                .collect::<String>()
        };
        Some(
            [
                format!("  {}$ {}\n", self.machine, self.typed),
                marked("  ", &expected[..front]),
                marked("- ", &expected[front..expected.len() - back]),
                marked("+ ", &printed[front..printed.len() - back]),
                marked("  ", &expected[expected.len() - back..]),
            ]
            .concat(),
        )
    }

    fn body(&self) -> Vec<String> {
        let code = self.code.map_or_else(String::new, |code| code.to_string());
        self.printed
            .iter()
            .cloned()
            .chain([format!("[{code}]")])
            .collect()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.preface
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "{}$ {}", self.machine, self.typed)?;
        self.body()
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Parses an exit code line: `[2]`, or `[]` in a new block. Returns `None` for any other line.
fn code_of(line: &str) -> Option<Option<i32>> {
    let code = line.strip_prefix('[')?.strip_suffix(']')?;
    if code.is_empty() {
        Some(None)
    } else {
        code.parse().ok().map(Some)
    }
}

/// Returns true if a line of output matches the expected line, in which `[..]` is a wildcard.
fn is_match(expected: &str, line: &str) -> bool {
    let parts: Vec<&str> = expected.split("[..]").collect();
    let [first, middle @ .., last] = &parts[..] else {
        return expected == line;
    };
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

//! The entry of a rule, and what all rules share.

use std::fmt;

use crate::{case::Case, finding::Finding};

/// Rule: number, needs and judge. Its texts are a section of `docs/RULES.md`.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Number by which users and reports refer to the rule. Never reused.
    pub id: u8,
    /// Input that the rule needs.
    pub needs: Needs,
    /// Rules whose findings about the same interface this rule's finding explains.
    pub silences: &'static [u8],
    /// Judge of the rule.
    pub(crate) judge: fn(&Case) -> Judgement,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.id)
    }
}

/// Input that a rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Facts about a machine.
    Machine,
    /// Facts about both machines.
    Both,
    /// Links to a peer.
    Links,
    /// A bench.
    Bench,
}

impl Needs {
    /// Returns true if the case has it.
    pub(crate) fn are_met(self, case: &Case) -> bool {
        match self {
            Self::Machine => true,
            Self::Both => case.there.is_some(),
            Self::Links => !case.links.is_empty(),
            Self::Bench => case.bench.is_some(),
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "this machine",
            Self::Both => "both machines",
            Self::Links => "a peer",
            Self::Bench => "--bench",
        })
    }
}

/// Outcome for one thing that a rule examined: nothing wrong, or a finding. `None` in its place means
/// that a fact is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Fine,
    Found(Box<Finding>),
}

impl Finding {
    pub(crate) fn seen(self) -> Option<Seen> {
        Some(self.into())
    }
}

impl From<Finding> for Seen {
    fn from(finding: Finding) -> Self {
        Self::Found(Box::new(finding))
    }
}

impl From<Option<Finding>> for Seen {
    fn from(finding: Option<Finding>) -> Self {
        finding.map_or(Self::Fine, Self::from)
    }
}

/// Result of a rule: what it found, and the number of things that it judged and could not judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) known: usize,
    pub(crate) unknown: usize,
    pub(crate) findings: Vec<Finding>,
}

impl FromIterator<Option<Seen>> for Judgement {
    fn from_iter<I: IntoIterator<Item = Option<Seen>>>(all: I) -> Self {
        let mut judgement = Self::default();
        for seen in all {
            match seen {
                None => judgement.unknown += 1,
                Some(Seen::Fine) => judgement.known += 1,
                Some(Seen::Found(finding)) => {
                    judgement.known += 1;
                    judgement.findings.push(*finding);
                }
            }
        }
        judgement
    }
}

/// Judges each of `all`. A `None` means that a fact is unknown.
pub(crate) fn each<T>(
    all: impl Iterator<Item = T>,
    judge: impl FnMut(T) -> Option<Seen>,
) -> Judgement {
    all.map(judge).collect()
}

//! Findings of rules: sentence, evidence, remedy.

use std::fmt::Display;

use nicstripe_bench::BenchLink;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    case::{Place, Side, line},
    command::{Line, Written},
};

/// Fault, or a remarkable state, that a rule found.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Number of the rule.
    pub rule: u8,
    /// Severity of the finding.
    pub severity: Severity,
    /// Certainty of the finding.
    pub confidence: Confidence,
    /// Machines and interfaces that the finding is about.
    pub subjects: Vec<Subject>,
    /// Finding in one sentence.
    pub sentence: String,
    /// Facts from which the finding follows.
    pub evidence: Vec<Evidence>,
    /// Cure; absent if there is nothing to do.
    pub remedy: Option<Remedy>,
    /// Estimated loss of rate in bit/s; absent if it is unknown.
    pub lost_bps: Option<u64>,
}

/// Severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Costs rate or data now.
    Bad,
    /// Is likely to cost rate under load, or for other programs.
    Warning,
    /// Worth knowing; costs little or nothing.
    Note,
    /// For information; shown on request.
    Info,
}

impl Severity {
    /// Returns `one` if the condition is true, otherwise `other`.
    pub(crate) fn either(condition: bool, one: Self, other: Self) -> Self {
        match condition {
            true => one,
            false => other,
        }
    }
}

/// Certainty of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Follows from the facts.
    Certain,
    /// Explains the facts better than anything else.
    Likely,
    /// One of several explanations.
    Possible,
}

/// Machine or interface that a finding is about.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// Machine.
    pub side: Side,
    /// Name of the interface; absent for the machine as a whole.
    pub interface: Option<String>,
}

impl Subject {
    /// Returns true if the two are about the same: equal, or one is the whole machine of the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let same = match (&self.interface, &other.interface) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.side == other.side && same
    }
}

impl From<Side> for Subject {
    fn from(side: Side) -> Self {
        Self {
            side,
            interface: None,
        }
    }
}

impl From<&Place<'_>> for Subject {
    fn from(place: &Place<'_>) -> Self {
        (place.side, &*place.interface.name).into()
    }
}

impl From<(Side, &str)> for Subject {
    fn from((side, interface): (Side, &str)) -> Self {
        Self {
            side,
            interface: Some(interface.to_owned()),
        }
    }
}

/// Fact with its value and its source on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Name of the fact, such as `speed of eth1`.
    pub fact: String,
    /// Value with its unit.
    pub value: String,
    /// Source of the fact, such as `ethtool eth1`.
    pub from: String,
}

/// Cure of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Advice in one sentence.
    pub advice: String,
    /// Commands to run as root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Command>,
    /// Commands that restore the present state, for root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo: Vec<Command>,
}

/// Command for a shell, and the machine where to type it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Command {
    /// Machine where to type it.
    pub side: Side,
    /// Line for a POSIX shell.
    pub line: Line,
}

impl Finding {
    /// Creates a finding with the sentence. [`examine`](crate::examine) adds the rule's number.
    pub(crate) fn new(severity: Severity, sentence: impl Into<String>) -> Self {
        Self {
            rule: 0,
            severity,
            confidence: Confidence::Certain,
            subjects: Vec::new(),
            sentence: sentence.into(),
            evidence: Vec::new(),
            remedy: None,
            lost_bps: None,
        }
    }

    pub(crate) fn about(mut self, subject: impl Into<Subject>) -> Self {
        self.subjects.push(subject.into());
        self
    }

    pub(crate) fn likely(mut self) -> Self {
        self.confidence = Confidence::Likely;
        self
    }

    pub(crate) fn possible(mut self) -> Self {
        self.confidence = Confidence::Possible;
        self
    }

    pub(crate) fn proof(
        mut self,
        fact: impl Into<String>,
        value: impl ToString,
        from: impl Into<String>,
    ) -> Self {
        self.evidence.push(Evidence {
            fact: fact.into(),
            value: value.to_string(),
            from: from.into(),
        });
        self
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.remedy.get_or_insert_default().advice = advice.into();
        self
    }

    /// Adds a command to the remedy, and the command that undoes it.
    ///
    /// If a word of either is strange, the advice names the word and has no command.
    pub(crate) fn run(mut self, side: Side, line: Written, undo: Option<Written>) -> Self {
        let remedy = self.remedy.get_or_insert_default();
        match (line, undo.transpose()) {
            (Ok(line), Ok(undo)) => {
                remedy.commands.push(Command { side, line });
                remedy.undo.extend(undo.map(|line| Command { side, line }));
            }
            (Err(strange), _) | (_, Err(strange)) => {
                let why = format!("no command for {strange}");
                if !remedy.advice.contains(&why) {
                    remedy.advice = format!("{}; {why}", remedy.advice);
                }
            }
        }
        self
    }

    /// Adds a command, and the same one with other facts, which undoes it.
    pub(crate) fn turn(
        self,
        side: Side,
        text: &'static str,
        to: &[&dyn Display],
        back: &[&dyn Display],
    ) -> Self {
        self.run(side, Line::new(text, to), Some(Line::new(text, back)))
    }

    /// Adds a command about an interface, whose name is its first fact, and the same one with another
    /// second fact, which undoes it.
    pub(crate) fn turn_at(
        self,
        place: &Place<'_>,
        text: &'static str,
        to: impl Display,
        back: impl Display,
    ) -> Self {
        let name = &place.interface.name;
        self.turn(place.side, text, &[name, &to], &[name, &back])
    }

    /// Adds the command that sets a kernel setting, and the one that sets it back.
    pub(crate) fn set(self, side: Side, name: &str, to: impl Display, from: impl Display) -> Self {
        self.turn(side, "sysctl -w {}={}", &[&name, &to], &[&name, &from])
    }

    pub(crate) fn costs(mut self, bps: Option<u64>) -> Self {
        self.lost_bps = bps;
        self
    }

    /// Adds an interface as a subject, and its line rate as a proof.
    pub(crate) fn about_rate(self, place: &Place<'_>) -> Self {
        let rate = line(place.interface.speed_mbps.unwrap_or_default());
        self.about(place).proof(place.fact("rate"), rate, "ethtool")
    }

    /// Adds both ends of a link as subjects.
    pub(crate) fn about_link(self, link: &BenchLink) -> Self {
        self.about((Side::Here, &*link.ends.client.name))
            .about((Side::There, &*link.ends.daemon.name))
    }
}

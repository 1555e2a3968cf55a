//! Rules that name what slows the links between two machines, and the cure.
//!
//! A [`Case`] has facts about one or two machines, the links between them, and a bench; [`examine`]
//! applies all [`RULES`] to it and returns a [`Diagnosis`]. This crate has no clock, file or socket.
//!
//! A rule is one entry in a file of `rules`: what it needs, its judge, and what it silences. Its
//! texts, with threshold and source, are a [`Section`] of `docs/RULES.md`. An unknown fact is never
//! a fault: a rule whose facts are unknown says nothing. To add a rule, write its section, its entry
//! and its test in the file of its subject, and name it in [`RULES`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod case;
mod command;
mod diagnosis;
mod finding;
mod report;
mod rule;
mod rules;
mod section;
mod snapshot;

pub use self::{
    case::{Case, LinkFacts, LinkState, Machine, Side},
    command::{Line, is_plain},
    diagnosis::{Diagnosis, Examined, examine},
    finding::{Command, Confidence, Evidence, Finding, Remedy, Severity, Subject},
    rule::{Needs, Rule},
    rules::{RULES, rule},
    section::Section,
    snapshot::{SNAPSHOT_SCHEMA, Snapshot, SnapshotError},
};

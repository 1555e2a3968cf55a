//! Rules that name what slows the links between two machines, and the cure.
//!
//! A [`Case`] has facts about one or two machines, the links between them, and a bench; [`examine`]
//! applies all [`RULES`] to it and returns a [`Diagnosis`]. This crate has no clock, file or socket.
//!
//! A rule is one entry in a file of `rules`: what it needs, its threshold and source, its judge, and
//! what it silences. An unknown fact is never a fault: a rule whose facts are unknown says nothing.
//! To add a rule, write its entry and its test in the file of its subject, and name it in [`RULES`];
//! `docs/RULES.md` is generated from the entries.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod case;
mod command;
mod diagnosis;
mod finding;
mod page;
mod report;
mod rule;
mod rules;
mod snapshot;

pub use self::{
    case::{Case, LinkFacts, LinkState, Machine, Side},
    command::{Line, is_plain},
    diagnosis::{Diagnosis, Examined, examine},
    finding::{Command, Confidence, Evidence, Finding, Remedy, Severity, Subject},
    page::page,
    rule::{Needs, Rule},
    rules::{RULES, rule},
    snapshot::{SNAPSHOT_SCHEMA, Snapshot, SnapshotError},
};

//! Measures the rates of the links between two machines, alone and together, through the sessions
//! and paths that copies use.
//!
//! [`crate::Client::bench`] runs a [`BenchPlan`] and returns a [`BenchReport`]; a [`crate::Daemon`]
//! takes part within its [`BenchLimits`]. The receiver counts bytes on its own clock; `figures`
//! merges the samples of both ends into one time line.

mod admission;
mod baseline;
mod control;
mod decided;
mod disk;
mod event;
mod evidence;
mod figures;
#[cfg(test)]
mod fixture;
mod links;
mod plan;
mod report;
mod run;
mod sampler;
mod summary;
mod sweep;

pub use self::{
    admission::BenchLimits,
    baseline::compare,
    event::BenchEvent,
    plan::{BenchPlan, DiskPlan},
    report::*,
    run::Bench,
    summary::{conclude, summarise},
};
pub(crate) use self::{
    admission::{Admissions, Desk, Ticket},
    disk::{StopOnDrop, serve as serve_disk},
    sampler::{CpuSampler, InterfaceCounters, facts},
};

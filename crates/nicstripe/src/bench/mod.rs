//! Measures what the links between two machines carry, alone and together, through the sessions and paths that copies use.
//!
//! [`crate::Client::bench`] measures what a [`BenchPlan`] says and gives a [`BenchReport`]; a [`crate::Daemon`] takes part within its
//! [`BenchLimits`]. Whoever receives counts, on its own clock, and the two ends' samples make one time line (`figures`).

mod admission;
mod baseline;
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
mod talk;

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

//! Measures what the links between two machines carry, alone and together, and names the
//! bottleneck.
//!
//! A [`Runner`] measures over the sessions of a [`Client`] and writes a [`BenchReport`]; a daemon
//! admits it through [`Admissions`]. The receiver counts bytes on its own clock; `figures` merges
//! the samples of both ends into one time line.
//!
//! `repeat` plans the loads and `sweep` the points of a sweep: each returns the next measurement
//! and takes its result, until no measurement is left. `window` derives a rate from a run's
//! counters, `statistics` aggregates repeats, and `evidence` and `limiter` explain a shortfall. All
//! of this is arithmetic, without clocks, sockets or files; `control` and `run` measure.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admission;
mod baseline;
mod client;
mod control;
mod event;
mod evidence;
mod figures;
#[cfg(test)]
#[path = "tests/fixture.rs"]
mod fixture;
mod limiter;
mod links;
mod metrics;
mod plan;
mod repeat;
mod report;
mod run;
mod sampler;
mod statistics;
mod summary;
mod sweep;
mod window;

pub use self::{
    admission::{Admissions, BenchLimits, Desk, QueueChannel, Ticket},
    baseline::compare,
    client::{
        BenchCommand, BenchNews, BenchPath, Client, Failure, Moved, Packets, Session, StopOnDrop,
    },
    event::BenchEvent,
    limiter::{
        BUSY_FROM, FULL_CORE, HELD_BACK_FROM, LONG_ROUND_TRIP, LOSS_FROM, OWN_CORE,
        SUFFICIENT_BUFFER_BYTES, THROTTLED_FROM, listed,
    },
    plan::{BenchPlan, DiskPlan},
    repeat::GOOD_SCALING,
    report::*,
    run::Runner,
    sampler::Sampler,
    statistics::median,
    summary::{conclude, summarise},
};

//! Bench decisions: link capacity, end of a measurement, statistics of its results, and the
//! limiting factor.
//!
//! All of it is arithmetic on measured values: no clock, no socket, no file. Times are
//! [`std::time::Duration`]s since an instant that the caller knows. A planner
//! ([`repeat::Schedule`], [`sweep::Planner`]) returns the next measurement and takes its result,
//! until nothing is left.
//!
//! Data flow: [`window`] derives a rate from a run's counters, [`statistics`] aggregates repeats,
//! and [`repeat`] decides how many are needed. [`theory`] and [`metrics`] compute the expected
//! values, and [`limiter`] finds the cause of a shortfall. [`sweep`] varies a size, and [`compare`]
//! detects regressions.

pub mod compare;
pub mod limiter;
pub mod metrics;
pub mod repeat;
pub mod statistics;
pub mod sweep;
pub mod theory;
pub mod window;

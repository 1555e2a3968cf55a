//! Decisions of a bench: next measurement, end of a measurement, statistics, theoretical rates and
//! limiting factors.
//!
//! All of it is arithmetic on measured values, without clocks, sockets or files. Times are
//! [`std::time::Duration`]s since an instant of the caller's choice. A planner
//! ([`repeat::Schedule`], [`sweep::Planner`]) returns the next measurement and takes its result,
//! until no measurement is left.
//!
//! [`window`] derives a rate from a run's counters, [`statistics`] aggregates repeats, and
//! [`repeat`] decides how many are needed. [`bdp`] and [`metrics`] compute expected values, and
//! [`limiter`] explains a shortfall. [`sweep`] varies a size, and [`compare`] detects regressions.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bdp;
pub mod compare;
pub mod limiter;
pub mod metrics;
pub mod repeat;
pub mod statistics;
pub mod sweep;
pub mod window;

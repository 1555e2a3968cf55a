//! What a bench decides: how much a link can carry, when a measurement may end, what its numbers are worth and what they mean.
//!
//! Everything here is arithmetic on what others have measured: no clock, no socket, no file. Times are given as [`std::time::Duration`]
//! since something that the caller knows; a machine that plans ([`repeat::Schedule`], [`sweep::Planner`]) is asked what to measure next and
//! told what came of it, until it has no more questions.
//!
//! The way of a number through this module: [`window`] takes it from the counters of a run, [`statistics`] joins those of repeats,
//! [`repeat`] says how many are needed, [`theory`] and [`metrics`] say what could be expected, [`limiter`] why it was not more, [`sweep`]
//! how it depends on a size, and [`compare`] whether it is worse than it was.

pub mod compare;
pub mod limiter;
pub mod metrics;
pub mod repeat;
pub mod statistics;
pub mod sweep;
pub mod theory;
pub mod window;

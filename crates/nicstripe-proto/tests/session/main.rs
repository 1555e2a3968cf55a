//! Tests of two sessions over a simulated network, in virtual time.
//!
//! `seeds.rs` describes how to run many seeds, or to repeat a failed one.

#![allow(clippy::unwrap_used)]

mod asks;
mod clock;
mod delta;
mod disk;
mod drive;
mod flaps;
mod harness;
mod holes;
mod hostile;
mod hostile_live;
mod live;
mod loads;
mod peer;
mod pipes;
mod random;
mod resume;
mod seeds;

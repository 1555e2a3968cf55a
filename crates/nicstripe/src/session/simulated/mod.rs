//! Tests of two sessions as they run, over a simulated network and in virtual time.
//!
//! Both ends run the event loop, the connections with TLS and the file code that are shipped. Only
//! three things are not real: the clock, which a paused runtime advances while all tasks wait, the
//! network below TLS ([`crate::wire::simulated`]), and the I/O threads, whose jobs are tasks that
//! take virtual time ([`crate::file::SimulatedDisk`]). Equal seeds give equal faults.
//!
//! Links have 100 Mbit/s and files some MiB, so that a test moves few bytes in many seconds.
#![allow(clippy::unwrap_used)]

mod asks;
mod batches;
mod budgets;
mod cancels;
mod damage;
mod disks;
mod faults;
mod files;
mod flaps;
mod flips;
mod frames;
pub(super) mod lab;
mod limits;
mod loads;
mod power;
mod random;
mod sizes;
mod streams;

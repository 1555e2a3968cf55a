//! Two sessions over a simulated network, in virtual time.
//!
//! `NICSTRIPE_SEEDS=N` makes the random runs N seeds long, `NICSTRIPE_SEED=K` runs only seed K; a failing seed prints the command.

#![allow(clippy::unwrap_used)]

mod delta;
mod disk;
mod drive;
mod faults;
mod flaps;
mod harness;
mod holes;
mod hostile;
mod hostile_live;
mod limits;
mod live;
mod peer;
mod pipes;
mod random;
mod ratios;
mod resume;
mod sizes;

//! Two sessions over a simulated network, in virtual time.
//!
//! How to run many seeds, and one that failed, is in `seeds.rs`.

#![allow(clippy::unwrap_used)]

mod asks;

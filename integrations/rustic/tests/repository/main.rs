//! Tests of the real rustic_core against a daemon in the same process, over loopback.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod backups;
mod files;
mod harness;
mod layout;
mod outages;
mod rights;
mod tree;

//! The real rustic_core on a daemon in the same process, over loopback: what it stores there is what it gets back.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod backups;
mod files;
mod harness;
mod layout;
mod outages;
mod rights;
mod tree;

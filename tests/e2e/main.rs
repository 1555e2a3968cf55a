//! End-to-end tests: real client and daemon processes, with addresses of the loopback interface as
//! links.
//!
//! Run by `cargo test --test e2e`; needs no privileges and no second network card. One module per
//! subject. Tests with simulated cables are in `tests/netns`, tests that need special programs or
//! privileges in `tests/machine`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod bench;
mod config;
mod copies;
mod deltas;
mod doctor;
mod example_backup;
mod examples;
mod exec;
mod follow;
mod hostile;
mod interruptions;
mod links;
mod logs;
mod ls;
mod many;
mod memory;
mod metrics;
mod mistakes;
mod names;
mod one_copy;
mod options;
mod output;
mod pairing;
mod pipes;
mod receipts;
mod reference;
mod refusals;
mod replacing;
mod replicas;
mod shares;
mod single;
mod sockets;
mod sources;
mod ssh;
mod ssh_start;
mod start;
mod status;
mod trees;
mod trees_changed;
mod trees_chosen;
mod trust;
mod tunnels;
mod verify;
mod way;

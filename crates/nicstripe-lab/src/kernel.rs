//! Kernel interfaces that the lab uses, one file for each kind.
//!
//! `message` has the rtnetlink messages about interfaces and addresses, `qdisc` and `filter` those
//! of traffic control. `bpf` loads the program that corrupts frames. `offload` and `settings`
//! change what netlink cannot. `namespace` creates the namespaces of the hosts and cables.

pub(crate) mod bpf;
pub(crate) mod filter;
pub(crate) mod message;
pub(crate) mod namespace;
pub(crate) mod offload;
pub(crate) mod qdisc;
pub(crate) mod settings;

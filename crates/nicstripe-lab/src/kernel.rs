//! Requests to the kernel, one file for each kind.
//!
//! `message` has those about interfaces and addresses, `qdisc` and `filter`
//! those of traffic control. `bpf` loads the program that corrupts frames, `offload` and `settings`
//! change what netlink cannot, `namespace` makes the hosts.

pub(crate) mod bpf;
pub(crate) mod filter;
pub(crate) mod message;
pub(crate) mod namespace;
pub(crate) mod offload;
pub(crate) mod qdisc;
pub(crate) mod settings;

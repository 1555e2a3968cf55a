//! Two hosts and N shaped cables on one kernel.
//!
//! A [`Lab`] lets a test, a bench or `nicstripe demo` show striping without a second machine. Hosts
//! A and B have interfaces `eth1..ethN`, joined by N cables with the rate and MTU of real Ethernet.
//! Cables can be cut, repaired, slowed down, or made to drop all frames silently while in use.
//! Counters report the traffic of each cable.
//!
//! ```no_run
//! use std::net::TcpListener;
//! use nicstripe_lab::{Host, Lab, LinkSpec};
//!
//! let lab = Lab::builder().link(LinkSpec::gigabit()).link(LinkSpec::mbit(100)).build()?;
//! let listener = lab.on(Host::B, || TcpListener::bind((lab.address(Host::B, 0), 7747)))?;
//! let client = lab.command(Host::A, "nicstripe").args(["links", "10.77.1.2"]).spawn();
//! lab.cut(1)?; // eth2 loses its carrier on both hosts
//! # Ok::<(), nicstripe_lab::LabError>(())
//! ```
//!
//! # Structure
//!
//! Three network namespaces: one for each host, and a third with the middle of every cable.
//!
//! ```text
//! host A          cables                          host B
//! eth1 ──veth── a1 ─ bridge cable1 ─ b1 ──veth── eth1      10.77.1.1/24 ── 10.77.1.2/24
//! eth2 ──veth── a2 ─ bridge cable2 ─ b2 ──veth── eth2      10.77.2.1/24 ── 10.77.2.2/24
//! ```
//!
//! - The middle makes a cut look like a pulled plug. With `a1` and `b1` down, both `eth1` lose
//!   their carrier, but stay administratively up with their addresses and routes.
//! - The bridge acts like a wire: no STP, no forward delay, no multicast snooping, no netfilter.
//!   (The alternative, a tc redirect, needs `act_mirred` and a classifier, which small kernels
//!   lack, and has no higher throughput.)
//! - Each host shapes its own egress with tbf, at the rate at which full frames move as on a cable:
//!   see [`LinkSpec`]. [`LinkSpec::shaped_in_the_middle`] hides the shaper from the hosts.
//! - Link-local IPv6 addresses are usable at once: duplicate address detection is off.
//! - Each cable is a separate subnet. The hosts' kernel settings are Debian's, independent of this
//!   machine: cubic, `tcp_rmem` 4096 131072 6291456, `tcp_wmem` 4096 16384 4194304, `rp_filter` 0,
//!   no metrics saved between connections.
//!
//! # Adverse conditions
//!
//! | condition | item |
//! | --- | --- |
//! | all cables on one switch, in one subnet | [`LabBuilder::one_subnet`] |
//! | cables without configured addresses | [`LinkSpec::bare`] |
//! | hosts without IPv6 | [`LabBuilder::without_ipv6`] |
//! | strict `rp_filter`, other ARP settings | [`LabBuilder::sysctl`], [`Lab::set_sysctl`] |
//! | silently dropped jumbo frames | [`LinkSpec::with_middle_mtu`] |
//! | a cable plugged in later | [`LinkSpec::unplugged`], [`Lab::heal`] |
//! | address and interface changes | [`Lab::add_address`], [`Lab::remove_address`], [`Lab::set_up`], [`Lab::set_mtu`] |
//! | random frame loss | [`Lab::lose`] |
//! | a firewall that drops traffic to a port | [`Lab::block`] |
//! | bit errors that TCP does not detect | [`Lab::corrupt`], [`Lab::corrupted`] |
//! | a cable with a delay | [`LinkSpec::with_delay`] |
//! | cables that share a bus | [`Lab::share_bus`] |
//! | a process with little CPU time | [`CpuQuota`] |
//! | a process with little memory | [`MemoryLimit`] |
//! | a host with more interfaces than the other | [`LinkSpec::only_on`] |
//!
//! With one subnet, a single switch is the middle of all cables:
//!
//! ```text
//! host A                                        host B
//! eth1 ──veth── a1 ─┐                  ┌─ b1 ──veth── eth1      10.9.0.11/24 and 10.9.0.21/24
//!                   ├─ bridge switch ──┤
//! eth2 ──veth── a2 ─┘                  └─ b2 ──veth── eth2      10.9.0.12/24 and 10.9.0.22/24
//! ```
//!
//! The lab uses only netlink and `/proc/sys`, and needs no `ip`, `tc` or `sysctl` program. The
//! kernel must have veth, bridge and tbf, which [`access()`] tests. Loss and firewalls also need
//! clsact and cls_bpf. A bus needs these plus ifb and act_mirred. Corruption needs bpf(2), which
//! only real root may use. A cable with a delay has a relay of packet sockets instead of a bridge
//! (small kernels lack netem).
//!
//! # Side effects
//!
//! Apart from one setting, a lab leaves nothing behind. Its namespaces have no name, and only this
//! process's file descriptors hold them. They vanish with the [`Lab`], and with the process however
//! it ends. The group of a [`CpuQuota`] or [`MemoryLimit`] is removed when it is dropped or its
//! process ends.
//!
//! A lab of real root may change one setting of the machine: it adds cubic to
//! `net.ipv4.tcp_allowed_congestion_control` if it is missing, because a namespace can use only the
//! entries of that list.
//!
//! # Privileges
//!
//! Root can build a lab at once. Other users must first enter a user namespace, if the machine
//! allows it, while the process has a single thread. Call [`gain_access`] first in `main` for this.
//! [`access()`] only reports the way, or the reason that none works, as a sentence for the user.
//!
//! # Limits
//!
//! - `/sys/class/net` inside a host shows the outer machine, because no private `/sys` is mounted.
//!   Read `/proc/net` or netlink.
//! - Time is real: rates hold while the machine has spare CPU, and the round-trip time is that of
//!   the queues.
//! - Linux only. On other systems the crate is empty.
#![cfg(target_os = "linux")]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access;
mod address;
mod cable;
pub(crate) mod counters;
mod error;
mod host;
mod kernel;
mod lab;
mod quota;
mod rate;
mod signals;
mod spec;

pub use crate::{
    access::{Access, Unavailable, access, enter_user_namespace, gain_access},
    counters::{LinkCounters, Traffic},
    error::LabError,
    host::{Direction, Host},
    kernel::filter::Transport,
    lab::{Lab, builder::LabBuilder, fault::can_corrupt},
    quota::{CpuQuota, MemoryLimit},
    rate::BitRate,
    signals::take_ignored_signals,
    spec::{LinkSpec, MAX_LINKS, MAX_LINKS_IN_ONE_SUBNET},
};

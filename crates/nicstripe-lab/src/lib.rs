//! Two hosts and N shaped cables on one kernel.
//!
//! A [`Lab`] is what a test, a bench or `nicstripe demo` needs to show striping without a second machine: hosts A and B, each with
//! interfaces `eth1..ethN`, joined by N cables with the rate and MTU of real Ethernet. Cables can be cut and healed, made to lose
//! everything silently, and slowed down while in use; counters tell which cable carried what.
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
//! # How it is built
//!
//! Three network namespaces: one for each host, and a third that holds the middle of every cable.
//!
//! ```text
//! host A          cables                          host B
//! eth1 ──veth── a1 ─ bridge cable1 ─ b1 ──veth── eth1      10.77.1.1/24 ── 10.77.1.2/24
//! eth2 ──veth── a2 ─ bridge cable2 ─ b2 ──veth── eth2      10.77.2.1/24 ── 10.77.2.2/24
//! ```
//!
//! - The middle is why a cut looks like a pulled plug: setting `a1` and `b1` down takes the carrier from both `eth1`, which stay
//!   administratively up with their addresses and routes.
//! - The bridge is a piece of wire: no STP, no forward delay, no multicast snooping, no netfilter. (A tc redirect
//!   would be the alternative; it needs `act_mirred` and a classifier, which small kernels leave out, and it carries no more.)
//! - Each host shapes its own egress with tbf, at the rate that makes full frames move as on a cable: see [`LinkSpec`].
//! - Link-local IPv6 addresses are there at once: duplicate address detection is off.
//! - Each cable is a subnet of its own. The kernel's settings in the hosts are Debian's, whatever this machine has chosen: cubic,
//!   `tcp_rmem` 4096 131072 6291456, `tcp_wmem` 4096 16384 4194304, `rp_filter` 0, no metrics kept from one connection for the next.
//!
//! # Labs that are harder on what runs in them
//!
//! | what | how |
//! | --- | --- |
//! | all cables end at one switch, in one subnet | [`LabBuilder::one_subnet`] |
//! | cables that nobody gave addresses to | [`LinkSpec::bare`] |
//! | hosts without IPv6 | [`LabBuilder::without_ipv6`] |
//! | strict `rp_filter`, other answers to ARP | [`LabBuilder::sysctl`], [`Lab::set_sysctl`] |
//! | jumbo frames that vanish on the way | [`LinkSpec::with_middle_mtu`] |
//! | a cable that is plugged in later | [`LinkSpec::unplugged`], [`Lab::plug`] |
//! | addresses and interfaces that come and go | [`Lab::add_address`], [`Lab::remove_address`], [`Lab::set_up`] |
//! | a cable that loses one frame in a hundred | [`Lab::lose`] |
//! | a firewall that drops what comes to a port | [`Lab::block`] |
//! | a cable that changes bits, and TCP does not notice | [`Lab::corrupt`], [`Lab::corrupted`] |
//! | a cable that takes its time | [`LinkSpec::with_delay`] |
//! | cables that share a bus | [`Lab::share_bus`] |
//! | a process that gets little of the processor | [`CpuQuota`] |
//! | a host with more interfaces than the other | [`LinkSpec::only_on`] |
//!
//! On one subnet the middle looks otherwise:
//!
//! ```text
//! host A                                        host B
//! eth1 ──veth── a1 ─┐                  ┌─ b1 ──veth── eth1      10.9.0.11/24 and 10.9.0.21/24
//!                   ├─ bridge switch ──┤
//! eth2 ──veth── a2 ─┘                  └─ b2 ──veth── eth2      10.9.0.12/24 and 10.9.0.22/24
//! ```
//!
//! Everything is done by netlink and `/proc/sys`; no `ip`, `tc` or `sysctl` program is needed. The kernel must offer veth, bridge
//! and tbf, which [`access()`] tries out; for loss and firewalls also clsact and cls_bpf, for a bus these and ifb and act_mirred, for corruption bpf(2), which is
//! real root's alone. A cable with a delay has a relay of packet sockets instead of a bridge (netem is left out of small kernels).
//!
//! # What stays outside
//!
//! Nothing, but for a [`CpuQuota`], whose group is removed when it is dropped or its process ends. The namespaces have no name and are held by this process's file descriptors alone, so they vanish with the [`Lab`], and
//! with the process however it ends. One setting of the machine may be touched, by real root only: cubic is added to
//! `net.ipv4.tcp_allowed_congestion_control` when it is missing there, since a namespace may choose from that list alone.
//!
//! # Rights
//!
//! Root may build a lab at once. Anyone else must first enter a user namespace, where the machine allows it, and while the process
//! has a single thread. [`gain_access`], first thing in `main`, does what is needed; [`access()`] only tells which way is open, or why
//! none is, in a sentence for the user.
//!
//! # Limits
//!
//! - `/sys/class/net` as seen inside a host is the outer machine's (no private `/sys` is mounted): read `/proc/net` or netlink.
//! - Time is real: rates hold as long as the machine has CPU to spare, and the round trip is that of the queues.
//! - Linux only. On other systems the crate is empty.
#![cfg(target_os = "linux")]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access;
mod address;
mod bpf;
mod builder;
mod bus;
mod cable;
mod counters;
mod error;
mod fault;
mod filter;
mod host;
mod lab;
mod message;
mod namespace;
mod netlink;
mod offload;
mod packet;
mod qdisc;
mod quota;
mod relay;
mod settings;
mod spec;
mod wiring;

pub use crate::{
    access::{Access, Unavailable, access, enter_user_namespace, gain_access},
    builder::LabBuilder,
    counters::{LinkCounters, Traffic},
    error::LabError,
    fault::can_corrupt,
    filter::Transport,
    lab::{Direction, Host, Lab},
    quota::CpuQuota,
    spec::{BitRate, LinkSpec, MAX_LINKS, MAX_LINKS_IN_ONE_SUBNET},
};

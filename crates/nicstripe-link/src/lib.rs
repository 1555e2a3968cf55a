//! What nicstripe asks of the operating system: interfaces and their addresses, sockets pinned to an interface, what TCP
//! knows about a connection, host routes, and changes as they happen.
//!
//! One small function per question, typed answers, no policy about transfers: which interfaces are used, how much is sent
//! on each and what a dead one means is decided elsewhere. The one exception is [`may_install`], because the rule about
//! which routes may never be touched belongs beside the code that could touch them.
//!
//! | question | answer |
//! | --- | --- |
//! | which interfaces are there, and which of them are cables? | [`interfaces`], [`Interface::candidate`] |
//! | tell me when one changes | [`Changes`] |
//! | a listener or a connection on exactly this interface | [`listen`], [`pinned_socket`], [`arrival_interface`] |
//! | who is on this cable, before anybody has an address? | [`multicast_listener`], [`multicast_sender`], [`receive_from_neighbour`] |
//! | how is this connection doing? | [`tcp_info`], [`tune`], [`change_congestion`], [`set_buffers`] |
//! | what has it carried? how does a bond spread? | [`counters`], [`streams_for`] |
//! | what keeps cables of one subnet apart, and what would help? | [`Sysctls`], [`arp_flux_remedy`], [`strict_path_remedies`] |
//! | which way would the kernel send this? | [`route_to`], [`interface_for`] |
//! | send this address by that interface | [`RouteHelper`], [`Routes`], [`may_install`] |
//! | give this interface another MTU for a while | [`RouteHelper::set_mtu`], [`Mtus`] |
//! | what machine is this, and what does it do meanwhile? | [`HostFacts`], [`CpuMeter`], [`interface_details`], [`file_system`] |
//! | may this process do so? not any more | [`may_change_routes`], [`give_up_routes`] |
//! | does it get that many threads? | [`check_threads`] |
//!
//! Everything but [`Changes`] is synchronous: the kernel answers netlink requests inside the system call, so there is
//! nothing to wait for. Linux only so far; where a feature needs a kernel newer than 4.11, its item says so.
//!
//! Netlink is read by hand (`netlink.rs`), by attribute, and what is not understood is skipped: a typed decoder that
//! rejects a whole message because a newer kernel changed one attribute would hide a cable.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub use crate::{
    bond::{Bond, BondMode, BondStreams, TransmitHash, streams_for},
    counters::{Counters, counters},
    cpu::{CpuMeter, CpuReading, CpuSpent},
    enumerate::{InterfacesError, interfaces},
    ethtool::{Duplex, InterfaceDetails, interface_details},
    events::{Change, Changes},
    file_system::file_system,
    host_facts::HostFacts,
    interface::{Interface, InterfaceAddress, InterfaceIndex, InterfaceKind, InterfaceName, InvalidName, LeftOut, LineRate, MacAddress},
    lookup::{RouteTo, interface_for, route_to},
    mtu::{ChangedMtu, MAX_MTU, MIN_MTU, MtuError, Mtus},
    multicast::{multicast_listener, multicast_sender, receive_from_neighbour, send_to_neighbour},
    remedy::{Remedy, StrictPath, arp_flux_remedy, strict_path_remedies},
    rights::{give_up_routes, may_change_routes},
    route_helper::RouteHelper,
    route_policy::{Refusal, Surroundings, may_install},
    route_server::{SHARED_STATE_DIR, route_helper_main},
    routes::{HostRoute, MAX_ROUTES, ROUTE_PROTOCOL, RouteError, Routes},
    socket::{arrival_interface, listen, pinned_socket},
    sysctls::{Setting, Sysctls},
    tcp_info::{TcpInfo, tcp_info},
    threads::check_threads,
    tune::{
        BufferSizes, Keepalive, MIN_USER_TIMEOUT, NotTaken, StreamOption, StreamOptions, UserTimeout, UserTimeoutTooShort, buffers,
        change_congestion, set_buffers, tune,
    },
};

mod bond;
mod counters;
mod cpu;
mod egress_limit;
mod enumerate;
mod ethtool;
mod events;
mod file_system;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod host_facts;
mod interface;
mod line_rate;
mod lookup;
mod mtu;
mod mtu_server;
mod multicast;
mod neighbours;
mod netlink;
mod remedy;
mod rights;
mod route_helper;
mod route_ledger;
mod route_policy;
mod route_protocol;
mod route_server;
mod route_table;
mod routes;
mod socket;
mod sockopt;
mod sysctls;
mod sysfs;
mod tcp_info;
mod threads;
mod tune;

//! Linux networking primitives for nicstripe: interfaces and their addresses, sockets bound to an
//! interface, TCP statistics, host routes, and change notifications.
//!
//! Each public function answers one question about the kernel, and none decides how to transfer.
//! Callers decide which interfaces to use, how much to send on each, and how to react to a failed
//! one. The exception is [`may_install`]: the rule that protects existing routes stays next to the
//! code that could change them.
//!
//! | task | item |
//! | --- | --- |
//! | list interfaces and find those with a cable | [`interfaces`], [`Interface::candidate`] |
//! | subscribe to interface changes | [`Changes`] |
//! | listen or connect on one interface | [`listen`], [`pinned_socket`], [`arrival_interface`] |
//! | find out who rejected a connection | [`queue_icmp_errors`], [`icmp_error`] |
//! | discover neighbours before addresses exist | [`multicast_listener`], [`multicast_sender`], [`receive_from_neighbour`] |
//! | read and tune a TCP connection | [`tcp_info`], [`tune`], [`change_congestion`], [`set_buffers`], [`limit_unsent`], [`set_low_water`] |
//! | read traffic counters and bond settings | [`counters`], [`Bond::streams`] |
//! | diagnose several cables on one subnet | [`ipv4_setting`] |
//! | query the kernel's route and neighbours | [`route_to`], [`interface_for`], [`is_neighbour`] |
//! | route an address through one interface | [`RouteHelper`], [`Routes`], [`may_install`] |
//! | change an interface's MTU temporarily | [`RouteHelper::set_mtu`], [`Mtus`] |
//! | read facts about this or a recorded machine | [`facts`], [`boot_id`], [`file_system`] |
//! | measure the CPU load | [`CpuMeter`] |
//! | check and drop privileges | [`may_change_routes`], [`give_up_routes`] |
//! | find out whether a program writes to a file | [`ReadLease`] |
//! | check the thread limit | [`check_threads`] |
//! | read and set signal dispositions | [`is_signal_ignored`], [`ignore_file_size_signal`] |
//! | find closed standard streams | [`was_closed_at_start`] |
//! | keep inherited descriptors from started programs | [`keep_descriptors`] |
//!
//! Everything except [`Changes`] is synchronous: the kernel answers netlink requests inside the
//! system call. Linux only; an item's doc names the kernel version if it needs more than 4.11.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub use crate::{
    helper::{
        client::RouteHelper,
        protocol::HelperError,
        rights::{give_up_routes, may_change_routes},
        server::route_helper_main,
    },
    host::{
        cpu::{CpuMeter, CpuReading, CpuSpent},
        descriptors::keep_descriptors,
        file_system::file_system,
        lease::ReadLease,
        signals::{ignore_file_size_signal, is_signal_ignored},
        streams::was_closed_at_start,
        threads::check_threads,
    },
    interface::{
        Interface, InterfaceIndex, InterfaceKind, LeftOut, LineRate,
        address::InterfaceAddress,
        bond::Bond,
        counters::{Counters, counters},
        enumerate::{InterfacesError, interfaces},
        events::{Change, Changes},
        name::{InterfaceName, InvalidName, MacAddress},
        sysctls::ipv4_setting,
    },
    ledger::{SHARED_STATE_DIR, boot_id},
    mtu::{ChangedMtu, MAX_MTU, MIN_MTU, MtuError, manager::Mtus},
    routes::{
        HostRoute, MAX_ROUTES, RouteError,
        lookup::{RouteTo, interface_for, route_to},
        manager::Routes,
        neighbours::is_neighbour,
        policy::{Surroundings, may_install},
        refusal::Refusal,
    },
    socket::{
        arrival_interface,
        icmp::{IcmpError, IcmpMeaning, icmp_error, queue_icmp_errors},
        listen,
        multicast::{
            multicast_listener, multicast_sender, receive_from_neighbour, send_to_neighbour,
            shared_multicast_listener,
        },
        pinned_socket,
        tcp_info::{TcpInfo, tcp_info},
        tune::{NotTaken, change_congestion, limit_unsent, set_buffers, set_low_water, tune},
    },
};

pub mod facts;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod helper;
mod host;
mod interface;
mod ledger;
mod mtu;
mod routes;
mod socket;

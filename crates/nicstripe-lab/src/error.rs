//! What can go wrong while a lab is built or used.

use std::io;

use crate::{lab::Host, spec::BitRate};

/// A lab could not be built, or one of its cables not be handled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// More links were asked for than there are addresses.
    #[error("{links} links exceed the limit of {limit}")]
    TooManyLinks {
        /// How many were asked for.
        links: usize,
        /// The most allowed: [`MAX_LINKS`](crate::MAX_LINKS), or [`MAX_LINKS_IN_ONE_SUBNET`](crate::MAX_LINKS_IN_ONE_SUBNET).
        limit: usize,
    },
    /// A link was asked for with an MTU outside the bounds of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: mtu of {mtu} bytes is outside {min} to {max}")]
    Mtu {
        /// Index of the link.
        link: usize,
        /// The MTU asked for.
        mtu: u32,
        /// The least allowed.
        min: u32,
        /// The greatest allowed.
        max: u32,
    },
    /// A link was asked for with a line rate below the bound of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: line rate of {rate} is below the least, {min}")]
    Rate {
        /// Index of the link.
        link: usize,
        /// The rate asked for.
        rate: BitRate,
        /// The least allowed.
        min: BitRate,
    },
    /// A link was asked for with a longer delay than [`LinkSpec`](crate::LinkSpec) allows.
    #[error("link {link}: delay of {delay_ms} ms exceeds the limit of {max_ms}")]
    Delay {
        /// Index of the link.
        link: usize,
        /// The delay asked for, in milliseconds.
        delay_ms: u128,
        /// The most allowed.
        max_ms: u128,
    },
    /// A link with a delay was asked for in a lab of [one subnet](crate::LabBuilder::one_subnet), whose switch has none.
    #[error("link {link}: a cable to a switch has no delay")]
    DelayedSwitch {
        /// Index of the link.
        link: usize,
    },
    /// A bus was asked for that is slower than any cable.
    #[error("rate of the bus of {rate} is below the least, {min}")]
    BusRate {
        /// The rate asked for.
        rate: BitRate,
        /// The least allowed.
        min: BitRate,
    },
    /// There is no cpu controller of control groups here, neither of version 1 nor of 2.
    #[error("no control group here limits processor time")]
    NoCpuGroups,
    /// A link was named that the lab does not have.
    #[error("no link {link} in a lab of {links} (they count from 0)")]
    NoSuchLink {
        /// The index given.
        link: usize,
        /// How many links there are.
        links: usize,
    },
    /// A host was named that has no interface on this link ([`LinkSpec::only_on`](crate::LinkSpec::only_on)).
    #[error("link {link} has no interface on host {host}")]
    NotOnHost {
        /// Index of the link.
        link: usize,
        /// The host given.
        host: Host,
    },
    /// What was given as a share of frames is none.
    #[error("invalid share {share}: expected a number from 0 to 1")]
    Share {
        /// What was given.
        share: f64,
    },
    /// What was given as an address with the length of its prefix is none.
    #[error("invalid address \"{text}\": expected one like 10.0.9.1/24 or fd00::1/64")]
    Address {
        /// What was given.
        text: String,
    },
    /// What was given as a setting is none that a host has for itself.
    #[error("invalid setting \"{name}\": expected one below net, like net/ipv4/conf/all/rp_filter")]
    SettingName {
        /// What was given.
        name: String,
    },
    /// The kernel made no network namespace. [`access`](crate::access()) tells why.
    #[error("cannot make a network namespace")]
    Namespace(#[source] io::Error),
    /// A thread could not enter a host's namespace; the process has lost its rights since the lab was built.
    #[error("cannot enter the namespace of host {host}")]
    Enter {
        /// The host.
        host: Host,
        /// What the kernel said.
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread for the lab")]
    Thread(#[source] io::Error),
    /// A setting of a namespace could not be written; `/proc/sys` may be mounted read-only.
    #[error("cannot set {name} to \"{value}\"")]
    Sysctl {
        /// The setting, as it was given.
        name: String,
        /// The value it should have had.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// No netlink socket could be opened.
    #[error("cannot open a netlink socket")]
    Netlink(#[source] io::Error),
    /// The kernel refused a request.
    #[error("cannot {action}")]
    Kernel {
        /// What was asked of it.
        action: String,
        /// What it said.
        source: io::Error,
    },
    /// A host did not see the carrier come or go in time.
    #[error("eth{} is still {} {timeout_ms} ms after its cable was {}",
        link + 1, if *healed { "down" } else { "up" }, if *healed { "plugged in" } else { "cut" })]
    Carrier {
        /// Index of the link.
        link: usize,
        /// Whether the carrier should have come (or have gone).
        healed: bool,
        /// How long was waited, in milliseconds.
        timeout_ms: u128,
    },
}

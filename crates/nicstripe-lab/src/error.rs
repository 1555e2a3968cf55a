//! Errors of building or using a lab.

use std::io;

use crate::{lab::Host, spec::BitRate};

/// Error of building a lab, or of changing one of its cables.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// More links than addresses.
    #[error("{links} links exceed the limit of {limit}")]
    TooManyLinks {
        /// Requested number of links.
        links: usize,
        /// Maximum: [`MAX_LINKS`](crate::MAX_LINKS), or
        /// [`MAX_LINKS_IN_ONE_SUBNET`](crate::MAX_LINKS_IN_ONE_SUBNET).
        limit: usize,
    },
    /// MTU outside the bounds of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: mtu of {mtu} bytes is outside {min} to {max}")]
    Mtu {
        /// Index of the link.
        link: usize,
        /// Requested MTU, in bytes.
        mtu: u32,
        /// Minimum MTU, in bytes.
        min: u32,
        /// Maximum MTU, in bytes.
        max: u32,
    },
    /// Line rate below the minimum of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: line rate of {rate} is below the least, {min}")]
    Rate {
        /// Index of the link.
        link: usize,
        /// Requested rate.
        rate: BitRate,
        /// Minimum rate.
        min: BitRate,
    },
    /// Delay above the maximum of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: delay of {delay_ms} ms exceeds the limit of {max_ms}")]
    Delay {
        /// Index of the link.
        link: usize,
        /// Requested delay, in milliseconds.
        delay_ms: u128,
        /// Maximum delay, in milliseconds.
        max_ms: u128,
    },
    /// Delay for a link in a lab of [one subnet](crate::LabBuilder::one_subnet), whose switch
    /// supports none.
    #[error("link {link}: a cable to a switch has no delay")]
    DelayedSwitch {
        /// Index of the link.
        link: usize,
    },
    /// Rate of a bus below the minimum line rate.
    #[error("rate of the bus of {rate} is below the least, {min}")]
    BusRate {
        /// Requested rate.
        rate: BitRate,
        /// Minimum rate.
        min: BitRate,
    },
    /// No cpu controller of control groups is available, neither version 1 nor version 2.
    #[error("no control group here limits processor time")]
    NoCpuGroups,
    /// The lab has no such link.
    #[error("no link {link} in a lab of {links} (they count from 0)")]
    NoSuchLink {
        /// The requested index.
        link: usize,
        /// Number of links in the lab.
        links: usize,
    },
    /// The host has no interface on this link ([`LinkSpec::only_on`](crate::LinkSpec::only_on)).
    #[error("link {link} has no interface on host {host}")]
    NotOnHost {
        /// Index of the link.
        link: usize,
        /// The requested host.
        host: Host,
    },
    /// Invalid share of frames.
    #[error("invalid share {share}: expected a number from 0 to 1")]
    Share {
        /// The rejected value.
        share: f64,
    },
    /// Invalid address with prefix length.
    #[error("invalid address \"{text}\": expected one like 10.0.9.1/24 or fd00::1/64")]
    Address {
        /// The rejected text.
        text: String,
    },
    /// Invalid name of a setting, or not a setting of a single host.
    #[error("invalid setting \"{name}\": expected one below net, like net/ipv4/conf/all/rp_filter")]
    SettingName {
        /// The rejected name.
        name: String,
    },
    /// Cannot create a network namespace. [`access`](crate::access()) gives the reason.
    #[error("cannot make a network namespace")]
    Namespace(#[source] io::Error),
    /// A thread could not enter a host's namespace; the process has lost its privileges since the
    /// lab was built.
    #[error("cannot enter the namespace of host {host}")]
    Enter {
        /// The host.
        host: Host,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Cannot start a thread.
    #[error("cannot start a thread for the lab")]
    Thread(#[source] io::Error),
    /// Cannot write a setting of a namespace; `/proc/sys` may be mounted read-only.
    #[error("cannot set {name} to \"{value}\"")]
    Sysctl {
        /// Name of the setting, as requested.
        name: String,
        /// Requested value.
        value: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Cannot open a netlink socket.
    #[error("cannot open a netlink socket")]
    Netlink(#[source] io::Error),
    /// The kernel refused a request.
    #[error("cannot {action}")]
    Kernel {
        /// The refused action.
        action: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A host did not see the carrier change in time.
    #[error("eth{} is still {} {timeout_ms} ms after its cable was {}",
        link + 1, if *healed { "down" } else { "up" }, if *healed { "plugged in" } else { "cut" })]
    Carrier {
        /// Index of the link.
        link: usize,
        /// True if the carrier should have appeared, false if it should have disappeared.
        healed: bool,
        /// Time spent waiting, in milliseconds.
        timeout_ms: u128,
    },
}

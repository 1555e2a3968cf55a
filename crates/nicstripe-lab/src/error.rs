//! Error of building or using a lab.

use std::{fmt, io};

use crate::{host::Host, rate::BitRate};

/// Error of building a lab, or of an operation on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The lab has more links than its address range allows.
    #[error("{links} links exceed the limit of {limit}")]
    TooManyLinks {
        /// Requested number of links.
        links: usize,
        /// Maximum number of links: [`MAX_LINKS`](crate::MAX_LINKS), or
        /// [`MAX_LINKS_IN_ONE_SUBNET`](crate::MAX_LINKS_IN_ONE_SUBNET).
        limit: usize,
    },
    /// The MTU is outside the bounds of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: mtu of {mtu} bytes is outside {min} to {max}")]
    Mtu {
        /// Index of the link, counted from 0.
        link: usize,
        /// Requested MTU, in bytes.
        mtu: u32,
        /// Minimum valid MTU, in bytes.
        min: u32,
        /// Maximum valid MTU, in bytes.
        max: u32,
    },
    /// The line rate is below the minimum of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: line rate of {rate} is below the least, {min}")]
    Rate {
        /// Index of the link, counted from 0.
        link: usize,
        /// Requested line rate.
        rate: BitRate,
        /// Minimum valid line rate.
        min: BitRate,
    },
    /// The delay is above the maximum of [`LinkSpec`](crate::LinkSpec).
    #[error("link {link}: delay of {delay_ms} ms exceeds the limit of {max_ms}")]
    Delay {
        /// Index of the link, counted from 0.
        link: usize,
        /// Requested delay, in milliseconds.
        delay_ms: u128,
        /// Maximum valid delay, in milliseconds.
        max_ms: u128,
    },
    /// A link of a lab of [one subnet](crate::LabBuilder::one_subnet) has a delay, which its switch
    /// does not support.
    #[error("link {link}: a cable to a switch has no delay")]
    DelayedSwitch {
        /// Index of the link, counted from 0.
        link: usize,
    },
    /// The rate of a bus is below the minimum line rate.
    #[error("rate of the bus of {rate} is below the least, {min}")]
    BusRate {
        /// Requested rate of the bus.
        rate: BitRate,
        /// Minimum valid rate of a bus.
        min: BitRate,
    },
    /// The cpu controller is available in neither version of control groups.
    #[error("no control group here limits processor time")]
    NoCpuGroups,
    /// The lab has no link with the requested index.
    #[error("no link {link} in a lab of {links} (they count from 0)")]
    NoSuchLink {
        /// Requested index of a link.
        link: usize,
        /// Number of links in the lab.
        links: usize,
    },
    /// The host has no interface on this link ([`LinkSpec::only_on`](crate::LinkSpec::only_on)).
    #[error("link {link} has no interface on host {host}")]
    NotOnHost {
        /// Index of the link, counted from 0.
        link: usize,
        /// Host without an interface on this link.
        host: Host,
    },
    /// The share of frames is not a number from 0 to 1.
    #[error("invalid share {share}: expected a number from 0 to 1")]
    Share {
        /// Rejected share of frames.
        share: f64,
    },
    /// The text is not an IP address with a prefix length.
    #[error("invalid address \"{text}\": expected one like 10.0.9.1/24 or fd00::1/64")]
    Address {
        /// Text that was rejected as an address.
        text: String,
    },
    /// The name of a kernel setting is invalid, or is not that of a per-namespace setting.
    #[error("invalid setting \"{name}\": expected one below net, like net/ipv4/conf/all/rp_filter")]
    SettingName {
        /// Rejected name of a kernel setting.
        name: String,
    },
    /// A network namespace cannot be created. [`access`](crate::access()) gives the reason.
    #[error("cannot make a network namespace")]
    Namespace(#[source] io::Error),
    /// A thread cannot enter a host's namespace, because the process has lost its privileges since
    /// the lab was built.
    #[error("cannot enter the namespace of host {host}")]
    Enter {
        /// Host whose namespace was to be entered.
        host: Host,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The operating system cannot start a thread.
    #[error("cannot start a thread for the lab")]
    Thread(#[source] io::Error),
    /// A kernel setting of a namespace cannot be written; `/proc/sys` may be mounted read-only.
    #[error("cannot set {name} to \"{value}\"")]
    Sysctl {
        /// Name of the setting, as the caller gave it.
        name: String,
        /// Requested value of the setting.
        value: String,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// A netlink socket cannot be opened.
    #[error("cannot open a netlink socket")]
    Netlink(#[source] io::Error),
    /// The kernel rejected a request of the lab.
    #[error("cannot {action}")]
    Kernel {
        /// Rejected action; completes "cannot …".
        action: String,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// A host did not see the carrier change before the timeout.
    #[error("eth{} is still {} {timeout_ms} ms after its cable was {}",
        link + 1, if *healed { "down" } else { "up" }, if *healed { "plugged in" } else { "cut" })]
    Carrier {
        /// Index of the link, counted from 0.
        link: usize,
        /// True if the carrier should have appeared, false if it should have disappeared.
        healed: bool,
        /// Time spent waiting for the carrier, in milliseconds.
        timeout_ms: u128,
    },
}

impl LabError {
    /// Returns a function that converts the error of a request to the kernel. `action` describes the
    /// request and completes "cannot …".
    pub(crate) fn refused(action: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Kernel {
            action: action.to_string(),
            source,
        }
    }
}

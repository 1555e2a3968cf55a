//! Error of building or using a lab.

use std::{fmt, io};

/// Error of building a lab, or of an operation on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A link, address, setting or share is outside its bounds.
    #[error("{0}")]
    Invalid(String),
    /// This controller is available in neither version of control groups.
    #[error("no control group here has the {0} controller")]
    NoGroups(&'static str),
    /// The lab has no link with the requested index.
    #[error("no link {link} in a lab of {links} (they count from 0)")]
    NoSuchLink {
        /// Requested index of a link.
        link: usize,
        /// Number of links in the lab.
        links: usize,
    },
    /// The kernel rejected a request of the lab: a namespace, thread, socket, setting or message.
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

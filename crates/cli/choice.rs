//! What commands that choose links have in common.

use clap::Args;
use nicstripe::Family;

/// The version of IP that a command is to use.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct IpVersion {
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
}

impl IpVersion {
    /// Returns the only version to use; `None` for both.
    pub(crate) fn only(self) -> Option<Family> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        }
    }
}

//! Options shared by the commands that choose links.

use clap::Args;
use nicstripe::{Family, escaped, links::local_interfaces};

use crate::failure::Failure;

/// IP version that a command is limited to, by `-4` or `-6`.
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
    /// Returns the IP version that the user asked for; `None` for both.
    pub(crate) fn only(self) -> Option<Family> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        }
    }
}

/// Checks that the interfaces of `--exclude-link` exist. A misspelled name would leave the intended
/// interface in use.
pub(crate) fn check_excluded(names: &[String]) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let here = local_interfaces()?;
    let is_missing = |name: &&String| !here.iter().any(|interface| interface.is_called(name));
    match names.iter().find(is_missing) {
        Some(name) => {
            let here: Vec<String> = here
                .iter()
                .map(|interface| escaped(interface.name.as_bytes()))
                .collect();
            Err(Failure::Excluded {
                name: name.clone(),
                here: here.join(", "),
            })
        }
        None => Ok(()),
    }
}

//! Kernel settings that determine if several cables in one subnet can be used separately.

use std::{fs, path::PathBuf};

use crate::interface::name::InterfaceName;

/// IPv4 settings of one interface that matter with several cables in one subnet, in the calling
/// thread's network namespace. IPv6 has no such settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sysctls {
    /// Reverse-path filtering (`rp_filter`): 0 off, 1 strict (drops packets whose source is not
    /// routed through this interface), 2 loose (drops packets whose source has no route).
    pub rp_filter: Setting,
    /// ARP requests that the interface answers: 0 for any local address, 1 only for its own
    /// addresses.
    pub arp_ignore: Setting,
    /// Source address of ARP requests that the interface sends: 0 any local address, 2 the best
    /// address of the interface.
    pub arp_announce: Setting,
    /// Interfaces that answer an ARP request: 0 any, 1 only the one that routes to the requester.
    pub arp_filter: Setting,
}

impl Sysctls {
    /// Reads the settings of an interface from `/proc/sys`. Needs no privileges.
    pub fn read(interface: &InterfaceName) -> Self {
        let read = |key| Setting {
            own: value(interface.as_bytes(), key),
            all: value(b"all", key),
        };
        Self {
            rp_filter: read(RP_FILTER),
            arp_ignore: read(ARP_IGNORE),
            arp_announce: read(ARP_ANNOUNCE),
            arp_filter: read(ARP_FILTER),
        }
    }

    /// Returns true if reverse-path filtering is strict (`rp_filter=1`); `None` if the setting is
    /// unknown.
    pub fn is_reverse_path_strict(&self) -> Option<bool> {
        self.rp_filter.effective().map(|mode| mode == 1)
    }
}

/// One setting, with the interface's own value and the value for all interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Value of `net.ipv4.conf.INTERFACE.…`; `None` if it cannot be read.
    pub own: Option<u8>,
    /// Value of `net.ipv4.conf.all.…`; `None` if it cannot be read.
    pub all: Option<u8>,
}

impl Setting {
    /// Returns the effective value: the greater of the two, as in the kernel for each of these
    /// settings (`IN_DEV_MAXCONF` and `IN_DEV_ORCONF`, include/linux/inetdevice.h). Returns `None`
    /// if one of them cannot be read.
    pub fn effective(&self) -> Option<u8> {
        Some(self.own?.max(self.all?))
    }
}

pub(crate) const RP_FILTER: &str = "rp_filter";
pub(crate) const ARP_IGNORE: &str = "arp_ignore";
pub(crate) const ARP_ANNOUNCE: &str = "arp_announce";
const ARP_FILTER: &str = "arp_filter";

fn value(section: &[u8], key: &str) -> Option<u8> {
    // A valid interface name contains no slash and is neither "." nor "..".
    let section = str::from_utf8(section).ok()?;
    let path = PathBuf::from("/proc/sys/net/ipv4/conf")
        .join(section)
        .join(key);
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_of_the_two_values_counts() {
        let effective = |own, all| Setting { own, all }.effective();
        assert_eq!(effective(Some(0), Some(1)), Some(1));
        assert_eq!(effective(Some(2), Some(1)), Some(2));
        assert_eq!(effective(None, Some(1)), None);
        assert_eq!(effective(Some(1), None), None);
    }

    #[test]
    fn loopbacks_settings_are_read_and_those_of_nobody_are_unknown() {
        assert!(
            Sysctls::read(&"lo".parse().unwrap())
                .rp_filter
                .effective()
                .is_some()
        );
        let nobody = Sysctls::read(&"nosuch0".parse().unwrap());
        assert_eq!(
            (nobody.rp_filter.own, nobody.is_reverse_path_strict()),
            (None, None)
        );
    }

    #[test]
    fn loose_is_not_strict() {
        let strict = |mode| {
            Sysctls {
                rp_filter: Setting {
                    own: Some(mode),
                    all: Some(0),
                },
                ..Sysctls::default()
            }
            .is_reverse_path_strict()
        };
        assert_eq!(
            [0, 1, 2].map(strict),
            [Some(false), Some(true), Some(false)]
        );
    }
}

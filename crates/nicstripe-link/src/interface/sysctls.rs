//! Kernel settings that determine if several cables in one subnet can be used separately.

use std::fs;

use crate::interface::name::InterfaceName;

/// Reads one of the settings `rp_filter`, `arp_ignore` and `arp_announce` of an interface
/// (`net.ipv4.conf.INTERFACE.…`), in the calling thread's network namespace. IPv6 has no such
/// settings.
///
/// Returns the effective value: the greater of the interface's own value and that of `all`, as in
/// the kernel for each of these settings (`IN_DEV_MAXCONF`, include/linux/inetdevice.h). Returns
/// `None` if one of them cannot be read. Needs no privileges.
pub fn ipv4_setting(interface: &InterfaceName, key: &str) -> Option<u8> {
    let value = |section: &str| -> Option<u8> {
        let path = format!("/proc/sys/net/ipv4/conf/{section}/{key}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    // A valid interface name contains no slash and is neither "." nor "..".
    let own = value(str::from_utf8(interface.as_bytes()).ok()?)?;
    Some(own.max(value("all")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn the_greater_of_the_two_values_counts_and_nobody_has_one() {
        let read = |section: &str| -> u8 {
            let path = format!("/proc/sys/net/ipv4/conf/{section}/rp_filter");
            fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        let of = |name: &str| ipv4_setting(&name.parse().unwrap(), "rp_filter");
        assert_eq!(of("lo"), Some(read("lo").max(read("all"))));
        assert_eq!(of("nosuch0"), None);
    }
}

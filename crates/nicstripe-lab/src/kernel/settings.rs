//! Kernel settings of the namespaces, written through `/proc/sys`.
//!
//! `/proc/sys/net` shows the namespace of the reading thread, so each function here acts on its
//! caller's namespace.

use std::{fs, path::PathBuf};

use crate::error::LabError;

/// Kernel setting of a namespace, with its new value.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    name: String,
    value: String,
    path: PathBuf,
}

impl Setting {
    /// Parses a setting's name as in sysctl(8), with slashes or dots. The first slash or dot in the
    /// name is the separator; the other character then stands for a dot.
    ///
    /// # Errors
    ///
    /// [`LabError::Invalid`] unless the setting is below `net`.
    pub(crate) fn new(name: &str, value: &str) -> Result<Self, LabError> {
        let path = match name
            .find(['.', '/'])
            .and_then(|first| name.get(first..=first))
        {
            Some(".") => swap_dots_and_slashes(name),
            _ => name.to_owned(),
        };
        // All other settings below /proc/sys belong to the machine.
        let is_below_net = path.starts_with("net/")
            && path.split('/').all(|part| !["", ".", ".."].contains(&part));
        if !is_below_net {
            return Err(LabError::Invalid(format!(
                "invalid setting \"{name}\": expected one below net, like net/ipv4/conf/all/rp_filter"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            value: value.to_owned(),
            path: PathBuf::from(PROC_SYS).join(path),
        })
    }

    /// Returns true if the calling thread's namespace has this setting. A setting of an interface
    /// exists only with the interface.
    pub(crate) fn exists(&self) -> bool {
        self.path.exists()
    }

    pub(crate) fn write(&self) -> Result<(), LabError> {
        let action = format_args!("set {} to \"{}\"", self.name, self.value);
        fs::write(&self.path, &self.value).map_err(LabError::refused(action))
    }
}

/// Writes the settings of a host to the calling thread's namespace, so that it does not depend on
/// this machine's defaults. Must be called before any interface exists.
pub(crate) fn make_host(ipv6: bool) -> Result<(), LabError> {
    write_all(HOST)?;
    if has_ipv6() {
        write_all(if ipv6 { HOST_IPV6 } else { NO_IPV6 })?;
    }
    match write("net.ipv4.tcp_congestion_control", CONGESTION_CONTROL) {
        // Not allowed, or not in this kernel; the lab reports which one is in use.
        Err(LabError::Kernel { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the settings of the cables' namespace to the calling thread's: it forwards frames, and
/// runs neither IPv6 nor netfilter.
pub(crate) fn make_cables() -> Result<(), LabError> {
    if has_ipv6() {
        write_all(NO_IPV6)?;
    }
    for name in BRIDGE_NETFILTER {
        // Absent without br_netfilter, so nothing must be turned off.
        if path(name).exists() {
            write(name, "0")?;
        }
    }
    Ok(())
}

/// Allows namespaces to use the lab's congestion control. Does nothing unless the calling thread is
/// in the machine's namespace with the privilege to allow that.
///
/// This is the only change that a lab makes outside its namespaces. Without the privilege the hosts
/// keep the default.
pub(crate) fn allow_congestion_control() {
    let list = path("net.ipv4.tcp_allowed_congestion_control");
    let Ok(allowed) = fs::read_to_string(&list) else {
        return;
    };
    if !allowed
        .split_whitespace()
        .any(|name| name == CONGESTION_CONTROL)
    {
        // Only real root may do this, so a failure is usual and no error.
        let _ = fs::write(&list, format!("{} {CONGESTION_CONTROL}", allowed.trim()));
    }
}

fn write_all(settings: &[(&str, &str)]) -> Result<(), LabError> {
    settings
        .iter()
        .try_for_each(|(name, value)| write(name, value))
}

fn write(name: &str, value: &str) -> Result<(), LabError> {
    Setting::new(name, value)?.write()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(PROC_SYS).join(name.replace('.', "/"))
}

fn swap_dots_and_slashes(name: &str) -> String {
    let swap = |character| match character {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// Returns true if the kernel supports IPv6; false on a machine booted with `ipv6.disable=1`.
fn has_ipv6() -> bool {
    path("net.ipv6.conf.default").exists()
}

const PROC_SYS: &str = "/proc/sys";

/// Congestion control of the hosts: Linux's default. bbr is faster on some tbf links and slower on
/// others, and not all machines have it.
const CONGESTION_CONTROL: &str = "cubic";

/// Kernel settings of a host: Debian's values. `rp_filter` and the ARP settings are set explicitly
/// to their defaults, because a new namespace inherits the machine's values.
const HOST: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    // Saved metrics of one transfer would affect the next measurement.
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.ip_forward", "0"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.conf.all.arp_ignore", "0"),
    ("net.ipv4.conf.default.arp_ignore", "0"),
    ("net.ipv4.conf.all.arp_announce", "0"),
    ("net.ipv4.conf.default.arp_announce", "0"),
    ("net.ipv4.conf.all.arp_filter", "0"),
    ("net.ipv4.conf.default.arp_filter", "0"),
];

/// IPv6 settings of a host. Each new interface copies `default`. Link-local addresses are usable at
/// once, and hosts send no router solicitations.
const HOST_IPV6: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.default.addr_gen_mode", "0"),
    // The kernel uses the greater of the two.
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
];

const NO_IPV6: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
];

const BRIDGE_NETFILTER: &[&str] = &[
    "net.bridge.bridge-nf-call-arptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-iptables",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_named_with_slashes_or_dots() {
        let path = |name| Setting::new(name, "1").unwrap().path;
        for name in [
            "net/ipv4/conf/eth1.7/rp_filter",
            "net.ipv4.conf.eth1/7.rp_filter",
        ] {
            assert_eq!(
                path(name),
                PathBuf::from("/proc/sys/net/ipv4/conf/eth1.7/rp_filter")
            );
        }
    }

    #[test]
    fn what_the_machine_has_for_itself_is_no_setting_of_a_host() {
        for name in [
            "kernel/hostname",
            "kernel.hostname",
            "/net/ipv4/ip_forward",
            "net/../kernel/hostname",
            "net/ipv4//x",
            "net/",
            "net",
            "",
        ] {
            let error = Setting::new(name, "1").unwrap_err();
            assert!(matches!(error, LabError::Invalid(_)), "{name}: {error}");
        }
    }
}

//! Kernel settings of the namespaces, written through `/proc/sys`.
//!
//! `/proc/sys/net` shows the namespace of the thread that looks, so each function here acts on the one its caller is in.

use std::{fs, io, path::PathBuf};

use crate::error::LabError;

/// Makes the calling thread's namespace a host, whatever this machine's own defaults are. To be called before it has interfaces.
pub(crate) fn make_host() -> Result<(), LabError> {
    write_all(HOST)?;
    if has_ipv6() {
        write_all(HOST_IPV6)?;
    }
    match write("net.ipv4.tcp_congestion_control", CONGESTION_CONTROL) {
        // Not allowed here, or not in this kernel: the lab says which one it has.
        Err(LabError::Sysctl { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the calling thread's namespace the inside of cables: it moves frames and speaks no protocol itself.
pub(crate) fn make_cables() -> Result<(), LabError> {
    if has_ipv6() {
        write_all(CABLES_IPV6)?;
    }
    for name in BRIDGE_NETFILTER {
        // Absent without br_netfilter, and then there is nothing to switch off.
        if path(name).exists() {
            write(name, "0")?;
        }
    }
    Ok(())
}

/// The congestion control that new TCP sockets of the calling thread's namespace get.
pub(crate) fn congestion_control() -> io::Result<String> {
    Ok(fs::read_to_string(path("net.ipv4.tcp_congestion_control"))?.trim().to_owned())
}

/// Lets namespaces choose the lab's congestion control, where the calling thread's namespace is the machine's own and may say so.
///
/// The only thing that a lab changes outside its namespaces. Where it may not, nothing happens: the hosts keep the default.
pub(crate) fn allow_congestion_control() {
    let list = path("net.ipv4.tcp_allowed_congestion_control");
    let Ok(allowed) = fs::read_to_string(&list) else { return };
    if !allowed.split_whitespace().any(|name| name == CONGESTION_CONTROL) {
        // Refused to all but real root, which is the usual case and no error.
        let _ = fs::write(&list, format!("{} {CONGESTION_CONTROL}", allowed.trim()));
    }
}

fn write_all(settings: &[(&str, &str)]) -> Result<(), LabError> {
    settings.iter().try_for_each(|(name, value)| write(name, value))
}

fn write(name: &str, value: &str) -> Result<(), LabError> {
    let failed = |source| LabError::Sysctl { name: name.to_owned(), value: value.to_owned(), source };
    fs::write(path(name), value).map_err(failed)
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

/// False on a machine booted with `ipv6.disable=1`.
fn has_ipv6() -> bool {
    path("net.ipv6.conf.default").exists()
}

/// Linux's own default; bbr is faster on some tbf links and slower on others, and no two machines agree on having it.
const CONGESTION_CONTROL: &str = "cubic";

/// Debian's values. `rp_filter` and the ARP settings are what a host has that nobody touched: a new namespace inherits the machine's.
const HOST: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    // Metrics kept from one transfer would leak into the next measurement.
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    ("net.ipv4.conf.all.arp_ignore", "0"),
    ("net.ipv4.conf.all.arp_announce", "0"),
];

/// `default` is copied by each interface as it is made. Link-local addresses work at once, and no host asks for routers.
const HOST_IPV6: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
];

const CABLES_IPV6: &[(&str, &str)] = &[("net.ipv6.conf.all.disable_ipv6", "1"), ("net.ipv6.conf.default.disable_ipv6", "1")];

const BRIDGE_NETFILTER: &[&str] =
    &["net.bridge.bridge-nf-call-arptables", "net.bridge.bridge-nf-call-ip6tables", "net.bridge.bridge-nf-call-iptables"];

//! Local network interfaces, as users see and name them.

use std::net::IpAddr;

use nicstripe_link::{Interface, InterfaceKind, interfaces};
use nicstripe_proto::BitRate;

use crate::report::error::Error;

/// Local network interface, as reported by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalInterface {
    /// Name of the interface, such as `eth1`.
    pub name: String,
    /// Alternative names from the kernel, which options accept as well.
    pub alternative_names: Vec<String>,
    /// Addresses, each with its prefix length in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// Line rate in bit/s; `None` if unknown.
    pub line_rate: Option<BitRate>,
    /// Reason why the interface is used only if named; `None` if it is used by default.
    pub left_out: Option<String>,
    /// Names of the member interfaces if it is a bond; otherwise empty.
    pub members: Vec<String>,
}

impl LocalInterface {
    /// Returns true if `name` is the name or an alternative name of the interface.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alternative_names.iter().any(|other| other == name)
    }
}

/// Lists the local interfaces. Needs no privileges.
///
/// ```no_run
/// for interface in nicstripe::links::local_interfaces()? {
///     println!("{} {:?}", interface.name, interface.left_out);
/// }
/// # Ok::<(), nicstripe::Error>(())
/// ```
///
/// # Errors
///
/// The kernel cannot list them.
pub fn local_interfaces() -> Result<Vec<LocalInterface>, Error> {
    let all = listed()?;
    let described = all.iter().map(|interface| LocalInterface {
        name: interface.name.to_string(),
        alternative_names: interface
            .alternative_names
            .iter()
            .map(ToString::to_string)
            .collect(),
        addresses: interface
            .addresses
            .iter()
            .map(|address| (address.ip, address.prefix_len))
            .collect(),
        mtu: interface.mtu,
        line_rate: interface.speed.map(|rate| BitRate(rate.0)),
        left_out: interface.candidate(&all).err().map(|why| why.to_string()),
        members: interface
            .bond
            .as_ref()
            .map(|bond| bond.members.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
    });
    Ok(described.collect())
}

pub(crate) fn listed() -> Result<Vec<Interface>, Error> {
    interfaces().map_err(|error| Error::failed("list the interfaces", error))
}

/// Returns the interface with this name or alternative name.
pub(crate) fn find<'a>(interfaces: &'a [Interface], name: &str) -> Option<&'a Interface> {
    interfaces
        .iter()
        .find(|interface| interface.is_called(name))
}

pub(crate) fn is_among(interface: &Interface, names: &[String]) -> bool {
    names.iter().any(|name| interface.is_called(name))
}

/// Returns the names of the interfaces, separated by commas, for messages.
pub(crate) fn names(interfaces: &[Interface]) -> String {
    interfaces
        .iter()
        .map(|interface| interface.name.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the error text for an unknown interface name, with the available names.
pub(crate) fn no_such(interfaces: &[Interface]) -> String {
    format!("no such interface; available: {}", names(interfaces))
}

/// Returns true if the interface has this address. The loopback interface has all of 127.0.0.0/8,
/// although the kernel does not list them.
pub(crate) fn has_address(interface: &Interface, ip: IpAddr) -> bool {
    interface.has_address(ip) || (ip.is_loopback() && interface.kind == InterfaceKind::Loopback)
}

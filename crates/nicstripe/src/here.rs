//! Local interfaces, as errors and users name them.

use std::net::IpAddr;

use nicstripe_link::{Interface, InterfaceKind, interfaces};

use crate::error::Error;

pub(crate) fn listed() -> Result<Vec<Interface>, Error> {
    interfaces().map_err(|error| Error::System { what: "list the interfaces", source: std::io::Error::other(error) })
}

/// Returns true if one of the names denotes the interface.
pub(crate) fn is_among(interface: &Interface, names: &[String]) -> bool {
    names.iter().any(|name| interface.is_called(name))
}

/// Returns the comma-separated names of the interfaces, for messages.
pub(crate) fn names(here: &[Interface]) -> String {
    here.iter().map(|interface| interface.name.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the message for an unknown interface name.
pub(crate) fn no_such(here: &[Interface]) -> String {
    format!("no such interface; available: {}", names(here))
}

/// Returns true if an address is on the interface. The loopback interface has all of 127.0.0.0/8
/// without listing it.
pub(crate) fn has_address(interface: &Interface, ip: IpAddr) -> bool {
    interface.has_address(ip) || (ip.is_loopback() && interface.kind == InterfaceKind::Loopback)
}

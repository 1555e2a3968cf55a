//! The interfaces of this machine, as errors and users speak of them.

use std::net::IpAddr;

use nicstripe_link::{Interface, InterfaceKind, interfaces};

use crate::error::Error;

/// Returns all of them.
pub(crate) fn listed() -> Result<Vec<Interface>, Error> {
    interfaces().map_err(|error| Error::System { what: "list the interfaces", source: std::io::Error::other(error) })
}

/// Whether an interface is called by one of these names.
pub(crate) fn is_among(interface: &Interface, names: &[String]) -> bool {
    names.iter().any(|name| interface.is_called(name))
}

/// The names that there are to choose from, for a message.
pub(crate) fn names(here: &[Interface]) -> String {
    here.iter().map(|interface| interface.name.to_string()).collect::<Vec<_>>().join(", ")
}

/// What is wrong with the name of an interface that is not there.
pub(crate) fn no_such(here: &[Interface]) -> String {
    format!("there is no such interface here; there are {}", names(here))
}

/// Whether an address is on an interface: all of 127.0.0.0/8 is on the loopback interface without being listed.
pub(crate) fn has_address(interface: &Interface, ip: IpAddr) -> bool {
    interface.has_address(ip) || (ip.is_loopback() && interface.kind == InterfaceKind::Loopback)
}

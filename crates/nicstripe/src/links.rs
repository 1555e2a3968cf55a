//! The interfaces of this machine, as far as they may be links.

use std::net::IpAddr;

use nicstripe_proto::BitRate;

use crate::{error::Error, here};

/// An interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalInterface {
    /// Its name.
    pub name: String,
    /// Its other names, by which it may be called as well.
    pub alternative_names: Vec<String>,
    /// Its addresses, each with the bits of its prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Largest packet that it sends, in bytes.
    pub mtu: u32,
    /// Its line rate, if known.
    pub line_rate: Option<BitRate>,
    /// Why it is no link unless it is named; `None` where it is one.
    pub left_out: Option<String>,
    /// The names of its cables, where it is a bond.
    pub members: Vec<String>,
}

impl LocalInterface {
    /// Whether `name` is one of its names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alternative_names.iter().any(|other| other == name)
    }
}

/// Returns the interfaces of this machine. Needs no rights.
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
/// The kernel does not list them.
pub fn local_interfaces() -> Result<Vec<LocalInterface>, Error> {
    let all = here::listed()?;
    let described = all.iter().map(|interface| LocalInterface {
        name: interface.name.to_string(),
        alternative_names: interface.alternative_names.iter().map(ToString::to_string).collect(),
        addresses: interface.addresses.iter().map(|address| (address.ip, address.prefix_len)).collect(),
        mtu: interface.mtu,
        line_rate: interface.speed.map(|rate| BitRate(rate.0)),
        left_out: interface.candidate(&all).err().map(|why| why.to_string()),
        members: interface.bond.as_ref().map(|bond| bond.members.iter().map(ToString::to_string).collect()).unwrap_or_default(),
    });
    Ok(described.collect())
}

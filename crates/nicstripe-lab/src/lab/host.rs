//! Operations on a lab's host: addresses, interfaces, kernel settings.

use std::net::Ipv6Addr;

use crate::{
    cable::{
        self,
        wiring::{cable_end, host_end},
    },
    error::LabError,
    host::Host,
    kernel::{message, settings::Setting},
    lab::Lab,
};

impl Lab {
    /// Sets a kernel setting of a host, through `/proc/sys` in its namespace.
    ///
    /// The name starts with `net`, and has slashes or dots as in sysctl(8):
    /// `net/ipv4/conf/eth1/rp_filter`. For `rp_filter`, `arp_ignore` and `arp_announce` the kernel
    /// uses the greater value of `all` and the interface. `default` applies to interfaces created
    /// later; since a lab creates its interfaces when it is built, set it with
    /// [`LabBuilder::sysctl`](crate::LabBuilder::sysctl).
    ///
    /// # Errors
    ///
    /// [`LabError::Invalid`] for a setting that is not per host; [`LabError::Kernel`] also if the
    /// kernel lacks the setting or rejects the value.
    pub fn set_sysctl(&self, host: Host, name: &str, value: &str) -> Result<(), LabError> {
        let setting = Setting::new(name, value)?;
        self.on(host, || setting.write())?
    }

    /// Adds an IPv4 or IPv6 address with its prefix length to a host's interface: `10.0.9.1/24`,
    /// `fd00::1/64`.
    ///
    /// The address is usable on return if the interface has carrier.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`];
    /// [`LabError::Kernel`] also if the interface already has the address, or IPv6 is disabled.
    pub fn add_address(&self, host: Host, link: usize, address: &str) -> Result<(), LabError> {
        let address = address.parse()?;
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        nets.host(host).add_address(&host_end(host, link), address)
    }

    /// Removes an address from a host's interface: one that the lab configured, or an added one.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`];
    /// [`LabError::Kernel`] also if the interface does not have this address and prefix.
    pub fn remove_address(&self, host: Host, link: usize, address: &str) -> Result<(), LabError> {
        let address = address.parse()?;
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        let end = host_end(host, link);
        nets.host(host).change(
            message::remove_address(end.index, address),
            0,
            format_args!("remove {address} from {}", end.name),
        )
    }

    /// Sets a host's interface administratively up or down, like `ip link set`. The cable stays
    /// plugged in or unplugged.
    ///
    /// If `up` is false, the kernel removes the interface's routes and IPv6 addresses, and keeps
    /// its IPv4 addresses. The other host keeps its carrier, as behind a switch. If `up` is true,
    /// the kernel restores the routes of the IPv4 subnets and the link-local address, and nothing
    /// else. The interface has carrier on return if the cable is plugged in.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`], [`LabError::Kernel`],
    /// [`LabError::Carrier`].
    pub fn set_up(&self, host: Host, link: usize, up: bool) -> Result<(), LabError> {
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        nets.host(host).set_up(&host_end(host, link), up)?;
        if up && nets.cables.state(&cable_end(host, link))?.up {
            return cable::await_carrier(&mut nets, link, true);
        }
        Ok(())
    }

    /// Sets the MTU of a host's interface, like `ip link set mtu`. The cable and the other host stay
    /// as they are.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`]; [`LabError::Kernel`] also if the kernel
    /// rejects the MTU.
    pub fn set_mtu(&self, host: Host, link: usize, mtu: u32) -> Result<(), LabError> {
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        let end = host_end(host, link);
        nets.host(host).change(
            message::set_mtu(end.index, mtu),
            0,
            format_args!("set the MTU of {} to {mtu}", end.name),
        )
    }

    /// Returns the link-local IPv6 address of a host's interface. Its scope is
    /// [`Lab::interface_index`].
    ///
    /// Returns `None` if the kernel has assigned none, or a tentative one: before the cable was first
    /// plugged in, or with IPv6 disabled.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`], [`LabError::Kernel`].
    pub fn link_local(&self, host: Host, link: usize) -> Result<Option<Ipv6Addr>, LabError> {
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        let addresses = nets.host(host).ipv6_addresses(&host_end(host, link))?;
        let usable = addresses.into_iter().filter(|found| !found.tentative);
        Ok(usable
            .map(|found| found.address)
            .find(Ipv6Addr::is_unicast_link_local))
    }
}

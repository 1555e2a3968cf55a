//! What one can do to a host of a lab: addresses, interfaces, kernel settings.

use std::net::Ipv6Addr;

use crate::{
    cable,
    error::LabError,
    lab::{Host, Lab},
    settings::Setting,
};

impl Lab {
    /// Gives a setting of a host's kernel another value, by writing `/proc/sys` from inside.
    ///
    /// The name is one below `net`, with slashes or with dots, as sysctl(8) takes it: `net/ipv4/conf/eth1/rp_filter`. Of `rp_filter`,
    /// `arp_ignore` and `arp_announce` the kernel takes the greater value of `all` and the interface; `default` counts for interfaces
    /// that are made later, and a lab makes all of its own when it is [built](crate::LabBuilder::sysctl).
    ///
    /// # Errors
    ///
    /// [`LabError::SettingName`] for what no host has for itself; [`LabError::Sysctl`] when the kernel has no such setting or refused the
    /// value; [`LabError::Thread`] and [`LabError::Enter`].
    pub fn set_sysctl(&self, host: Host, name: &str, value: &str) -> Result<(), LabError> {
        let setting = Setting::new(name, value)?;
        self.on(host, || setting.write())?
    }

    /// Gives a host's interface one more address, IPv4 or IPv6, with the length of its prefix: `10.0.9.1/24`, `fd00::1/64`.
    ///
    /// It may be used when this returns, provided that the interface has a carrier.
    ///
    /// # Errors
    ///
    /// [`LabError::Address`], [`LabError::NoSuchLink`], [`LabError::NotOnHost`]; [`LabError::Kernel`] also when the interface has the
    /// address already, or IPv6 is switched off.
    pub fn add_address(&self, host: Host, link: usize, address: &str) -> Result<(), LabError> {
        let address = address.parse()?;
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        cable::add_address(nets.host(host), host, link, address)
    }

    /// Takes an address from a host's interface, one of the lab's own or one that was added.
    ///
    /// # Errors
    ///
    /// [`LabError::Address`], [`LabError::NoSuchLink`], [`LabError::NotOnHost`]; [`LabError::Kernel`] also when the interface has no such
    /// address with this prefix.
    pub fn remove_address(&self, host: Host, link: usize, address: &str) -> Result<(), LabError> {
        let address = address.parse()?;
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        cable::remove_address(nets.host(host), host, link, address)
    }

    /// Sets a host's interface administratively up or down, as `ip link set` does. The cable stays as it is.
    ///
    /// Down, the kernel drops the interface's routes and IPv6 addresses and keeps its IPv4 addresses; the other host keeps its carrier,
    /// as behind a switch. Up again, it brings back the routes of the IPv4 subnets and the link-local address, and nothing else; when this
    /// returns the carrier is there, if the cable is plugged in.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::NotOnHost`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn set_up(&self, host: Host, link: usize, up: bool) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check_end(host, link)?;
        cable::set_up(nets.host(host), host, link, up)?;
        if up && cable::is_plugged(&mut nets.cables, host, link)? {
            return cable::await_carrier(&mut nets, link, spec, true);
        }
        Ok(())
    }

    /// The link-local IPv6 address of a host's interface; its scope is [`Lab::interface_index`].
    ///
    /// `None` where the kernel gave none: before a cable was first plugged in, or with IPv6 switched off.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::NotOnHost`], [`LabError::Kernel`].
    pub fn link_local(&self, host: Host, link: usize) -> Result<Option<Ipv6Addr>, LabError> {
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        cable::link_local(nets.host(host), host, link)
    }
}

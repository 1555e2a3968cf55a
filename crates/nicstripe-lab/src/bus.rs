//! A bus that several cables of a host share, as cards in one old PCI bus do, or adapters behind one USB port.

use crate::{
    cable,
    error::LabError,
    lab::{Host, Lab},
    spec::{BitRate, MIN_RATE},
};

impl Lab {
    /// Makes what these links bring to a host go through a bus of this rate, which they share; all other links are free of it. It replaces
    /// the bus that the host had; `None`, or no links, ends it.
    ///
    /// The rate is of frames with their Ethernet header, without what a cable adds to them (preamble, check sequence, gap). What the host
    /// sends is not on the bus.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::NotOnHost`], [`LabError::BusRate`]; [`LabError::Kernel`] also where the kernel has no ifb,
    /// clsact, cls_bpf or act_mirred. The host has no bus then.
    pub fn share_bus(&self, host: Host, links: &[usize], rate: impl Into<Option<BitRate>>) -> Result<(), LabError> {
        let mut nets = self.nets();
        let mut mtu = 0;
        for link in links {
            mtu = mtu.max(nets.check_end(host, *link)?.mtu());
        }
        let rate = rate.into();
        if let Some(rate) = rate.filter(|rate| *rate < MIN_RATE) {
            return Err(LabError::BusRate { rate, min: MIN_RATE });
        }
        cable::remove_bus(&mut nets, host)?;
        let Some(rate) = rate.filter(|_| !links.is_empty()) else { return Ok(()) };
        let built = cable::build_bus(&mut nets, host, rate.shaping_of_frames(mtu), links);
        built.inspect_err(|_| drop(cable::remove_bus(&mut nets, host)))
    }
}

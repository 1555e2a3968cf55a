//! Shared bus that limits several cables of a host together, like one PCI bus for several cards or
//! one USB port for several adapters.

use crate::{cable, error::LabError, host::Host, lab::Lab, rate::BitRate, spec::MIN_RATE};

impl Lab {
    /// Limits the total rate of the traffic that these links deliver to a host. Other links are not
    /// affected. Replaces the host's previous bus; `None`, or no links, removes it.
    ///
    /// The rate counts frames with their Ethernet header, without preamble, check sequence and gap.
    /// Traffic that the host sends does not use the bus.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`]; [`LabError::Kernel`] also if the kernel lacks ifb, clsact, cls_bpf or act_mirred. The host
    /// has no bus after a kernel error.
    pub fn share_bus(
        &self,
        host: Host,
        links: &[usize],
        rate: impl Into<Option<BitRate>>,
    ) -> Result<(), LabError> {
        let mut nets = self.nets();
        let mut mtu = 0;
        for link in links {
            mtu = mtu.max(nets.check_end(host, *link)?.mtu());
        }
        let rate = rate.into();
        if let Some(rate) = rate.filter(|rate| *rate < MIN_RATE) {
            return Err(LabError::Invalid(format!(
                "rate of the bus of {rate} is below the least, {MIN_RATE}"
            )));
        }
        cable::remove_bus(&mut nets, host)?;
        let Some(rate) = rate.filter(|_| !links.is_empty()) else {
            return Ok(());
        };
        let built = cable::build_bus(&mut nets, host, rate.shaping_of_frames(mtu), links);
        built.inspect_err(|_| drop(cable::remove_bus(&mut nets, host)))
    }
}

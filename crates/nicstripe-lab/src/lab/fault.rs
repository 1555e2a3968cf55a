//! Faults of a cable other than cuts: loss, corruption and blocked ports.

use std::io;

use crate::{
    cable::wiring::{cable_end, host_end},
    error::LabError,
    host::{Direction, Host},
    kernel::{
        bpf::Corruptor,
        filter::{self, Share, Slot, Transport},
        offload,
    },
    lab::Lab,
};

/// Checks that [`Lab::corrupt`] works in this process, by loading a similar program.
///
/// Needs real root: a process in a user namespace gets EPERM.
///
/// # Errors
///
/// [`LabError::Kernel`] if the program cannot be loaded.
pub fn can_corrupt() -> Result<(), LabError> {
    load(Share::new(0.0)?).map(drop)
}

impl Lab {
    /// Drops a random share of the frames in a direction, from 0 to 1; 0.005 drops one in 200.
    /// Replaces the direction's previous share. A share of 0, or [`Lab::pass`], ends the loss.
    ///
    /// While the loss is active, the sending host sends single frames, as on a real cable, instead
    /// of superpackets. A lost superpacket would be 45 consecutive frames. This costs CPU.
    ///
    /// On [one subnet](crate::LabBuilder::one_subnet) the receiving interface defines the
    /// direction, as for [`Lab::drop_silently`]. Frames from other links' interfaces then still
    /// arrive as superpackets.
    ///
    /// # Errors
    ///
    /// [`LabError::Invalid`], [`LabError::NoSuchLink`]; [`LabError::Kernel`] also if the kernel lacks
    /// clsact or cls_bpf.
    pub fn lose(&self, link: usize, direction: Direction, share: f64) -> Result<(), LabError> {
        let share = Share::new(share)?;
        self.at_destinations(link, direction, |nets, host| {
            let end = cable_end(host, link);
            if share.is_none() {
                nets.cables.unfilter(&end, Slot::Loss)?;
            } else {
                nets.cables.filter(&end, filter::lose(end.index, share))?;
            }
            if nets.check_end(host.peer(), link).is_ok() {
                self.set_segmentation(host.peer(), link, share.is_none())
            } else {
                Ok(())
            }
        })
    }

    /// Drops IPv4 and IPv6 traffic to a port, like a firewall that sends no reply. Each direction
    /// has at most one blocked port per transport protocol; a new one replaces it. [`Lab::pass`]
    /// ends the block.
    ///
    /// On [one subnet](crate::LabBuilder::one_subnet) the receiving interface defines the
    /// direction, as for [`Lab::drop_silently`].
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`]; [`LabError::Kernel`] also if the kernel lacks clsact or cls_bpf.
    pub fn block(
        &self,
        link: usize,
        direction: Direction,
        transport: Transport,
        port: u16,
    ) -> Result<(), LabError> {
        self.at_destinations(link, direction, |nets, host| {
            let end = cable_end(host, link);
            nets.cables
                .filter(&end, filter::block(end.index, transport, port))
        })
    }

    /// Enables or disables segmentation offload of a host's interface: if enabled, the host sends
    /// superpackets, which the cable never segments into frames.
    pub(crate) fn set_segmentation(
        &self,
        host: Host,
        link: usize,
        on: bool,
    ) -> Result<(), LabError> {
        let interface = host_end(host, link).name;
        let action = format_args!("change how {interface} makes frames");
        self.on(host, || offload::set_segmentation(&interface, on))?
            .map_err(LabError::refused(action))
    }

    /// Flips one bit in a share of a direction's frames, from 0 to 1. The bit is after the headers,
    /// and TCP accepts the frame. This simulates bad memory in a switch that computes a new
    /// checksum for the damaged frame. Replaces the direction's previous share. A share of 0, or
    /// [`Lab::pass`], ends the corruption.
    ///
    /// Frames shorter than 600 bytes are not changed. A superpacket of up to 64 KiB counts as one
    /// frame. TCP retransmits from the original data, which is never corrupted.
    ///
    /// # Errors
    ///
    /// [`LabError::Invalid`], [`LabError::NoSuchLink`]; [`LabError::Kernel`] also without real root's
    /// privileges, see [`can_corrupt`].
    pub fn corrupt(&self, link: usize, direction: Direction, share: f64) -> Result<(), LabError> {
        let share = Share::new(share)?;
        self.at_destinations(link, direction, |nets, host| {
            let end = cable_end(host, link);
            if share.is_none() {
                return nets.cables.unfilter(&end, Slot::Corruption);
            }
            let corruptor = load(share)?;
            nets.cables
                .filter(&end, filter::corrupt(end.index, corruptor.program()))?;
            nets.corruptors.push((link, corruptor));
            Ok(())
        })
    }

    /// Returns the number of frames that [`Lab::corrupt`] has changed on a link since the lab was
    /// built, in both directions.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`].
    pub fn corrupted(&self, link: usize) -> Result<u64, LabError> {
        let nets = self.nets();
        nets.check(link)?;
        let of_link = nets.corruptors.iter().filter(|(of, _)| *of == link);
        of_link
            .map(|(_, corruptor)| corruptor.count())
            .sum::<io::Result<u64>>()
            .map_err(LabError::refused("count the frames that were corrupted"))
    }
}

fn load(share: Share) -> Result<Corruptor, LabError> {
    Corruptor::load(share).map_err(LabError::refused("load a program that corrupts frames"))
}

//! What cables do wrong besides being cut: they lose a frame now and then, or change one.

use std::{collections::BTreeMap, io};

use crate::{
    bpf::Corruptor,
    cable,
    error::LabError,
    filter::{Share, Transport},
    lab::{Direction, Host, Lab},
    offload,
    wiring::host_end,
};

/// Whether [`Lab::corrupt`] works in this process: what the kernel says to a program like those it loads.
///
/// It takes real root: in a user namespace of its own a process gets EPERM.
///
/// # Errors
///
/// [`LabError::Kernel`].
pub fn can_corrupt() -> Result<(), LabError> {
    Share::new(0.0).map_or(Ok(()), |none| load(none).map(|_| ()))
}

impl Lab {
    /// Makes a cable lose a share of the frames of a direction at random, from 0 to 1; 0.005 loses one of 200. It replaces the share that
    /// the direction had. 0, or [`Lab::pass`], ends it.
    ///
    /// As long as it does, the host that sends hands over frames one by one, as on a real cable, and not in superpackets, of which one
    /// lost would be 45 frames in a row. That costs CPU.
    ///
    /// On [one subnet](crate::LabBuilder::one_subnet) a direction is named by where frames arrive, as for [`Lab::drop_silently`]; what comes
    /// from other links' interfaces comes in superpackets.
    ///
    /// # Errors
    ///
    /// [`LabError::Share`], [`LabError::NoSuchLink`]; [`LabError::Kernel`] also where the kernel has no clsact or cls_bpf.
    pub fn lose(&self, link: usize, direction: Direction, share: f64) -> Result<(), LabError> {
        let share = Share::new(share).ok_or(LabError::Share { share })?;
        self.at_destinations(link, direction, |nets, host| {
            cable::lose_share(nets, host, link, share)?;
            if nets.check_end(host.peer(), link).is_ok() { self.set_segmentation(host.peer(), link, share.is_none()) } else { Ok(()) }
        })
    }

    /// Makes a cable lose what goes to a port, by IPv4 and IPv6, as a firewall does that says nothing. A direction has one port of each
    /// transport: another one replaces it. [`Lab::pass`] ends it.
    ///
    /// On [one subnet](crate::LabBuilder::one_subnet) a direction is named by where frames arrive, as for [`Lab::drop_silently`].
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`]; [`LabError::Kernel`] also where the kernel has no clsact or cls_bpf.
    pub fn block(&self, link: usize, direction: Direction, transport: Transport, port: u16) -> Result<(), LabError> {
        self.at_destinations(link, direction, |nets, host| cable::block(&mut nets.cables, host, link, transport, port))
    }

    /// Whether a host leaves it to the cable to cut superpackets into frames, which it never does.
    pub(crate) fn set_segmentation(&self, host: Host, link: usize, on: bool) -> Result<(), LabError> {
        let interface = host_end(host, link).name;
        let refused = |source| LabError::Kernel { action: format!("change how {interface} makes frames"), source };
        self.on(host, || offload::set_segmentation(&interface, on))?.map_err(refused)
    }

    /// Makes a cable flip one bit in a share of the frames of a direction, from 0 to 1, behind the headers, so that TCP takes the frame for
    /// right: as bad memory in a switch does, which makes a new checksum for what it spoilt. It replaces the share that the direction had.
    /// 0, or [`Lab::pass`], ends it.
    ///
    /// Frames of less than 600 bytes are left alone. A superpacket of up to 64 KiB counts as one frame. What TCP sends again is taken from
    /// what was sent first, which no corruption has reached.
    ///
    /// # Errors
    ///
    /// [`LabError::Share`], [`LabError::NoSuchLink`]; [`LabError::Kernel`] also without real root's rights, see [`can_corrupt`].
    pub fn corrupt(&self, link: usize, direction: Direction, share: f64) -> Result<(), LabError> {
        let share = Share::new(share).ok_or(LabError::Share { share })?;
        self.at_destinations(link, direction, |nets, host| {
            if share.is_none() {
                return cable::leave_whole(&mut nets.cables, host, link);
            }
            let corruptor = load(share)?;
            cable::corrupt(&mut nets.cables, host, link, &corruptor)?;
            nets.corruptors.add(link, corruptor);
            Ok(())
        })
    }

    /// How many frames [`Lab::corrupt`] has changed on a link since the lab was built, in both directions.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`].
    pub fn corrupted(&self, link: usize) -> Result<u64, LabError> {
        let nets = self.nets();
        nets.check(link)?;
        nets.corruptors.count(link)
    }
}

fn load(share: Share) -> Result<Corruptor, LabError> {
    let refused = |source| LabError::Kernel { action: "load a program that corrupts frames".to_owned(), source };
    Corruptor::load(share).map_err(refused)
}

/// All programs that have corrupted frames, for their counters' sake.
#[derive(Debug, Default)]
pub(crate) struct Corruptors(BTreeMap<usize, Vec<Corruptor>>);

impl Corruptors {
    fn add(&mut self, link: usize, corruptor: Corruptor) {
        self.0.entry(link).or_default().push(corruptor);
    }

    fn count(&self, link: usize) -> Result<u64, LabError> {
        let counts = self.0.get(&link).into_iter().flatten().map(Corruptor::count);
        let refused = |source| LabError::Kernel { action: "count the frames that were corrupted".to_owned(), source };
        counts.sum::<io::Result<u64>>().map_err(refused)
    }
}

//! Two hosts, their cables, and a file to copy.

use std::{fs, path::PathBuf};

use nicstripe_lab::{Host, Lab, LabBuilder};

use super::{Cables, Place, Result, Sample};

/// All that one copy needs: a lab of its own, so that nothing is left of the copy before.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) lab: Lab,
    pub(crate) cables: &'a Cables,
    pub(crate) place: &'a Place,
    pub(crate) sample: &'a Sample,
    /// The host that has the file.
    pub(crate) from: Host,
    /// What nicstripe's client calls the daemon's host: an address, or a name.
    pub(crate) peer: String,
    pub(crate) rights: Rights,
}

/// What nicstripe may do to the hosts that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Whatever root may.
    All,
    /// What any user may.
    None,
}

impl<'a> Scene<'a> {
    /// Builds the lab and empties the receiver's folder.
    pub(crate) fn build(cables: &'a Cables, place: &'a Place, sample: &'a mut Sample, from: Host) -> Result<Self> {
        Self::in_lab(Lab::builder().links(cables.specs.iter().copied()), cables, place, sample, from)
    }

    /// The same in a lab that has more to it than its cables.
    pub(crate) fn in_lab(lab: LabBuilder, cables: &'a Cables, place: &'a Place, sample: &'a mut Sample, from: Host) -> Result<Self> {
        sample.move_to(&place.files(from))?;
        place.clear(from.peer())?;
        let lab = lab.build()?;
        let peer = lab.address(Host::B, 0).to_string();
        Ok(Self { lab, cables, place, sample, from, peer, rights: Rights::All })
    }

    /// The host that gets the file.
    pub(crate) fn to(&self) -> Host {
        self.from.peer()
    }

    /// Where the copy will be.
    pub(crate) fn received(&self) -> Result<PathBuf> {
        Ok(self.place.files(self.to()).join(self.sample.name()?))
    }

    /// Bytes that each cable has brought to the receiver, by its counters.
    pub(crate) fn received_bytes(&self) -> Result<Vec<u64>> {
        let counters = self.lab.counters()?;
        Ok(counters.iter().map(|link| link.at(self.to()).received_bytes).collect())
    }

    /// Removes the copy.
    pub(crate) fn discard(&self) -> Result<()> {
        Ok(fs::remove_file(self.received()?)?)
    }
}

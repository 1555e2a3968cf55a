//! Two hosts, their cables, and a file to copy.

use std::{fs, path::PathBuf};

use nicstripe_lab::{Host, Lab, LabBuilder};

use super::{Cables, Place, Result, Sample};

/// State of one copy, in a new lab, so that nothing remains of the copy before.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) lab: Lab,
    pub(crate) cables: &'a Cables,
    pub(crate) place: &'a Place,
    pub(crate) sample: &'a Sample,
    /// Host that has the file.
    pub(crate) from: Host,
    /// Name or address by which nicstripe's client calls the daemon's host.
    pub(crate) peer: String,
    pub(crate) rights: Rights,
}

/// Rights of nicstripe on its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Rights of root.
    All,
    /// Rights of any user.
    None,
}

impl<'a> Scene<'a> {
    /// Builds the lab and empties the receiver's folder.
    pub(crate) fn build(
        cables: &'a Cables,
        place: &'a Place,
        sample: &'a mut Sample,
        from: Host,
    ) -> Result<Self> {
        Self::in_lab(
            Lab::builder().links(cables.specs.iter().copied()),
            cables,
            place,
            sample,
            from,
        )
    }

    /// Like [`build`](Self::build), in a lab that has more than the cables.
    pub(crate) fn in_lab(
        lab: LabBuilder,
        cables: &'a Cables,
        place: &'a Place,
        sample: &'a mut Sample,
        from: Host,
    ) -> Result<Self> {
        sample.move_to(&place.files(from))?;
        place.clear(from.peer())?;
        let lab = lab.build()?;
        let peer = lab.address(Host::B, 0).to_string();
        Ok(Self {
            lab,
            cables,
            place,
            sample,
            from,
            peer,
            rights: Rights::All,
        })
    }

    /// Returns the host that receives the file.
    pub(crate) fn to(&self) -> Host {
        self.from.peer()
    }

    /// Returns the path of the copy.
    pub(crate) fn received(&self) -> Result<PathBuf> {
        Ok(self.place.files(self.to()).join(self.sample.name()?))
    }

    /// Returns the bytes that the receiver got on each cable, by its counters.
    pub(crate) fn received_bytes(&self) -> Result<Vec<u64>> {
        let counters = self.lab.counters()?;
        Ok(counters
            .iter()
            .map(|link| link.at(self.to()).received_bytes)
            .collect())
    }

    /// Removes the copy.
    pub(crate) fn discard(&self) -> Result<()> {
        Ok(fs::remove_file(self.received()?)?)
    }
}

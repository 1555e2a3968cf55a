//! Setup of one copy: lab, folders and source file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use nicstripe_lab::{Host, Lab, LabBuilder};

use super::{
    cables::Cables, contender::CpReport, error::Result, place::Place, process::Process,
    sample::Sample,
};

/// Setup of one copy. Each copy has a new lab, so that earlier copies cannot affect it.
#[derive(Debug)]
pub struct Scene<'a> {
    pub lab: Lab,
    pub cables: &'a Cables,
    pub place: &'a Place,
    pub sample: &'a Sample,
    /// Host that sends the file.
    pub from: Host,
    /// Host part of the remote path in `nicstripe cp`: an address or a name of host B.
    pub peer: String,
    pub rights: Rights,
}

/// Privileges of the nicstripe processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// All privileges: the processes run as root.
    All,
    /// No capabilities, like the processes of an ordinary user.
    None,
}

impl<'a> Scene<'a> {
    /// Builds the lab, moves the source file to the sender and empties the receiver's folder.
    pub fn build(
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

    /// Like [`build`](Self::build), with a lab from the caller.
    pub fn in_lab(
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
    pub fn to(&self) -> Host {
        self.from.peer()
    }

    /// Returns the path of the copy at the receiver.
    pub fn received(&self) -> Result<PathBuf> {
        Ok(self.place.files(self.to()).join(self.sample.name()?))
    }

    /// Returns the bytes received on each cable since the lab was built, from the receiver's
    /// interface counters.
    pub fn received_bytes(&self) -> Result<Vec<u64>> {
        let counters = self.lab.counters()?;
        Ok(counters
            .iter()
            .map(|link| link.at(self.to()).received_bytes)
            .collect())
    }

    /// Checks the copy of a client that has exited: its report, and the file, byte by byte.
    pub fn check(&self, client: &mut Process) -> Result<CpReport> {
        client.succeeded()?;
        let report = CpReport::parse(&client.output()?)?;
        self.sample
            .check_digest(report.blake3.as_deref().unwrap_or_default(), "nicstripe")?;
        self.sample.check(&self.received()?)?;
        Ok(report)
    }

    /// Returns a command that enters the control group of `entrance`, and then becomes `command`.
    pub fn in_group(&self, host: Host, command: &Command, entrance: &Path) -> Command {
        let mut inside = self.lab.command(host, "sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(entrance)
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Removes the copied file at the receiver.
    pub fn discard(&self) -> Result<()> {
        Ok(fs::remove_file(self.received()?)?)
    }
}

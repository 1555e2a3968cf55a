//! How a lab comes to be.

use std::{panic, thread};

use crate::{
    cable::{self, Net},
    error::LabError,
    lab::{Lab, Nets},
    settings,
    spec::{LinkSpec, MAX_LINKS},
};

/// What a lab will consist of; see [`Lab::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LabBuilder {
    links: Vec<LinkSpec>,
}

impl LabBuilder {
    /// Adds one link; the first is `eth1`.
    pub fn link(self, spec: LinkSpec) -> Self {
        self.links([spec])
    }

    /// Adds links.
    pub fn links(mut self, specs: impl IntoIterator<Item = LinkSpec>) -> Self {
        self.links.extend(specs);
        self
    }

    /// Builds the lab, in a few milliseconds a link. When this returns all cables are plugged in and pass frames.
    ///
    /// # Errors
    ///
    /// [`LabError::TooManyLinks`], [`LabError::Mtu`], [`LabError::Rate`] for what was asked; [`LabError::Namespace`] where the
    /// rights are missing ([`access`](crate::access) says why); else what the kernel refused. Nothing remains then.
    pub fn build(self) -> Result<Lab, LabError> {
        let links = self.links.len();
        if links > MAX_LINKS {
            return Err(LabError::TooManyLinks { links });
        }
        self.links.iter().enumerate().try_for_each(|(link, spec)| spec.check(link))?;
        // A thread of its own, because whoever makes a namespace is in it from then on.
        let builder = thread::Builder::new().name("lab-builder".to_owned()).spawn(move || build(self.links));
        builder.map_err(LabError::Thread)?.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

/// Leaves the calling thread in the last namespace it made.
fn build(links: Vec<LinkSpec>) -> Result<Lab, LabError> {
    settings::allow_congestion_control();
    let a = host()?;
    let b = host()?;
    let congestion_control = settings::congestion_control().unwrap_or_else(|_| "unknown".to_owned());
    let cables = Net::create_and_enter()?;
    settings::make_cables()?;
    let mut nets = Nets { a, b, cables, links };
    for (link, spec) in nets.links.clone().into_iter().enumerate() {
        cable::build(&mut nets, link, spec)?;
    }
    for link in 0..nets.links.len() {
        cable::await_carrier(&mut nets, link, true)?;
    }
    Ok(Lab::new(nets, congestion_control))
}

fn host() -> Result<Net, LabError> {
    let net = Net::create_and_enter()?;
    settings::make_host()?;
    Ok(net)
}

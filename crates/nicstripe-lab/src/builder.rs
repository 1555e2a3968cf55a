//! How a lab comes to be.

use std::{panic, thread};

use crate::{
    cable::{self, Net},
    error::LabError,
    fault::Corruptors,
    lab::{Host, Lab, Nets},
    settings::{self, Setting},
    spec::LinkSpec,
    wiring::Wiring,
};

/// What a lab will consist of; see [`Lab::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LabBuilder {
    links: Vec<LinkSpec>,
    wiring: Wiring,
    without_ipv6: bool,
    /// Host, name, value.
    sysctls: Vec<(Host, String, String)>,
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

    /// Has all cables end at one switch, in one subnet, as in a home: link `i` is 10.9.0.(11 + `i`)/24 on host A and 10.9.0.(21 + `i`)/24
    /// on host B. For at most [`MAX_LINKS_IN_ONE_SUBNET`](crate::MAX_LINKS_IN_ONE_SUBNET) links.
    ///
    /// The hosts' settings are the kernel's, so they behave as two machines do that nobody set up: all that is not bound to an interface
    /// leaves by `eth1`, and any interface answers for the addresses of the others. Each interface is shaped and counted by itself.
    ///
    /// A link is then a port of the switch for each host, and what one does to a link is done to these two: see [`Lab::cut`] and
    /// [`Lab::drop_silently`].
    pub fn one_subnet(self) -> Self {
        Self { wiring: Wiring::OneSubnet, ..self }
    }

    /// Switches IPv6 off in both hosts, link-local addresses and all (`disable_ipv6`).
    pub fn without_ipv6(self) -> Self {
        Self { without_ipv6: true, ..self }
    }

    /// Gives a setting of a host's kernel a value, as [`Lab::set_sysctl`] does later.
    ///
    /// Settings are written in the order given: those of the host itself before it has interfaces, which copy what `default` says;
    /// those of an interface, like `net/ipv4/conf/eth1/rp_filter`, when all interfaces are there.
    pub fn sysctl(mut self, host: Host, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.sysctls.push((host, name.into(), value.into()));
        self
    }

    /// Builds the lab, in a few milliseconds a link. When this returns all cables are plugged in that shall be, and pass frames; their
    /// link-local IPv6 addresses are there.
    ///
    /// # Errors
    ///
    /// [`LabError::TooManyLinks`], [`LabError::Mtu`], [`LabError::Rate`], [`LabError::Delay`], [`LabError::DelayedSwitch`],
    /// [`LabError::SettingName`] for what was asked;
    /// [`LabError::Namespace`] where the rights are missing ([`access`](crate::access()) says why); else what the kernel refused. Nothing
    /// remains then.
    pub fn build(self) -> Result<Lab, LabError> {
        let (links, limit) = (self.links.len(), self.wiring.max_links());
        if links > limit {
            return Err(LabError::TooManyLinks { links, limit });
        }
        self.links.iter().enumerate().try_for_each(|(link, spec)| spec.check(link))?;
        if let (Wiring::OneSubnet, Some(link)) = (self.wiring, self.links.iter().position(|spec| spec.is_delayed())) {
            return Err(LabError::DelayedSwitch { link });
        }
        let settings = self.sysctls.iter().map(|(host, name, value)| Ok((*host, Setting::new(name, value)?)));
        let settings = settings.collect::<Result<Vec<_>, LabError>>()?;
        // A thread of its own, because whoever makes a namespace is in it from then on.
        let builder = thread::Builder::new().name("lab-builder".to_owned()).spawn(move || build(self, settings));
        builder.map_err(LabError::Thread)?.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

/// Leaves the calling thread in one of the namespaces it made.
fn build(plan: LabBuilder, mut settings: Vec<(Host, Setting)>) -> Result<Lab, LabError> {
    settings::allow_congestion_control();
    let a = host(Host::A, &plan, &mut settings)?;
    let b = host(Host::B, &plan, &mut settings)?;
    let congestion_control = settings::congestion_control().unwrap_or_else(|_| "unknown".to_owned());
    let cables = Net::create_and_enter()?;
    settings::make_cables()?;
    let mut nets = Nets { a, b, cables, wiring: plan.wiring, links: plan.links, corruptors: Corruptors::default(), relays: Vec::new() };
    cable::build_middles(&mut nets)?;
    let links = nets.links.clone();
    for (link, &spec) in links.iter().enumerate() {
        cable::build(&mut nets, link, spec)?;
    }
    for (host, setting) in settings {
        nets.host(host).namespace.enter().map_err(|source| LabError::Enter { host, source })?;
        setting.write()?;
    }
    for (link, &spec) in links.iter().enumerate() {
        cable::await_carrier(&mut nets, link, spec, !spec.starts_unplugged())?;
    }
    Ok(Lab::new(nets, congestion_control))
}

/// Makes a host, and takes from the settings what is not an interface's.
fn host(host: Host, plan: &LabBuilder, settings: &mut Vec<(Host, Setting)>) -> Result<Net, LabError> {
    let net = Net::create_and_enter()?;
    settings::make_host(!plan.without_ipv6)?;
    for (_, setting) in settings.extract_if(.., |(of, setting)| *of == host && setting.exists()) {
        setting.write()?;
    }
    Ok(net)
}

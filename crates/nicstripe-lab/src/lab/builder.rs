//! Configuration and construction of a lab.

use std::{panic, thread};

use crate::{
    cable::{
        self,
        nets::{Net, Nets},
        wiring::Wiring,
    },
    error::LabError,
    host::Host,
    kernel::settings::{self, Setting},
    lab::Lab,
    spec::LinkSpec,
};

impl Lab {
    /// Returns a builder for a lab, initially without links.
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }
}

/// Builder for a lab: its links and the settings of its hosts. See [`Lab::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LabBuilder {
    links: Vec<LinkSpec>,
    wiring: Wiring,
    without_ipv6: bool,
    /// Kernel settings to write: host, name and value of each.
    sysctls: Vec<(Host, String, String)>,
}

impl LabBuilder {
    /// Adds one link; the first one is `eth1` on both hosts.
    pub fn link(self, spec: LinkSpec) -> Self {
        self.links([spec])
    }

    /// Adds links, whose interfaces are numbered in this order after the existing ones.
    pub fn links(mut self, specs: impl IntoIterator<Item = LinkSpec>) -> Self {
        self.links.extend(specs);
        self
    }

    /// Connects all cables to one switch, in one subnet, as in a home network. Link 0 is
    /// 10.9.0.11/24 on host A and 10.9.0.21/24 on host B; each further link adds one. Limited to
    /// [`MAX_LINKS_IN_ONE_SUBNET`](crate::MAX_LINKS_IN_ONE_SUBNET) links.
    ///
    /// The hosts keep the kernel's default settings and behave like two unconfigured machines.
    /// Traffic that is not bound to an interface leaves through `eth1`, and any interface answers
    /// ARP for the addresses of the others. Each interface is shaped and counted separately.
    ///
    /// A link is one switch port for each host, and operations on a link affect these two ports:
    /// see [`Lab::cut`] and [`Lab::drop_silently`].
    pub fn one_subnet(self) -> Self {
        Self {
            wiring: Wiring::OneSubnet,
            ..self
        }
    }

    /// Disables IPv6 in both hosts, including link-local addresses (`disable_ipv6`).
    pub fn without_ipv6(self) -> Self {
        Self {
            without_ipv6: true,
            ..self
        }
    }

    /// Sets a kernel setting of a host when the lab is built, like [`Lab::set_sysctl`] later.
    ///
    /// Settings are written in the given order. Those of the host itself come before its
    /// interfaces, which copy the `default` values. Those of an interface, like
    /// `net/ipv4/conf/eth1/rp_filter`, come after all interfaces exist.
    pub fn sysctl(mut self, host: Host, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.sysctls.push((host, name.into(), value.into()));
        self
    }

    /// Builds the lab, which takes a few milliseconds per link. On return all cables are plugged
    /// in, except those that start unplugged. They pass frames and have their link-local IPv6
    /// addresses.
    ///
    /// # Errors
    ///
    /// [`LabError::Invalid`] for an invalid configuration. Otherwise the request that the kernel
    /// rejected; [`access`](crate::access()) gives the reason if privileges are missing. Nothing
    /// remains after an error.
    pub fn build(self) -> Result<Lab, LabError> {
        let (links, limit) = (self.links.len(), self.wiring.max_links());
        if links > limit {
            return Err(LabError::Invalid(format!(
                "{links} links exceed the limit of {limit}"
            )));
        }
        self.links
            .iter()
            .enumerate()
            .try_for_each(|(link, spec)| spec.check(link))?;
        if let (Wiring::OneSubnet, Some(link)) = (
            self.wiring,
            self.links.iter().position(|spec| spec.is_delayed()),
        ) {
            return Err(LabError::Invalid(format!(
                "link {link}: a cable to a switch has no delay"
            )));
        }
        let settings = self
            .sysctls
            .iter()
            .map(|(host, name, value)| Ok((*host, Setting::new(name, value)?)));
        let settings = settings.collect::<Result<Vec<_>, LabError>>()?;
        // Runs in a separate thread, which stays in the namespaces it creates.
        let builder = thread::Builder::new()
            .name("lab-builder".to_owned())
            .spawn(move || build(self, settings));
        builder
            .map_err(LabError::refused("start a thread for the lab"))?
            .join()
            .unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

/// Builds a lab, and leaves the calling thread in one of its namespaces.
fn build(plan: LabBuilder, mut settings: Vec<(Host, Setting)>) -> Result<Lab, LabError> {
    settings::allow_congestion_control();
    let hosts = [
        host(Host::A, &plan, &mut settings)?,
        host(Host::B, &plan, &mut settings)?,
    ];
    let cables = Net::create_and_enter()?;
    settings::make_cables()?;
    let mut nets = Nets {
        hosts,
        cables,
        wiring: plan.wiring,
        links: plan.links,
        corruptors: Vec::new(),
        relays: Vec::new(),
    };
    cable::build_middles(&mut nets)?;
    let links = nets.links.len();
    (0..links).try_for_each(|link| cable::build(&mut nets, link))?;
    for (host, setting) in settings {
        nets.host(host).namespace.enter_host(host)?;
        setting.write()?;
    }
    for link in 0..links {
        let is_plugged = !nets.links[link].starts_unplugged;
        cable::await_carrier(&mut nets, link, is_plugged)?;
    }
    Ok(Lab::new(nets))
}

/// Creates a host's namespace, and applies those of its settings that exist before its interfaces.
fn host(
    host: Host,
    plan: &LabBuilder,
    settings: &mut Vec<(Host, Setting)>,
) -> Result<Net, LabError> {
    let net = Net::create_and_enter()?;
    settings::make_host(!plan.without_ipv6)?;
    for (_, setting) in settings.extract_if(.., |(of, setting)| *of == host && setting.exists()) {
        setting.write()?;
    }
    Ok(net)
}

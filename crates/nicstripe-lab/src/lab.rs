//! Lab of two hosts and their cables, and the operations on it.
//!
//! `builder` creates it; `host`, `fault` and `bus` are further operations.

use std::{
    ffi::OsStr,
    io,
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    panic,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal},
    thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, set_capabilities,
        set_capabilities_secure_bits, set_no_new_privs,
    },
};

use crate::{
    cable::{
        self,
        nets::Nets,
        wiring::{cable_end, host_end},
    },
    counters::{LinkCounters, Traffic},
    error::LabError,
    host::{Direction, Host},
    kernel::{namespace::Namespace, qdisc},
    rate::BitRate,
    spec::LinkSpec,
};

pub(crate) mod builder;
mod bus;
pub(crate) mod fault;
mod host;

/// Lab of two simulated hosts and the cables between them. Dropping it removes them.
///
/// Links count from 0: link 0 is `eth1` on both hosts. All methods block; most make only a few
/// system calls, in less than 0.1 ms. They may be called from any thread and from inside an async
/// runtime.
///
/// After the drop, the kernel removes namespaces and interfaces as soon as nothing uses them. A
/// child still running in a host, a [`Command`] made for it, or a socket opened in it keeps the
/// host in existence. Its cables can then no longer be controlled.
#[derive(Debug)]
pub struct Lab {
    nets: Mutex<Nets>,
    hosts: [Namespace; 2],
}

impl Lab {
    pub(crate) fn new(nets: Nets) -> Self {
        let hosts = nets.hosts.each_ref().map(|net| net.namespace.clone());
        Self {
            nets: Mutex::new(nets),
            hosts,
        }
    }

    /// Returns a command that runs a program in a host's namespace.
    ///
    /// The program is killed when the thread that spawned it ends, and thus whenever this process
    /// ends: nothing outlives a dead test. Spawn it from a long-lived thread, not from a runtime's
    /// pool of blocking threads. The program has this process's privileges in the host; see
    /// [`Lab::unprivileged_command`]. Do not set a user with [`Command::uid`](CommandExt::uid): it
    /// would take effect before the program enters the host, and make that fail.
    ///
    /// The spawn fails with EPERM if the process has lost its privileges since the lab was built.
    pub fn command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        let namespace = self.namespace(host).clone();
        let parent = getpid();
        let mut command = Command::new(program);
        let prepare = move || {
            namespace.enter()?;
            die_with_parent(parent)
        };
        // SAFETY: between fork and exec `prepare` makes three system calls, and neither allocates
        // nor takes a lock.
        unsafe { command.pre_exec(prepare) };
        command
    }

    /// Returns a command like [`Lab::command`] whose program has no capabilities, like that of an
    /// ordinary user.
    ///
    /// The program keeps its user ID, so it can read and write the caller's files. User ID 0 gives
    /// it no capabilities (securebits NOROOT, capabilities(7)), so it cannot change routes,
    /// interfaces or settings.
    pub fn unprivileged_command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(host, program);
        // SAFETY: between fork and exec `give_up_capabilities` makes three system calls, and
        // neither allocates nor takes a lock.
        unsafe { command.pre_exec(give_up_capabilities) };
        command
    }

    /// Runs a closure in a host's namespace, in a new thread, and waits for it.
    ///
    /// Use it to open sockets in this process: a socket stays in the host that opened it,
    /// whichever thread uses it later. Threads and processes that the closure starts are in the
    /// host as well.
    ///
    /// # Errors
    ///
    /// [`LabError::Kernel`] if the process cannot start a thread, or has lost its privileges since
    /// the lab was built; the closure has not run then.
    ///
    /// # Panics
    ///
    /// Propagates a panic of the closure.
    pub fn on<T: Send>(
        &self,
        host: Host,
        closure: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        let namespace = self.namespace(host);
        let inside = move || {
            namespace.enter_host(host)?;
            Ok(closure())
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name(format!("lab-host-{host}"))
                .spawn_scoped(scope, inside);
            thread
                .map_err(LabError::refused("start a thread for the lab"))?
                .join()
                .unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// Returns a host's IPv4 address on a link, in a /24: 10.77.*link + 1*.1 for A, .2 for B. On
    /// [one subnet](crate::LabBuilder::one_subnet) it is 10.9.0.*link + 11* for A and *link + 21* for B.
    /// No interface of a [bare](LinkSpec::bare) link has this address.
    ///
    /// # Panics
    ///
    /// If the lab has no such link, or the host has no interface on it.
    pub fn address(&self, host: Host, link: usize) -> Ipv4Addr {
        self.assert_has_end(host, link);
        self.nets().wiring.address(host, link)
    }

    /// Returns the interface name of a link, which is the same on both hosts: `eth1` for link 0.
    ///
    /// # Panics
    ///
    /// If the lab has no such link.
    pub fn interface(&self, link: usize) -> String {
        self.assert_has(link);
        host_end(Host::A, link).name
    }

    /// Returns the kernel's index of a host's interface on a link, which is the scope of its
    /// link-local addresses. It differs between the hosts.
    ///
    /// # Panics
    ///
    /// If the lab has no such link, or the host has no interface on it.
    pub fn interface_index(&self, host: Host, link: usize) -> u32 {
        self.assert_has_end(host, link);
        host_end(host, link).index
    }

    /// Returns the current configuration of the links, including the changes by [`Lab::set_rate`].
    pub fn links(&self) -> Vec<LinkSpec> {
        self.nets().links.clone()
    }

    /// Unplugs a cable. On return both hosts have lost the carrier. Their interfaces stay
    /// administratively up, and keep their addresses and routes. Does nothing if the cable is
    /// unplugged already.
    ///
    /// On [one subnet](crate::LabBuilder::one_subnet) this unplugs both hosts' cables of this link from
    /// the switch, and no others.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn cut(&self, link: usize) -> Result<(), LabError> {
        self.set_plugged(link, false)
    }

    /// Plugs in a cable that was cut, or was built [unplugged](LinkSpec::unplugged). On return both
    /// hosts have carrier and their link-local IPv6 addresses, which the kernel creates with the first
    /// carrier, and frames pass. The effect of [`Lab::drop_silently`] stays.
    ///
    /// As after a real cut, a host that tried to send in the meantime retries neighbour resolution
    /// once per second.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn heal(&self, link: usize) -> Result<(), LabError> {
        self.set_plugged(link, true)
    }

    /// Plugs in or unplugs one host's cable to the switch of [one subnet](crate::LabBuilder::one_subnet).
    /// The other host is not affected. In a lab without a switch the other host keeps its carrier
    /// too, as behind a media converter.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`], [`LabError::Kernel`],
    /// [`LabError::Carrier`].
    pub fn set_plugged_at(&self, host: Host, link: usize, plugged: bool) -> Result<(), LabError> {
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        nets.cables.set_up(&cable_end(host, link), plugged)?;
        cable::await_end(&mut nets, host, link, plugged)
    }

    /// Returns true if a host's interface on a link is up with carrier.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`], [`LabError::Kernel`].
    pub fn has_carrier(&self, host: Host, link: usize) -> Result<bool, LabError> {
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        Ok(nets.host(host).state(&host_end(host, link))?.running)
    }

    /// Drops all frames of a direction while the carrier stays, like a switch that hangs. Does
    /// nothing if the direction is dropped already.
    ///
    /// On [one subnet](crate::LabBuilder::one_subnet) the receiving interface defines the direction.
    /// [`Direction::AToB`] drops all frames from the switch to B's interface of this link,
    /// whichever interface sent them. Frames that B sends through it pass.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`].
    pub fn drop_silently(&self, link: usize, direction: Direction) -> Result<(), LabError> {
        self.at_destinations(link, direction, |nets, host| {
            let end = cable_end(host, link);
            nets.cables.queue(
                |handle| qdisc::blackhole(end.index, handle),
                format_args!("put a blackhole on {}", end.name),
            )
        })
    }

    /// Ends the effects of [`Lab::drop_silently`], [`Lab::lose`], [`Lab::block`] and
    /// [`Lab::corrupt`] on a link, in both directions.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`].
    pub fn pass(&self, link: usize) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?;
        spec.hosts()
            .try_for_each(|host| cable::pass(&mut nets, host, link))?;
        spec.hosts()
            .try_for_each(|host| self.set_segmentation(host, link, true))
    }

    /// Calls a function for each host that receives frames of the direction on this link.
    pub(crate) fn at_destinations(
        &self,
        link: usize,
        direction: Direction,
        mut action: impl FnMut(&mut Nets, Host) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?;
        let mut destinations = direction
            .destinations()
            .iter()
            .filter(|&&host| spec.is_on(host));
        destinations.try_for_each(|&host| action(&mut nets, host))
    }

    /// Changes the line rate of a cable in both directions; `None` removes the limit. The MTU
    /// stays.
    ///
    /// Takes effect at once. Frames in the hosts' queues are lost, as when two cards renegotiate
    /// their speed.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Invalid`], [`LabError::Kernel`].
    pub fn set_rate(
        &self,
        link: usize,
        line_rate: impl Into<Option<BitRate>>,
    ) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?.with_rate(line_rate);
        spec.check(link)?;
        for host in spec.hosts() {
            cable::shape(nets.host(host), &host_end(host, link), spec)?;
            if spec.is_shaped_in_the_middle {
                cable::shape_port(&mut nets.cables, &cable_end(host, link), spec)?;
            }
        }
        nets.links[link] = spec;
        Ok(())
    }

    /// Returns the traffic of each link in bytes since the lab was built, in the order of the
    /// links. It is zero for a host without an interface.
    ///
    /// # Errors
    ///
    /// [`LabError::Kernel`] if the counters cannot be read.
    pub fn counters(&self) -> Result<Vec<LinkCounters>, LabError> {
        let mut nets = self.nets();
        let links = nets.links.clone();
        let mut traffic = |host: Host, link: usize, spec: LinkSpec| {
            if spec.is_on(host) {
                cable::traffic(nets.host(host), host, link)
            } else {
                Ok(Traffic::default())
            }
        };
        let links = links.into_iter().enumerate();
        links
            .map(|(link, spec)| {
                Ok(LinkCounters {
                    a: traffic(Host::A, link, spec)?,
                    b: traffic(Host::B, link, spec)?,
                })
            })
            .collect()
    }

    fn set_plugged(&self, link: usize, plugged: bool) -> Result<(), LabError> {
        let mut nets = self.nets();
        cable::plug(&mut nets, link, plugged)?;
        cable::await_carrier(&mut nets, link, plugged)
    }

    fn namespace(&self, host: Host) -> &Namespace {
        &self.hosts[host as usize]
    }

    pub(crate) fn nets(&self) -> MutexGuard<'_, Nets> {
        // No invariant spans two requests, so a panic in another thread leaves a consistent state.
        self.nets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn assert_has(&self, link: usize) {
        if let Err(error) = self.nets().check(link) {
            panic!("{error}");
        }
    }

    fn assert_has_end(&self, host: Host, link: usize) {
        if let Err(error) = self.nets().check_end(host, link) {
            panic!("{error}");
        }
    }
}

/// Makes the kernel kill the calling process when the thread that forked it ends. Must be called
/// between fork and exec.
fn die_with_parent(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the previous line took effect. A parent in another PID
    // namespace appears as `None`.
    match getppid() {
        Some(pid) if pid != parent => Err(Errno::SRCH.into()),
        _ => Ok(()),
    }
}

/// Removes all capabilities from the program to be executed, even if it runs as root. Must be
/// called between fork and exec.
fn give_up_capabilities() -> io::Result<()> {
    set_no_new_privs(true)?;
    set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED,
    )?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?)
}

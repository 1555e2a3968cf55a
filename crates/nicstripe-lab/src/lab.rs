//! The lab itself: two hosts, their cables, and what one can do to them.

use std::{
    ffi::OsStr,
    fmt, io,
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
    thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, set_capabilities, set_capabilities_secure_bits, set_no_new_privs},
};

use crate::{
    builder::LabBuilder,
    cable::{self, Net},
    counters::{LinkCounters, Traffic},
    error::LabError,
    fault::Corruptors,
    namespace::Namespace,
    relay::Relay,
    spec::{BitRate, LinkSpec},
    wiring::{self, Wiring},
};

/// One of the two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// 10.77.*i*.1, or 10.9.0.11 and up.
    A,
    /// 10.77.*i*.2, or 10.9.0.21 and up.
    B,
}

impl Host {
    /// Both hosts.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// The host at the other end of each cable.
    pub fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

/// Which way frames move along a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// What A sends.
    AToB,
    /// What B sends.
    BToA,
    /// What either sends.
    Both,
}

impl Direction {
    /// The hosts that the frames of this direction go to.
    pub(crate) fn destinations(self) -> &'static [Host] {
        match self {
            Self::AToB => &[Host::B],
            Self::BToA => &[Host::A],
            Self::Both => &Host::ALL,
        }
    }
}

/// Two hosts and the cables between them, until it is dropped.
///
/// Links count from 0: link 0 is `eth1` on both hosts. All methods block for the time of a few system calls, which is tens of
/// microseconds; they may be called from any thread and from inside an async runtime.
///
/// When the lab is dropped the kernel removes namespaces and interfaces as soon as nothing is left in them: a child that still
/// runs in a host, a [`Command`] made for it, or a socket opened there keeps that host (but no method to handle its cables).
#[derive(Debug)]
pub struct Lab {
    nets: Mutex<Nets>,
    hosts: [Namespace; 2],
    congestion_control: String,
}

/// The three namespaces' control sockets, and what was last asked of each link.
#[derive(Debug)]
pub(crate) struct Nets {
    pub(crate) a: Net,
    pub(crate) b: Net,
    pub(crate) cables: Net,
    pub(crate) wiring: Wiring,
    pub(crate) links: Vec<LinkSpec>,
    pub(crate) corruptors: Corruptors,
    /// Of the links that have a delay.
    pub(crate) relays: Vec<Relay>,
}

impl Nets {
    pub(crate) fn host(&mut self, host: Host) -> &mut Net {
        match host {
            Host::A => &mut self.a,
            Host::B => &mut self.b,
        }
    }

    /// Whether frames that a host sends over this link may be lost for their size somewhere.
    pub(crate) fn has_narrow_middle(&self, link: usize) -> bool {
        match self.wiring {
            Wiring::Apart => self.links.get(link).is_some_and(|spec| spec.has_narrow_middle()),
            Wiring::OneSubnet => self.links.iter().any(|spec| spec.has_narrow_middle()),
        }
    }

    pub(crate) fn check(&self, link: usize) -> Result<LinkSpec, LabError> {
        self.links.get(link).copied().ok_or(LabError::NoSuchLink { link, links: self.links.len() })
    }

    /// The link, provided that this host is on it.
    pub(crate) fn check_end(&self, host: Host, link: usize) -> Result<LinkSpec, LabError> {
        let spec = self.check(link)?;
        if spec.is_on(host) { Ok(spec) } else { Err(LabError::NotOnHost { link, host }) }
    }
}

impl Lab {
    /// Begins a lab without links.
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    pub(crate) fn new(nets: Nets, congestion_control: String) -> Self {
        let hosts = [nets.a.namespace.clone(), nets.b.namespace.clone()];
        Self { nets: Mutex::new(nets), hosts, congestion_control }
    }

    /// Makes a command that runs in a host.
    ///
    /// The program is killed when the thread that spawned it ends, which includes every end of the process: nothing outlives a
    /// dead test. Spawn it from a thread that lives long enough; a runtime's pool of blocking threads is none. It has this
    /// process's rights over the host; see [`Lab::unprivileged_command`]. Set no user by [`Command::uid`](CommandExt::uid):
    /// that would take effect before the host is entered, and be refused.
    ///
    /// Spawning fails with EPERM when the process has given up its rights since the lab was built.
    pub fn command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        let namespace = self.namespace(host).clone();
        let parent = getpid();
        let mut command = Command::new(program);
        let prepare = move || {
            namespace.enter()?;
            die_with_parent(parent)
        };
        // SAFETY: between fork and exec `prepare` makes three system calls, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(prepare) };
        command
    }

    /// Makes a command like [`Lab::command`] whose program has no capability, as an ordinary user's has none.
    ///
    /// It keeps its user id, so that it may read and write the caller's files, but being root means nothing to it (securebits
    /// NOROOT, capabilities(7)): it can change no route, no interface and no setting.
    pub fn unprivileged_command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(host, program);
        // SAFETY: between fork and exec `give_up_capabilities` makes three system calls, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(give_up_capabilities) };
        command
    }

    /// Runs a closure in a host, on a thread of its own, and waits for it.
    ///
    /// For sockets opened in this process: a socket stays in the host it was opened in, whichever thread uses it later. Threads
    /// and processes that the closure starts are in the host as well.
    ///
    /// # Errors
    ///
    /// [`LabError::Thread`] and [`LabError::Enter`]; the closure has not run then.
    ///
    /// # Panics
    ///
    /// With the closure's panic.
    pub fn on<T: Send>(&self, host: Host, closure: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let namespace = self.namespace(host);
        let inside = move || {
            namespace.enter().map_err(|source| LabError::Enter { host, source })?;
            Ok(closure())
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(format!("lab-host-{host}")).spawn_scoped(scope, inside);
            thread.map_err(LabError::Thread)?.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// A host's IPv4 address on a link: 10.77.*link + 1*.1 for A, .2 for B, in a /24; on [one subnet](LabBuilder::one_subnet),
    /// 10.9.0.*link + 11* for A and *link + 21* for B. A [bare](LinkSpec::bare) link has this address for nobody.
    ///
    /// # Panics
    ///
    /// When the lab has no such link, or the host no interface on it.
    pub fn address(&self, host: Host, link: usize) -> Ipv4Addr {
        self.assert_has_end(host, link);
        self.nets().wiring.address(host, link)
    }

    /// The name of a link's interface, the same on both hosts: `eth1` for link 0.
    ///
    /// # Panics
    ///
    /// When the lab has no such link.
    pub fn interface(&self, link: usize) -> String {
        self.assert_has(link);
        wiring::host_end(Host::A, link).name
    }

    /// The kernel's index of a link's interface, the scope of link-local addresses. It differs between the hosts.
    ///
    /// # Panics
    ///
    /// When the lab has no such link, or the host no interface on it.
    pub fn interface_index(&self, host: Host, link: usize) -> u32 {
        self.assert_has_end(host, link);
        wiring::host_end(host, link).index
    }

    /// The links as they are, after every [`Lab::set_rate`].
    pub fn links(&self) -> Vec<LinkSpec> {
        self.nets().links.clone()
    }

    /// The congestion control of both hosts: `cubic`, or this machine's default where the lab may not choose.
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// Cuts a cable: both hosts lose the carrier, and see it when this returns. Their interfaces stay administratively up, with
    /// their addresses and routes. Nothing happens to a cable that is cut already.
    ///
    /// On [one subnet](LabBuilder::one_subnet) both hosts' cables to the switch are cut, and no others.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn cut(&self, link: usize) -> Result<(), LabError> {
        self.set_plugged(link, false)
    }

    /// Plugs a cable in again: both hosts have the carrier, and frames pass, when this returns. A silent drop stays as it was.
    ///
    /// Like after a real cut, a host that tried to send meanwhile asks for its neighbour's hardware address once a second.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn heal(&self, link: usize) -> Result<(), LabError> {
        self.set_plugged(link, true)
    }

    /// Plugs in a cable that was built [unplugged](LinkSpec::unplugged), or was unplugged later: the same as [`Lab::heal`]. The hosts'
    /// link-local IPv6 addresses, which the kernel makes with the first carrier, are there when this returns.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn plug(&self, link: usize) -> Result<(), LabError> {
        self.set_plugged(link, true)
    }

    /// Unplugs a cable: the same as [`Lab::cut`].
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn unplug(&self, link: usize) -> Result<(), LabError> {
        self.set_plugged(link, false)
    }

    /// Cuts one host's cable to the switch of [one subnet](LabBuilder::one_subnet), or plugs it in: the other host's cable of that link
    /// stays as it was. With a cable of its own the other host keeps its carrier as well, as behind a media converter.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::NotOnHost`], [`LabError::Kernel`], [`LabError::Carrier`].
    pub fn set_plugged_at(&self, host: Host, link: usize, plugged: bool) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?;
        nets.check_end(host, link)?;
        cable::plug_end(&mut nets.cables, host, link, plugged)?;
        cable::await_end(&mut nets, host, link, spec, plugged)
    }

    /// Whether a host sees a carrier on a link.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::NotOnHost`], [`LabError::Kernel`].
    pub fn has_carrier(&self, host: Host, link: usize) -> Result<bool, LabError> {
        let mut nets = self.nets();
        nets.check_end(host, link)?;
        cable::has_carrier(nets.host(host), host, link)
    }

    /// Makes a cable lose all frames of a direction while the carrier stays, as a switch does that hangs. A direction that is lost
    /// already stays lost.
    ///
    /// On [one subnet](LabBuilder::one_subnet) a direction is named by where frames arrive: [`Direction::AToB`] loses all that the switch
    /// would hand to B's interface of this link, whichever interface it came from. What this host sends by it passes.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`].
    pub fn drop_silently(&self, link: usize, direction: Direction) -> Result<(), LabError> {
        self.at_destinations(link, direction, |nets, host| cable::lose(&mut nets.cables, host, link))
    }

    /// Ends what [`Lab::drop_silently`], [`Lab::lose`], [`Lab::block`] and [`Lab::corrupt`] began, in both directions.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Kernel`].
    pub fn pass(&self, link: usize) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?;
        spec.hosts().try_for_each(|host| cable::pass(&mut nets, host, link))?;
        spec.hosts().try_for_each(|host| self.set_segmentation(host, link, true))
    }

    /// Does something to a link for each host that the frames of a direction go to.
    pub(crate) fn at_destinations(
        &self,
        link: usize,
        direction: Direction,
        mut action: impl FnMut(&mut Nets, Host) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?;
        let mut destinations = direction.destinations().iter().filter(|&&host| spec.is_on(host));
        destinations.try_for_each(|&host| action(&mut nets, host))
    }

    /// Gives a cable another line rate, in both directions, or none with `None`. Its MTU stays.
    ///
    /// Takes effect at once; frames that wait in the hosts' queues are lost, as when two cards agree on another speed.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchLink`], [`LabError::Rate`], [`LabError::Kernel`].
    pub fn set_rate(&self, link: usize, line_rate: impl Into<Option<BitRate>>) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?.with_rate(line_rate);
        spec.check(link)?;
        for host in spec.hosts() {
            cable::shape(nets.host(host), host, link, spec)?;
        }
        nets.links[link] = spec;
        Ok(())
    }

    /// What each link carried since the lab was built, in the order of the links. Where a host has no interface, nothing.
    ///
    /// # Errors
    ///
    /// [`LabError::Kernel`].
    pub fn counters(&self) -> Result<Vec<LinkCounters>, LabError> {
        let mut nets = self.nets();
        let links = nets.links.clone();
        let mut traffic = |host: Host, link: usize, spec: LinkSpec| {
            if spec.is_on(host) { cable::traffic(nets.host(host), host, link) } else { Ok(Traffic::default()) }
        };
        let links = links.into_iter().enumerate();
        links.map(|(link, spec)| Ok(LinkCounters { a: traffic(Host::A, link, spec)?, b: traffic(Host::B, link, spec)? })).collect()
    }

    fn set_plugged(&self, link: usize, plugged: bool) -> Result<(), LabError> {
        let mut nets = self.nets();
        let spec = nets.check(link)?;
        cable::plug(&mut nets.cables, link, spec, plugged)?;
        cable::await_carrier(&mut nets, link, spec, plugged)
    }

    fn namespace(&self, host: Host) -> &Namespace {
        let [a, b] = &self.hosts;
        match host {
            Host::A => a,
            Host::B => b,
        }
    }

    pub(crate) fn nets(&self) -> MutexGuard<'_, Nets> {
        // No invariant spans two requests, so a panic in another thread leaves nothing half done.
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

/// Has the calling process killed when the thread that forked it ends. To be called between fork and exec.
fn die_with_parent(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above took effect. A parent in another PID namespace is seen as `None`.
    match getppid() {
        Some(pid) if pid != parent => Err(Errno::SRCH.into()),
        _ => Ok(()),
    }
}

/// Leaves the program to be executed without any capability, whoever its user is. To be called between fork and exec.
fn give_up_capabilities() -> io::Result<()> {
    set_no_new_privs(true)?;
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED)?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

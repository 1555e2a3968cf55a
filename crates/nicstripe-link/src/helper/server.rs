//! Server of the route helper, which changes routes and MTUs. It reads requests from a pipe,
//! enforces the policy itself, and undoes its changes when the pipe closes.
//!
//! It parses no network input: requests have a fixed length and come from its parent, facts come
//! from the kernel, and the only files it reads are its records and the machine's resolver files.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::ExitCode,
    time::Instant,
};

use nicstripe_netlink::{BUFFER_LEN, Messages, NetlinkSocket};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::SocketFlags,
};

use crate::{
    helper::{
        held_mtus::HeldMtus,
        protocol::{REQUEST_LEN, Reply, Request},
        rights,
    },
    interface::{
        InterfaceIndex,
        enumerate::{AddressMessage, LinkMessage},
        events::{RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR, RTMGRP_LINK},
    },
    ledger::{SHARED_STATE_DIR, Tidy},
    mtu::manager::Mtus,
    routes::{HostRoute, MAX_ROUTES, RouteError, manager::Routes, neighbours, policy::may_add},
};

/// Runs `nicstripe-routes`: serves requests on standard input until it closes, then removes the
/// routes it added.
///
/// The only argument is the state directory, an absolute path. A program with more privileges than
/// its caller (file capabilities, set-group-ID) ignores the argument and uses [`SHARED_STATE_DIR`].
/// It drops all capabilities except `CAP_NET_ADMIN`.
///
/// Signals to a process group do not end the program. It ends when its input closes, which also
/// happens when the writing process ends, and only then removes the routes. The first such signal
/// restores MTUs and disables further MTU changes, because a kill may follow and would leave the
/// wrong MTU to other programs.
pub fn route_helper_main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let argument = arguments.nth(1);
    let state_dir = match &argument {
        _ if rights::gained_by_execution() => Path::new(SHARED_STATE_DIR),
        Some(argument) if Path::new(argument).is_absolute() => Path::new(argument),
        _ => {
            eprintln!(
                "nicstripe-routes is started by nicstripe, with the absolute path of a state directory"
            );
            return ExitCode::from(2);
        }
    };
    if rights::gained_by_execution() && !state_dir.is_dir() {
        eprintln!(
            "nicstripe-routes: {SHARED_STATE_DIR} is missing, where routes are recorded; see \"Host routes\" in the manual"
        );
        return ExitCode::FAILURE;
    }
    let signals = rights::hold_signals();
    rights::share_directory(state_dir);
    if let Err(error) = rights::drop_all_but_net_admin() {
        eprintln!("nicstripe-routes: cannot give up rights: {error}");
        return ExitCode::FAILURE;
    }
    match serve(&io::stdin(), &io::stdout(), state_dir, signals.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nicstripe-routes: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves requests from `input`, with answers on `output`, until `input` closes or holds an invalid
/// request. Then removes its routes and restores its MTUs.
///
/// Also restores its MTUs when `signals` becomes readable.
///
/// # Errors
///
/// Waiting for requests failed; the changes are undone in this case too.
pub(crate) fn serve(
    input: &impl AsFd,
    output: &impl AsFd,
    state_dir: &Path,
    signals: Option<&OwnedFd>,
) -> io::Result<()> {
    let _tidy = Tidy::new(state_dir);
    let mut server = Server {
        state_dir,
        signals,
        mtus: HeldMtus::new(state_dir),
        held: Vec::new(),
        lost: BTreeSet::new(),
    };
    server.sweep();
    let ended = server.obey(input, output);
    server.mtus.end();
    server.release();
    ended
}

struct Server<'d> {
    state_dir: &'d Path,
    /// Descriptor that becomes readable on a termination signal; `None` after the first one.
    signals: Option<&'d OwnedFd>,
    mtus: HeldMtus<'d>,
    /// Routes that this server has added and not yet removed. At most [`MAX_ROUTES`].
    held: Vec<HostRoute>,
    /// Interfaces that went down, so that the kernel dropped their routes.
    lost: BTreeSet<InterfaceIndex>,
}

impl Server<'_> {
    fn obey(&mut self, input: &impl AsFd, output: &impl AsFd) -> io::Result<()> {
        let groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
        let changes =
            NetlinkSocket::open(None, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, groups)?;
        let mut output = File::from(output.as_fd().try_clone_to_owned()?);
        let mut buffer = vec![0; BUFFER_LEN];
        let mut bytes = [0; REQUEST_LEN];
        let mut filled = 0;
        loop {
            let [has_request, changed, must_end] =
                wait(input, &changes, self.signals, self.mtus.next_end())?;
            if must_end {
                self.signals = None;
                self.mtus.end();
            }
            self.mtus.release_expired();
            if changed {
                self.on_changes(&changes, &mut buffer);
            }
            if !has_request {
                continue;
            }
            filled += match rustix::io::read(input, &mut bytes[filled..]) {
                Err(Errno::INTR) => continue,
                // A reset counts as the end of input.
                Ok(0) | Err(_) => return Ok(()),
                Ok(len) => len,
            };
            if filled == REQUEST_LEN {
                filled = 0;
                let request = Request::decode(&bytes);
                let answer = request
                    .as_ref()
                    .map_or_else(Reply::not_understood, |request| self.carry_out(request));
                if output.write_all(&answer.encode()).is_err() || request.is_none() {
                    return Ok(());
                }
            }
        }
    }

    fn carry_out(&mut self, request: &Request) -> Reply {
        match *request {
            Request::Add(ref route) => Reply::of(self.add(route)),
            Request::Remove(ref route) => Reply::of(self.remove(route)),
            Request::Restore(interface) => Reply::of(self.restore(interface)),
            Request::Clean => Reply::of(self.clean()),
            Request::SetMtu {
                interface,
                mtu,
                seconds,
            } => Reply::of(self.mtus.set(interface, mtu, seconds)),
            Request::RestoreMtu(interface) => {
                Reply::of(self.mtus.restore(interface).map(u32::from))
            }
            Request::ForgetNeighbour(ref route) => {
                Reply::of(forget_neighbour(route).map(u32::from))
            }
        }
    }

    fn clean(&self) -> Result<u32, RouteError> {
        self.mtus.clean();
        Routes::open(self.state_dir)?
            .clean()
            .map(|removed| removed.len() as u32)
    }

    fn add(&mut self, route: &HostRoute) -> Result<u32, RouteError> {
        if self.held.contains(route) {
            return Ok(0);
        }
        if self.held.len() >= MAX_ROUTES {
            return Err(RouteError::TooMany(route.destination));
        }
        may_add(route)?;
        Routes::open(self.state_dir)?.add(route)?;
        self.held.push(*route);
        Ok(1)
    }

    fn remove(&mut self, route: &HostRoute) -> Result<u32, RouteError> {
        let Some(position) = self.held.iter().position(|held| held == route) else {
            return Ok(0);
        };
        let deleted = Routes::open(self.state_dir)?.remove(route)?;
        self.held.remove(position);
        Ok(deleted.into())
    }

    /// Reinstalls the held routes through an interface if the policy still allows them. Returns the
    /// number of these routes that are now installed.
    fn restore(&mut self, interface: InterfaceIndex) -> Result<u32, RouteError> {
        let routes = Routes::open(self.state_dir)?;
        let mut present = 0;
        for route in self
            .held
            .iter()
            .filter(|route| route.interface == interface)
        {
            may_add(route)?;
            present += u32::from(routes.restore(route)?);
        }
        self.lost.remove(&interface);
        Ok(present)
    }

    /// Handles the kernel's link and address messages, and reinstalls dropped routes as soon as
    /// possible.
    fn on_changes(&mut self, changes: &NetlinkSocket, buffer: &mut [u8]) {
        loop {
            match changes.receive(buffer) {
                Ok(datagram) => Messages::new(datagram).for_each(|message| match message.kind {
                    libc::RTM_NEWLINK => LinkMessage::parse(&message)
                        .into_iter()
                        .for_each(|link| self.on_link(link.index, link.up)),
                    // The policy and routes with a source need the interface's addresses, which
                    // return later than the link.
                    libc::RTM_NEWADDR => AddressMessage::parse(&message)
                        .into_iter()
                        .for_each(|address| self.retry(address.interface)),
                    _ => {}
                }),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.lost
                        .extend(self.held.iter().map(|route| route.interface));
                    self.lost
                        .clone()
                        .into_iter()
                        .for_each(|interface| self.retry(interface));
                }
                Err(_) => return,
            }
        }
    }

    fn on_link(&mut self, interface: InterfaceIndex, up: bool) {
        if up {
            self.retry(interface);
        } else if self.held.iter().any(|route| route.interface == interface) {
            self.lost.insert(interface);
        }
    }

    /// Reinstalls the routes of an interface that has lost them. A failure is retried at the next
    /// change of that interface.
    fn retry(&mut self, interface: InterfaceIndex) {
        if self.lost.contains(&interface) {
            let _ = self.restore(interface);
        }
    }

    /// Removes the routes and restores the MTUs that dead processes left. Ignores errors: the next
    /// route request reports them.
    fn sweep(&self) {
        if Mtus::any_recorded(self.state_dir) {
            self.mtus.clean();
        }
        let left = |routes: &Routes| routes.list_ours().is_ok_and(|ours| !ours.is_empty());
        if let Some(routes) = Routes::open(self.state_dir).ok().filter(left) {
            let _ = routes.clean();
        }
    }

    /// Removes all held routes. After a failure, the next nicstripe process removes the route at
    /// its start.
    fn release(&mut self) {
        while let Some(route) = self.held.pop() {
            let _ = Routes::open(self.state_dir).and_then(|routes| routes.remove(&route));
        }
    }
}

/// Deletes the stale neighbour entry of a route's destination. Applies the route policy, so that a
/// caller cannot delete the entries of routers and name servers.
fn forget_neighbour(route: &HostRoute) -> Result<bool, RouteError> {
    may_add(route)?;
    neighbours::forget_doubted(route.destination)
        .map_err(|source| RouteError::kernel(route, source))
}

/// Waits until a request, an interface change or a signal arrives, or until the time `until`.
/// Returns true for each of the three that has arrived, in this order.
fn wait(
    input: &impl AsFd,
    changes: &NetlinkSocket,
    signals: Option<&OwnedFd>,
    until: Option<Instant>,
) -> io::Result<[bool; 3]> {
    // Without signals the third entry repeats `input` with no events requested.
    let (third, flags) = signals.map_or((input.as_fd(), PollFlags::empty()), |signals| {
        (signals.as_fd(), PollFlags::IN)
    });
    let mut waiting = [
        PollFd::new(input, PollFlags::IN),
        PollFd::new(changes, PollFlags::IN),
        PollFd::from_borrowed_fd(third, flags),
    ];
    retry_on_intr(|| {
        let rest = until.and_then(|until| {
            Timespec::try_from(until.saturating_duration_since(Instant::now())).ok()
        });
        poll(&mut waiting, rest.as_ref())
    })?;
    let [has_request, changed, third] = waiting.map(|one| !one.revents().is_empty());
    Ok([has_request, changed, third && signals.is_some()])
}

//! Network namespaces of a lab, and the current configuration of its links.

use std::{fmt, io};

use nicstripe_netlink::{Message, NLM_F_CREATE, NLM_F_EXCL, Netlink, Request};

use crate::{
    address::Assigned,
    cable::{relay::Relay, wiring::Wiring},
    error::LabError,
    host::Host,
    kernel::{
        bpf::Corruptor,
        filter::{self, Slot},
        message::{self, End, Ipv6Address, LinkState},
        namespace::Namespace,
        qdisc::{self, Handle},
    },
    spec::LinkSpec,
};

/// State of the lab: control sockets of the three namespaces, and the current configuration of each
/// link.
#[derive(Debug)]
pub(crate) struct Nets {
    /// Hosts A and B.
    pub(crate) hosts: [Net; 2],
    pub(crate) cables: Net,
    pub(crate) wiring: Wiring,
    pub(crate) links: Vec<LinkSpec>,
    /// Programs that have corrupted frames, with the index of the link. Removed programs stay in the
    /// list, because their counters are still needed.
    pub(crate) corruptors: Vec<(usize, Corruptor)>,
    /// Relays of frames between the hosts, one for each link that has a delay.
    pub(crate) relays: Vec<Relay>,
}

impl Nets {
    pub(crate) fn host(&mut self, host: Host) -> &mut Net {
        &mut self.hosts[host as usize]
    }

    /// Returns true if the middle of this link may drop frames because of their size.
    pub(crate) fn has_narrow_middle(&self, link: usize) -> bool {
        match self.wiring {
            Wiring::Apart => self
                .links
                .get(link)
                .is_some_and(|spec| spec.has_narrow_middle()),
            Wiring::OneSubnet => self.links.iter().any(|spec| spec.has_narrow_middle()),
        }
    }

    pub(crate) fn check(&self, link: usize) -> Result<LinkSpec, LabError> {
        self.links.get(link).copied().ok_or(LabError::NoSuchLink {
            link,
            links: self.links.len(),
        })
    }

    /// Returns the configuration of a link, or an error if the link does not exist or the host has
    /// no interface on it.
    pub(crate) fn check_end(&self, host: Host, link: usize) -> Result<LinkSpec, LabError> {
        let spec = self.check(link)?;
        if spec.is_on(host) {
            Ok(spec)
        } else {
            Err(LabError::Invalid(format!(
                "link {link} has no interface on host {host}"
            )))
        }
    }
}

/// Network namespace with a netlink socket that configures it.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) namespace: Namespace,
    netlink: Netlink,
    next_handle: Handle,
}

impl Net {
    /// Creates a network namespace, moves the calling thread into it, and sets its loopback up.
    pub(crate) fn create_and_enter() -> Result<Self, LabError> {
        let namespace =
            Namespace::create_and_enter().map_err(LabError::refused("make a network namespace"))?;
        let netlink = Netlink::route().map_err(LabError::refused("open a netlink socket"))?;
        let mut net = Self {
            namespace,
            netlink,
            next_handle: Handle::FIRST,
        };
        net.change(
            message::set_up(LOOPBACK_INDEX, true),
            0,
            "set the loopback up",
        )?;
        Ok(net)
    }

    /// Sends a request to the kernel. `action` describes it in the error and completes "cannot …".
    pub(crate) fn change(
        &mut self,
        message: Request,
        flags: u16,
        action: impl fmt::Display,
    ) -> Result<(), LabError> {
        let done = self.netlink.command(&message, flags);
        done.map_err(LabError::refused(action))
    }

    pub(crate) fn queue(
        &mut self,
        message: impl FnOnce(Handle) -> Request,
        action: impl fmt::Display,
    ) -> Result<(), LabError> {
        let handle = self.next_handle;
        self.next_handle = handle.next();
        self.change(message(handle), qdisc::REPLACE, action)
    }

    /// Sends a request to remove an object. Succeeds if the object does not exist.
    pub(crate) fn remove(
        &mut self,
        message: Request,
        action: impl fmt::Display,
    ) -> Result<(), LabError> {
        let absent = [libc::ENOENT, libc::EINVAL, libc::ENODEV];
        match self.netlink.command(&message, 0) {
            // The hooks and the chain of a filter may not exist either, nor the interface.
            Err(error)
                if error
                    .raw_os_error()
                    .is_some_and(|errno| absent.contains(&errno)) =>
            {
                Ok(())
            }
            result => result.map_err(LabError::refused(action)),
        }
    }

    /// Adds a filter to the egress of an interface, and the clsact hooks if they are missing.
    pub(crate) fn filter(&mut self, end: &End, filter: Request) -> Result<(), LabError> {
        match self.netlink.command(&filter::add_hooks(end.index), NEW) {
            Err(source) if source.raw_os_error() != Some(libc::EEXIST) => {
                return Err(LabError::refused(format_args!("put hooks on {}", end.name))(source));
            }
            _ => {}
        }
        let action = format_args!("put a filter on {}", end.name);
        self.change(filter, NLM_F_CREATE, action)
    }

    pub(crate) fn unfilter(&mut self, end: &End, slot: Slot) -> Result<(), LabError> {
        let action = format_args!("remove a filter of {}", end.name);
        self.remove(filter::remove(end.index, slot), action)
    }

    pub(crate) fn set_up(&mut self, end: &End, up: bool) -> Result<(), LabError> {
        let action = format_args!("set {} {}", end.name, if up { "up" } else { "down" });
        self.change(message::set_up(end.index, up), 0, action)
    }

    /// Adds an address to an interface. Fails if the interface already has it.
    pub(crate) fn add_address(&mut self, end: &End, address: Assigned) -> Result<(), LabError> {
        let action = format_args!("add {address} to {}", end.name);
        self.change(message::add_address(end.index, address), NEW, action)
    }

    pub(crate) fn state(&mut self, end: &End) -> Result<LinkState, LabError> {
        let answer = self
            .netlink
            .query(&message::get(end.index), LinkState::parse);
        answer
            .and_then(|state| state.ok_or_else(|| io::ErrorKind::InvalidData.into()))
            .map_err(LabError::refused(format_args!(
                "read the state of {}",
                end.name
            )))
    }

    /// Returns the IPv6 addresses of an interface; none if IPv6 is disabled.
    pub(crate) fn ipv6_addresses(&mut self, end: &End) -> Result<Vec<Ipv6Address>, LabError> {
        let of_end = |message: &Message<'_>| {
            Ipv6Address::parse(message).filter(|address| address.interface == end.index)
        };
        let dump = self.netlink.dump(&message::get_ipv6_addresses(), of_end);
        let action = format_args!("read the addresses of {}", end.name);
        dump.map_err(LabError::refused(action))
    }
}

const LOOPBACK_INDEX: u32 = 1;

/// Flags of a request to create an object; it fails if the object exists.
pub(crate) const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

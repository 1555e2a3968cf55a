//! One link as the kernel sees it: a veth pair from each host to a bridge in between.

use std::{
    net::Ipv4Addr,
    thread,
    time::{Duration, Instant},
};

use rtnetlink::{
    packet_core::{NLM_F_CREATE, NLM_F_EXCL},
    packet_route::{RouteNetlinkMessage, link::LinkMessage},
};
use rustix::io::Errno;

use crate::{
    counters::Traffic,
    error::LabError,
    lab::{Host, Nets},
    message::{self, End},
    namespace::Namespace,
    netlink::Netlink,
    qdisc::{self, Handle},
    spec::LinkSpec,
};

/// A namespace and the socket that changes it.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) namespace: Namespace,
    netlink: Netlink,
    next_handle: Handle,
}

impl Net {
    /// Makes a namespace, moves the calling thread into it, and sets its loopback up.
    pub(crate) fn create_and_enter() -> Result<Self, LabError> {
        let namespace = Namespace::create_and_enter().map_err(LabError::Namespace)?;
        let netlink = Netlink::open().map_err(LabError::Netlink)?;
        let mut net = Self { namespace, netlink, next_handle: Handle::FIRST };
        net.change(message::set_up(LOOPBACK_INDEX, true), 0, || "set the loopback up".to_owned())?;
        Ok(net)
    }

    /// `action` completes "cannot …", should the kernel refuse.
    fn change(&mut self, message: RouteNetlinkMessage, flags: u16, action: impl FnOnce() -> String) -> Result<(), LabError> {
        let refused = |errno: Errno| LabError::Kernel { action: action(), source: errno.into() };
        self.netlink.change(message, flags).map_err(refused)
    }

    fn queue(&mut self, message: impl FnOnce(Handle) -> RouteNetlinkMessage, action: impl FnOnce() -> String) -> Result<(), LabError> {
        let handle = self.next_handle;
        self.next_handle = handle.next();
        self.change(message(handle), qdisc::REPLACE, action)
    }

    fn state(&mut self, end: &End) -> Result<LinkMessage, LabError> {
        let refused = |source| LabError::Kernel { action: format!("read the state of {}", end.name), source };
        self.netlink.link(end.index).map_err(refused)
    }
}

/// Makes a link: wire, addresses, shaping; plugged in, but not waited for.
pub(crate) fn build(nets: &mut Nets, link: usize, spec: LinkSpec) -> Result<(), LabError> {
    let bridge = bridge(link);
    let cables = nets.cables.namespace.clone();
    nets.cables.change(message::add_bridge(&bridge, spec.mtu()), NEW, || format!("add bridge {}", bridge.name))?;
    for host in Host::ALL {
        let (near, far) = (host_end(host, link), cable_end(host, link));
        let net = nets.host(host);
        net.change(message::add_veth(&near, &far, Some(&cables), spec.mtu()), NEW, || format!("add veth {}", near.name))?;
        let address = address(host, link);
        net.change(message::add_address(near.index, address), NEW, || format!("add {address} to {}", near.name))?;
        shape(net, host, link, spec)?;
        net.change(message::set_up(near.index, true), 0, || format!("set {} up", near.name))?;
        let join = || format!("put {} into {}", far.name, bridge.name);
        nets.cables.change(message::join_bridge(far.index, bridge.index), 0, join)?;
    }
    plug(&mut nets.cables, link, true)
}

/// Sets the cable's two ends up or down.
pub(crate) fn plug(cables: &mut Net, link: usize, up: bool) -> Result<(), LabError> {
    for host in Host::ALL {
        let end = cable_end(host, link);
        let action = || format!("set {} {}", end.name, if up { "up" } else { "down" });
        cables.change(message::set_up(end.index, up), 0, action)?;
    }
    Ok(())
}

/// Waits until both hosts see that their cable was plugged in, and it passes frames, or that it was cut.
///
/// The kernel tells interfaces of a new carrier from a work queue, within a millisecond on an idle machine.
pub(crate) fn await_carrier(nets: &mut Nets, link: usize, healed: bool) -> Result<(), LabError> {
    let deadline = Instant::now() + CARRIER_TIMEOUT;
    while !settled(nets, link, healed)? {
        if Instant::now() > deadline {
            return Err(LabError::Carrier { link, healed, timeout_ms: CARRIER_TIMEOUT.as_millis() });
        }
        thread::sleep(CARRIER_POLL);
    }
    Ok(())
}

/// Whether a host sees a carrier.
pub(crate) fn has_carrier(net: &mut Net, host: Host, link: usize) -> Result<bool, LabError> {
    Ok(message::is_running(&net.state(&host_end(host, link))?))
}

/// Loses all that the cable would hand to a host.
pub(crate) fn lose(cables: &mut Net, destination: Host, link: usize) -> Result<(), LabError> {
    let end = cable_end(destination, link);
    cables.queue(|handle| qdisc::blackhole(end.index, handle), || format!("put a blackhole on {}", end.name))
}

/// Hands everything to a host again.
pub(crate) fn pass(cables: &mut Net, destination: Host, link: usize) -> Result<(), LabError> {
    unqueue(cables, &cable_end(destination, link))
}

/// Shapes what a host sends.
pub(crate) fn shape(net: &mut Net, host: Host, link: usize, spec: LinkSpec) -> Result<(), LabError> {
    let end = host_end(host, link);
    match spec.shaping() {
        Some(shaping) => net.queue(|handle| qdisc::tbf(end.index, handle, shaping), || format!("shape {}", end.name)),
        None => unqueue(net, &end),
    }
}

/// What a host's end has carried.
pub(crate) fn traffic(net: &mut Net, host: Host, link: usize) -> Result<Traffic, LabError> {
    let end = host_end(host, link);
    let missing = || LabError::Kernel { action: format!("find the counters of {}", end.name), source: Errno::NODATA.into() };
    Traffic::of(&net.state(&end)?).ok_or_else(missing)
}

/// A host's address on a link. Links are fewer than 255, checked when the lab is built.
pub(crate) fn address(host: Host, link: usize) -> Ipv4Addr {
    let last = match host {
        Host::A => 1,
        Host::B => 2,
    };
    Ipv4Addr::new(10, 77, u8::try_from(link + 1).unwrap_or(u8::MAX), last)
}

/// The interface inside a host.
pub(crate) fn host_end(host: Host, link: usize) -> End {
    let base = match host {
        Host::A => 10,
        Host::B => 1010,
    };
    end("eth", base, link)
}

/// The interface that the cable shows towards a host.
fn cable_end(host: Host, link: usize) -> End {
    match host {
        Host::A => end("a", 2010, link),
        Host::B => end("b", 3010, link),
    }
}

fn bridge(link: usize) -> End {
    end("cable", 4010, link)
}

/// The ranges of indexes do not meet: see [`End`]. Neither do A's and B's, so that whoever mixes them up fails.
fn end(prefix: &str, base: u32, link: usize) -> End {
    let number = u32::try_from(link + 1).unwrap_or(u32::MAX - base);
    End { name: format!("{prefix}{number}"), index: base + number }
}

fn settled(nets: &mut Nets, link: usize, healed: bool) -> Result<bool, LabError> {
    for host in Host::ALL {
        if has_carrier(nets.host(host), host, link)? != healed {
            return Ok(false);
        }
        if healed && !message::is_forwarding(&nets.cables.state(&cable_end(host, link))?) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn unqueue(net: &mut Net, end: &End) -> Result<(), LabError> {
    match net.netlink.change(qdisc::remove(end.index), 0) {
        // ENOENT: there was none.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(LabError::Kernel { action: format!("remove the qdisc of {}", end.name), source: errno.into() }),
    }
}

const LOOPBACK_INDEX: u32 = 1;
/// Flags of a request that makes something that must not exist yet.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
/// How long a carrier may take to come or go: thousands of times what it takes, for machines that are busy.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);
const CARRIER_POLL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::spec::MAX_LINKS;

    #[test]
    fn no_two_interfaces_share_an_index() {
        let ends = (0..MAX_LINKS).flat_map(|link| {
            let hosts = Host::ALL.into_iter().flat_map(move |host| [host_end(host, link), cable_end(host, link)]);
            hosts.chain([bridge(link)])
        });
        let indexes: Vec<u32> = ends.map(|end| end.index).collect();
        assert_eq!(indexes.iter().collect::<HashSet<_>>().len(), indexes.len());
    }

    #[test]
    fn each_link_has_a_subnet_of_its_own() {
        assert_eq!(address(Host::A, 0), Ipv4Addr::new(10, 77, 1, 1));
        assert_eq!(address(Host::B, MAX_LINKS - 1), Ipv4Addr::new(10, 77, 254, 2));
    }
}

//! Kernel objects of one link: a veth pair for each host, and the bridge or relay that connects
//! them.
//!
//! `nets` are the namespaces with their sockets, `wiring` names and numbers the interfaces, `relay`
//! delays frames that it reads and writes by `packet`, `counters` is the traffic.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::{
    address::Assigned,
    cable::{
        nets::{NEW, Net, Nets},
        relay::Relay,
        wiring::{bus, cable_end, host_end},
    },
    counters::Traffic,
    error::LabError,
    host::Host,
    kernel::{
        filter::{self, Slot},
        message::{self, End},
        qdisc,
    },
    rate::Shaping,
    spec::{LinkSpec, Queue},
};

pub(crate) mod nets;
mod packet;
pub(crate) mod relay;
pub(crate) mod wiring;

/// Creates the bridges that connect the cables: one for each link, or one switch for all. A link
/// with a delay has a relay instead.
pub(crate) fn build_middles(nets: &mut Nets) -> Result<(), LabError> {
    let is_delayed = |link: usize| nets.links.get(link).is_some_and(|spec| spec.is_delayed());
    let bridges = nets.wiring.middles(nets.links.len()).enumerate();
    let bridges: Vec<End> = bridges
        .filter(|(link, _)| !is_delayed(*link))
        .map(|(_, bridge)| bridge)
        .collect();
    for bridge in bridges {
        let action = format_args!("add bridge {}", bridge.name);
        nets.cables
            .change(message::add_bridge(&bridge), NEW, action)?;
    }
    Ok(())
}

/// Creates the interfaces of a link with their addresses and shaping. The bridge must exist. Plugs
/// the cable in unless it starts unplugged, and does not wait for the carrier.
pub(crate) fn build(nets: &mut Nets, link: usize) -> Result<(), LabError> {
    let spec = nets.check(link)?;
    let (wiring, bridge, cables) = (
        nets.wiring,
        nets.wiring.middle(link),
        nets.cables.namespace.clone(),
    );
    let keeps_packets_whole = nets.has_narrow_middle(link);
    for host in spec.hosts() {
        let (near, far) = (host_end(host, link), cable_end(host, link));
        let net = nets.host(host);
        let veth = message::add_veth((&near, spec.mtu()), (&far, spec.port_mtu()), Some(&cables));
        net.change(veth, NEW, format_args!("add veth {}", near.name))?;
        if keeps_packets_whole {
            let action = format_args!("forbid superpackets on {}", near.name);
            net.change(message::forbid_superpackets(near.index), 0, action)?;
        }
        if !spec.is_bare {
            net.add_address(&near, Assigned::in_24(wiring.address(host, link)))?;
        }
        shape(net, &near, spec)?;
        net.set_up(&near, true)?;
        shape_port(&mut nets.cables, &far, spec)?;
        if !spec.is_delayed() {
            let join = format_args!("put {} into {}", far.name, bridge.name);
            nets.cables
                .change(message::join_bridge(far.index, bridge.index), 0, join)?;
        }
    }
    if spec.is_delayed() {
        relay(nets, link, spec)?;
    }
    if spec.starts_unplugged {
        Ok(())
    } else {
        plug(nets, link, true)
    }
}

/// Connects the interfaces of a cable with a relay if both hosts have one. The calling thread must
/// be in the cables' namespace.
fn relay(nets: &mut Nets, link: usize, spec: LinkSpec) -> Result<(), LabError> {
    if spec.hosts().count() == Host::ALL.len() {
        let ends = Host::ALL.map(|host| cable_end(host, link).index);
        let relay = Relay::start(ends, spec.delay(), spec.room());
        let action = format_args!("relay the frames of link {link}");
        nets.relays.push(relay.map_err(LabError::refused(action))?);
    }
    Ok(())
}

/// Creates a bus that limits the traffic from these links to a host. The host must not have a bus.
pub(crate) fn build_bus(
    nets: &mut Nets,
    host: Host,
    shaping: Shaping,
    links: &[usize],
) -> Result<(), LabError> {
    let bus = bus(host);
    let cables = &mut nets.cables;
    cables.change(
        message::add_ifb(&bus),
        NEW,
        format_args!("add ifb {}", bus.name),
    )?;
    cables.queue(
        |handle| qdisc::tbf(bus.index, handle, shaping),
        format_args!("shape {}", bus.name),
    )?;
    links
        .iter()
        .map(|link| cable_end(host, *link))
        .try_for_each(|end| cables.filter(&end, filter::redirect(end.index, bus.index)))
}

/// Removes the bus of a host, if it has one. Frames queued on the bus are lost.
pub(crate) fn remove_bus(nets: &mut Nets, host: Host) -> Result<(), LabError> {
    for link in 0..nets.links.len() {
        if nets.check_end(host, link).is_ok() {
            nets.cables.unfilter(&cable_end(host, link), Slot::Bus)?;
        }
    }
    let bus = bus(host);
    nets.cables.remove(
        message::remove(bus.index),
        format_args!("remove {}", bus.name),
    )
}

/// Plugs a cable in at all its hosts if `up` is true, otherwise unplugs it.
pub(crate) fn plug(nets: &mut Nets, link: usize, up: bool) -> Result<(), LabError> {
    let mut hosts = nets.check(link)?.hosts();
    hosts.try_for_each(|host| nets.cables.set_up(&cable_end(host, link), up))
}

/// Waits until the hosts of a link see the cable plugged in and passing frames (`healed`), or see
/// it unplugged.
///
/// The kernel reports a new carrier to interfaces from a work queue, within a millisecond on an
/// idle machine. Does not wait for an interface that is administratively down, which sees neither.
pub(crate) fn await_carrier(nets: &mut Nets, link: usize, healed: bool) -> Result<(), LabError> {
    let mut hosts = nets.check(link)?.hosts();
    hosts.try_for_each(|host| await_end(nets, host, link, healed))
}

/// Waits until one host sees the cable plugged in and passing frames (`healed`), or unplugged, as
/// `await_carrier` does for all hosts.
pub(crate) fn await_end(
    nets: &mut Nets,
    host: Host,
    link: usize,
    healed: bool,
) -> Result<(), LabError> {
    let deadline = Instant::now() + CARRIER_TIMEOUT;
    while !settled(nets, host, link, healed)? {
        if Instant::now() > deadline {
            return Err(LabError::Carrier {
                link,
                healed,
                timeout_ms: CARRIER_TIMEOUT.as_millis(),
            });
        }
        thread::sleep(CARRIER_POLL);
    }
    Ok(())
}

/// Removes all faults from the frames that this link delivers to the host `destination`.
pub(crate) fn pass(nets: &mut Nets, destination: Host, link: usize) -> Result<(), LabError> {
    let end = cable_end(destination, link);
    let spec = nets.check(link)?;
    shape_port(&mut nets.cables, &end, spec)?;
    // Keep the hooks, because a bus may use them.
    [Slot::Loss, Slot::Corruption, Slot::Tcp, Slot::Udp]
        .into_iter()
        .try_for_each(|slot| nets.cables.unfilter(&end, slot))
}

/// Applies the line rate of a link to the traffic that a host sends on its interface `end`.
pub(crate) fn shape(net: &mut Net, end: &End, spec: LinkSpec) -> Result<(), LabError> {
    match spec.queue() {
        Queue::Shaped(shaping) => net.queue(
            |handle| qdisc::tbf(end.index, handle, shaping),
            format_args!("shape {}", end.name),
        ),
        Queue::Plain => net.queue(
            |handle| qdisc::pfifo(end.index, handle),
            format_args!("put a queue on {}", end.name),
        ),
        Queue::None => unqueue(net, end),
    }
}

/// Gives the middle's port `end` its own queue, which shapes if the spec says so.
pub(crate) fn shape_port(cables: &mut Net, end: &End, spec: LinkSpec) -> Result<(), LabError> {
    match spec.middle_shaping() {
        Some(shaping) => cables.queue(
            |handle| qdisc::tbf(end.index, handle, shaping),
            format_args!("shape {}", end.name),
        ),
        None => unqueue(cables, end),
    }
}

pub(crate) fn traffic(net: &mut Net, host: Host, link: usize) -> Result<Traffic, LabError> {
    let end = host_end(host, link);
    net.state(&end)?.traffic.ok_or_else(|| {
        let action = format_args!("find the counters of {}", end.name);
        LabError::refused(action)(Errno::NODATA.into())
    })
}

fn settled(nets: &mut Nets, host: Host, link: usize, healed: bool) -> Result<bool, LabError> {
    let spec = nets.check(link)?;
    let (near, net) = (host_end(host, link), nets.host(host));
    let state = net.state(&near)?;
    if !state.up {
        return Ok(true);
    }
    if state.running != healed
        || (healed
            && net
                .ipv6_addresses(&near)?
                .iter()
                .any(|found| found.tentative))
    {
        return Ok(false);
    }
    Ok(!healed || spec.is_delayed() || nets.cables.state(&cable_end(host, link))?.forwarding)
}

fn unqueue(net: &mut Net, end: &End) -> Result<(), LabError> {
    let action = format_args!("remove the qdisc of {}", end.name);
    net.remove(qdisc::remove(end.index), action)
}

/// Timeout for a carrier change: thousands of times the usual duration, for busy machines.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);
const CARRIER_POLL: Duration = Duration::from_millis(1);

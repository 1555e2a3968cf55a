//! Kernel objects of one link: a veth pair for each host, and the bridge or relay that connects
//! them.
//!
//! `nets` are the namespaces with their sockets, `wiring` names and numbers the interfaces, `relay`
//! delays frames that it reads and writes by `packet`, `counters` is the traffic.

use std::{
    net::Ipv6Addr,
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
        bpf::Corruptor,
        filter::{self, Share, Slot, Transport},
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
        nets.cables.change(message::add_bridge(&bridge), NEW, || {
            format!("add bridge {}", bridge.name)
        })?;
    }
    Ok(())
}

/// Creates the interfaces of a link with their addresses and shaping. The bridge must exist. Plugs
/// the cable in unless it starts unplugged, and does not wait for the carrier.
pub(crate) fn build(nets: &mut Nets, link: usize, spec: LinkSpec) -> Result<(), LabError> {
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
        net.change(veth, NEW, || format!("add veth {}", near.name))?;
        if keeps_packets_whole {
            net.change(message::forbid_superpackets(near.index), 0, || {
                format!("forbid superpackets on {}", near.name)
            })?;
        }
        if !spec.is_bare {
            add_address(net, host, link, Assigned::in_24(wiring.address(host, link)))?;
        }
        shape(net, host, link, spec)?;
        set_up(net, host, link, true)?;
        if !spec.is_delayed() {
            let join = || format!("put {} into {}", far.name, bridge.name);
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
        plug(&mut nets.cables, link, spec, true)
    }
}

/// Connects the interfaces of a cable with a relay if both hosts have one. The calling thread must
/// be in the cables' namespace.
fn relay(nets: &mut Nets, link: usize, spec: LinkSpec) -> Result<(), LabError> {
    if spec.hosts().count() == Host::ALL.len() {
        let ends = Host::ALL.map(|host| cable_end(host, link).index);
        let refused = |source| LabError::Kernel {
            action: format!("relay the frames of link {link}"),
            source,
        };
        nets.relays
            .push(Relay::start(ends, spec.delay(), spec.room()).map_err(refused)?);
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
    cables.change(message::add_ifb(&bus), NEW, || {
        format!("add ifb {}", bus.name)
    })?;
    cables.queue(
        |handle| qdisc::tbf(bus.index, handle, shaping),
        || format!("shape {}", bus.name),
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
    nets.cables.remove(message::remove(bus(host).index), || {
        format!("remove {}", bus(host).name)
    })
}

/// Plugs a cable in at all its hosts if `up` is true, otherwise unplugs it.
pub(crate) fn plug(
    cables: &mut Net,
    link: usize,
    spec: LinkSpec,
    up: bool,
) -> Result<(), LabError> {
    spec.hosts()
        .try_for_each(|host| plug_end(cables, host, link, up))
}

/// Plugs a cable in at one host if `up` is true, otherwise unplugs it.
pub(crate) fn plug_end(
    cables: &mut Net,
    host: Host,
    link: usize,
    up: bool,
) -> Result<(), LabError> {
    cables.set_up(&cable_end(host, link), up)
}

/// Returns true if the cable is plugged in at this host.
pub(crate) fn is_plugged(cables: &mut Net, host: Host, link: usize) -> Result<bool, LabError> {
    Ok(cables.state(&cable_end(host, link))?.up)
}

pub(crate) fn set_up(net: &mut Net, host: Host, link: usize, up: bool) -> Result<(), LabError> {
    net.set_up(&host_end(host, link), up)
}

/// Adds an address to a host's interface. Fails if the interface already has it.
pub(crate) fn add_address(
    net: &mut Net,
    host: Host,
    link: usize,
    address: Assigned,
) -> Result<(), LabError> {
    let end = host_end(host, link);
    net.change(message::add_address(end.index, address), NEW, || {
        format!("add {address} to {}", end.name)
    })
}

pub(crate) fn remove_address(
    net: &mut Net,
    host: Host,
    link: usize,
    address: Assigned,
) -> Result<(), LabError> {
    let end = host_end(host, link);
    net.change(message::remove_address(end.index, address), 0, || {
        format!("remove {address} from {}", end.name)
    })
}

/// Returns the link-local IPv6 address of a host's interface; `None` if it has none or it is still
/// tentative.
pub(crate) fn link_local(
    net: &mut Net,
    host: Host,
    link: usize,
) -> Result<Option<Ipv6Addr>, LabError> {
    let addresses = net.ipv6_addresses(&host_end(host, link))?;
    Ok(addresses
        .into_iter()
        .filter(|found| !found.tentative)
        .map(|found| found.address)
        .find(Ipv6Addr::is_unicast_link_local))
}

/// Waits until the hosts of a link see the cable plugged in and passing frames (`healed`), or see
/// it unplugged.
///
/// The kernel reports a new carrier to interfaces from a work queue, within a millisecond on an
/// idle machine. Does not wait for an interface that is administratively down, which sees neither.
pub(crate) fn await_carrier(
    nets: &mut Nets,
    link: usize,
    spec: LinkSpec,
    healed: bool,
) -> Result<(), LabError> {
    spec.hosts()
        .try_for_each(|host| await_end(nets, host, link, spec, healed))
}

/// Waits until one host sees the cable plugged in and passing frames (`healed`), or unplugged, as
/// `await_carrier` does for all hosts.
pub(crate) fn await_end(
    nets: &mut Nets,
    host: Host,
    link: usize,
    spec: LinkSpec,
    healed: bool,
) -> Result<(), LabError> {
    let deadline = Instant::now() + CARRIER_TIMEOUT;
    while !settled(nets, host, link, spec, healed)? {
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

pub(crate) fn has_carrier(net: &mut Net, host: Host, link: usize) -> Result<bool, LabError> {
    Ok(net.state(&host_end(host, link))?.running)
}

/// Drops all frames that this link delivers to the host `destination`.
pub(crate) fn lose(cables: &mut Net, destination: Host, link: usize) -> Result<(), LabError> {
    let end = cable_end(destination, link);
    cables.queue(
        |handle| qdisc::blackhole(end.index, handle),
        || format!("put a blackhole on {}", end.name),
    )
}

/// Removes all faults from the frames that this link delivers to the host `destination`.
pub(crate) fn pass(nets: &mut Nets, destination: Host, link: usize) -> Result<(), LabError> {
    let end = cable_end(destination, link);
    unqueue(&mut nets.cables, &end)?;
    // Keep the hooks, because a bus may use them.
    [Slot::Loss, Slot::Corruption, Slot::Tcp, Slot::Udp]
        .into_iter()
        .try_for_each(|slot| nets.cables.unfilter(&end, slot))
}

/// Drops a random share of the frames that this link delivers to the host `destination`; a share of
/// 0 ends the loss.
pub(crate) fn lose_share(
    nets: &mut Nets,
    destination: Host,
    link: usize,
    share: Share,
) -> Result<(), LabError> {
    let end = cable_end(destination, link);
    if share.is_none() {
        return nets.cables.unfilter(&end, Slot::Loss);
    }
    nets.cables.filter(&end, filter::lose(end.index, share))
}

/// Drops the packets to a port that this link delivers to the host `destination`.
pub(crate) fn block(
    cables: &mut Net,
    destination: Host,
    link: usize,
    transport: Transport,
    port: u16,
) -> Result<(), LabError> {
    let end = cable_end(destination, link);
    cables.filter(&end, filter::block(end.index, transport, port))
}

/// Corrupts frames that this link delivers to the host `destination`.
pub(crate) fn corrupt(
    cables: &mut Net,
    destination: Host,
    link: usize,
    corruptor: &Corruptor,
) -> Result<(), LabError> {
    let end = cable_end(destination, link);
    cables.filter(&end, filter::corrupt(end.index, corruptor.program()))
}

/// Ends the corruption of frames that this link delivers to the host `destination`.
pub(crate) fn leave_whole(
    cables: &mut Net,
    destination: Host,
    link: usize,
) -> Result<(), LabError> {
    cables.unfilter(&cable_end(destination, link), Slot::Corruption)
}

/// Applies the line rate of a link to the traffic that a host sends on it.
pub(crate) fn shape(
    net: &mut Net,
    host: Host,
    link: usize,
    spec: LinkSpec,
) -> Result<(), LabError> {
    let end = host_end(host, link);
    match spec.queue() {
        Queue::Shaped(shaping) => net.queue(
            |handle| qdisc::tbf(end.index, handle, shaping),
            || format!("shape {}", end.name),
        ),
        Queue::Plain => net.queue(
            |handle| qdisc::pfifo(end.index, handle),
            || format!("put a queue on {}", end.name),
        ),
        Queue::None => unqueue(net, &end),
    }
}

pub(crate) fn traffic(net: &mut Net, host: Host, link: usize) -> Result<Traffic, LabError> {
    let end = host_end(host, link);
    let missing = || LabError::Kernel {
        action: format!("find the counters of {}", end.name),
        source: Errno::NODATA.into(),
    };
    net.state(&end)?.traffic.ok_or_else(missing)
}

fn settled(
    nets: &mut Nets,
    host: Host,
    link: usize,
    spec: LinkSpec,
    healed: bool,
) -> Result<bool, LabError> {
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
    net.remove(qdisc::remove(end.index), || {
        format!("remove the qdisc of {}", end.name)
    })
}

/// Timeout for a carrier change: thousands of times the usual duration, for busy machines.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);
const CARRIER_POLL: Duration = Duration::from_millis(1);

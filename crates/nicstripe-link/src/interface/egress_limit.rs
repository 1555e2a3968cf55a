//! Rate limits of root queueing disciplines: tbf, and htb if all its leaf classes have one limit.
//!
//! Formats and constants: `include/uapi/linux/{rtnetlink,pkt_sched}.h`. Reading needs no
//! privileges. Anything unknown or not reported by the kernel counts as "no limit known".

use nicstripe_netlink::{Attributes, Message, Netlink, Request, u32_at, until_nul};

use crate::interface::{InterfaceIndex, LineRate};

/// Lists the rate limits of the namespace's root queueing disciplines.
///
/// Dumps all of them, because some kernels send the reply to a single-interface query to the
/// multicast group of change listeners (`qdisc_notify`, net/sched/sch_api.c). The dump includes
/// each queue of each interface, so call this only if [`is_limiter`] is true for an interface.
pub(crate) fn egress_limits(netlink: &mut Netlink) -> Vec<(InterfaceIndex, LineRate)> {
    let limiters = dump(netlink, Limiter::parse);
    limiters
        .into_iter()
        .filter_map(|limiter| limiter.limit(netlink))
        .collect()
}

/// Lists the root queueing disciplines of the namespace's interfaces, at the cost of a dump as in
/// [`egress_limits`]. The kernel does not list the `noop` of an interface that was never up.
pub(crate) fn root_disciplines(netlink: &mut Netlink) -> Vec<RootDiscipline> {
    dump(netlink, RootDiscipline::parse)
}

fn dump<T>(netlink: &mut Netlink, parse: impl FnMut(&Message<'_>) -> Option<T>) -> Vec<T> {
    netlink
        .dump(&Request::new(libc::RTM_GETQDISC, &[0; TC_LEN]), parse)
        .unwrap_or_default()
}

/// Returns true if [`egress_limits`] supports this kind of queueing discipline: tbf or htb
/// (`TCA_KIND`, `IFLA_QDISC`).
pub(crate) fn is_limiter(kind: &[u8]) -> bool {
    matches!(until_nul(kind), TBF | HTB)
}

/// Returns header and attributes of a message about a root queueing discipline.
fn root<'a>(message: &Message<'a>) -> Option<(&'a [u8], Attributes<'a>)> {
    let (header, attributes) = message.split_if(libc::RTM_NEWQDISC, TC_LEN)?;
    (u32_at(header, TC_PARENT)? == TC_H_ROOT).then_some((header, attributes))
}

/// Root queueing discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootDiscipline {
    pub(crate) interface: InterfaceIndex,
    /// Packets that the discipline dropped since it was installed.
    pub(crate) dropped: Option<u64>,
    pub(crate) bucket: Option<TokenBucket>,
}

impl RootDiscipline {
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        let (header, attributes) = root(message)?;
        let statistics = Attributes::new(attributes.find(TCA_STATS2).unwrap_or_default());
        // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits (u32 each).
        let dropped = statistics
            .find(TCA_STATS_QUEUE)
            .and_then(|queue| u32_at(queue, 8));
        let kind = until_nul(attributes.find(libc::TCA_KIND)?);
        let options = Attributes::new(attributes.find(libc::TCA_OPTIONS).unwrap_or_default());
        Some(Self {
            interface: InterfaceIndex(u32_at(header, TC_INDEX)?),
            dropped: dropped.map(u64::from),
            bucket: (kind == TBF).then(|| TokenBucket::parse(options)).flatten(),
        })
    }
}

/// Bucket and queue of a tbf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenBucket {
    rate: ByteRate,
    /// Time in which the rate fills the bucket, in the ticks of `/proc/net/psched`.
    ticks: u32,
    /// Length of the queue in bytes.
    pub(crate) queue_bytes: u32,
}

impl TokenBucket {
    fn parse(options: Attributes<'_>) -> Option<Self> {
        // struct tc_tbf_qopt, as in `tbf_rate`.
        let parameters = options.find(TCA_TBF_PARMS)?;
        Some(Self {
            rate: ByteRate::read(parameters, 0, options.find(TCA_TBF_RATE64))?,
            queue_bytes: u32_at(parameters, 2 * RATESPEC_LEN)?,
            ticks: u32_at(parameters, 2 * RATESPEC_LEN + 4)?,
        })
    }

    /// Returns the size of the bucket in bytes, at most one tick's bytes too small.
    pub(crate) fn burst_bytes(&self, tick_nanoseconds: u64) -> Option<u64> {
        let nanoseconds = u128::from(self.ticks) * u128::from(tick_nanoseconds);
        let bytes = nanoseconds.checked_mul(self.rate.0.into())? / 1_000_000_000;
        u64::try_from(bytes).ok()
    }
}

/// Returns the length of the traffic control's tick in nanoseconds, from the text of
/// `/proc/net/psched`: nanoseconds per microsecond, nanoseconds per tick, and clock resolutions, in
/// hexadecimal (`psched_show`, net/sched/sch_api.c).
pub(crate) fn tick_nanoseconds(psched: &str) -> Option<u64> {
    let tick = psched.split_whitespace().nth(1)?;
    u64::from_str_radix(tick, 16).ok().filter(|tick| *tick > 0)
}

/// Root queueing discipline that limits the rate of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    Tbf(InterfaceIndex, ByteRate),
    Htb(Htb),
}

impl Limiter {
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        let (header, attributes) = root(message)?;
        // With a size table the kernel counts lengths other than the frame lengths, such as those
        // of ATM cells.
        if attributes.find(libc::TCA_STAB).is_some() {
            return None;
        }
        let interface = InterfaceIndex(u32_at(header, TC_INDEX)?);
        let options = Attributes::new(attributes.find(libc::TCA_OPTIONS)?);
        match until_nul(attributes.find(libc::TCA_KIND)?) {
            TBF => Some(Self::Tbf(interface, tbf_rate(options)?)),
            HTB => Some(Self::Htb(Htb::parse(
                interface,
                u32_at(header, TC_HANDLE)?,
                options,
            )?)),
            _ => None,
        }
    }

    fn limit(self, netlink: &mut Netlink) -> Option<(InterfaceIndex, LineRate)> {
        let (interface, rate) = match self {
            Self::Tbf(interface, rate) => (interface, rate),
            Self::Htb(htb) => (htb.interface, htb.limit(&htb.classes(netlink))?),
        };
        Some((interface, rate.line_rate()?))
    }
}

/// Returns the sustained rate of a tbf: the lower of its rate and its peak rate.
fn tbf_rate(options: Attributes<'_>) -> Option<ByteRate> {
    // struct tc_tbf_qopt: rate and peakrate, each a struct tc_ratespec, then limit, buffer and mtu.
    let parameters = options.find(TCA_TBF_PARMS)?;
    let rate = ByteRate::read(parameters, 0, options.find(TCA_TBF_RATE64))?;
    let peak = ByteRate::read(parameters, RATESPEC_LEN, options.find(TCA_TBF_PRATE64))?;
    // The kernel obeys a peak rate below the rate, with a warning. Zero means no peak rate.
    Some(if peak.0 == 0 { rate } else { rate.min(peak) })
}

/// Hierarchical token bucket (htb) that is the root queueing discipline of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Htb {
    interface: InterfaceIndex,
    /// Handle of the queueing discipline: its major number in the upper 16 bits, zero in the lower
    /// 16.
    handle: u32,
    /// Handle of the class for packets that no filter assigns. If the class does not exist, those
    /// packets are not limited.
    default: u32,
}

impl Htb {
    fn parse(interface: InterfaceIndex, handle: u32, options: Attributes<'_>) -> Option<Self> {
        // With offload the card enforces the classes, possibly in its own way.
        if options.find(TCA_HTB_OFFLOAD).is_some() {
            return None;
        }
        // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
        let default = u32_at(options.find(TCA_HTB_INIT)?, 8)?;
        Some(Self {
            interface,
            handle,
            default: handle & TC_H_MAJOR | default & !TC_H_MAJOR,
        })
    }

    fn classes(self, netlink: &mut Netlink) -> Vec<Class> {
        let mut header = [0; TC_LEN];
        header[TC_INDEX..TC_INDEX + 4].copy_from_slice(&self.interface.0.to_ne_bytes());
        header[TC_PARENT..TC_PARENT + 4].copy_from_slice(&self.handle.to_ne_bytes());
        let request = Request::new(libc::RTM_GETTCLASS, &header);
        netlink
            .dump(&request, |message| {
                Class::parse(message).filter(|class| self.owns(class))
            })
            .unwrap_or_default()
    }

    /// Returns true if the class belongs to this htb and not to a child queueing discipline.
    fn owns(self, class: &Class) -> bool {
        class.handle & TC_H_MAJOR == self.handle & TC_H_MAJOR
    }

    /// Returns the rate limit if it is equal for all leaf classes, so that the filters need not be
    /// read. Returns `None` unless there is a single top class, the default class is a leaf, and
    /// there are at most [`MAX_CLASSES`] classes.
    pub(crate) fn limit(self, classes: &[Class]) -> Option<ByteRate> {
        let top = classes
            .iter()
            .filter(|class| class.parent == TC_H_ROOT)
            .count();
        if top != 1 || classes.len() > MAX_CLASSES {
            return None;
        }
        let is_leaf = |class: &&Class| !classes.iter().any(|child| child.parent == class.handle);
        let default = classes
            .iter()
            .filter(is_leaf)
            .find(|class| class.handle == self.default)?;
        let limit = default.limit(classes, HTB_DEPTH);
        let same = classes
            .iter()
            .filter(is_leaf)
            .all(|leaf| leaf.limit(classes, HTB_DEPTH) == limit);
        limit.filter(|_| same)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    handle: u32,
    /// Handle of the parent class, from which this class borrows, or [`TC_H_ROOT`].
    parent: u32,
    rate: ByteRate,
    ceil: ByteRate,
}

impl Class {
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        let (header, attributes) = message.split_if(libc::RTM_NEWTCLASS, TC_LEN)?;
        if until_nul(attributes.find(libc::TCA_KIND)?) != HTB {
            return None;
        }
        let options = Attributes::new(attributes.find(libc::TCA_OPTIONS)?);
        // struct tc_htb_opt: rate and ceil, each a struct tc_ratespec, then buffer, cbuffer,
        // quantum, level and prio.
        let parameters = options.find(TCA_HTB_PARMS)?;
        Some(Self {
            handle: u32_at(header, TC_HANDLE)?,
            parent: u32_at(header, TC_PARENT)?,
            rate: ByteRate::read(parameters, 0, options.find(TCA_HTB_RATE64))?,
            ceil: ByteRate::read(parameters, RATESPEC_LEN, options.find(TCA_HTB_CEIL64))?,
        })
    }

    /// Returns the rate that the class reaches while all other classes are idle: the higher of its
    /// own rate and its parent's limit, but at most its ceiling. A class without a parent cannot
    /// borrow. Returns `None` if the class has more than `depth` ancestors.
    ///
    /// Verified on Linux 6.18 with rate and ceiling above and below the parent's, at 20 to 60
    /// Mbit/s.
    fn limit(&self, classes: &[Class], depth: usize) -> Option<ByteRate> {
        if self.parent == TC_H_ROOT {
            return Some(self.rate.min(self.ceil));
        }
        let parent = classes.iter().find(|class| class.handle == self.parent)?;
        let lent = parent.limit(classes, depth.checked_sub(1)?)?;
        Some(self.rate.max(lent).min(self.ceil))
    }
}

/// Rate in bytes per second, the unit of traffic control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteRate(u64);

impl ByteRate {
    /// Parses the `struct tc_ratespec` at `offset` of `parameters`. `wide` is the 64-bit attribute
    /// for rates from 2^32 on. Returns `None` if the kernel accounts for frames in ATM cells.
    ///
    /// Ignores the overhead field: it counts once per superpacket, and 24 bytes had no measurable
    /// effect.
    fn read(parameters: &[u8], offset: usize, wide: Option<&[u8]>) -> Option<Self> {
        // cell_log (u8), linklayer (u8), overhead (u16), cell_align (i16), mpu (u16), rate (u32).
        let linklayer = parameters.get(offset + 1)? & TC_LINKLAYER_MASK;
        let narrow = u32_at(parameters, offset + 8)?.into();
        let rate = wide
            .and_then(|wide| wide.try_into().ok())
            .map_or(narrow, u64::from_ne_bytes);
        (linklayer != TC_LINKLAYER_ATM).then_some(Self(rate))
    }

    fn line_rate(self) -> Option<LineRate> {
        self.0
            .checked_mul(8)
            .filter(|bits| *bits != 0)
            .map(LineRate)
    }
}

const TBF: &[u8] = b"tbf";
const HTB: &[u8] = b"htb";

/// Maximum depth of the class hierarchy (`TC_HTB_MAXDEPTH`, include/uapi/linux/pkt_sched.h).
const HTB_DEPTH: usize = 8;
/// Maximum number of classes that are compared, at quadratic cost (picked by eye). A machine with
/// more is a router that shapes the traffic of others.
const MAX_CLASSES: usize = 64;

/// Length of `struct tcmsg` in bytes: family and padding, index (i32), handle (u32), parent (u32),
/// info (u32).
const TC_LEN: usize = 20;
const TC_INDEX: usize = 4;
const TC_HANDLE: usize = 8;
const TC_PARENT: usize = 12;

// include/uapi/linux/pkt_sched.h
const TC_H_ROOT: u32 = u32::MAX;
const TC_H_MAJOR: u32 = 0xffff_0000;
const RATESPEC_LEN: usize = 12;
const TC_LINKLAYER_MASK: u8 = 0x0f;
const TC_LINKLAYER_ATM: u8 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_PRATE64: u16 = 5;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_HTB_OFFLOAD: u16 = 9;

// include/uapi/linux/rtnetlink.h
const TCA_STATS2: u16 = 7;
// include/uapi/linux/gen_stats.h
const TCA_STATS_QUEUE: u16 = 3;

#[cfg(test)]
mod tests;

//! Netlink messages for the queueing disciplines (qdiscs) of a lab: tbf shapes, pfifo only queues,
//! blackhole drops all frames.

use nicstripe_netlink::{NLM_F_CREATE, NLM_F_REPLACE, Request, attribute};

use crate::{kernel::message::text, rate::Shaping};

/// Flags of a request that replaces the current qdisc by one with a new handle, and discards the
/// queued frames.
pub(crate) const REPLACE: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// Handle of a qdisc, unique in a namespace.
///
/// If a request has a known handle, or none, the kernel changes a tbf in place. A superpacket
/// queued under the old, deeper bucket would then block the new one forever: tbf sends nothing
/// larger than its bucket, and segments packets only on arrival (`net/sched/sch_tbf.c`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle(u16);

impl Handle {
    pub(crate) const FIRST: Self = Self(1);

    /// Returns the next handle. Wraps after 32766, so that it stays below those that the kernel
    /// assigns (8000: and up).
    pub(crate) fn next(self) -> Self {
        Self(if self.0 < 0x7ffe { self.0 + 1 } else { 1 })
    }
}

/// Returns the request that shapes an interface's egress with tbf. Send it with [`REPLACE`].
pub(crate) fn tbf(index: u32, handle: Handle, shaping: Shaping) -> Request {
    let mut options = [
        attribute(TCA_TBF_PARMS, &tbf_parameters(shaping)),
        attribute(TCA_TBF_BURST, &shaping.burst_bytes.to_ne_bytes()),
    ]
    .concat();
    if u32::try_from(shaping.bytes_per_second).is_err() {
        let rate = shaping.bytes_per_second.to_ne_bytes();
        options.extend(attribute(TCA_TBF_RATE64, &rate));
    }
    root(index, handle, "tbf").attribute(libc::TCA_OPTIONS, &options)
}

/// Returns the request that queues an interface's egress without shaping. Send it with [`REPLACE`].
pub(crate) fn pfifo(index: u32, handle: Handle) -> Request {
    root(index, handle, "pfifo")
}

/// Returns the request that drops all egress frames of an interface. Send it with [`REPLACE`].
pub(crate) fn blackhole(index: u32, handle: Handle) -> Request {
    root(index, handle, "blackhole")
}

/// Returns the request that removes an interface's root qdisc. The kernel reports ENOENT if it has
/// only the default one.
pub(crate) fn remove(index: u32) -> Request {
    Request::new(libc::RTM_DELQDISC, &header(index, 0, TC_H_ROOT, 0))
}

fn root(index: u32, handle: Handle, kind: &str) -> Request {
    let header = header(index, u32::from(handle.0) << 16, TC_H_ROOT, 0);
    Request::new(libc::RTM_NEWQDISC, &header).attribute(libc::TCA_KIND, &text(kind))
}

/// Encodes a `struct tcmsg`: family and padding, interface, handle, parent, info. A handle has its
/// major number in the upper 16 bits and its minor number in the lower 16.
pub(crate) fn header(index: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, index, handle, parent, info]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect()
}

/// Encodes `struct tc_tbf_qopt` (`linux/pkt_sched.h`): rate (12 bytes), peak rate (12 bytes),
/// limit, buffer, mtu.
///
/// Within a rate, the link layer is at offset 1 and the rate at offset 8. An explicit link layer
/// avoids the table of transmission times that old kernels require. The buffer stays 0, because a
/// separate attribute holds the burst in bytes.
fn tbf_parameters(shaping: Shaping) -> Vec<u8> {
    let rate = u32::try_from(shaping.bytes_per_second).unwrap_or(u32::MAX);
    let mut parameters = vec![0; 36];
    parameters[1] = TC_LINKLAYER_ETHERNET;
    parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
    parameters[24..28].copy_from_slice(&shaping.queue_bytes.to_ne_bytes());
    parameters
}

/// Parent handle of a root qdisc (`linux/pkt_sched.h`).
const TC_H_ROOT: u32 = u32::MAX;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;

#[cfg(test)]
mod tests {
    use nicstripe_netlink::{Attributes, Messages};

    use super::*;

    fn tbf_options(bytes_per_second: u64) -> Vec<(u16, Vec<u8>)> {
        let shaping = Shaping {
            bytes_per_second,
            burst_bytes: 7,
            queue_bytes: 9,
        };
        let bytes = tbf(5, Handle::FIRST, shaping).encode(0, 1);
        let (_, attributes) = Messages::new(&bytes).next().unwrap().split(20).unwrap();
        Attributes::new(attributes.find(libc::TCA_OPTIONS).unwrap())
            .map(|(kind, value)| (kind, value.to_vec()))
            .collect()
    }

    #[test]
    fn handles_stay_out_of_the_kernels_own_range() {
        let mut handle = Handle::FIRST;
        for _ in 0..70_000 {
            let next = handle.next();
            assert!(next.0 != handle.0 && (1..0x8000).contains(&next.0));
            handle = next;
        }
    }

    #[test]
    fn a_slow_rate_travels_in_32_bits() {
        let options = tbf_options(123_049_414);
        assert_eq!(
            options.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [TCA_TBF_PARMS, TCA_TBF_BURST]
        );
        assert_eq!(options[0].1[8..12], 123_049_414u32.to_ne_bytes());
        assert_eq!(options[0].1[24..28], 9u32.to_ne_bytes());
        assert_eq!(options[1].1, 7u32.to_ne_bytes());
    }

    #[test]
    fn a_rate_from_4_gib_per_second_travels_in_64_bits() {
        let rate = 1u64 << 32;
        let options = tbf_options(rate);
        assert_eq!(options[0].1[8..12], u32::MAX.to_ne_bytes());
        assert_eq!(options[2], (TCA_TBF_RATE64, rate.to_ne_bytes().to_vec()));
    }
}

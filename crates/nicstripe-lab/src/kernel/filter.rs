//! Netlink messages for the classifiers that drop, block, corrupt and redirect frames: cls_bpf at
//! the egress hook of clsact. No I/O.
//!
//! The classifiers act directly (`TCA_BPF_FLAG_ACT_DIRECT`), so they need no tc action, which small
//! kernels lack; only the redirect needs one. Filters are independent: a frame that one filter does
//! not drop goes to the next.

use std::os::fd::RawFd;

use nicstripe_netlink::{Request, attribute};

use crate::{
    error::LabError,
    kernel::{message::text, qdisc::header},
};

/// Purpose of a filter. Its value is the filter's priority; lower values run first. An interface
/// has at most one filter of each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Loss = 1,
    Corruption = 2,
    Tcp = 3,
    Udp = 4,
    /// Redirect to a shared bus. It is last, because a redirected frame does not reach later
    /// filters.
    Bus = 5,
}

/// Transport protocol whose traffic to a port is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
}

impl Transport {
    pub(crate) fn slot(self) -> Slot {
        match self {
            Self::Tcp => Slot::Tcp,
            Self::Udp => Slot::Udp,
        }
    }

    /// Returns the protocol's number in IPv4 and IPv6 headers.
    fn number(self) -> u32 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// Share of frames to select, in units of 2⁻³², for comparison with a random 32-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

impl Share {
    /// Converts a share from 0 to 1. Rounds up to a multiple of 2⁻³², so that a share above 0 stays
    /// above 0.
    ///
    /// # Errors
    ///
    /// [`LabError::Invalid`] outside this range.
    pub(crate) fn new(share: f64) -> Result<Self, LabError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(LabError::Invalid(format!(
                "invalid share {share}: expected a number from 0 to 1"
            )));
        }
        // The conversion saturates at the largest share, which lets one frame in 2³² pass.
        Ok(Self((share * TWO_TO_32).ceil() as u32))
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the exclusive upper bound of the random numbers that select a frame.
    pub(crate) fn bound(self) -> u32 {
        self.0
    }
}

/// Returns the request that adds the clsact hooks to an interface. The kernel reports EEXIST if
/// they exist.
pub(crate) fn add_hooks(index: u32) -> Request {
    let header = header(index, CLSACT, CLSACT_PARENT, 0);
    Request::new(libc::RTM_NEWQDISC, &header).attribute(libc::TCA_KIND, &text("clsact"))
}

/// Returns the request that drops a share of an interface's egress frames, or replaces an earlier
/// share. Send it with `NLM_F_CREATE` only.
///
/// Uses a classic BPF program, which needs no privilege outside the namespace. It draws a random
/// number, compares it with the share, and drops the frame or continues.
pub(crate) fn lose(index: u32, share: Share) -> Request {
    let program = [
        (LOAD_WORD, 0, 0, RANDOM),
        (JUMP_IF_GREATER_OR_EQUAL, 1, 0, share.bound()),
        (RETURN, 0, 0, TC_ACT_SHOT),
        (RETURN, 0, 0, TC_ACT_UNSPEC),
    ];
    directly(index, Slot::Loss, operations(&program))
}

/// Returns the request that drops an interface's IPv4 and IPv6 egress to a port. Send it with
/// `NLM_F_CREATE` only.
///
/// A jump holds the numbers of instructions to skip if its condition is true and if it is false.
/// IPv6 extension headers are not parsed.
pub(crate) fn block(index: u32, transport: Transport, port: u16) -> Request {
    let (number, port) = (transport.number(), u32::from(port));
    let program = [
        (LOAD_HALF, 0, 0, 12),
        (JUMP_IF_EQUAL, 0, 5, ETH_P_IP),
        (LOAD_BYTE, 0, 0, 14 + 9),
        (JUMP_IF_EQUAL, 0, 9, number),
        (LOAD_HEADER_LEN, 0, 0, 14),
        (LOAD_HALF_BEHIND_HEADER, 0, 0, 14 + 2),
        (JUMP_IF_EQUAL, 5, 6, port),
        (JUMP_IF_EQUAL, 0, 5, ETH_P_IPV6),
        (LOAD_BYTE, 0, 0, 14 + 6),
        (JUMP_IF_EQUAL, 0, 3, number),
        (LOAD_HALF, 0, 0, 14 + 40 + 2),
        (JUMP_IF_EQUAL, 0, 1, port),
        (RETURN, 0, 0, TC_ACT_SHOT),
        (RETURN, 0, 0, TC_ACT_UNSPEC),
    ];
    directly(index, transport.slot(), operations(&program))
}

/// Returns the request that redirects an interface's egress to an ifb, which queues the frames and
/// returns them. Send it with `NLM_F_CREATE` only.
///
/// A redirect inside the program would need bpf(2). This program matches all frames, and the mirred
/// action redirects them.
pub(crate) fn redirect(index: u32, ifb: u32) -> Request {
    let mut options = operations(&[(RETURN, 0, 0, MATCH)]);
    let kind = attribute(TCA_ACT_KIND, b"mirred\0");
    let parameters = attribute(
        TCA_ACT_OPTIONS | NESTED,
        &attribute(TCA_MIRRED_PARMS, &mirred(ifb)),
    );
    options.extend(attribute(
        TCA_BPF_ACT | NESTED,
        &attribute(FIRST_ACTION | NESTED, &[kind, parameters].concat()),
    ));
    filter(index, Slot::Bus, &options)
}

/// Encodes `struct tc_mirred` (`linux/tc_act/tc_mirred.h`) for a redirect to interface `index`:
/// action index, capabilities, verdict, two reference counts, direction, interface.
fn mirred(index: u32) -> Vec<u8> {
    [0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, index]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect()
}

fn operations(program: &[(u16, u8, u8, u32)]) -> Vec<u8> {
    let bytes: Vec<u8> = program.iter().copied().flat_map(instruction).collect();
    let count = u16::try_from(program.len()).unwrap_or(u16::MAX);
    [
        attribute(TCA_BPF_OPS_LEN, &count.to_ne_bytes()),
        attribute(TCA_BPF_OPS, &bytes),
    ]
    .concat()
}

/// Returns the request that runs a loaded BPF program on an interface's egress. Send it with
/// `NLM_F_CREATE` only.
pub(crate) fn corrupt(index: u32, program: RawFd) -> Request {
    let options = [
        attribute(TCA_BPF_FD, &program.to_ne_bytes()),
        attribute(TCA_BPF_NAME, b"corrupt\0"),
    ]
    .concat();
    directly(index, Slot::Corruption, options)
}

/// Returns the request that removes one filter of an interface. The kernel reports ENOENT or EINVAL
/// if it does not exist.
pub(crate) fn remove(index: u32, slot: Slot) -> Request {
    empty(libc::RTM_DELTFILTER, index, slot)
}

/// Returns the request for a filter whose program returns the verdict itself, without an action.
fn directly(index: u32, slot: Slot, mut options: Vec<u8>) -> Request {
    options.extend(attribute(TCA_BPF_FLAGS, &ACT_DIRECT.to_ne_bytes()));
    filter(index, slot, &options)
}

fn filter(index: u32, slot: Slot, options: &[u8]) -> Request {
    empty(libc::RTM_NEWTFILTER, index, slot)
        .attribute(libc::TCA_KIND, &text("bpf"))
        .attribute(libc::TCA_OPTIONS, options)
}

/// Returns the request about a filter at the egress hook, without attributes. The slot's value is
/// both the filter's priority and its handle.
fn empty(kind: u16, index: u32, slot: Slot) -> Request {
    let slot = slot as u32;
    let info = (slot << 16) | u32::from(ALL_PROTOCOLS.to_be());
    Request::new(kind, &header(index, slot, CLSACT_EGRESS, info))
}

/// Encodes `struct sock_filter` (`linux/filter.h`): code, jump if true, jump if false, operand.
fn instruction((code, if_true, if_false, operand): (u16, u8, u8, u32)) -> [u8; 8] {
    let [c0, c1] = code.to_ne_bytes();
    let [k0, k1, k2, k3] = operand.to_ne_bytes();
    [c0, c1, if_true, if_false, k0, k1, k2, k3]
}

/// Verdict of a filter to drop the frame (`linux/pkt_cls.h`).
const TC_ACT_SHOT: u32 = 2;
/// Verdict of a filter to continue with the next one (`linux/pkt_cls.h`).
pub(crate) const TC_ACT_UNSPEC: u32 = u32::MAX;

const TWO_TO_32: f64 = 4_294_967_296.0;

/// Handle of clsact, its parent `TC_H_CLSACT`, and its egress hook (`linux/pkt_sched.h`).
const CLSACT: u32 = 0xffff_0000;
const CLSACT_PARENT: u32 = 0xffff_fff1;
const CLSACT_EGRESS: u32 = 0xffff_fff3;
/// Protocol of a filter that applies to all frames (`ETH_P_ALL`).
const ALL_PROTOCOLS: u16 = 3;

/// Result of a BPF program that matches a frame and leaves the verdict to the filter's action
/// (`net/sched/cls_bpf.c`).
const MATCH: u32 = u32::MAX;
/// Verdict of an action that has taken over the frame (`linux/pkt_cls.h`).
const TC_ACT_STOLEN: u32 = 4;
const TCA_EGRESS_REDIR: u32 = 1;
const TCA_MIRRED_PARMS: u16 = 2;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const FIRST_ACTION: u16 = 1;
/// Flag in the kind of a netlink attribute that contains attributes (`NLA_F_NESTED`).
const NESTED: u16 = 1 << 15;

const TCA_BPF_ACT: u16 = 1;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const ACT_DIRECT: u32 = 1;

/// Load of 32 bits at an offset: `BPF_LD | BPF_W | BPF_ABS`.
const LOAD_WORD: u16 = 0x20;
/// Load of 16 bits at an offset: `BPF_LD | BPF_H | BPF_ABS`.
const LOAD_HALF: u16 = 0x28;
/// Load of 8 bits at an offset: `BPF_LD | BPF_B | BPF_ABS`.
const LOAD_BYTE: u16 = 0x30;
/// Load of an IPv4 header's length, four times the low half of a byte: `BPF_LDX | BPF_B | BPF_MSH`.
const LOAD_HEADER_LEN: u16 = 0xb1;
/// Load of 16 bits at an offset plus the loaded header length: `BPF_LD | BPF_H | BPF_IND`.
const LOAD_HALF_BEHIND_HEADER: u16 = 0x48;
/// Jump if the loaded value equals the operand: `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_IF_EQUAL: u16 = 0x15;
const ETH_P_IP: u32 = 0x0800;
const ETH_P_IPV6: u32 = 0x86dd;
/// Jump if the loaded value is at least the operand: `BPF_JMP | BPF_JGE | BPF_K`.
const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
/// Return of the operand: `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
/// Offset from which a load yields a random number: `SKF_AD_OFF + SKF_AD_RANDOM`.
const RANDOM: u32 = (-0x1000_i32 + 56).cast_unsigned();

#[cfg(test)]
mod tests {
    use nicstripe_netlink::{Messages, u32_at};

    use super::*;

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        let bound = |share| Share::new(share).ok().map(Share::bound);
        assert_eq!(
            [0.0, 0.005, 0.5, 1.0].map(bound),
            [Some(0), Some(21_474_837), Some(1 << 31), Some(u32::MAX)]
        );
        assert_eq!(bound(1e-12), Some(1));
        assert_eq!([-0.1, 1.1, f64::NAN, f64::INFINITY].map(bound), [None; 4]);
    }

    #[test]
    fn an_attribute_is_padded_but_its_length_is_not() {
        assert_eq!(
            attribute(TCA_ACT_KIND, b"mirred\0"),
            [&11u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), b"mirred\0\0"].concat()
        );
        assert_eq!(mirred(7).len(), 28);
    }

    #[test]
    fn loss_and_corruption_have_places_of_their_own() {
        let info = |slot| {
            let bytes = empty(libc::RTM_NEWTFILTER, 5, slot).encode(0, 1);
            u32_at(Messages::new(&bytes).next().unwrap().body, 16).unwrap()
        };
        assert_eq!(info(Slot::Loss), 0x0001_0000 | u32::from(3u16.to_be()));
        assert_ne!(info(Slot::Loss), info(Slot::Corruption));
    }
}

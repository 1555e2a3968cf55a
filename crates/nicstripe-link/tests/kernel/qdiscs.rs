//! Tests of interface rate limits as read from the kernel.

use futures_util::StreamExt;
use nicstripe_link::{LineRate, interfaces};
use rtnetlink::{
    packet_core::{
        DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    },
    packet_route::{
        RouteNetlinkMessage,
        tc::{TcAttribute, TcHandle, TcMessage, TcOption},
    },
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::lab::{Lab, Namespace};

crate::tests![
    a_tbf_is_an_egress_limit,
    an_interface_without_a_limiter_has_no_egress_limit,
    a_limit_is_read_without_any_rights,
    an_htb_with_a_default_class_is_an_egress_limit,
];

fn a_tbf_is_an_egress_limit() {
    let lab = Lab::two_cables();
    lab.near.tbf("a0", 123_049_500);
    assert_eq!(limit(&lab.near, "a0"), Some(984_396_000));
    assert_eq!(
        limit(&lab.near, "a1"),
        None,
        "the limit belongs to the other interface"
    );
    assert_eq!(
        limit(&lab.far, "b0"),
        None,
        "the limit belongs to the other end"
    );

    // The largest value of the 32-bit range, and a value above it.
    lab.near.tbf("a1", u32::MAX.into());
    assert_eq!(limit(&lab.near, "a1"), Some(u64::from(u32::MAX) * 8));
    lab.near.tbf("a1", 12_500_000_000);
    assert_eq!(limit(&lab.near, "a1"), Some(100_000_000_000));
    assert_eq!(limit(&lab.near, "a0"), Some(984_396_000));
}

fn an_interface_without_a_limiter_has_no_egress_limit() {
    let lab = Lab::one_cable();
    assert_eq!(limit(&lab.near, "lo"), None);
    assert_eq!(limit(&lab.near, "a0"), None);
    lab.near.qdisc("a0", ROOT, ONE, "pfifo", &[]);
    assert_eq!(limit(&lab.near, "a0"), None);
}

fn a_limit_is_read_without_any_rights() {
    let lab = Lab::one_cable();
    lab.near.tbf("a0", 12_500_000);
    let found = lab.near.run(|| {
        let none = CapabilitySet::empty();
        // Only this thread loses the capabilities; it ends with the closure.
        set_capabilities(
            None,
            CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            },
        )
        .unwrap();
        interfaces().unwrap()
    });
    let a0 = found
        .iter()
        .find(|interface| interface.is_called("a0"))
        .unwrap();
    assert_eq!(a0.egress_limit, Some(LineRate(100_000_000)));
}

fn an_htb_with_a_default_class_is_an_egress_limit() {
    let lab = Lab::one_cable();
    lab.near.htb("a0", 0x10);
    assert_eq!(
        limit(&lab.near, "a0"),
        None,
        "unclassified traffic is unlimited"
    );
    lab.near.class("a0", ONE, class(1), 12_500_000, 12_500_000);
    lab.near
        .class("a0", class(1), class(0x10), 1_250_000, 12_500_000);
    assert_eq!(
        limit(&lab.near, "a0"),
        Some(100_000_000),
        "the default class may borrow"
    );
    lab.near
        .class("a0", class(1), class(0x11), 1_250_000, 2_500_000);
    assert_eq!(limit(&lab.near, "a0"), None, "filters select the class");
}

fn limit(namespace: &Namespace, name: &str) -> Option<u64> {
    namespace.interface(name).egress_limit.map(|rate| rate.0)
}

impl Namespace {
    /// Limits an interface to `bytes_per_second` with a tbf. The tbf replaces any earlier limit.
    pub(crate) fn tbf(&self, name: &str, bytes_per_second: u64) {
        let parameters = [
            &ratespec(bytes_per_second)[..],
            &[0; RATESPEC_LEN],
            &QUEUE_BYTES.to_ne_bytes(),
            &[0; 8],
        ]
        .concat();
        let options = [
            (TCA_TBF_PARMS, parameters),
            (TCA_TBF_RATE64, bytes_per_second.to_ne_bytes().to_vec()),
            (TCA_TBF_BURST, BURST_BYTES.to_ne_bytes().to_vec()),
        ];
        self.qdisc(name, ROOT, ONE, "tbf", &options);
    }

    fn htb(&self, name: &str, default: u32) {
        // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
        let parameters = [3, 10, default, 0, 0].map(u32::to_ne_bytes).concat();
        self.qdisc(name, ROOT, ONE, "htb", &[(TCA_HTB_INIT, parameters)]);
    }

    fn class(&self, name: &str, parent: TcHandle, handle: TcHandle, rate: u64, ceil: u64) {
        // After the rates: buffer and cbuffer (ticks of 64 ns), quantum (bytes), level and prio.
        let rest = [20_000, 20_000, 10_000, 0, 0]
            .map(u32::to_ne_bytes)
            .concat();
        let parameters = [&ratespec(rate)[..], &ratespec(ceil), &rest].concat();
        let message = self.message(name, parent, handle, "htb", &[(TCA_HTB_PARMS, parameters)]);
        self.request(RouteNetlinkMessage::NewTrafficClass(message));
    }

    fn qdisc(
        &self,
        name: &str,
        parent: TcHandle,
        handle: TcHandle,
        kind: &str,
        options: &[(u16, Vec<u8>)],
    ) {
        let message = self.message(name, parent, handle, kind, options);
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message));
    }

    fn message(
        &self,
        name: &str,
        parent: TcHandle,
        handle: TcHandle,
        kind: &str,
        options: &[(u16, Vec<u8>)],
    ) -> TcMessage {
        let mut message = TcMessage::with_index(self.index(name).0.cast_signed());
        message.header.parent = parent;
        message.header.handle = handle;
        message.attributes.push(TcAttribute::Kind(kind.to_owned()));
        if !options.is_empty() {
            let options = options
                .iter()
                .map(|(kind, value)| TcOption::Other(DefaultNla::new(*kind, value.clone())));
            message
                .attributes
                .push(TcAttribute::Options(options.collect()));
        }
        message
    }

    /// Sends an rtnetlink request, and panics if the kernel rejects it.
    fn request(&self, message: RouteNetlinkMessage) {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
        self.netlink(|mut handle| async move {
            let mut answers = handle.request(request).unwrap();
            while let Some(answer) = answers.next().await {
                if let NetlinkPayload::Error(error) = answer.payload {
                    assert_eq!(error.code, None, "{}", error.to_io());
                }
            }
        });
    }
}

/// Returns a `struct tc_ratespec`. Sets the link layer; without it, the kernel requires a table of
/// transmission times.
fn ratespec(bytes_per_second: u64) -> [u8; RATESPEC_LEN] {
    let mut spec = [0; RATESPEC_LEN];
    spec[1] = TC_LINKLAYER_ETHERNET;
    spec[8..].copy_from_slice(
        &u32::try_from(bytes_per_second)
            .unwrap_or(u32::MAX)
            .to_ne_bytes(),
    );
    spec
}

/// Returns the handle of class `1:minor`.
fn class(minor: u16) -> TcHandle {
    TcHandle { major: 1, minor }
}

const ROOT: TcHandle = TcHandle::ROOT;
/// Handle `1:` of a queueing discipline.
const ONE: TcHandle = TcHandle { major: 1, minor: 0 };

pub(crate) const BURST_BYTES: u32 = 262_144;
pub(crate) const QUEUE_BYTES: u32 = 4_194_304;

// include/uapi/linux/pkt_sched.h
const RATESPEC_LEN: usize = 12;
const TC_LINKLAYER_ETHERNET: u8 = 1;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;

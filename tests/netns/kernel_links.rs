//! Virtual cables that a test adds and removes at run time through rtnetlink(7), with their
//! interfaces. The lab does not manage them.

use std::{
    fs::{self, File},
    os::fd::{AsFd, AsRawFd},
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab};
use nicstripe_testkit::kernel_routes::{
    NLM_F_CREATE, NLM_F_EXCL, Request, attribute, command, switch,
};

/// Joins both hosts by another cable without a rate limit. Both of its interfaces have the name
/// `name`; their indexes are `indices`. On return, the interfaces are up with link-local addresses
/// only.
pub(crate) fn plug_in(lab: &Lab, name: &str, indices: [u32; 2]) {
    let there = lab
        .on(Host::B, || File::open("/proc/thread-self/ns/net"))
        .unwrap()
        .unwrap();
    let [here, peer] = indices.map(interface_message);
    let text = [name.as_bytes(), b"\0"].concat();
    let called = attribute(IFLA_IFNAME, &text);
    let there_number = attribute(IFLA_NET_NS_FD, &there.as_fd().as_raw_fd().to_ne_bytes());
    let peer = attribute(
        IFLA_INFO_DATA,
        &attribute(
            VETH_INFO_PEER,
            &[&peer[..], &called, &there_number].concat(),
        ),
    );
    let info = [attribute(IFLA_INFO_KIND, b"veth"), peer].concat();
    let request = Request::new(RTM_NEWLINK, &here)
        .attribute(IFLA_IFNAME, &text)
        .attribute(IFLA_LINKINFO, &info);
    lab.on(Host::A, || command(&request, NLM_F_CREATE | NLM_F_EXCL))
        .unwrap();
    // An interface can be up only once both exist.
    Host::ALL
        .into_iter()
        .zip(indices)
        .for_each(|(host, index)| lab.on(host, || switch(index, true)).unwrap());
    Host::ALL
        .into_iter()
        .for_each(|host| lab.on(host, || await_address(name)).unwrap());
}

/// Waits up to 5 s until an interface of the calling thread's host has an IPv6 address.
fn await_address(name: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !fs::read_to_string("/proc/thread-self/net/if_inet6")
        .unwrap()
        .lines()
        .any(|line| line.ends_with(name))
    {
        assert!(
            Instant::now() < deadline,
            "{name} has no address within 5 s"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Removes the cable whose interface on host A has this index.
pub(crate) fn pull_out(lab: &Lab, index: u32) {
    let request = Request::new(RTM_DELLINK, &interface_message(index));
    lab.on(Host::A, || command(&request, 0)).unwrap();
}

/// Builds the `struct ifinfomsg` of a request about an interface.
fn interface_message(index: u32) -> Vec<u8> {
    [0, index, 0, 0].map(u32::to_ne_bytes).concat()
}

// linux/rtnetlink.h, linux/if_link.h, linux/veth.h
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

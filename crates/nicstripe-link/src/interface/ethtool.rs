//! Interface details from ethtool's ioctl: driver, firmware, duplex mode, and TCP offloads.
//!
//! Ethtool's netlink family (`ethtool_messages`) does not report the driver, and for offloads it
//! requires a table of names (linux/ethtool.h, `SIOCETHTOOL`).

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nicstripe_netlink::{text, u8_at, u32_at};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::interface::name::InterfaceName;

/// Socket for ethtool commands, in the calling thread's network namespace.
pub(crate) struct IoctlSocket(OwnedFd);

impl IoctlSocket {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self(socket))
    }

    pub(crate) fn driver(&self, interface: &InterfaceName) -> Driver {
        ask(&self.0, interface, ETHTOOL_GDRVINFO)
            .map(|answer| Driver::parse(&answer))
            .unwrap_or_default()
    }

    /// Queries the duplex mode, `half` or `full`.
    pub(crate) fn duplex(&self, interface: &InterfaceName) -> Option<&'static str> {
        duplex(&ask(&self.0, interface, ETHTOOL_GSET).ok()?)
    }

    /// Queries the enabled offloads of [`OFFLOADS`]; `None` if none of them is known.
    pub(crate) fn offloads(&self, interface: &InterfaceName) -> Option<Vec<&'static str>> {
        let states = OFFLOADS.map(|(name, command)| {
            let answer = ask(&self.0, interface, command).ok()?;
            Some((name, is_on(&answer)?))
        });
        let is_any_known = states.iter().any(Option::is_some);
        let enabled = states.into_iter().flatten().filter(|(_, on)| *on);
        is_any_known.then(|| enabled.map(|(name, _)| name).collect())
    }
}

/// Buffer for the longest ethtool answer, in the kernel's layout.
type Buffer = [u8; ANSWER_LEN];

/// Runs one of the ethtool commands in this module.
fn ask(socket: &OwnedFd, interface: &InterfaceName, command: u32) -> io::Result<Buffer> {
    let mut answer = Aligned([0; ANSWER_LEN]);
    answer.0[..4].copy_from_slice(&command.to_ne_bytes());
    // SAFETY: all zeros is a valid ifreq without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // A name has at most 15 bytes, so the last of the 16 stays 0.
    for (to, from) in request.ifr_name.iter_mut().zip(interface.as_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut answer.0).cast();
    // SAFETY: the request names an interface and points to `ANSWER_LEN` bytes, at least as many as
    // any command of this module reads or writes. Both outlive the call, and nothing else refers
    // to them.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
        0 => Ok(answer.0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Answer buffer with the alignment of ethtool structures, four bytes.
#[repr(C, align(4))]
struct Aligned(Buffer);

/// Driver of an interface and version of the card's firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    pub(crate) name: Option<String>,
    pub(crate) firmware: Option<String>,
}

impl Driver {
    /// Parses an `ethtool_drvinfo`: command (u32), driver, version and firmware version (32 bytes
    /// each).
    fn parse(answer: &[u8]) -> Self {
        let shown = |range| {
            let name: String = text(answer.get::<Range<usize>>(range)?)
                .chars()
                .filter(|c| !c.is_control())
                .collect();
            (!name.is_empty()).then_some(name)
        };
        Self {
            name: shown(4..36),
            // Drivers without a firmware write this.
            firmware: shown(68..100).filter(|version| version != "N/A"),
        }
    }
}

/// Parses the duplex mode of an `ethtool_cmd`; 255 is "unknown".
fn duplex(answer: &[u8]) -> Option<&'static str> {
    match u8_at(answer, 14)? {
        0 => Some("half"),
        1 => Some("full"),
        _ => None,
    }
}

/// Parses an `ethtool_value`: true if the offload is on.
fn is_on(answer: &[u8]) -> Option<bool> {
    u32_at(answer, 4).map(|value| value != 0)
}

/// Runs all parsers of this module on one answer, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(answer: &[u8]) {
    let _ = (Driver::parse(answer), duplex(answer), is_on(answer));
}

/// Name and command of each reported offload, in the order of the report. Answered by a `struct
/// ethtool_value` of 8 bytes.
const OFFLOADS: [(&str, u32); 6] = [
    ("tso", 0x1e),
    ("gso", 0x23),
    ("gro", 0x2b),
    ("tx-checksum", 0x16),
    ("rx-checksum", 0x14),
    ("sg", 0x18),
];

const ANSWER_LEN: usize = 196;
/// Command for the link settings; answered by a `struct ethtool_cmd` of 44 bytes.
const ETHTOOL_GSET: u32 = 0x01;
/// Command for driver information; answered by a `struct ethtool_drvinfo` of 196 bytes.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_where_the_kernel_puts_them() {
        let mut answer = [0; ANSWER_LEN];
        answer[4..14].copy_from_slice(b"virtio_net");
        answer[68..71].copy_from_slice(b"N/A");
        let card = Driver {
            name: Some("virtio_net".to_owned()),
            firmware: None,
        };
        assert_eq!(Driver::parse(&answer), card);
        answer[68..72].copy_from_slice(b"1.67");
        assert_eq!(Driver::parse(&answer).firmware.as_deref(), Some("1.67"));
        assert_eq!(duplex(&answer), Some("half"));
        answer[14] = 1;
        assert_eq!(duplex(&answer), Some("full"));
        answer[14] = 0xff;
        assert_eq!(duplex(&answer), None);
        assert_eq!(Driver::parse(&[0; ANSWER_LEN]), Driver::default());
        assert_eq!(Driver::parse(&[1; 8]), Driver::default());
        assert_eq!((duplex(&[1; 8]), is_on(&[1; 7])), (None, None));
        assert_eq!(is_on(&[0x1e, 0, 0, 0, 0, 0, 0, 0]), Some(false));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn loopback_has_offloads_and_nobody_has_none() {
        let socket = IoctlSocket::open().unwrap();
        let offloads = socket.offloads(&"lo".parse().unwrap());
        assert!(
            offloads.is_none_or(|offloads| offloads.contains(&"tso")),
            "loopback cuts nothing"
        );
        let nobody = "nosuch0".parse().unwrap();
        assert_eq!(socket.offloads(&nobody), None);
        assert_eq!(socket.driver(&nobody), Driver::default());
    }
}

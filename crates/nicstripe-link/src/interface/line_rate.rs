//! Negotiated rate of an interface, from ethtool's netlink family (Linux 5.6) or from sysfs.
//!
//! An unknown rate is normal: drivers report 0, -1, `EINVAL` or `EOPNOTSUPP`, and virtual ones
//! invent a number. All of these map to `None`.

use std::{io, sync::OnceLock};

use nicstripe_netlink::{Message, Netlink, Request, attribute, text, u16_at, u32_at};

use crate::interface::{InterfaceIndex, LineRate, name::InterfaceName, sysfs};

/// Reader of negotiated rates, which opens its netlink socket on first use.
#[derive(Default)]
pub(crate) struct LineRates(Option<Option<Ethtool>>);

impl LineRates {
    pub(crate) fn read(&mut self, name: InterfaceName, index: InterfaceIndex) -> Option<LineRate> {
        let ethtool = self.0.get_or_insert_with(|| Ethtool::open().ok());
        let megabits = match ethtool {
            Some(ethtool) => ethtool.megabits(index),
            None => sysfs::speed(name, index),
        };
        megabits.and_then(known)
    }
}

struct Ethtool {
    netlink: Netlink,
    family: u16,
}

impl Ethtool {
    fn open() -> io::Result<Self> {
        let mut netlink = Netlink::generic()?;
        let family = family(&mut netlink)?;
        Ok(Self { netlink, family })
    }

    fn megabits(&mut self, index: InterfaceIndex) -> Option<u32> {
        let header = [
            attribute(ETHTOOL_A_HEADER_DEV_INDEX, &index.0.to_ne_bytes()),
            attribute(
                ETHTOOL_A_HEADER_FLAGS,
                &ETHTOOL_FLAG_COMPACT_BITSETS.to_ne_bytes(),
            ),
        ]
        .concat();
        let request = Request::new(self.family, &[ETHTOOL_MSG_LINKMODES_GET, 1, 0, 0])
            .attribute(NLA_F_NESTED | ETHTOOL_A_LINKMODES_HEADER, &header);
        let speed = |message: &Message<'_>| {
            let (_, attributes) = message.split(GENERIC_HEADER_LEN)?;
            u32_at(attributes.find(ETHTOOL_A_LINKMODES_SPEED)?, 0)
        };
        self.netlink.query(&request, speed).ok().flatten()
    }
}

/// Returns the ID of ethtool's netlink family, which is constant while the kernel runs.
fn family(netlink: &mut Netlink) -> io::Result<u16> {
    static FAMILY: OnceLock<u16> = OnceLock::new();
    if let Some(family) = FAMILY.get() {
        return Ok(*family);
    }
    // Use a dump: a query by an unknown name makes the kernel run modprobe and wait for it.
    let request = Request::new(GENL_ID_CTRL, &[CTRL_CMD_GETFAMILY, 1, 0, 0]);
    let families = netlink.dump(&request, |message| {
        let (_, attributes) = message.split(GENERIC_HEADER_LEN)?;
        Some((
            text(attributes.find(CTRL_ATTR_FAMILY_NAME)?),
            u16_at(attributes.find(CTRL_ATTR_FAMILY_ID)?, 0)?,
        ))
    })?;
    let (_, family) = families
        .into_iter()
        .find(|(name, _)| name == "ethtool")
        .ok_or(io::ErrorKind::Unsupported)?;
    Ok(*FAMILY.get_or_init(|| family))
}

/// Converts a driver's rate in Mbit/s; `None` if the driver reports that it is unknown.
fn known(megabits: u32) -> Option<LineRate> {
    // Zero and values from 2^31 on (negative numbers) mean unknown.
    let known = (1..=i32::MAX.unsigned_abs()).contains(&megabits);
    known.then(|| LineRate(u64::from(megabits) * 1_000_000))
}

const GENERIC_HEADER_LEN: usize = 4;
const NLA_F_NESTED: u16 = 0x8000;

// include/uapi/linux/genetlink.h
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

// include/uapi/linux/ethtool_netlink.h
const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_COMPACT_BITSETS: u32 = 1;
const ETHTOOL_A_LINKMODES_HEADER: u16 = 1;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn an_interface_without_link_modes_has_no_rate() {
        let mut rates = LineRates::default();
        assert_eq!(rates.read("lo".parse().unwrap(), InterfaceIndex(1)), None);
        assert_eq!(
            rates.read("nosuch0".parse().unwrap(), InterfaceIndex(u32::MAX)),
            None
        );
    }

    #[test]
    fn only_positive_speeds_are_known() {
        assert_eq!(known(10), Some(LineRate(10_000_000)));
        assert_eq!(known(400_000), Some(LineRate(400_000_000_000)));
        assert_eq!(known(0), None);
        assert_eq!(known(u32::MAX), None);
        assert_eq!(known(-22_i32 as u32), None);
    }
}

//! Negotiated rate of an interface, from ethtool's netlink family (Linux 5.6) or from sysfs.
//!
//! An unknown rate is normal: drivers report 0, -1, `EINVAL` or `EOPNOTSUPP`, and virtual ones
//! invent a number. All of these map to `None`.

use crate::interface::{
    InterfaceIndex, LineRate, ethtool_messages::Ethtool, name::InterfaceName, sysfs,
};

/// Reader of negotiated rates, which opens its netlink socket on first use.
#[derive(Default)]
pub(crate) struct LineRates(Option<Option<Ethtool>>);

impl LineRates {
    pub(crate) fn read(&mut self, name: InterfaceName, index: InterfaceIndex) -> Option<LineRate> {
        let ethtool = self.0.get_or_insert_with(|| Ethtool::open().ok());
        let megabits = match ethtool {
            Some(ethtool) => ethtool.link_settings(index).and_then(|link| link.megabits),
            None => sysfs::speed(name, index),
        };
        megabits.and_then(known)
    }
}

/// Converts a driver's rate in Mbit/s; `None` if the driver reports that it is unknown.
fn known(megabits: u32) -> Option<LineRate> {
    // Zero and values from 2^31 on (negative numbers) mean unknown.
    let known = (1..=i32::MAX.unsigned_abs()).contains(&megabits);
    known.then(|| LineRate(u64::from(megabits) * 1_000_000))
}

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

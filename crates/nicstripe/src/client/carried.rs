//! Comparison of delivered bytes with the kernel's interface counters, to verify the links of a
//! report.
//!
//! A peer may answer a connection over another interface than the one at which it arrived (because
//! of a switch, or `arp_announce=0`). The handshake cannot detect that; the counters can.

use std::{collections::BTreeMap, time::Duration};

use nicstripe_link::{Counters, InterfaceIndex, counters, interfaces};

use crate::report::LinkReport;

/// Byte counters of all local interfaces at one time.
#[derive(Debug, Default)]
pub(super) struct Carried(BTreeMap<String, (InterfaceIndex, Counters)>);

impl Carried {
    /// Reads the counters of all local interfaces. Omits those that cannot be read.
    pub(super) fn read() -> Self {
        let read = |interface: nicstripe_link::Interface| {
            Some((
                interface.name.to_string(),
                (interface.index, counters(interface.index).ok()?),
            ))
        };
        Self(
            interfaces()
                .unwrap_or_default()
                .into_iter()
                .filter_map(read)
                .collect(),
        )
    }

    /// Returns the bytes that an interface carried since `earlier`, or since its creation if it is
    /// newer. Returns `None` if the interface was recreated in between, which resets its counters.
    fn since(&self, earlier: &Self, interface: &str) -> Option<Counters> {
        let (index, now) = self.0.get(interface)?;
        match earlier.0.get(interface) {
            Some((then, _)) if then != index => None,
            then => Some(then.map_or(*now, |(_, then)| now.since(then))),
        }
    }
}

/// Sets the bytes that each link's interface has carried since `before`. Changes `verified` to
/// false if the interface carried less than its links delivered.
///
/// Some drivers update their counters once per second (tg3, bnxt), so a low count is read again for
/// that time.
pub(super) async fn verify(links: &mut [LinkReport], before: &Carried, is_receiving: bool) {
    for look in 0..COUNTING_LOOKS {
        if look > 0 {
            tokio::time::sleep(COUNTING_PAUSE).await;
        }
        judge(links, before, &Carried::read(), is_receiving);
        if links.iter().all(|link| {
            link.interface_bytes
                .is_none_or(|carried| carried >= on_wire(links, link))
        }) {
            break;
        }
    }
    withdraw(links);
}

/// Changes `verified` of links that were true: to false if the interface carried less than its
/// links delivered, to `None` without counters.
fn withdraw(links: &mut [LinkReport]) {
    for index in 0..links.len() {
        let lacks = links.get(index).is_some_and(|link| {
            link.interface_bytes
                .is_none_or(|carried| carried < on_wire(links, link))
        });
        if let Some(link) = links
            .get_mut(index)
            .filter(|link| lacks && link.verified == Some(true))
        {
            // Without counters the result is unknown.
            link.verified = link.interface_bytes.map(|_| false);
        }
    }
}

fn judge(links: &mut [LinkReport], before: &Carried, now: &Carried, is_receiving: bool) {
    for link in links {
        let carried = now.since(before, &link.link.interface);
        link.interface_bytes = carried.map(|carried| {
            if is_receiving {
                carried.received
            } else {
                carried.sent
            }
        });
    }
}

/// Returns the minimum bytes on the wire, in total for all links on the local interface of `link`.
fn on_wire(links: &[LinkReport], link: &LinkReport) -> u64 {
    links
        .iter()
        .filter(|other| other.link.interface == link.link.interface)
        .map(|other| other.wire_bytes)
        .sum()
}

/// Number of counter readings, and the pause between two: more than one second in total.
const COUNTING_LOOKS: u32 = 6;
const COUNTING_PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use nicstripe_proto::BitRate;

    use super::*;
    use crate::report::{
        KernelView,
        event::{LinkName, LinkState},
    };

    fn link(interface: &str, remote: u8, bytes: u64) -> LinkReport {
        LinkReport {
            link: LinkName {
                interface: interface.into(),
                peer_interface: None,
                local: None,
                remote: [10, 0, 0, remote].into(),
            },
            bytes,
            wire_bytes: bytes,
            goodput: BitRate(0),
            theory: None,
            state: LinkState::Up,
            verified: Some(true),
            interface_bytes: None,
            path_mtu: None,
            failures: 0,
            damaged: 0,
            kernel: KernelView::default(),
        }
    }

    fn carried(index: u32, received: u64, sent: u64) -> Carried {
        Carried(
            [(
                "eth1".to_owned(),
                (InterfaceIndex(index), Counters { received, sent }),
            )]
            .into(),
        )
    }

    #[test]
    fn each_direction_is_counted_by_itself_from_the_start_of_the_transfer() {
        let mut links = [link("eth1", 1, 100)];
        judge(
            &mut links,
            &carried(3, 50, 1000),
            &carried(3, 60, 1200),
            false,
        );
        assert_eq!(links[0].interface_bytes, Some(200));
        judge(
            &mut links,
            &carried(3, 50, 1000),
            &carried(3, 60, 1200),
            true,
        );
        assert_eq!(links[0].interface_bytes, Some(10));
    }

    #[test]
    fn an_interface_that_was_made_since_counts_from_its_making() {
        let mut links = [link("eth1", 1, 100)];
        judge(&mut links, &Carried::default(), &carried(4, 0, 120), false);
        assert_eq!(links[0].interface_bytes, Some(120));
    }

    #[test]
    fn of_an_interface_that_was_removed_and_came_back_nothing_is_said() {
        let mut links = [link("eth1", 1, 100)];
        judge(&mut links, &carried(3, 0, 5000), &carried(4, 0, 120), false);
        assert_eq!(links[0].interface_bytes, None);
    }

    #[test]
    fn two_links_on_one_interface_have_to_share_what_it_carried() {
        let links = [
            link("eth1", 1, 100),
            link("eth1", 2, 50),
            link("eth2", 3, 7),
        ];
        assert_eq!(
            [on_wire(&links, &links[0]), on_wire(&links, &links[2])],
            [150, 7]
        );
    }

    #[test]
    fn a_link_whose_interface_carried_less_than_it_delivered_is_not_verified() {
        let counted = |bytes, interface_bytes| {
            let mut links = [LinkReport {
                interface_bytes,
                ..link("eth1", 1, bytes)
            }];
            withdraw(&mut links);
            links[0].verified
        };
        assert_eq!(counted(100, Some(100)), Some(true));
        assert_eq!(counted(100, Some(99)), Some(false));
        assert_eq!(counted(100, None), None, "nobody counted");
    }

    #[test]
    fn what_compression_saved_is_not_missed() {
        let mut links = [LinkReport {
            wire_bytes: 10,
            interface_bytes: Some(12),
            ..link("eth1", 1, 100)
        }];
        withdraw(&mut links);
        assert_eq!(links[0].verified, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_that_stays_too_low_is_read_for_little_more_than_a_second() {
        let (before, started_at) = (Carried::read(), tokio::time::Instant::now());
        let mut links = [link("lo", 1, u64::MAX)];
        verify(&mut links, &before, true).await;
        assert_eq!(links[0].verified, Some(false));
        assert_eq!(started_at.elapsed(), (COUNTING_LOOKS - 1) * COUNTING_PAUSE);
    }

    #[tokio::test]
    async fn what_went_over_an_interface_of_this_machine_is_counted() {
        let before = Carried::read();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .send_to(&[0; 1000], socket.local_addr().unwrap())
            .unwrap();
        let mut links = [link("lo", 1, 1000)];
        verify(&mut links, &before, true).await;
        assert_eq!(links[0].verified, Some(true));
        assert!(links[0].interface_bytes.is_some_and(|bytes| bytes >= 1000));
    }
}

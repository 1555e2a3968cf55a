//! Notifications of link and address changes from the kernel.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::IpAddr,
};

use nicstripe_netlink::{BUFFER_LEN, Messages, Netlink, NetlinkSocket};
use rustix::net::SocketFlags;
use tokio::io::{Interest, unix::AsyncFd};

use crate::interface::{
    InterfaceIndex,
    enumerate::{self, AddressMessage, Link, LinkMessage, Usability},
    name::InterfaceName,
};

/// Change of an interface or one of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// An interface appeared. Separate changes report its carrier and addresses.
    Appeared {
        /// Index of the new interface.
        index: InterfaceIndex,
        /// Name of the new interface at that time.
        name: InterfaceName,
    },
    /// An interface was removed, together with its addresses and routes.
    Gone {
        /// Index of the removed interface.
        index: InterfaceIndex,
    },
    /// An interface gained or lost the ability to carry data, because of its cable or of the
    /// administrator.
    ///
    /// The kernel silently drops the routes of an interface that the administrator switches off,
    /// and does not restore them. Call [`Routes::restore`](crate::Routes::restore) when it is up
    /// again.
    Carrier {
        /// Index of the interface that changed.
        index: InterfaceIndex,
        /// True if the interface can now carry data.
        up: bool,
    },
    /// The name, the MTU or the master of an interface changed.
    Altered {
        /// Index of the interface that changed.
        index: InterfaceIndex,
    },
    /// An address became usable or unusable. An IPv6 address becomes usable at the end of duplicate
    /// address detection.
    Address {
        /// Index of the interface with the address.
        index: InterfaceIndex,
        /// Address that became usable or unusable.
        address: IpAddr,
        /// True if the address is now usable.
        usable: bool,
    },
}

/// Stream of interface and address changes in the network namespace of the thread that opened it.
///
/// Reports each change once, relative to the state at the start. Skips messages that repeat known
/// state. After the kernel drops messages, the stream reads the state again and reports the
/// difference. Needs no privileges.
#[derive(Debug)]
pub struct Changes {
    socket: AsyncFd<NetlinkSocket>,
    table: Table,
    /// Changes that [`next`](Self::next) has not yet returned.
    pending: VecDeque<Change>,
    buffer: Vec<u8>,
}

impl Changes {
    /// Subscribes to the kernel's link and address messages, and reads the initial state.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub fn open() -> io::Result<Self> {
        let groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Subscribe before reading the state, so that a change in between is not lost.
        let socket = NetlinkSocket::open(None, flags, groups)?;
        // SAFETY: the socket owns its descriptor, which is open, never replaced, and closed when
        // the socket is dropped; the `AsyncFd` owns the socket from here on.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self {
            socket,
            table: Table::read()?,
            pending: VecDeque::new(),
            buffer: vec![0; BUFFER_LEN],
        })
    }

    /// Waits for the next change. Cancel safe: a cancelled call loses no change.
    ///
    /// A carrier change arrives within a few milliseconds (`tests/kernel`). After an error the
    /// stream is unreliable, and the caller must open a new one.
    pub async fn next(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(change);
            }
            let mut ready = self.socket.readable().await?;
            let Ok(received) =
                ready.try_io(|socket| socket.get_ref().receive(&mut self.buffer).map(<[u8]>::len))
            else {
                continue;
            };
            // No await from here to the next pop, so that cancellation loses nothing.
            match received {
                Ok(len) => {
                    let datagram = self.buffer.get(..len).unwrap_or_default();
                    self.pending
                        .extend(events(datagram).flat_map(|event| self.table.apply(event)));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    // Queued messages are older than the dropped ones, and must not be applied to
                    // the newer state.
                    self.drain();
                    self.pending.extend(self.table.replace(&Table::read()?));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Changes {
    fn drain(&mut self) {
        for _ in 0..DRAIN_LIMIT {
            match self.socket.get_ref().receive(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }
}

/// Last known state of all links and usable addresses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    links: HashMap<InterfaceIndex, Link>,
    addresses: HashSet<(InterfaceIndex, IpAddr)>,
}

/// Content of one link or address message of the kernel.
enum Event {
    Link(InterfaceIndex, Link),
    LinkGone(InterfaceIndex),
    Address(InterfaceIndex, IpAddr, Usability),
}

impl Table {
    fn read() -> io::Result<Self> {
        let mut netlink = Netlink::route()?;
        let links = enumerate::links(&mut netlink)?.into_iter().map(Event::link);
        let addresses = enumerate::addresses(&mut netlink)?
            .into_iter()
            .map(Event::address);
        let mut table = Self::default();
        for event in links.chain(addresses) {
            table.apply(event);
        }
        Ok(table)
    }

    /// Applies one message to the table and returns the resulting changes.
    fn apply(&mut self, event: Event) -> Vec<Change> {
        match event {
            Event::Link(index, link) => {
                let (name, up) = (link.name, link.carrier);
                let before = self.links.insert(index, link.clone());
                let had_carrier = before.as_ref().is_some_and(|before| before.carrier);
                let mut changes = Vec::new();
                if before.is_none() {
                    changes.push(Change::Appeared { index, name });
                }
                if had_carrier != up {
                    changes.push(Change::Carrier { index, up });
                }
                let carrier = had_carrier;
                if before.is_some_and(|before| before != Link { carrier, ..link }) {
                    changes.push(Change::Altered { index });
                }
                changes
            }
            Event::LinkGone(index) => {
                self.addresses.retain(|(owner, _)| *owner != index);
                self.links
                    .remove(&index)
                    .map(|_| Change::Gone { index })
                    .into_iter()
                    .collect()
            }
            Event::Address(index, address, usability) => {
                let changed = match usability {
                    Usability::NotYet => false,
                    Usability::Usable => self.addresses.insert((index, address)),
                    Usability::NoMore | Usability::Duplicate => {
                        self.addresses.remove(&(index, address))
                    }
                };
                let usable = usability == Usability::Usable;
                changed
                    .then_some(Change::Address {
                        index,
                        address,
                        usable,
                    })
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Replaces the table by `now` and returns the differences as changes.
    fn replace(&mut self, now: &Self) -> Vec<Change> {
        let gone = self
            .links
            .keys()
            .filter(|index| !now.links.contains_key(index))
            .map(|index| Event::LinkGone(*index));
        let lost = self
            .addresses
            .difference(&now.addresses)
            .map(|(index, ip)| Event::Address(*index, *ip, Usability::NoMore));
        let links = now.links.iter();
        let links = links.map(|(index, link)| Event::Link(*index, link.clone()));
        let found = now.addresses.iter();
        let found = found.map(|(index, ip)| Event::Address(*index, *ip, Usability::Usable));
        let events: Vec<Event> = gone.chain(links).chain(lost).chain(found).collect();
        events
            .into_iter()
            .flat_map(|event| self.apply(event))
            .collect()
    }
}

impl Event {
    fn link(message: LinkMessage) -> Self {
        Self::Link(message.index, message.link)
    }

    fn address(message: AddressMessage) -> Self {
        Self::Address(message.interface, message.address.ip, message.usability)
    }
}

/// Parses the link and address messages in a netlink datagram.
fn events(datagram: &[u8]) -> impl Iterator<Item = Event> {
    Messages::new(datagram).filter_map(|message| match message.kind {
        libc::RTM_NEWLINK => LinkMessage::parse(&message).map(Event::link),
        libc::RTM_DELLINK => LinkMessage::parse(&message).map(|link| Event::LinkGone(link.index)),
        libc::RTM_NEWADDR => AddressMessage::parse(&message).map(Event::address),
        libc::RTM_DELADDR => AddressMessage::parse(&message).map(|address| {
            Event::Address(address.interface, address.address.ip, Usability::NoMore)
        }),
        _ => None,
    })
}

/// Maximum number of datagrams to discard after an overflow: more than any socket buffer holds,
/// since each takes at least 768 bytes of the default 208 KiB.
const DRAIN_LIMIT: usize = 65_536;

// include/uapi/linux/rtnetlink.h
pub(crate) const RTMGRP_LINK: u32 = 0x1;
pub(crate) const RTMGRP_IPV4_IFADDR: u32 = 0x10;
pub(crate) const RTMGRP_IPV6_IFADDR: u32 = 0x100;

#[cfg(test)]
mod tests {
    use super::*;

    const A: InterfaceIndex = InterfaceIndex(2);
    const B: InterfaceIndex = InterfaceIndex(3);

    fn link(carrier: bool) -> Link {
        Link {
            name: "a".parse().unwrap(),
            mtu: 1500,
            master: None,
            carrier,
        }
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Returns a table with link A, which has carrier and the address 10.0.0.1.
    fn table() -> Table {
        Table {
            links: [(A, link(true))].into(),
            addresses: [(A, ip(1))].into(),
        }
    }

    #[test]
    fn the_stream_may_live_in_a_spawned_task() {
        fn assert_send<T: Send + 'static>() {}
        assert_send::<Changes>();
    }

    #[test]
    fn a_message_that_repeats_what_is_known_changes_nothing() {
        let mut table = table();
        assert_eq!(table.apply(Event::Link(A, link(true))), []);
        assert_eq!(table.apply(Event::Address(A, ip(1), Usability::Usable)), []);
        assert_eq!(table.apply(Event::LinkGone(B)), []);
        assert_eq!(table.apply(Event::Address(B, ip(9), Usability::NoMore)), []);
    }

    #[test]
    fn carrier_and_everything_else_are_told_apart() {
        let mut table = table();
        assert_eq!(
            table.apply(Event::Link(A, link(false))),
            [Change::Carrier {
                index: A,
                up: false
            }]
        );
        let jumbo = Link {
            mtu: 9000,
            ..link(false)
        };
        assert_eq!(
            table.apply(Event::Link(A, jumbo)),
            [Change::Altered { index: A }]
        );
        let changes = table.apply(Event::Link(A, link(true)));
        assert_eq!(
            changes,
            [
                Change::Carrier { index: A, up: true },
                Change::Altered { index: A }
            ]
        );
    }

    #[test]
    fn an_ipv6_address_counts_after_duplicate_detection() {
        let mut table = table();
        assert_eq!(table.apply(Event::Address(A, ip(2), Usability::NotYet)), []);
        let changes = table.apply(Event::Address(A, ip(2), Usability::Usable));
        assert_eq!(
            changes,
            [Change::Address {
                index: A,
                address: ip(2),
                usable: true
            }]
        );
        let changes = table.apply(Event::Address(A, ip(2), Usability::NoMore));
        assert_eq!(
            changes,
            [Change::Address {
                index: A,
                address: ip(2),
                usable: false
            }]
        );
    }

    #[test]
    fn after_lost_messages_the_difference_is_told() {
        let mut table = table();
        let now = || Table {
            links: [(B, link(true))].into(),
            addresses: [(B, ip(2))].into(),
        };
        let changes = table.replace(&now());
        let name = link(true).name;
        assert_eq!(
            changes,
            [
                Change::Gone { index: A },
                Change::Appeared { index: B, name },
                Change::Carrier { index: B, up: true },
                Change::Address {
                    index: B,
                    address: ip(2),
                    usable: true
                },
            ]
        );
        assert_eq!(table, now());
        assert_eq!(table.replace(&now()), []);
    }
}

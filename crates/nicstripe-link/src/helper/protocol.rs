//! Protocol between nicstripe and its route helper: one request of 44 bytes, then one answer of 28.
//!
//! Integers are little-endian. Unused bytes are zero, and a message with a different value there is
//! rejected, so that each message has only one encoding.
//!
//! | offset | request | answer |
//! | --- | --- | --- |
//! | 0 | version, 1 | version, 1 |
//! | 1 | operation: 1 add, 2 remove, 3 restore, 4 clean, 5 set MTU, 6 restore MTU, 7 forget neighbour | [`Status`] |
//! | 2 | family of the destination: 4, 6, or 0 for none | family of the address: 4, 6, or 0 for none |
//! | 3 | family of the source: 4, 6, or 0 for none | 0 |
//! | 4 | interface, u32 | detail, u32: see [`Status`] |
//! | 8 | metric, or MTU, u32 | interface of the error, u32 |
//! | 12 | destination, 16 bytes; IPv4 uses the first four. With an MTU: its maximum duration in seconds, u32 | address of the error, 16 bytes |
//! | 28 | source, 16 bytes | |

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU32,
    path::Path,
};

use crate::{
    interface::{InterfaceIndex, enumerate::interfaces, name::InterfaceName},
    ledger::LOCK_TIMEOUT,
    mtu::MtuError,
    routes::{
        HostRoute, RouteError,
        refusal::Refusal,
        table::{protocol_name, protocol_number},
    },
};

/// Change that the client requests from the route helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Install a host route if the policy allows it. Does nothing if this helper has already
    /// installed it.
    Add(HostRoute),
    /// Remove a route that this helper installed. Does not affect other routes.
    Remove(HostRoute),
    /// Reinstall the routes through this interface that the kernel dropped.
    Restore(InterfaceIndex),
    /// Remove the routes and restore the MTUs that dead processes left.
    Clean,
    /// Change the MTU of an interface for at most `seconds`, 1 to [`MAX_MTU_SECONDS`]. A repeated
    /// request restarts the time.
    SetMtu {
        interface: InterfaceIndex,
        mtu: u32,
        seconds: u32,
    },
    /// Restore the original MTU of this interface.
    RestoreMtu(InterfaceIndex),
    /// Delete the stale neighbour entry of a route's destination. The policy must allow the route.
    ForgetNeighbour(HostRoute),
}

/// Maximum time in seconds that an MTU stays changed without a new request.
pub(crate) const MAX_MTU_SECONDS: u32 = 3600;

pub(crate) const REQUEST_LEN: usize = 44;

impl Request {
    pub(crate) fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0] = VERSION;
        match self {
            Self::Add(route) => put_route(&mut bytes, ADD, route),
            Self::Remove(route) => put_route(&mut bytes, REMOVE, route),
            Self::Restore(interface) => {
                bytes[1] = RESTORE;
                bytes[4..8].copy_from_slice(&interface.0.to_le_bytes());
            }
            Self::Clean => bytes[1] = CLEAN,
            Self::SetMtu {
                interface,
                mtu,
                seconds,
            } => {
                bytes[1] = SET_MTU;
                for (offset, value) in [(4, interface.0), (8, *mtu), (12, *seconds)] {
                    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
                }
            }
            Self::RestoreMtu(interface) => {
                bytes[1] = RESTORE_MTU;
                bytes[4..8].copy_from_slice(&interface.0.to_le_bytes());
            }
            Self::ForgetNeighbour(route) => put_route(&mut bytes, FORGET_NEIGHBOUR, route),
        }
        bytes
    }

    /// Decodes a request. Returns `None` for any bytes that [`encode`](Self::encode) does not
    /// produce.
    pub(crate) fn decode(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let request = match bytes[1] {
            ADD => Self::Add(route(bytes)?),
            REMOVE => Self::Remove(route(bytes)?),
            RESTORE => Self::Restore(InterfaceIndex(number(bytes, 4))),
            CLEAN => Self::Clean,
            SET_MTU => Self::SetMtu {
                interface: InterfaceIndex(number(bytes, 4)),
                mtu: number(bytes, 8),
                seconds: seconds(bytes)?,
            },
            RESTORE_MTU => Self::RestoreMtu(InterfaceIndex(number(bytes, 4))),
            FORGET_NEIGHBOUR => Self::ForgetNeighbour(route(bytes)?),
            _ => return None,
        };
        (request.encode() == *bytes).then_some(request)
    }
}

fn put_route(bytes: &mut [u8; REQUEST_LEN], operation: u8, route: &HostRoute) {
    bytes[1] = operation;
    bytes[2] = put_address(&mut bytes[12..28], Some(route.destination));
    bytes[3] = put_address(&mut bytes[28..44], route.prefer_source);
    bytes[4..8].copy_from_slice(&route.interface.0.to_le_bytes());
    bytes[8..12].copy_from_slice(&route.metric.get().to_le_bytes());
}

fn route(bytes: &[u8; REQUEST_LEN]) -> Option<HostRoute> {
    Some(HostRoute {
        destination: address(bytes[2], bytes, 12)??,
        interface: InterfaceIndex(number(bytes, 4)),
        prefer_source: address(bytes[3], bytes, 28)?,
        metric: NonZeroU32::new(number(bytes, 8))?,
    })
}

/// Reads the duration of an MTU change in seconds; `None` if it is zero or above
/// [`MAX_MTU_SECONDS`].
fn seconds(bytes: &[u8; REQUEST_LEN]) -> Option<u32> {
    Some(number(bytes, 12)).filter(|seconds| (1..=MAX_MTU_SECONDS).contains(seconds))
}

/// Encodes an address into its 16-byte message field, and returns its family: 4, 6, or 0 for
/// none.
fn put_address(field: &mut [u8], address: Option<IpAddr>) -> u8 {
    match address {
        None => 0,
        Some(IpAddr::V4(address)) => {
            field[..4].copy_from_slice(&address.octets());
            4
        }
        Some(IpAddr::V6(address)) => {
            field[..16].copy_from_slice(&address.octets());
            6
        }
    }
}

/// Decodes an address of `family` at `offset` of a message. Returns `None` for an unknown family,
/// and `Some(None)` for family 0, which means no address.
fn address(family: u8, bytes: &[u8], offset: usize) -> Option<Option<IpAddr>> {
    let field: [u8; 16] = *bytes.get(offset..)?.first_chunk()?;
    match family {
        0 => Some(None),
        4 => Some(Some(Ipv4Addr::from(*field.first_chunk()?).into())),
        6 => Some(Some(Ipv6Addr::from(field).into())),
        _ => None,
    }
}

fn number<const N: usize>(bytes: &[u8; N], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) detail: u32,
    pub(crate) interface: u32,
    pub(crate) address: Option<IpAddr>,
}

pub(crate) const ANSWER_LEN: usize = 28;

/// Status of an answer: success, or the type of the error.
///
/// The meaning of the answer's detail depends on it. `Done`: the number of routes added, removed or
/// present, an interface's original MTU, or 1 if an MTU was restored. `Occupied` and `Routed`: the
/// protocol number of the existing route. `Kernel`, `List` and `Ledger`: an errno. Otherwise zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Done = 0,
    NotPermitted = 1,
    Occupied = 2,
    HeldElsewhere = 3,
    TooMany = 4,
    NoInterface = 5,
    Kernel = 6,
    List = 7,
    Ledger = 8,
    Locked = 9,
    NotUnicast = 10,
    UnknownInterface = 11,
    Own = 12,
    Broadcast = 13,
    Gateway = 14,
    Resolver = 15,
    NotOnLink = 16,
    Routed = 17,
    Source = 18,
    Malformed = 19,
    NotACable = 20,
    Shared = 21,
    OutOfRange = 22,
    Ending = 23,
}

impl Status {
    /// All statuses in the order of their numbers in the protocol.
    const ALL: [Self; 24] = [
        Self::Done,
        Self::NotPermitted,
        Self::Occupied,
        Self::HeldElsewhere,
        Self::TooMany,
        Self::NoInterface,
        Self::Kernel,
        Self::List,
        Self::Ledger,
        Self::Locked,
        Self::NotUnicast,
        Self::UnknownInterface,
        Self::Own,
        Self::Broadcast,
        Self::Gateway,
        Self::Resolver,
        Self::NotOnLink,
        Self::Routed,
        Self::Source,
        Self::Malformed,
        Self::NotACable,
        Self::Shared,
        Self::OutOfRange,
        Self::Ending,
    ];
}

impl Answer {
    pub(crate) const MALFORMED: Self = Self::new(Status::Malformed);

    const fn new(status: Status) -> Self {
        Self {
            status,
            detail: 0,
            interface: 0,
            address: None,
        }
    }

    /// Encodes the result of a request as an answer.
    pub(crate) fn of<E: Into<Self>>(result: Result<u32, E>) -> Self {
        match result {
            Ok(detail) => Self::new(Status::Done).with_detail(detail),
            Err(error) => error.into(),
        }
    }

    fn with_detail(self, detail: u32) -> Self {
        Self { detail, ..self }
    }

    fn with_errno(self, source: &io::Error) -> Self {
        let errno = source.raw_os_error().map(u32::try_from);
        self.with_detail(errno.and_then(Result::ok).unwrap_or(0))
    }

    fn about(self, destination: IpAddr) -> Self {
        Self {
            address: Some(destination),
            ..self
        }
    }

    fn by(self, interface: InterfaceIndex) -> Self {
        Self {
            interface: interface.0,
            ..self
        }
    }

    pub(crate) fn encode(&self) -> [u8; ANSWER_LEN] {
        let mut bytes = [0; ANSWER_LEN];
        bytes[0] = VERSION;
        bytes[1] = self.status as u8;
        bytes[2] = put_address(&mut bytes[12..28], self.address);
        bytes[4..8].copy_from_slice(&self.detail.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.interface.to_le_bytes());
        bytes
    }

    /// Decodes an answer. Returns `None` for any bytes that [`encode`](Self::encode) does not
    /// produce.
    pub(crate) fn decode(bytes: &[u8; ANSWER_LEN]) -> Option<Self> {
        let answer = Self {
            status: *Status::ALL.get(usize::from(bytes[1]))?,
            detail: number(bytes, 4),
            interface: number(bytes, 8),
            address: address(bytes[2], bytes, 12)?,
        };
        (answer.encode() == *bytes).then_some(answer)
    }

    /// Converts the answer to a route request into the helper's result. `directory` is the helper's
    /// state directory, named in errors.
    pub(crate) fn into_result(
        self,
        request: &Request,
        directory: &Path,
    ) -> Result<u32, RouteError> {
        let destination = self.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let held = InterfaceIndex(self.interface);
        let interface = || name_of(held);
        let protocol = || protocol_name(u8::try_from(self.detail).unwrap_or(0));
        let source = || io::Error::from_raw_os_error(self.detail.cast_signed());
        let (wanted, metric) = match request {
            Request::Add(route) | Request::Remove(route) | Request::ForgetNeighbour(route) => {
                (route.interface, route.metric)
            }
            Request::Restore(interface) => (*interface, HostRoute::DEFAULT_METRIC),
            Request::Clean | Request::SetMtu { .. } | Request::RestoreMtu(_) => {
                (held, HostRoute::DEFAULT_METRIC)
            }
        };
        let path = || directory.to_owned();
        Err(match self.status {
            Status::Done => return Ok(self.detail),
            Status::NotPermitted => RouteError::NotPermitted { destination },
            Status::Occupied => RouteError::Occupied {
                destination,
                metric,
                protocol: protocol(),
            },
            Status::HeldElsewhere => RouteError::HeldElsewhere {
                destination,
                wanted,
                held,
            },
            Status::TooMany => RouteError::TooMany { destination },
            Status::NoInterface => RouteError::NoInterface {
                destination,
                interface: held,
            },
            Status::Kernel => RouteError::Kernel {
                destination,
                interface: held,
                source: source(),
            },
            Status::List => RouteError::List(source()),
            Status::Ledger => RouteError::Ledger {
                path: path(),
                source: source(),
            },
            Status::Locked => RouteError::Locked {
                path: path(),
                waited: LOCK_TIMEOUT,
            },
            Status::NotUnicast => Refusal::NotUnicast { destination }.into(),
            Status::UnknownInterface => Refusal::NoInterface {
                destination,
                interface: held,
            }
            .into(),
            Status::Own => Refusal::Own {
                destination,
                interface: interface(),
            }
            .into(),
            Status::Broadcast => Refusal::Broadcast { destination }.into(),
            Status::Gateway => Refusal::Gateway { destination }.into(),
            Status::Resolver => Refusal::Resolver { destination }.into(),
            Status::NotOnLink => Refusal::NotOnLink {
                destination,
                interface: interface(),
            }
            .into(),
            Status::Routed => Refusal::Routed {
                destination,
                protocol: protocol(),
            }
            .into(),
            Status::Source => Refusal::Source {
                destination,
                interface: interface(),
            }
            .into(),
            Status::Malformed => RouteError::Helper {
                source: not_understood(),
            },
            Status::NotACable | Status::Shared | Status::OutOfRange | Status::Ending => {
                RouteError::Helper {
                    source: not_an_answer(),
                }
            }
        })
    }

    /// Converts the answer to an MTU request into the helper's result. `directory` is the helper's
    /// state directory, named in errors.
    pub(crate) fn into_mtu_result(
        self,
        request: &Request,
        directory: &Path,
    ) -> Result<u32, MtuError> {
        let interface = InterfaceIndex(self.interface);
        let source = || io::Error::from_raw_os_error(self.detail.cast_signed());
        let path = || directory.to_owned();
        let mtu = if let Request::SetMtu { mtu, .. } = request {
            *mtu
        } else {
            0
        };
        Err(match self.status {
            Status::Done => return Ok(self.detail),
            Status::NotPermitted => MtuError::NotPermitted { interface },
            Status::NoInterface => MtuError::NoInterface { interface },
            Status::NotACable => MtuError::NotACable { interface },
            Status::Shared => MtuError::Shared { interface },
            Status::OutOfRange => MtuError::OutOfRange { interface, mtu },
            Status::HeldElsewhere => MtuError::HeldElsewhere { interface },
            Status::TooMany => MtuError::TooMany { interface },
            Status::Ending => MtuError::Ending { interface },
            Status::Kernel => MtuError::Kernel {
                interface,
                mtu,
                source: source(),
            },
            Status::List => MtuError::List(source()),
            Status::Ledger => MtuError::Ledger {
                path: path(),
                source: source(),
            },
            Status::Locked => MtuError::Locked {
                path: path(),
                waited: LOCK_TIMEOUT,
            },
            Status::Malformed => MtuError::Helper {
                source: not_understood(),
            },
            _ => MtuError::Helper {
                source: not_an_answer(),
            },
        })
    }
}

impl From<RouteError> for Answer {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::NotPermitted { destination } => {
                Self::new(Status::NotPermitted).about(destination)
            }
            RouteError::Occupied {
                destination,
                protocol,
                ..
            } => Self::new(Status::Occupied)
                .about(destination)
                .with_detail(protocol_number(&protocol).into()),
            RouteError::HeldElsewhere {
                destination, held, ..
            } => Self::new(Status::HeldElsewhere).about(destination).by(held),
            RouteError::TooMany { destination } => Self::new(Status::TooMany).about(destination),
            RouteError::NoInterface {
                destination,
                interface,
            } => Self::new(Status::NoInterface)
                .about(destination)
                .by(interface),
            RouteError::Kernel {
                destination,
                interface,
                source,
            } => Self::new(Status::Kernel)
                .about(destination)
                .by(interface)
                .with_errno(&source),
            RouteError::List(source) | RouteError::Helper { source } => {
                Self::new(Status::List).with_errno(&source)
            }
            RouteError::Ledger { source, .. } => Self::new(Status::Ledger).with_errno(&source),
            RouteError::Locked { .. } => Self::new(Status::Locked),
            RouteError::Refused(refusal) => refusal.into(),
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotUnicast { destination } => Self::new(Status::NotUnicast).about(destination),
            Refusal::NoInterface {
                destination,
                interface,
            } => Self::new(Status::UnknownInterface)
                .about(destination)
                .by(interface),
            Refusal::Own {
                destination,
                interface,
            } => Self::new(Status::Own)
                .about(destination)
                .by(index_of(interface)),
            Refusal::Broadcast { destination } => Self::new(Status::Broadcast).about(destination),
            Refusal::Gateway { destination } => Self::new(Status::Gateway).about(destination),
            Refusal::Resolver { destination } => Self::new(Status::Resolver).about(destination),
            Refusal::NotOnLink {
                destination,
                interface,
            } => Self::new(Status::NotOnLink)
                .about(destination)
                .by(index_of(interface)),
            Refusal::Routed {
                destination,
                protocol,
            } => Self::new(Status::Routed)
                .about(destination)
                .with_detail(protocol_number(&protocol).into()),
            Refusal::Source {
                destination,
                interface,
            } => Self::new(Status::Source)
                .about(destination)
                .by(index_of(interface)),
        }
    }
}

impl From<MtuError> for Answer {
    fn from(error: MtuError) -> Self {
        match error {
            MtuError::NotPermitted { interface } => Self::new(Status::NotPermitted).by(interface),
            MtuError::NoInterface { interface } => Self::new(Status::NoInterface).by(interface),
            MtuError::NotACable { interface } => Self::new(Status::NotACable).by(interface),
            MtuError::Shared { interface } => Self::new(Status::Shared).by(interface),
            MtuError::OutOfRange { interface, .. } => Self::new(Status::OutOfRange).by(interface),
            MtuError::HeldElsewhere { interface } => Self::new(Status::HeldElsewhere).by(interface),
            MtuError::TooMany { interface } => Self::new(Status::TooMany).by(interface),
            MtuError::Ending { interface } => Self::new(Status::Ending).by(interface),
            MtuError::Kernel {
                interface, source, ..
            } => Self::new(Status::Kernel).by(interface).with_errno(&source),
            MtuError::List(source) | MtuError::Helper { source } => {
                Self::new(Status::List).with_errno(&source)
            }
            MtuError::Ledger { source, .. } => Self::new(Status::Ledger).with_errno(&source),
            MtuError::Locked { .. } => Self::new(Status::Locked),
        }
    }
}

/// Returns the error for a helper that does not know the request, because its version is older.
fn not_understood() -> io::Error {
    io::Error::other("the helper does not know this program's requests")
}

fn not_an_answer() -> io::Error {
    io::Error::other("the helper answered another request")
}

/// Returns the index of the interface with this name. Returns zero, which is never a valid index,
/// if the interface no longer exists.
fn index_of(name: InterfaceName) -> InterfaceIndex {
    let all = interfaces().unwrap_or_default();
    all.iter()
        .find(|interface| interface.name == name)
        .map_or(InterfaceIndex(0), |interface| interface.index)
}

/// Returns the name of the interface with this index, or the index as text if the interface no
/// longer exists.
fn name_of(index: InterfaceIndex) -> InterfaceName {
    let all = interfaces().unwrap_or_default();
    let name = all
        .iter()
        .find(|interface| interface.index == index)
        .map(|interface| interface.name);
    name.unwrap_or_else(|| {
        index
            .to_string()
            .parse()
            .expect("at most ten digits are a valid name")
    })
}

const VERSION: u8 = 1;
const ADD: u8 = 1;
const REMOVE: u8 = 2;
const RESTORE: u8 = 3;
const CLEAN: u8 = 4;
const SET_MTU: u8 = 5;
const RESTORE_MTU: u8 = 6;
const FORGET_NEIGHBOUR: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> HostRoute {
        HostRoute {
            destination: "10.1.2.3".parse().unwrap(),
            interface: InterfaceIndex(0x0102_0304),
            prefer_source: None,
            metric: HostRoute::DEFAULT_METRIC,
        }
    }

    fn v6() -> HostRoute {
        HostRoute {
            destination: "fd00::2".parse().unwrap(),
            prefer_source: Some("fd00::1".parse().unwrap()),
            ..v4()
        }
    }

    #[test]
    fn requests_are_pinned_byte_for_byte() {
        let mut add = [0; REQUEST_LEN];
        add[..16].copy_from_slice(&[1, 1, 4, 0, 4, 3, 2, 1, 50, 0, 0, 0, 10, 1, 2, 3]);
        assert_eq!(Request::Add(v4()).encode(), add);

        let mut remove = [0; REQUEST_LEN];
        remove[..14].copy_from_slice(&[1, 2, 6, 6, 4, 3, 2, 1, 50, 0, 0, 0, 0xfd, 0]);
        (remove[27], remove[28], remove[43]) = (2, 0xfd, 1);
        assert_eq!(Request::Remove(v6()).encode(), remove);

        let mut restore = [0; REQUEST_LEN];
        restore[..8].copy_from_slice(&[1, 3, 0, 0, 7, 0, 0, 0]);
        assert_eq!(Request::Restore(InterfaceIndex(7)).encode(), restore);

        let mut forget = remove;
        forget[1] = 7;
        assert_eq!(Request::ForgetNeighbour(v6()).encode(), forget);

        let mut clean = [0; REQUEST_LEN];
        clean[..2].copy_from_slice(&[1, 4]);
        assert_eq!(Request::Clean.encode(), clean);
    }

    const SET: Request = Request::SetMtu {
        interface: InterfaceIndex(7),
        mtu: 9000,
        seconds: 60,
    };

    /// Returns at least one request of each variant.
    fn all() -> [Request; 8] {
        let (restore, restore_mtu) = (
            Request::Restore(InterfaceIndex(7)),
            Request::RestoreMtu(InterfaceIndex(7)),
        );
        let forget = Request::ForgetNeighbour(v4());
        [
            Request::Add(v4()),
            Request::Add(v6()),
            Request::Remove(v6()),
            forget,
            restore,
            Request::Clean,
            SET,
            restore_mtu,
        ]
    }

    #[test]
    fn requests_about_mtus_are_pinned_byte_for_byte() {
        let mut set = [0; REQUEST_LEN];
        set[..13].copy_from_slice(&[1, 5, 0, 0, 7, 0, 0, 0, 0x28, 0x23, 0, 0, 60]);
        assert_eq!(SET.encode(), set);
        for seconds in [0, MAX_MTU_SECONDS + 1] {
            set[12..16].copy_from_slice(&seconds.to_le_bytes());
            assert_eq!(Request::decode(&set), None, "{seconds} s");
        }
        let mut restore = [0; REQUEST_LEN];
        restore[..8].copy_from_slice(&[1, 6, 0, 0, 7, 0, 0, 0]);
        assert_eq!(Request::RestoreMtu(InterfaceIndex(7)).encode(), restore);
    }

    #[test]
    fn answers_are_pinned_byte_for_byte() {
        let answer = Answer::from(Refusal::Routed {
            destination: v4().destination,
            protocol: "static".to_owned(),
        });
        let mut bytes = [0; ANSWER_LEN];
        bytes[..16].copy_from_slice(&[1, 17, 4, 0, 4, 0, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3]);
        assert_eq!(answer.encode(), bytes);
        let done = Answer::of::<RouteError>(Ok(3)).encode();
        assert_eq!(done[..8], [1, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(done[8..], [0; 20]);
    }

    #[test]
    fn every_request_is_read_back() {
        for request in all() {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
    }

    /// Overwrites each byte of each request with each value; if the result decodes, it must encode
    /// to the same bytes.
    #[test]
    fn nothing_is_said_in_two_ways_and_nothing_panics() {
        // Miri is a thousand times slower.
        let step = if cfg!(miri) { 51 } else { 1 };
        let mut refused = 0;
        for request in all() {
            for position in 0..REQUEST_LEN {
                for value in (0..=u8::MAX).step_by(step) {
                    let mut bytes = request.encode();
                    bytes[position] = value;
                    match Request::decode(&bytes) {
                        Some(read) => assert_eq!(read.encode(), bytes),
                        None => refused += 1,
                    }
                }
            }
        }
        assert!(refused > 10_000 / step, "{refused}");
        let unused = |edit: fn(&mut [u8; REQUEST_LEN])| {
            let mut bytes = Request::Add(v4()).encode();
            edit(&mut bytes);
            Request::decode(&bytes)
        };
        assert_eq!(unused(|bytes| bytes[0] = 2), None, "another version");
        assert_eq!(
            unused(|bytes| bytes[16] = 1),
            None,
            "a fifth byte of an IPv4 address"
        );
        assert_eq!(unused(|bytes| bytes[8] = 0), None, "metric zero");
        assert_eq!(unused(|bytes| bytes[2] = 0), None, "no destination");
    }

    #[test]
    fn the_numbers_of_the_statuses_are_their_places() {
        for (number, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, number);
        }
        assert_eq!(Answer::decode(&[99; ANSWER_LEN]), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn an_error_says_the_same_on_both_sides() {
        let destination = v4().destination;
        let (lo, route) = (
            InterfaceIndex(1),
            Request::Add(HostRoute {
                interface: InterfaceIndex(1),
                ..v4()
            }),
        );
        let name: InterfaceName = "lo".parse().unwrap();
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        let errors = [
            RouteError::NotPermitted { destination },
            RouteError::Occupied {
                destination,
                metric: HostRoute::DEFAULT_METRIC,
                protocol: "bird".to_owned(),
            },
            RouteError::Occupied {
                destination,
                metric: HostRoute::DEFAULT_METRIC,
                protocol: "77".to_owned(),
            },
            RouteError::HeldElsewhere {
                destination,
                wanted: lo,
                held: InterfaceIndex(2),
            },
            RouteError::TooMany { destination },
            RouteError::NoInterface {
                destination,
                interface: lo,
            },
            RouteError::Kernel {
                destination,
                interface: lo,
                source: denied(),
            },
            RouteError::List(denied()),
            RouteError::Ledger {
                path: "/run/x".into(),
                source: denied(),
            },
            RouteError::Locked {
                path: "/run/x".into(),
                waited: LOCK_TIMEOUT,
            },
            Refusal::NotUnicast { destination }.into(),
            Refusal::NoInterface {
                destination,
                interface: lo,
            }
            .into(),
            Refusal::Own {
                destination,
                interface: name,
            }
            .into(),
            Refusal::Broadcast { destination }.into(),
            Refusal::Gateway { destination }.into(),
            Refusal::Resolver { destination }.into(),
            Refusal::NotOnLink {
                destination,
                interface: name,
            }
            .into(),
            Refusal::Routed {
                destination,
                protocol: "dhcp".to_owned(),
            }
            .into(),
            Refusal::Source {
                destination,
                interface: name,
            }
            .into(),
        ];
        for error in errors {
            let text = format!("{error} {error:?}");
            let answer = Answer::decode(&Answer::from(error).encode()).unwrap();
            let error = answer.into_result(&route, Path::new("/run/x")).unwrap_err();
            assert_eq!(format!("{error} {error:?}"), text);
        }
        assert_eq!(
            Answer::of::<RouteError>(Ok(5))
                .into_result(&Request::Clean, Path::new(""))
                .unwrap(),
            5
        );
    }
    #[test]
    fn an_error_about_an_mtu_says_the_same_on_both_sides() {
        let interface = InterfaceIndex(7);
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        let errors = [
            MtuError::NotPermitted { interface },
            MtuError::NoInterface { interface },
            MtuError::NotACable { interface },
            MtuError::Shared { interface },
            MtuError::OutOfRange {
                interface,
                mtu: 9000,
            },
            MtuError::HeldElsewhere { interface },
            MtuError::TooMany { interface },
            MtuError::Ending { interface },
            MtuError::Kernel {
                interface,
                mtu: 9000,
                source: denied(),
            },
            MtuError::List(denied()),
            MtuError::Ledger {
                path: "/run/x".into(),
                source: denied(),
            },
            MtuError::Locked {
                path: "/run/x".into(),
                waited: LOCK_TIMEOUT,
            },
        ];
        for error in errors {
            let text = format!("{error} {error:?}");
            let answer = Answer::decode(&Answer::from(error).encode()).unwrap();
            let error = answer
                .into_mtu_result(&SET, Path::new("/run/x"))
                .unwrap_err();
            assert_eq!(format!("{error} {error:?}"), text);
        }
        assert_eq!(
            Answer::of::<MtuError>(Ok(1500))
                .into_mtu_result(&SET, Path::new(""))
                .unwrap(),
            1500
        );
        // This status answers route requests only.
        let answer = Answer::new(Status::Gateway);
        assert!(matches!(
            answer.into_mtu_result(&SET, Path::new("")),
            Err(MtuError::Helper { .. })
        ));
    }
}

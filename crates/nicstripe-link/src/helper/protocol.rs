//! Protocol between nicstripe and its route helper: one request of 44 bytes, then one answer of 28.
//!
//! Integers are little-endian. Unused bytes are zero, and a message with a different value there is
//! rejected, so that each message has only one encoding.
//!
//! | offset | request | answer |
//! | --- | --- | --- |
//! | 0 | version, 1 | version, 1 |
//! | 1 | operation: 1 add, 2 remove, 3 restore, 4 clean, 5 set MTU, 6 restore MTU, 7 forget neighbour | status: 0 done, 19 request not understood, otherwise the number of an error: see `reported!` |
//! | 2 | family of the destination: 4, 6, or 0 for none | family of the address: 4, 6, or 0 for none |
//! | 3 | family of the source: 4, 6, or 0 for none | 0 |
//! | 4 | interface, u32 | detail, u32: see [`Reply`] |
//! | 8 | metric, or MTU, u32 | interface of the error, u32 |
//! | 12 | destination, 16 bytes; IPv4 uses the first four. With an MTU: its maximum duration in seconds, u32 | address of the error, 16 bytes |
//! | 28 | source, 16 bytes | |

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
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
    /// request restarts the timer.
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
    fn route(&self) -> Option<&HostRoute> {
        match self {
            Self::Add(route) | Self::Remove(route) | Self::ForgetNeighbour(route) => Some(route),
            _ => None,
        }
    }

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

/// Answer to a request: success, or an error by its number and fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// [`DONE`], [`NOT_UNDERSTOOD`] or the number of an error.
    pub(crate) status: u8,
    /// If done, the number of routes added, removed or present, an interface's original MTU, or 1
    /// if an MTU was restored. Of an error, the protocol number of the existing route or an errno,
    /// otherwise zero.
    pub(crate) detail: u32,
    pub(crate) interface: u32,
    pub(crate) address: Option<IpAddr>,
}

pub(crate) const ANSWER_LEN: usize = 28;

impl Reply {
    /// Encodes the result of a request as an answer.
    pub(crate) fn of<E: Reported>(result: Result<u32, E>) -> Self {
        match result {
            Ok(detail) => Self {
                detail,
                ..Self::default()
            },
            Err(error) => error.answer(),
        }
    }

    /// Returns the answer to a malformed request.
    pub(crate) fn not_understood() -> Self {
        Self {
            status: NOT_UNDERSTOOD,
            ..Self::default()
        }
    }

    pub(crate) fn encode(&self) -> [u8; ANSWER_LEN] {
        let mut bytes = [0; ANSWER_LEN];
        bytes[0] = VERSION;
        bytes[1] = self.status;
        bytes[2] = put_address(&mut bytes[12..28], self.address);
        bytes[4..8].copy_from_slice(&self.detail.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.interface.to_le_bytes());
        bytes
    }

    /// Decodes an answer. Returns `None` for any bytes that [`encode`](Self::encode) does not
    /// produce.
    pub(crate) fn decode(bytes: &[u8; ANSWER_LEN]) -> Option<Self> {
        let answer = Self {
            status: bytes[1],
            detail: number(bytes, 4),
            interface: number(bytes, 8),
            address: address(bytes[2], bytes, 12)?,
        };
        (answer.status <= LAST_STATUS && answer.encode() == *bytes).then_some(answer)
    }

    /// Converts the answer into the helper's result.
    pub(crate) fn into_result<E: Reported>(self, asked: &Asked<'_>) -> Result<u32, E> {
        let unusable = |text: &str| E::of_helper(io::Error::other(text));
        match self.status {
            DONE => Ok(self.detail),
            // The helper's version is older.
            NOT_UNDERSTOOD => Err(unusable("the helper does not know this program's requests")),
            _ => Err(E::read(&self, asked)
                .unwrap_or_else(|| unusable("the helper answered another request"))),
        }
    }
}

/// Request to the helper, and the helper's state directory.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request,
    pub(crate) directory: &'a Path,
}

impl Asked<'_> {
    fn metric(&self) -> NonZeroU32 {
        let route = self.request.route();
        route.map_or(HostRoute::DEFAULT_METRIC, |route| route.metric)
    }

    fn interface(&self) -> InterfaceIndex {
        match self.request {
            Request::Restore(interface) => *interface,
            request => request
                .route()
                .map_or(InterfaceIndex(0), |route| route.interface),
        }
    }

    fn mtu(&self) -> u32 {
        match self.request {
            Request::SetMtu { mtu, .. } => *mtu,
            _ => 0,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.to_owned()
    }

    /// Returns the time that the helper waited for the lock.
    fn waited(&self) -> Duration {
        LOCK_TIMEOUT
    }
}

/// Error of a request to the [`RouteHelper`](crate::RouteHelper), including a failure of the helper
/// itself.
pub trait HelperError: Sized + Send + 'static {
    /// Returns the error for a helper that gives no usable answer.
    fn of_helper(source: io::Error) -> Self;

    /// Returns true if the helper gave no usable answer.
    fn is_of_helper(&self) -> bool;
}

/// Error of a request, which the helper reports in an answer.
pub(crate) trait Reported: HelperError {
    fn answer(&self) -> Reply;

    /// Returns the error with the number and fields of an answer; `None` if this type has no such
    /// error.
    fn read(answer: &Reply, asked: &Asked<'_>) -> Option<Self>;
}

/// Implements [`Reported`] and [`HelperError`] from a table with the number of each error, its fields that an answer has,
/// those that the client knows itself, and its shape.
macro_rules! reported {
    ($error:ty: $($status:literal
        ($($field:ident),* $(; $($known:ident: $value:path),*)?) { $($shape:tt)* })*) => {
        impl Reported for $error {
            fn answer(&self) -> Reply {
                let mut answer = Reply::default();
                match self {
                    $($($shape)* => {
                        answer.status = $status;
                        $($field.write(&mut answer);)*
                        $($(let _ = $known;)*)?
                    })*
                }
                answer
            }

            fn read(answer: &Reply, asked: &Asked<'_>) -> Option<Self> {
                match answer.status {
                    $($status => {
                        $(let $field = Field::read(answer);)*
                        $($(let $known = $value(asked);)*)?
                        Some($($shape)*)
                    })*
                    _ => None,
                }
            }
        }

        impl HelperError for $error {
            fn of_helper(source: io::Error) -> Self {
                Self::Helper(source)
            }

            fn is_of_helper(&self) -> bool {
                matches!(self, Self::Helper { .. })
            }
        }
    };
}

reported! { RouteError:
    1 (destination) { Self::NotPermitted(destination) }
    2 (destination, protocol; metric: Asked::metric) { Self::Occupied { destination, metric, protocol } }
    3 (destination, held; wanted: Asked::interface) {
        Self::HeldElsewhere { destination, wanted, held }
    }
    4 (destination) { Self::TooMany(destination) }
    5 (destination, interface) { Self::NoInterface { destination, interface } }
    6 (destination, interface, source) { Self::Kernel { destination, interface, source } }
    7 (source) { Self::List(source) }
    8 (source; path: Asked::path) { Self::Ledger { path, source } }
    9 (; path: Asked::path, waited: Asked::waited) { Self::Locked { path, waited } }
    10 (destination) { Self::Refused(Refusal::NotUnicast(destination)) }
    11 (destination, interface) { Self::Refused(Refusal::NoInterface { destination, interface }) }
    12 (destination, interface) { Self::Refused(Refusal::Own { destination, interface }) }
    13 (destination) { Self::Refused(Refusal::Broadcast(destination)) }
    14 (destination) { Self::Refused(Refusal::Gateway(destination)) }
    15 (destination) { Self::Refused(Refusal::Resolver(destination)) }
    16 (destination, interface) { Self::Refused(Refusal::NotOnLink { destination, interface }) }
    17 (destination, protocol) { Self::Refused(Refusal::Routed { destination, protocol }) }
    18 (destination, interface) { Self::Refused(Refusal::Source { destination, interface }) }
    19 (source) { Self::Helper(source) }
}

reported! { MtuError:
    1 (interface) { Self::NotPermitted(interface) }
    3 (interface) { Self::HeldElsewhere(interface) }
    4 (interface) { Self::TooMany(interface) }
    5 (interface) { Self::NoInterface(interface) }
    6 (interface, source; mtu: Asked::mtu) { Self::Kernel { interface, mtu, source } }
    7 (source) { Self::List(source) }
    8 (source; path: Asked::path) { Self::Ledger { path, source } }
    9 (; path: Asked::path, waited: Asked::waited) { Self::Locked { path, waited } }
    19 (source) { Self::Helper(source) }
    20 (interface) { Self::NotACable(interface) }
    21 (interface) { Self::Shared(interface) }
    22 (interface; mtu: Asked::mtu) { Self::OutOfRange { interface, mtu } }
    23 (interface) { Self::Ending(interface) }
}

/// Field of an error that an answer has.
trait Field {
    fn write(&self, answer: &mut Reply);

    fn read(answer: &Reply) -> Self;
}

impl Field for IpAddr {
    fn write(&self, answer: &mut Reply) {
        answer.address = Some(*self);
    }

    fn read(answer: &Reply) -> Self {
        answer.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into())
    }
}

impl Field for InterfaceIndex {
    fn write(&self, answer: &mut Reply) {
        answer.interface = self.0;
    }

    fn read(answer: &Reply) -> Self {
        Self(answer.interface)
    }
}

impl Field for InterfaceName {
    fn write(&self, answer: &mut Reply) {
        index_of(*self).write(answer);
    }

    fn read(answer: &Reply) -> Self {
        name_of(InterfaceIndex(answer.interface))
    }
}

/// Protocol of an existing route.
impl Field for String {
    fn write(&self, answer: &mut Reply) {
        answer.detail = protocol_number(self).into();
    }

    fn read(answer: &Reply) -> Self {
        protocol_name(u8::try_from(answer.detail).unwrap_or(0))
    }
}

impl Field for io::Error {
    fn write(&self, answer: &mut Reply) {
        let errno = self.raw_os_error().map(u32::try_from);
        answer.detail = errno.and_then(Result::ok).unwrap_or(0);
    }

    fn read(answer: &Reply) -> Self {
        Self::from_raw_os_error(answer.detail.cast_signed())
    }
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
const DONE: u8 = 0;
const NOT_UNDERSTOOD: u8 = 19;
const LAST_STATUS: u8 = 23;
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
        let refusal = Refusal::Routed {
            destination: v4().destination,
            protocol: "static".to_owned(),
        };
        let answer = RouteError::from(refusal).answer();
        let mut bytes = [0; ANSWER_LEN];
        bytes[..16].copy_from_slice(&[1, 17, 4, 0, 4, 0, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3]);
        assert_eq!(answer.encode(), bytes);
        let done = Reply::of::<RouteError>(Ok(3)).encode();
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
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn every_number_is_an_error_and_no_other_is_read() {
        let asked = Asked {
            request: &Request::Clean,
            directory: Path::new(""),
        };
        for status in 1..=LAST_STATUS {
            let answer = Reply {
                status,
                ..Reply::default()
            };
            assert_eq!(Reply::decode(&answer.encode()), Some(answer));
            let route = RouteError::read(&answer, &asked).map(|error| error.answer());
            let mtu = MtuError::read(&answer, &asked).map(|error| error.answer());
            assert_eq!(route.or(mtu).unwrap().status, status);
        }
        let unknown = Reply {
            status: LAST_STATUS + 1,
            ..Reply::default()
        };
        assert_eq!(Reply::decode(&unknown.encode()), None);
        assert_eq!(Reply::decode(&[99; ANSWER_LEN]), None);
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
            RouteError::NotPermitted(destination),
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
            RouteError::TooMany(destination),
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
            Refusal::NotUnicast(destination).into(),
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
            Refusal::Broadcast(destination).into(),
            Refusal::Gateway(destination).into(),
            Refusal::Resolver(destination).into(),
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
            let answer = Reply::decode(&error.answer().encode()).unwrap();
            let error: RouteError = answer.into_result(&asked(&route)).unwrap_err();
            assert_eq!(format!("{error} {error:?}"), text);
        }
        let done = Reply::of::<RouteError>(Ok(5));
        assert_eq!(
            done.into_result::<RouteError>(&asked(&Request::Clean))
                .unwrap(),
            5
        );
    }

    fn asked(request: &Request) -> Asked<'_> {
        Asked {
            request,
            directory: Path::new("/run/x"),
        }
    }

    #[test]
    fn an_error_about_an_mtu_says_the_same_on_both_sides() {
        let interface = InterfaceIndex(7);
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        let errors = [
            MtuError::NotPermitted(interface),
            MtuError::NoInterface(interface),
            MtuError::NotACable(interface),
            MtuError::Shared(interface),
            MtuError::OutOfRange {
                interface,
                mtu: 9000,
            },
            MtuError::HeldElsewhere(interface),
            MtuError::TooMany(interface),
            MtuError::Ending(interface),
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
            let answer = Reply::decode(&error.answer().encode()).unwrap();
            let error: MtuError = answer.into_result(&asked(&SET)).unwrap_err();
            assert_eq!(format!("{error} {error:?}"), text);
        }
        // This status answers route requests only.
        let answer = Reply {
            status: 14,
            ..Reply::default()
        };
        assert!(matches!(
            answer.into_result(&asked(&SET)),
            Err(MtuError::Helper { .. })
        ));
    }
}

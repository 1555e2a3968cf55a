//! Netlink socket and message framing: builds requests, and parses messages and attributes.
//!
//! Formats: `include/uapi/linux/{netlink,rtnetlink,if_link,if_addr}.h`. All integers are in host
//! byte order. The parsers never panic, and accept messages with unknown parts. Malformed data ends
//! the iteration.
//!
//! A typed decoder would reject a whole message because a newer kernel changed one attribute, and
//! thereby hide an interface.
#![cfg(target_os = "linux")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    io::retry_on_intr,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType,
        netlink::{self, SocketAddrNetlink},
        sockopt::{Timeout, set_socket_timeout},
    },
};

/// Netlink socket that sends one request at a time and waits for the reply. The socket acts on the
/// network namespace in which it was opened, whichever thread uses it.
#[derive(Debug)]
pub struct Netlink {
    socket: NetlinkSocket,
    sequence: u32,
}

impl Netlink {
    /// Opens an rtnetlink socket, for links, addresses and routes.
    pub fn route() -> io::Result<Self> {
        Self::open(None)
    }

    /// Opens a generic netlink socket, for ethtool.
    pub fn generic() -> io::Result<Self> {
        Self::open(Some(netlink::GENERIC))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = NetlinkSocket::open(protocol, SocketFlags::CLOEXEC, 0)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Dumps all objects of the requested type. Returns the results of `parse` that are not `None`.
    ///
    /// Repeats the dump if the kernel marks it as interrupted by a change.
    pub fn dump<T>(
        &mut self,
        request: &Request,
        mut parse: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut parsed = Vec::new();
            let interrupted =
                self.exchange(request, NLM_F_DUMP, |message| parsed.extend(parse(message)))?;
            if !interrupted {
                return Ok(parsed);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the kernel's table changed during each attempt to read it",
        ))
    }

    /// Queries one object. Returns the result of `parse`.
    pub fn query<T>(
        &mut self,
        request: &Request,
        mut parse: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let mut parsed = None;
        self.exchange(request, NLM_F_ACK, |message| parsed = parse(message))?;
        Ok(parsed)
    }

    /// Sends a command and waits for the kernel's acknowledgement. Returns the kernel's error
    /// otherwise.
    pub fn command(&mut self, request: &Request, flags: u16) -> io::Result<()> {
        self.exchange(request, flags | NLM_F_ACK, |_| ()).map(drop)
    }

    /// Sends a request and passes each reply message to `on_message`. Returns true if a change
    /// interrupted the dump.
    fn exchange(
        &mut self,
        request: &Request,
        flags: u16,
        mut on_message: impl FnMut(&Message<'_>),
    ) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket
            .send(&request.encode(flags | NLM_F_REQUEST, self.sequence))?;
        let mut buffer = vec![0; BUFFER_LEN];
        let mut interrupted = false;
        loop {
            let datagram = self.socket.receive(&mut buffer).map_err(name_timeout)?;
            for message in Messages::new(datagram) {
                if message.sequence != self.sequence {
                    continue;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => return message.outcome().map(|()| interrupted),
                    NLMSG_NOOP => {}
                    _ => on_message(&message),
                }
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Netlink socket that sends encoded requests to the kernel, and discards datagrams from other
/// processes.
#[derive(Debug)]
pub struct NetlinkSocket(OwnedFd);

impl NetlinkSocket {
    /// Opens a socket and joins the multicast `groups` (one bit each, `1 << (RTNLGRP_* - 1)`). A
    /// `protocol` of `None` selects rtnetlink. Safe between fork and exec.
    pub fn open(protocol: Option<Protocol>, flags: SocketFlags, groups: u32) -> io::Result<Self> {
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self(socket))
    }

    /// Sends an encoded request with [`NLM_F_ACK`] and waits for the kernel's acknowledgement.
    /// Returns the kernel's error otherwise. Safe between fork and exec because it does not
    /// allocate.
    pub fn command(&self, request: &[u8]) -> io::Result<()> {
        self.send(request)?;
        let mut buffer = [0; ERROR_LEN];
        Messages::new(self.receive(&mut buffer)?)
            .find(|message| message.kind == NLMSG_ERROR)
            .ok_or(io::ErrorKind::InvalidData)?
            .outcome()
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        // A datagram without a destination goes to the kernel. Netlink accepts the whole datagram
        // or nothing.
        retry_on_intr(|| rustix::net::send(&self.0, datagram, SendFlags::empty()))?;
        Ok(())
    }

    /// Receives the next datagram from the kernel. Skips datagrams from other processes.
    ///
    /// # Errors
    ///
    /// Returns `ENOBUFS` if the kernel dropped multicast messages for this socket, and
    /// `InvalidData` if the datagram exceeds the buffer.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let len = loop {
            let (_, len, sender) =
                match rustix::net::recvfrom(&self.0, &mut *buffer, RecvFlags::TRUNC) {
                    Err(rustix::io::Errno::INTR) => continue,
                    received => received?,
                };
            let from_kernel = sender
                .and_then(|address| SocketAddrNetlink::try_from(address).ok())
                .is_some_and(|address| address.pid() == 0);
            if from_kernel {
                break len;
            }
        };
        let limit = buffer.len();
        buffer.get(..len).ok_or_else(|| {
            let text = format!("netlink datagram of {len} bytes exceeds the limit of {limit}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }
}

impl AsRawFd for NetlinkSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Netlink request under construction: header, fixed part, attributes.
#[derive(Clone)]
pub struct Request {
    bytes: Vec<u8>,
    kind: u16,
}

impl Request {
    /// Creates a request of type `kind` with its fixed part `body`. The length of `body` must be a
    /// multiple of four bytes.
    pub fn new(kind: u16, body: &[u8]) -> Self {
        debug_assert_eq!(body.len() % ALIGNMENT, 0);
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend_from_slice(body);
        Self { bytes, kind }
    }

    /// Appends an attribute of type `kind` to the request.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        push_attribute(&mut self.bytes, kind, value);
        self
    }

    /// Appends an attribute of type `kind` with an IP address to the request.
    pub fn address(self, kind: u16, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    /// Encodes the request as a datagram with the given header flags and sequence number.
    pub fn encode(&self, flags: u16, sequence: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let len = u32::try_from(bytes.len()).expect("a request is a few hundred bytes");
        bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }
}

/// Encodes an attribute, padded to four bytes.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_attribute(&mut bytes, kind, value);
    bytes
}

/// Appends an attribute to `bytes`, padded to four bytes.
pub fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(ATTRIBUTE_HEADER_LEN + value.len())
        .expect("these attributes are a few bytes");
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

/// Received netlink message: header fields and body.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Type of the message (`RTM_*`).
    pub kind: u16,
    /// Flags of the message (`NLM_F_*`).
    pub flags: u16,
    sequence: u32,
    /// Content of the message after its netlink header.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Splits the body into its fixed part of `len` bytes and the attributes after it; `None` if
    /// the body is shorter than `len`.
    pub fn split(&self, len: usize) -> Option<(&'a [u8], Attributes<'a>)> {
        let (fixed, rest) = self.body.split_at_checked(len)?;
        Some((fixed, Attributes::new(rest)))
    }

    /// Splits the body like [`split`](Self::split); `None` also if the message is of another type.
    pub fn split_if(&self, kind: u16, len: usize) -> Option<(&'a [u8], Attributes<'a>)> {
        self.split(len).filter(|_| self.kind == kind)
    }

    /// Returns the result in an error, acknowledgement or end-of-dump message. The message contains
    /// a negative errno, or zero for success.
    fn outcome(&self) -> io::Result<()> {
        match i32_at(self.body, 0).unwrap_or(0) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        }
    }
}

/// Iterator over the netlink messages of a datagram.
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Iterates over the messages of a datagram.
    pub fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = u32_at(self.0, 0)? as usize;
        let message = Message {
            kind: u16_at(self.0, 4)?,
            flags: u16_at(self.0, 6)?,
            sequence: u32_at(self.0, 8)?,
            body: self.0.get(HEADER_LEN..len)?,
        };
        self.0 = self
            .0
            .get(len.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        Some(message)
    }
}

/// Iterator over the kind and value of netlink attributes, in a message or nested in another
/// attribute. The flag bits of the kind are cleared.
#[derive(Clone, Copy)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Iterates over the attributes in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the value of the first attribute of this kind; `None` without one.
    pub fn find(self, kind: u16) -> Option<&'a [u8]> {
        { self }.find_map(|(found, value)| (found == kind).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & NLA_TYPE_MASK;
        let value = self.0.get(ATTRIBUTE_HEADER_LEN..len)?;
        self.0 = self
            .0
            .get(len.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        Some((kind, value))
    }
}

/// Converts the error of an expired receive timeout to `TimedOut`. The kernel reports a timeout as
/// `EAGAIN`, like a nonblocking socket without data.
fn name_timeout(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("the kernel did not answer within {ANSWER_TIMEOUT:?}"),
    )
}

/// Reads the byte at `offset`; `None` if `offset` is beyond the end.
pub fn u8_at(bytes: &[u8], offset: usize) -> Option<u8> {
    bytes.get(offset).copied()
}

/// Reads a 16-bit integer at `offset`; `None` if the integer extends beyond the end.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Reads a 32-bit integer at `offset`; `None` if the integer extends beyond the end.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Reads a 64-bit integer at `offset`; `None` if the integer extends beyond the end.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn i32_at(bytes: &[u8], offset: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Decodes a text attribute up to its NUL terminator. Replaces invalid UTF-8 by U+FFFD.
pub fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(until_nul(value)).into_owned()
}

/// Returns the bytes before the first NUL; all bytes if there is no NUL.
pub fn until_nul(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Decodes an IP address from an attribute of four or sixteen bytes; `None` for any other length.
pub fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(octets).into());
    }
    <[u8; 16]>::try_from(value)
        .ok()
        .map(|octets| Ipv6Addr::from(octets).into())
}

/// Timeout for a reply of the kernel (picked by eye). The kernel replies within the system call
/// unless another process holds the RTNL lock.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of attempts for a dump that changes keep interrupting (picked by eye; a single
/// retry is already rare).
const DUMP_ATTEMPTS: usize = 8;
/// Length of the buffer for one datagram, in bytes. The kernel fills at most 32 KiB of a dump
/// buffer (`netlink_dump`, net/netlink/af_netlink.c).
pub const BUFFER_LEN: usize = 65_536;

/// Length of the buffer for an acknowledgement, in bytes. The kernel's error message repeats the
/// request, which has a few hundred bytes.
const ERROR_LEN: usize = 2048;

const ALIGNMENT: usize = 4;
const HEADER_LEN: usize = 16;
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// Mask that selects an attribute's kind. The two upper bits flag "nested" and "network byte
/// order".
const NLA_TYPE_MASK: u16 = 0x3fff;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Header flag that marks a message to the kernel as a request.
pub const NLM_F_REQUEST: u16 = 0x001;
/// Request flag: the kernel acknowledges the request.
pub const NLM_F_ACK: u16 = 0x004;
const NLM_F_DUMP_INTR: u16 = 0x010;
const NLM_F_DUMP: u16 = 0x300;
/// Request flag: the request fails if the object exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// Request flag: the kernel creates the object if it is missing.
pub const NLM_F_CREATE: u16 = 0x400;
/// Request flag: the kernel replaces the object if it exists.
pub const NLM_F_REPLACE: u16 = 0x100;

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram() -> Vec<u8> {
        let request = Request::new(16, &[7; 16])
            .attribute(3, b"eth0\0")
            .attribute(4, &1500u32.to_ne_bytes());
        [request.encode(2, 9), request.encode(2, 10)].concat()
    }

    #[test]
    fn a_written_message_is_read_back() {
        let bytes = datagram();
        let messages: Vec<_> = Messages::new(&bytes).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!(
            (messages[1].kind, messages[1].flags, messages[1].sequence),
            (16, 2, 10)
        );
        let (fixed, attributes) = messages[1].split(16).unwrap();
        assert_eq!(fixed, [7; 16]);
        assert_eq!(attributes.find(3).map(text).as_deref(), Some("eth0"));
        assert_eq!(
            attributes.find(4).and_then(|value| u32_at(value, 0)),
            Some(1500)
        );
        assert_eq!(attributes.find(5), None);
    }

    #[test]
    fn the_nested_flag_is_not_part_of_the_kind() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 0x8000 | 18, &[1]);
        assert_eq!(Attributes::new(&bytes).find(18), Some(&[1][..]));
    }

    #[test]
    fn cut_and_mutated_input_never_panics() {
        let bytes = datagram();
        for cut in 0..bytes.len() {
            walk(&bytes[..cut]);
        }
        for position in 0..bytes.len() {
            for value in [0, 1, 3, 4, 15, 17, 0x7f, 0xff] {
                let mut mutated = bytes.clone();
                mutated[position] = value;
                walk(&mutated);
            }
        }
    }

    #[test]
    fn an_error_message_is_an_os_error_and_zero_an_acknowledgement() {
        let message = |code: i32| Request::new(NLMSG_ERROR, &code.to_ne_bytes()).encode(0, 1);
        let outcome = |bytes: &[u8]| Messages::new(bytes).next().unwrap().outcome();
        assert_eq!(
            outcome(&message(-1)).unwrap_err().raw_os_error(),
            Some(libc::EPERM)
        );
        assert_eq!(
            outcome(&message(i32::MIN)).unwrap_err().raw_os_error(),
            Some(i32::MAX)
        );
        assert!(outcome(&message(0)).is_ok());
    }

    /// Parses all messages and attributes, up to 1000 of each. Panics if a parser panics.
    fn walk(bytes: &[u8]) {
        for message in Messages::new(bytes).take(1000) {
            let _ = message
                .split(16)
                .map(|(_, attributes)| attributes.take(1000).count());
            let _ = message.outcome();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn the_kernel_answers_about_loopback_without_any_right() {
        let mut netlink = Netlink::route().unwrap();
        let link = |index: u32| {
            let mut header = [0; 16];
            header[4..8].copy_from_slice(&index.to_ne_bytes());
            Request::new(libc::RTM_GETLINK, &header)
        };
        let index = |message: &Message<'_>| u32_at(message.body, 4);
        for _ in 0..2 {
            let addresses = Request::new(libc::RTM_GETADDR, &[0; 8]);
            netlink.dump(&addresses, |_| Some(())).unwrap();
            assert_eq!(netlink.query(&link(1), index).unwrap(), Some(1));
        }
        let error = netlink.query(&link(0x7fff_fff0), index).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
        let refused = link(0x7fff_fff0).encode(NLM_F_REQUEST | NLM_F_ACK, 1);
        let error = netlink.socket.command(&refused).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
    }
}

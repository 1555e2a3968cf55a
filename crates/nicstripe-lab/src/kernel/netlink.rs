//! Synchronous requests on an rtnetlink socket.
//!
//! The kernel answers inside `send`, so a read never waits, and a lab needs neither tasks nor
//! threads. The messages come from [`message`](crate::kernel::message) and [`qdisc`](crate::kernel::qdisc).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rtnetlink::{
    packet_core::{
        NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
    },
    packet_route::{
        AddressFamily as RouteFamily, RouteNetlinkMessage, address::AddressMessage,
        link::LinkMessage,
    },
};
use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};

/// Socket for rtnetlink requests. It acts on the namespace in which it was opened, whichever thread
/// uses it.
///
/// Each request reads its whole answer before it returns, so the socket is empty between calls.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

#[expect(
    clippy::needless_pass_by_ref_mut,
    reason = "one request at a time: a second caller could take the first one's answer"
)]
impl Netlink {
    /// Opens a netlink socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: open()? })
    }

    /// Requests a change, and returns after the kernel has made or rejected it. Adds the flags
    /// REQUEST and ACK to `flags`.
    pub(crate) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Errno> {
        request(self.socket.as_fd(), &encode(message, flags | NLM_F_ACK))
    }

    pub(crate) fn link(&mut self, index: u32) -> io::Result<LinkMessage> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        send(
            &self.socket,
            &encode(RouteNetlinkMessage::GetLink(question), 0),
            SendFlags::empty(),
        )?;
        let mut buffer = vec![0; ANSWER_BYTES];
        let (len, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer[..len])
            .map_err(io::Error::other)?
            .payload
        {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    pub(crate) fn ipv6_addresses(&mut self) -> io::Result<Vec<AddressMessage>> {
        let mut question = AddressMessage::default();
        question.header.family = RouteFamily::Inet6;
        send(
            &self.socket,
            &encode(RouteNetlinkMessage::GetAddress(question), NLM_F_DUMP),
            SendFlags::empty(),
        )?;
        let mut addresses = Vec::new();
        let mut buffer = vec![0; ANSWER_BYTES];
        loop {
            let (len, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            if read_addresses(&buffer[..len], &mut addresses)? {
                // A kernel without IPv6 returns the addresses of all families it supports.
                addresses.retain(|address| address.header.family == RouteFamily::Inet6);
                return Ok(addresses);
            }
        }
    }
}

/// Appends the addresses in one part of a dump to `addresses`. Returns true if it was the last
/// part.
fn read_addresses(mut part: &[u8], addresses: &mut Vec<AddressMessage>) -> io::Result<bool> {
    while !part.is_empty() {
        let message_bytes = NetlinkBuffer::new_checked(part)
            .map_err(io::Error::other)?
            .length() as usize;
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(part)
            .map_err(io::Error::other)?
            .payload
        {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) => {
                addresses.push(address);
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
        part = part
            .get(message_bytes.next_multiple_of(NLMSG_ALIGNTO)..)
            .unwrap_or_default();
    }
    Ok(false)
}

pub(crate) fn encode(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Opens an rtnetlink socket; safe between fork and exec.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    // The default protocol is 0, NETLINK_ROUTE.
    socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends an encoded request that has the ACK flag, and reads its acknowledgement; safe between fork
/// and exec.
pub(crate) fn request(socket: BorrowedFd<'_>, request: &[u8]) -> Result<(), Errno> {
    send(socket, request, SendFlags::empty())?;
    // An acknowledgement has 20 bytes. An error appends the request, which may be truncated.
    let mut answer = [0; ACK_BYTES];
    recv(socket, &mut answer, RecvFlags::empty())?;
    match ack_code(&answer) {
        Some(0) => Ok(()),
        Some(code) => Err(errno(code.wrapping_neg())),
        None => Err(Errno::BADMSG),
    }
}

/// Converts an errno number; returns BADMSG for an invalid one. Allocates nothing.
pub(crate) fn errno(number: i32) -> Errno {
    Errno::from_io_error(&io::Error::from_raw_os_error(number)).unwrap_or(Errno::BADMSG)
}

/// Returns the code of an NLMSG_ERROR message, 0 or a negative errno; `None` for another type. The
/// code follows the header of 16 bytes, which has the type at offset 4 (`linux/netlink.h`).
fn ack_code(answer: &[u8; ACK_BYTES]) -> Option<i32> {
    let [_, _, _, _, t0, t1, .., c0, c1, c2, c3] = *answer;
    (u16::from_ne_bytes([t0, t1]) == NLMSG_ERROR).then(|| i32::from_ne_bytes([c0, c1, c2, c3]))
}

const NLMSG_ERROR: u16 = 2;
/// Alignment of the messages in a datagram, in bytes.
const NLMSG_ALIGNTO: usize = 4;
/// Length of the header and code of an NLMSG_ERROR message, in bytes.
const ACK_BYTES: usize = 20;
/// Length of the buffer for one part of a dump: 32 KiB, the kernel's maximum (`NLMSG_GOODSIZE` and
/// up).
const ANSWER_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_has_code_0_and_an_error_its_negative_errno() {
        let mut answer = [0; ACK_BYTES];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(ack_code(&answer), Some(0));
        answer[16..].copy_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(ack_code(&answer), Some(-17));
        answer[4] = 16;
        assert_eq!(ack_code(&answer), None);
    }

    #[test]
    fn a_number_that_is_no_error_is_a_bad_message() {
        assert_eq!(errno(17), Errno::EXIST);
        assert_eq!([0, -1, i32::MIN, i32::MAX].map(errno), [Errno::BADMSG; 4]);
    }

    #[test]
    fn the_kernel_answers_about_loopback_without_any_right() {
        let link = Netlink::open().unwrap().link(1).unwrap();
        assert_eq!(link.header.index, 1);
        let error = Netlink::open().unwrap().link(0x7fff_fff0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(19), "{error}"); // ENODEV
    }

    #[test]
    fn a_dump_leaves_nothing_behind_for_the_next_request() {
        let mut netlink = Netlink::open().unwrap();
        for _ in 0..2 {
            let addresses = netlink.ipv6_addresses().unwrap();
            assert!(
                addresses
                    .iter()
                    .all(|address| address.header.family == RouteFamily::Inet6),
                "{addresses:?}"
            );
            assert_eq!(netlink.link(1).unwrap().header.index, 1);
        }
    }

    #[test]
    fn a_dump_goes_on_until_it_says_that_it_is_done() {
        let mut address = AddressMessage::default();
        address.header.family = RouteFamily::Inet6;
        let one = encode(RouteNetlinkMessage::NewAddress(address), 0);
        let mut done = 20u32.to_ne_bytes().to_vec();
        done.extend(3u16.to_ne_bytes());
        done.resize(20, 0);
        let mut addresses = Vec::new();
        assert!(!read_addresses(&one.repeat(2), &mut addresses).unwrap());
        assert!(read_addresses(&[one.clone(), done].concat(), &mut addresses).unwrap());
        assert_eq!(addresses.len(), 3);
        read_addresses(&one[..one.len() - 1], &mut addresses).unwrap_err();
    }
}

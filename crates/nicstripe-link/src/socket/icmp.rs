//! ICMP errors that end a connection attempt, which the socket's error number alone does not tell
//! apart.
//!
//! A host that no one answers for and a filter that rejects the connection both give
//! `EHOSTUNREACH`; a closed port and a filter both give `ECONNREFUSED`. The message is in the
//! socket's error queue (`IP_RECVERR`, ip(7)), during a connection attempt since Linux 5.19.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    ptr,
};

use nicstripe_netlink::{ip, u16_at};

use super::{CONTROL_LEN, control_message, sockopt};

/// ICMP message by which a machine ended a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Address of the machine that sent the message, possibly an address of this machine.
    pub sender: IpAddr,
    /// Meaning of the message.
    pub meaning: IcmpMeaning,
}

/// Meaning of an [`IcmpError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IcmpMeaning {
    /// A filter or a policy forbids the connection.
    Prohibited,
    /// Port unreachable. A filter sent it: a host rejects TCP connections by a reset.
    PortUnreachable,
    /// Any other reason, such as an unreachable host.
    Other,
}

/// Turns the error queue of a socket that connects to `remote` on or off. Must be off once it is
/// connected: otherwise any ICMP error ends the connection.
///
/// # Errors
///
/// The kernel rejects the option.
pub fn queue_icmp_errors(socket: &impl AsFd, remote: SocketAddr, on: bool) -> io::Result<()> {
    let (level, option) = receive_errors(remote);
    sockopt::set_int(socket, level, option, on.into())
}

/// Returns the oldest ICMP error in the queue of a socket that failed to connect to `remote`;
/// `None` if there is none, as before Linux 5.19.
pub fn icmp_error(socket: &impl AsFd, remote: SocketAddr) -> Option<IcmpError> {
    // Aligned for the headers of control messages.
    let mut control = [0u64; CONTROL_LEN / 8];
    // SAFETY: `msghdr` is a C structure of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = ptr::null_mut();
    message.msg_control = control.as_mut_ptr().cast();
    // musl declares the length as `u32`, glibc as `usize`.
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the descriptor is open as long as `socket` is borrowed. `message` is live, without
    // name or data, and its control buffer has the length given and outlives the call.
    let received = unsafe {
        libc::recvmsg(
            socket.as_fd().as_raw_fd(),
            &raw mut message,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    if received < 0 {
        return None;
    }
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let length: usize = message.msg_controllen as _;
    let (level, option) = receive_errors(remote);
    parse(control_message(bytes.get(..length)?, level, option)?)
}

fn receive_errors(remote: SocketAddr) -> (libc::c_int, libc::c_int) {
    match remote {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    }
}

/// Parses a `struct sock_extended_err` and the sender's socket address after it.
fn parse(data: &[u8]) -> Option<IcmpError> {
    let (origin, kind, code) = (*data.get(4)?, *data.get(5)?, *data.get(6)?);
    let meaning = match (origin, kind, code) {
        // ICMP, RFC 1122, section 3.2.2.1, and RFC 1812, section 5.2.7.1
        (libc::SO_EE_ORIGIN_ICMP, 3, 9 | 10 | 13) => IcmpMeaning::Prohibited,
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) => IcmpMeaning::PortUnreachable,
        // ICMPv6, RFC 4443, section 3.1
        (libc::SO_EE_ORIGIN_ICMP6, 1, 1 | 5 | 6) => IcmpMeaning::Prohibited,
        (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => IcmpMeaning::PortUnreachable,
        (libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6, ..) => IcmpMeaning::Other,
        _ => return None,
    };
    let sender = data.get(EXTENDED_ERROR_LEN..)?;
    let address = match libc::c_int::from(u16_at(sender, 0)?) {
        libc::AF_INET => sender.get(4..8),
        libc::AF_INET6 => sender.get(8..24),
        _ => None,
    };
    Some(IcmpError {
        sender: ip(address?)?,
        meaning,
    })
}

/// Length of `struct sock_extended_err` in bytes: error number (u32), origin, type, code, padding,
/// info (u32), data (u32).
const EXTENDED_ERROR_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(origin: u8, kind: u8, code: u8, sender: &[u8]) -> Vec<u8> {
        let mut data = vec![0, 0, 0, 0, origin, kind, code, 0];
        data.resize(EXTENDED_ERROR_LEN, 0);
        data.extend_from_slice(sender);
        data
    }

    #[test]
    fn a_filter_is_told_apart_from_a_missing_host() {
        let mut v4 = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        v4.extend([0, 0, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut v6 = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        v6.extend([0; 6]);
        v6.extend("fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v6.extend([0; 4]);
        for (origin, kind, code, from, sender, meaning) in [
            (2, 3, 13, &v4, "10.0.0.2", IcmpMeaning::Prohibited),
            (2, 3, 10, &v4, "10.0.0.2", IcmpMeaning::Prohibited),
            (2, 3, 3, &v4, "10.0.0.2", IcmpMeaning::PortUnreachable),
            (2, 3, 1, &v4, "10.0.0.2", IcmpMeaning::Other),
            (3, 1, 1, &v6, "fd00::2", IcmpMeaning::Prohibited),
            (3, 1, 4, &v6, "fd00::2", IcmpMeaning::PortUnreachable),
            (3, 1, 3, &v6, "fd00::2", IcmpMeaning::Other),
        ] {
            let sender = sender.parse().unwrap();
            assert_eq!(
                parse(&message(origin, kind, code, from)),
                Some(IcmpError { sender, meaning }),
                "{origin} {kind} {code}"
            );
        }
        assert_eq!(parse(&message(1, 0, 0, &v4)), None, "a local error");
        assert_eq!(parse(&message(2, 3, 13, &v4[..6])), None, "cut short");
    }
}

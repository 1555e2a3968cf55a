//! Messages, events and faults of a simulated network.

use std::{fmt, time::Duration};

use crate::link::{End, LinkId};

/// Payload that a link carries.
pub trait Message {
    /// Returns the size of the message on the wire in bytes.
    fn wire_len(&self) -> u64;
}

impl Message for Vec<u8> {
    fn wire_len(&self) -> u64 {
        self.len() as u64
    }
}

/// Event of a simulated network, returned by [`next`](Iterator::next).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<M> {
    /// The connection is open at this end, which may now send. The connecting end receives this
    /// event first, the other end before any data.
    Opened {
        /// Link of the connection.
        link: LinkId,
        /// End at which the connection is open.
        end: End,
    },
    /// A message was delivered.
    Delivered {
        /// Link that carried the message.
        link: LinkId,
        /// Receiving end.
        to: End,
        /// The delivered message.
        message: M,
    },
    /// The send buffer has space again after it was full.
    Writable {
        /// Link of the connection.
        link: LinkId,
        /// End whose send buffer has space.
        end: End,
    },
    /// The connection, or the attempt to connect, has ended at this end. No more of the
    /// connection's data arrives.
    Closed {
        /// Link of the connection.
        link: LinkId,
        /// End at which the connection has ended.
        end: End,
        /// Reason for the end of the connection.
        reason: CloseReason,
    },
}

/// Reason why a connection, or an attempt to connect, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The link lost its carrier.
    CarrierLost,
    /// The other end closed the connection. All data that the other end had sent was delivered.
    PeerClosed,
    /// The other end opened a new connection over the same link.
    Replaced,
    /// The link had no carrier when the connection was attempted.
    NoCarrier,
}

/// Change to a link, applied immediately or at a [scheduled](crate::Network::schedule) time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Loss of the carrier; see [`Network::cut`](crate::Network::cut).
    Cut(LinkId),
    /// Loss of all data from one end; see [`Network::silence`](crate::Network::silence).
    Silence(LinkId, End),
    /// End of a cut or silence; see [`Network::heal`](crate::Network::heal).
    Heal(LinkId),
    /// New rate, in bits per second, of data from one end; see
    /// [`Network::set_rate`](crate::Network::set_rate).
    SetRate(LinkId, End, u64),
}

/// Error of [`Network::offer`](crate::Network::offer). Contains the message that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused<M> {
    /// The send buffer is full. [`Event::Writable`] follows, unless the connection ends first.
    Full(M),
    /// No connection is open at the sending end.
    NotOpen(M),
}

impl<M> fmt::Display for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full(_) => "send buffer is full",
            Refused::NotOpen(_) => "no connection is open at this end",
        })
    }
}

impl<M: fmt::Debug> std::error::Error for Refused<M> {}

/// Direction of a link, identified by the end that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) link: LinkId,
    pub(crate) from: End,
}

/// Internal event scheduled for a future time.
#[derive(Debug)]
pub(crate) enum Due {
    /// The last bit of the current message leaves the sender.
    Sent(Route),
    /// The oldest message in flight arrives at the receiver.
    Arrives(Route),
    /// An acknowledgement of `bytes` arrives at the sender.
    Acknowledged {
        route: Route,
        generation: u64,
        bytes: u64,
    },
    /// TCP retransmits the data that an ended silence dropped.
    Resumes(Route),
    /// The handshake completes at the connecting end, which may now send.
    HandshakeDone(LinkId),
    /// A connection ends at `end` without a message, because the link lost its carrier or another
    /// connection replaced it.
    Closes {
        link: LinkId,
        end: End,
        generation: u64,
        reason: CloseReason,
    },
    Fault(Fault),
}

/// Returns the time of TCP's next retransmission at or after `now`, in a silence that began at
/// `since`.
///
/// The first retransmission is due `first_timeout` after `since`. The interval then doubles, up to
/// [`LONGEST_TIMEOUT`] (RFC 6298, section 5.5).
pub(crate) fn next_retransmission(
    since: Duration,
    first_timeout: Duration,
    now: Duration,
) -> Duration {
    let mut timeout = first_timeout;
    let mut at = since.saturating_add(timeout);
    while at < now {
        timeout = timeout.saturating_mul(2).min(LONGEST_TIMEOUT);
        at = at.saturating_add(timeout);
    }
    at
}

/// Timeout of the first retransmission of data (`TCP_RTO_MIN` of Linux).
pub(crate) const FIRST_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum interval between two retransmissions (`TCP_RTO_MAX` of Linux).
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_back_off_by_doubling_up_to_two_minutes() {
        let ms = Duration::from_millis;
        let next = |now| next_retransmission(ms(1000), FIRST_TIMEOUT, ms(now));
        assert_eq!(
            [1000, 1200, 1201, 1601, 2401, 4001].map(next),
            [1200, 1200, 1600, 2400, 4000, 7200].map(ms)
        );
        // 200 ms × 1023 after the silence began, the next interval would be 204.8 s.
        let last = 1000 + 200 * 1023;
        assert_eq!(next(last + 1), ms(last + 120_000));
        assert_eq!(next(last + 120_001), ms(last + 240_000));
    }
}

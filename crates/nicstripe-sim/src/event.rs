//! Messages on the network, and its events.

use std::{fmt, time::Duration};

use crate::link::{End, LinkId};

/// Payload of a link.
pub trait Message {
    /// Returns its size on the wire in bytes.
    fn wire_len(&self) -> u64;
}

impl Message for Vec<u8> {
    fn wire_len(&self) -> u64 {
        self.len() as u64
    }
}

/// Event of a network, from [`next`](Iterator::next).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<M> {
    /// A connection is open at this end, which may send. The connecting end gets it first; the
    /// other one before any data.
    Opened {
        /// The link.
        link: LinkId,
        /// The end that may send.
        end: End,
    },
    /// A message arrived.
    Delivered {
        /// The link.
        link: LinkId,
        /// The receiving end.
        to: End,
        /// The message.
        message: M,
    },
    /// The send buffer was full and has room.
    Writable {
        /// The link.
        link: LinkId,
        /// The end that may send.
        end: End,
    },
    /// A connection, or an attempt, has ended at this end; no more data comes from it.
    Closed {
        /// The link.
        link: LinkId,
        /// The end that is notified.
        end: End,
        /// The reason.
        reason: CloseReason,
    },
    /// A timer has expired.
    Timer {
        /// The token given to [`set_timer`](crate::Network::set_timer).
        token: u64,
    },
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The link was cut.
    CarrierLost,
    /// The other end closed; all of its data was delivered before.
    PeerClosed,
    /// The other end opened a new connection over the link.
    Replaced,
    /// The link had no carrier during the attempt.
    NoCarrier,
}

/// A change to a link, made at once or at a [scheduled](crate::Network::schedule) time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// See [`Network::cut`](crate::Network::cut).
    Cut(LinkId),
    /// See [`Network::silence`](crate::Network::silence).
    Silence(LinkId, End),
    /// See [`Network::heal`](crate::Network::heal).
    Heal(LinkId),
    /// See [`Network::set_rate`](crate::Network::set_rate).
    SetRate(LinkId, End, u64),
}

/// A message that [`Network::offer`](crate::Network::offer) refused, returned to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused<M> {
    /// The send buffer is full; [`Event::Writable`] follows, unless the connection ends first.
    Full(M),
    /// No connection is open at this end.
    NotOpen(M),
}

impl<M> Refused<M> {
    /// Returns the message.
    pub fn into_message(self) -> M {
        match self {
            Refused::Full(message) | Refused::NotOpen(message) => message,
        }
    }
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

/// One direction of a link: the data that `from` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) link: LinkId,
    pub(crate) from: End,
}

/// Kind of an entry on the agenda.
#[derive(Debug)]
pub(crate) enum Due {
    /// The last bit of the current message has left.
    Sent(Route),
    /// The oldest message in flight arrives.
    Arrives(Route),
    /// An acknowledgement reaches the sender.
    Acknowledged {
        route: Route,
        generation: u64,
        bytes: u64,
    },
    /// TCP retransmits after a silence.
    Resumes(Route),
    /// The connecting end may send.
    HandshakeDone(LinkId),
    /// An end learns of the end of a connection other than through a message.
    Closes {
        link: LinkId,
        end: End,
        generation: u64,
        reason: CloseReason,
    },
    Timer(u64),
    Fault(Fault),
}

/// Returns the time of TCP's next retransmission, at or after `now`, in a silence since `since`.
///
/// The first comes after `first_timeout`. The interval then doubles, up to [`LONGEST_TIMEOUT`] (RFC
/// 6298, section 5.5).
pub(crate) fn next_retransmission(
    since: Duration,
    first_timeout: Duration,
    now: Duration,
) -> Duration {
    if first_timeout.is_zero() {
        return now;
    }
    let mut timeout = first_timeout.min(LONGEST_TIMEOUT);
    let mut at = since.saturating_add(timeout);
    while at < now {
        timeout = timeout.saturating_mul(2).min(LONGEST_TIMEOUT);
        at = at.saturating_add(timeout);
    }
    at
}

/// `TCP_RTO_MAX` of Linux.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_back_off_by_doubling() {
        let ms = Duration::from_millis;
        let next = |now| next_retransmission(ms(1000), ms(200), ms(now));
        assert_eq!(
            [1000, 1200, 1201, 1601, 2401, 4001].map(next),
            [1200, 1200, 1600, 2400, 4000, 7200].map(ms)
        );
        assert_eq!(
            next_retransmission(ms(1000), Duration::ZERO, ms(1001)),
            ms(1001)
        );
    }

    #[test]
    fn retransmissions_are_at_most_two_minutes_apart() {
        let secs = Duration::from_secs;
        assert_eq!(
            next_retransmission(secs(0), secs(100), secs(101)),
            secs(220)
        );
        assert_eq!(
            next_retransmission(secs(0), secs(100), secs(221)),
            secs(340)
        );
    }
}

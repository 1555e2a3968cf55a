//! Links of a simulated network, their two ends and their configuration.

use std::{fmt, ops, time::Duration};

/// One of the two ends of every link of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// First of the two ends.
    A,
    /// Second of the two ends.
    B,
}

impl End {
    /// Both ends in order, for iteration.
    pub const BOTH: [End; 2] = [End::A, End::B];

    /// Returns the opposite end.
    pub const fn other(self) -> End {
        match self {
            End::A => End::B,
            End::B => End::A,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PerEnd<T>([T; 2]);

impl<T> PerEnd<T> {
    pub(crate) fn new(mut of: impl FnMut(End) -> T) -> PerEnd<T> {
        PerEnd(End::BOTH.map(&mut of))
    }
}

impl<T> ops::Index<End> for PerEnd<T> {
    type Output = T;

    fn index(&self, end: End) -> &T {
        &self.0[end as usize]
    }
}

impl<T> ops::IndexMut<End> for PerEnd<T> {
    fn index_mut(&mut self, end: End) -> &mut T {
        &mut self.0[end as usize]
    }
}

/// Identifier of a link in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) usize);

impl LinkId {
    /// Returns the index of the link, for use in arrays. Indexes start at 0, in the order of
    /// creation.
    pub const fn index(self) -> usize {
        self.0
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// Configuration of a simulated link.
///
/// | property | default | reason |
/// | --- | --- | --- |
/// | jitter | none | |
/// | send buffer | 128 KiB | a usual `TCP_NOTSENT_LOWAT` |
/// | window | 4 MiB | the largest automatic send buffer of Linux (`net.ipv4.tcp_wmem`) |
/// | handshake | 2 round trips | TCP and TLS 1.3 |
#[derive(Clone, Debug)]
pub struct LinkConfig {
    pub(crate) rate: PerEnd<u64>,
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    pub(crate) send_buffer: u64,
    pub(crate) window: u64,
    pub(crate) handshake_round_trips: u32,
}

impl LinkConfig {
    /// Creates a configuration with the same rate and one-way propagation delay in both directions.
    ///
    /// A direction with rate 0 transmits nothing.
    pub fn new(rate_bits_per_second: u64, delay: Duration) -> LinkConfig {
        LinkConfig {
            rate: PerEnd::new(|_| rate_bits_per_second),
            delay,
            jitter: Duration::ZERO,
            send_buffer: 128 * 1024,
            window: 4 * 1024 * 1024,
            handshake_round_trips: 2,
        }
    }

    /// Sets the jitter: the maximum random delay of a message, added to the propagation delay.
    pub fn jitter(mut self, most: Duration) -> LinkConfig {
        self.jitter = most;
        self
    }

    /// Sets the size of each end's send buffer in bytes.
    ///
    /// The buffer accepts a message while it holds fewer bytes than its size, so the last message
    /// may exceed the size. 0 counts as 1: one message at a time.
    pub fn send_buffer(mut self, bytes: u64) -> LinkConfig {
        self.send_buffer = bytes.max(1);
        self
    }

    /// Sets the send window in bytes, which limits the unacknowledged data of each direction.
    ///
    /// A message larger than the window is sent once no other message is in flight.
    pub fn window(mut self, bytes: u64) -> LinkConfig {
        self.window = bytes;
        self
    }

    /// Sets the number of round trips until the connecting end may send. The other end may send one
    /// propagation delay later.
    pub fn handshake_round_trips(mut self, count: u32) -> LinkConfig {
        self.handshake_round_trips = count;
        self
    }

    pub(crate) fn handshake(&self) -> Duration {
        self.delay
            .saturating_mul(2)
            .saturating_mul(self.handshake_round_trips)
    }
}

/// Time after a [`cut`](crate::Network::cut) until both ends detect the loss of the carrier (median of
/// 20 on Linux 6.18 with veth: 2.3 ms).
pub(crate) const CARRIER_DETECTION: Duration = Duration::from_millis(3);

/// Counters of the data that one end has sent on a link; see
/// [`Network::traffic`](crate::Network::traffic).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes accepted for sending, over all connections of the link.
    pub accepted_bytes: u64,
    /// Bytes delivered to the other end, over all connections of the link. The other accepted bytes
    /// are unsent, in flight or lost.
    pub delivered_bytes: u64,
    /// Bytes in the send buffer of the latest connection.
    pub unsent_bytes: u64,
    /// Bytes of the latest connection that have left the send buffer and are not yet acknowledged.
    pub unacknowledged_bytes: u64,
}

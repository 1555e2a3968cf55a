//! Simulated network of many links between two ends, in virtual time and with a seed.
//!
//! For tests of protocols that use several cables at once. A network has two ends, [`End::A`] and
//! [`End::B`], and any number of links between them. Each link has at most one connection, which
//! behaves like TCP over a shaped cable: reliable, in order, paced by the link's rate, delayed, and
//! with a bounded send buffer. Links can be cut, silenced, slowed down and healed under traffic. A
//! minute of traffic takes milliseconds, and equal seeds give equal traces.
//!
//! The crate is independent of the content of the traffic: a [`Message`] has only a length. The
//! crate uses no sockets, threads or clocks.
//!
//! # Use
//!
//! Add links, [`connect`](Network::connect) them, then take [events](Event) one by one and respond
//! with calls on the [`Network`]. Time advances only in [`next`](Iterator::next) and
//! [`next_until`](Network::next_until), from event to event. Time starts at zero. A protocol that
//! needs an `Instant` adds [`now`](Network::now) to a fixed instant.
//!
//! ```
//! use std::time::Duration;
//! use nicstripe_sim::{CloseReason, End, Event, Fault, LinkConfig, Network};
//!
//! let ms = Duration::from_millis;
//! let mut net = Network::new(7);
//! // 1 Gbit/s, 1 ms each way; the cable is pulled out in the 50th millisecond.
//! let link = net.add_link(LinkConfig::new(1_000_000_000, ms(1)));
//! net.schedule(ms(50), Fault::Cut(link));
//! net.connect(link, End::A);
//!
//! let mut received = 0;
//! while let Some(event) = net.next() {
//!     match event {
//!         Event::Opened { end: End::A, .. } | Event::Writable { end: End::A, .. } => {
//!             while net.is_writable(link, End::A) {
//!                 net.offer(link, End::A, vec![0; 65_536])?;
//!             }
//!         }
//!         Event::Delivered { to: End::B, message, .. } => received += message.len(),
//!         Event::Closed { reason, .. } => assert_eq!(reason, CloseReason::CarrierLost),
//!         _ => {}
//!     }
//! }
//! // Two round trips to open, 1 ms to arrive: 45 ms at 125 kB/ms, less the message in flight.
//! assert!((5_500_000..=5_625_000).contains(&received));
//! # Ok::<(), nicstripe_sim::Refused<Vec<u8>>>(())
//! ```
//!
//! # What is modelled
//!
//! - **Rate**: messages leave one after the other at the rate of their direction. The caller must
//!   include framing below the message in [`Message::wire_len`].
//! - **Delay and jitter**: a message arrives after the delay and a random part of the jitter,
//!   counted from its last bit. Messages never arrive out of order.
//! - **Send buffer**: bytes that were accepted and have not left. The buffer accepts messages while
//!   it holds fewer bytes than its size, like a socket with `TCP_NOTSENT_LOWAT`. Otherwise,
//!   [`Network::offer`] rejects messages until [`Event::Writable`].
//! - **Window**: bytes that have left and are not acknowledged. Acknowledgements take the delay of
//!   the other direction, but no part of its rate. A silent direction therefore also stops the
//!   other one once the window is full.
//! - **Cut**: the carrier is lost. All data on the link is lost, and both ends receive
//!   [`Event::Closed`] after the carrier detection time.
//! - **Silence**: the bytes of one direction are dropped without notice. After
//!   [`heal`](Network::heal), they arrive with TCP's next retransmission. The retransmission timer
//!   doubles while no acknowledgement arrives, so that the stall after a long silence outlasts the
//!   silence itself. A new connection has no such delay, which is why protocols open one.
//!
//! Not modelled: loss of single packets and congestion control (use jitter and rates instead), and
//! several connections on one link.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod agenda;
mod event;
mod link;
mod network;
mod pipe;
mod rng;

pub use self::{
    event::{CloseReason, Event, Fault, Message, Refused},
    link::{End, LinkConfig, LinkId, Traffic},
    network::Network,
    rng::Rng,
};

//! Request that opens the tunnel multiplexer.

use minicbor::{Decode, Encode};

use crate::session::TransferId;

/// Body of [`crate::Message::OpenTunnels`]: the two transfers that carry the batches of
/// [`crate::tunnel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OpenTunnels {
    /// Transfer from the client to the daemon; counts as offered.
    #[n(0)]
    pub up: TransferId,
    /// Transfer from the daemon to the client; counts as requested. Its number is greater than
    /// `up`.
    #[n(1)]
    pub down: TransferId,
}

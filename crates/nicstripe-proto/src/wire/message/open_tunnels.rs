//! Client's request to open the tunnel multiplexer.

use minicbor::{Decode, Encode};

use crate::id::TransferId;

/// Client's request to open the tunnel multiplexer. Contains the two transfers that carry the
/// batches of [`crate::tunnel`]. Body of [`crate::Message::OpenTunnels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OpenTunnels {
    /// ID of the transfer from the client to the daemon. This transfer needs no separate offer.
    #[n(0)]
    pub up: TransferId,
    /// ID of the transfer from the daemon to the client, greater than `up`. This transfer needs no
    /// separate request.
    #[n(1)]
    pub down: TransferId,
}

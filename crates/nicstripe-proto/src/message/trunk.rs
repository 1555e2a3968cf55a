//! What a client asks for tunnels.

use minicbor::{Decode, Encode};

use crate::session::TransferId;

/// Body of [`crate::Message::Trunk`]: two transfers that carry the parcels of [`crate::tunnel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Trunk {
    /// The one from the client, which is as good as offered.
    #[n(0)]
    pub up: TransferId,
    /// The one to the client, as good as asked for; greater than the other.
    #[n(1)]
    pub down: TransferId,
}

//! Proof that both ends derived the same secret on the same connection.

use std::fmt;

use crate::discovery::Key;

/// End of an invitation's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// End that connects and knows the code from its user.
    Joiner,
    /// End that shows the code and accepts the connection.
    Inviter,
}

impl Side {
    /// Returns the other end.
    pub fn other(self) -> Self {
        match self {
            Self::Joiner => Self::Inviter,
            Self::Inviter => Self::Joiner,
        }
    }
}

/// Keys of both ends, and the connection between them.
#[derive(Clone, Copy, Debug)]
pub struct Parties {
    /// Public key that the joiner proved in TLS.
    pub joiner: Key,
    /// Public key that the inviter proved in TLS.
    pub inviter: Key,
    /// Secret of the TLS connection from its exporter. It differs at the two ends if a third party
    /// terminates TLS between them.
    pub binding: [u8; 32],
}

/// MAC by which one end proves the secret of the PAKE, both keys and the connection.
#[derive(Clone, Copy)]
pub struct Confirmation(blake3::Hash);

impl Confirmation {
    /// Computes the confirmation of `side` from the secret of the PAKE.
    pub fn of(side: Side, secret: &[u8], parties: &Parties) -> Self {
        let key = blake3::derive_key(CONTEXT, secret);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(&[side as u8 + 1]);
        hasher.update(&parties.joiner);
        hasher.update(&parties.inviter);
        hasher.update(&parties.binding);
        Self(hasher.finalize())
    }

    /// Returns the bytes to send.
    pub fn bytes(&self) -> [u8; 32] {
        *self.0.as_bytes()
    }

    /// Returns true if the peer sent this confirmation. Takes the same time for any `received`.
    pub fn is(&self, received: &[u8; 32]) -> bool {
        // blake3 compares hashes in constant time.
        self.0 == blake3::Hash::from_bytes(*received)
    }
}

impl fmt::Debug for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Confirmation")
    }
}

/// Context of the key that confirmations are made with (BLAKE3, `derive_key`).
const CONTEXT: &str = "nicstripe invitation, version 1, confirmation";

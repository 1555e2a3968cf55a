//! Rights of a peer, from its line in the peers file.

use crate::trust::{Peer, PeerOptions, Peers, PublicKey};

/// Rights of a trusted key, as given by its line in the peers file.
///
/// Created only from such a line. There is no default: a key without a line has no rights and no
/// session.
#[derive(Debug, Clone)]
pub(crate) struct Rights(Peer);

impl Rights {
    pub(super) fn of(peers: &Peers, key: &PublicKey) -> Option<Self> {
        peers.find(key).cloned().map(Self)
    }

    pub(super) fn key(&self) -> PublicKey {
        self.0.key
    }

    /// Returns the peer's name in the peers file, or the fingerprint of its key if it has none.
    pub(super) fn name(&self) -> String {
        self.0
            .name
            .as_ref()
            .map_or_else(|| self.0.key.fingerprint(), |name| name.as_str().to_owned())
    }

    pub(super) fn options(&self) -> &PeerOptions {
        &self.0.options
    }

    /// Returns the reason why a session with these rights must end under the list `peers`; `None`
    /// if it may continue.
    pub(super) fn loss(&self, peers: &Peers) -> Option<&'static str> {
        match peers.find(&self.0.key) {
            None => Some("its key was removed from the list of peers"),
            Some(peer) if !peer.options.include(&self.0.options) => {
                Some("its line in the list of peers was restricted")
            }
            Some(_) => None,
        }
    }
}

//! Rights of a key: those of its line in the peers file, or what another peer has admitted it to.

use std::sync::Arc;

use super::grants::{Grant, GrantedNames};
use crate::trust::{Peer, PeerOptions, Peers, PublicKey};

/// Rights of a trusted key.
///
/// Created only from its line in the peers file, or from the grant of a peer that has one. There is no
/// default: any other key has no rights and no session.
#[derive(Debug, Clone)]
pub(crate) struct Rights {
    peer: Peer,
    grant: Option<Grant>,
}

impl Rights {
    pub(super) fn of(peers: &Peers, key: &PublicKey) -> Option<Self> {
        let peer = peers.find(key).cloned()?;
        let grant = None;
        Some(Self { peer, grant })
    }

    /// Returns the rights of an admitted key.
    pub(super) fn admitted(key: PublicKey, grant: Grant) -> Self {
        Self {
            peer: Peer {
                key,
                name: None,
                options: grant.options.clone(),
            },
            grant: Some(grant),
        }
    }

    pub(super) fn key(&self) -> PublicKey {
        self.peer.key
    }

    /// Returns the key whose share of the daemon's resources a session uses: for an admitted key, that of
    /// the peer that has admitted it, which would otherwise get another share with each.
    pub(super) fn owner(&self) -> PublicKey {
        self.grant.as_ref().map_or(self.peer.key, |grant| grant.by)
    }

    /// Returns the names that are all the key may read; `None` for a key with a line.
    pub(super) fn only(&self) -> Option<&Arc<GrantedNames>> {
        self.grant.as_ref().map(|grant| &grant.names)
    }

    /// Returns the peer's name in the peers file, or the fingerprint of its key if it has none.
    pub(super) fn name(&self) -> String {
        self.peer.name.as_ref().map_or_else(
            || self.peer.key.fingerprint(),
            |name| name.as_str().to_owned(),
        )
    }

    pub(super) fn options(&self) -> &PeerOptions {
        &self.peer.options
    }

    /// Returns the reason why a session with these rights must end under the list `peers`; `None`
    /// if it may continue.
    pub(super) fn loss(&self, peers: &Peers) -> Option<&'static str> {
        if let Some(only) = self.only() {
            return only
                .is_over()
                .then_some("the peer that has admitted it is gone");
        }
        match peers.find(&self.peer.key) {
            None => Some("its key was removed from the list of peers"),
            Some(peer) if !peer.options.include(&self.peer.options) => {
                Some("its line in the list of peers was restricted")
            }
            Some(_) => None,
        }
    }
}

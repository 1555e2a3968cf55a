//! Tunnel multiplexer of a daemon's session, for the targets that the peer's line permits
//! (`dial=`, `listen=`).

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::served_peer::ServedPeer;
use crate::{
    file::FileError,
    session::{
        SessionHandle,
        kind::{
            Opened,
            tunnel::{TunnelSink, TunnelSource},
        },
    },
    tunnel::{Dialer, FreeUp, Listeners, TunnelMux},
};

#[derive(Debug, Default)]
pub(super) struct Tunnels(Mutex<Multiplexer>);

/// The multiplexer of a session, which has at most one at a time.
#[derive(Debug, Default)]
struct Multiplexer {
    running: Weak<TunnelMux>,
    /// Multiplexer whose second direction has not begun.
    half: Option<Arc<TunnelMux>>,
}

impl Tunnels {
    /// Begins a multiplexer, whose targets are checked for each tunnel.
    pub(super) fn receive(
        &self,
        peer: &Arc<ServedPeer>,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        let mut multiplexer = self.0.lock();
        let running = multiplexer.running.upgrade();
        if running.is_some_and(|mux| !mux.has_ended()) {
            return Err(exists());
        }
        let options = peer.rights.options();
        let resolver = peer.shared.resolver.of(peer.key());
        let listeners = Listeners::new(
            options.listen.clone(),
            peer.files(),
            free_up(peer.clone(), session),
        );
        let dialer = Dialer::new(
            peer.rights.name(),
            options.dial.clone(),
            peer.files(),
            resolver,
            listeners,
        );
        let mux = TunnelMux::new(Some(Arc::new(dialer)));
        multiplexer.running = Arc::downgrade(&mux);
        multiplexer.half = Some(mux.clone());
        let peer = peer.rights.name();
        let sink = TunnelSink {
            mux,
            peer,
            is_offered: false,
        };
        Ok((Box::new(sink), Vec::new()))
    }

    /// Begins the direction to the client of the multiplexer that has just begun.
    pub(super) fn send(&self) -> Result<Opened, FileError> {
        let mux = self.0.lock().half.take().ok_or_else(exists)?;
        let request = None;
        Ok((Box::new(TunnelSource { mux, request }), Vec::new()))
    }
}

/// Returns the function that ends earlier sessions of this peer without a connection, which may
/// still listen.
fn free_up(peer: Arc<ServedPeer>, session: SessionHandle) -> FreeUp {
    Box::new(move || {
        let (peer, session) = (peer.clone(), session.clone());
        Box::pin(async move { peer.end_earlier_sessions(&session).await })
    })
}

fn exists() -> FileError {
    FileError::refused("open", "tunnels", "tunnel multiplexer exists already")
}

//! Tunnel multiplexer of a daemon's session, for the targets that the peer's line permits
//! (`dial=`, `listen=`).

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use nicstripe_proto::FailCode;
use tokio::time::timeout;

use super::service::Service;
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

/// The multiplexer of a session, which has at most one at a time.
#[derive(Debug, Default)]
pub(super) struct Multiplexer {
    running: Weak<TunnelMux>,
    /// Multiplexer whose second direction has not begun.
    half: Option<Arc<TunnelMux>>,
}

impl Service {
    /// Begins a multiplexer, whose targets are checked for each tunnel.
    pub(super) fn receive_tunnels(
        self: &Arc<Self>,
        session: SessionHandle,
    ) -> Result<Opened, FileError> {
        let mut tunnels = self.tunnels.lock();
        let running = tunnels.running.upgrade();
        if running.is_some_and(|mux| !mux.has_ended()) {
            return Err(exists());
        }
        let resolver = self.shared.resolver.of(*self.key.as_bytes());
        let listeners = Listeners::new(self.listen.clone(), self.files(), self.free_up(session));
        let dialer = Dialer::new(
            self.peer.clone(),
            self.dial.clone(),
            self.files(),
            resolver,
            listeners,
        );
        let mux = TunnelMux::new(Some(Arc::new(dialer)));
        tunnels.running = Arc::downgrade(&mux);
        tunnels.half = Some(mux.clone());
        let peer = self.peer.clone();
        let sink = TunnelSink {
            mux,
            peer,
            is_offered: false,
        };
        Ok((Box::new(sink), Vec::new()))
    }

    /// Returns the function that ends earlier sessions of this peer without a connection, which may
    /// still listen.
    fn free_up(self: &Arc<Self>, session: SessionHandle) -> FreeUp {
        let service = Arc::downgrade(self);
        Box::new(move || {
            let (service, session) = (service.clone(), session.clone());
            Box::pin(async move {
                let Some(service) = service.upgrade() else {
                    return false;
                };
                let earlier = service.shared.evict_idle_for(&session, &service.key).await;
                let ended = async {
                    for session in &earlier {
                        session.ended.cancelled().await;
                    }
                };
                let _ = timeout(END_TIMEOUT, ended).await;
                !earlier.is_empty()
            })
        })
    }

    /// Begins the direction to the client of the multiplexer that has just begun.
    pub(super) fn send_tunnels(&self) -> Result<Opened, FileError> {
        let mux = self.tunnels.lock().half.take().ok_or_else(exists)?;
        let request = None;
        Ok((Box::new(TunnelSource { mux, request }), Vec::new()))
    }
}

fn exists() -> FileError {
    let cause = io::Error::other("tunnel multiplexer exists already");
    FileError::new("open", "tunnels", cause).with_code(FailCode::Refused)
}

/// Maximum wait for the end of an earlier session.
const END_TIMEOUT: Duration = Duration::from_secs(5);

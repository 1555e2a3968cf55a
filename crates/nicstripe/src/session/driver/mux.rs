//! Tunnel multiplexer of a session: carried by two transfers, one per direction, which end with it.

use std::{io, sync::Arc};

use nicstripe_proto::{FailCode, TransferId, message::OpenTunnels as Asked, session::failure};

use super::Driver;
use crate::{file::FileError, report::error::Error, tunnel::TunnelMux};

/// Tunnel multiplexer of a session, and the two transfers that carry it.
#[derive(Debug)]
pub(super) struct MuxEnds {
    transfers: [TransferId; 2],
    mux: Arc<TunnelMux>,
}

impl MuxEnds {
    pub(super) fn end(self) {
        self.mux.end();
    }
}

impl Driver {
    /// Client: requests a multiplexer from the daemon. Ends `mux` if the session already has one.
    pub(super) fn open_mux(&mut self, request: Asked, mux: Arc<TunnelMux>) {
        if self.mux.is_some() {
            return mux.end();
        }
        self.await_mux(request.up, request.down, &mux);
        self.mux = Some(MuxEnds {
            transfers: [request.up, request.down],
            mux,
        });
        self.session.open_tunnels(request);
    }

    /// Daemon: accepts the client's multiplexer. The targets are checked for each tunnel.
    pub(super) fn on_tunnels_requested(&mut self, request: Asked) {
        let Some(service) = &self.config.service else {
            return;
        };
        if self.mux.is_some() {
            return [request.up, request.down]
                .into_iter()
                .for_each(|transfer| self.refuse(transfer, "tunnel multiplexer exists already"));
        }
        let dialer = service.dialer(self.config.host.clone());
        let mux = TunnelMux::new(Some(Arc::new(dialer)));
        self.mux = Some(MuxEnds {
            transfers: [request.up, request.down],
            mux: mux.clone(),
        });
        self.serve_mux(request.down, request.up, &mux);
    }

    /// Reports consumed batches to the peer. Ends the multiplexer if the peer violated the tunnel
    /// protocol or ended a transfer.
    pub(super) fn poll_mux(&mut self, transfer: TransferId) {
        let Some(ends) = self
            .mux
            .as_ref()
            .filter(|ends| ends.transfers.contains(&transfer))
        else {
            return;
        };
        let status = ends.mux.status();
        let has_ended = ends.mux.has_ended();
        if status.taken > 0 {
            self.session.taken(transfer, status.taken);
        }
        if let Some(breach) = status.breach {
            tracing::warn!(peer = self.config.host, error = %breach, "tunnels end");
            self.end_mux(FailCode::Protocol, &breach.to_string());
        } else if has_ended {
            self.end_mux(FailCode::Protocol, "peer ended the tunnel multiplexer");
        }
    }

    /// Ends the multiplexer if one of its two transfers has ended.
    pub(super) fn forget_mux(&mut self, transfer: TransferId) {
        if self
            .mux
            .as_ref()
            .is_some_and(|ends| ends.transfers.contains(&transfer))
        {
            self.end_mux(
                FailCode::Cancelled,
                "other direction of the tunnel multiplexer has ended",
            );
        }
    }

    fn end_mux(&mut self, code: FailCode, why: &str) {
        let Some(ends) = self.mux.take() else { return };
        let transfers = ends.transfers;
        ends.end();
        for transfer in transfers {
            self.session.fail(failure(transfer, code, why, false));
            let error = FileError::new("carry", "tunnels", io::Error::other(why.to_owned()))
                .with_code(code);
            self.end_transfer(transfer, Err(Error::File(error)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe_proto::TransferId;
    use tokio::{sync::mpsc, time::timeout};

    use crate::{
        file::BufferPool,
        report::error::Error,
        session::endpoint::retransmit::{ChunkSender, SendWindow},
        tunnel::TunnelMux,
    };

    #[tokio::test]
    async fn a_waiter_for_a_mux_hears_that_its_chunks_have_no_sender_left() {
        let mux = TunnelMux::new(None);
        let (inputs, _session) = mpsc::channel(1);
        let pump = tokio::spawn(mux.clone().pump(ChunkSender::new(
            TransferId(1),
            inputs,
            BufferPool::default(),
            SendWindow::new(1),
        )));
        let waiting = tokio::spawn(async move { mux.open("peer", "127.0.0.1:1").await });
        tokio::task::yield_now().await;
        // Simulates a panic in it.
        pump.abort();
        let opened = timeout(Duration::from_secs(5), waiting)
            .await
            .unwrap()
            .unwrap();
        assert!(matches!(opened, Err(Error::Ended { .. })), "{opened:?}");
    }
}

//! Tunnel multiplexer: batches of records in both directions until the session ends. Two transfers
//! carry them, and the end of one ends the other.

use std::{io, sync::Arc};

use nicstripe_proto::{FailCode, Offer, frame::MAX_PAYLOAD, message::OpenTunnels};

use super::{
    Kind, Scope, check_batches,
    retransmit::{ChunkSender, Produced, RETRANSMIT_CHUNKS},
    stream::in_order,
};
use crate::{
    file::{ChunkBuffer, FileError},
    report::{error::Error, metrics::TransferDirection},
    session::inbox::{Input, Said},
    tunnel::TunnelMux,
};

/// Source of the batches that the tunnel multiplexer sends. Dropping it ends the multiplexer.
#[derive(Debug)]
pub(crate) struct TunnelSource {
    pub(crate) mux: Arc<TunnelMux>,
    /// Client: request for the multiplexer. Begins the transfers in both directions.
    pub(crate) request: Option<OpenTunnels>,
}

impl Kind for TunnelSource {
    fn direction(&self) -> TransferDirection {
        TransferDirection::Send
    }

    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        report_end(&self.mux, at);
        match self.request.take() {
            Some(request) => at.session.open_tunnels(request),
            None => at.offer_batches(),
        }
        Ok(())
    }

    fn on_accepted(&mut self, _memory: Option<u64>, at: &mut Scope<'_>) -> Result<(), Error> {
        let chunks = at.stream(RETRANSMIT_CHUNKS);
        tokio::spawn(pump(self.mux.clone(), chunks));
        Ok(())
    }
}

/// Sends the batches of a multiplexer until the session or the multiplexer ends. Sends a batch as
/// soon as there is data. Data that arrives while the send window is full enlarges the next batch.
async fn pump(mux: Arc<TunnelMux>, mut chunks: ChunkSender) {
    let _sending = mux.begin_sending(chunks.in_flight());
    while mux.is_due().await
        && let Some(permit) = chunks.acquire().await
    {
        let mut buffer = chunks.buffer();
        let len = mux.fill(buffer.bytes_mut(MAX_PAYLOAD));
        buffer.bytes_mut(len);
        if len == 0 {
            continue;
        }
        let Some(value) = chunks.hash(&buffer, false) else {
            return;
        };
        if !chunks.send_with(permit, buffer, value, false).await {
            return;
        }
    }
}

/// Ends a transfer once the multiplexer has ended.
fn report_end(mux: &Arc<TunnelMux>, at: &Scope<'_>) {
    let (mux, inputs, transfer) = (mux.clone(), at.jobs.inputs(), at.transfer);
    tokio::spawn(async move {
        let ended = match mux.ended().await {
            Some(breach) => ended(FailCode::Protocol, breach),
            None => ended(
                FailCode::Cancelled,
                "other direction of the tunnel multiplexer has ended",
            ),
        };
        let said = Said::Produced(Produced::Failed(ended));
        let _ = inputs.send(Input::Said { transfer, said }).await;
    });
}

/// Sink of the batches that the tunnel multiplexer receives. Dropping it ends the multiplexer.
#[derive(Debug)]
pub(crate) struct TunnelSink {
    pub(crate) mux: Arc<TunnelMux>,
    pub(crate) peer: String,
    /// Client: true, since the daemon offers the batches.
    pub(crate) is_offered: bool,
}

impl TunnelSink {
    /// Ends both transfers with a violation of the protocol.
    fn fail(&self, breach: String) -> Result<(), Error> {
        self.mux.end_with(breach.clone());
        Err(ended(FailCode::Protocol, breach).into())
    }
}

impl Kind for TunnelSink {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        report_end(&self.mux, at);
        if !self.is_offered {
            at.accept(in_order());
        }
        Ok(())
    }

    fn on_offered(&mut self, offer: &Offer, at: &mut Scope<'_>) -> Result<(), Error> {
        check_batches(offer, true)?;
        at.accept(in_order());
        Ok(())
    }

    /// Fails if the peer violates the tunnel protocol.
    fn take(&mut self, chunk: ChunkBuffer, at: &mut Scope<'_>) -> Result<(), Error> {
        if let Err(breach) = self.mux.take_in(chunk.bytes()) {
            tracing::warn!(peer = self.peer, error = %breach, "tunnels end");
            return self.fail(breach.to_string());
        }
        at.session.taken(at.transfer, 1);
        Ok(())
    }

    /// Another process of the peer may need what this daemon listens at.
    fn ends_with_peer(&self) -> bool {
        self.mux.is_listening()
    }

    /// The transfer must last as long as the session.
    fn on_end(&mut self) -> Result<(), Error> {
        self.fail("peer ended the tunnel multiplexer".into())
    }
}

fn ended(code: FailCode, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FileError {
    FileError::new("carry", "tunnels", io::Error::other(why)).with_code(code)
}

impl Drop for TunnelSource {
    fn drop(&mut self) {
        self.mux.end();
    }
}

impl Drop for TunnelSink {
    fn drop(&mut self) {
        self.mux.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe_proto::TransferId;
    use tokio::{sync::mpsc, time::timeout};

    use super::{super::retransmit::stream, pump};
    use crate::{
        file::{BufferPool, IoPool},
        report::error::Error,
        session::{handle::SessionHandle, jobs::Jobs},
        tunnel::TunnelMux,
    };

    #[tokio::test]
    async fn a_waiter_for_a_mux_hears_that_its_chunks_have_no_sender_left() {
        let mux = TunnelMux::new(None);
        let (inputs, _session) = mpsc::channel(1);
        let handle = SessionHandle::new(inputs, Default::default());
        let jobs = Jobs::new(
            IoPool::start().unwrap(),
            BufferPool::default(),
            true,
            &handle,
        );
        let (chunks, _buffer) = stream(TransferId(1), 1, &jobs);
        let pump = tokio::spawn(pump(mux.clone(), chunks));
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

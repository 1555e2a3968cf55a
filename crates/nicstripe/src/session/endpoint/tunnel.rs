//! Tunnel multiplexer as source and sink: batches of records in both directions until the session
//! ends.

use std::{io, sync::Arc};

use nicstripe_proto::{Acceptance, frame::MAX_PAYLOAD, message::OfferKind};

use super::{
    Scope, Sink, Source, offer_batches,
    retransmit::{ChunkSender, RETRANSMIT_CHUNKS, RetransmitBuffer, stream},
    stream::in_order,
};
use crate::{file::ChunkBuffer, tunnel::TunnelMux};

/// Source of the batches that the tunnel multiplexer sends.
#[derive(Debug)]
pub(crate) struct TunnelSource(pub(crate) Arc<TunnelMux>);

impl Source for TunnelSource {
    /// Offers the batches to the client, which has requested the multiplexer.
    fn announce(&mut self, at: &mut Scope<'_>) {
        offer_batches(at);
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Option<RetransmitBuffer>> {
        let (chunks, buffer) = stream(at.transfer, RETRANSMIT_CHUNKS, at.jobs);
        tokio::spawn(pump(self.0.clone(), chunks));
        Ok(Some(buffer))
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

/// Sink of the batches that the tunnel multiplexer receives.
#[derive(Debug)]
pub(crate) struct TunnelSink(pub(crate) Arc<TunnelMux>);

impl Sink for TunnelSink {
    fn takes(&self, kind: Option<OfferKind>) -> bool {
        kind == Some(OfferKind::Batches)
    }

    fn start(&mut self, _at: &mut Scope<'_>) -> io::Result<Acceptance> {
        Ok(in_order())
    }

    fn take(&mut self, chunk: ChunkBuffer) {
        self.0.take_in(chunk.bytes());
    }

    /// Ends the multiplexer. The session reports the end as a violation, since the transfer must
    /// last as long as the session.
    fn end(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe_proto::TransferId;
    use tokio::{sync::mpsc, time::timeout};
    use tokio_util::task::TaskTracker;

    use super::{pump, stream};
    use crate::{
        file::{BufferPool, IoPool},
        report::error::Error,
        session::input::Jobs,
        tunnel::TunnelMux,
    };

    #[tokio::test]
    async fn a_waiter_for_a_mux_hears_that_its_chunks_have_no_sender_left() {
        let mux = TunnelMux::new(None);
        let (inputs, _session) = mpsc::channel(1);
        let jobs = Jobs {
            pool: IoPool::start().unwrap(),
            buffers: BufferPool::default(),
            inputs,
            threads: TaskTracker::new(),
            is_stopped: Default::default(),
        };
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

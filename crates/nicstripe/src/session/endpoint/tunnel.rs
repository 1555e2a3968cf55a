//! Tunnel multiplexer as source and sink: batches of records in both directions until the session
//! ends.

use std::{io, sync::Arc};

use nicstripe_proto::{Acceptance, message::OfferKind};

use super::{
    Scope, Sink, Source, offer_batches,
    retransmit::{RETRANSMIT_CHUNKS, RetransmitBuffer, stream},
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
        tokio::spawn(self.0.clone().pump(chunks));
        Ok(Some(buffer))
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

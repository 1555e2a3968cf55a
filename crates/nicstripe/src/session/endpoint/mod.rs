//! Sources and sinks of transfers: one file for each kind.
//!
//! The session moves chunks through the traits [`Source`] and [`Sink`], without knowing the kind. It
//! knows trees and tunnels only where they begin, end or have messages of their own. A source is
//! either read at any offset, like a [`file`], or streams its chunks through a [`retransmit`]
//! buffer. A sink is either a target that is written at any offset, or takes its chunks in order,
//! like a [`stream`].

pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod object;
pub(crate) mod pipe;
pub(super) mod retransmit;
pub(crate) mod stream;
pub(crate) mod tree;
pub(super) mod tunnel;

use std::{fmt, io, sync::Arc};

use nicstripe_proto::{
    Acceptance, ChunkSize, Offer, Session, SourceIdentity, Subtree, TransferId,
    message::{EntryRef, Get, OfferKind},
};
use tokio::sync::mpsc;

use self::{retransmit::RetransmitBuffer, tree::Trees};
use super::input::Jobs;
use crate::{
    file::{self as files, ChunkBuffer},
    report::event::Event,
    storage::Target,
};

/// Context that the session passes to the source or sink of one transfer.
pub(crate) struct Scope<'a> {
    pub(super) transfer: TransferId,
    pub(super) session: &'a mut Session,
    pub(super) trees: &'a mut Trees,
    pub(super) jobs: &'a Jobs,
    /// Channel for events to the transfer's owner; `None` in a daemon.
    pub(super) events: Option<mpsc::Sender<Event>>,
    /// Memory in bytes that the peer has announced for the entries of a tree; `None` if it has
    /// announced none.
    pub(super) memory: Option<u64>,
}

/// Source of one transfer, from the request to the end of the transfer.
pub(crate) trait Source: fmt::Debug + Send {
    /// Announces the data to the peer. A source that must be opened first reports
    /// [`Input::SourceOpened`](super::input::Input) with the source that replaces it.
    fn announce(&mut self, at: &mut Scope<'_>);

    /// Starts to produce chunks, once the peer accepts. Returns the retransmit buffer of a stream.
    fn start(&mut self, _at: &mut Scope<'_>) -> io::Result<Option<RetransmitBuffer>> {
        Ok(None)
    }

    /// Returns the tree entry of a standalone file; `None` for other sources.
    fn entry(&self) -> Option<EntryRef> {
        None
    }

    /// Returns the file whose chunks are read at any offset; `None` for a stream.
    fn file(&self) -> Option<&Arc<files::Source>> {
        None
    }
}

/// Sink of one transfer, from the request to the end of the transfer.
pub(crate) trait Sink: fmt::Debug + Send {
    /// Requests the data from the peer. Does nothing in a daemon, whose peer has already announced
    /// the data.
    fn request(&mut self, _at: &mut Scope<'_>) {}

    /// Returns true if the sink accepts an offer of this kind.
    fn takes(&self, kind: Option<OfferKind>) -> bool {
        kind != Some(OfferKind::Batches)
    }

    /// Opens the sink for the offered data. Returns false if it is opened in the background. In
    /// this case [`Input::SinkOpened`](super::input::Input) later reports the sink that replaces
    /// it.
    fn open(&mut self, _offer: &Offer, _at: &mut Scope<'_>) -> bool {
        true
    }

    /// Starts to receive. Returns the conditions that the session sends with its acceptance.
    fn start(&mut self, _at: &mut Scope<'_>) -> io::Result<Acceptance> {
        Ok(Acceptance::default())
    }

    /// Returns the tree entry of a standalone file; `None` for other sinks.
    fn entry(&self) -> Option<EntryRef> {
        None
    }

    /// Returns the size in bytes; `None` for batches of records.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Returns the target whose chunks are written at any offset; `None` for a stream.
    fn target(&self) -> Option<&Arc<Target>> {
        None
    }

    /// Takes the next chunk of a stream.
    fn take(&mut self, _chunk: ChunkBuffer) {}

    /// Handles the end of a stream, after its last chunk.
    fn end(&mut self) {}
}

/// Local end of a transfer: its source or its sink.
#[derive(Debug)]
pub(crate) enum End {
    Source(Box<dyn Source>),
    Sink(Box<dyn Sink>),
}

impl End {
    pub(crate) fn source(source: impl Source + 'static) -> Self {
        Self::Source(Box::new(source))
    }

    pub(crate) fn sink(sink: impl Sink + 'static) -> Self {
        Self::Sink(Box::new(sink))
    }
}

/// Opened sink, with the subtrees of the data that it already has.
pub(crate) type SinkOpened = (Box<dyn Sink>, Vec<Subtree>);

/// Placeholder for a transfer identifier in a message. The session replaces it when it assigns one.
pub(crate) const UNNUMBERED: TransferId = TransferId(0);

/// Returns the offer of a stream, whose size is unknown.
pub(crate) fn stream_offer(transfer: TransferId, kind: OfferKind, mode: u32) -> Offer {
    Offer {
        transfer,
        source: SourceIdentity::default(),
        chunk_log2: ChunkSize::DEFAULT.log2(),
        mode,
        kind: Some(kind),
        data: None,
    }
}

/// Offers batches of records to the peer, which has requested them.
fn offer_batches(at: &mut Scope<'_>) {
    let offer = stream_offer(at.transfer, OfferKind::Batches, 0);
    let offered = at.session.offer(offer);
    debug_assert!(offered.is_ok(), "{offered:?}");
}

/// Requests a file from the peer.
fn request(get: &Get, at: &mut Scope<'_>) {
    at.session.get(Get {
        transfer: at.transfer,
        ..get.clone()
    });
}

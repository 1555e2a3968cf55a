//! Kinds of transfers: one file for each.
//!
//! The session moves chunks through the trait [`Kind`]. It never asks which kind a transfer is, but
//! for its shape: a sender is either read at any offset, like a [`file`], or streams its chunks
//! through a [`retransmit`] buffer; a receiver is either a target that is written at any offset, or
//! takes its chunks in order, like a [`stream`]. And for its place in a [`tree`]: the thread of the
//! tree, or the entry that an [`entry`]'s file is.

pub(crate) mod entry;
pub(crate) mod exec;
pub(crate) mod file;
pub(crate) mod object;
pub(crate) mod pipe;
pub(super) mod retransmit;
pub(crate) mod stream;
pub(crate) mod tree;
pub(crate) mod tunnel;

use std::{fmt, io, sync::Arc};

use nicstripe_proto::{
    Acceptance, ChunkSize, Name, ObjectAttributes, Offer, Session, SourceIdentity, Subtree,
    TransferId,
    message::{EntryRef, Get, OfferKind, Put, PutOptions},
    tree::TreeMessage,
};
use tokio::sync::mpsc;

use self::{
    retransmit::{ChunkSender, RetransmitBuffer, stream},
    tree::TreeThread,
};
use super::jobs::Jobs;
use crate::{
    file::{self as files, ChunkBuffer, FileError},
    report::{error::Error, event::Event, metrics::TransferDirection},
    storage::Target,
};

/// This machine's end of one transfer. Dropping it closes its files and ends its threads.
///
/// An error of a method ends the transfer.
pub(crate) trait Kind: Send {
    /// Returns the direction of the data; senders implement it.
    fn direction(&self) -> TransferDirection {
        TransferDirection::Receive
    }

    /// Takes the next step towards the peer: requests, announces, offers or accepts the data. A kind
    /// that must be opened first does so with [`Jobs::open`], and the opened one replaces it.
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error>;

    /// Receiver: opens its end for the data that the peer offers after a request.
    fn on_offered(&mut self, _offer: &Offer, _at: &mut Scope<'_>) -> Result<(), Error> {
        Err(another_kind())
    }

    /// Sender: starts to produce chunks, since the peer has accepted the data. `memory` is the
    /// peer's memory for entries of a tree in bytes, if announced.
    fn on_accepted(&mut self, _memory: Option<u64>, _at: &mut Scope<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the size in bytes; `None` if it is unknown.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Sender: returns the file whose chunks are read at any offset; `None` for a stream.
    fn file(&self) -> Option<&Arc<files::Source>> {
        None
    }

    /// Receiver: returns the target whose chunks are written at any offset; `None` for a stream.
    fn target(&self) -> Option<&Arc<Target>> {
        None
    }

    /// Receiver: takes the next chunk of a stream.
    fn take(&mut self, _chunk: ChunkBuffer, _at: &mut Scope<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Receiver: handles the end of a stream, after its last chunk.
    fn on_end(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Sender of a tree: handles a message of the receiver.
    fn hear(&mut self, _message: TreeMessage) -> Result<(), Error> {
        Ok(())
    }

    /// Sender: handles the receiver's message that everything is durable. Returns true if the kind
    /// reports the end of the transfer itself.
    fn on_committed(&mut self) -> bool {
        false
    }

    /// Returns the tree entry of a standalone file; `None` for other kinds.
    fn entry(&self) -> Option<EntryRef> {
        None
    }

    /// Returns true if the transfer must not outlast the peer's process: it fails once that has closed
    /// all connections and made none for a while.
    fn ends_with_peer(&self) -> bool {
        false
    }

    /// Returns the running thread of a tree; `None` for other kinds.
    fn tree(&self) -> Option<&TreeThread> {
        None
    }
}

/// Without its content: some have readers or functions of the program.
impl fmt::Debug for dyn Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kind").field(&self.direction()).finish()
    }
}

/// Context that the session passes to the kind of one transfer.
pub(crate) struct Scope<'a> {
    pub(super) transfer: TransferId,
    pub(super) session: &'a mut Session,
    pub(super) jobs: &'a Jobs,
    /// Channel for events to the transfer's owner; `None` in a daemon.
    pub(super) events: Option<&'a mpsc::Sender<Event>>,
    /// Thread of the tree to which a standalone file belongs.
    pub(super) tree: Option<&'a TreeThread>,
    /// Subtrees that an opened target already has.
    pub(super) have: Vec<Subtree>,
    pub(super) buffer: &'a mut Option<RetransmitBuffer>,
    pub(super) has_accepted: bool,
}

impl Scope<'_> {
    pub(super) fn accept(&mut self, how: Acceptance) {
        let have = std::mem::take(&mut self.have);
        self.session.accept(self.transfer, have, how);
        self.has_accepted = true;
    }

    /// Requests a file of the peer. Its transfer gets the number of this one.
    pub(super) fn get(&mut self, request: &Get) {
        let transfer = self.transfer;
        self.session.get(Get {
            transfer,
            ..request.clone()
        });
    }

    /// Offers batches of records to the peer, which has requested them.
    pub(super) fn offer_batches(&mut self) {
        let offer = stream_offer(self.transfer, OfferKind::Batches, 0);
        let offered = self.session.offer(offer);
        debug_assert!(offered.is_ok(), "{offered:?}");
    }

    /// Returns the sender of a stream's chunks. Up to `window` of them wait for acknowledgement.
    pub(super) fn stream(&mut self, window: usize) -> ChunkSender {
        let (chunks, buffer) = stream(self.transfer, window, self.jobs);
        *self.buffer = Some(buffer);
        chunks
    }
}

/// End of a transfer that the peer has requested, while it is being opened.
#[derive(Debug)]
pub(super) struct Opening(pub(super) TransferDirection);

impl Kind for Opening {
    fn direction(&self) -> TransferDirection {
        self.0
    }

    fn open(&mut self, _at: &mut Scope<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Opened end of a transfer, with the subtrees of the data that it already has.
pub(crate) type Opened = (Box<dyn Kind>, Vec<Subtree>);

/// Name and options under which the peer stores a file.
#[derive(Debug, Clone)]
pub(crate) struct Upload {
    pub(crate) name: Name,
    /// File name of the source, under which it is stored if `name` is a directory there.
    pub(crate) into: Option<Name>,
    pub(crate) options: PutOptions,
    /// Attributes that the file shall have; `None` for none.
    pub(crate) attributes: Option<ObjectAttributes>,
}

impl Upload {
    fn put(&self, offer: Offer) -> Put {
        Put {
            name: self.name.clone(),
            offer,
            options: self.options,
            into: self.into.clone(),
            entry: None,
            attributes: self.attributes.clone(),
        }
    }
}

/// Returns the offer of a stream, whose size is unknown, or without its identity that of a file.
pub(crate) fn stream_offer(transfer: TransferId, kind: OfferKind, mode: u32) -> Offer {
    Offer {
        transfer,
        source: SourceIdentity::default(),
        chunk_log2: ChunkSize::DEFAULT.log2(),
        mode,
        kind: Some(kind),
        data: None,
        object: None,
    }
}

fn check_batches(offer: &Offer, expected: bool) -> Result<(), Error> {
    match (offer.kind == Some(OfferKind::Batches)) == expected {
        true => Ok(()),
        false => Err(another_kind()),
    }
}

fn another_kind() -> Error {
    let why = "peer offered another kind than requested";
    FileError::violated("receive", "the requested file", why).into()
}

fn not_started(cause: io::Error) -> Error {
    Error::system("start a thread", cause)
}

//! Standalone files of trees: opened by the thread of their tree, then transferred like other
//! files.

use std::sync::mpsc as threads;

use nicstripe_proto::{
    Name, Offer, Subtree,
    message::{EntryRef, Get, OfferKind, Put, PutOptions},
    tree::EntryId,
};
use tokio::sync::oneshot;

use super::{
    Scope, Sink, Source, UNNUMBERED,
    file::{FileSink, FileSource},
    stream_offer,
    tree::no_tree,
};
use crate::{
    file::{self, FileError},
    session::input::{Input, report},
    tree::channel::{ReceiverInput, SenderInput},
};

/// Standalone file of a tree that a client sends.
#[derive(Debug)]
pub(crate) struct EntrySource {
    pub(crate) entry: EntryRef,
    pub(crate) options: PutOptions,
}

impl Source for EntrySource {
    /// The thread of the tree reports the opened files itself, one after the other. A daemon
    /// rejects puts whose transfer identifiers do not increase.
    fn announce(&mut self, at: &mut Scope<'_>) {
        let Self { entry, options } = *self;
        let (transfer, inputs) = (at.transfer, at.jobs.inputs.clone());
        // Blocks its thread while the session's input queue is full.
        let answer = move |file: Result<_, _>| {
            let result = file.map(|file| stored(file, entry, options));
            report(&inputs, Input::SourceOpened { transfer, result });
        };
        let request = SenderInput::OpenStandalone {
            id: entry.id,
            answer: Box::new(answer),
        };
        let refused = match at.trees.sender(entry.tree) {
            Some(sender) => sender.send(request).err().map(|error| error.0),
            None => Some(request),
        };
        if let Some(SenderInput::OpenStandalone { answer, .. }) = refused {
            // On another thread, because the answer may block.
            at.jobs.pool.run(move || answer(Err(no_tree())));
        }
    }

    fn entry(&self) -> Option<EntryRef> {
        Some(self.entry)
    }
}

/// Standalone file of a tree that a client fetches.
#[derive(Debug)]
pub(crate) struct EntrySink {
    pub(crate) entry: EntryRef,
    pub(crate) options: PutOptions,
    pub(crate) allow_changing: bool,
}

impl Sink for EntrySink {
    fn request(&mut self, at: &mut Scope<'_>) {
        at.session.get(Get {
            transfer: at.transfer,
            name: entry_name(),
            limit_bps: None,
            entry: Some(self.entry),
            compress: false,
            allow_changing: self.allow_changing,
            range: None,
        });
    }

    fn open(&mut self, offer: &Offer, at: &mut Scope<'_>) -> bool {
        let Self { entry, options, .. } = *self;
        let (receiver, offer) = (at.trees.receiver(entry.tree), offer.clone());
        at.jobs.open_sink(at.transfer, async move {
            let receiver = receiver.ok_or_else(no_tree)?;
            let (target, have) = open_target(receiver, entry.id, offer, options).await?;
            Ok((FileSink::boxed(target.into()), have))
        });
        false
    }

    fn entry(&self) -> Option<EntryRef> {
        Some(self.entry)
    }
}

/// Returns the source of an open standalone file, which asks the peer to store it.
fn stored(file: file::Source, entry: EntryRef, options: PutOptions) -> Box<dyn Source> {
    let put = Put {
        name: entry_name(),
        offer: stream_offer(UNNUMBERED, OfferKind::File, 0),
        options,
        into: None,
        entry: Some(entry),
    };
    Box::new(FileSource::stored(file, Box::new(put)))
}

/// Asks a tree's thread to open the source of a standalone file.
pub(crate) async fn open_source(
    sender: threads::Sender<SenderInput>,
    id: EntryId,
) -> Result<file::Source, FileError> {
    let (reply, opened) = oneshot::channel();
    // Fails if the session has ended.
    let answer = Box::new(move |result| drop(reply.send(result)));
    // A thread that has ended drops the request and its reply channel.
    let _ = sender.send(SenderInput::OpenStandalone { id, answer });
    opened.await.unwrap_or_else(|_| Err(no_tree()))
}

/// Asks a tree's thread to open the target of a standalone file.
pub(crate) async fn open_target(
    receiver: threads::Sender<ReceiverInput>,
    id: EntryId,
    offer: Offer,
    options: PutOptions,
) -> Result<(file::Target, Vec<Subtree>), FileError> {
    let (reply, opened) = oneshot::channel();
    let answer = Box::new(move |result| drop(reply.send(result)));
    let _ = receiver.send(ReceiverInput::OpenStandalone {
        id,
        offer: Box::new(offer),
        options,
        answer,
    });
    opened.await.unwrap_or_else(|_| Err(no_tree()))
}

/// Returns a placeholder name for a standalone file, whose real name only its tree knows.
fn entry_name() -> Name {
    // Valid: not empty, one component, plain.
    Name::parse(b"entry").unwrap_or_else(|_| unreachable!("a plain name"))
}

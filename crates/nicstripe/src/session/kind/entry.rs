//! Standalone files of trees: opened by the thread of their tree, then transferred like other
//! files.

use nicstripe_proto::{
    Offer, Subtree,
    message::{EntryRef, Get, PutOptions},
    tree::EntryId,
};
use tokio::sync::oneshot;

use super::{
    Kind, Opened, Scope,
    file::{FileSink, FileSource, Stored},
    tree::{TreeThread, no_tree},
};
use crate::{
    file::{self, FileError},
    report::{error::Error, metrics::TransferDirection},
    session::inbox::{Input, Said, report},
    tree::channel::{ReceiverInput, SenderInput},
};

/// Standalone file of a tree that a client sends.
#[derive(Debug)]
pub(crate) struct EntrySource {
    pub(crate) entry: EntryRef,
    pub(crate) options: PutOptions,
}

impl Kind for EntrySource {
    fn direction(&self) -> TransferDirection {
        TransferDirection::Send
    }

    /// The thread of the tree reports the opened files itself, one after the other. A daemon
    /// rejects puts whose transfer identifiers do not increase.
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        let Self { entry, options } = *self;
        let (transfer, inputs) = (at.transfer, at.jobs.inputs());
        // Blocks its thread while the session's input queue is full.
        let answer = move |file: Result<_, _>| {
            let stored = Some(Stored::Entry(entry, options));
            let result = file
                .map(|file| -> Opened { (Box::new(FileSource::new(file, stored)), Vec::new()) });
            let said = Said::Opened(result);
            report(&inputs, Input::Said { transfer, said });
        };
        let Some(TreeThread::Sender(sender)) = at.tree else {
            return Err(no_tree().into());
        };
        let request = SenderInput::OpenStandalone {
            id: entry.id,
            answer: Box::new(answer),
        };
        sender.send(request).map_err(|_| no_tree().into())
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

impl Kind for EntrySink {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        at.session
            .get(Get::of_entry(at.transfer, self.entry, self.allow_changing));
        Ok(())
    }

    fn on_offered(&mut self, offer: &Offer, at: &mut Scope<'_>) -> Result<(), Error> {
        super::check_batches(offer, false)?;
        let Self { entry, options, .. } = *self;
        let (tree, offer) = (at.tree.cloned(), offer.clone());
        at.jobs.open(at.transfer, async move {
            let (target, have) = open_target(tree.as_ref(), entry.id, offer, options).await?;
            Ok((FileSink::boxed(target.into()), have))
        });
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef> {
        Some(self.entry)
    }
}

/// Asks a tree's thread to open the source of a standalone file.
pub(crate) async fn open_source(
    tree: Option<&TreeThread>,
    id: EntryId,
) -> Result<file::Source, FileError> {
    let Some(TreeThread::Sender(sender)) = tree else {
        return Err(no_tree());
    };
    let (reply, opened) = oneshot::channel();
    // Fails if the session has ended.
    let answer = Box::new(move |result| drop(reply.send(result)));
    // A thread that has ended drops the request and its reply channel.
    let _ = sender.send(SenderInput::OpenStandalone { id, answer });
    opened.await.unwrap_or_else(|_| Err(no_tree()))
}

/// Asks a tree's thread to open the target of a standalone file.
pub(crate) async fn open_target(
    tree: Option<&TreeThread>,
    id: EntryId,
    offer: Offer,
    options: PutOptions,
) -> Result<(file::Target, Vec<Subtree>), FileError> {
    let Some(TreeThread::Receiver(receiver)) = tree else {
        return Err(no_tree());
    };
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

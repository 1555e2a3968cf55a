//! What arrives in any order and is taken in order: parcels of a tree, and files that go into a writer.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, mpsc as threads},
    thread,
};

use nicstripe_proto::{ChunkId, SourceIdentity, TransferId};
use tokio::sync::mpsc;

use super::input::Input;
use crate::{
    file::{ChunkBuffer, FileError},
    session::work::{Fault, WorkDone},
    tree::port::ReceiverInput,
    tunnel::Trunk,
};

/// Chunks of a pipe that may have arrived and not been taken.
pub(crate) const KEPT_CHUNKS: u64 = crate::client::PIPE_WINDOW / nicstripe_proto::ChunkSize::DEFAULT.bytes();

/// The chunks of one transfer that wait for those before them, and who takes them.
#[derive(Debug)]
pub(super) struct Kept {
    waiting: BTreeMap<ChunkId, ChunkBuffer>,
    next: ChunkId,
    taker: Taker,
}

/// Who takes chunks.
#[derive(Debug, Clone)]
pub(super) enum Taker {
    Tree(threads::Sender<ReceiverInput>),
    Writer(threads::Sender<ToWrite>),
    Trunk(Arc<Trunk>),
    Reader(mpsc::UnboundedSender<ToRead>),
}

/// What whoever reads is told. There are never more than [`KEPT_CHUNKS`] of them waiting.
#[derive(Debug)]
pub(crate) enum ToRead {
    /// The source is open at the peer, and is this.
    Begun(SourceIdentity),
    Chunk(ChunkBuffer),
    /// Everything has arrived: has to be answered by [`WorkDone::Emptied`].
    End,
}

/// What a writer's thread is told.
#[derive(Debug)]
pub(super) enum ToWrite {
    Chunk(ChunkBuffer),
    End,
}

impl Kept {
    pub(super) fn new(taker: Taker) -> Self {
        Self { waiting: BTreeMap::new(), next: ChunkId(0), taker }
    }

    /// A chunk has arrived, for the first time: it and those that waited for it are taken in order.
    pub(super) fn insert(&mut self, chunk: ChunkId, buffer: ChunkBuffer) {
        self.waiting.insert(chunk, buffer);
        while let Some(buffer) = self.waiting.remove(&self.next) {
            self.next = ChunkId(self.next.0 + 1);
            // A taker that is gone has said why.
            match &self.taker {
                Taker::Tree(tree) => drop(tree.send(ReceiverInput::Parcel(buffer))),
                Taker::Writer(writer) => drop(writer.send(ToWrite::Chunk(buffer))),
                Taker::Reader(reader) => drop(reader.send(ToRead::Chunk(buffer))),
                Taker::Trunk(trunk) => trunk.take_in(buffer.bytes()),
            }
        }
    }

    /// Everything has arrived.
    pub(super) fn end(&self) {
        match &self.taker {
            Taker::Tree(tree) => drop(tree.send(ReceiverInput::End)),
            Taker::Writer(writer) => drop(writer.send(ToWrite::End)),
            Taker::Reader(reader) => drop(reader.send(ToRead::End)),
            // A trunk has no end but that of its session.
            Taker::Trunk(trunk) => trunk.end(),
        }
    }
}

/// Starts the thread that writes chunks to a writer; what it could not write ends the transfer.
pub(super) fn start_writer(
    transfer: TransferId,
    mut writer: Box<dyn io::Write + Send>,
    inputs: mpsc::Sender<Input>,
) -> io::Result<threads::Sender<ToWrite>> {
    let (sender, chunks) = threads::channel();
    let fault = Fault::of(&inputs);
    let run = move || {
        let _fault = fault;
        let result = write_all(&mut *writer, &chunks, || inputs.blocking_send(Input::Taken { transfer, chunks: 1 }).is_ok());
        if let Some(result) = result.transpose() {
            let result = result.map_err(|error| FileError::new("write", "standard output", error));
            drop(inputs.blocking_send(Input::Work(WorkDone::Emptied { transfer, result })));
        }
    };
    thread::Builder::new().name("nicstripe-pipe".into()).spawn(run)?;
    Ok(sender)
}

/// Returns nothing where the transfer ended before its end was told.
fn write_all(writer: &mut dyn io::Write, chunks: &threads::Receiver<ToWrite>, mut taken: impl FnMut() -> bool) -> io::Result<Option<()>> {
    for told in chunks {
        match told {
            ToWrite::Chunk(buffer) => writer.write_all(buffer.bytes())?,
            ToWrite::End => return writer.flush().map(Some),
        }
        if !taken() {
            break;
        }
    }
    Ok(None)
}

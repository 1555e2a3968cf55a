//! Reorder buffers: chunks arrive in any order and are consumed in order, by trees, writers,
//! readers and tunnels.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, mpsc as threads},
    thread,
};

use nicstripe_proto::{ChunkId, SourceIdentity, TransferId};
use tokio::sync::mpsc;

use super::{
    input::{Fault, Input},
    open_files::IoResult,
};
use crate::{
    file::{ChunkBuffer, FileError},
    tree::channel::ReceiverInput,
    tunnel::TunnelMux,
};

/// Capacity of a pipe's reorder buffer: chunks received and not yet consumed.
pub(crate) const REORDER_CHUNKS: u64 =
    crate::file::options::PIPE_WINDOW / nicstripe_proto::ChunkSize::DEFAULT.bytes();

/// Reorder buffer of one transfer, with the sink of its chunks.
#[derive(Debug)]
pub(super) struct ReorderBuffer {
    waiting: BTreeMap<ChunkId, ChunkBuffer>,
    next: ChunkId,
    sink: Sink,
}

/// Consumer of a transfer's chunks in order.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    Tree(threads::Sender<ReceiverInput>),
    Writer(threads::Sender<WriteItem>),
    TunnelMux(Arc<TunnelMux>),
    Reader(mpsc::UnboundedSender<ReadItem>),
}

/// Message to the reader of a transfer. At most [`REORDER_CHUNKS`] chunks are queued.
#[derive(Debug)]
pub(crate) enum ReadItem {
    /// The peer has opened the file with this identity.
    Begun(SourceIdentity),
    Chunk(ChunkBuffer),
    /// All data has arrived. The reader answers with [`IoResult::Drained`].
    End,
}

#[derive(Debug)]
pub(super) enum WriteItem {
    Chunk(ChunkBuffer),
    End,
}

impl ReorderBuffer {
    pub(super) fn new(sink: Sink) -> Self {
        Self {
            waiting: BTreeMap::new(),
            next: ChunkId(0),
            sink,
        }
    }

    /// Inserts a received chunk and passes all chunks that are now in order to the sink.
    pub(super) fn insert(&mut self, chunk: ChunkId, buffer: ChunkBuffer) {
        self.waiting.insert(chunk, buffer);
        while let Some(buffer) = self.waiting.remove(&self.next) {
            self.next = ChunkId(self.next.0 + 1);
            // A sink that has ended has reported why.
            match &self.sink {
                Sink::Tree(tree) => drop(tree.send(ReceiverInput::Batch(buffer))),
                Sink::Writer(writer) => drop(writer.send(WriteItem::Chunk(buffer))),
                Sink::Reader(reader) => drop(reader.send(ReadItem::Chunk(buffer))),
                Sink::TunnelMux(mux) => mux.take_in(buffer.bytes()),
            }
        }
    }

    /// Signals the end of the data to the sink.
    pub(super) fn end(&self) {
        match &self.sink {
            Sink::Tree(tree) => drop(tree.send(ReceiverInput::End)),
            Sink::Writer(writer) => drop(writer.send(WriteItem::End)),
            Sink::Reader(reader) => drop(reader.send(ReadItem::End)),
            // A carrying transfer must last as long as the session. `poll_mux` reports the
            // violation.
            Sink::TunnelMux(mux) => mux.end(),
        }
    }
}

/// Starts the thread that writes a transfer's chunks to `writer`. A write error fails the transfer.
pub(super) fn start_writer(
    transfer: TransferId,
    mut writer: Box<dyn io::Write + Send>,
    inputs: mpsc::Sender<Input>,
) -> io::Result<threads::Sender<WriteItem>> {
    let (sender, chunks) = threads::channel();
    let fault = Fault::of(&inputs);
    let run = move || {
        let _fault = fault;
        let result = write_all(&mut *writer, &chunks, || {
            inputs
                .blocking_send(Input::Consumed {
                    transfer,
                    chunks: 1,
                })
                .is_ok()
        });
        if let Some(result) = result.transpose() {
            let result = result.map_err(|error| FileError::new("write", "standard output", error));
            drop(inputs.blocking_send(Input::Io(IoResult::Drained { transfer, result })));
        }
    };
    thread::Builder::new()
        .name("nicstripe-pipe".into())
        .spawn(run)?;
    Ok(sender)
}

/// Writes chunks until the end of the data. Returns `None` if the transfer ended before that.
fn write_all(
    writer: &mut dyn io::Write,
    chunks: &threads::Receiver<WriteItem>,
    mut taken: impl FnMut() -> bool,
) -> io::Result<Option<()>> {
    for told in chunks {
        match told {
            WriteItem::Chunk(buffer) => writer.write_all(buffer.bytes())?,
            WriteItem::End => return writer.flush().map(Some),
        }
        if !taken() {
            break;
        }
    }
    Ok(None)
}

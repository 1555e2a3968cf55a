//! Pipes: a reader or writer of the program, which a dedicated thread uses.

use std::{fmt, io, sync::mpsc as threads, thread};

use nicstripe_proto::{
    Acceptance, ChunkSize, Offer, TransferId,
    message::{Get, Put},
};
use tokio::sync::mpsc;

use super::{
    Scope, Sink, Source, announce_stream,
    reorder::in_order,
    request,
    retransmit::{ChunkSender, RETRANSMIT_CHUNKS, RetransmitBuffer, stream},
};
use crate::{
    file::{ChunkBuffer, FileError},
    session::{
        input::{Fault, Input},
        io_result::IoResult,
    },
};

/// Source that sends the bytes of a reader until end of file.
pub(crate) struct PipeSource {
    reader: Option<Box<dyn io::Read + Send>>,
    put: Box<Put>,
}

impl PipeSource {
    pub(crate) fn new(reader: Box<dyn io::Read + Send>, put: Box<Put>) -> Self {
        Self {
            reader: Some(reader),
            put,
        }
    }
}

impl Source for PipeSource {
    fn announce(&mut self, at: &mut Scope<'_>) {
        announce_stream(&self.put, at);
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Option<RetransmitBuffer>> {
        let Some(reader) = self.reader.take() else {
            return Ok(None);
        };
        let (chunks, buffer) = stream(at.transfer, RETRANSMIT_CHUNKS, at.jobs);
        read_pipe(chunks, reader)?;
        Ok(Some(buffer))
    }
}

/// Sink that passes the received bytes in order to a writer, such as standard output.
pub(crate) struct PipeSink {
    get: Box<Get>,
    writer: Option<Box<dyn io::Write + Send>>,
    size: u64,
    /// Channel to the thread that writes the chunks; `None` before the start.
    items: Option<threads::Sender<WriteItem>>,
}

#[derive(Debug)]
enum WriteItem {
    Chunk(ChunkBuffer),
    End,
}

impl PipeSink {
    pub(crate) fn new(writer: Box<dyn io::Write + Send>, get: Box<Get>) -> Self {
        Self {
            get,
            writer: Some(writer),
            size: 0,
            items: None,
        }
    }

    fn send(&self, item: WriteItem) {
        // A thread that has ended has reported why.
        if let Some(items) = &self.items {
            let _ = items.send(item);
        }
    }
}

impl Sink for PipeSink {
    fn request(&mut self, at: &mut Scope<'_>) {
        request(&self.get, at);
    }

    fn open(&mut self, offer: &Offer, _at: &mut Scope<'_>) -> bool {
        self.size = offer.source.size;
        true
    }

    fn start(&mut self, at: &mut Scope<'_>) -> io::Result<Acceptance> {
        if let Some(writer) = self.writer.take() {
            self.items = Some(start_writer(at.transfer, writer, at.jobs.inputs.clone())?);
        }
        Ok(in_order())
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn take(&mut self, chunk: ChunkBuffer) {
        self.send(WriteItem::Chunk(chunk));
    }

    fn end(&mut self) {
        self.send(WriteItem::End);
    }
}

impl fmt::Debug for PipeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeSource")
            .field("name", &self.put.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PipeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeSink")
            .field("name", &self.get.name)
            .finish_non_exhaustive()
    }
}

/// Starts a thread that sends the bytes of `reader` until end of file.
fn read_pipe(mut chunks: ChunkSender, mut reader: Box<dyn io::Read + Send>) -> io::Result<()> {
    let fault = Fault::of(&chunks.inputs);
    let run = move || {
        let _fault = fault;
        let result = send_all(&mut chunks, &mut *reader)
            .map_err(|error| FileError::new("read", "standard input", error));
        chunks.end(result);
    };
    thread::Builder::new()
        .name("nicstripe-pipe".into())
        .spawn(run)
        .map(drop)
}

/// Sends all bytes of a reader. Holds the first chunk back until the next read, since its hash
/// depends on whether it is the only one.
fn send_all(chunks: &mut ChunkSender, reader: &mut dyn io::Read) -> io::Result<()> {
    let full = ChunkSize::DEFAULT.bytes() as usize;
    let mut first = None;
    loop {
        let mut buffer = chunks.buffer();
        let begun = read_some(reader, buffer.bytes_mut(full))?;
        let goes_on = first
            .take()
            .is_none_or(|first| chunks.send(first, begun == 0));
        if begun == 0 || !goes_on {
            return Ok(());
        }
        let len = begun + fill(reader, &mut buffer.bytes_mut(full)[begun..])?;
        buffer.bytes_mut(len);
        if len == full && chunks.is_new() {
            first = Some(buffer);
        } else if !chunks.send(buffer, len < full) || len < full {
            return Ok(());
        }
    }
}

/// Reads until `bytes` is full or the reader ends. Returns the number of bytes read.
fn fill(reader: &mut dyn io::Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match read_some(reader, &mut bytes[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

fn read_some(reader: &mut dyn io::Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Starts the thread that writes a transfer's chunks to `writer`. A write error fails the transfer.
fn start_writer(
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

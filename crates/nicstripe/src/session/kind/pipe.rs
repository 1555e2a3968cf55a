//! Pipes: a reader or writer of the program, which a dedicated thread uses.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use nicstripe_proto::{ChunkSize, message::Get};

use super::{
    Upload,
    retransmit::ChunkSender,
    stream::{Incoming, StreamItem, StreamSink, StreamSource},
};
use crate::{file::FileError, session::jobs::Fault};

/// Returns the source that sends the bytes of a reader until end of file.
pub(crate) fn source(reader: impl io::Read + Send + 'static, upload: Upload) -> StreamSource {
    StreamSource::new(upload, |mut chunks, _| {
        let fault = Fault::of(&chunks.inputs);
        start_thread(move || {
            let _fault = fault;
            let result = guarded(|| send_all(&mut chunks, reader))
                .map_err(|error| FileError::new("read", "standard input", error));
            chunks.end_blocking(result);
        })
    })
}

/// Returns the sink that passes the received bytes in order to a writer, such as standard output. A
/// write error fails the transfer.
pub(crate) fn sink(writer: impl io::Write + Send + 'static, download: Get) -> StreamSink {
    StreamSink::new(download, |_, mut incoming| {
        let fault = Fault::of(&incoming.inputs);
        start_thread(move || {
            let _fault = fault;
            if let Some(result) = guarded(|| write_all(writer, &mut incoming)).transpose() {
                let result =
                    result.map_err(|error| FileError::new("write", "standard output", error));
                drop(incoming.inputs.blocking_send(incoming.drained(result)));
            }
        })
    })
}

/// Runs code of the program. A panic in it fails its transfer, and concerns no other.
fn guarded<T>(run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}

fn start_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name("nicstripe-pipe".into())
        .spawn(run)
        .map(drop)
}

/// Sends all bytes of a reader. Holds the first chunk back until the next read, since its hash
/// depends on whether it is the only one.
fn send_all(chunks: &mut ChunkSender, mut reader: impl io::Read) -> io::Result<()> {
    let full = ChunkSize::DEFAULT.bytes() as usize;
    let mut first = None;
    loop {
        let mut buffer = chunks.buffer();
        let first_len = read_some(&mut reader, buffer.bytes_mut(full))?;
        let goes_on = first
            .take()
            .is_none_or(|first| chunks.send(first, first_len == 0));
        if first_len == 0 || !goes_on {
            return Ok(());
        }
        let len = first_len + fill(&mut reader, &mut buffer.bytes_mut(full)[first_len..])?;
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
            Ok(read) if read > bytes.len() => {
                let why = format!(
                    "reader returned {read} bytes for a buffer of {}",
                    bytes.len()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            result => return result,
        }
    }
}

/// Writes chunks until the end of the data. Returns `None` if the transfer ended before that.
fn write_all(mut writer: impl io::Write, incoming: &mut Incoming) -> io::Result<Option<()>> {
    while let Some(item) = incoming.items.blocking_recv() {
        match item {
            StreamItem::Chunk(buffer) => writer.write_all(buffer.bytes())?,
            StreamItem::End => return writer.flush().map(Some),
        }
        if incoming.inputs.blocking_send(incoming.consumed()).is_err() {
            break;
        }
    }
    Ok(None)
}

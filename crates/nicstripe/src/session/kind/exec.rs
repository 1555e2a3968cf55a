//! Streams of a remote command: bytes in batches of any length, each sent as soon as there are any.

use std::{future::poll_fn, io, pin::Pin, task::Poll};

use nicstripe_proto::{Offer, frame::MAX_PAYLOAD, message::Exec};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    sync::oneshot,
};

use super::{
    Kind, Scope, check_batches,
    retransmit::{ChunkSender, RETRANSMIT_CHUNKS},
    stream::{Incoming, Outlet, StreamItem, in_order},
};
use crate::{
    file::{ChunkBuffer, FileError},
    report::{error::Error, metrics::TransferDirection},
    session::jobs::Fault,
};

/// Source of the bytes of a stream.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Sink of the bytes of a stream.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Names of the client's streams in errors.
pub(crate) const STANDARD_INPUT: &str = "standard input";
pub(crate) const STANDARD_OUTPUT: &str = "standard output";
pub(crate) const STANDARD_ERROR: &str = "standard error";

/// Stream that this end sends, until its reader ends. Dropping it drops the reader.
pub(crate) struct ByteSource {
    reader: Option<Reader>,
    /// Name for errors.
    name: &'static str,
    /// Client: command to request, whose input this is.
    request: Option<Exec>,
    is_daemon: bool,
}

impl ByteSource {
    /// Creates the source of a stream that the client has requested.
    pub(crate) fn requested(reader: Reader) -> Self {
        Self {
            reader: Some(reader),
            name: "the command's output",
            request: None,
            is_daemon: true,
        }
    }

    pub(crate) fn input(reader: Reader, request: Exec) -> Self {
        Self {
            reader: Some(reader),
            name: STANDARD_INPUT,
            request: Some(request),
            is_daemon: false,
        }
    }
}

impl Kind for ByteSource {
    fn direction(&self) -> TransferDirection {
        TransferDirection::Send
    }

    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        match self.request.take() {
            Some(request) => at.session.exec(request),
            None => at.offer_batches(),
        }
        Ok(())
    }

    fn on_accepted(&mut self, _memory: Option<u64>, at: &mut Scope<'_>) -> Result<(), Error> {
        if let Some(reader) = self.reader.take() {
            let (chunks, fault) = (at.stream(RETRANSMIT_CHUNKS), at.jobs.fault());
            let name = self.name;
            tokio::spawn(async move {
                let _fault = fault;
                send_all(reader, name, chunks).await;
            });
        }
        Ok(())
    }

    /// A client's end of a command waits for the daemon as long as its user wants.
    fn ends_with_peer(&self) -> bool {
        self.is_daemon
    }
}

/// Sends the bytes of a reader until its end, or until the transfer ends. Bytes that arrive while
/// the send window is full enlarge the next batch.
async fn send_all(mut reader: Reader, name: &str, mut chunks: ChunkSender) {
    while let Some(permit) = chunks.acquire().await {
        let mut buffer = chunks.buffer();
        let read = tokio::select! {
            read = read_ready(&mut reader, buffer.bytes_mut(MAX_PAYLOAD)) => read,
            () = chunks.closed() => return,
        };
        let len = match read {
            Ok(0) => {
                chunks.end(Ok(())).await;
                return;
            }
            Ok(len) => len,
            Err(cause) => {
                let error = FileError::new("read", name, cause);
                chunks.end(Err(error)).await;
                return;
            }
        };
        buffer.bytes_mut(len);
        let Some(value) = chunks.hash(&buffer, false) else {
            return;
        };
        if !chunks.send_with(permit, buffer, value, false).await {
            return;
        }
    }
}

/// Waits for bytes, and reads all that are ready and fit. Returns 0 at the end.
async fn read_ready(reader: &mut Reader, bytes: &mut [u8]) -> io::Result<usize> {
    let mut room = ReadBuf::new(bytes);
    poll_fn(|cx| {
        loop {
            let before = room.filled().len();
            let read = Pin::new(&mut *reader).poll_read(cx, &mut room);
            let goes_on = room.filled().len() > before && room.remaining() > 0;
            return match read {
                Poll::Ready(Ok(())) if goes_on => continue,
                // The next call reports the error or waits.
                Poll::Pending | Poll::Ready(Err(_)) if before > 0 => Poll::Ready(Ok(before)),
                read => read.map_ok(|()| room.filled().len()),
            };
        }
    })
    .await
}

/// Stream that this end receives, until the peer ends it. The writer is then shut down; a stream
/// that fails only drops it.
pub(crate) struct ByteSink {
    writer: Option<Writer>,
    /// Name for errors.
    name: &'static str,
    /// Client: true, since the daemon offers the stream.
    is_offered: bool,
    /// Client: receives once the daemon has offered the stream.
    offered: Option<oneshot::Sender<()>>,
    items: Outlet,
}

impl ByteSink {
    /// Creates the sink of a stream that the client sends.
    pub(crate) fn announced(writer: Writer) -> Self {
        Self {
            writer: Some(writer),
            name: "the command's input",
            is_offered: false,
            offered: None,
            items: Outlet::default(),
        }
    }

    /// Creates the sink of a stream that the daemon offers, with this name for errors.
    pub(crate) fn output(writer: Writer, name: &'static str) -> Self {
        Self {
            name,
            is_offered: true,
            ..Self::announced(writer)
        }
    }

    /// Sends to `offered` once the daemon has offered the stream.
    pub(crate) fn telling(mut self, offered: oneshot::Sender<()>) -> Self {
        self.offered = Some(offered);
        self
    }

    fn start(&mut self, at: &mut Scope<'_>) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        let (incoming, fault) = (self.items.start(at), at.jobs.fault());
        tokio::spawn(take_all(writer, self.name, incoming, fault));
        at.accept(in_order());
    }
}

impl Kind for ByteSink {
    fn open(&mut self, at: &mut Scope<'_>) -> Result<(), Error> {
        if !self.is_offered {
            self.start(at);
        }
        Ok(())
    }

    fn on_offered(&mut self, offer: &Offer, at: &mut Scope<'_>) -> Result<(), Error> {
        check_batches(offer, true)?;
        if let Some(offered) = self.offered.take() {
            // Fails if the caller has gone, which cancels the transfer.
            let _ = offered.send(());
        }
        self.start(at);
        Ok(())
    }

    fn take(&mut self, chunk: ChunkBuffer, _at: &mut Scope<'_>) -> Result<(), Error> {
        self.items.send(StreamItem::Chunk(chunk));
        Ok(())
    }

    fn on_end(&mut self) -> Result<(), Error> {
        self.items.send(StreamItem::End);
        Ok(())
    }

    fn ends_with_peer(&self) -> bool {
        !self.is_offered
    }
}

/// Writes the chunks of a stream until its end. Without one, the transfer has failed.
async fn take_all(mut writer: Writer, name: &str, mut incoming: Incoming, _fault: Fault) {
    while let Some(item) = incoming.items.recv().await {
        let written = match &item {
            StreamItem::Chunk(chunk) => {
                async {
                    writer.write_all(chunk.bytes()).await?;
                    writer.flush().await
                }
                .await
            }
            StreamItem::End => writer.shutdown().await,
        };
        let has_failed = written.is_err();
        let input = match (written, item) {
            (Ok(()), StreamItem::Chunk(_)) => incoming.consumed(),
            (Ok(()), StreamItem::End) => incoming.drained(Ok(())),
            (Err(cause), _) => incoming.drained(Err(FileError::new("write", name, cause))),
        };
        if incoming.inputs.send(input).await.is_err() || has_failed {
            return;
        }
    }
}

impl std::fmt::Debug for ByteSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteSource").finish_non_exhaustive()
    }
}

//! Writer of a file at the daemon, for data that is produced piece by piece.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use nicstripe_proto::ChunkSize;
use tokio::{io::AsyncWrite, sync::mpsc};
use tokio_util::sync::PollSender;

use super::transfer::Transfer;
use crate::{
    file::{BufferPool, ChunkBuffer},
    report::{
        Report,
        error::Error,
        event::{Event, Progress},
    },
    session::kind::stream::StreamItem,
};

/// File at the daemon that is being written; see [`Client::create`](crate::Client::create).
///
/// Bytes are sent in chunks of 256 KiB over all links. A write blocks while 9 MiB wait for the
/// links. `flush` has no effect at the daemon. [`finish`](Self::finish) gives the file its name, and so
/// does `shutdown`, because code that takes any [`AsyncWrite`], such as an encoder, ends its output
/// with it. A `finish` afterwards returns the report. To abandon the file, drop the writer. A failed
/// call ends the file; its [`io::Error`] contains the [`Error`].
#[derive(Debug)]
pub struct ObjectWriter {
    transfer: Transfer,
    chunks: PollSender<StreamItem>,
    /// Chunk that is being filled and not yet sent; `None` before the first byte.
    buffer: Option<ChunkBuffer>,
    buffers: BufferPool,
    /// True once the end of the data was passed on.
    is_closed: bool,
    /// Result of a successful `shutdown`.
    report: Option<Report>,
}

impl ObjectWriter {
    pub(super) fn new(
        transfer: Transfer,
        chunks: mpsc::Sender<StreamItem>,
        buffers: BufferPool,
    ) -> Self {
        Self {
            transfer,
            chunks: PollSender::new(chunks),
            buffer: None,
            buffers,
            is_closed: false,
            report: None,
        }
    }

    /// Completes the file. `Ok` means that all data is durable under its name.
    ///
    /// If this call is dropped early, the file is either complete under its name or absent.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// use tokio::io::AsyncWriteExt;
    /// let mut object = client.create(&Name::parse(b"log")?, CopyOptions::default());
    /// object.write_all(b"one line\n").await?;
    /// assert_eq!(object.finish().await?.size, 9);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Nothing was stored under the name: it exists
    /// ([`FailCode::Exists`](crate::FailCode::Exists)), the peer may not write, the disk is full,
    /// or the session ended. After a failed write or shutdown: [`Error::Cancelled`].
    pub async fn finish(mut self) -> Result<Report, Error> {
        poll_fn(|cx| self.poll_finish(cx)).await
    }

    /// Returns the next event of the transfer, like [`Transfer::next_event`]. Cancel safe.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut object =
    ///     client.create(&nicstripe::Name::parse(b"log")?, nicstripe::CopyOptions::default());
    /// if let Some(nicstripe::Event::Connected { name, .. }) = object.next_event().await {
    ///     println!("connected to {}", name.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next_event(&mut self) -> Option<Event> {
        self.transfer.next_event().await
    }

    /// Returns the progress of the transfer; `bytes` is the number that the daemon has received.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let object =
    ///     client.create(&nicstripe::Name::parse(b"log")?, nicstripe::CopyOptions::default());
    /// println!("{} bytes have arrived", object.progress().bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn progress(&self) -> Progress {
        self.transfer.progress()
    }

    /// Writes all bytes. Returns early if the transfer has ended; its result contains the reason.
    pub(super) async fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(taken) = poll_fn(|cx| self.poll_take(cx, bytes)).await else {
                return;
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    /// Sends the rest of the data and its end, then waits for the result.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<Report, Error>> {
        if let Some(report) = &self.report {
            return Poll::Ready(Ok(report.clone()));
        }
        while !self.is_closed {
            // Fails if the transfer has ended, whose result contains the reason.
            let is_reserved = ready!(self.chunks.poll_reserve(cx)).is_ok();
            let item = match self.buffer.take() {
                Some(buffer) => StreamItem::Chunk(buffer),
                None => {
                    self.is_closed = true;
                    StreamItem::End
                }
            };
            if is_reserved {
                let _ = self.chunks.send_item(item);
            }
        }
        self.transfer.poll_end(cx)
    }

    /// Copies bytes into the current chunk, after sending a full one. Returns the number of bytes
    /// copied, or `None` if the transfer has ended.
    fn poll_take(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Option<usize>> {
        let full = ChunkSize::DEFAULT.bytes() as usize;
        if self
            .buffer
            .as_ref()
            .is_some_and(|buffer| buffer.bytes().len() >= full)
        {
            if ready!(self.chunks.poll_reserve(cx)).is_err() {
                return Poll::Ready(None);
            }
            if let Some(buffer) = self.buffer.take()
                && self.chunks.send_item(StreamItem::Chunk(buffer)).is_err()
            {
                return Poll::Ready(None);
            }
        }
        let buffer = self.buffer.get_or_insert_with(|| self.buffers.take());
        let taken = bytes.len().min(full - buffer.bytes().len());
        buffer.append(bytes.get(..taken).unwrap_or_default());
        Poll::Ready(Some(taken))
    }
}

impl AsyncWrite for ObjectWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_closed {
            let why = "the object is shut down, write to a new one";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why)));
        }
        match ready!(self.poll_take(cx, bytes)) {
            Some(taken) => Poll::Ready(Ok(taken)),
            None => self
                .transfer
                .poll_failure(cx)
                .map(|error| Err(error.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Completes the file, like [`finish`](Self::finish).
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let report = ready!(self.poll_finish(cx))?;
        self.report = Some(report);
        Poll::Ready(Ok(()))
    }
}

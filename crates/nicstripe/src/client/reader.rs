//! Reader of a file at the daemon, with sequential and random access.

use std::{
    future::poll_fn,
    io::{self, SeekFrom},
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use nicstripe_proto::{
    ETag, FailCode, Name, SourceIdentity,
    message::{Feature, GetRange},
};
use tokio::{
    io::{AsyncRead, AsyncSeek, ReadBuf},
    sync::mpsc,
};

use super::{handle::Client, transfer::Transfer};
use crate::{
    file::{ChunkBuffer, FileError, check_tag},
    report::error::Error,
    session::kind::object::{Begun, Read},
    storage::Stat,
};

/// Part of a file to read, and the content that it must be of. The default is a whole file of any
/// content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Range in bytes, truncated to the file; `None` for the whole file.
    pub range: Option<Range<u64>>,
    /// Entity tag that the file must have. Otherwise the call fails with
    /// [`FailCode::Precondition`](crate::FailCode::Precondition).
    pub only_if: Option<ETag>,
}

/// Open file at the daemon; see [`Client::open`].
///
/// The first read at a position fetches 1 MiB. Reading on from there fetches the rest of the file
/// over all links, at most [`PIPE_WINDOW`](crate::PIPE_WINDOW) bytes ahead. Dropping the reader or
/// seeking elsewhere cancels the fetch. A file that changes while open causes an error
/// ([`FailCode::SourceChanged`](crate::FailCode::SourceChanged)), never mixed content. A reader continues
/// after a daemon that was lost is back. A failed read may be retried and continues at the same
/// position; its [`io::Error`] contains the [`Error`].
///
/// Each chunk is verified against the daemon's hash before it is returned.
#[derive(Debug)]
pub struct ObjectReader {
    client: Client,
    name: Name,
    /// Metadata of the file when it was opened.
    stat: Stat,
    position: u64,
    /// File offset at which the reader ends.
    end: u64,
    fetch: Option<Fetch>,
    /// Identity of the file at the first fetch; later fetches must find the same. Their size is that
    /// of a range.
    identity: Option<SourceIdentity>,
    /// End offset of the last range that was read completely. A read from there counts as
    /// sequential.
    follows: Option<u64>,
}

/// Range of the file that is being fetched.
#[derive(Debug)]
struct Fetch {
    transfer: Transfer,
    chunks: mpsc::Receiver<Read>,
    /// Chunk that is being read, and the number of its bytes already read.
    chunk: Option<(ChunkBuffer, usize)>,
    /// File offset of the next byte to read, and end offset of the range.
    at: u64,
    end: u64,
}

/// Bytes of a file in the buffer in which they arrived. Returned by [`ObjectReader::next_chunk`]. Its memory is one of the client's buffers until it is
/// dropped.
#[derive(Debug)]
pub struct ObjectChunk {
    buffer: ChunkBuffer,
    /// Number of bytes at its start that were read before.
    read: usize,
}

impl AsRef<[u8]> for ObjectChunk {
    fn as_ref(&self) -> &[u8] {
        self.buffer.bytes().get(self.read..).unwrap_or_default()
    }
}

pub(super) fn get_range(name: &Name, range: Range<u64>) -> Result<GetRange, Error> {
    let len = range.end.checked_sub(range.start).ok_or_else(|| {
        let why = format!("requested range {range:?} ends before it begins");
        FileError::refused("read", name, why).with_code(FailCode::Range)
    })?;
    Ok(GetRange {
        offset: range.start,
        len,
    })
}

/// Bytes fetched at a new position, before the access is known to be sequential: about 8 ms at 1
/// Gbit/s.
pub(super) const FIRST_PART: u64 = 1 << 20;

/// Maximum forward seek, in bytes, that discards data instead of starting a new fetch. Discarding
/// takes about as long as a round trip of a few milliseconds.
const MOST_SKIPPED: u64 = 512 << 10;

impl ObjectReader {
    pub(super) fn new(client: Client, name: Name, stat: Stat) -> Self {
        Self {
            client,
            name,
            end: stat.size,
            stat,
            position: 0,
            fetch: None,
            identity: None,
            follows: None,
        }
    }

    /// Opens a range, and waits until the daemon has opened the file and begins to send.
    pub(super) async fn open(
        client: Client,
        name: Name,
        options: OpenOptions,
    ) -> Result<Self, Error> {
        let OpenOptions { range, only_if } = options;
        if only_if.is_some() {
            client.session_with(Feature::Tags).await?;
        }
        let range = range.map(|range| get_range(&name, range)).transpose()?;
        let (transfer, mut chunks) = client.fetch(name.clone(), range);
        let Some(Read::Begun(Begun { found, object })) = chunks.recv().await else {
            let ended = Error::ended(client.host(), "before the data");
            return Err(transfer.finish().await.err().unwrap_or(ended));
        };
        let stat = match object {
            Some(object) => Stat::of_wire(object),
            // From a daemon without this field, or of a device.
            None => client.stat_of_file(&name).await?,
        };
        if let Some(tag) = only_if {
            check_tag(stat.etag, tag, "read", &name)?;
        }
        let start = range.map_or(0, |range| range.offset);
        let end = start.saturating_add(found.size);
        let fetch = Fetch {
            transfer,
            chunks,
            chunk: None,
            at: start,
            end,
        };
        Ok(Self {
            end,
            position: start,
            fetch: Some(fetch),
            identity: Some(found),
            ..Self::new(client, name, stat)
        })
    }

    /// Returns the metadata of the file at the time it was opened, which all bytes read belong to.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let object = client.open(&nicstripe::Name::parse(b"disk.img")?).await?;
    /// println!("modified {:?}, tag {:?}", object.stat().modified, object.stat().etag);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Returns the number of bytes from the position to the end of the file or the range.
    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    /// Returns the next bytes, in the buffer in which they arrived, and `None` at the end of the file or
    /// the range. Up to 256 KiB; copies nothing. Cancel safe.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), nicstripe::Error> {
    /// let mut object = client.open(&nicstripe::Name::parse(b"disk.img")?).await?;
    /// let mut zeros = 0;
    /// while let Some(chunk) = object.next_chunk().await? {
    ///     zeros += chunk.as_ref().iter().filter(|byte| **byte == 0).count();
    /// }
    /// println!("{zeros} zeros");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the other reads of an [`ObjectReader`]; a repeated call continues at the same place.
    pub async fn next_chunk(&mut self) -> Result<Option<ObjectChunk>, Error> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ObjectChunk>, Error>> {
        if self.position >= self.end {
            ready!(self.poll_all_read(cx))?;
            return Poll::Ready(Ok(None));
        }
        ready!(self.poll_chunk(cx))?;
        let chunk = self.fetch.as_mut().and_then(Fetch::take);
        self.position += chunk
            .as_ref()
            .map_or(0, |chunk| chunk.as_ref().len() as u64);
        Poll::Ready(Ok(chunk))
    }

    /// Returns the size of the file in bytes at the time it was opened.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let object = client.open(&nicstripe::Name::parse(b"disk.img")?).await?;
    /// println!("{} bytes", object.len());
    /// # Ok(())
    /// # }
    /// ```
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is a file, not a collection"
    )]
    pub fn len(&self) -> u64 {
        self.stat.size
    }

    /// Returns the file offset of the next read, in bytes.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use tokio::io::{AsyncReadExt, AsyncSeekExt};
    /// let mut object = client.open(&nicstripe::Name::parse(b"disk.img")?).await?;
    /// object.seek(std::io::SeekFrom::End(-512)).await?;
    /// let mut last = [0; 512];
    /// object.read_exact(&mut last).await?;
    /// assert_eq!(object.position(), object.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn position(&self) -> u64 {
        self.position
    }

    fn begin(&mut self) {
        let rest = self.left();
        let len = if self.follows == Some(self.position) {
            rest
        } else {
            rest.min(FIRST_PART)
        };
        let (transfer, chunks) = self.client.fetch(
            self.name.clone(),
            Some(GetRange {
                offset: self.position,
                len,
            }),
        );
        self.fetch = Some(Fetch {
            transfer,
            chunks,
            chunk: None,
            at: self.position,
            end: self.position + len,
        });
    }

    /// Returns an error if the file that the daemon opened is not the one of this reader, or its
    /// range does not have `len` bytes.
    fn check(&mut self, begun: Begun, len: u64) -> Result<(), Error> {
        let Begun { found, object } = begun;
        let expected = *self.identity.get_or_insert(found);
        let opened = object.and_then(|object| object.etag);
        let is_same = opened.is_none_or(|tag| self.stat.etag.is_none_or(|etag| tag == etag))
            && found.size == len
            && (SourceIdentity {
                size: expected.size,
                ..found
            }) == expected;
        if is_same {
            return Ok(());
        }
        Err(self.client.changed(&self.name, "since it was opened"))
    }

    /// Waits until bytes at the current position are available. Starts a new fetch if the running
    /// one does not cover it.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let is_near = |fetch: &Fetch| {
                (fetch.at..=fetch.at + MOST_SKIPPED).contains(&self.position)
                    && self.position <= fetch.end
            };
            if self.fetch.as_ref().is_none_or(|fetch| !is_near(fetch)) {
                self.fetch = None;
                self.begin();
            }
            let position = self.position;
            let Some(fetch) = &mut self.fetch else {
                continue;
            };
            if fetch.skip_to(position) {
                return Poll::Ready(Ok(()));
            }
            match ready!(fetch.chunks.poll_recv(cx)) {
                Some(Read::Chunk(buffer)) => fetch.chunk = Some((buffer, 0)),
                Some(Read::Begun(begun)) => {
                    let len = fetch.end - fetch.at;
                    if let Err(error) = self.check(begun, len) {
                        self.fetch = None;
                        return Poll::Ready(Err(error));
                    }
                }
                None => ready!(self.poll_end(cx))?,
            }
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(fetch) = &mut self.fetch else {
            return Poll::Ready(Ok(()));
        };
        let ended = ready!(fetch.transfer.poll_end(cx));
        let is_whole = fetch.at == fetch.end;
        self.follows = is_whole.then_some(fetch.end);
        self.fetch = None;
        Poll::Ready(match ended {
            Ok(_) if !is_whole => Err(Error::ended(
                self.client.host(),
                "before the end of the data",
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Waits for the result of a fetch whose bytes have all been read, since both ends must agree
    /// on their hash.
    fn poll_all_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while let Some(fetch) = self
            .fetch
            .as_mut()
            .filter(|fetch| fetch.at == fetch.end && fetch.chunk.is_none())
        {
            if ready!(fetch.chunks.poll_recv(cx)).is_none() {
                return self.poll_end(cx);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Fetch {
    /// Discards fetched bytes before `position`. Returns true if the byte at `position` is
    /// available.
    fn skip_to(&mut self, position: u64) -> bool {
        let Some((buffer, read)) = &mut self.chunk else {
            return false;
        };
        let left = (buffer.bytes().len() - *read) as u64;
        let skipped = position.saturating_sub(self.at).min(left);
        self.at += skipped;
        *read += skipped as usize;
        if skipped < left {
            return true;
        }
        self.chunk = None;
        false
    }

    /// Takes the rest of the available chunk.
    fn take(&mut self) -> Option<ObjectChunk> {
        let (buffer, read) = self.chunk.take()?;
        let chunk = ObjectChunk { buffer, read };
        self.at += chunk.as_ref().len() as u64;
        Some(chunk)
    }

    /// Copies available bytes into the caller's buffer and returns their number.
    fn read(&mut self, into: &mut ReadBuf<'_>) -> u64 {
        let Some((buffer, read)) = &mut self.chunk else {
            return 0;
        };
        let bytes = buffer.bytes().get(*read..).unwrap_or_default();
        let len = bytes.len().min(into.remaining());
        into.put_slice(bytes.get(..len).unwrap_or_default());
        let is_used_up = len == bytes.len();
        *read += len;
        self.at += len as u64;
        if is_used_up {
            self.chunk = None;
        }
        len as u64
    }
}

/// Lets a fetch whose bytes have all been read finish in the background; cancels any other.
impl Drop for Fetch {
    fn drop(&mut self) {
        if self.at == self.end {
            self.transfer.finish_later();
        }
    }
}

impl AsyncRead for ObjectReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.position >= self.end {
            return self.poll_all_read(cx).map_err(Into::into);
        }
        ready!(self.poll_chunk(cx))?;
        let len = self.fetch.as_mut().map_or(0, |fetch| fetch.read(into));
        self.position += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for ObjectReader {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.stat.size.checked_add_signed(by),
        };
        let before = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "offset before the start of the file, or too large",
            )
        };
        self.position = position.ok_or_else(before)?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}

//! Storage of a repository at a daemon, accessed over a session.

use std::{io, ops::Range};

use hyper::{StatusCode, body::Bytes};
use nicstripe::{Client, CopyOptions, Error, FailCode, Kind, Name, ObjectWriter};
use tokio::{io::AsyncWriteExt as _, sync::mpsc};

use super::objects::{Entries, Entry, ObjectError, Objects, Pieces, Upload};

/// Storage at the daemon that a client is connected to.
#[derive(Debug, Clone)]
pub(super) struct Peer(pub(super) Client);

impl Peer {
    /// Reads up to [`PIECE`] bytes from the start of a range.
    async fn piece(&self, name: &Name, part: &Range<u64>) -> Result<Vec<u8>, Error> {
        self.0
            .read(
                name,
                Some(part.start..part.end.min(part.start.saturating_add(PIECE))),
            )
            .await
    }
}

impl Objects for Peer {
    type Upload = ObjectWriter;

    fn list(&self, directory: &Name) -> Entries {
        let (to, entries) = mpsc::channel(AHEAD);
        let mut listed = self.0.entries(Some(directory.clone()));
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    next = listed.next() => next,
                    // The reader has gone.
                    () = to.closed() => return,
                };
                let next = match next {
                    Ok(None) => return,
                    Ok(Some(entry)) => Ok(Entry::from(entry)),
                    Err(error) => Err(error.into()),
                };
                let is_last = next.is_err();
                if to.send(next).await.is_err() || is_last {
                    return;
                }
            }
        });
        entries
    }

    async fn size(&self, name: &Name) -> Result<u64, ObjectError> {
        let stat = self.0.stat(name).await?;
        match stat.kind {
            Kind::File => Ok(stat.size),
            _ => Err(ObjectError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("\"{name}\" is not a file"),
            )),
        }
    }

    /// Requests each piece of the range from the daemon while the previous piece is sent to the
    /// HTTP client. Nothing beyond the range is fetched.
    async fn read(&self, name: &Name, offset: u64, len: u64) -> Result<Pieces, ObjectError> {
        let part = offset..offset.saturating_add(len);
        // The first piece decides the HTTP status.
        let first = self.piece(name, &part).await?;
        let (to, pieces) = mpsc::channel(1);
        let (peer, name) = (self.clone(), name.clone());
        tokio::spawn(async move {
            let mut piece = Ok(first);
            let mut rest = part;
            loop {
                rest.start = rest.start.saturating_add(PIECE);
                let is_last = piece.is_err() || rest.is_empty();
                // The reader may have gone.
                if to
                    .send(piece.map(Bytes::from).map_err(io::Error::from))
                    .await
                    .is_err()
                    || is_last
                {
                    return;
                }
                piece = peer.piece(&name, &rest).await;
            }
        });
        Ok(pieces)
    }

    fn create(&self, name: &Name) -> ObjectWriter {
        self.0.create(
            name,
            CopyOptions {
                parents: true,
                ..CopyOptions::default()
            },
        )
    }

    async fn remove(&self, name: &Name) -> Result<(), ObjectError> {
        Ok(self.0.remove(name).await?)
    }

    async fn make_dir(&self, name: &Name) -> Result<(), ObjectError> {
        Ok(self.0.make_dir(name).await?)
    }
}

impl From<nicstripe::Entry> for Entry {
    fn from(entry: nicstripe::Entry) -> Self {
        Self {
            name: entry.name.file_name().to_owned(),
            size: entry.stat.size,
            is_file: entry.stat.kind == Kind::File,
        }
    }
}

impl Upload for ObjectWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<(), ObjectError> {
        Ok(self.write_all(&bytes).await?)
    }

    async fn finish(self) -> Result<(), ObjectError> {
        Self::finish(self).await?;
        Ok(())
    }
}

impl From<Error> for ObjectError {
    fn from(error: Error) -> Self {
        let status = match error.fail_code() {
            Some(FailCode::NotFound) => StatusCode::NOT_FOUND,
            Some(FailCode::Exists | FailCode::Refused | FailCode::NotPermitted) => {
                StatusCode::FORBIDDEN
            }
            Some(FailCode::NoSpace) => StatusCode::INSUFFICIENT_STORAGE,
            _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, nicstripe::chain(&error))
    }
}

/// Unwraps the library's error from the I/O error of a writer.
impl From<io::Error> for ObjectError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, nicstripe::chain(&error)),
        }
    }
}

/// Entries of a directory that wait for their reader, besides one page of the listing.
const AHEAD: usize = 64;

/// Bytes per read request to the daemon: about 16 ms of two gigabit links. Up to three pieces per
/// HTTP request are in memory.
const PIECE: u64 = 4 << 20;

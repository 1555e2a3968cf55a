//! Lists of a repository's files as JSON, written piece by piece while the storage is read: a list
//! takes the same memory whatever its length.

use std::{collections::VecDeque, io, sync::Arc};

use hyper::{StatusCode, body::Bytes};
use nicstripe::Name;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    objects::{Entries, Entry, ObjectError, Objects, Pieces},
    reply::{self, ReplyBody},
    target::Id,
};

/// Starts to list the files of these directories that belong to a repository. With `sizes`, as
/// objects with name and size (version 2 of the API), otherwise as names.
///
/// # Errors
///
/// Reading failed before the first piece was complete. A later error ends the body early.
pub(super) async fn body<O: Objects>(
    objects: Arc<O>,
    directories: Vec<Name>,
    sizes: bool,
) -> Result<ReplyBody, ObjectError> {
    let (to, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        let list = List {
            to: &to,
            piece: vec![b'['],
            files: 0,
            sizes,
        };
        let ended = tokio::select! {
            ended = list.write(&*objects, directories) => ended,
            // The client has gone.
            () = to.closed() => return,
        };
        if let Err(error) = ended {
            let _ = to.send(Err(io::Error::other(error))).await;
        }
    });
    begun(pieces).await
}

/// Waits for the first piece, which decides the HTTP status.
async fn begun(mut pieces: Pieces) -> Result<ReplyBody, ObjectError> {
    let failed = |why: String| ObjectError::new(StatusCode::INTERNAL_SERVER_ERROR, why);
    match pieces.recv().await {
        // Complete: no name contains the bracket that ends a list. The response has a length.
        Some(Ok(all)) if all.ends_with(b"]") => Ok(reply::ready(all)),
        Some(Ok(first)) => Ok(reply::list(first, pieces)),
        Some(Err(error)) => Err(error
            .downcast::<ObjectError>()
            .unwrap_or_else(|error| failed(error.to_string()))),
        None => Err(failed("the list ended early".into())),
    }
}

/// Returns the next entry of a directory, or `None` after the last. A missing directory is empty.
pub(super) async fn next(entries: &mut Entries) -> Result<Option<Entry>, ObjectError> {
    match entries.recv().await.transpose() {
        Err(error) if error.status == StatusCode::NOT_FOUND => Ok(None),
        next => next,
    }
}

struct List<'t> {
    to: &'t mpsc::Sender<io::Result<Bytes>>,
    /// Text that was not sent yet.
    piece: Vec<u8>,
    files: u64,
    sizes: bool,
}

impl List<'_> {
    async fn write(
        mut self,
        objects: &impl Objects,
        directories: Vec<Name>,
    ) -> Result<(), ObjectError> {
        let mut waiting = directories.iter();
        let mut open = VecDeque::new();
        loop {
            let free = SIDE_BY_SIDE.saturating_sub(open.len());
            open.extend(waiting.by_ref().take(free).map(|name| objects.list(name)));
            let Some(mut entries) = open.pop_front() else {
                break;
            };
            while let Some(entry) = next(&mut entries).await? {
                self.add(&entry).await?;
            }
        }
        self.piece.push(b']');
        self.send().await;
        Ok(())
    }

    /// Adds an entry, unless it is not a file of a repository.
    async fn add(&mut self, entry: &Entry) -> Result<(), ObjectError> {
        let Some(name) = Id::parse(&entry.name).filter(|_| entry.is_file) else {
            return Ok(());
        };
        let failed = |why: String| ObjectError::new(StatusCode::INTERNAL_SERVER_ERROR, why);
        if self.files == MOST_FILES {
            return Err(failed(format!("more than {MOST_FILES} files of one kind")));
        }
        if self.files > 0 {
            self.piece.push(b',');
        }
        self.files += 1;
        let (name, size) = (name.to_string(), entry.size);
        match self.sizes {
            true => serde_json::to_writer(&mut self.piece, &json!({ "name": name, "size": size })),
            false => serde_json::to_writer(&mut self.piece, &name),
        }
        .map_err(|error| failed(error.to_string()))?;
        if self.piece.len() >= PIECE {
            self.send().await;
        }
        Ok(())
    }

    async fn send(&mut self) {
        let piece = std::mem::take(&mut self.piece);
        // An error means that the client has gone, which ends the task.
        let _ = self.to.send(Ok(piece.into())).await;
    }
}

/// Bytes of a list that are sent at once.
const PIECE: usize = 64 << 10;

/// Maximum number of files in one list: 1 PiB in packs of restic's default size, 16 MiB.
const MOST_FILES: u64 = 1 << 26;

/// Number of directories listed concurrently, below the 64 concurrent requests that a session
/// accepts.
pub(super) const SIDE_BY_SIDE: usize = 32;

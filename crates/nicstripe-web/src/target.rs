//! Where fetched bytes go: into a file at any offset, or into a stream in order.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nicstripe::{FileError, storage::LocalPart};
use nicstripe_proto::{ChunkId, ChunkRange, Subtree};
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{
    blocking::blocking,
    error::WebError,
    proof::{Algorithm, Hashing},
    state::Shared,
};

/// Stream that takes a file, such as a pipe or an upload.
pub(crate) type Output<'a> = &'a mut (dyn AsyncWrite + Send + Unpin);

pub(crate) enum Target {
    File(Box<LocalPart>),
    Stream(Waiting),
}

/// Chunks that arrived before those in front of them.
#[derive(Default)]
pub(crate) struct Waiting {
    chunks: Mutex<BTreeMap<ChunkId, Vec<u8>>>,
    /// True while the reader of the stream makes the fetch wait.
    is_blocked: AtomicBool,
}

impl Target {
    /// Takes a chunk. Returns a buffer for another.
    pub(crate) fn write(&self, chunk: ChunkId, offset: u64, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::File(part) => part.write_all_at(&bytes, offset).map(|()| bytes),
            Self::Stream(waiting) => {
                waiting.chunks.lock().insert(chunk, bytes);
                Ok(Vec::new())
            }
        }
    }

    /// Makes durable what is written, and records it.
    pub(crate) fn sync(&self, subtrees: Vec<Subtree>) -> Result<(), FileError> {
        match self {
            Self::File(part) => part.sync(subtrees),
            Self::Stream(_) => Ok(()),
        }
    }

    pub(crate) fn discard(&self) {
        if let Self::File(part) = self {
            part.discard();
        }
    }

    /// Returns true if another fetch can continue with what is recorded.
    pub(crate) fn is_resumable(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Returns true while the reader of the stream makes the fetch wait.
    pub(crate) fn is_blocked(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Stream(waiting) => waiting.is_blocked.load(Ordering::Relaxed),
        }
    }
}

/// Writes the chunks to the stream in order. Returns the digest of all of them by `algorithm`, empty
/// without one; `None` if the fetch ends before.
pub(crate) async fn pour(
    shared: &Shared,
    output: Output<'_>,
    algorithm: Option<Algorithm>,
) -> Option<Vec<u8>> {
    let Target::Stream(waiting) = &shared.target else {
        return None;
    };
    let mut hashing = algorithm.map(Hashing::new);
    let mut changed = shared.traffic.changed.subscribe();
    for index in 0..shared.grid.chunk_count() {
        let chunk = ChunkId(index);
        shared
            .traffic
            .state
            .lock()
            .deal
            .limit(ChunkId(index + WINDOW));
        shared.traffic.wake();
        let bytes = loop {
            let found = waiting.chunks.lock().remove(&chunk);
            if let Some(bytes) = found {
                break bytes;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = shared.traffic.stop.cancelled() => return None,
            }
        };
        if let Some(hashing) = &mut hashing {
            hashing.update(&bytes);
        }
        waiting.is_blocked.store(true, Ordering::Relaxed);
        let written = tokio::select! {
            written = output.write_all(&bytes) => written,
            () = shared.traffic.stop.cancelled() => return None,
        };
        waiting.is_blocked.store(false, Ordering::Relaxed);
        if let Err(error) = written {
            shared.traffic.fail(WebError::Output(error));
            return None;
        }
    }
    if let Err(error) = output.flush().await {
        shared.traffic.fail(WebError::Output(error));
        return None;
    }
    Some(hashing.map(Hashing::finish).unwrap_or_default())
}

/// Hashes a file behind the chunks that arrive, as their bytes are still in memory. Returns the digest once
/// all of them have; `None` if the fetch ends before.
pub(crate) async fn hash_behind(
    shared: &Arc<Shared>,
    algorithm: Algorithm,
) -> Option<Result<Vec<u8>, WebError>> {
    let mut hashing = Hashing::new(algorithm);
    let mut changed = shared.traffic.changed.subscribe();
    let (mut next, count) = (0, shared.grid.chunk_count());
    while next < count {
        let until = shared.traffic.state.lock().deal.complete_until();
        let until = until.min(next + STEP);
        if until == next {
            tokio::select! {
                _ = changed.changed() => continue,
                () = shared.traffic.stop.cancelled() => return None,
            }
        }
        let (of, chunks) = (shared.clone(), ChunkRange::new(ChunkId(next), until - next));
        let hashed = blocking(move || {
            of.hash(chunks, &mut hashing)?;
            Ok(hashing)
        });
        hashing = match hashed.await {
            Ok(hashing) => hashing,
            Err(error) => return Some(Err(error)),
        };
        next = until;
    }
    Some(Ok(hashing.finish()))
}

impl Shared {
    fn hash(&self, chunks: ChunkRange, hashing: &mut Hashing) -> Result<(), WebError> {
        let Target::File(part) = &self.target else {
            return Ok(());
        };
        let mut buffer = Vec::new();
        for chunk in chunks.chunks() {
            let extent = self.grid.extent_of(chunk).unwrap_or_default();
            buffer.resize(extent.len as usize, 0);
            let read = part.read_exact_at(&mut buffer, extent.offset);
            read.map_err(|error| FileError::new("read back", &self.url, error))?;
            hashing.update(&buffer);
        }
        Ok(())
    }
}

/// Chunks that are hashed at a time.
const STEP: u64 = 16;

/// Chunks that a stream may wait for: 48 MiB.
pub(crate) const WINDOW: u64 = 48;

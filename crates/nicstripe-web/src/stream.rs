//! One of the requests that a link has under way: chunks arrive, are hashed and written.

use std::{io, sync::Arc};

use nicstripe_proto::{ChunkId, ChunkRange, Subtree, hash_tree::chunk_value};
use reqwest::{Response, StatusCode, Url};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Duration, sleep, timeout},
};

use crate::{
    answer::Answer,
    ask::{Wish, other_range},
    error::{Breach, LinkError},
    moving::Pauses,
    state::Shared,
};

/// Why a request ended before its last byte.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The link did not bring it.
    Link(LinkError),
    /// The whole fetch has failed or ended.
    All,
}

impl From<LinkError> for Stop {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<Breach> for Stop {
    fn from(breach: Breach) -> Self {
        Self::Link(breach.into())
    }
}

/// Fetches runs over a link until nothing is left, or the link is of no use.
pub(crate) async fn stream(shared: Arc<Shared>, link: usize) {
    let stop = &shared.traffic.stop;
    let mut pauses = Pauses::default();
    while let Some(run) = shared.traffic.turn(link).await {
        let mut request = Request::new(&shared, link, run);
        let fetched = tokio::select! {
            fetched = request.fetch() => fetched,
            () = stop.cancelled() => Err(Stop::All),
        };
        // Nothing may write into the file once it has its name.
        let ended = fetched.and(request.written().await.map(drop));
        let has_failed = ended.is_err();
        shared.traffic.ended(link, run, request.unread, has_failed);
        let wait = match ended {
            Ok(()) => {
                pauses = Pauses::default();
                continue;
            }
            Err(Stop::All) => return,
            Err(Stop::Link(error)) => {
                let wait = pauses.after(&error);
                if shared
                    .lost(link, error, request.location.as_ref())
                    .is_break()
                {
                    return;
                }
                wait
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Request for a run of chunks.
struct Request<'a> {
    shared: &'a Arc<Shared>,
    link: usize,
    run: ChunkRange,
    /// Bytes of the run that have not arrived.
    unread: u64,
    /// Where it was sent.
    location: Option<Url>,
    /// Write of the last full chunk.
    writing: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl<'a> Request<'a> {
    fn new(shared: &'a Arc<Shared>, link: usize, run: ChunkRange) -> Self {
        let unread = shared.grid.extent_of_range(run).unwrap_or_default().len;
        Self {
            shared,
            link,
            run,
            unread,
            location: None,
            writing: None,
        }
    }

    async fn fetch(&mut self) -> Result<(), Stop> {
        let shared = self.shared;
        let (location, expected) = shared.location(self.link).await?;
        self.location = Some(location.clone());
        let extent = shared.grid.extent_of_range(self.run).unwrap_or_default();
        let (from, to) = (extent.offset, extent.offset + extent.len);
        let wish = Wish::Part(from, to, expected.condition());
        let link = &shared.links[self.link];
        let response = link.asked.send(link, &location, wish).await?;
        let answer = Answer::of(response.status(), response.headers());
        // The file has no such bytes any more.
        if let Err(LinkError::Refused(StatusCode::RANGE_NOT_SATISFIABLE)) = &answer {
            return Err(Breach::OtherVersion("a shorter file".to_owned()).into());
        }
        match answer? {
            Answer::Part { version, .. } | Answer::Whole(version)
                if expected.is_contradicted_by(&version) =>
            {
                return Err(Breach::OtherVersion(version.to_string()).into());
            }
            Answer::Part {
                from: first,
                to: end,
                ..
            } if (first, end) == (from, to) => {}
            Answer::Part {
                from: first,
                to: end,
                ..
            } => {
                return Err(other_range(from, to, first, end).into());
            }
            Answer::Whole(_) => return Err(other_range(from, to, 0, shared.grid.size).into()),
        }
        self.receive(response).await
    }

    /// Takes the bytes of the answer, chunk by chunk, as long as one of them is still wanted.
    async fn receive(&mut self, mut response: Response) -> Result<(), Stop> {
        let mut chunks = self.run.chunks();
        let Some(mut chunk) = chunks.next() else {
            return Ok(());
        };
        let mut buffer = Vec::new();
        while self.unread > 0 {
            let silence = match self.shared.traffic.state.lock().has_others(self.link) {
                true => SILENCE,
                false => SILENCE_ALONE,
            };
            let piece = match timeout(silence, response.chunk()).await {
                Ok(piece) => piece.map_err(LinkError::of_request)?,
                Err(_) => return Err(LinkError::Silent(silence.as_secs()).into()),
            };
            let Some(mut piece) = piece else {
                return Err(Breach::Short {
                    missing: self.unread,
                }
                .into());
            };
            if piece.len() as u64 > self.unread {
                return Err(Breach::Long.into());
            }
            self.unread -= piece.len() as u64;
            self.shared.traffic.heard(self.link, piece.len() as u64);
            while !piece.is_empty() {
                let length = self.shared.grid.extent_of(chunk).unwrap_or_default().len as usize;
                let taken = piece.split_to(piece.len().min(length - buffer.len()));
                buffer.extend_from_slice(&taken);
                if buffer.len() < length {
                    break;
                }
                buffer = self.write(chunk, buffer).await?;
                match chunks.next() {
                    Some(next) => chunk = next,
                    None => return Ok(()),
                }
            }
            let end = self.run.first.0 + self.run.count;
            let left = ChunkRange::new(chunk, end - chunk.0);
            if !self.shared.wants_any(self.link, left) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Begins to write a chunk, once the one before is written. Returns a buffer for the next.
    async fn write(&mut self, chunk: ChunkId, bytes: Vec<u8>) -> Result<Vec<u8>, Stop> {
        let empty = self.written().await?;
        let shared = self.shared.clone();
        let link = self.link;
        self.writing = Some(spawn_blocking(move || shared.store(link, chunk, bytes)));
        let mut empty = empty.unwrap_or_default();
        empty.clear();
        Ok(empty)
    }

    /// Waits for the write that is under way. Returns its buffer.
    async fn written(&mut self) -> Result<Option<Vec<u8>>, Stop> {
        let Some(writing) = &mut self.writing else {
            return Ok(None);
        };
        let written = writing.await;
        self.writing = None;
        let error = match written {
            Ok(Ok(buffer)) => return Ok(Some(buffer)),
            Ok(Err(error)) => error,
            Err(panicked) => io::Error::other(panicked),
        };
        self.shared.traffic.fail(self.shared.of_disk(error));
        Err(Stop::All)
    }
}

impl Shared {
    /// Hashes a chunk and writes it, unless another link was faster. Returns a buffer for another.
    fn store(&self, link: usize, chunk: ChunkId, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        {
            let mut state = self.traffic.state.lock();
            if !state.deal.wants(link, chunk) || state.file.writing.insert(chunk) == 0 {
                return Ok(bytes);
            }
        }
        let extent = self.grid.extent_of(chunk).unwrap_or_default();
        let value = chunk_value(self.grid, chunk, &bytes).map_err(io::Error::other)?;
        let buffer = self.target.write(chunk, extent.offset, bytes)?;
        let mut state = self.traffic.state.lock();
        if state.deal.stored(link, chunk) {
            state.file.keep(Subtree::of_chunk(chunk, value), extent.len);
            if state.file.versions.len() > 1 {
                let source = self.links[link].source;
                state.file.brought.push((chunk, source, value));
            }
            drop(state);
            self.traffic.wake();
        }
        Ok(buffer)
    }
}

/// Silence after which a request is abandoned and its link retried, while another link carries.
const SILENCE: Duration = Duration::from_secs(3);

/// Like [`SILENCE`], while no other link carries: the part of a chunk that has arrived would be lost.
const SILENCE_ALONE: Duration = Duration::from_secs(15);

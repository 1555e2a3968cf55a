//! Parts of an upload on their way: links take parts until the store has all of them.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};
use nicstripe::{Event, Report};
use nicstripe_proto::{
    ChunkId, ChunkRange, ChunkSet,
    deal::{Deal, Pieces, SUSPECT_AFTER},
};
use parking_lot::Mutex;
use reqwest::Method;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    task::JoinSet,
    time::{interval, sleep},
};
use tokio_util::{bytes::Bytes, sync::CancellationToken};

use super::{
    place::S3Place,
    source::{Source, base64, crc64, joined, of_base64},
    store::{Call, Store},
    unfinished::{StoredPart, Unfinished},
};
use crate::{
    blocking::blocking,
    climb::Climb,
    clock::now,
    error::{LinkError, WebError},
    moving::{LinkNow, Moving, Pauses, Tell, Traffic},
    url::WebUrl,
};

/// Upload that the store knows, with its record and the parts of an earlier run.
pub(crate) struct Begun {
    pub(crate) id: String,
    /// True if the store compares CRC-64/NVME.
    pub(crate) has_checksum: bool,
    pub(crate) record: Option<Unfinished>,
    pub(crate) parts: Vec<StoredPart>,
}

/// Source of the parts.
pub(crate) enum From {
    File(Arc<Source>),
    /// Parts of a pipe that the store does not have yet.
    Pipe(Mutex<BTreeMap<u64, Bytes>>),
}

/// Upload in parts that runs.
pub(crate) struct Going {
    store: Arc<Store>,
    url: WebUrl,
    place: S3Place,
    pub(crate) upload: String,
    pub(crate) has_checksum: bool,
    from: From,
    pieces: Pieces,
    streams: usize,
    pub(crate) traffic: Traffic<Parts>,
}

/// What the store has of an upload.
pub(crate) struct Parts {
    /// Tag and checksum of each part that the store has.
    pub(crate) stored: BTreeMap<u64, (String, String)>,
    pub(crate) record: Option<Unfinished>,
    /// How often the store failed to take a part.
    store_failures: BTreeMap<u64, u32>,
    /// Length of a pipe once it has ended.
    length: Option<u64>,
}

impl Going {
    pub(crate) fn new(
        store: &Arc<Store>,
        place: &S3Place,
        streams: usize,
        from: From,
        pieces: Pieces,
        begun: Begun,
        (stop, tell): (&CancellationToken, &Tell),
    ) -> Result<Self, WebError> {
        let stored: BTreeMap<u64, (String, String)> = begun
            .parts
            .into_iter()
            .filter(|stored| stored.part < pieces.count())
            .map(|stored| (stored.part, (stored.etag, stored.crc64)))
            .collect();
        let have: ChunkSet = stored
            .keys()
            .map(|part| ChunkRange::from(ChunkId(*part)))
            .collect();
        let links = store.links.iter().map(|link| {
            let (shown, climb) = (link.interface.clone(), Climb::new(streams, streams));
            LinkNow::new(&link.interface, shown, link.remote(), climb)
        });
        let links: Vec<_> = links.collect();
        let mut deal = Deal::new(pieces, have, links.len()).one_by_one();
        if let From::Pipe(_) = &from {
            deal.limit(ChunkId(0));
        }
        let parts = Parts {
            stored,
            record: begun.record,
            store_failures: BTreeMap::new(),
            length: None,
        };
        Ok(Self {
            url: store.account().url(place)?,
            store: store.clone(),
            place: place.clone(),
            upload: begun.id,
            has_checksum: begun.has_checksum,
            from,
            pieces,
            streams,
            traffic: Traffic::new(Moving::new(deal, links, parts), stop, tell.clone()),
        })
    }

    /// Sends all parts over all links.
    pub(crate) async fn run(self: Arc<Self>, patience: Duration) -> Result<(), WebError> {
        let traffic = &self.traffic;
        let mut streams = JoinSet::new();
        for link in 0..self.store.links.len() {
            for _ in 0..self.streams {
                streams.spawn(self.clone().stream(link));
            }
        }
        let tick = |_: &mut JoinSet<()>| {
            let mut state = traffic.state.lock();
            let progress = state.progress(self.size(&state.file));
            let is_too_slow = state.is_too_slow(patience, 0, false);
            let causes = is_too_slow.then(|| state.causes());
            drop(state);
            (traffic.tell)(Event::Progress(progress));
            if let Some(causes) = causes {
                traffic.fail(WebError::TimedOut {
                    url: self.place.to_string(),
                    seconds: patience.as_secs(),
                    causes,
                    resumable: false,
                });
            }
        };
        traffic.watch(&mut streams, tick).await;
        traffic.stop.cancel();
        while streams.join_next().await.is_some() {}
        let mut state = traffic.state.lock();
        match (state.deal.is_done(), state.error.take()) {
            (true, _) => Ok(()),
            (false, error) => Err(error.unwrap_or(WebError::Cancelled { resumable: false })),
        }
    }

    /// Reads the parts of a pipe as they are needed. An error ends the upload.
    pub(crate) async fn fill(
        &self,
        first: Bytes,
        input: &mut (dyn AsyncRead + Send + Unpin),
        part: u64,
    ) {
        let From::Pipe(waiting) = &self.from else {
            return;
        };
        let traffic = &self.traffic;
        let window = self.store.links.len() * self.streams + 1;
        let mut length = 0;
        let mut next = first;
        let mut changed = traffic.changed.subscribe();
        for number in 0.. {
            if number == MOST_PARTS && !next.is_empty() {
                return traffic.fail(WebError::TooLong { parts: MOST_PARTS });
            }
            length += next.len() as u64;
            let is_last = (next.len() as u64) < part;
            let known = number + u64::from(!next.is_empty());
            if !next.is_empty() {
                waiting.lock().insert(number, next);
            }
            {
                let mut state = traffic.state.lock();
                state.deal.limit(ChunkId(known));
                if is_last {
                    state.file.length = Some(length);
                    state.deal.end_at(ChunkId(known));
                }
            }
            traffic.wake();
            if is_last {
                return;
            }
            while waiting.lock().len() >= window {
                tokio::select! {
                    _ = changed.changed() => {}
                    () = traffic.stop.cancelled() => return,
                }
            }
            next = tokio::select! {
                next = read_part(input, part) => match next {
                    Ok(next) => next,
                    Err(error) => return traffic.fail(error),
                },
                () = traffic.stop.cancelled() => return,
            };
            // A slow source is no timeout of the store.
            let mut state = traffic.state.lock();
            state.heard = (now(), state.moved);
        }
    }

    /// Sends parts over a link until nothing is left, or the store refuses.
    async fn stream(self: Arc<Self>, link: usize) {
        let traffic = &self.traffic;
        let mut pauses = Pauses::default();
        while let Some(run) = traffic.turn(link).await {
            let part = run.first;
            let heard = Arc::new(AtomicU64::new(0));
            let sent = tokio::select! {
                sent = self.send(link, part, &heard) => sent,
                () = traffic.stop.cancelled() => return,
            };
            let unsent = self
                .pieces
                .len(run)
                .saturating_sub(heard.load(Ordering::Relaxed));
            let lost = match sent {
                Ok(Some((etag, crc64))) => {
                    self.store_part(link, part, etag, crc64);
                    None
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            traffic.ended(link, run, unsent, lost.is_some());
            let Some(error) = lost else {
                pauses = Pauses::default();
                continue;
            };
            let wait = pauses.after(&error);
            self.lost(link, part, error);
            tokio::select! {
                () = sleep(wait) => {}
                () = traffic.stop.cancelled() => return,
            }
        }
    }

    /// Sends a part. Returns its tag and checksum; `None` if another link was faster, or the upload fails.
    async fn send(
        &self,
        link: usize,
        part: ChunkId,
        heard: &Arc<AtomicU64>,
    ) -> Result<Option<(String, String)>, LinkError> {
        let with_crc = |bytes: Bytes| (crc64(&bytes), bytes);
        let read = match &self.from {
            From::File(source) => {
                let source = source.clone();
                blocking(move || source.read(part).map(with_crc)).await
            }
            From::Pipe(waiting) => match waiting.lock().get(&part.0).cloned() {
                Some(bytes) => Ok(with_crc(bytes)),
                None => return Ok(None),
            },
        };
        let (crc, bytes) = match read {
            Ok(read) => read,
            Err(error) => {
                self.traffic.fail(error);
                return Ok(None);
            }
        };
        let (length, crc) = (bytes.len() as u64, base64(crc));
        let body = reqwest::Body::wrap(Counted {
            left: bytes.clone(),
            heard: heard.clone(),
        });
        let mut call = Call::new(Method::PUT, &self.place)
            .query("partNumber", (part.0 + 1).to_string())
            .query("uploadId", self.upload.clone())
            .body(bytes);
        if self.has_checksum {
            call = call.header("x-amz-checksum-crc64nvme", &crc);
        }
        let of_link = &self.store.links[link];
        let sending = self.store.answer(of_link, &self.url, &call, body);
        let mut sending = std::pin::pin!(sending);
        let mut ticks = interval(TICK);
        let (mut before, mut moved) = (0, now());
        let reply = loop {
            tokio::select! {
                reply = &mut sending => break reply,
                _ = ticks.tick() => {
                    let sent = heard.load(Ordering::Relaxed);
                    if sent > before {
                        self.traffic.heard(link, sent - before);
                        (before, moved) = (sent, now());
                    }
                    let silence = match sent < length {
                        true => SILENCE,
                        false => SILENCE_AT_END,
                    };
                    if now() - moved >= silence {
                        return Err(LinkError::Silent(silence.as_secs()));
                    }
                    if !self.traffic.state.lock().deal.wants(link, part) {
                        return Ok(None);
                    }
                }
            }
        };
        let reply = reply?;
        let rest = heard.load(Ordering::Relaxed).saturating_sub(before);
        self.traffic.heard(link, rest);
        if let Some((_, remote)) = reply.by {
            self.traffic.state.lock().links[link].name.remote = remote;
        }
        let etag = reply.header("etag");
        let etag = etag.filter(|etag| etag.len() < 1024 && !etag.contains(char::is_control));
        match etag {
            Some(etag) => Ok(Some((etag.to_owned(), crc))),
            None => Err(LinkError::Connection(
                "the store's answer has no e-tag".to_owned(),
            )),
        }
    }

    /// Notes a part that the store has.
    fn store_part(&self, link: usize, part: ChunkId, etag: String, crc64: String) {
        let mut state = self.traffic.state.lock();
        let is_first = state.deal.stored(link, part);
        if let (true, Some(record)) = (is_first, &mut state.file.record) {
            let stored = StoredPart {
                part: part.0,
                etag: etag.clone(),
                crc64: crc64.clone(),
            };
            if let Err(error) = record.add(&stored) {
                tracing::warn!(%error, "a part will be sent again after an interruption");
            }
        }
        // Of a part that two links have sent, the last answer counts.
        state.file.stored.insert(part.0, (etag, crc64));
        drop(state);
        if let From::Pipe(waiting) = &self.from {
            waiting.lock().remove(&part.0);
        }
        self.traffic.wake();
    }

    /// Notes that a part was not taken. What the store refuses ends the upload, and a part that it fails
    /// to take again and again.
    fn lost(&self, link: usize, part: ChunkId, error: LinkError) {
        let is_hopeless = error.store().is_some() && {
            let mut state = self.traffic.state.lock();
            let failures = state.file.store_failures.entry(part.0).or_default();
            *failures += 1;
            *failures > MOST_FAILURES
        };
        if !error.is_final() && !is_hopeless {
            return self.traffic.down(link, error);
        }
        self.traffic.fail(WebError::NoAnswer {
            url: self.place.to_string(),
            causes: vec![(self.store.links[link].interface.clone(), error)],
            resumable: false,
        });
    }

    pub(crate) fn crc64(&self) -> u64 {
        let parts = self.traffic.state.lock().file.stored.clone();
        parts.iter().fold(0, |all, (part, (_, crc))| {
            let length = self.pieces_len(*part).unwrap_or_default();
            joined(all, of_base64(crc).unwrap_or_default(), length)
        })
    }

    pub(crate) fn pieces_len(&self, part: u64) -> Option<u64> {
        let size = self.traffic.state.lock().file.length;
        let pieces = Pieces {
            size: size.unwrap_or(self.pieces.size),
            ..self.pieces
        };
        (part < pieces.count()).then(|| pieces.len(ChunkId(part).into()))
    }

    /// Returns the size, which a pipe has at its end only.
    fn size(&self, parts: &Parts) -> Option<u64> {
        match &self.from {
            From::File(_) => Some(self.pieces.size),
            From::Pipe(_) => parts.length,
        }
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.traffic.state.lock();
        state.report(self.size(&state.file).unwrap_or_default())
    }
}

/// Reads until a part is full or the pipe ends.
pub(crate) async fn read_part(
    input: &mut (dyn AsyncRead + Send + Unpin),
    part: u64,
) -> Result<Bytes, WebError> {
    let mut bytes = Vec::new();
    let read = input.take(part).read_to_end(&mut bytes).await;
    read.map_err(|error| nicstripe::FileError::new("read", "the input", error))?;
    Ok(bytes.into())
}

/// Body that counts what was taken of it.
struct Counted {
    left: Bytes,
    heard: Arc<AtomicU64>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.left.len().min(PIECE);
        let piece = self.left.split_to(length);
        self.heard.fetch_add(length as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

/// Parts of an object at most (limit of S3).
pub(crate) const MOST_PARTS: u64 = 10_000;

/// Bytes of a body that are handed over at a time.
const PIECE: usize = 64 << 10;

const TICK: Duration = Duration::from_millis(100);

/// Errors of the store for one part after which the upload fails: with the pauses between, two minutes.
const MOST_FAILURES: u32 = 24;

/// Silence after which a part is abandoned and its link retried.
const SILENCE: Duration = SUSPECT_AFTER.saturating_mul(3);

/// Timeout for the response after the last byte: the store makes the part durable.
const SILENCE_AT_END: Duration = Duration::from_secs(60);

//! Parts of an upload on their way: links take parts until the store has all of them.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::body::{Body, Frame, SizeHint};
use nicstripe::{Event, LinkName, LinkProgress, LinkReport, LinkState, Progress, Report};
use nicstripe_proto::{
    BitRate, ChunkId, ChunkRange, ChunkSet,
    deal::{Deal, Pieces, SUSPECT_AFTER, Turn},
};
use parking_lot::Mutex;
use reqwest::Method;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, sleep_until},
};
use tokio_util::{bytes::Bytes, sync::CancellationToken};

use super::{
    place::S3Place,
    source::{Source, base64, crc64, joined, of_base64},
    store::{Call, Store, StoreLink},
    unfinished::{StoredPart, Unfinished},
};
use crate::{
    blocking::blocking,
    clock::now,
    error::{LinkError, WebError},
    state::Tell,
    url::WebUrl,
};

/// Upload that the store knows.
pub(crate) struct Begun {
    pub(crate) id: String,
    /// True if the store compares CRC-64/NVME.
    pub(crate) has_checksum: bool,
}

/// Record of an upload, with the parts of an earlier run.
#[derive(Default)]
pub(crate) struct Kept {
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
    pub(crate) state: Mutex<GoingState>,
    changed: watch::Sender<u64>,
    stop: CancellationToken,
}

pub(crate) struct GoingState {
    pub(crate) deal: Deal,
    links: Vec<UpLink>,
    /// Tag and checksum of each part that the store has.
    pub(crate) parts: BTreeMap<u64, (String, String)>,
    pub(crate) record: Option<Unfinished>,
    /// How often the store failed to take a part.
    store_failures: BTreeMap<u64, u32>,
    error: Option<WebError>,
    /// Bytes that were sent, also those of parts that failed.
    sent: u64,
    pub(crate) resumed: u64,
    failovers: u32,
    /// When something moved last, and the bytes sent until then.
    heard: (Instant, u64),
    /// Length of a pipe once it has ended.
    length: Option<u64>,
    /// True if the pipe is longer than all parts.
    pub(crate) is_broken: bool,
}

pub(crate) struct UpLink {
    name: LinkName,
    state: LinkState,
    cause: Option<LinkError>,
    failures: u32,
}

impl Going {
    pub(crate) fn new(
        store: &Arc<Store>,
        place: &S3Place,
        streams: usize,
        from: From,
        pieces: Pieces,
        begun: Begun,
        kept: Kept,
    ) -> Result<Self, WebError> {
        let Kept { record, parts } = kept;
        let parts: BTreeMap<u64, (String, String)> = parts
            .into_iter()
            .filter(|stored| stored.part < pieces.count())
            .map(|stored| (stored.part, (stored.etag, stored.crc64)))
            .collect();
        let have: ChunkSet = parts
            .keys()
            .map(|part| ChunkRange::from(ChunkId(*part)))
            .collect();
        let links = store.links.iter().map(|link| UpLink {
            name: LinkName::new(link.interface.clone(), link.remote()),
            state: LinkState::Connecting,
            cause: None,
            failures: 0,
        });
        let links: Vec<_> = links.collect();
        let deal = Deal::new(pieces, have, links.len()).one_by_one();
        Ok(Self {
            url: store.account().url(place)?,
            store: store.clone(),
            place: place.clone(),
            upload: begun.id,
            has_checksum: begun.has_checksum,
            from,
            pieces,
            streams,
            state: Mutex::new(GoingState {
                resumed: deal.bytes_stored(),
                deal,
                links,
                parts,
                record,
                store_failures: BTreeMap::new(),
                error: None,
                sent: 0,
                failovers: 0,
                heard: (now(), 0),
                length: None,
                is_broken: false,
            }),
            changed: watch::Sender::new(0),
            stop: CancellationToken::new(),
        })
    }

    /// Sends all parts over all links.
    pub(crate) async fn run(
        self: Arc<Self>,
        stop: &CancellationToken,
        tell: &Tell,
        patience: Duration,
    ) -> Result<(), WebError> {
        let mut streams = JoinSet::new();
        for link in 0..self.store.links.len() {
            for _ in 0..self.streams {
                streams.spawn(self.clone().stream(link, tell.clone()));
            }
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                ended = streams.join_next() => if ended.is_none() || self.state.lock().deal.is_done() {
                    break;
                },
                () = stop.cancelled() => break,
                () = self.stop.cancelled() => break,
                _ = ticks.tick() => {
                    tell(Event::Progress(self.progress()));
                    if let Some(error) = self.too_slow(patience) {
                        self.fail(error);
                    }
                }
            }
        }
        self.stop.cancel();
        while streams.join_next().await.is_some() {}
        let mut state = self.state.lock();
        match (state.deal.is_done(), state.error.take()) {
            (true, _) => Ok(()),
            (false, error) => Err(error.unwrap_or(WebError::Cancelled { resumable: false })),
        }
    }

    /// Reads the parts of a pipe as they are needed.
    pub(crate) async fn fill(
        &self,
        first: Bytes,
        input: &mut (dyn AsyncRead + Send + Unpin),
        part: u64,
        stop: &CancellationToken,
    ) -> Result<(), WebError> {
        let From::Pipe(waiting) = &self.from else {
            return Ok(());
        };
        let window = self.store.links.len() * self.streams + 1;
        let mut length = 0;
        let mut next = first;
        let mut changed = self.changed.subscribe();
        for number in 0.. {
            if number == MOST_PARTS {
                self.state.lock().is_broken = true;
                stop.cancel();
                return Ok(());
            }
            length += next.len() as u64;
            let is_last = (next.len() as u64) < part;
            let known = number + u64::from(!next.is_empty());
            if !next.is_empty() {
                waiting.lock().insert(number, next);
            }
            {
                let mut state = self.state.lock();
                state.deal.limit(ChunkId(known));
                if is_last {
                    state.length = Some(length);
                    state.deal.end_at(ChunkId(known));
                }
            }
            self.wake();
            if is_last {
                break;
            }
            while waiting.lock().len() >= window {
                tokio::select! {
                    _ = changed.changed() => {}
                    () = self.stop.cancelled() => return Ok(()),
                }
            }
            next = tokio::select! {
                next = read_part(input, part) => match next {
                    Ok(next) => next,
                    Err(error) => {
                        stop.cancel();
                        return Err(error);
                    }
                },
                () = self.stop.cancelled() => return Ok(()),
            };
            // A slow source is no timeout of the store.
            let sent = self.state.lock().sent;
            self.state.lock().heard = (now(), sent);
        }
        Ok(())
    }

    /// Sends parts over a link until nothing is left, or the store refuses.
    async fn stream(self: Arc<Self>, link: usize, tell: Tell) {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut changed = self.changed.subscribe();
            let turn = self.state.lock().deal.next(link, now());
            let part = match turn {
                Turn::Done => return,
                Turn::Fetch(run) => run.first,
                Turn::Wait(until) => {
                    let until = until.unwrap_or_else(|| now() + Duration::from_secs(1));
                    tokio::select! {
                        _ = changed.changed() => {}
                        () = sleep_until(until.into()) => {}
                        () = self.stop.cancelled() => return,
                    }
                    continue;
                }
            };
            let heard = Arc::new(AtomicU64::new(0));
            let sent = tokio::select! {
                sent = self.send(link, part, &heard, &tell) => sent,
                () = self.stop.cancelled() => Ok(None),
            };
            let unsent = self
                .pieces
                .len(part.into())
                .saturating_sub(heard.load(Ordering::Relaxed));
            let lost = match sent {
                Ok(Some((etag, crc64))) => {
                    self.store_part(link, part, etag, crc64);
                    None
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            self.state
                .lock()
                .deal
                .ended(link, part.into(), unsent, lost.is_some(), now());
            self.wake();
            match lost {
                None if self.stop.is_cancelled() => return,
                None => pause = FIRST_PAUSE,
                Some(error) => {
                    let wait = pause.max(error.asked_pause());
                    self.lost(link, part, error, &tell);
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = self.stop.cancelled() => return,
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Sends a part. Returns its tag and checksum; `None` if another link was faster, or the upload fails.
    async fn send(
        &self,
        link: usize,
        part: ChunkId,
        heard: &Arc<AtomicU64>,
        tell: &Tell,
    ) -> Result<Option<(String, String)>, LinkError> {
        let read = match &self.from {
            From::File(source) => {
                let source = source.clone();
                blocking(move || {
                    let bytes = source.read(part)?;
                    let crc = crc64(&bytes);
                    Ok((bytes, crc))
                })
                .await
            }
            From::Pipe(waiting) => match waiting.lock().get(&part.0).cloned() {
                Some(bytes) => {
                    let crc = crc64(&bytes);
                    Ok((bytes, crc))
                }
                None => return Ok(None),
            },
        };
        let (bytes, crc) = match read {
            Ok(read) => read,
            Err(error) => {
                self.fail(error);
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
        let of_link: &StoreLink = &self.store.links[link];
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
                        self.heard(link, sent - before, tell);
                        (before, moved) = (sent, now());
                    }
                    let silence = match sent < length {
                        true => SILENCE,
                        false => SILENCE_AT_END,
                    };
                    if now() - moved >= silence {
                        return Err(LinkError::Silent(silence.as_secs()));
                    }
                    if !self.state.lock().deal.wants(link, part) {
                        return Ok(None);
                    }
                }
            }
        };
        let ((headers, _), remote) = reply?;
        self.heard(
            link,
            heard.load(Ordering::Relaxed).saturating_sub(before),
            tell,
        );
        if let Some(remote) = remote {
            self.state.lock().links[link].name.remote = remote;
        }
        let etag = headers.get("etag").and_then(|etag| etag.to_str().ok());
        let etag = etag.filter(|etag| etag.len() < 1024 && !etag.contains(char::is_control));
        match etag {
            Some(etag) => Ok(Some((etag.to_owned(), crc))),
            None => Err(LinkError::Connection(
                "the store's answer has no e-tag".to_owned(),
            )),
        }
    }

    /// Notes bytes that left.
    fn heard(&self, link: usize, bytes: u64, tell: &Tell) {
        let mut state = self.state.lock();
        state.deal.heard(link, bytes, now());
        state.sent += bytes;
        let now = &mut state.links[link];
        if now.state != LinkState::Up {
            now.state = LinkState::Up;
            let link = now.name.clone();
            drop(state);
            tell(Event::Link {
                link,
                state: LinkState::Up,
            });
        }
    }

    /// Notes a part that the store has.
    fn store_part(&self, link: usize, part: ChunkId, etag: String, crc64: String) {
        let mut state = self.state.lock();
        let is_first = state.deal.stored(link, part);
        if let (true, Some(record)) = (is_first, &mut state.record) {
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
        state.parts.insert(part.0, (etag, crc64));
        drop(state);
        if let From::Pipe(waiting) = &self.from {
            waiting.lock().remove(&part.0);
        }
        self.wake();
    }

    /// Notes that a part was not taken. What the store refuses ends the upload, and a part that it fails
    /// to take again and again.
    fn lost(&self, link: usize, part: ChunkId, error: LinkError, tell: &Tell) {
        let is_hopeless = error.store().is_some() && {
            let mut state = self.state.lock();
            let failures = state.store_failures.entry(part.0).or_default();
            *failures += 1;
            *failures > MOST_FAILURES
        };
        if error.is_final() || is_hopeless {
            self.fail(WebError::NoAnswer {
                url: self.place.to_string(),
                causes: vec![(self.store.links[link].interface.clone(), error)],
                resumable: false,
            });
            return;
        }
        let mut state = self.state.lock();
        let was_up = state.links[link].state == LinkState::Up;
        state.failovers += u32::from(was_up);
        let now = &mut state.links[link];
        now.failures += u32::from(was_up);
        now.state = LinkState::Down(error.to_string());
        now.cause = Some(error);
        let said = (now.name.clone(), now.state.clone());
        drop(state);
        if was_up {
            tell(Event::Link {
                link: said.0,
                state: said.1,
            });
        }
    }

    fn fail(&self, error: WebError) {
        self.state.lock().error.get_or_insert(error);
        self.stop.cancel();
    }

    fn too_slow(&self, patience: Duration) -> Option<WebError> {
        let mut state = self.state.lock();
        let (since, sent) = state.heard;
        let time = now() - since;
        if state.sent > sent {
            state.heard = (now(), state.sent);
            return None;
        }
        (time >= patience).then(|| WebError::TimedOut {
            url: self.place.to_string(),
            seconds: patience.as_secs(),
            causes: state
                .links
                .iter()
                .filter_map(|link| Some((link.name.interface.clone(), link.cause.clone()?)))
                .collect(),
            resumable: false,
        })
    }

    /// Returns the CRC of all parts.
    pub(crate) fn crc64(&self) -> u64 {
        let parts = self.state.lock().parts.clone();
        parts.iter().fold(0, |all, (part, (_, crc))| {
            let length = self.pieces_len(*part).unwrap_or_default();
            joined(all, of_base64(crc).unwrap_or_default(), length)
        })
    }

    pub(crate) fn pieces_len(&self, part: u64) -> Option<u64> {
        let whole = self.state.lock().length;
        let pieces = match whole {
            Some(size) => Pieces {
                size,
                ..self.pieces
            },
            None => self.pieces,
        };
        (part < pieces.count()).then(|| pieces.len(ChunkId(part).into()))
    }

    fn wake(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns the size, which a pipe has at its end only.
    fn size(&self, state: &GoingState) -> Option<u64> {
        match &self.from {
            From::File(_) => Some(self.pieces.size),
            From::Pipe(_) => state.length,
        }
    }

    fn progress(&self) -> Progress {
        let at = now();
        let state = self.state.lock();
        let size = self.size(&state);
        let mut progress = Progress::default();
        progress.bytes = state.deal.bytes_stored();
        progress.size = size.unwrap_or(progress.bytes);
        progress.open = size.is_none();
        progress.resumed = state.resumed;
        for (index, link) in state.links.iter().enumerate() {
            let mut of_link = LinkProgress::new(link.name.clone());
            (of_link.bytes, of_link.rate) = state.deal.of_link(index, at);
            of_link.state = match &link.state {
                LinkState::Up if state.deal.is_suspect(index, at) => LinkState::Suspect,
                state => state.clone(),
            };
            progress.rate = BitRate(progress.rate.0 + of_link.rate.0);
            progress.links.push(of_link);
        }
        progress
    }

    pub(crate) fn report(&self) -> Report {
        let state = self.state.lock();
        let mut report = Report::default();
        report.size = self.size(&state).unwrap_or_default();
        report.wire_bytes = state.sent;
        report.resumed_bytes = state.resumed;
        report.resent_bytes = state.sent.saturating_sub(report.size - state.resumed);
        report.failovers = state.failovers;
        for (index, link) in state.links.iter().enumerate() {
            let mut of_link = LinkReport::new(link.name.clone());
            of_link.bytes = state.deal.of_link(index, now()).0;
            of_link.wire_bytes = of_link.bytes;
            of_link.state = link.state.clone();
            of_link.failures = link.failures;
            report.links.push(of_link);
        }
        report
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

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Errors of the store for one part after which the upload fails: with the pauses between, two minutes.
const MOST_FAILURES: u32 = 24;

/// Silence after which a part is abandoned and its link retried.
const SILENCE: Duration = SUSPECT_AFTER.saturating_mul(3);

/// Timeout for the response after the last byte: the store makes the part durable.
const SILENCE_AT_END: Duration = Duration::from_secs(60);

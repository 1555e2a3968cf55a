//! An upload, from its first request to the object.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe::{Digest, Event, LinkName, LinkReport, LinkState, Report};
use nicstripe_proto::{BitRate, ChunkId, deal::Pieces};
use parking_lot::Mutex;
use reqwest::Method;
use tokio::io::AsyncRead;
use tokio_util::{bytes::Bytes, sync::CancellationToken};

use super::{
    place::S3Place,
    sending::{Begun, From, Going, MOST_PARTS, read_part},
    source::{Source, base64, crc64},
    store::{Call, Reply, Store},
    unfinished::{self, Unfinished},
    xml::{
        BegunBody, CompleteBody, CompletePart, CompletedBody, CreatedBody, PartsBody, UploadsBody,
        parsed,
    },
};
use crate::{
    blocking::blocking,
    clock::now,
    error::WebError,
    moving::Tell,
    proof::{Algorithm, Proof},
    store_error::StoreError,
};

/// Options of an upload. The default replaces nothing and continues what an earlier run began.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UploadOptions {
    /// Replace an object of that key.
    pub replace: bool,
    /// Begin from zero even if an earlier run has sent parts.
    pub restart: bool,
    /// Note the mode of the file, too; its time is always noted.
    pub preserve: bool,
    /// Least bytes of a part, 5 MiB to 5 GiB. Of a pipe, all parts have as many, and there are at most
    /// 10,000.
    pub part: u64,
    /// Parts that a link sends at a time: while one waits for its answer, another fills the link.
    pub streams: usize,
    /// Folder for notes about unfinished uploads; `None` to keep none, and to continue none.
    pub state: Option<PathBuf>,
    /// Time without progress after which the upload fails.
    pub patience: Duration,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            replace: false,
            restart: false,
            preserve: false,
            part: 8 << 20,
            streams: 2,
            state: None,
            patience: Duration::from_secs(600),
        }
    }
}

/// Upload of one object.
pub struct Upload {
    store: Arc<Store>,
    place: S3Place,
    options: UploadOptions,
}

/// Object that the store has.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sent {
    /// Sizes, times, and what each link did.
    pub report: Report,
    /// Checksum that the store verified.
    pub proof: Proof,
}

impl Upload {
    /// Prepares the upload of an object.
    pub fn new(store: Arc<Store>, place: S3Place, options: UploadOptions) -> Self {
        Self {
            store,
            place,
            options: UploadOptions {
                part: options.part.clamp(5 << 20, 5 << 30),
                streams: options.streams.clamp(1, 16),
                ..options
            },
        }
    }

    /// Sends a file. `tell` hears what happens. `stop` ends the upload; parts that the store has are used
    /// by the next upload of the same file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or changes, the store refuses or is not reached, or the key exists and
    /// must not be replaced.
    pub async fn file(
        self,
        path: &Path,
        stop: CancellationToken,
        tell: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Sent, WebError> {
        let started = now();
        let tell: Tell = Arc::new(tell);
        let (path, part) = (path.to_owned(), self.options.part);
        let source = Arc::new(blocking(move || Source::open(&path, part)).await?);
        let (of, stopping) = (source.clone(), stop.clone());
        let hashing = blocking(move || of.hash(&stopping));
        let digest = match source.pieces.count() {
            0 | 1 => hashing.await?,
            _ => {
                let (digest, exists) = tokio::join!(hashing, self.store.greet(&self.place));
                if exists && !self.options.replace {
                    return Err(self.exists());
                }
                digest?
            }
        };
        let Some(digest) = digest else {
            return Err(WebError::Cancelled { resumable: false });
        };
        let mut sent = match source.pieces.count() {
            0 | 1 => {
                let of = source.clone();
                let bytes = blocking(move || of.read(ChunkId(0))).await?;
                self.at_once(bytes, self.metadata(&source, digest), &stop, &tell)
                    .await
            }
            _ => self.in_parts(&source, digest, &stop, &tell).await,
        }?;
        source.check()?;
        sent.report.digest = Some(digest);
        sent.report.elapsed = now() - started;
        Ok(sent.with_rates())
    }

    /// Sends what a pipe has, of any length up to 10,000 parts.
    ///
    /// # Errors
    ///
    /// As for [`Upload::file`]; the pipe is longer. Nothing can be continued.
    pub async fn stream(
        self,
        input: &mut (dyn AsyncRead + Send + Unpin),
        stop: CancellationToken,
        tell: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Sent, WebError> {
        let started = now();
        let tell: Tell = Arc::new(tell);
        let first = tokio::select! {
            first = read_part(input, self.options.part) => first?,
            () = stop.cancelled() => return Err(WebError::Cancelled { resumable: false }),
        };
        let mut sent = match (first.len() as u64) < self.options.part {
            true => self.at_once(first, Vec::new(), &stop, &tell).await,
            false => self.of_pipe(first, input, &stop, &tell).await,
        }?;
        sent.report.elapsed = now() - started;
        Ok(sent.with_rates())
    }

    /// Returns what is noted with an object, under the names that rclone uses.
    fn metadata(&self, source: &Source, digest: Digest) -> Vec<(&'static str, String)> {
        let found = source.found();
        let mut metadata = Vec::new();
        if found.modified.0 >= 0 {
            let time = format!("{}.{:09}", found.modified.0, found.modified.1);
            metadata.push(("x-amz-meta-mtime", time));
        }
        if self.options.preserve {
            metadata.push(("x-amz-meta-mode", format!("{:07o}", found.mode)));
        }
        metadata.push(("x-amz-meta-nicstripe-blake3", digest.to_string()));
        metadata
    }

    fn refusing<'a>(&self, call: Call<'a>) -> Call<'a> {
        match self.options.replace {
            true => call,
            false => call.header("if-none-match", "*"),
        }
    }

    /// Sends an object by one request.
    async fn at_once(
        &self,
        bytes: Bytes,
        metadata: Vec<(&'static str, String)>,
        stop: &CancellationToken,
        tell: &Tell,
    ) -> Result<Sent, WebError> {
        let (size, crc) = (bytes.len() as u64, base64(crc64(&bytes)));
        tell(Event::Started { size, resumed: 0 });
        let began = now();
        let mut call = Call::new(Method::PUT, &self.place)
            .header("x-amz-checksum-crc64nvme", &crc)
            .body(bytes);
        for (name, value) in &metadata {
            call = call.header(name, value);
        }
        let call = self.refusing(call);
        let reply = tokio::select! {
            reply = self.store.call(&call) => reply.map_err(|error| self.existing(error))?,
            () = stop.cancelled() => return Err(WebError::Cancelled { resumable: false }),
        };
        let is_proved = reply.header("x-amz-checksum-crc64nvme") == Some(&*crc);
        let mut report = Report::default();
        (report.size, report.wire_bytes, report.moving) = (size, size, now() - began);
        if let Some((interface, remote)) = reply.by {
            let mut of_link = LinkReport::new(LinkName::new(interface, remote));
            (of_link.bytes, of_link.wire_bytes, of_link.state) = (size, size, LinkState::Up);
            report.links.push(of_link);
        }
        Ok(Sent::new(report, is_proved))
    }

    async fn in_parts(
        &self,
        source: &Arc<Source>,
        digest: Digest,
        stop: &CancellationToken,
        tell: &Tell,
    ) -> Result<Sent, WebError> {
        let metadata = self.metadata(source, digest);
        let path = self.options.state.as_ref().map(|state| {
            let endpoint = format!("{:?}", self.store.account());
            Unfinished::path(state, &endpoint, &self.place, source)
        });
        let content = unfinished::content(source);
        let earlier = match path.as_deref().and_then(Unfinished::read) {
            Some((record, upload)) if self.options.restart || upload.content != content => {
                self.abort(&upload.id).await;
                record.end();
                None
            }
            earlier => earlier,
        };
        let begun = match earlier {
            Some((record, upload)) if self.has(&upload.id).await => Begun {
                id: upload.id,
                has_checksum: true,
                record: Some(record),
                parts: upload.parts,
            },
            _ => self.begin(&metadata, path, &content).await?,
        };
        let from = From::File(source.clone());
        let going = self.start(from, source.pieces, begun, (stop, tell))?;
        let moving = now();
        let moved = going.clone().run(self.options.patience).await;
        let checked = moved.and_then(|()| source.check());
        self.end(&going, checked, Some(digest), moving).await
    }

    /// Begins to send the parts of a file or a pipe, whose size is not known.
    fn start(
        &self,
        from: From,
        pieces: Pieces,
        begun: Begun,
        (stop, tell): (&CancellationToken, &Tell),
    ) -> Result<Arc<Going>, WebError> {
        let size = match &from {
            From::File(_) => pieces.size,
            From::Pipe(_) => 0,
        };
        let (store, place, streams) = (&self.store, &self.place, self.options.streams);
        let going = Going::new(store, place, streams, from, pieces, begun, (stop, tell))?;
        let resumed = going.traffic.state.lock().resumed;
        tell(Event::Started { size, resumed });
        Ok(Arc::new(going))
    }

    /// Completes an upload whose parts have `moved` since `moving`, or gives it up.
    async fn end(
        &self,
        going: &Going,
        moved: Result<(), WebError>,
        digest: Option<Digest>,
        moving: Instant,
    ) -> Result<Sent, WebError> {
        let completed = match moved {
            Ok(()) => self.complete(going, digest).await,
            Err(error) => Err(error),
        };
        let proved = match completed {
            Ok(proved) => proved,
            Err(error) => return Err(self.given_up(going, error).await),
        };
        if let Some(record) = going.traffic.state.lock().file.record.take() {
            record.end();
        }
        let mut report = going.report();
        report.moving = now() - moving;
        Ok(Sent::new(report, proved))
    }

    async fn of_pipe(
        &self,
        first: Bytes,
        input: &mut (dyn AsyncRead + Send + Unpin),
        stop: &CancellationToken,
        tell: &Tell,
    ) -> Result<Sent, WebError> {
        let begun = self.create(&[]).await?;
        // One more than there may be: all are sent only once the end of the pipe is known.
        let pieces = Pieces {
            size: self.options.part.saturating_mul(MOST_PARTS + 1),
            each: self.options.part,
        };
        let going = self.start(From::Pipe(Mutex::default()), pieces, begun, (stop, tell))?;
        let moving = now();
        let filling = going.fill(first, input, self.options.part);
        let running = going.clone().run(self.options.patience);
        let moved = tokio::join!(filling, running).1;
        self.end(&going, moved, None, moving).await
    }

    /// Begins an upload in parts, and its record if there shall be one. The record is there before the
    /// upload is, so that a run that is killed in between leaves a trace.
    async fn begin(
        &self,
        metadata: &[(&'static str, String)],
        path: Option<PathBuf>,
        content: &str,
    ) -> Result<Begun, WebError> {
        let Some(path) = path else {
            return self.create(metadata).await;
        };
        if Unfinished::is_without_id(&path) {
            self.abort_empty().await;
        }
        let begin = |id: &str| {
            let record = Unfinished::begin(&path, content, id);
            record.map_err(|error| {
                tracing::warn!(%error, "an interrupted upload will not be continued");
            })
        };
        let record = begin("").ok();
        match self.create(metadata).await {
            Ok(begun) if begun.has_checksum => {
                let record = record.and_then(|_| begin(&begun.id).ok());
                Ok(Begun { record, ..begun })
            }
            // The store may have begun it, and the answer was lost.
            Err(error) if error.keeps_parts() => Err(error),
            created => {
                if let Some(record) = record {
                    record.end();
                }
                created
            }
        }
    }

    /// Aborts uploads of this key that have no part: one was begun by a run that did not come to know its
    /// id.
    async fn abort_empty(&self) {
        match self.empty_uploads().await {
            Ok(uploads) => {
                for upload in uploads {
                    self.abort(&upload).await;
                }
            }
            Err(error) => tracing::warn!(%error, "an empty upload may stay at the store"),
        }
    }

    async fn empty_uploads(&self) -> Result<Vec<String>, WebError> {
        let bucket = S3Place::root(self.place.bucket());
        let call = Call::new(Method::GET, &bucket)
            .query("prefix", self.place.key())
            .query("uploads", "");
        let reply = self.store.call(&call).await?;
        let page: UploadsBody = parsed(&reply.body).ok_or_else(|| self.place.nonsense())?;
        let of_key = page
            .uploads
            .into_iter()
            .filter(|upload| upload.key == self.place.key());
        let mut empty = Vec::new();
        for BegunBody { upload, .. } in of_key.take(MOST_EMPTY) {
            let reply = self.store.call(&self.first_part(&upload)).await?;
            let body: Option<PartsBody> = parsed(&reply.body);
            if body.is_some_and(|body| body.parts.is_empty()) {
                empty.push(upload);
            }
        }
        Ok(empty)
    }

    fn first_part(&self, upload: &str) -> Call<'_> {
        Call::new(Method::GET, &self.place)
            .query("max-parts", "1")
            .query("uploadId", upload)
    }

    /// Begins an upload in parts at the store.
    async fn create(&self, metadata: &[(&'static str, String)]) -> Result<Begun, WebError> {
        let call = |with_checksum: bool| {
            let mut call = Call::new(Method::POST, &self.place).query("uploads", "");
            for (name, value) in metadata {
                call = call.header(name, value);
            }
            match with_checksum {
                true => call
                    .header("x-amz-checksum-algorithm", "CRC64NVME")
                    .header("x-amz-checksum-type", "FULL_OBJECT"),
                false => call,
            }
        };
        let (created, has_checksum) = match self.store.call(&call(true)).await {
            // The store knows no such checksum.
            Err(error) if error.has_store_status(&[400, 501]) => {
                (self.store.call(&call(false)).await?, false)
            }
            created => (created?, true),
        };
        let body: Option<CreatedBody> = parsed(&created.body);
        let upload = body.map(|body| body.upload).filter(|upload| {
            !upload.is_empty() && upload.len() < 4096 && !upload.contains(char::is_control)
        });
        Ok(Begun {
            id: upload.ok_or_else(|| self.place.nonsense())?,
            has_checksum,
            record: None,
            parts: Vec::new(),
        })
    }

    /// Returns true if the store still has an upload.
    async fn has(&self, upload: &str) -> bool {
        self.store.call(&self.first_part(upload)).await.is_ok()
    }

    /// Ends an upload: the parts become the object. Returns true if the store has compared the checksum of
    /// the whole.
    async fn complete(&self, going: &Going, digest: Option<Digest>) -> Result<bool, WebError> {
        let crc = base64(going.crc64());
        let completed = match self.try_complete(going, &crc).await {
            // Of a part that two links have sent, the store keeps the last one.
            Err(error) if error.has_store_code("InvalidPart") => {
                self.ask_for_parts(going).await?;
                self.try_complete(going, &crc).await
            }
            completed => completed,
        };
        match completed {
            Ok(reply) => {
                let body: Option<CompletedBody> = parsed(&reply.body);
                let stored = body.and_then(|body| body.crc64);
                Ok(stored.as_deref() == Some(&crc))
            }
            // The answer to the first request was lost.
            Err(error) if error.has_store_code("NoSuchUpload") => {
                match self.is_there(digest).await {
                    true => Ok(true),
                    false => Err(error),
                }
            }
            Err(error) => Err(self.existing(error)),
        }
    }

    async fn try_complete(&self, going: &Going, crc: &str) -> Result<Reply, WebError> {
        let parts = going.traffic.state.lock().file.stored.clone();
        let has_checksum = going.has_checksum;
        let parts = parts.into_iter().map(|(part, (etag, crc))| CompletePart {
            number: part as u32 + 1,
            etag,
            crc64: has_checksum.then_some(crc),
        });
        let body = CompleteBody {
            parts: parts.collect(),
        };
        let body = quick_xml::se::to_string(&body).map_err(|_| self.place.nonsense())?;
        let call = Call::new(Method::POST, &self.place)
            .query("uploadId", going.upload.clone())
            .header("x-amz-checksum-crc64nvme", crc)
            .header("x-amz-checksum-type", "FULL_OBJECT")
            .body(body.into());
        self.store.call(&self.refusing(call)).await
    }

    /// Takes the tags of all parts from the store.
    async fn ask_for_parts(&self, going: &Going) -> Result<(), WebError> {
        let mut marker = String::new();
        let mut found = BTreeMap::new();
        loop {
            let mut call =
                Call::new(Method::GET, &self.place).query("uploadId", going.upload.clone());
            if !marker.is_empty() {
                call = call.query("part-number-marker", marker.clone());
            }
            call.query.sort();
            let reply = self.store.call(&call).await?;
            let page: PartsBody = parsed(&reply.body).ok_or_else(|| self.place.nonsense())?;
            for part in page.parts {
                let number = u64::from(part.number).wrapping_sub(1);
                let length = going.pieces_len(number);
                if length == Some(part.size) {
                    found.insert(number, part.etag);
                }
            }
            match page
                .next
                .filter(|next| page.is_truncated && *next != marker)
            {
                Some(next) => marker = next,
                None => break,
            }
        }
        let mut state = going.traffic.state.lock();
        for (part, (etag, _)) in &mut state.file.stored {
            if let Some(found) = found.remove(part) {
                *etag = found;
            }
        }
        Ok(())
    }

    /// Returns true if the object has the BLAKE3 that this upload noted.
    async fn is_there(&self, digest: Option<Digest>) -> bool {
        let Some(digest) = digest else {
            return false;
        };
        let found = self.store.call(&Call::new(Method::HEAD, &self.place)).await;
        found.is_ok_and(|reply| {
            reply.header("x-amz-meta-nicstripe-blake3") == Some(&digest.to_string())
        })
    }

    /// Gives up an upload, unless a later run may continue it. Returns the error.
    async fn given_up(&self, going: &Going, mut error: WebError) -> WebError {
        let mut record = going.traffic.state.lock().file.record.take();
        let is_kept = record.is_some() && error.keeps_parts();
        if !is_kept {
            self.abort(&going.upload).await;
            if let Some(record) = record.take() {
                record.end();
            }
        }
        if let WebError::Cancelled { resumable } | WebError::TimedOut { resumable, .. } = &mut error
        {
            *resumable = is_kept;
        }
        error
    }

    async fn abort(&self, upload: &str) {
        let call = Call::new(Method::DELETE, &self.place).query("uploadId", upload);
        let aborting = self.store.call(&call);
        if let Ok(Err(error)) = tokio::time::timeout(ABORT_TIME, aborting).await {
            tracing::warn!(%error, "the parts of the upload stay at the store");
        }
    }

    fn existing(&self, error: WebError) -> WebError {
        match error.has_store_status(&[412]) && !self.options.replace {
            true => self.exists(),
            false => error,
        }
    }

    fn exists(&self) -> WebError {
        WebError::Exists {
            place: self.place.to_string(),
        }
    }
}

impl Sent {
    fn new(report: Report, is_proved: bool) -> Self {
        let proof = match is_proved {
            true => Proof::Promised(Algorithm::Crc64),
            false => Proof::Length,
        };
        Self { report, proof }
    }

    fn with_rates(mut self) -> Self {
        for link in &mut self.report.links {
            link.goodput = BitRate::from_bytes_over(link.bytes, self.report.elapsed);
        }
        self
    }
}

impl WebError {
    fn store(&self) -> impl Iterator<Item = &StoreError> {
        let causes = match self {
            Self::NoAnswer { causes, .. } => &causes[..],
            _ => &[],
        };
        causes.iter().filter_map(|(_, cause)| cause.store())
    }

    fn has_store_status(&self, statuses: &[u16]) -> bool {
        self.store()
            .any(|error| statuses.contains(&error.status.as_u16()))
    }

    fn has_store_code(&self, code: &str) -> bool {
        self.store().any(|error| error.code == code)
    }

    /// Returns true if parts that the store has are of use after this error.
    fn keeps_parts(&self) -> bool {
        match self {
            Self::Cancelled { .. } | Self::TimedOut { .. } => true,
            Self::NoAnswer { causes, .. } => causes.iter().all(|(_, cause)| !cause.is_final()),
            _ => false,
        }
    }
}

/// Uploads of one key that are looked at.
const MOST_EMPTY: usize = 100;

/// Time to delete the parts of an upload that is given up.
const ABORT_TIME: Duration = Duration::from_secs(10);

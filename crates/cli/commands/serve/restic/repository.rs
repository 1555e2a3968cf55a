//! Requests to one repository, as defined by version 2 of restic's REST API (restic's
//! documentation, "REST Backend").

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aws_lc_rs::digest::{Context as Digest, SHA256};
use hyper::{
    Method, Request, StatusCode, Version,
    header::{
        ACCEPT, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName,
        HeaderValue, RANGE,
    },
    http::request::Parts,
};
use nicstripe::{Name, NameError};
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use super::{
    body::{RequestBody, next_bytes},
    list::{self, SIDE_BY_SIDE},
    objects::{ObjectError, Objects, Upload as _},
    range::requested_range,
    reply::{self, Reply},
    target::{Id, Kind, Layout, Target, TargetError},
};

#[derive(Debug)]
pub(super) struct Repository<O> {
    objects: Arc<O>,
    layout: Layout,
}

/// Reason for rejecting a request, which determines the HTTP status.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("method not allowed")]
    Method,
    #[error("creating a repository requires ?create=true")]
    Create,
    #[error("a repository cannot be deleted as a whole")]
    RemoveAll,
    #[error("the content does not match the name")]
    Content,
    #[error("upload interrupted: {0}")]
    BrokenOff(String),
}

impl<O: Objects> Repository<O> {
    /// Creates the handler for a repository in the directory `base`; `None` is the root of the
    /// storage.
    pub(super) fn new(objects: Arc<O>, base: Option<Name>) -> Self {
        Self {
            objects,
            layout: Layout { base },
        }
    }

    /// Answers a request. An error is logged, and becomes an HTTP status.
    pub(super) async fn answer<B: RequestBody>(&self, request: Request<B>) -> Reply {
        let (head, mut body) = request.into_parts();
        match self.try_answer(&head, &mut body).await {
            Ok(reply) => reply,
            Err(refusal) => {
                let status = refusal.status();
                refusal.log(&head, status);
                if head.version < Version::HTTP_2 {
                    // Closing a connection while data arrives resets it, and the response may be
                    // lost.
                    drain(&mut body).await;
                }
                reply::status(status)
            }
        }
    }

    async fn try_answer<B: RequestBody>(
        &self,
        head: &Parts,
        body: &mut B,
    ) -> Result<Reply, Refusal> {
        match (Target::parse(head.uri.path())?, &head.method) {
            (Target::Repository, &Method::POST) => self.make(head.uri.query()).await,
            (Target::Repository, &Method::DELETE) => Err(Refusal::RemoveAll),
            (Target::Files(kind), &Method::GET) => self.list(kind, header(head, ACCEPT)).await,
            (Target::Config, _) => {
                let name = self.layout.name(&["config"])?;
                self.answer_for_file(&name, None, head, body).await
            }
            (Target::File(kind, id), _) => {
                let name = self.layout.file(kind, &id)?;
                self.answer_for_file(&name, Some(&id), head, body).await
            }
            _ => Err(Refusal::Method),
        }
    }

    async fn answer_for_file<B: RequestBody>(
        &self,
        name: &Name,
        id: Option<&Id>,
        head: &Parts,
        body: &mut B,
    ) -> Result<Reply, Refusal> {
        match head.method {
            Method::HEAD => self.describe(name).await,
            Method::GET => self.load(name, header(head, RANGE)).await,
            Method::POST => self.save(name, id, body).await,
            Method::DELETE => {
                self.objects.remove(name).await?;
                Ok(reply::status(StatusCode::OK))
            }
            _ => Err(Refusal::Method),
        }
    }

    /// Creates the directories of an empty repository, up to [`SIDE_BY_SIDE`] at a time, if the query
    /// has `create=true`.
    async fn make(&self, query: Option<&str>) -> Result<Reply, Refusal> {
        if !query.is_some_and(|query| query.split('&').any(|pair| pair == "create=true")) {
            return Err(Refusal::Create);
        }
        let permits = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        let mut tasks = JoinSet::new();
        for name in self.layout.directories()? {
            let (permits, objects) = (permits.clone(), self.objects.clone());
            tasks.spawn(async move {
                // The semaphore is never closed.
                let _permit = permits.acquire().await;
                objects.make_dir(&name).await
            });
        }
        while let Some(made) = tasks.join_next().await {
            let failed = StatusCode::INTERNAL_SERVER_ERROR;
            made.map_err(|error| ObjectError::new(failed, error.to_string()))??;
        }
        Ok(reply::status(StatusCode::OK))
    }

    /// Lists the files of one kind. Skips files that do not belong to a repository.
    async fn list(&self, kind: Kind, accept: Option<&str>) -> Result<Reply, Refusal> {
        let sizes = accept.is_some_and(|accept| accept.contains(VERSION_2));
        let directories = self.directories(kind).await?;
        let body = list::body(self.objects.clone(), directories, sizes).await?;
        let version = if sizes { VERSION_2 } else { VERSION_1 };
        Ok(reply::of(version, body))
    }

    async fn directories(&self, kind: Kind) -> Result<Vec<Name>, Refusal> {
        let directory = self.layout.name(&[kind.name()])?;
        if kind != Kind::Data {
            return Ok(vec![directory]);
        }
        let mut entries = self.objects.list(&directory);
        let mut folders = BTreeSet::<String>::new();
        for _ in 0..MOST_IN_DATA {
            let Some(entry) = list::next(&mut entries).await? else {
                let name = |folder: &String| self.layout.name(&[kind.name(), folder]);
                return Ok(folders.iter().map(name).collect::<Result<_, _>>()?);
            };
            let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let is_folder = entry.name.len() == 2 && entry.name.iter().all(is_digit);
            if let (true, false, Ok(folder)) =
                (is_folder, entry.is_file, String::from_utf8(entry.name))
            {
                folders.insert(folder);
            }
        }
        let why = format!("more than {MOST_IN_DATA} entries in \"{directory}\"");
        Err(ObjectError::new(StatusCode::INTERNAL_SERVER_ERROR, why).into())
    }

    async fn describe(&self, name: &Name) -> Result<Reply, Refusal> {
        let size = self.objects.size(name).await?;
        Ok(object_headers(reply::status(StatusCode::OK), size))
    }

    async fn load(&self, name: &Name, range: Option<&str>) -> Result<Reply, Refusal> {
        let size = self.objects.size(name).await?;
        let (status, part) = match requested_range(range, size) {
            None => (StatusCode::OK, 0..size),
            Some(part) if part.is_empty() => {
                let reply = reply::status(StatusCode::RANGE_NOT_SATISFIABLE);
                return Ok(reply::with(
                    reply,
                    CONTENT_RANGE,
                    text(format!("bytes */{size}")),
                ));
            }
            Some(part) => (StatusCode::PARTIAL_CONTENT, part),
        };
        let len = part.end - part.start;
        let mut reply = reply::status(status);
        if len > 0 {
            let pieces = self.objects.read(name, part.start, len).await?;
            *reply.body_mut() = reply::streamed(pieces, len);
        }
        if status == StatusCode::PARTIAL_CONTENT {
            reply = reply::with(
                reply,
                CONTENT_RANGE,
                text(format!("bytes {}-{}/{size}", part.start, part.end - 1)),
            );
        }
        Ok(object_headers(reply, len))
    }

    /// Stores a request body as a file. The file gets its name once it is complete and durable, and
    /// its content matches its ID.
    async fn save<B: RequestBody>(
        &self,
        name: &Name,
        id: Option<&Id>,
        body: &mut B,
    ) -> Result<Reply, Refusal> {
        let mut upload = self.objects.create(name);
        let mut digest = Digest::new(&SHA256);
        while let Some(bytes) = next_bytes(body).await {
            let bytes = bytes.map_err(|error| Refusal::BrokenOff(nicstripe::chain(&error)))?;
            digest.update(&bytes);
            upload.write(bytes).await?;
        }
        if id.is_some_and(|id| !id.is_of(digest.finish().as_ref())) {
            return Err(Refusal::Content);
        }
        upload.finish().await?;
        Ok(reply::status(StatusCode::OK))
    }
}

impl Refusal {
    /// Returns the HTTP status of the error, equal to that of restic's rest-server.
    fn status(&self) -> StatusCode {
        match self {
            Self::Target(TargetError::Path) => StatusCode::NOT_FOUND,
            Self::Target(TargetError::Id)
            | Self::Name(_)
            | Self::Create
            | Self::Content
            | Self::BrokenOff(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::RemoveAll => StatusCode::NOT_IMPLEMENTED,
            Self::Object(error) => error.status,
        }
    }

    /// Logs a rejected request. A missing file is a normal answer and logged at debug level only.
    fn log(&self, head: &Parts, status: StatusCode) {
        let (method, path, status) = (&head.method, head.uri.path(), status.as_u16());
        match status {
            404 => tracing::debug!(%method, path, status, error = %self, "restic request failed"),
            _ => tracing::warn!(%method, path, status, error = %self, "restic request failed"),
        }
    }
}

fn header(head: &Parts, name: HeaderName) -> Option<&str> {
    head.headers.get(name)?.to_str().ok()
}

fn object_headers(mut reply: Reply, len: u64) -> Reply {
    let kind = HeaderValue::from_static("application/octet-stream");
    reply.headers_mut().extend([
        (CONTENT_TYPE, kind),
        (ACCEPT_RANGES, HeaderValue::from_static("bytes")),
    ]);
    reply::with(reply, CONTENT_LENGTH, len.into())
}

/// Reads and discards the rest of a request body, up to [`MOST_DRAINED`] bytes and for at most
/// [`DRAIN_TIME`].
async fn drain<B: RequestBody>(body: &mut B) {
    let mut left = MOST_DRAINED;
    let rest = async {
        while let Some(Ok(bytes)) = next_bytes(body).await
            && left > 0
        {
            left = left.saturating_sub(bytes.len());
        }
    };
    // After the timeout the connection is closed anyway.
    let _ = timeout(DRAIN_TIME, rest).await;
}

/// Converts a text to a header value; an invalid text becomes an empty value.
fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""))
}

const VERSION_1: &str = "application/vnd.x.restic.rest.v1";
const VERSION_2: &str = "application/vnd.x.restic.rest.v2";

/// Maximum bytes to discard of a request body: the maximum size of restic's pack files.
const MOST_DRAINED: usize = 128 << 20;

const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Maximum number of entries in the data folder, which has 256 folders.
const MOST_IN_DATA: usize = 1 << 16;

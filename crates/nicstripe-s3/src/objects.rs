//! Reading of objects.

use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_RANGE, RANGE},
};
use nicstripe::{FailCode, Kind, ObjectAttributes, OpenOptions};

use crate::{
    names::Target,
    protocol::{
        condition::{self, Conditions, Outcome},
        error::{Code, S3Error},
        query::Query,
        range,
    },
    reply::{self, Reply},
    store::Store,
    stored::{Object, add, quoted},
};

/// Returns an object or a range of it, or its metadata only.
pub(crate) async fn get(
    store: &Store,
    target: &Target,
    headers: &HeaderMap,
    query: &Query,
    with_body: bool,
) -> Result<Reply, S3Error> {
    let mut attempts = 0;
    loop {
        match try_get(store, target, headers, query, with_body).await {
            // It was replaced between its metadata and its content.
            Err(Failed::Replaced) if attempts < MOST_ATTEMPTS => attempts += 1,
            Err(Failed::Replaced) => {
                return Err(Code::SLOW_DOWN.because("the object is being replaced"));
            }
            Err(Failed::Other(error)) if error.is_missing() => {
                store.require_bucket(&target.bucket).await?;
                return Err(error);
            }
            Err(Failed::Other(error)) => return Err(error),
            Ok(reply) => return Ok(reply),
        }
    }
}

enum Failed {
    Replaced,
    Other(S3Error),
}

impl From<S3Error> for Failed {
    fn from(error: S3Error) -> Self {
        Self::Other(error)
    }
}

async fn try_get(
    store: &Store,
    target: &Target,
    headers: &HeaderMap,
    query: &Query,
    with_body: bool,
) -> Result<Reply, Failed> {
    let object = found(store, target).await?;
    let etag = object.etag();
    let outcome = Conditions::of(headers, "").check(&etag, object.stat.modified)?;
    if outcome == Outcome::NotModified {
        let mut reply = reply::empty(StatusCode::NOT_MODIFIED);
        add(reply.headers_mut(), "etag", &quoted(&etag));
        return Ok(reply);
    }
    let size = object.stat.size;
    let header = headers
        .get(RANGE)
        .filter(|_| condition::is_in_range(headers, &etag, object.stat.modified))
        .and_then(|value| value.to_str().ok());
    let wanted = range::requested(header, size)?;
    let status = match wanted {
        Some(_) => StatusCode::PARTIAL_CONTENT,
        None => StatusCode::OK,
    };
    let range = wanted.clone().unwrap_or(0..size);
    let len = range.end - range.start;
    let mut reply = reply::empty(status);
    object.describe(reply.headers_mut(), query);
    if wanted.is_some() {
        let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        add(reply.headers_mut(), CONTENT_RANGE.as_str(), &text);
    }
    if !with_body || len == 0 {
        return Ok(reply::with_length(reply, len));
    }
    let memory = store.reading_memory(len).await;
    let options = OpenOptions {
        range: Some(range),
        only_if: object.stat.etag,
    };
    let reader = store.client.open_with(&target.name, options).await;
    let reader = reader.map_err(|error| match error.fail_code() {
        Some(FailCode::Precondition | FailCode::Range) => Failed::Replaced,
        _ => S3Error::of_read(error).into(),
    })?;
    Ok(reply::object(reply, reader, len, memory))
}

/// Returns the object of a key. A directory is the object of its key with a slash, without content.
pub(crate) async fn found(store: &Store, target: &Target) -> Result<Object, S3Error> {
    if !target.is_folder {
        return store.object(&target.name).await;
    }
    let stat = store.client.stat(&target.name).await;
    let mut stat = stat.map_err(S3Error::of_read)?;
    if stat.kind != Kind::Dir {
        return Err(Code::NO_SUCH_KEY.because("there is no such object"));
    }
    stat.size = 0;
    Ok(Object {
        stat,
        attributes: folder_attributes()?,
    })
}

/// Returns the attributes that each directory has: it has no other ones.
pub(crate) fn folder_attributes() -> Result<ObjectAttributes, S3Error> {
    let mut attributes = ObjectAttributes::new();
    let kind = attributes.set("content-type", "application/x-directory");
    kind.map_err(|error| Code::INTERNAL_ERROR.because(error.to_string()))?;
    crate::stored::keep_etag(&mut attributes, EMPTY_MD5, 0)?;
    Ok(attributes)
}

/// MD5 of nothing.
pub(crate) const EMPTY_MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";

const MOST_ATTEMPTS: usize = 3;

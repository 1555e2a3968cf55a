//! Writing of objects.

use std::{sync::Arc, time::Duration};

use hyper::{HeaderMap, StatusCode};
use nicstripe::{CopyOptions, ETag, Name, ObjectAttributes, Report, Stat};
use tokio::io::AsyncWriteExt as _;

use crate::{
    names::Target,
    objects::{EMPTY_MD5, found},
    protocol::{
        condition::Conditions,
        error::{Code, S3Error},
        payload::{Ended, Payload, RequestBody},
    },
    reply::{self, Reply},
    store::Store,
    stored::{self, add, opaque, quoted},
};

/// How an object may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writing {
    /// True to replace an object.
    pub(crate) replace: bool,
    /// Tag of the object that is replaced.
    pub(crate) only_if: Option<ETag>,
}

/// Returns how an object may be written under these conditions. The daemon then holds to it.
pub(crate) async fn writing(
    store: &Store,
    target: &Target,
    conditions: &Conditions,
) -> Result<Writing, S3Error> {
    if conditions.only_new()? {
        return Ok(Writing {
            replace: false,
            only_if: None,
        });
    }
    let only_if = match conditions.only_if() {
        false => None,
        true => {
            let object = store.object(&target.name).await?;
            conditions.require(&object.etag(), object.stat.modified)?;
            let untold = || Code::NOT_IMPLEMENTED.because("the daemon tells no entity tags");
            Some(object.stat.etag.ok_or_else(untold)?)
        }
    };
    Ok(Writing {
        replace: true,
        only_if,
    })
}

/// Stores the body of a request as an object. It gets its name once it is whole, verified and durable.
pub(crate) async fn put<B: RequestBody>(
    store: &Arc<Store>,
    target: &Target,
    headers: &HeaderMap,
    payload: Payload<'_, B>,
) -> Result<Reply, S3Error> {
    let attributes = stored::requested(headers)?;
    let writing = writing(store, target, &Conditions::of(headers, "")).await?;
    store.require_bucket(&target.bucket).await?;
    if target.is_folder {
        return put_folder(store, target, writing, payload).await;
    }
    let mut unfinished = Unfinished::new(store, target.parents());
    let (report, ended) = write(store, &target.name, writing, attributes, payload).await?;
    unfinished.is_whole = true;
    let etag = match ended.md5 {
        Some(md5) => hex::encode(md5),
        None => match report.etag {
            Some(etag) => opaque(Some(etag), &NO_STAT),
            None => store.object(&target.name).await?.etag(),
        },
    };
    let mut reply = reply::empty(StatusCode::OK);
    add(reply.headers_mut(), "etag", &quoted(&etag));
    add_checksum(&mut reply, &ended);
    Ok(reply)
}

/// File that is being written. If it does not become whole, the directories that are empty without it are
/// removed.
pub(crate) struct Unfinished<'p> {
    store: &'p Arc<Store>,
    /// Directories that hold the file, the innermost first.
    dirs: Vec<Name>,
    pub(crate) is_whole: bool,
}

impl<'p> Unfinished<'p> {
    pub(crate) fn new(store: &'p Arc<Store>, dirs: Vec<Name>) -> Self {
        Self {
            store,
            dirs,
            is_whole: false,
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.is_whole || self.dirs.is_empty() {
            return;
        }
        let (store, dirs) = (self.store.clone(), std::mem::take(&mut self.dirs));
        tokio::spawn(async move {
            // The daemon removes the incomplete file first.
            tokio::time::sleep(CANCELLING_TIME).await;
            if let Err(error) = store.client.remove_dirs(&dirs).await {
                tracing::debug!(error = %error, "empty directories may remain");
            }
        });
    }
}

pub(crate) fn add_checksum(reply: &mut Reply, ended: &Ended) {
    if let Some((name, value)) = &ended.checksum {
        add(reply.headers_mut(), name, value);
        add(reply.headers_mut(), "x-amz-checksum-type", "FULL_OBJECT");
    }
}

/// Makes the directory of a key with a slash. Its attributes are not kept, as those of no directory are.
async fn put_folder<B: RequestBody>(
    store: &Store,
    target: &Target,
    writing: Writing,
    payload: Payload<'_, B>,
) -> Result<Reply, S3Error> {
    if payload.len() > 0 {
        let why = "a key that ends with a slash is a directory here, and has no content";
        return Err(Code::INVALID_REQUEST.because(why));
    }
    payload.whole(0).await?;
    make_folder(store, target, writing).await?;
    let mut reply = reply::empty(StatusCode::OK);
    add(reply.headers_mut(), "etag", &quoted(EMPTY_MD5));
    Ok(reply)
}

/// Makes the directory of a key with a slash, which may exist unless it must be new.
pub(crate) async fn make_folder(
    store: &Store,
    target: &Target,
    writing: Writing,
) -> Result<(), S3Error> {
    if !writing.replace {
        match found(store, target).await {
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let why = "a condition of the request is not met";
                return Err(Code::PRECONDITION_FAILED.because(why));
            }
        }
    }
    Ok(store.client.make_dir(&target.name).await?)
}

/// Writes a body. Its MD5 is an attribute if it is known before the content: the body is short, or its
/// MD5 is announced.
async fn write<B: RequestBody>(
    store: &Store,
    name: &Name,
    writing: Writing,
    mut attributes: ObjectAttributes,
    payload: Payload<'_, B>,
) -> Result<(Report, Ended), S3Error> {
    let options = CopyOptions {
        replace: writing.replace,
        only_if: writing.only_if,
        parents: true,
        ..CopyOptions::default()
    };
    let len = payload.len();
    if len <= MOST_AT_ONCE {
        let _memory = store.memory(len).await;
        let (bytes, ended) = payload.with_md5().whole(MOST_AT_ONCE).await?;
        let md5 = ended.md5.map(hex::encode).unwrap_or_default();
        stored::keep_etag(&mut attributes, &md5, len)?;
        let written = store
            .client
            .write_with(name, bytes, options, &attributes)
            .await;
        return Ok((written?, ended));
    }
    if let Some(md5) = payload.content_md5() {
        stored::keep_etag(&mut attributes, &hex::encode(md5), len)?;
    }
    stream(store, name, options, &attributes, payload).await
}

/// Writes a body as it arrives. Dropped before its end, it leaves nothing.
pub(crate) async fn stream<B: RequestBody>(
    store: &Store,
    name: &Name,
    options: CopyOptions,
    attributes: &ObjectAttributes,
    mut payload: Payload<'_, B>,
) -> Result<(Report, Ended), S3Error> {
    let _memory = store.stream_memory(payload.len()).await;
    let mut writer = store.client.create_with(name, options, attributes);
    while let Some(bytes) = payload.next().await? {
        writer.write_all(&bytes).await?;
    }
    let ended = payload.end()?;
    Ok((writer.finish().await?, ended))
}

/// Metadata of an object whose tag is its MD5.
const NO_STAT: Stat = Stat::new(nicstripe::Kind::File, 0, std::time::UNIX_EPOCH);

/// Length up to which a body is read into memory before it is written, so that its MD5 is known. The
/// transfer library of Python and the AWS command split objects of this length.
pub(crate) const MOST_AT_ONCE: u64 = 8 << 20;

/// Time for the daemon to remove an incomplete file.
const CANCELLING_TIME: Duration = Duration::from_secs(1);

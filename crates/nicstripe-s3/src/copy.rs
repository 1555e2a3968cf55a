//! Copies of objects at the daemon. No data crosses the links.

use std::{sync::Arc, time::SystemTime};

use hyper::{HeaderMap, header::HeaderValue};
use nicstripe::{ObjectAttributes, RenameOptions};

use crate::{
    names::Target,
    objects::found,
    protocol::{
        condition::Conditions,
        date,
        error::{Code, S3Error},
        query::decoded,
        xml::Xml,
    },
    put::{make_folder, writing},
    reply::{self, Reply},
    store::Store,
    stored::{self, Object, quoted},
};

/// Header that names the source of a copy.
pub(crate) const SOURCE: &str = "x-amz-copy-source";

/// Returns the object that is to be copied, whose conditions are met.
pub(crate) async fn source(
    store: &Store,
    headers: &HeaderMap,
) -> Result<(Target, Object), S3Error> {
    let invalid = |why: &'static str| Code::INVALID_ARGUMENT.because(why);
    let text = headers.get(SOURCE).and_then(|value| value.to_str().ok());
    let text = text.ok_or_else(|| invalid("x-amz-copy-source is missing"))?;
    let (path, version) = text.split_once('?').unwrap_or((text, ""));
    if !["", "versionId=null"].contains(&version) {
        return Err(invalid("objects have no versions here"));
    }
    let path = decoded(path.strip_prefix('/').unwrap_or(path))?;
    let (bucket, key) = path
        .split_once('/')
        .ok_or_else(|| invalid("x-amz-copy-source is not of the form BUCKET/KEY"))?;
    let target = store.bucket(bucket)?.target(key)?;
    let object = match found(store, &target).await {
        Err(error) if error.is_missing() => {
            store.require_bucket(&target.bucket).await?;
            return Err(error);
        }
        found => found?,
    };
    let conditions = Conditions::of(headers, "x-amz-copy-source-");
    conditions.require(&object.etag(), object.stat.modified)?;
    Ok((target, object))
}

/// Copies an object, with its attributes or with those of the request.
pub(crate) async fn copy(
    store: &Arc<Store>,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Reply, S3Error> {
    let attributes = replacing(headers)?;
    let (from, object) = source(store, headers).await?;
    let writing = writing(store, target, &Conditions::of(headers, "")).await?;
    store.require_bucket(&target.bucket).await?;
    if from.is_folder != target.is_folder {
        let why = "a directory is copied to a key with a slash, and only there";
        return Err(Code::INVALID_REQUEST.because(why));
    }
    if from.is_folder {
        make_folder(store, target, writing).await?;
        return reply::patient(async move { Ok(result(&object.etag(), SystemTime::now())) }).await;
    }
    if from.name == target.name && attributes.is_none() {
        let why = "a copy to itself changes something: expected x-amz-metadata-directive: REPLACE";
        return Err(Code::INVALID_REQUEST.because(why));
    }
    let (store, target) = (store.clone(), target.clone());
    let options = RenameOptions {
        replace: writing.replace,
        parents: true,
        only_if: writing.only_if,
    };
    reply::patient(async move {
        let stat = match attributes {
            Some(mut attributes) => {
                if let Some(etag) = object.known_etag() {
                    stored::keep_etag(&mut attributes, etag, object.stat.size)?;
                }
                let parts = [from.name];
                let made = store
                    .client
                    .concat_with(&parts, &target.name, options, &attributes);
                made.await?
            }
            // The tag of a copy is that of its source.
            None if options.only_if.is_some() => {
                let parts = [from.name];
                let made =
                    store
                        .client
                        .concat_with(&parts, &target.name, options, &object.attributes);
                made.await?
            }
            None => {
                let options = RenameOptions {
                    only_if: object.stat.etag,
                    ..options
                };
                store.client.copy(&from.name, &target.name, options).await?
            }
        };
        let copied = store.object(&target.name).await?;
        Ok(result(&copied.etag(), stat.modified))
    })
    .await
}

/// Returns the attributes that replace those of the source; `None` to copy them.
fn replacing(headers: &HeaderMap) -> Result<Option<ObjectAttributes>, S3Error> {
    let attributes = stored::requested(headers)?;
    let text = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    if !matches!(text("x-amz-tagging-directive"), None | Some(b"COPY")) {
        return Err(Code::NOT_IMPLEMENTED.because("objects have no tags here"));
    }
    match text("x-amz-metadata-directive") {
        None | Some(b"COPY") => Ok(None),
        Some(b"REPLACE") => Ok(Some(attributes)),
        Some(_) => {
            Err(Code::INVALID_ARGUMENT.because("x-amz-metadata-directive is COPY or REPLACE"))
        }
    }
}

fn result(etag: &str, modified: SystemTime) -> String {
    let mut xml = Xml::new("CopyObjectResult");
    xml.text("LastModified", &date::iso(modified))
        .text("ETag", &quoted(etag));
    xml.end()
}

//! Which operation a request asks for.

use std::sync::Arc;

use hyper::{Method, StatusCode, http::request::Parts};

use crate::{
    buckets, copy,
    gateway::Allowed,
    listing, multipart,
    names::{Bucket, Target},
    objects,
    protocol::{
        error::{Code, S3Error},
        payload::{Payload, RequestBody},
        query::{Query, decoded},
    },
    put, remove,
    reply::{self, Reply},
    store::Store,
};

pub(crate) async fn answer<B: RequestBody>(
    store: &Arc<Store>,
    allowed: Allowed,
    head: &Parts,
    body: &mut B,
) -> Result<Reply, S3Error> {
    let Allowed {
        query,
        body: signed,
    } = allowed;
    if !matches!(query.get("versionId"), None | Some("" | "null")) {
        return Err(Code::INVALID_ARGUMENT.because("objects have no versions here"));
    }
    let path = head.uri.path();
    let path = path.strip_prefix('/').unwrap_or(path);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let (bucket, key) = (decoded(bucket)?, decoded(key)?);
    if bucket.is_empty() {
        return match head.method {
            Method::GET if key.is_empty() => buckets::list(store).await,
            _ => Err(no_method()),
        };
    }
    let bucket = store.bucket(&bucket)?;
    let mut asked = Asked {
        store,
        head,
        query,
        payload: None,
    };
    if matches!(head.method, Method::PUT | Method::POST) {
        asked.payload = Some(Payload::new(&head.headers, signed, body)?);
    }
    match key.is_empty() {
        true => asked.of_bucket(&bucket).await,
        false => {
            let target = bucket.target(&key)?;
            asked.of_object(&target).await
        }
    }
}

/// Request, with the body of one that writes.
struct Asked<'r, B> {
    store: &'r Arc<Store>,
    head: &'r Parts,
    query: Query,
    payload: Option<Payload<'r, B>>,
}

impl<'r, B: RequestBody> Asked<'r, B> {
    async fn of_bucket(mut self, bucket: &Bucket) -> Result<Reply, S3Error> {
        let (store, query) = (self.store, &self.query);
        match (&self.head.method, subresource(query, &OF_BUCKET)) {
            (&Method::HEAD, _) => {
                store.require_bucket(bucket).await?;
                Ok(reply::empty(StatusCode::OK))
            }
            (&Method::GET, Some("uploads")) => multipart::uploads(store, bucket, query).await,
            (&Method::GET, Some(what)) => {
                store.require_bucket(bucket).await?;
                buckets::configuration(what)
            }
            (&Method::GET, None) => listing::page(store, bucket, query).await,
            (&Method::PUT, None) => {
                // Tells a location, which has no meaning here.
                self.document().await?;
                buckets::create(store, bucket).await
            }
            (&Method::DELETE, None) => buckets::delete(store, bucket).await,
            (&Method::POST, Some("delete")) => {
                let document = self.document().await?;
                remove::listed(store, bucket, &document).await
            }
            (_, Some(what)) => Err(S3Error::unsupported(what)),
            _ => Err(no_method()),
        }
    }

    async fn of_object(mut self, target: &Target) -> Result<Reply, S3Error> {
        let (store, headers) = (self.store, &self.head.headers);
        let is_copy = headers.contains_key(copy::SOURCE);
        match (&self.head.method, subresource(&self.query, &OF_OBJECT)) {
            (&Method::GET, Some("tagging")) => {
                objects::found(store, target).await?;
                Ok(buckets::object_tags())
            }
            (&Method::GET, Some("acl")) => {
                objects::found(store, target).await?;
                buckets::configuration("acl")
            }
            (&Method::GET, Some("uploadId")) => multipart::parts(store, target, &self.query).await,
            (&Method::GET | &Method::HEAD, None) => {
                let with_body = self.head.method == Method::GET;
                objects::get(store, target, headers, &self.query, with_body).await
            }
            (&Method::PUT, Some("uploadId")) if is_copy => {
                multipart::copy_part(store, target, headers, &self.query).await
            }
            (&Method::PUT, Some("uploadId")) => {
                let payload = self.payload()?;
                multipart::put_part(store, target, &self.query, payload).await
            }
            (&Method::PUT, None) if is_copy => copy::copy(store, target, headers).await,
            (&Method::PUT, None) => {
                let payload = self.payload()?;
                put::put(store, target, headers, payload).await
            }
            (&Method::POST, Some("uploads")) => multipart::create(store, target, headers).await,
            (&Method::POST, Some("uploadId")) => {
                let document = self.document().await?;
                multipart::complete(store, target, headers, &self.query, &document).await
            }
            (&Method::DELETE, Some("uploadId")) => {
                multipart::abort(store, target, &self.query).await
            }
            (&Method::DELETE, None) => remove::one(store, target, headers).await,
            (_, Some(what)) => Err(S3Error::unsupported(what)),
            _ => Err(no_method()),
        }
    }

    fn payload(&mut self) -> Result<Payload<'r, B>, S3Error> {
        self.payload.take().ok_or_else(no_method)
    }

    /// Reads the document that is the body.
    async fn document(&mut self) -> Result<Vec<u8>, S3Error> {
        let payload = self.payload()?;
        let _memory = self.store.memory(payload.len()).await;
        Ok(payload.whole(MOST_DOCUMENT).await?.0)
    }
}

/// Returns the part of a bucket or an object that a query asks for.
fn subresource(query: &Query, known: &[&'static str]) -> Option<&'static str> {
    known.iter().find(|name| query.has(name)).copied()
}

fn no_method() -> S3Error {
    Code::METHOD_NOT_ALLOWED.because("there is no such operation")
}

const OF_BUCKET: [&str; 27] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "tagging",
    "uploads",
    "versioning",
    "versions",
    "website",
];

const OF_OBJECT: [&str; 14] = [
    "acl",
    "append",
    "attributes",
    "encryption",
    "legal-hold",
    "restore",
    "retention",
    "select",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "renameObject",
    // With the ID of an upload it is a part of that.
    "partNumber",
];

/// Maximum length of a document: 10,000 parts with their checksums.
const MOST_DOCUMENT: u64 = 4 << 20;

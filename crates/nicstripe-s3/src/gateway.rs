//! Requests become responses.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use http_body_util::BodyExt as _;
use hyper::{
    Method, Version,
    body::{Body, Bytes},
    header::{CONNECTION, EXPECT, HeaderValue},
    http::request::Parts,
};
use nicstripe::{Client, Name};
use tokio::time::timeout;

use crate::{
    protocol::{
        error::{Code, S3Error},
        keys::Keys,
        payload::RequestBody,
        query::Query,
        signature,
    },
    reply::{self, Reply},
    route,
    store::Store,
    stored::add,
};

/// Gateway to the files of one daemon. Cheap to share in an `Arc`.
#[derive(Debug)]
pub struct Gateway {
    store: Arc<Store>,
    keys: Keys,
    requests: AtomicU64,
}

/// Request whose signature is valid.
pub struct Allowed {
    pub(crate) query: Query,
    pub(crate) body: signature::Body,
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowed").finish_non_exhaustive()
    }
}

impl Gateway {
    /// Returns a gateway whose buckets are the directories in `base` (`None`: the daemon's root), for
    /// requests that are signed with these keys.
    pub fn new(client: Client, base: Option<Name>, keys: Keys) -> Self {
        Self {
            store: Arc::new(Store::new(client, base)),
            keys,
            requests: AtomicU64::new(0),
        }
    }

    /// Verifies the signature of a request.
    ///
    /// # Errors
    ///
    /// The response to one that is not signed with the keys of this gateway.
    pub fn check(&self, head: &Parts) -> Result<Allowed, Box<Reply>> {
        let checked = Query::parse(head.uri.query()).and_then(|query| {
            let body = signature::check(&self.keys, head, &query, SystemTime::now())?;
            Ok(Allowed { query, body })
        });
        checked.map_err(|error| Box::new(closing(head, self.refuse(head, &error))))
    }

    /// Returns the response to a request for another host name.
    pub fn misdirected(&self, head: &Parts) -> Reply {
        let why = "the request is for another host";
        self.refuse(head, &Code::FORWARDED.because(why))
    }

    /// Returns the response to a request from a web page.
    pub fn from_a_page(&self, head: &Parts) -> Reply {
        let why = "the request is from a web page";
        self.refuse(head, &Code::ACCESS_DENIED.because(why))
    }

    /// Carries out a request. What it wrote until it fails or is dropped leaves nothing.
    pub async fn answer<B>(&self, allowed: Allowed, head: &Parts, mut body: B) -> Reply
    where
        B: Body<Data = Bytes, Error: std::error::Error> + Unpin + Send,
    {
        let is_empty = body.is_end_stream();
        match route::answer(&self.store, allowed, head, &mut body).await {
            Ok(reply) if is_empty => closing(head, self.numbered(reply)),
            Ok(reply) => self.numbered(reply),
            Err(error) => {
                if head.version < Version::HTTP_2 {
                    // Closing a connection while data arrives resets it, and the response may be lost.
                    drain(&mut body).await;
                }
                self.refuse(head, &error)
            }
        }
    }

    fn refuse(&self, head: &Parts, error: &S3Error) -> Reply {
        let (method, path) = (&head.method, head.uri.path());
        let (status, code) = (error.status(), error.word());
        match status.as_u16() {
            304 | 404 | 409 | 412 => {
                tracing::debug!(%method, path, code, error = %error, "S3 request failed");
            }
            _ => tracing::warn!(%method, path, code, error = %error, "S3 request failed"),
        }
        if head.method == Method::HEAD {
            return self.numbered(reply::empty(status));
        }
        let document = reply::error_document(error, path, "");
        self.numbered(reply::xml(status, &document))
    }

    fn numbered(&self, mut reply: Reply) -> Reply {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        add(
            reply.headers_mut(),
            "x-amz-request-id",
            &format!("{number:016X}"),
        );
        reply
    }
}

/// Ends the connection of a client that waits for "100 Continue" and gets the response instead, because
/// there was no body to read. boto3 would take this response for the next one, too.
fn closing(head: &Parts, mut reply: Reply) -> Reply {
    if head.version < Version::HTTP_2 && head.headers.contains_key(EXPECT) {
        let close = HeaderValue::from_static("close");
        reply.headers_mut().insert(CONNECTION, close);
    }
    reply
}

/// Reads and discards the rest of a body, for a limited time and length.
async fn drain<B: RequestBody>(body: &mut B) {
    let mut left = MOST_DRAINED;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await
            && left > 0
        {
            let len = frame.data_ref().map_or(0, Bytes::len);
            left = left.saturating_sub(len);
        }
    };
    // The connection is closed anyway.
    let _ = timeout(DRAIN_TIME, rest).await;
}

const MOST_DRAINED: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(10);

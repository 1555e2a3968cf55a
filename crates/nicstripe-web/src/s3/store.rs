//! Requests to a store: signed, over the first link that answers, with a bounded answer.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use percent_encoding::utf8_percent_encode;

use reqwest::{
    Client, Method, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout, timeout_at},
};
use tokio_util::bytes::Bytes;

use super::{
    account::Account,
    place::S3Place,
    xml::{self, ErrorBody},
};
use crate::{
    ask::bounded,
    clock::now,
    error::{LinkError, WebError},
    options::FetchOptions,
    store_error::StoreError,
    url::{ESCAPED, WebUrl},
};

/// Store with the links to it.
pub struct Store {
    pub(crate) account: Account,
    pub(crate) links: Vec<StoreLink>,
    patience: Duration,
    /// Number of requests: each begins with the next link.
    calls: AtomicUsize,
}

/// Interface that may lead to a store.
#[derive(Clone)]
pub(crate) struct StoreLink {
    pub(crate) interface: String,
    pub(crate) client: Client,
    /// Address of the store over this link, once it has answered.
    remote: Arc<Mutex<Option<IpAddr>>>,
    /// When the link failed last, after which others are preferred for a while.
    failed: Arc<Mutex<Option<Instant>>>,
}

impl StoreLink {
    pub(crate) fn remote(&self) -> Option<IpAddr> {
        *self.remote.lock()
    }
}

/// One request.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) place: &'a S3Place,
    pub(crate) query: Vec<(&'a str, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, place: &'a S3Place) -> Self {
        Self {
            method,
            place,
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    pub(crate) fn query(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Adds a header. Omits an invalid value.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(crate) fn body(mut self, body: Bytes) -> Self {
        self.body = body;
        self
    }
}

/// Headers and body of an answer that is no error.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Interface and address.
    pub(crate) by: Option<(String, IpAddr)>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Store {
    /// Finds the links to the store of an account. Of the options `links`, `excluded` and `patience`
    /// count.
    ///
    /// # Errors
    ///
    /// No interface may lead to it.
    pub async fn find(account: Account, options: &FetchOptions) -> Result<Self, WebError> {
        let url = account.url(&S3Place::root("bucket"))?;
        let found = options.links(&url).await?;
        let links = found.links.into_iter().map(|link| StoreLink {
            interface: link.interface,
            client: link.client,
            remote: Arc::default(),
            failed: Arc::default(),
        });
        Ok(Self {
            account,
            links: links.collect(),
            patience: options.patience,
            calls: AtomicUsize::new(0),
        })
    }

    /// Returns the links in the order in which to try them: another one first each time, and those that
    /// failed lately at the end.
    fn in_turn(&self) -> Vec<&StoreLink> {
        let first = self.calls.fetch_add(1, Ordering::Relaxed) % self.links.len().max(1);
        let turned = self.links[first..].iter().chain(&self.links[..first]);
        let at = now();
        let has_failed = |link: &&StoreLink| {
            link.failed
                .lock()
                .is_some_and(|failed| at - failed < AVOIDED)
        };
        let (failed, sound): (Vec<_>, Vec<_>) = turned.partition(has_failed);
        [sound, failed].concat()
    }

    /// Returns the account.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Sends a request over one link after the other until one brings an answer, or the store refuses.
    /// Retries transient errors with back-off until the patience is used up.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Reply, WebError> {
        let url = self.account.url(call.place)?;
        let begun = now();
        let mut pause = Duration::from_millis(200);
        loop {
            let mut causes = Vec::new();
            for link in self.in_turn() {
                let error = match self.send(link, &url, call).await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => error,
                };
                let is_final = error.is_final();
                if matches!(error, LinkError::Connection(_) | LinkError::Silent(_)) {
                    *link.failed.lock() = Some(now());
                }
                causes.push((link.interface.clone(), error));
                if is_final {
                    break;
                }
            }
            let is_final = causes.iter().any(|(_, error)| error.is_final());
            if is_final || now() - begun + pause >= self.patience {
                return Err(WebError::NoAnswer {
                    url: call.place.to_string(),
                    causes,
                    resumable: false,
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }

    /// Asks for an object over every link at once, which learns the addresses of the store. Returns true if
    /// the object is there.
    pub(crate) async fn greet(self: &Arc<Self>, place: &S3Place) -> bool {
        let Ok(url) = self.account.url(place) else {
            return false;
        };
        let mut asking = JoinSet::new();
        for index in 0..self.links.len() {
            let (store, place, url) = (self.clone(), place.clone(), url.clone());
            asking.spawn(async move {
                let call = Call::new(Method::HEAD, &place);
                let body = reqwest::Body::from(Bytes::new());
                let asked = store.answer(&store.links[index], &url, &call, body);
                asked.await.is_ok()
            });
        }
        let mut until = now() + FIRST_ANSWER;
        let mut is_there = false;
        while let Ok(Some(answer)) = timeout_at(until.into(), asking.join_next()).await {
            is_there |= answer.unwrap_or(false);
            until = until.min(now() + OTHER_ANSWERS);
        }
        is_there
    }

    async fn send(
        &self,
        link: &StoreLink,
        url: &WebUrl,
        call: &Call<'_>,
    ) -> Result<Reply, LinkError> {
        let body = reqwest::Body::from(call.body.clone());
        let sending = self.answer(link, url, call, body);
        timeout(ANSWER_TIME, sending)
            .await
            .unwrap_or(Err(LinkError::Silent(ANSWER_TIME.as_secs())))
    }

    /// Sends one request with this body over one link. Returns an answer that is no error.
    pub(crate) async fn answer(
        &self,
        link: &StoreLink,
        url: &WebUrl,
        call: &Call<'_>,
        body: reqwest::Body,
    ) -> Result<Reply, LinkError> {
        let mut target = url.url().clone();
        if !call.query.is_empty() {
            target.set_query(Some(&encoded(&call.query)));
        }
        let request = link
            .client
            .request(call.method.clone(), target)
            .headers(call.headers.clone())
            .body(body)
            .build()
            .map_err(LinkError::of_request)?;
        let request = self.account.signed(request, Some(&call.body)).await?;
        let response = link
            .client
            .execute(request)
            .await
            .map_err(LinkError::of_request)?;
        let remote = response.remote_addr().map(|address| address.ip());
        if remote.is_some() {
            *link.remote.lock() = remote;
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = bounded(response, MOST_BYTES).await?;
        match status.is_success() {
            // A store may find out that it fails after it has said 200.
            true if call.method == Method::POST && is_error(&body) => Err(LinkError::Store(
                of_body(StatusCode::INTERNAL_SERVER_ERROR, &headers, &body),
            )),
            true => Ok(Reply {
                headers,
                body,
                by: remote.map(|remote| (link.interface.clone(), remote)),
            }),
            false => Err(LinkError::Store(of_body(status, &headers, &body))),
        }
    }
}

fn is_error(body: &[u8]) -> bool {
    xml::parsed::<ErrorBody>(body).is_some_and(|error| !error.code.is_empty())
}

fn of_body(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> StoreError {
    let said = xml::parsed::<ErrorBody>(body);
    let region = headers
        .get("x-amz-bucket-region")
        .and_then(|value| value.to_str().ok());
    let elsewhere = region
        .map(str::to_owned)
        .or_else(|| said.as_ref().map(|said| said.region.clone()))
        .filter(|region| !region.is_empty());
    let is_elsewhere = matches!(status.as_u16(), 301 | 307 | 400);
    let (code, mut message) = said.map_or_else(Default::default, |said| (said.code, said.message));
    if let (Some(region), true) = (elsewhere, is_elsewhere) {
        message = format!("the bucket is in {region}, expected --region {region}");
    }
    StoreError {
        status,
        code: crate::answer::cut(&code),
        message: crate::answer::cut(&message),
    }
}

/// Encodes a query as signatures need it: spaces as `%20`.
fn encoded(query: &[(&str, String)]) -> String {
    let pairs = query
        .iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, ESCAPED)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Time for which a link that failed is tried last.
const AVOIDED: Duration = Duration::from_secs(20);

/// Longest answer in XML: 1,000 keys of 1 KiB with escapes.
const MOST_BYTES: usize = 16 << 20;

/// Time for the first answer to a greeting, and for those of the other links after it. A link that is
/// slower is used all the same.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
const OTHER_ANSWERS: Duration = Duration::from_millis(200);

/// Time for one answer. A store joins 10,000 parts in less.
const ANSWER_TIME: Duration = Duration::from_secs(120);

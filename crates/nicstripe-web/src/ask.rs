//! Requests to the server of a URL, over one link.

use std::{net::IpAddr, sync::Arc, time::Duration};

use reqwest::{
    Client, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT_ENCODING, COOKIE, HeaderMap, HeaderValue, IF_RANGE, LOCATION, RANGE},
};
use tokio::time::timeout;
use tokio_util::bytes::{Bytes, BytesMut};

use crate::{
    answer::{Answer, Version, is_settled},
    clock::now,
    cookies::Cookies,
    error::{Breach, LinkError},
    proof::Expected,
    s3::account::Account,
    url::{Login, Shown, WebUrl},
};

/// Way to one of the URLs of a file, over one interface.
#[derive(Clone)]
pub(crate) struct Link {
    /// Interface that all connections of the client use.
    pub(crate) interface: String,
    pub(crate) client: Client,
    pub(crate) asked: Arc<Asked>,
    /// Number of the URL, 0 for the first.
    pub(crate) source: usize,
}

impl Link {
    /// Returns the name for messages, which says the host if it is not that of the first URL.
    pub(crate) fn shown(&self) -> String {
        match self.source {
            0 => self.interface.clone(),
            _ => format!("{} to {}", self.interface, self.asked.url.host()),
        }
    }
}

/// URL of a file, with the headers of its requests.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) url: WebUrl,
    /// Headers for the server of the URL; a redirection to another server does not get them.
    pub(crate) headers: HeaderMap,
    /// Login of a netrc file; that of the URL counts first.
    pub(crate) login: Option<Login>,
    /// Cookies, each for its own hosts.
    pub(crate) cookies: Cookies,
    /// Signs requests to the server of the URL.
    pub(crate) account: Option<Account>,
}

/// Facts of the first answer over a link.
#[derive(Clone)]
pub(crate) struct Found {
    /// Where the file is, behind all redirections.
    pub(crate) location: Url,
    pub(crate) version: Version,
    /// True if the server answers with parts.
    pub(crate) has_ranges: bool,
    /// Address that answered.
    pub(crate) remote: Option<IpAddr>,
    /// True if the time of modification distinguishes versions.
    is_settled: bool,
    /// Digest of the whole file that the server promises.
    pub(crate) promised: Option<Expected>,
    pub(crate) protocol: reqwest::Version,
    /// Time until the answer, with lookup, connection and TLS.
    pub(crate) took: Duration,
}

impl Found {
    /// Returns true if parts of the file can be joined: the server has them, and names the version
    /// they are.
    pub(crate) fn can_be_dealt(&self) -> bool {
        let has_version =
            self.version.tag.is_some() || (self.version.modified.is_some() && self.is_settled);
        let has_size = self
            .version
            .size
            .is_some_and(|size| (1..MOST_BYTES).contains(&size));
        self.has_ranges && has_version && has_size
    }
}

/// Bytes to ask for: a range of a version, or all.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish<'a> {
    /// From the first byte to behind the last, of this version only.
    Part(u64, u64, Option<&'a str>),
    Whole,
    /// The headers of the whole.
    Promise,
}

impl Asked {
    /// Returns what to ask for another file, with the secrets only if it is at the same server.
    pub(crate) fn beside(&self, url: &WebUrl) -> Self {
        let is_same = self.url.is_of_one_server(url.url());
        let own = || self.url.login().or(self.login.as_ref()).cloned();
        Self {
            url: url.clone(),
            headers: if is_same {
                self.headers.clone()
            } else {
                HeaderMap::new()
            },
            login: if is_same { own() } else { None },
            cookies: self.cookies.clone(),
            account: self.account.clone().filter(|_| is_same),
        }
    }

    /// Asks for one byte, and follows redirections, to learn where the file is and what the server can.
    pub(crate) async fn find(&self, link: &Link) -> Result<Found, LinkError> {
        let begun = now();
        let (mut response, mut location) = self.follow(link, Wish::Part(0, 1, None)).await?;
        // An empty file has no first byte.
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            (response, location) = self.follow(link, Wish::Whole).await?;
        }
        let remote = response.remote_addr().map(|address| address.ip());
        let promised = Expected::of_file(response.headers());
        let is_settled = is_settled(response.headers());
        let (version, has_ranges) = match Answer::of(response.status(), response.headers())? {
            Answer::Part {
                version,
                from: 0,
                to: 1,
            } => (version, true),
            Answer::Part { from, to, .. } => return Err(other_range(0, 1, from, to).into()),
            Answer::Whole(version) => (version, false),
        };
        Ok(Found {
            location,
            version,
            has_ranges,
            remote,
            is_settled,
            promised,
            protocol: response.version(),
            took: now() - begun,
        })
    }

    /// Sends a request, and follows redirections. Returns the answer and its URL.
    pub(crate) async fn follow(
        &self,
        link: &Link,
        wish: Wish<'_>,
    ) -> Result<(Response, Url), LinkError> {
        let mut location = self.url.url().clone();
        for _ in 0..MOST_REDIRECTIONS {
            let response = self.send(link, &location, wish).await?;
            if !is_redirection(response.status()) {
                return Ok((response, location));
            }
            location = redirected(&location, response.headers())?;
        }
        Err(Breach::Redirect(format!("more than {MOST_REDIRECTIONS} places in turn")).into())
    }

    /// Asks what an answer with the whole file would promise of its bytes.
    pub(crate) async fn promise(&self, link: &Link, found: &Found) -> Option<Expected> {
        let asking = self.send(link, &found.location, Wish::Promise);
        let response = timeout(PROMISE_TIME, asking).await.ok()?.ok()?;
        let headers = response.headers();
        match Answer::of(response.status(), headers).ok()? {
            Answer::Whole(version) if version == found.version => Expected::of_headers(headers),
            _ => None,
        }
    }

    /// Sends a request, and waits for the headers of the answer.
    pub(crate) async fn send(
        &self,
        link: &Link,
        location: &Url,
        wish: Wish<'_>,
    ) -> Result<Response, LinkError> {
        let mut request = match wish {
            Wish::Promise => link.client.head(location.clone()),
            _ => link.client.get(location.clone()),
        };
        // Bytes on the way must be those of the file.
        request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Wish::Part(from, to, condition) = wish {
            request = request.header(RANGE, format!("bytes={from}-{}", to - 1));
            if let Some(condition) = condition {
                request = request.header(IF_RANGE, condition);
            }
        }
        if self.url.is_of_one_server(location) {
            request = self.with_secrets(request);
        }
        if let Some(cookies) = self.cookies.header(location) {
            request = request.header(COOKIE, cookies);
        }
        let sending = async {
            let account = self.account.as_ref();
            let Some(account) = account.filter(|_| self.url.is_of_one_server(location)) else {
                return request.send().await.map_err(LinkError::of_request);
            };
            let mut request = request.build().map_err(LinkError::of_request)?;
            let mode = HeaderValue::from_static("ENABLED");
            if let Wish::Promise = wish {
                request.headers_mut().insert("x-amz-checksum-mode", mode);
            }
            let request = account.signed(request, None).await?;
            link.client
                .execute(request)
                .await
                .map_err(LinkError::of_request)
        };
        timeout(ANSWER_TIMEOUT, sending)
            .await
            .unwrap_or(Err(LinkError::Silent(ANSWER_TIMEOUT.as_secs())))
    }

    fn with_secrets(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.headers(self.headers.clone());
        match self.url.login().or(self.login.as_ref()) {
            Some(login) => request.basic_auth(&login.user, login.password.as_ref()),
            None => request,
        }
    }
}

/// Reads a whole body of so many bytes at most.
pub(crate) async fn bounded(mut response: Response, most: usize) -> Result<Bytes, LinkError> {
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(LinkError::of_request)? {
        body.extend_from_slice(&piece);
        if body.len() > most {
            return Err(Breach::Long.into());
        }
    }
    Ok(body.freeze())
}

pub(crate) fn other_range(from: u64, to: u64, found_from: u64, found_to: u64) -> Breach {
    Breach::OtherRange {
        asked: format!("{from}-{}", to - 1),
        found: format!("{found_from}-{}", found_to.saturating_sub(1)),
    }
}

pub(crate) fn is_redirection(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Returns where a redirection leads. It may not leave TLS.
fn redirected(from: &Url, headers: &HeaderMap) -> Result<Url, Breach> {
    let text = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    // It may be signed.
    let unreadable = || Breach::Redirect("a place that is no URL".to_owned());
    let to = from
        .join(text.unwrap_or_default())
        .map_err(|_| unreadable())?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") if to.host_str().is_some() => Ok(to),
        _ => Err(Breach::Redirect(Shown(&to).to_string())),
    }
}

/// Bytes of a file that no file system holds: 4 EiB.
const MOST_BYTES: u64 = 1 << 62;

/// Places that may be passed on the way to a file: as in curl's and browsers' own limits, less than 20.
const MOST_REDIRECTIONS: usize = 10;

/// Time for headers that only add a proof.
const PROMISE_TIME: Duration = Duration::from_secs(5);

/// Time until the headers of an answer, after the connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

//! Options of a fetch, and the links that they choose.

use std::time::Duration;

use nicstripe::CopyOptions;
use reqwest::header::HeaderMap;

use crate::{
    ask::Asked,
    cookies::Cookies,
    error::WebError,
    header::Header,
    links::{Links, Wanted},
    netrc,
    proof::Expected,
    s3::account::Account,
    url::WebUrl,
};

/// Options of a fetch. The default takes every link, resumes, and replaces nothing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FetchOptions {
    /// Interfaces to use, and no others; empty for all that may lead to the server.
    pub links: Vec<String>,
    /// Interfaces not to use.
    pub excluded: Vec<String>,
    /// Requests that a link has under way, 1 to 16: while one waits for an answer, another fills the
    /// link. `None` to begin with 2 and add one after the other, up to 8, while each makes the link
    /// faster.
    pub streams: Option<usize>,
    /// Headers for the server of the URL. A redirection to another server does not get them.
    pub headers: Vec<Header>,
    /// Cookies, which go to their own hosts, also behind a redirection.
    pub cookies: Cookies,
    /// Text of a netrc file, with the login for the server of a URL that has none.
    pub netrc: Option<String>,
    /// Account of the S3 store that the URL is of, which signs the requests.
    pub account: Option<Account>,
    /// Digest that the file must have.
    pub expected: Option<Expected>,
    /// File of checksums that has the SHA-256 of the file's name, such as `SHA256SUMS`.
    pub sums: Option<WebUrl>,
    /// Other URLs of the same file, from which it is fetched, too. Needs `expected` or `sums`.
    pub mirrors: Vec<WebUrl>,
    /// Fetch nothing if the target has the size and the modification time of the file at the server,
    /// and the expected digest.
    pub unless_same: bool,
    /// Give the file the permissions that are noted with an object of an S3 store.
    pub preserve: bool,
    /// `replace`, `force`, `restart` and `parents` count.
    pub copy: CopyOptions,
    /// Time with less than 1 KiB/s after which the fetch fails.
    pub patience: Duration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            excluded: Vec::new(),
            streams: None,
            headers: Vec::new(),
            cookies: Cookies::default(),
            netrc: None,
            account: None,
            expected: None,
            sums: None,
            mirrors: Vec::new(),
            unless_same: false,
            preserve: false,
            copy: CopyOptions::default(),
            patience: Duration::from_secs(600),
        }
    }
}

impl FetchOptions {
    fn asked(&self, url: &WebUrl) -> Asked {
        let mut headers = HeaderMap::new();
        for header in &self.headers {
            headers.append(header.name.clone(), header.value.clone());
        }
        let netrc = self.netrc.as_deref();
        Asked {
            login: netrc.and_then(|text| netrc::login(text, url.host())),
            url: url.clone(),
            headers,
            cookies: self.cookies.clone(),
            account: self.account.clone(),
        }
    }

    /// Returns the links to a URL, and to its mirrors. Headers go to the server of the URL only.
    pub(crate) async fn links(&self, url: &WebUrl) -> Result<Links, WebError> {
        let first = self.asked(url);
        let mirrors = self.mirrors.iter().map(|mirror| {
            let asked = self.asked(mirror);
            match url.is_of_one_server(mirror.url()) {
                true => asked,
                false => Asked {
                    headers: HeaderMap::new(),
                    account: None,
                    ..asked
                },
            }
        });
        let wanted = Wanted {
            only: &self.links,
            excluded: &self.excluded,
        };
        let all = std::iter::once(first.clone()).chain(mirrors).collect();
        Links::find(all, &wanted).await
    }

    /// Returns the streams per link at first, and at most.
    pub(crate) fn streams(&self) -> (usize, usize) {
        match self.streams {
            Some(streams) => {
                let streams = streams.clamp(1, MOST_STREAMS);
                (streams, streams)
            }
            None => (FIRST_STREAMS, MOST_FOUND_STREAMS),
        }
    }
}

const MOST_STREAMS: usize = 16;

/// Streams of a link at first, and as many as may be found useful: what browsers open to a server, and
/// less than servers object to.
const FIRST_STREAMS: usize = 2;
const MOST_FOUND_STREAMS: usize = 8;

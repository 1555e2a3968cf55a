//! Errors of a fetch, each with who must act.

use std::time::Duration;

use nicstripe::FileError;
use reqwest::StatusCode;
use thiserror::Error;

use crate::store_error::StoreError;

/// Why a file was not fetched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WebError {
    /// No interface of this machine may lead to the server. Contains the interfaces, each with the
    /// reason.
    #[error("no interface leads to {host}{}", listed(.left_out))]
    NoLink {
        /// Host of the URL.
        host: String,
        /// Interfaces, each with the reason.
        left_out: Vec<(String, String)>,
    },
    /// The server answered over no link.
    #[error("request for {url} failed{}", links(.causes))]
    NoAnswer {
        /// URL without its secrets.
        url: String,
        /// Interfaces, each with its last error.
        causes: Vec<(String, LinkError)>,
        /// True if a rerun resumes.
        resumable: bool,
    },
    /// The file changed at the server during the fetch.
    #[error(
        "{url} changed during the copy: {found} over {interface}, {expected} at the start; run it again for the new version"
    )]
    Changed {
        /// URL without its secrets.
        url: String,
        /// Interface whose answer had another version.
        interface: String,
        /// Version at the start.
        expected: String,
        /// Version that was found.
        found: String,
    },
    /// The digest of the file is not the expected one. Nothing was written under its name.
    #[error("{url} has {algorithm} {found}, expected {expected}: nothing was kept")]
    Digest {
        /// URL without its secrets.
        url: String,
        /// Name of the algorithm.
        algorithm: &'static str,
        /// Expected digest in hexadecimal digits.
        expected: String,
        /// Digest of the bytes that arrived.
        found: String,
    },
    /// The target cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The stream that takes the file cannot be written.
    #[error("cannot write the output")]
    Output(#[source] std::io::Error),
    /// Several URLs were given without a digest: nothing shows whether they have the same file.
    #[error("several URLs of one file need its digest")]
    NoDigest,
    /// The file of checksums has no line for the file, or cannot be read.
    #[error("{url} has no sha256 of {name:?}")]
    NoSum {
        /// URL of the file of checksums, without its secrets.
        url: String,
        /// Name of the file, escaped.
        name: String,
    },
    /// Less than 1 KiB/s arrived for as long as the caller waits.
    #[error("{url} sent less than 1 KiB/s for {seconds} s{}", links(.causes))]
    TimedOut {
        /// URL without its secrets.
        url: String,
        /// Time without a byte in seconds.
        seconds: u64,
        /// Interfaces, each with its last error.
        causes: Vec<(String, LinkError)>,
        /// True if a rerun resumes.
        resumable: bool,
    },
    /// The URL of a store, or of an object in it, cannot be used.
    #[error("{url}: {why}")]
    Endpoint {
        /// URL or place.
        url: String,
        /// Reason.
        why: String,
    },
    /// The answer of a store makes no sense.
    #[error("{url}: the store's answer makes no sense")]
    Nonsense {
        /// Place that was asked for.
        url: String,
    },
    /// No key begins so.
    #[error("{place}: no such object or folder")]
    Nothing {
        /// Bucket and key.
        place: String,
    },
    /// The key exists and must not be replaced.
    #[error("{place} exists")]
    Exists {
        /// Bucket and key.
        place: String,
    },
    /// A pipe is longer than an object can be.
    #[error("the input has more than {parts} parts: expected larger ones, --part-size")]
    TooLong {
        /// Parts of an object at most.
        parts: u64,
    },
    /// The source of an upload changed during the upload.
    #[error("{path} changed during the copy")]
    SourceChanged {
        /// Path of the file.
        path: String,
    },
    /// The caller cancelled the fetch.
    #[error("cancelled")]
    Cancelled {
        /// True if a rerun resumes.
        resumable: bool,
    },
}

impl WebError {
    /// Returns true if the server has no such file.
    pub fn is_missing(&self) -> bool {
        let is_missing = |status: StatusCode| matches!(status.as_u16(), 404 | 410);
        self.is_all(|cause| match cause {
            LinkError::Refused(status) => is_missing(*status),
            LinkError::Store(error) => is_missing(error.status),
            _ => false,
        })
    }

    /// Returns true if the server refuses: the file needs other rights.
    pub fn is_refused(&self) -> bool {
        let is_refusal = |cause: &LinkError| {
            matches!(
                cause,
                LinkError::Refused(_) | LinkError::Store(_) | LinkError::Credentials(_)
            )
        };
        self.is_all(is_refusal)
    }

    /// Returns true if what answered broke the rules of HTTP.
    pub fn is_breach(&self) -> bool {
        self.is_all(|cause| matches!(cause, LinkError::Breach(_)))
    }

    /// Returns true if all answers are such. A link without any says nothing about the server.
    fn is_all(&self, is_such: impl Fn(&LinkError) -> bool) -> bool {
        let Self::NoAnswer { causes, .. } = self else {
            return false;
        };
        let is_answer =
            |cause: &&LinkError| !matches!(cause, LinkError::Connection(_) | LinkError::Silent(_));
        let mut answers = causes
            .iter()
            .map(|(_, cause)| cause)
            .filter(is_answer)
            .peekable();
        answers.peek().is_some() && answers.all(is_such)
    }

    /// Returns true if a rerun continues with what arrived.
    pub fn is_resumable(&self) -> bool {
        match self {
            Self::NoAnswer { resumable, .. }
            | Self::TimedOut { resumable, .. }
            | Self::Cancelled { resumable } => *resumable,
            Self::File(error) => error.resumable,
            _ => false,
        }
    }
}

/// Why a link did not bring bytes.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The connection or TLS failed.
    #[error("{0}")]
    Connection(String),
    /// Nobody vouches for the server's certificate, or it is for another name or time.
    #[error("{0}")]
    Certificate(String),
    /// No byte arrived for too long.
    #[error("silent for {0} s")]
    Silent(u64),
    /// The server refused.
    #[error("{0}")]
    Refused(StatusCode),
    /// The store refuses, in its own words.
    #[error(transparent)]
    Store(StoreError),
    /// There are no credentials for the store, or they cannot be had.
    #[error("{0}")]
    Credentials(String),
    /// The server has too much to do.
    #[error("{0}, asked to come back later")]
    Later(StatusCode, Duration),
    /// The server broke the rules of HTTP, or something between.
    #[error(transparent)]
    Breach(#[from] Breach),
}

impl LinkError {
    /// Returns true if another attempt over the same link cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Silent(_) | Self::Later(..) => false,
            Self::Certificate(_) | Self::Credentials(_) => true,
            Self::Store(error) => !error.is_passing(),
            Self::Refused(status) => {
                !status.is_server_error() && *status != StatusCode::REQUEST_TIMEOUT
            }
            Self::Breach(breach) => !matches!(breach, Breach::Short { .. }),
        }
    }
}

impl LinkError {
    /// Returns the store's own error.
    pub(crate) fn store(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the error of a request, without its URL.
    pub(crate) fn of_request(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let text = nicstripe::chain(&error);
        let text = nicstripe::printable(text.as_bytes());
        match is_of_certificate(&error) {
            true => Self::Certificate(text),
            false => Self::Connection(text),
        }
    }
}

/// Returns true if the server's certificate is the cause.
fn is_of_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_tls = |error: &(dyn std::error::Error + 'static)| {
        matches!(
            error.downcast_ref(),
            Some(rustls::Error::InvalidCertificate(_))
        )
    };
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if is_tls(error) || inner.is_some_and(|inner| is_tls(inner)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// How an answer breaks the rules.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Breach {
    /// The bytes are encoded although the request forbade it.
    #[error("answer is encoded ({0}), which was not asked for")]
    Encoded(String),
    /// The range of the answer makes no sense.
    #[error("answer has a senseless Content-Range ({0:?})")]
    Range(String),
    /// The answer has other bytes than the request asked for.
    #[error("answer has bytes {found}, {asked} were asked for")]
    OtherRange {
        /// Range of the request.
        asked: String,
        /// Range of the answer.
        found: String,
    },
    /// The answer ended too early.
    #[error("answer ended {missing} bytes early")]
    Short {
        /// Bytes that did not come.
        missing: u64,
    },
    /// The answer went on behind its end.
    #[error("answer has more bytes than it promised")]
    Long,
    /// Another version than the one of the other links.
    #[error("answers with another version: {0}")]
    OtherVersion(String),
    /// A redirection leads from https to http, or to another scheme.
    #[error("redirects to {0}, which is not safe")]
    Redirect(String),
}

fn listed(left_out: &[(String, String)]) -> String {
    let all: Vec<_> = left_out
        .iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" ({})", all.join("; ")),
    }
}

/// One cause that all links share is said once.
fn links(causes: &[(String, LinkError)]) -> String {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, cause) in causes {
        let cause = cause.to_string();
        match said.iter_mut().find(|(other, _)| *other == cause) {
            Some((_, names)) => names.push(name),
            None => said.push((cause, vec![name])),
        }
    }
    let all: Vec<_> = said
        .iter()
        .map(|(cause, names)| format!("{}: {cause}", names.join(", ")))
        .collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(": {}", all.join("; ")),
    }
}

//! Errors of S3 stores, in their own words.

use reqwest::StatusCode;
use thiserror::Error;

/// Error of a store, as it says it itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error("{}{}", .status, detail(.code, .message))]
pub struct StoreError {
    /// Status of HTTP.
    pub status: StatusCode,
    /// Word of S3 for it, such as `NoSuchKey`; empty if the store says none.
    pub code: String,
    /// Sentence of the store, cut and escaped.
    pub message: String,
}

fn detail(code: &str, message: &str) -> String {
    match (code, message) {
        ("", "") => String::new(),
        (code, "") => format!(" {code}"),
        (code, message) => format!(" {code}: {message}"),
    }
}

impl StoreError {
    /// Returns true if the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        self.status.is_server_error() && self.status != StatusCode::NOT_IMPLEMENTED
            || matches!(self.status.as_u16(), 408 | 429)
            || PASSING.contains(&&*self.code)
    }
}

/// Words for what another attempt may cure: an overload, or bytes that were damaged on the way.
const PASSING: [&str; 6] = [
    "BadDigest",
    "IncompleteBody",
    "InternalError",
    "RequestTimeout",
    "SlowDown",
    "XAmzContentSHA256Mismatch",
];

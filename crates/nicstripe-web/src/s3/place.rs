//! Places of objects, as typed.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::error::WebError;

/// Bucket, and the key of an object or the beginning of several keys: `s3://bucket/key`. The key is taken
/// as it is, without escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Place {
    bucket: String,
    key: String,
}

/// Why a text is no [`S3Place`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum S3PlaceError {
    /// The text does not begin with `s3://`.
    #[error("expected s3://BUCKET/KEY")]
    Scheme,
    /// The name of the bucket is none.
    #[error(
        "no bucket {0:?}: expected 3 to 63 lower-case letters, digits, dots and hyphens after s3://"
    )]
    Bucket(String),
    /// The key is longer than stores accept.
    #[error("key has {0} bytes, limit is {MOST_BYTES}")]
    Long(usize),
    /// The key has a control character.
    #[error("key has control characters")]
    Control,
}

impl FromStr for S3Place {
    type Err = S3PlaceError;

    fn from_str(text: &str) -> Result<Self, S3PlaceError> {
        let (scheme, rest) = text.split_at_checked(5).ok_or(S3PlaceError::Scheme)?;
        if !scheme.eq_ignore_ascii_case("s3://") {
            return Err(S3PlaceError::Scheme);
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_inner = |byte: &u8| is_edge(byte) || matches!(byte, b'.' | b'-' | b'_');
        let bytes = bucket.as_bytes();
        let is_bucket = (3..=63).contains(&bytes.len())
            && bytes.iter().all(is_inner)
            && bytes.first().is_some_and(is_edge)
            && bytes.last().is_some_and(is_edge);
        if !is_bucket {
            return Err(S3PlaceError::Bucket(bucket.to_owned()));
        }
        Self::root(bucket).with_key(key)
    }
}

impl S3Place {
    /// Returns the place of a whole bucket.
    pub(crate) fn root(bucket: &str) -> Self {
        Self {
            bucket: bucket.to_owned(),
            key: String::new(),
        }
    }

    /// Returns the error for an answer that is none.
    pub(crate) fn nonsense(&self) -> WebError {
        WebError::Nonsense {
            url: self.to_string(),
        }
    }

    /// Returns the place of another key in the same bucket.
    ///
    /// # Errors
    ///
    /// Stores do not accept the key.
    pub fn with_key(&self, key: &str) -> Result<Self, S3PlaceError> {
        if key.len() > MOST_BYTES {
            return Err(S3PlaceError::Long(key.len()));
        }
        if key.chars().any(char::is_control) {
            return Err(S3PlaceError::Control);
        }
        Ok(Self {
            bucket: self.bucket.clone(),
            key: key.to_owned(),
        })
    }

    /// Returns the name of the bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the key; empty for the bucket itself.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns true if the place is a bucket, or ends with a slash: a folder of keys.
    pub fn is_folder(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

/// Length of the longest key in bytes.
const MOST_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_and_key_are_taken_as_typed() {
        for (text, bucket, key) in [
            ("s3://my-bucket/a/b c%20d", "my-bucket", "a/b c%20d"),
            ("S3://bucket", "bucket", ""),
            ("s3://bucket/", "bucket", ""),
            ("s3://bucket//x", "bucket", "/x"),
        ] {
            let place: S3Place = text.parse().unwrap();
            assert_eq!((place.bucket(), place.key()), (bucket, key), "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused_with_the_reason() {
        for (text, said) in [
            ("bucket/key", "expected s3://"),
            ("s3:/b", "expected s3://"),
            ("s3://", "no bucket"),
            ("s3://ab/x", "no bucket"),
            ("s3://UPPER/x", "no bucket"),
            ("s3://-ab/x", "no bucket"),
            ("s3://a b c/x", "no bucket"),
            ("s3://evil.example@host/x", "no bucket"),
            ("s3://bucket/a\nb", "control"),
            (
                &format!("s3://bucket/{}", "x".repeat(1025)),
                "limit is 1024",
            ),
        ] {
            let error = text.parse::<S3Place>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

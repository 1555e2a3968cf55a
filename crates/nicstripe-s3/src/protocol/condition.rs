//! Conditions of requests (RFC 9110, section 13), also those of the source of a copy.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::{HeaderMap, header::IF_RANGE};

use super::error::{Code, S3Error};

/// Result of the conditions of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Met,
    NotModified,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    tags: Option<String>,
    no_tags: Option<String>,
    since: Option<SystemTime>,
    not_since: Option<SystemTime>,
}

impl Conditions {
    /// Reads the conditions of headers that begin with `prefix`. A date that is none is ignored, as HTTP
    /// says.
    pub(crate) fn of(headers: &HeaderMap, prefix: &str) -> Self {
        let text = |name: &str| {
            let lines = headers.get_all(format!("{prefix}{name}")).iter();
            // No tag has a replacement character.
            let lines: Vec<_> = lines
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            (!lines.is_empty()).then(|| lines.join(","))
        };
        let date = |name: &str| httpdate::parse_http_date(&text(name)?).ok();
        Self {
            tags: text("if-match"),
            no_tags: text("if-none-match"),
            since: date("if-modified-since"),
            not_since: date("if-unmodified-since"),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if only a name that does not exist yet may be written.
    pub(crate) fn only_new(&self) -> Result<bool, S3Error> {
        match self.no_tags.as_deref().map(str::trim) {
            None => Ok(false),
            Some("*") => Ok(true),
            Some(_) => Err(Code::NOT_IMPLEMENTED.because("If-None-Match of a write is * only")),
        }
    }

    /// Returns true if an object is written or removed only if it has a tag.
    pub(crate) fn only_if(&self) -> bool {
        self.tags.is_some()
    }

    /// Compares with an object that exists. A tag counts more than a time.
    pub(crate) fn check(&self, etag: &str, modified: SystemTime) -> Result<Outcome, S3Error> {
        let modified = seconds(modified);
        let failed =
            || Err(Code::PRECONDITION_FAILED.because("a condition of the request is not met"));
        match (&self.tags, self.not_since) {
            (Some(tags), _) if !matches(tags, etag) => return failed(),
            (None, Some(time)) if modified > seconds(time) => return failed(),
            _ => {}
        }
        Ok(match (&self.no_tags, self.since) {
            (Some(tags), _) if matches(tags, etag) => Outcome::NotModified,
            (None, Some(time)) if modified <= seconds(time) => Outcome::NotModified,
            _ => Outcome::Met,
        })
    }

    /// Compares as [`check`](Self::check), for a request that cannot be answered with "not modified".
    pub(crate) fn require(&self, etag: &str, modified: SystemTime) -> Result<(), S3Error> {
        match self.check(etag, modified)? {
            Outcome::Met => Ok(()),
            Outcome::NotModified => {
                Err(Code::PRECONDITION_FAILED.because("a condition of the request is not met"))
            }
        }
    }
}

/// Returns true if a range may be read: the header `If-Range`, if any, is of this object.
pub(crate) fn is_in_range(headers: &HeaderMap, etag: &str, modified: SystemTime) -> bool {
    let Some(value) = headers.get(IF_RANGE) else {
        return true;
    };
    let text = value.to_str().unwrap_or_default();
    match httpdate::parse_http_date(text) {
        Ok(time) => seconds(time) == seconds(modified),
        Err(_) => !text.starts_with("W/") && bare(text) == etag,
    }
}

/// Returns true if a list of tags has this one.
fn matches(list: &str, etag: &str) -> bool {
    list.split(',')
        .any(|tag| tag.trim() == "*" || bare(tag) == etag)
}

/// Returns a tag without quotes and the mark of weak tags.
pub(crate) fn bare(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')
}

/// Returns whole seconds, which is all that headers have.
fn seconds(time: SystemTime) -> Duration {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_count_more_than_times() {
        let modified = UNIX_EPOCH + Duration::from_millis(784_111_777_500);
        let same = "Sun, 06 Nov 1994 08:49:37 GMT";
        let (before, after) = (
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
        );
        let outcome = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs.iter();
            let headers = pairs
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            Conditions::of(&headers, "").check("abc", modified).ok()
        };
        const MET: Option<Outcome> = Some(Outcome::Met);
        const SAME: Option<Outcome> = Some(Outcome::NotModified);
        for (pairs, expected) in [
            (&[][..], MET),
            (&[("if-match", "\"abc\"")], MET),
            (&[("if-match", "\"x\", W/\"abc\"")], MET),
            (&[("if-match", "\"x\"")], None),
            (&[("if-match", "\"*\"")], None),
            (&[("if-match", "\"\u{e4}\"")], None),
            (&[("if-match", "\"x\""), ("if-match", "\"abc\"")], MET),
            (&[("if-none-match", "*")], SAME),
            (&[("if-none-match", "x")], MET),
            (&[("if-modified-since", same)], SAME),
            (&[("if-modified-since", before)], MET),
            (&[("if-unmodified-since", same)], MET),
            (&[("if-unmodified-since", before)], None),
            (&[("if-match", "abc"), ("if-unmodified-since", before)], MET),
            (&[("if-none-match", "x"), ("if-modified-since", after)], MET),
        ] {
            assert_eq!(outcome(pairs), expected, "{pairs:?}");
        }
    }
}

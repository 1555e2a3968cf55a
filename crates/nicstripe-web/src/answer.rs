//! Facts of an answer: the version of the file, and the range.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use reqwest::{
    StatusCode,
    header::{
        CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderName,
        LAST_MODIFIED, RETRY_AFTER,
    },
};

use crate::error::{Breach, LinkError};

/// Version of a file, as the headers of an answer name it. Two answers of one version are parts of
/// the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// Size of the whole file in bytes; `None` if the server does not tell it.
    pub(crate) size: Option<u64>,
    /// Strong entity tag, in quotes, as sent. A weak one promises no equal bytes.
    pub(crate) tag: Option<String>,
    /// Time of the last modification, as sent.
    pub(crate) modified: Option<String>,
    /// Time of modification of the file that was uploaded, as rclone and nicstripe note it.
    original: Option<SystemTime>,
    /// Permissions of that file.
    pub(crate) mode: Option<u32>,
}

impl Version {
    /// Returns true if an answer to a request for this version is of another one. Such an answer may leave
    /// out what the request named (RFC 9110, section 15.3.7).
    pub(crate) fn is_contradicted_by(&self, other: &Self) -> bool {
        let differs =
            |own: &Option<String>, other: &Option<String>| other.is_some() && own != other;
        (other.size.is_some() && self.size != other.size)
            || (self.tag.is_some() && self.tag != other.tag)
            || differs(&self.modified, &other.modified)
    }

    /// Returns the value of `If-Range` that asks for bytes of this version only; `None` if nothing
    /// distinguishes versions.
    pub(crate) fn condition(&self) -> Option<&str> {
        self.tag.as_deref().or(self.modified.as_deref())
    }

    /// Returns the time of modification of the file that became the object, or else that of the server's.
    pub(crate) fn modified_at(&self) -> Option<SystemTime> {
        if let Some(original) = self.original {
            return Some(original);
        }
        httpdate::parse_http_date(self.modified.as_deref()?).ok()
    }

    fn of(headers: &HeaderMap, size: Option<u64>) -> Self {
        let text = |name| text(headers, name).map(str::to_owned);
        let is_strong = |tag: &String| tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"');
        Self {
            size,
            tag: text(ETAG).filter(is_strong),
            modified: text(LAST_MODIFIED).filter(|time| httpdate::parse_http_date(time).is_ok()),
            original: text(HeaderName::from_static("x-amz-meta-mtime"))
                .and_then(|seconds| since_1970(&seconds)),
            mode: text(HeaderName::from_static("x-amz-meta-mode"))
                .and_then(|octal| u32::from_str_radix(&octal, 8).ok()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "{size} bytes")?,
            None => f.write_str("unknown size")?,
        }
        if let Some(tag) = &self.tag {
            write!(f, ", e-tag {}", cut(tag))?;
        }
        if let Some(modified) = &self.modified {
            write!(f, ", modified {modified}")?;
        }
        Ok(())
    }
}

/// Answer to a request for bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The bytes of a range, from its first to behind its last.
    Part {
        version: Version,
        from: u64,
        to: u64,
    },
    /// The whole file, because the server has no ranges or has another version.
    Whole(Version),
}

impl Answer {
    /// Reads the status and the headers of an answer.
    ///
    /// # Errors
    ///
    /// The server refuses or has too much to do, the headers contradict each other, or the bytes are encoded.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> Result<Self, LinkError> {
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            return Err(LinkError::Later(status, retry_after(headers)));
        }
        if !status.is_success() {
            return Err(LinkError::Refused(status));
        }
        if headers.contains_key(CONTENT_ENCODING) {
            let encoding = text(headers, CONTENT_ENCODING).unwrap_or("several times");
            if !encoding.eq_ignore_ascii_case("identity") {
                return Err(Breach::Encoded(cut(encoding)).into());
            }
        }
        let length = text(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
        match status {
            StatusCode::OK => Ok(Self::Whole(Version::of(headers, length))),
            StatusCode::PARTIAL_CONTENT => {
                let range = text(headers, CONTENT_RANGE).unwrap_or_default();
                let malformed = || Breach::Range(cut(range));
                let (from, to, size) = content_range(range).ok_or_else(malformed)?;
                if length.is_some_and(|length: u64| length != to - from) {
                    return Err(malformed().into());
                }
                Ok(Self::Part {
                    version: Version::of(headers, size),
                    from,
                    to,
                })
            }
            other => Err(LinkError::Refused(other)),
        }
    }
}

/// Parses seconds since 1970 with up to nine decimals.
fn since_1970(text: &str) -> Option<SystemTime> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 9 {
        return None;
    }
    let nanoseconds = format!("{decimals:0<9}").parse().ok()?;
    let since = Duration::new(seconds.parse().ok()?, nanoseconds);
    (since < LATEST).then(|| SystemTime::UNIX_EPOCH + since)
}

/// Parses `bytes FIRST-LAST/SIZE`, where the size may be `*`. Returns the first byte, the one behind
/// the last, and the size.
fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (unit, rest) = text.split_once(' ')?;
    let (range, size) = rest.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let size = match size {
        "*" => None,
        size => Some(number(size)?),
    };
    let is_valid =
        unit.eq_ignore_ascii_case("bytes") && first <= last && size.is_none_or(|size| last < size);
    is_valid.then_some((first, last.checked_add(1)?, size))
}

/// Returns how long to wait: seconds or a date, within bounds.
fn retry_after(headers: &HeaderMap) -> Duration {
    let text = text(headers, RETRY_AFTER).unwrap_or_default();
    let seconds = text.parse().ok().map(Duration::from_secs);
    let until = || {
        httpdate::parse_http_date(text)
            .ok()?
            .duration_since(SystemTime::now())
            .ok()
    };
    let asked = seconds.or_else(until).unwrap_or(RETRY_UNTOLD);
    asked.clamp(RETRY_LEAST, RETRY_MOST)
}

/// Returns text of a server for display: escaped, and not endless.
pub(crate) fn cut(text: &str) -> String {
    text.escape_debug().take(MOST_SHOWN).collect()
}

/// Returns true if no second version can have the same time of modification, which counts in seconds: it
/// is a minute old (RFC 9110, section 8.8.2.2).
pub(crate) fn is_settled(headers: &HeaderMap) -> bool {
    let time = |name| httpdate::parse_http_date(text(headers, name)?).ok();
    let now = time(DATE).unwrap_or_else(SystemTime::now);
    let age = time(LAST_MODIFIED).and_then(|modified| now.duration_since(modified).ok());
    age.is_some_and(|age| age >= SETTLED)
}

/// Returns a header that occurs once and is text.
pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

/// Most characters of a server's text in a message.
const MOST_SHOWN: usize = 200;

/// Year 10,000, which every file system's clock reaches or refuses by itself.
const LATEST: Duration = Duration::from_secs(253_402_300_800);

const SETTLED: Duration = Duration::from_secs(60);

/// Time to wait if the server names none.
const RETRY_UNTOLD: Duration = Duration::from_secs(1);

/// A server that says 0 is asked four times a second.
const RETRY_LEAST: Duration = Duration::from_millis(250);

/// Longest wait that a server may ask for.
const RETRY_MOST: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn part(range: &str, more: &[(&'static str, &str)]) -> Result<Answer, LinkError> {
        let lines = [&[("content-range", range)], more].concat();
        Answer::of(StatusCode::PARTIAL_CONTENT, &headers(&lines))
    }

    #[test]
    fn a_part_says_which_bytes_of_which_version_it_has() {
        let more = [
            ("etag", "\"a\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("content-length", "3"),
        ];
        let answer = part("bytes 2-4/10", &more).unwrap();
        let Answer::Part { version, from, to } = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((from, to), (2, 5));
        assert_eq!(version.size, Some(10));
        assert_eq!(version.condition(), Some("\"a\""));
        assert_eq!(
            version.modified_at(),
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777))
        );
    }

    #[test]
    fn only_a_strong_tag_or_a_time_tells_versions_apart() {
        for (lines, condition) in [
            (&[("etag", "W/\"a\"")][..], None),
            (&[("etag", "a")], None),
            (&[("etag", "\"")], None),
            (&[("etag", "\"a\""), ("etag", "\"b\"")], None),
            (&[("last-modified", "yesterday")], None),
            (
                &[
                    ("etag", "W/\"a\""),
                    ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ],
                Some("Sun, 06 Nov 1994 08:49:37 GMT"),
            ),
            (&[("etag", "\"\"")], Some("\"\"")),
        ] {
            let version = Version::of(&headers(lines), None);
            assert_eq!(version.condition(), condition, "{lines:?}");
        }
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        for range in [
            "",
            "bytes",
            "bytes */10",
            "bytes 4-2/10",
            "bytes 0-10/10",
            "bytes 0-9/",
            "bytes -1-9/10",
            "bytes +1-9/10",
            "items 0-9/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-99999999999999999999/*",
            "bytes 0-1/18446744073709551616",
        ] {
            let found = part(range, &[]);
            let is_refused = matches!(found, Err(LinkError::Breach(Breach::Range(_))));
            assert!(is_refused, "{range}");
        }
        assert!(part("bytes 0-9/10", &[("content-length", "9")]).is_err());
        assert!(part("bytes 0-9/*", &[]).is_ok());
    }

    #[test]
    fn an_object_has_the_time_of_the_file_that_it_was() {
        for (text, expected) in [
            ("1354040105.123456789", Some((1_354_040_105, 123_456_789))),
            ("1354040105.5", Some((1_354_040_105, 500_000_000))),
            ("1354040105", Some((1_354_040_105, 0))),
            ("-1", None),
            ("1e9", None),
            ("99999999999999999999", None),
            ("253402300800", None),
            ("1.1234567891", None),
        ] {
            let expected = expected
                .map(|(seconds, nanos)| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos));
            let version = Version::of(&headers(&[("x-amz-meta-mtime", text)]), None);
            assert_eq!(version.modified_at(), expected, "{text}");
        }
    }

    #[test]
    fn encoded_bytes_are_refused() {
        let of = |encoding| Answer::of(StatusCode::OK, &headers(&[("content-encoding", encoding)]));
        assert!(matches!(
            of("gzip"),
            Err(LinkError::Breach(Breach::Encoded(_)))
        ));
        assert!(of("identity").is_ok());
    }

    #[test]
    fn a_server_may_ask_for_patience_within_bounds() {
        for (after, expected) in [
            ("3", 3000),
            ("0", 250),
            ("86400", 120_000),
            ("soon", 1000),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 1000),
        ] {
            let headers = headers(&[("retry-after", after)]);
            let busy = StatusCode::SERVICE_UNAVAILABLE;
            let later = Answer::of(busy, &headers).unwrap_err();
            let expected = Duration::from_millis(expected);
            assert!(
                matches!(later, LinkError::Later(status, time) if (status, time) == (busy, expected)),
                "{after}"
            );
        }
    }
}

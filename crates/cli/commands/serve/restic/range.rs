//! Parsing of the `Range` header of HTTP requests (RFC 9110, section 14).

use std::ops::Range;

/// Part of an object that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The whole object, for a request without a range or with an unsupported one.
    Whole,
    /// Range of bytes within the object.
    Part(Range<u64>),
    /// Range that begins after the end of the object.
    Nothing,
}

/// Parses the `Range` header of a request for an object of `size` bytes. Anything but a single byte
/// range selects the whole object, as the RFC permits.
pub(super) fn requested_range(header: Option<&str>, size: u64) -> RequestedRange {
    let Some((first, last)) = header.and_then(|text| text.strip_prefix("bytes=")?.split_once('-'))
    else {
        return RequestedRange::Whole;
    };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => part(first..last.saturating_add(1).min(size)),
        (Some(first), None) if last.is_empty() => part(first..size),
        (None, Some(suffix)) if first.is_empty() => part(size.saturating_sub(suffix)..size),
        _ => RequestedRange::Whole,
    }
}

fn part(range: Range<u64>) -> RequestedRange {
    if range.is_empty() {
        RequestedRange::Nothing
    } else {
        RequestedRange::Part(range)
    }
}

/// Parses a number of digits only. `str::parse` alone would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_understood_and_cut_at_the_end() {
        for (header, expected) in [
            ("bytes=0-0", RequestedRange::Part(0..1)),
            ("bytes=2-5", RequestedRange::Part(2..6)),
            ("bytes=2-99", RequestedRange::Part(2..10)),
            ("bytes=2-18446744073709551615", RequestedRange::Part(2..10)),
            ("bytes=9-", RequestedRange::Part(9..10)),
            ("bytes=-3", RequestedRange::Part(7..10)),
            ("bytes=-30", RequestedRange::Part(0..10)),
            ("bytes=10-", RequestedRange::Nothing),
            ("bytes=10-11", RequestedRange::Nothing),
            ("bytes=-0", RequestedRange::Nothing),
        ] {
            assert_eq!(requested_range(Some(header), 10), expected, "{header}");
        }
        assert_eq!(
            requested_range(Some("bytes=0-"), 0),
            RequestedRange::Nothing
        );
    }

    #[test]
    fn what_is_no_range_asks_for_the_whole() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=1-2,4-5",
            "bytes=+1-2",
            "lines=1-2",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(
                requested_range(Some(header), 10),
                RequestedRange::Whole,
                "{header}"
            );
        }
        assert_eq!(requested_range(None, 10), RequestedRange::Whole);
    }
}

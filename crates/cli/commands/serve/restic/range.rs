//! Parsing of the `Range` header of HTTP requests (RFC 9110, section 14).

use std::ops::Range;

/// Parses the `Range` header of a request for an object of `size` bytes. A range that begins after
/// the end of the object is empty.
///
/// Returns `None` for the whole object: without a range, and, as the RFC permits, for anything but a
/// single byte range.
pub(super) fn requested_range(header: Option<&str>, size: u64) -> Option<Range<u64>> {
    let (first, last) = header?.strip_prefix("bytes=")?.split_once('-')?;
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Some(first..last.saturating_add(1).min(size)),
        (Some(first), None) if last.is_empty() => Some(first..size),
        (None, Some(suffix)) if first.is_empty() => Some(size.saturating_sub(suffix)..size),
        _ => None,
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
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-99", 2..10),
            ("bytes=2-18446744073709551615", 2..10),
            ("bytes=9-", 9..10),
            ("bytes=-3", 7..10),
            ("bytes=-30", 0..10),
        ] {
            assert_eq!(
                requested_range(Some(header), 10),
                Some(expected),
                "{header}"
            );
        }
        for (header, size) in [
            ("bytes=10-", 10),
            ("bytes=10-11", 10),
            ("bytes=-0", 10),
            ("bytes=0-", 0),
        ] {
            let range = requested_range(Some(header), size);
            assert!(range.is_some_and(|range| range.is_empty()), "{header}");
        }
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
            assert_eq!(requested_range(Some(header), 10), None, "{header}");
        }
        assert_eq!(requested_range(None, 10), None);
    }
}

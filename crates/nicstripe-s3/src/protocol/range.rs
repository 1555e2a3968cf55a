//! Ranges of bytes in requests (RFC 9110, section 14).

use std::ops::Range;

use super::error::{Code, S3Error};

/// Returns the range that the header `Range` asks for, of an object of `size` bytes. `None` for the whole
/// object: without a header, and for what is not one range of bytes.
///
/// # Errors
///
/// The range begins behind the object.
pub(crate) fn requested(header: Option<&str>, size: u64) -> Result<Option<Range<u64>>, S3Error> {
    let Some(range) = header.and_then(|header| parsed(header, size)) else {
        return Ok(None);
    };
    match range.is_empty() {
        false => Ok(Some(range)),
        true => Err(Code::INVALID_RANGE.because(format!("the object has {size} bytes"))),
    }
}

/// Returns the range of a part that is copied, `bytes=FIRST-LAST`; `None` if the source has not all of it.
pub(crate) fn exact(header: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last && last < size).then(|| first..last + 1)
}

fn parsed(header: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => {
            let end = last.saturating_add(1).min(size);
            Some(first..end.max(first))
        }
        (Some(first), None) if last.is_empty() => Some(first..size.max(first)),
        (None, Some(suffix)) if first.is_empty() => Some(size.saturating_sub(suffix)..size),
        _ => None,
    }
}

/// Parses a number of digits only; `str::parse` alone would accept a sign. No object is as long as one that
/// does not fit.
fn number(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_copied_whole_or_not_at_all() {
        assert_eq!(exact("bytes=2-9", 10), Some(2..10));
        for header in ["bytes=2-10", "bytes=2-", "bytes=-3", "bytes=5-2", "2-3"] {
            assert_eq!(exact(header, 10), None, "{header}");
        }
    }

    #[test]
    fn one_range_is_understood_and_cut_at_the_end() {
        for (header, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-99", 2..10),
            ("bytes=2-18446744073709551615", 2..10),
            ("bytes=9-", 9..10),
            ("bytes=-3", 7..10),
            ("bytes=-30", 0..10),
        ] {
            assert_eq!(requested(Some(header), 10), Ok(Some(expected)), "{header}");
        }
        let long = "9".repeat(30);
        assert_eq!(
            requested(Some(&format!("bytes=2-{long}")), 10),
            Ok(Some(2..10))
        );
        assert_eq!(
            requested(Some(&format!("bytes=-{long}")), 10),
            Ok(Some(0..10))
        );
        assert!(requested(Some(&format!("bytes={long}-")), 10).is_err());
        for header in ["bytes=10-", "bytes=10-11", "bytes=-0"] {
            assert!(requested(Some(header), 10).is_err(), "{header}");
        }
        for header in [
            "",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=1-2,4-5",
            "bytes=+1-2",
        ] {
            assert_eq!(requested(Some(header), 10), Ok(None), "{header}");
        }
    }
}

//! Times as S3 writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Parses a time of a signature, such as `20261101T120000Z`.
pub(crate) fn parse_basic(text: &str) -> Option<SystemTime> {
    let is_basic = text.len() == 16
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'T' | b'Z'));
    let time = is_basic.then(|| text.parse::<Timestamp>().ok())??;
    (time >= Timestamp::UNIX_EPOCH).then(|| time.into())
}

/// Returns a time as ISO 8601 with milliseconds, such as `2026-11-01T12:00:00.000Z`.
pub(crate) fn iso(time: SystemTime) -> String {
    let time = Timestamp::try_from(shown(time)).unwrap_or_default();
    format!("{time:.3}")
}

/// Returns a time as HTTP headers have it.
pub(crate) fn http(time: SystemTime) -> String {
    httpdate::fmt_http_date(shown(time))
}

/// Returns a time that both forms can express: years 1970 to 9999.
fn shown(time: SystemTime) -> SystemTime {
    time.clamp(UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(LAST))
}

/// The last second of the year 9998.
const LAST: u64 = 253_370_764_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        let time = parse_basic("20240229T235958Z").unwrap();
        assert_eq!(iso(time), "2024-02-29T23:59:58.000Z");
        assert_eq!(http(time), "Thu, 29 Feb 2024 23:59:58 GMT");
        assert_eq!(iso(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
        let before = UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(iso(before), "1970-01-01T00:00:00.000Z");
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(iso(far), "9998-12-31T23:59:59.000Z");
        assert!(http(far).contains("9998"));
        for wrong in [
            "",
            "20240229",
            "2024-02-29T23:59:58Z",
            "20240029T235958Z",
            "202402290T35958Z",
            "+0240229T235958Z",
        ] {
            assert_eq!(parse_basic(wrong), None, "{wrong}");
        }
    }
}

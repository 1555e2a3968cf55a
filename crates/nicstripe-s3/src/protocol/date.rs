//! Times as S3 writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Parses a time of a signature, such as `20261101T120000Z`.
pub(crate) fn parse_basic(text: &str) -> Option<SystemTime> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    if day.len() != 8 || time.len() != 6 {
        return None;
    }
    let number = |text: &str| -> Option<i64> {
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        is_digits.then(|| text.parse().ok())?
    };
    let (year, month, date) = (
        number(day.get(..4)?)?,
        number(day.get(4..6)?)?,
        number(day.get(6..)?)?,
    );
    let (hour, minute, second) = (
        number(time.get(..2)?)?,
        number(time.get(2..4)?)?,
        number(time.get(4..)?)?,
    );
    let is_valid = (1..=12).contains(&month)
        && (1..=31).contains(&date)
        && hour < 24
        && minute < 60
        && second < 61;
    let seconds = days_of(year, month, date) * DAY + hour * 3600 + minute * 60 + second;
    is_valid.then(|| UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?)))?
}

/// Returns a time as ISO 8601 with milliseconds, such as `2026-11-01T12:00:00.000Z`.
pub(crate) fn iso(time: SystemTime) -> String {
    let since = shown(time).duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    let (year, month, date) = date_of(seconds.div_euclid(DAY));
    let rest = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns a time as HTTP headers have it.
pub(crate) fn http(time: SystemTime) -> String {
    httpdate::fmt_http_date(shown(time))
}

/// Returns a time that both forms can express: years 1970 to 9999.
fn shown(time: SystemTime) -> SystemTime {
    time.clamp(UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(LAST))
}

/// Returns the number of days since 1970 of a date of the Gregorian calendar, whose years begin in March
/// here, so that the leap day is their last.
fn days_of(year: i64, month: i64, date: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + date - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns year, month and day of a number of days since 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, date)
}

const DAY: i64 = 86_400;

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

    #[test]
    fn each_day_has_its_date() {
        for days in (0..2_932_000).step_by(37) {
            let (year, month, date) = date_of(days);
            assert_eq!(days_of(year, month, date), days);
        }
    }
}

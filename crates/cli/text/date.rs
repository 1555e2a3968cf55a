//! Points in time as text, in UTC.

use std::{fmt, time::SystemTime};

use jiff::Timestamp;

/// Point in time, printed in UTC to the minute, as `2026-11-26 08:05Z`. One before the year -9999 or after
/// 9999 is the first or last that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date(Timestamp);

impl Date {
    pub(crate) fn of(time: SystemTime) -> Self {
        let last = match time < SystemTime::UNIX_EPOCH {
            true => Timestamp::MIN,
            false => Timestamp::MAX,
        };
        Self(Timestamp::try_from(time).unwrap_or(last))
    }

    /// Returns the time as RFC 3339 has it, with the fraction of a second unless that is zero:
    /// `2026-11-26T08:05:03.25Z`.
    pub(crate) fn rfc3339(self) -> String {
        self.0.to_string()
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.strftime("%Y-%m-%d %H:%MZ").to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn days_of_leap_years_and_times_before_the_epoch_are_right() {
        let at = |seconds: i64, nanos: u64| {
            let whole = Duration::from_secs(seconds.unsigned_abs());
            let time = match seconds < 0 {
                true => UNIX_EPOCH - whole,
                false => UNIX_EPOCH + whole,
            };
            Date::of(time + Duration::from_nanos(nanos))
        };
        // As `date -u -d @SECONDS` prints them.
        for (seconds, nanos, said) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (951_782_400, 0, "2000-02-29T00:00:00Z"),
            (1_709_251_199, 250_000_000, "2024-02-29T23:59:59.25Z"),
            (4_107_542_400, 1, "2100-03-01T00:00:00.000000001Z"),
            (-1, 0, "1969-12-31T23:59:59Z"),
            (-86_401, 500_000_000, "1969-12-30T23:59:59.5Z"),
            (-2_208_988_800, 0, "1900-01-01T00:00:00Z"),
        ] {
            assert_eq!(at(seconds, nanos).rfc3339(), said);
        }
        assert_eq!(at(1_709_251_199, 0).to_string(), "2024-02-29 23:59Z");
    }
}

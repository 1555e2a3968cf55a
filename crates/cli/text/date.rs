//! Points in time as text, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Point in time, printed in UTC to the minute, as `2026-11-26 08:05Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    year: i64,
    month: i64,
    day: i64,
    /// Seconds since midnight.
    second: i64,
    nanosecond: u32,
}

impl Date {
    pub(crate) fn of(time: SystemTime) -> Self {
        let (seconds, nanosecond) = since_epoch(time);
        let (year, month, day) = civil(seconds.div_euclid(DAY));
        Self {
            year,
            month,
            day,
            second: seconds.rem_euclid(DAY),
            nanosecond,
        }
    }

    /// Returns the time as RFC 3339 has it, with the fraction of a second unless that is zero:
    /// `2026-11-26T08:05:03.25Z`.
    pub(crate) fn rfc3339(self) -> String {
        let Self {
            year, month, day, ..
        } = self;
        let (hour, minute) = self.clock();
        let second = self.second % 60;
        let fraction = match self.nanosecond {
            0 => String::new(),
            nanosecond => format!(".{nanosecond:09}").trim_end_matches('0').to_owned(),
        };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
    }

    fn clock(self) -> (i64, i64) {
        (self.second / 3600, self.second / 60 % 60)
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            year, month, day, ..
        } = self;
        let (hour, minute) = self.clock();
        f.pad(&format!(
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}Z"
        ))
    }
}

/// Returns the whole seconds since the Unix epoch, rounded down, and the nanoseconds after them.
fn since_epoch(time: SystemTime) -> (i64, u32) {
    let whole = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX / 2);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (whole(after), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            match before.subsec_nanos() {
                0 => (-whole(before), 0),
                nanos => (-whole(before) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

/// Returns year, month and day of a day since 1970-01-01, in the proleptic Gregorian calendar.
///
/// Howard Hinnant's `civil_from_days` (`chrono-Compatible Low-Level Date Algorithms`), in which years
/// begin in March.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = match from_march {
        0..10 => from_march + 3,
        _ => from_march - 9,
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

const DAY: i64 = 24 * 60 * 60;

#[cfg(test)]
mod tests {
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

//! Parsing and formatting of sizes, rates and times.
//!
//! | kind | input | output |
//! | --- | --- | --- |
//! | size | `512`, `64K`, `1.5G` (powers of 1024, as rsync), `100MB` (powers of 1000), `100MiB` | `1.40 GiB` |
//! | rate | `500` (KiB/s, as rsync), `10M` (MiB/s), `10MB` (MB/s), `100Mbit` (Mbit/s), all with or without `/s` | `235.1 MB/s` |
//! | time | `90` (seconds), `90s`, `10m`, `2h`, `250ms` | `1:02:03` |

use std::{fmt, time::Duration};

/// Count, printed with a comma between groups of three digits, as in rsync.
pub(crate) use indicatif::HumanCount as Grouped;
use nicstripe::BitRate;

/// Parses a size such as `64K`, and returns it in bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let (number, suffix) = split(text).ok_or(QuantityError::Size)?;
    let unit = if suffix.is_empty() || suffix == "B" {
        Some(1.0)
    } else {
        bytes_of(suffix)
    };
    unit.and_then(|unit| to_whole(number * unit))
        .ok_or(QuantityError::Size)
}

/// Parses a rate such as `10M` or `100Mbit`. Zero means no limit, as in rsync.
pub(crate) fn parse_rate(text: &str) -> Result<BitRate, QuantityError> {
    let (number, suffix) =
        split(text.strip_suffix("/s").unwrap_or(text)).ok_or(QuantityError::Rate)?;
    let unit = match suffix {
        "" => Some(KIB * BITS_PER_BYTE),
        "kbit" | "Kbit" => Some(1e3),
        "Mbit" => Some(1e6),
        "Gbit" => Some(1e9),
        "Tbit" => Some(1e12),
        bytes => bytes_of(bytes).map(|unit| unit * BITS_PER_BYTE),
    };
    unit.and_then(|unit| to_whole(number * unit))
        .map(BitRate)
        .ok_or(QuantityError::Rate)
}

pub(crate) fn parse_time(text: &str) -> Result<Duration, QuantityError> {
    let (number, suffix) = split(text).ok_or(QuantityError::Time)?;
    let unit = match suffix {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(QuantityError::Time),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| QuantityError::Time)
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error(
        "not a size: expected digits and an optional K, M, G or T (powers of 1024), or KB, MB, GB or TB (powers of 1000)"
    )]
    Size,
    #[error(
        "not a rate: expected KiB/s without a unit, K, M or G for bytes, or Mbit or Gbit for bits, per second"
    )]
    Rate,
    #[error("not a time: expected seconds, or a number with ms, s, m or h")]
    Time,
}

/// Size in bytes, printed as `512 B`, `64.0 KiB` or `1.40 GiB`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 as f64 {
            bytes if bytes < KIB => format!("{} B", self.0),
            bytes if bytes < KIB * KIB => format!("{:.1} KiB", bytes / KIB),
            bytes if bytes < KIB * KIB * KIB => format!("{:.1} MiB", bytes / (KIB * KIB)),
            bytes if bytes < KIB * KIB * KIB * KIB => {
                format!("{:.2} GiB", bytes / (KIB * KIB * KIB))
            }
            bytes => format!("{:.2} TiB", bytes / (KIB * KIB * KIB * KIB)),
        };
        f.pad(&text)
    }
}

/// Rate, printed in decimal bytes per second as `235.1 MB/s`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed(pub(crate) BitRate);

impl Speed {
    /// Returns the number without its unit, in the unit in which `other` is printed.
    pub(crate) fn in_unit_of(self, other: Speed) -> String {
        let (unit, _) = other.unit();
        format!("{:.1}", self.bytes_per_second() / unit)
    }

    fn bytes_per_second(self) -> f64 {
        self.0.bits_per_second() as f64 / BITS_PER_BYTE
    }

    fn unit(self) -> (f64, &'static str) {
        // A value that rounds to 1000.0 is printed in the next unit.
        match self.bytes_per_second() {
            rate if rate < 999.95e3 => (1e3, "kB/s"),
            rate if rate < 9999.95e6 => (1e6, "MB/s"),
            _ => (1e9, "GB/s"),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.in_unit_of(*self), self.unit().1))
    }
}

/// Duration, printed as `0:07`, `12:30` or `1:02:03`. Fractions of a second are dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(pub(crate) Duration);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        match hours {
            0 => f.pad(&format!("{minutes}:{seconds:02}")),
            _ => f.pad(&format!("{hours}:{minutes:02}:{seconds:02}")),
        }
    }
}

/// Limit of a wait, printed as `10 min` or `90 s`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(pub(crate) Duration);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds if seconds >= 60 && seconds % 60 == 0 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{seconds} s"),
        }
    }
}

/// Splits `1.5G` into 1.5 and `G`. `None` unless the text begins with a decimal number.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number = number
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| number.parse().ok())
        .flatten()?;
    Some((number, suffix.trim_start_matches(' ')))
}

fn bytes_of(suffix: &str) -> Option<f64> {
    let power = |letter: &str| match letter {
        "K" | "k" => Some(1),
        "M" | "m" => Some(2),
        "G" | "g" => Some(3),
        "T" | "t" => Some(4),
        _ => None,
    };
    if let Some(power) = power(suffix.strip_suffix("iB").unwrap_or(suffix)) {
        return Some(KIB.powi(power));
    }
    let decimal = suffix.strip_suffix('B').and_then(power)?;
    Some(1000_f64.powi(decimal))
}

/// Rounds to the nearest integer. Returns `None` if the number is negative, NaN, or at least 2^63.
fn to_whole(value: f64) -> Option<u64> {
    (0.0..MOST).contains(&value).then(|| value.round() as u64)
}

const KIB: f64 = 1024.0;
const BITS_PER_BYTE: f64 = 8.0;
const MOST: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_as_rsync_counts_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64K", 65_536),
            ("64k", 65_536),
            ("1.5G", 1_610_612_736),
            ("100MB", 100_000_000),
            ("100MiB", 104_857_600),
            ("2 GiB", 2_147_483_648),
            ("1T", 1_099_511_627_776),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "G",
            "1X",
            "-1",
            "1.2.3",
            "1e9",
            ".5",
            "1KBB",
            "1iB",
            "99999999999T",
            "1Mbit",
            "inf",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_without_a_unit_is_in_kib_and_only_bit_means_bits() {
        for (text, bits) in [
            ("100", 819_200),
            ("0", 0),
            ("1K", 8_192),
            ("1.5m", 12_582_912),
            ("10M", 83_886_080),
            ("10MiB/s", 83_886_080),
            ("10MB", 80_000_000),
            ("100Mbit", 100_000_000),
            ("100 Mbit/s", 100_000_000),
            ("2.5Gbit", 2_500_000_000),
            ("56kbit", 56_000),
        ] {
            assert_eq!(parse_rate(text), Ok(BitRate(bits)), "{text}");
        }
        for text in ["", "fast", "10Mb", "10mbit", "10 %", "-5", "/s", "1G/h"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_unit_is_in_seconds() {
        for (text, millis) in [
            ("90", 90_000),
            ("1.5s", 1_500),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("250ms", 250),
        ] {
            assert_eq!(
                parse_time(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in ["", "s", "1d", "-1", "99999999999999999999h"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_is_short_and_has_its_unit() {
        assert_eq!(Size(1023).to_string(), "1023 B");
        assert_eq!(Size(65_536).to_string(), "64.0 KiB");
        assert_eq!(Size(1_503_238_554).to_string(), "1.40 GiB");
        assert_eq!(Speed(BitRate(1_880_800_000)).to_string(), "235.1 MB/s");
        assert_eq!(Speed(BitRate(8_000)).to_string(), "1.0 kB/s");
        assert_eq!(Speed(BitRate(16_000_000_000)).to_string(), "2000.0 MB/s");
        assert_eq!(
            Speed(BitRate(8_000_000)).in_unit_of(Speed(BitRate(800_000_000))),
            "1.0"
        );
        assert_eq!(Clock(Duration::from_millis(7_900)).to_string(), "0:07");
        assert_eq!(Clock(Duration::from_secs(3_723)).to_string(), "1:02:03");
        assert_eq!(Grouped(1_234_567).to_string(), "1,234,567");
        assert_eq!(Grouped(999).to_string(), "999");
    }
}

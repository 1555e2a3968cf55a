//! Units of printed rates. All rates of a column or axis use the same unit.

use std::time::Duration;

use nicstripe::bench::{Spread, SweepKind};

/// Unit of all rates in one table or page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateUnit {
    Megabits,
    Gigabits,
}

impl RateUnit {
    /// Returns the unit for rates up to `most_bps`, in bits per second.
    pub(crate) fn for_most(most_bps: u64) -> Self {
        match most_bps {
            ..GIGABITS_FROM => Self::Megabits,
            _ => Self::Gigabits,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Megabits => "Mbit/s",
            Self::Gigabits => "Gbit/s",
        }
    }

    pub(crate) fn of(self, bps: u64) -> f64 {
        bps as f64 / self.bits()
    }

    pub(crate) fn bits(self) -> f64 {
        match self {
            Self::Megabits => 1e6,
            Self::Gigabits => 1e9,
        }
    }

    pub(crate) fn text(self, bps: u64) -> String {
        match self {
            Self::Megabits => format!("{:.1}", self.of(bps)),
            Self::Gigabits => format!("{:.2}", self.of(bps)),
        }
    }

    pub(crate) fn rate(self, bps: u64) -> String {
        format!("{} {}", self.text(bps), self.name())
    }

    /// Formats the minimum and maximum of repeats as `[939.8..941.2]`; empty for a single run.
    pub(crate) fn range(self, spread: &Spread) -> String {
        match spread.n {
            0 | 1 => String::new(),
            _ => {
                let [min, max] = [spread.min_bps, spread.max_bps].map(|bps| self.text(bps));
                format!("[{min}..{max}]")
            }
        }
    }
}

/// Formats a rate in bits per second as bytes per second: SI units first, powers of two in
/// brackets, `143.3 MB/s (136.7 MiB/s)`.
pub(crate) fn bytes_a_second(bps: u64) -> String {
    let bytes = bps as f64 / 8.0;
    match bytes < 10e9 {
        true => format!("{:.1} MB/s ({:.1} MiB/s)", bytes / 1e6, bytes / MIB),
        false => format!("{:.2} GB/s ({:.2} GiB/s)", bytes / 1e9, bytes / GIB),
    }
}

/// Formats a fraction as a percentage: 0.698 becomes `69.8 %`.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Formats microseconds as milliseconds with three significant digits: `0.041`, `2.31`, `57.0`.
pub(crate) fn milliseconds(micros: f64) -> String {
    match micros / 1e3 {
        ms if ms < 0.9995 => format!("{ms:.3}"),
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Formats a size in bytes, usually a power of two: `64 KiB`, `1448 B`, `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0
        && unit + 1 < UNITS.len()
        && (bytes.is_multiple_of(1024) || bytes >= 10 << 10)
    {
        value /= 1024.0;
        unit += 1;
    }
    match (value.fract() * 10.0).round() {
        0.0 => format!("{value:.0} {}", UNITS[unit]),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// Formats the value of a sweep: a number of connections, an MTU, or a size in bytes.
pub(crate) fn swept(kind: SweepKind, value: u64) -> String {
    match kind {
        SweepKind::Streams | SweepKind::Mtu => value.to_string(),
        _ => size(value),
    }
}

/// Formats a duration in seconds: `10 s`, `0.5 s`.
pub(crate) fn time(time: Duration) -> String {
    format!("{} s", (time.as_secs_f64() * 100.0).round() / 100.0)
}

/// Rate in bits per second from which rates are printed in Gbit/s: 10 Gbit/s. In Mbit/s they would
/// have more than four digits before the point.
const GIGABITS_FROM: u64 = 10_000_000_000;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = MIB * 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal_and_the_other_bytes_stand_in_brackets() {
        assert_eq!(
            RateUnit::for_most(1_146_700_000).text(1_146_700_000),
            "1146.7"
        );
        assert_eq!(RateUnit::for_most(23_410_000_000).text(940_000_000), "0.94");
        assert_eq!(bytes_a_second(1_146_700_000), "143.3 MB/s (136.7 MiB/s)");
        assert_eq!(bytes_a_second(100_000_000_000), "12.50 GB/s (11.64 GiB/s)");
    }

    #[test]
    fn a_range_of_one_repeat_is_none() {
        let spread = |n| Spread {
            median_bps: 940_000_000,
            min_bps: 939_000_000,
            max_bps: 941_000_000,
            n,
            stable: true,
        };
        assert_eq!(RateUnit::Megabits.range(&spread(6)), "[939.0..941.0]");
        assert_eq!(RateUnit::Megabits.range(&spread(1)), "");
    }

    #[test]
    fn times_and_sizes_have_the_digits_that_count() {
        assert_eq!(
            [41.2, 2310.0, 57_000.0, 133_890.0].map(milliseconds),
            ["0.041", "2.31", "57.0", "134"]
        );
        assert_eq!(
            [
                1,
                1447,
                1448,
                4096,
                65_535,
                65_536,
                1 << 20,
                3 << 19,
                64 << 20
            ]
            .map(size),
            [
                "1 B", "1447 B", "1448 B", "4 KiB", "64.0 KiB", "64 KiB", "1 MiB", "1.5 MiB",
                "64 MiB"
            ]
        );
        assert_eq!(time(Duration::from_millis(500)), "0.5 s");
    }
}

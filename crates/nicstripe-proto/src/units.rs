//! Bit rates, and conversions between bytes, time and rates.
//!
//! Byte counts are plain `u64` with the unit in the name, because they are used together with
//! offsets, lengths and sizes. Rates have a separate type, because bits and bytes per second are
//! easily confused.

use std::fmt;
use std::iter::Sum;
use std::time::Duration;

/// Rate of a link, path or transfer in bits per second, decimal (1 Gbit/s is 10⁹ bit/s).
///
/// Every value is valid; zero means no progress. All arithmetic saturates and never panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

impl BitRate {
    /// Rate of 0 bit/s.
    pub const ZERO: BitRate = BitRate(0);

    /// Returns the rate of `mbit_per_second` Mbit/s.
    pub const fn from_mbit(mbit_per_second: u64) -> BitRate {
        BitRate(mbit_per_second.saturating_mul(MEGA))
    }

    /// Returns the rate of `gbit_per_second` Gbit/s.
    pub const fn from_gbit(gbit_per_second: u64) -> BitRate {
        BitRate(gbit_per_second.saturating_mul(GIGA))
    }

    /// Returns the mean rate of `bytes` over `elapsed`, rounded down.
    ///
    /// Returns zero if `bytes` is zero; otherwise the maximum rate if `elapsed` is zero.
    pub fn from_bytes_over(bytes: u64, elapsed: Duration) -> BitRate {
        let bit_nanos = u128::from(bytes) * BITS_PER_BYTE * NANOS_PER_SECOND;
        match bit_nanos.checked_div(elapsed.as_nanos()) {
            Some(rate) => BitRate(saturate(rate)),
            None if bytes == 0 => BitRate::ZERO,
            None => BitRate(u64::MAX),
        }
    }

    /// Returns the rate in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the time to transfer `bytes` at this rate, rounded up to the nanosecond.
    ///
    /// Saturates at [`Duration::MAX`]. This is also the result for a rate of zero, unless `bytes`
    /// is 0.
    pub fn time_for(self, bytes: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        if self.0 == 0 {
            return Duration::MAX;
        }
        let bit_nanos = u128::from(bytes) * BITS_PER_BYTE * NANOS_PER_SECOND;
        let nanos = bit_nanos.div_ceil(u128::from(self.0));
        match u64::try_from(nanos / NANOS_PER_SECOND) {
            // The remainder of a division by 10⁹ fits into 32 bits.
            Ok(seconds) => Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32),
            Err(_) => Duration::MAX,
        }
    }

    /// Returns the number of whole bytes transferred in `elapsed` at this rate.
    pub fn bytes_in(self, elapsed: Duration) -> u64 {
        // A saturated product still exceeds `u64::MAX` after the division.
        let bit_nanos = u128::from(self.0).saturating_mul(elapsed.as_nanos());
        saturate(bit_nanos / (BITS_PER_BYTE * NANOS_PER_SECOND))
    }

    /// Returns the sum of two rates. Saturates at `u64::MAX`.
    pub const fn saturating_add(self, other: BitRate) -> BitRate {
        BitRate(self.0.saturating_add(other.0))
    }
}

impl Sum for BitRate {
    fn sum<I: Iterator<Item = BitRate>>(rates: I) -> BitRate {
        rates.fold(BitRate::ZERO, BitRate::saturating_add)
    }
}

/// Formats `9.41 Gbit/s`, `941.5 Mbit/s`, `56.0 kbit/s` or `300 bit/s`, rounded half up. The unit
/// is chosen after rounding.
impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            0..KILO => format!("{} bit/s", self.0),
            KILO..KILO_END => with_decimals(self.0, KILO, 1, "kbit/s"),
            KILO_END..MEGA_END => with_decimals(self.0, MEGA, 1, "Mbit/s"),
            MEGA_END..GIGA_END => with_decimals(self.0, GIGA, 2, "Gbit/s"),
            GIGA_END.. => with_decimals(self.0, TERA, 2, "Tbit/s"),
        };
        f.pad(&text)
    }
}

fn with_decimals(value: u64, unit: u64, decimals: u32, name: &str) -> String {
    let scale = 10_u64.pow(decimals);
    let step = unit / scale;
    let steps = value / step + u64::from(value % step >= step / 2);
    let width = decimals as usize;
    format!("{}.{:0width$} {name}", steps / scale, steps % scale)
}

pub(crate) fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

const BITS_PER_BYTE: u128 = 8;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
const KILO: u64 = 1_000;
const MEGA: u64 = 1_000_000;
const GIGA: u64 = 1_000_000_000;
const TERA: u64 = 1_000_000_000_000;
/// Lowest rate that rounds to 1000.0 kbit/s, printed as 1.0 Mbit/s.
const KILO_END: u64 = MEGA - KILO / 20;
/// Lowest rate that rounds to 1000.0 Mbit/s, printed as 1.00 Gbit/s.
const MEGA_END: u64 = GIGA - MEGA / 20;
/// Lowest rate that rounds to 1000.00 Gbit/s, printed as 1.00 Tbit/s.
const GIGA_END: u64 = TERA - GIGA / 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_printed_in_the_largest_unit_that_leaves_a_digit_before_the_point() {
        for (rate, text) in [
            (0, "0 bit/s"),
            (999, "999 bit/s"),
            (1_000, "1.0 kbit/s"),
            (56_049, "56.0 kbit/s"),
            (999_949, "999.9 kbit/s"),
            (999_950, "1.0 Mbit/s"),
            (10_000_000, "10.0 Mbit/s"),
            (941_482_000, "941.5 Mbit/s"),
            (999_949_999, "999.9 Mbit/s"),
            (999_950_000, "1.00 Gbit/s"),
            (9_414_824_000, "9.41 Gbit/s"),
            (100_000_000_000, "100.00 Gbit/s"),
            (999_994_999_999, "999.99 Gbit/s"),
            (999_995_000_000, "1.00 Tbit/s"),
            (u64::MAX, "18446744.07 Tbit/s"),
        ] {
            assert_eq!(BitRate(rate).to_string(), text, "{rate} bit/s");
        }
        assert_eq!(format!("{:>12}", BitRate(300)), "   300 bit/s");
    }

    #[test]
    fn bytes_time_and_rate_agree() {
        let gigabit = BitRate::from_gbit(1);
        assert_eq!(gigabit.time_for(125_000_000), Duration::from_secs(1));
        assert_eq!(gigabit.bytes_in(Duration::from_millis(8)), 1_000_000);
        assert_eq!(
            BitRate::from_bytes_over(1_250_000, Duration::from_secs(1)),
            BitRate::from_mbit(10)
        );
    }

    #[test]
    fn time_is_rounded_up_and_bytes_are_rounded_down() {
        // 8 bits at 3 bit/s take 2.666… s.
        assert_eq!(BitRate(3).time_for(1), Duration::new(2, 666_666_667));
        assert_eq!(BitRate(3).bytes_in(Duration::from_secs(5)), 1);
    }

    #[test]
    fn nothing_in_no_time_is_rate_zero_and_something_in_no_time_the_greatest_rate() {
        assert_eq!(BitRate::from_bytes_over(0, Duration::ZERO), BitRate::ZERO);
        assert_eq!(
            BitRate::from_bytes_over(1, Duration::ZERO),
            BitRate(u64::MAX)
        );
        assert_eq!(BitRate::ZERO.time_for(0), Duration::ZERO);
        assert_eq!(BitRate::ZERO.time_for(1), Duration::MAX);
    }

    #[test]
    fn extreme_values_saturate() {
        let most = BitRate(u64::MAX);
        assert_eq!(BitRate::from_gbit(u64::MAX), most);
        assert_eq!(BitRate::from_mbit(u64::MAX), most);
        assert_eq!(most.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(BitRate(1).time_for(u64::MAX), Duration::MAX);
        assert_eq!(
            BitRate::from_bytes_over(u64::MAX, Duration::from_nanos(1)),
            most
        );
        assert_eq!([most, BitRate(1)].into_iter().sum::<BitRate>(), most);
    }
}

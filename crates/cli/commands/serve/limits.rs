//! Limits in the configuration file, with the allowed range of each.

use std::{fmt, ops::RangeInclusive, time::Duration};

use nicstripe::{BenchLimits, Limits};
use serde::{Deserialize, Deserializer, de};

use crate::text::quantity::{parse_rate, parse_time};

/// Table `[limits]`: every field of [`Limits`], within the ranges listed in docs/MANUAL.md, section
/// 10.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LimitsTable(pub(super) Limits);

/// Table `[limits]` as written in the file. Missing keys have their defaults.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Written {
    greetings: Option<Count<1, 16_384>>,
    greetings_per_address: Option<Count<1, 16_384>>,
    greeting_time: Option<Time<100, 60_000>>,
    handshakes_per_second: Option<Count<1, 100_000>>,
    sessions: Option<Count<1, 4096>>,
    sessions_per_peer: Option<Count<1, 4096>>,
    session_patience: Option<Time<0, 86_400_000>>,
    paths: Option<Count<1, 16_384>>,
    refusals_logged: Option<Count<0, 1000>>,
    session_rate: Option<Rate>,
    shutdown_time: Option<Time<0, 600_000>>,
}

impl<'de> Deserialize<'de> for LimitsTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let default = Limits::default();
        Ok(Self(Limits {
            greetings: written
                .greetings
                .map_or(default.greetings, |count| count.0 as usize),
            greetings_per_address: written
                .greetings_per_address
                .map_or(default.greetings_per_address, |count| count.0 as usize),
            greeting_time: written
                .greeting_time
                .map_or(default.greeting_time, |time| time.0),
            handshakes_per_second: written
                .handshakes_per_second
                .map_or(default.handshakes_per_second, |count| count.0),
            sessions: written
                .sessions
                .map_or(default.sessions, |count| count.0 as usize),
            sessions_per_peer: written
                .sessions_per_peer
                .map_or(default.sessions_per_peer, |count| count.0 as usize),
            session_patience: written
                .session_patience
                .map_or(default.session_patience, |time| time.0),
            paths: written
                .paths
                .map_or(default.paths, |count| count.0 as usize),
            refusals_logged: written
                .refusals_logged
                .map_or(default.refusals_logged, |count| count.0),
            session_rate: written
                .session_rate
                .map_or(default.session_rate, |rate| rate.0),
            shutdown_time: written
                .shutdown_time
                .map_or(default.shutdown_time, |time| time.0),
        }))
    }
}

/// Table `[bench]`: every field of [`BenchLimits`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BenchTable(pub(super) BenchLimits);

/// Table `[bench]` as written in the file. Missing keys have their defaults.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WrittenBench {
    enabled: Option<bool>,
    time: Option<Time<10_000, 86_400_000>>,
    queue: Option<Count<0, 1000>>,
}

impl<'de> Deserialize<'de> for BenchTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (written, default) = (
            WrittenBench::deserialize(deserializer)?,
            BenchLimits::default(),
        );
        Ok(Self(BenchLimits {
            enabled: written.enabled.unwrap_or(default.enabled),
            time: written.time.map_or(default.time, |time| time.0),
            queue: written
                .queue
                .map_or(default.queue, |count| count.0 as usize),
        }))
    }
}

/// Count in the configuration file, from `LEAST` to `MOST`.
struct Count<const LEAST: u32, const MOST: u32>(u32);

/// Duration in the configuration file, from `LEAST` to `MOST` milliseconds.
struct Time<const LEAST: u64, const MOST: u64>(Duration);

/// Maximum rate in the configuration file. `"0"` means no limit and becomes `None`.
struct Rate(Option<nicstripe::BitRate>);

impl<'de, const LEAST: u32, const MOST: u32> Deserialize<'de> for Count<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(CountVisitor(LEAST..=MOST))
            .map(Self)
    }
}

struct CountVisitor(RangeInclusive<u32>);

impl de::Visitor<'_> for CountVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.0.start(), self.0.end())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u32, E> {
        let count = u32::try_from(value)
            .ok()
            .filter(|count| self.0.contains(count));
        count.ok_or_else(|| {
            E::custom(format_args!(
                "expected {} to {}",
                self.0.start(),
                self.0.end()
            ))
        })
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<u32, E> {
        self.visit_i64(-1)
    }
}

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Time<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = parse_time(&text).map_err(de::Error::custom)?;
        let (least, most) = (Duration::from_millis(LEAST), Duration::from_millis(MOST));
        match (least..=most).contains(&time) {
            true => Ok(Self(time)),
            false => Err(de::Error::custom(format_args!(
                "expected {} to {}",
                short(least),
                short(most)
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let rate = parse_rate(&text).map_err(de::Error::custom)?;
        Ok(Self(Some(rate).filter(|rate| rate.0 > 0)))
    }
}

/// Formats a duration in the form that [`parse_time`] reads.
fn short(time: Duration) -> String {
    match time.as_millis() {
        0 => "0s".to_owned(),
        millis if millis % 3_600_000 == 0 => format!("{}h", millis / 3_600_000),
        millis if millis % 60_000 == 0 => format!("{}m", millis / 60_000),
        millis if millis % 1000 == 0 => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}

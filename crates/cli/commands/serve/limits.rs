//! Deserialization of configuration values: limits with their allowed ranges, and choices.

use std::time::Duration;

use clap::ValueEnum;
use nicstripe::{BenchLimits, BitRate, Limits};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::text::quantity::{parse_rate, parse_time};

/// Table `[limits]`: every field of [`Limits`], within the ranges listed in docs/MANUAL.md, section
/// 10. Missing keys have their defaults.
#[derive(Deserialize)]
#[serde(
    remote = "Limits",
    rename_all = "kebab-case",
    deny_unknown_fields,
    default = "Limits::default"
)]
pub(super) struct LimitsTable {
    #[serde(deserialize_with = "count::<1, 16_384, _, _>")]
    greetings: usize,
    #[serde(deserialize_with = "count::<1, 16_384, _, _>")]
    greetings_per_address: usize,
    #[serde(deserialize_with = "time::<100, 60_000, _>")]
    greeting_time: Duration,
    #[serde(deserialize_with = "count::<1, 100_000, _, _>")]
    handshakes_per_second: u32,
    #[serde(deserialize_with = "count::<1, 4096, _, _>")]
    sessions: usize,
    #[serde(deserialize_with = "count::<1, 4096, _, _>")]
    sessions_per_peer: usize,
    #[serde(deserialize_with = "time::<0, 86_400_000, _>")]
    session_patience: Duration,
    #[serde(deserialize_with = "count::<1, 16_384, _, _>")]
    paths: usize,
    #[serde(deserialize_with = "count::<0, 1000, _, _>")]
    refusals_logged: u32,
    #[serde(deserialize_with = "rate")]
    session_rate: Option<BitRate>,
    #[serde(deserialize_with = "time::<0, 600_000, _>")]
    shutdown_time: Duration,
}

/// Table `[bench]`: every field of [`BenchLimits`]. Missing keys have their defaults.
#[derive(Deserialize)]
#[serde(
    remote = "BenchLimits",
    rename_all = "kebab-case",
    deny_unknown_fields,
    default = "BenchLimits::default"
)]
pub(super) struct BenchTable {
    enabled: bool,
    #[serde(deserialize_with = "time::<10_000, 86_400_000, _>")]
    time: Duration,
    #[serde(deserialize_with = "count::<0, 1000, _, _>")]
    queue: usize,
}

fn count<'de, const LEAST: u32, const MOST: u32, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u32>,
{
    let number = toml::Value::deserialize(deserializer)?.as_integer();
    number
        .and_then(|number| u32::try_from(number).ok())
        .filter(|count| (LEAST..=MOST).contains(count))
        .and_then(|count| T::try_from(count).ok())
        .ok_or_else(|| D::Error::custom(format_args!("expected {LEAST} to {MOST}")))
}

fn time<'de, const LEAST: u64, const MOST: u64, D>(deserializer: D) -> Result<Duration, D::Error>
where
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    let time = parse_time(&text).map_err(D::Error::custom)?;
    let (least, most) = (Duration::from_millis(LEAST), Duration::from_millis(MOST));
    match (least..=most).contains(&time) {
        true => Ok(time),
        false => Err(D::Error::custom(format_args!(
            "expected {} to {}",
            short(least),
            short(most)
        ))),
    }
}

/// Deserializes a maximum rate. `"0"` means no limit and becomes `None`.
fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BitRate>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let rate = parse_rate(&text).map_err(D::Error::custom)?;
    Ok(Some(rate).filter(|rate| *rate > BitRate::ZERO))
}

/// Like [`choice`], for a setting that may be absent.
pub(super) fn some_choice<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: ValueEnum,
{
    choice(deserializer).map(Some)
}

/// Deserializes one of the values that clap allows for the same option on the command line.
pub(super) fn choice<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: ValueEnum,
{
    let text = String::deserialize(deserializer)?;
    T::from_str(&text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<String> = values
            .map(|value| format!("\"{}\"", value.get_name()))
            .collect();
        let text = names.join(", ");
        let (others, last) = text.rsplit_once(", ").unwrap_or(("", &text));
        D::Error::custom(format_args!("expected {others} or {last}"))
    })
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

//! JSON output of commands, described in `docs/schema`. The version of a schema is raised when a field
//! or event is removed or changes its meaning, not for a new one.
//!
//! An unknown value is absent, never 0, −1 or null. Field names end in their unit: `_s` seconds,
//! `_us` microseconds, `_bps` bits per second. All other sizes are bytes.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::stdout;
use crate::{
    failure::{Failure, exit::Exit},
    text::invocation::Invocation,
};

/// Prints a JSON document on one line.
pub(crate) fn print_document(document: &impl Serialize) -> Result<(), Failure> {
    write_line(document).map_err(Failure::Output)
}

fn write_line(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stdout::write(|| io::stdout().write_all(&line))
}

/// JSON object whose fields keep their order. Unknown values, which would be null, are excluded.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Object(IndexMap<String, Box<RawValue>>);

impl Object {
    pub(crate) fn event(name: &'static str) -> Self {
        Self::default().with("event", name)
    }

    /// Returns the fields of a value of the library, such as a report or an event.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        to_raw_value(value)
            .and_then(|value| serde_json::from_str(value.get()))
            .unwrap_or_default()
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.shift_remove(name);
        self
    }

    /// Adds a field, unless its value is unknown.
    pub(crate) fn with(mut self, name: &'static str, value: impl Serialize) -> Self {
        let known = to_raw_value(&value)
            .ok()
            .filter(|value| value.get() != "null");
        self.0.extend(known.map(|value| (name.to_owned(), value)));
        self
    }

    pub(crate) fn list<T>(
        self,
        name: &'static str,
        items: impl IntoIterator<Item = T>,
        object: fn(T) -> Self,
    ) -> Self {
        self.with(name, items.into_iter().map(object).collect::<Vec<_>>())
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// Stream of JSON events on standard output, one per line. The command continues if the reader
/// closes it.
#[derive(Debug)]
pub(crate) struct EventStream {
    schema: &'static str,
    started_at: Instant,
    broken: Option<io::Error>,
}

impl EventStream {
    /// Starts a stream of events, which the schema of this name and version describes.
    pub(crate) fn start(schema: &'static str, first: Object) -> Self {
        let mut stream = Self {
            schema,
            started_at: Instant::now(),
            broken: None,
        };
        stream.write(Some(first));
        stream
    }

    /// Writes an event as one line. Skips one that the schema does not describe.
    pub(crate) fn write(&mut self, event: Option<Object>) {
        if let (Some(event), None) = (event, &self.broken) {
            self.broken = write_line(&line(self.schema, self.started_at.elapsed(), event)).err();
        }
    }

    /// Ends the stream.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.broken
            .map_or(Ok(()), |error| Err(Failure::Output(error)))
    }
}

/// Returns the line of an event that happened `time` after the start of the command.
pub(crate) fn line(schema: &str, time: Duration, event: Object) -> Object {
    Object::default()
        .with("schema", schema)
        .with("time_s", seconds(time))
        .and(event)
}

/// Returns the fields for the end of a command, with the hint for a failure.
pub(crate) fn hinted_outcome(failure: Option<&Failure>) -> Object {
    let hint = |failure: &Failure| failure.hint(&Invocation::of_this_process());
    outcome(failure, failure.and_then(hint))
}

pub(crate) fn outcome(failure: Option<&Failure>, hint: Option<String>) -> Object {
    Object::default()
        .with("ok", failure.is_none())
        .with(
            "exit_code",
            failure.map_or(Exit::Done, Failure::exit).code(),
        )
        .with("error", failure.map(Failure::one_line))
        .with("hint", hint)
}

/// Returns the duration in seconds, rounded to microseconds.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

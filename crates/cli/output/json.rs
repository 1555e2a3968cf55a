//! JSON output of commands, described in `docs/schema`.
//!
//! An unknown value is absent, never 0, −1 or null. Field names end in their unit: `_s` seconds,
//! `_us` microseconds, `_bps` bits per second. All other sizes are bytes.

use std::{
    io::{self, Write as _},
    net::IpAddr,
    time::Duration,
};

use nicstripe::{LinkName, LinkState};
use serde::Serialize;

use crate::failure::{Failure, exit::Exit};

/// Prints a JSON document on one line.
///
/// # Errors
///
/// Standard output cannot be written.
pub(crate) fn print_document(document: &impl Serialize) -> Result<(), Failure> {
    write_line(document).map_err(Failure::Output)
}

/// Writes a value to standard output as one line of JSON.
pub(crate) fn write_line(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// One line of an event stream: schema, time since the start in seconds, and the event.
#[derive(Debug, Serialize)]
pub(crate) struct Line<K> {
    pub(crate) schema: &'static str,
    pub(crate) time_s: f64,
    /// Fields of the event. Its JSON tag `event` names the kind.
    #[serde(flatten)]
    pub(crate) kind: K,
}

/// JSON fields for the end of a command.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    ok: bool,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Outcome {
    pub(crate) fn of(failure: Option<&Failure>, hint: Option<String>) -> Self {
        Self {
            ok: failure.is_none(),
            exit_code: failure.map_or(Exit::Done, Failure::exit).code(),
            error: failure.map(Failure::one_line),
            hint,
        }
    }
}

/// JSON fields for the two interfaces of a link.
#[derive(Debug, Serialize)]
pub(crate) struct LinkEnds<'a> {
    interface: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_interface: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<IpAddr>,
    remote: IpAddr,
}

impl<'a> From<&'a LinkName> for LinkEnds<'a> {
    fn from(link: &'a LinkName) -> Self {
        Self {
            interface: &link.interface,
            peer_interface: link.peer_interface.as_deref(),
            local: link.local,
            remote: link.remote,
        }
    }
}

/// JSON fields for the state of a link, with the reason if there is one.
#[derive(Debug, Serialize)]
pub(crate) struct State<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> From<&'a LinkState> for State<'a> {
    fn from(state: &'a LinkState) -> Self {
        let (state, reason) = match state {
            LinkState::Connecting => ("connecting", None),
            LinkState::Up => ("up", None),
            LinkState::Suspect => ("suspect", None),
            LinkState::Down(why) => ("down", Some(why.as_str())),
            LinkState::LeftOut(why) => ("left_out", Some(why.as_str())),
            _ => ("unknown", None),
        };
        Self { state, reason }
    }
}

/// Returns the duration in seconds, rounded to microseconds.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Returns the duration in whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

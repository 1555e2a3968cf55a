//! JSON output of commands: events and a final document of a copy, and the document of a discovery.
//! `docs/schema` describes them.
//!
//! An unknown value is absent, never 0, −1 or null. Field names end in their unit: `_s` seconds,
//! `_us` microseconds, `_bps` bits per second. All other sizes are bytes.

mod discovery;
mod document;
mod event;
#[cfg(test)]
pub(crate) mod schema;

pub(crate) use self::{
    discovery::Discovery,
    document::{Document, End},
    event::{EventStream, Line, print, print_document},
};

use std::{net::IpAddr, time::Duration};

use nicstripe::{LinkName, LinkState};
use serde::Serialize;

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

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

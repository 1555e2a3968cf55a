//! Events, a line each.

use std::{
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    time::Instant,
};

use nicstripe::{Event, LinkProgress, escaped};
use serde::Serialize;

use super::{Document, LinkEnds, State, seconds};
use crate::failure::Failure;

/// Standard output as a stream of events, until nobody reads it any more.
///
/// A reader that goes away does not end the copy.
#[derive(Debug)]
pub(crate) struct EventStream {
    begun: Instant,
    broken: Option<io::Error>,
}

impl EventStream {
    /// Begins the stream with what is to be copied.
    pub(crate) fn start(source: &OsStr, target: &OsStr) -> Self {
        let mut stream = Self { begun: Instant::now(), broken: None };
        let shown = |text: &OsStr| escaped(text.as_bytes());
        stream.line(&Line::of(0.0, Kind::Start { version: env!("CARGO_PKG_VERSION"), source: shown(source), target: shown(target) }));
        stream
    }

    /// Writes an event; one that this version does not know is left out.
    pub(crate) fn write(&mut self, event: &Event) {
        let time = seconds(self.begun.elapsed());
        if let Some(kind) = Kind::of(event) {
            self.line(&Line::of(time, kind));
        }
    }

    fn line(&mut self, line: &impl Serialize) {
        if self.broken.is_none() {
            self.broken = write_line(line).err();
        }
    }
}

/// Prints the document, as the last line of a stream where there is one. Errors: standard output took not everything.
pub(crate) fn print(document: &Document<'_>, stream: Option<EventStream>) -> Result<(), Failure> {
    match stream.and_then(|stream| stream.broken) {
        Some(error) => Err(Failure::Output(error)),
        None => write_line(document).map_err(Failure::Output),
    }
}

/// Prints a document on a line of its own. Errors: standard output took not everything.
pub(crate) fn print_document(document: &impl Serialize) -> Result<(), Failure> {
    write_line(document).map_err(Failure::Output)
}

fn write_line(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// One event: `docs/schema/cp-event.schema.json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    schema: &'static str,
    time_s: f64,
    #[serde(flatten)]
    kind: Kind<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Kind<'a> {
    Start {
        version: &'static str,
        source: String,
        target: String,
    },
    Connected {
        peer_key: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer_name: Option<&'a str>,
    },
    Link {
        #[serde(flatten)]
        ends: LinkEnds<'a>,
        #[serde(flatten)]
        state: State<'a>,
    },
    Started {
        size_bytes: u64,
        resumed_bytes: u64,
    },
    Progress {
        bytes: u64,
        size_bytes: u64,
        resumed_bytes: u64,
        goodput_bps: u64,
        links: Vec<LinkLine<'a>>,
    },
    Waiting {
        waited_s: f64,
    },
    Restarted,
}

#[derive(Debug, Serialize)]
struct LinkLine<'a> {
    #[serde(flatten)]
    ends: LinkEnds<'a>,
    bytes: u64,
    goodput_bps: u64,
    #[serde(flatten)]
    state: State<'a>,
}

impl<'a> Line<'a> {
    fn of(time_s: f64, kind: Kind<'a>) -> Self {
        Self { schema: SCHEMA, time_s, kind }
    }
}

impl<'a> Kind<'a> {
    fn of(event: &'a Event) -> Option<Self> {
        Some(match event {
            Event::Connected { key, name } => Self::Connected { peer_key: key.to_string(), peer_name: name.as_deref() },
            Event::Link { link, state } => Self::Link { ends: link.into(), state: state.into() },
            Event::Started { size, resumed } => Self::Started { size_bytes: *size, resumed_bytes: *resumed },
            Event::Progress(progress) => Self::Progress {
                bytes: progress.bytes,
                size_bytes: progress.size,
                resumed_bytes: progress.resumed,
                goodput_bps: progress.rate.0,
                links: progress.links.iter().map(LinkLine::from).collect(),
            },
            Event::Waiting { since } => Self::Waiting { waited_s: seconds(*since) },
            Event::Restarted => Self::Restarted,
            _ => return None,
        })
    }
}

impl<'a> From<&'a LinkProgress> for LinkLine<'a> {
    fn from(link: &'a LinkProgress) -> Self {
        Self { ends: (&link.link).into(), bytes: link.bytes, goodput_bps: link.rate.0, state: (&link.state).into() }
    }
}

/// Raised when a field changes its meaning or goes; a new field or event leaves it.
const SCHEMA: &str = "nicstripe-cp-event/1";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe::{BitRate, LinkState, Progress, trust::PublicKey};
    use serde_json::{Value, to_value};

    use super::*;
    use crate::{cp::view_tests::link, json::schema::Schema};

    fn line(event: &Event) -> Value {
        to_value(Line::of(0.25, Kind::of(event).unwrap())).unwrap()
    }

    #[test]
    fn every_event_is_as_the_schema_says() {
        let schema = Schema::load("cp-event");
        let link_progress = LinkProgress { link: link("eth1"), bytes: 3, rate: BitRate(8), state: LinkState::LeftOut("by name".into()) };
        let progress = Progress { bytes: 5, size: 10, open: false, files: None, resumed: 2, rate: BitRate(8), links: vec![link_progress] };
        for (event, name) in [
            (Event::Connected { key: PublicKey::from_bytes([1; 32]), name: None }, "connected"),
            (Event::Connected { key: PublicKey::from_bytes([1; 32]), name: Some("nas".into()) }, "connected"),
            (Event::Link { link: link("eth1"), state: LinkState::Down("no carrier".into()) }, "link"),
            (Event::Started { size: 10, resumed: 2 }, "started"),
            (Event::Progress(progress), "progress"),
            (Event::Waiting { since: Duration::from_millis(1500) }, "waiting"),
            (Event::Restarted, "restarted"),
        ] {
            let line = line(&event);
            assert_eq!(line["event"], name);
            schema.check(&line);
        }
        let start = Kind::Start { version: "0.1.0", source: "a".into(), target: "nas:".into() };
        schema.check(&to_value(Line::of(0.0, start)).unwrap());
    }

    #[test]
    fn a_link_event_is_flat() {
        let line = line(&Event::Link { link: link("eth1"), state: LinkState::Down("no carrier".into()) });
        let expected = r#"{"event":"link","interface":"eth1","reason":"no carrier","remote":"10.0.0.2","schema":"nicstripe-cp-event/1","state":"down","time_s":0.25}"#;
        assert_eq!(line, serde_json::from_str::<Value>(expected).unwrap());
    }
}

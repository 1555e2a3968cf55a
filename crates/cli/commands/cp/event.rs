//! JSON events of a running copy, one per line.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    time::Instant,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nicstripe::{EntryOutcome, Event, LinkProgress, Name, Progress, Verdict, escaped};
use serde::Serialize;

use super::document::Document;
use crate::{
    failure::Failure,
    output::json::{Line, LinkEnds, State, print_document, seconds, write_line},
};

/// JSON event stream of a copy on standard output.
///
/// The copy continues if the reader closes the stream.
#[derive(Debug)]
pub(crate) struct EventStream {
    begun: Instant,
    /// True if the transfer is that of a single file, so that its total size is known from the
    /// start.
    sized: bool,
    broken: Option<io::Error>,
}

impl EventStream {
    /// Starts the stream with a `start` event that names the sources and the target.
    pub(crate) fn start(sources: &[OsString], target: &OsStr, dry_run: bool) -> Self {
        let mut stream = Self {
            begun: Instant::now(),
            sized: true,
            broken: None,
        };
        let shown = |text: &OsStr| escaped(text.as_bytes());
        let sources: Vec<String> = sources.iter().map(|source| shown(source)).collect();
        let source = sources.first().cloned().unwrap_or_default();
        stream.line(&Line::of(
            0.0,
            Kind::Start {
                version: env!("CARGO_PKG_VERSION"),
                source,
                sources,
                target: shown(target),
                dry_run,
            },
        ));
        stream
    }

    /// Sets whether the transfer is that of a single file, whose size is known at the start.
    pub(crate) fn sized(self, sized: bool) -> Self {
        Self { sized, ..self }
    }

    /// Writes a library event as one line. Skips events that the schema does not describe.
    pub(crate) fn write(&mut self, event: &Event) {
        let time = seconds(self.begun.elapsed());
        if let Some(kind) = Kind::of(event, self.sized) {
            self.line(&Line::of(time, kind));
        }
    }

    fn line(&mut self, line: &impl Serialize) {
        if self.broken.is_none() {
            self.broken = write_line(line).err();
        }
    }
}

/// Prints the final document: alone, or as the last line of the event stream.
///
/// # Errors
///
/// Standard output cannot be written, or an earlier line of the stream could not be.
pub(crate) fn print(document: &Document<'_>, stream: Option<EventStream>) -> Result<(), Failure> {
    match stream.and_then(|stream| stream.broken) {
        Some(error) => Err(Failure::Output(error)),
        None => print_document(document),
    }
}

/// Events of a copy, described in `docs/schema/cp-event.schema.json`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Kind<'a> {
    Start {
        version: &'static str,
        source: String,
        sources: Vec<String>,
        target: String,
        dry_run: bool,
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
        #[serde(skip_serializing_if = "Option::is_none")]
        size_bytes: Option<u64>,
        resumed_bytes: u64,
    },
    Progress {
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        size_bytes: Option<u64>,
        open: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        files: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        files_found: Option<u64>,
        resumed_bytes: u64,
        goodput_bps: u64,
        links: Vec<LinkLine<'a>>,
    },
    Waiting {
        waited_s: f64,
    },
    Queued {
        host: &'a str,
        waited_s: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sessions: Option<u32>,
    },
    Entry(EntryLine),
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

/// JSON fields for the outcome of one tree entry.
#[derive(Debug, Serialize)]
struct EntryLine {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl EntryLine {
    fn of(name: &Name, outcome: &EntryOutcome) -> Self {
        let shown = name.to_string();
        let exact = name.components().collect::<Vec<_>>().join(&b'/');
        let name_base64 = (shown.as_bytes() != exact).then(|| BASE64_STANDARD.encode(&exact));
        let (bytes, code, text) = match outcome {
            EntryOutcome::Copied { bytes, .. } => (Some(*bytes), None, None),
            EntryOutcome::Failed { code, text } => (None, Some(code.word()), Some(text.clone())),
            _ => (None, None, None),
        };
        Self {
            name: shown,
            name_base64,
            outcome: outcome_word(outcome),
            bytes,
            code,
            text,
        }
    }
}

fn outcome_word(outcome: &EntryOutcome) -> &'static str {
    match outcome {
        EntryOutcome::Copied {
            verdict: Verdict::Replace,
            ..
        } => "replaced",
        EntryOutcome::Copied { .. } => "copied",
        EntryOutcome::Skipped(Verdict::Newer) => "newer",
        EntryOutcome::Skipped(_) => "unchanged",
        EntryOutcome::Special => "special",
        EntryOutcome::Deleted => "deleted",
        EntryOutcome::Failed { .. } => "failed",
        _ => "unknown",
    }
}

impl<'a> Line<Kind<'a>> {
    fn of(time_s: f64, kind: Kind<'a>) -> Self {
        Self {
            schema: SCHEMA,
            time_s,
            kind,
        }
    }
}

impl<'a> Kind<'a> {
    fn of(event: &'a Event, sized: bool) -> Option<Self> {
        Some(match event {
            Event::Connected { key, name } => Self::Connected {
                peer_key: key.to_string(),
                peer_name: name.as_deref(),
            },
            Event::Link { link, state } => Self::Link {
                ends: link.into(),
                state: state.into(),
            },
            Event::Started { size, resumed } => Self::Started {
                size_bytes: sized.then_some(*size),
                resumed_bytes: *resumed,
            },
            Event::Progress(progress) => Self::Progress {
                bytes: progress.bytes,
                size_bytes: is_size_known(progress).then_some(progress.size),
                open: progress.open,
                files: progress.files.map(|(done, _)| done),
                files_found: progress.files.map(|(_, found)| found),
                resumed_bytes: progress.resumed,
                goodput_bps: progress.rate.0,
                links: progress.links.iter().map(LinkLine::from).collect(),
            },
            Event::Waiting { since } => Self::Waiting {
                waited_s: seconds(*since),
            },
            Event::Queued { host, since, most } => Self::Queued {
                host,
                waited_s: seconds(*since),
                sessions: *most,
            },
            Event::Entry { name, outcome } => Self::Entry(EntryLine::of(name, outcome)),
            Event::Restarted => Self::Restarted,
            _ => return None,
        })
    }
}

/// Returns true if the progress has a total. A pipe has none; a tree has the size of the entries
/// found so far.
fn is_size_known(progress: &Progress) -> bool {
    !progress.open || progress.files.is_some()
}

impl<'a> From<&'a LinkProgress> for LinkLine<'a> {
    fn from(link: &'a LinkProgress) -> Self {
        Self {
            ends: (&link.link).into(),
            bytes: link.bytes,
            goodput_bps: link.rate.0,
            state: (&link.state).into(),
        }
    }
}

/// Name and version of the schema. The version is raised when a field or event is removed or
/// changes its meaning, not for a new one.
const SCHEMA: &str = "nicstripe-cp-event/1";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe::{BitRate, FailCode, LinkState, trust::PublicKey};
    use serde_json::{Value, to_value};

    use super::*;
    use nicstripe_testkit::Schema;

    use crate::commands::cp::view::tests::link;

    fn line(event: &Event) -> Value {
        to_value(Line::of(0.25, Kind::of(event, true).unwrap())).unwrap()
    }

    #[test]
    fn every_event_is_as_the_schema_says() {
        let schema = Schema::load("cp-event");
        let link_progress = LinkProgress {
            link: link("eth1"),
            bytes: 3,
            rate: BitRate(8),
            state: LinkState::LeftOut("by name".into()),
        };
        let progress = Progress {
            bytes: 5,
            size: 10,
            open: false,
            files: None,
            resumed: 2,
            rate: BitRate(8),
            links: vec![link_progress],
        };
        for (event, name) in [
            (
                Event::Connected {
                    key: PublicKey::from_bytes([1; 32]),
                    name: None,
                },
                "connected",
            ),
            (
                Event::Connected {
                    key: PublicKey::from_bytes([1; 32]),
                    name: Some("nas".into()),
                },
                "connected",
            ),
            (
                Event::Link {
                    link: link("eth1"),
                    state: LinkState::Down("no carrier".into()),
                },
                "link",
            ),
            (
                Event::Started {
                    size: 10,
                    resumed: 2,
                },
                "started",
            ),
            (Event::Progress(progress.clone()), "progress"),
            (
                Event::Progress(Progress {
                    open: true,
                    ..progress.clone()
                }),
                "progress",
            ),
            (
                Event::Progress(Progress {
                    open: true,
                    files: Some((1, 2)),
                    ..progress
                }),
                "progress",
            ),
            (
                entry(
                    b"a/b",
                    EntryOutcome::Copied {
                        verdict: Verdict::Create,
                        bytes: 5,
                    },
                ),
                "entry",
            ),
            (
                entry(
                    b"a/\xff",
                    EntryOutcome::Copied {
                        verdict: Verdict::Replace,
                        bytes: 5,
                    },
                ),
                "entry",
            ),
            (entry(b"a", EntryOutcome::Skipped(Verdict::Same)), "entry"),
            (entry(b"a", EntryOutcome::Skipped(Verdict::Newer)), "entry"),
            (entry(b"a", EntryOutcome::Deleted), "entry"),
            (entry(b"a", EntryOutcome::Special), "entry"),
            (
                entry(
                    b"a",
                    EntryOutcome::Failed {
                        code: FailCode::Io,
                        text: "because".into(),
                    },
                ),
                "entry",
            ),
            (
                Event::Waiting {
                    since: Duration::from_millis(1500),
                },
                "waiting",
            ),
            (
                Event::Queued {
                    host: "nas".into(),
                    since: Duration::from_secs(2),
                    most: Some(64),
                },
                "queued",
            ),
            (
                Event::Queued {
                    host: "nas".into(),
                    since: Duration::from_secs(2),
                    most: None,
                },
                "queued",
            ),
            (Event::Restarted, "restarted"),
        ] {
            let line = line(&event);
            assert_eq!(line["event"], name);
            schema.check(&line);
        }
        let start = Kind::Start {
            version: "0.1.0",
            source: "a".into(),
            sources: vec!["a".into()],
            target: "nas:".into(),
            dry_run: false,
        };
        schema.check(&to_value(Line::of(0.0, start)).unwrap());
        schema.check(
            &to_value(Line::of(
                0.0,
                Kind::of(
                    &Event::Started {
                        size: 0,
                        resumed: 0,
                    },
                    false,
                )
                .unwrap(),
            ))
            .unwrap(),
        );
    }

    fn entry(name: &[u8], outcome: EntryOutcome) -> Event {
        Event::Entry {
            name: Name::parse(name).unwrap(),
            outcome,
        }
    }

    #[test]
    fn a_size_that_nobody_knows_is_absent() {
        let pipe = line(&Event::Progress(Progress {
            bytes: 5,
            open: true,
            ..Progress::default()
        }));
        assert_eq!(
            (pipe.get("size_bytes"), &pipe["open"]),
            (None, &true.into())
        );
        let tree = line(&Event::Progress(Progress {
            size: 5,
            open: true,
            files: Some((1, 2)),
            ..Progress::default()
        }));
        assert_eq!(
            (&tree["size_bytes"], &tree["files"], &tree["files_found"]),
            (&5.into(), &1.into(), &2.into())
        );
        let started = to_value(
            Kind::of(
                &Event::Started {
                    size: 0,
                    resumed: 0,
                },
                false,
            )
            .unwrap(),
        )
        .unwrap();
        assert_eq!(started.get("size_bytes"), None);
    }

    #[test]
    fn a_name_that_cannot_be_shown_comes_with_its_bytes() {
        let plain = line(&entry("dir/größe".as_bytes(), EntryOutcome::Deleted));
        assert_eq!(
            (&plain["name"], plain.get("name_base64")),
            (&"dir/größe".into(), None)
        );
        let wild = line(&entry(b"dir/a\x1b\xff", EntryOutcome::Deleted));
        assert_eq!(wild["name"], r"dir/a\u{1b}\xff");
        assert_eq!(wild["name_base64"], "ZGlyL2Eb/w==");
    }

    #[test]
    fn a_link_event_is_flat() {
        let line = line(&Event::Link {
            link: link("eth1"),
            state: LinkState::Down("no carrier".into()),
        });
        let expected = r#"{"event":"link","interface":"eth1","reason":"no carrier","remote":"10.0.0.2","schema":"nicstripe-cp-event/1","state":"down","time_s":0.25}"#;
        assert_eq!(line, serde_json::from_str::<Value>(expected).unwrap());
    }
}

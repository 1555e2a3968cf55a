//! JSON events of a running copy, described in `docs/schema/cp-event.schema.json`.

use std::ffi::{OsStr, OsString};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nicstripe::{Awaited, EntryOutcome, Event, LinkProgress, Name, Progress};

use super::listing::words;
use crate::{
    output::json::{Object, link_ends, link_state, seconds},
    text::shown,
};

/// Returns the first event, which names the sources and the target.
pub(crate) fn start(sources: &[OsString], target: &OsStr, dry_run: bool) -> Object {
    let sources: Vec<String> = sources.iter().map(shown).collect();
    Object::event("start")
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("source", sources.first().map_or("", String::as_str))
        .with("sources", sources)
        .with("target", shown(target))
        .with("dry_run", dry_run)
}

/// Returns the fields of an event; `None` if the schema does not describe it. `sized` is true for
/// the transfer of a single file.
pub(crate) fn fields(event: &Event, sized: bool) -> Option<Object> {
    Some(match event {
        Event::Connected { key, name } => Object::event("connected")
            .with("peer_key", key.to_string())
            .with("peer_name", name),
        Event::Link { link, state } => Object::event("link")
            .and(link_ends(link))
            .and(link_state(state)),
        Event::Started { size, resumed } => Object::event("started")
            .with("size_bytes", sized.then_some(size))
            .with("resumed_bytes", resumed),
        Event::Progress(progress) => Object::event("progress")
            .with("bytes", progress.bytes)
            .with(
                "size_bytes",
                is_size_known(progress).then_some(progress.size),
            )
            .with("open", progress.open)
            .with("files", progress.files.map(|files| files.done))
            .with("files_found", progress.files.map(|files| files.found))
            .with("resumed_bytes", progress.resumed)
            .with("goodput_bps", progress.rate.0)
            .list("links", &progress.links, of_link),
        Event::Waiting { since } => Object::event("waiting").with("waited_s", seconds(*since)),
        Event::Unreachable {
            host,
            interfaces,
            since,
            patience,
        } => Object::event("unreachable")
            .with("host", host)
            .with("interfaces", interfaces)
            .with("waited_s", seconds(*since))
            .with("timeout_s", patience.map(seconds)),
        Event::Stalled { since, awaited } => Object::event("stalled")
            .with("waited_s", seconds(*since))
            .with("awaited", word_of(*awaited)),
        Event::Queued { host, since, most } => Object::event("queued")
            .with("host", host)
            .with("waited_s", seconds(*since))
            .with("sessions", most),
        Event::Entry { name, outcome } => of_entry(name, outcome),
        Event::Restarted => Object::event("restarted"),
        _ => return None,
    })
}

/// Returns the word for a step that the client waits for.
fn word_of(awaited: Awaited) -> &'static str {
    match awaited {
        Awaited::Opening => "opening",
        Awaited::Sending => "sending",
        Awaited::Receiving => "receiving",
        Awaited::Storing => "storing",
        Awaited::Answer => "answer",
        Awaited::Tunnel => "tunnel",
        _ => "other",
    }
}

/// Returns true if the progress has a total. A pipe has none; a tree has the size of the entries
/// found so far.
fn is_size_known(progress: &Progress) -> bool {
    !progress.open || progress.files.is_some()
}

fn of_link(link: &LinkProgress) -> Object {
    link_ends(&link.link)
        .with("bytes", link.bytes)
        .with("goodput_bps", link.rate.0)
        .and(link_state(&link.state))
}

/// Returns the fields for the outcome of one tree entry.
fn of_entry(name: &Name, outcome: &EntryOutcome) -> Object {
    let shown = name.to_string();
    let exact = name.components().collect::<Vec<_>>().join(&b'/');
    let name_base64 = (shown.as_bytes() != exact).then(|| BASE64_STANDARD.encode(&exact));
    let (bytes, code, text) = match outcome {
        EntryOutcome::Copied { bytes, .. } => (Some(bytes), None, None),
        EntryOutcome::Failed { code, text } => (None, Some(code.word()), Some(text)),
        _ => (None, None, None),
    };
    Object::event("entry")
        .with("name", shown)
        .with("name_base64", name_base64)
        .with("outcome", words(outcome).in_json)
        .with("bytes", bytes)
        .with("code", code)
        .with("text", text)
}

/// Name and version of the schema. The version is raised when a field or event is removed or
/// changes its meaning, not for a new one.
pub(crate) const SCHEMA: &str = "nicstripe-cp-event/1";

#[cfg(test)]
mod tests {
    use nicstripe::FileCounts;
    use nicstripe_testkit::with;
    use std::time::Duration;

    use nicstripe::{BitRate, FailCode, LinkState, Verdict, trust::PublicKey};
    use serde_json::{Value, to_value};

    use super::*;
    use crate::output::json;
    use nicstripe_testkit::Schema;

    use crate::commands::cp::view::tests::link;

    fn line(event: &Event) -> Value {
        let event = fields(event, true).unwrap();
        to_value(json::line(SCHEMA, Duration::from_millis(250), event)).unwrap()
    }

    #[test]
    fn every_event_is_as_the_schema_says() {
        let schema = Schema::load("cp-event");
        let link_progress = with!(LinkProgress::new(link("eth1")), bytes: 3, rate: BitRate(8), state: LinkState::LeftOut("by name".into()));
        let progress = with!(Progress::default(), bytes: 5, size: 10, open: false, files: None, resumed: 2, rate: BitRate(8), links: vec![link_progress]);
        for (event, name) in [
            (
                Event::Connected {
                    key: PublicKey::from_bytes([1; 32]).unwrap(),
                    name: None,
                },
                "connected",
            ),
            (
                Event::Connected {
                    key: PublicKey::from_bytes([1; 32]).unwrap(),
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
                Event::Progress(with!(progress.clone(), open: true)),
                "progress",
            ),
            (
                Event::Progress(
                    with!(progress, open: true, files: Some(FileCounts { done: 1, found: 2 })),
                ),
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
                Event::Unreachable {
                    host: "nas".into(),
                    interfaces: vec!["eth1".into(), "eth2".into()],
                    since: Duration::from_secs(2),
                    patience: Some(Duration::from_secs(600)),
                },
                "unreachable",
            ),
            (
                Event::Unreachable {
                    host: "nas".into(),
                    interfaces: Vec::new(),
                    since: Duration::from_secs(2),
                    patience: None,
                },
                "unreachable",
            ),
            (
                Event::Stalled {
                    since: Duration::from_secs(10),
                    awaited: Awaited::Opening,
                },
                "stalled",
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
        let start = start(&["a".into()], OsStr::new("nas:"), false);
        for event in [start, fields(&begun(), false).unwrap()] {
            schema.check(&to_value(json::line(SCHEMA, Duration::ZERO, event)).unwrap());
        }
    }

    fn begun() -> Event {
        Event::Started {
            size: 0,
            resumed: 0,
        }
    }

    fn entry(name: &[u8], outcome: EntryOutcome) -> Event {
        Event::Entry {
            name: Name::parse(name).unwrap(),
            outcome,
        }
    }

    #[test]
    fn a_size_that_nobody_knows_is_absent() {
        let pipe = line(&Event::Progress(
            with!(Progress::default(), bytes: 5, open: true),
        ));
        assert_eq!(
            (pipe.get("size_bytes"), &pipe["open"]),
            (None, &true.into())
        );
        let tree = line(&Event::Progress(
            with!(Progress::default(), size: 5, open: true, files: Some(FileCounts { done: 1, found: 2 })),
        ));
        assert_eq!(
            (&tree["size_bytes"], &tree["files"], &tree["files_found"]),
            (&5.into(), &1.into(), &2.into())
        );
        let started = to_value(fields(&begun(), false).unwrap()).unwrap();
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

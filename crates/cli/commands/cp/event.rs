//! JSON events of a running copy, described in `docs/schema/cp-event.schema.json`.

use std::ffi::{OsStr, OsString};

use nicstripe::Event;

use crate::{
    output::json::Object,
    text::{invocation::url_without_secrets, shown},
};

/// Returns the first event, which names the sources and the target.
pub(crate) fn start(sources: &[OsString], target: &OsStr, dry_run: bool) -> Object {
    let sources: Vec<String> = sources
        .iter()
        .map(|source| shown(url_without_secrets(source)))
        .collect();
    Object::event("start")
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("source", sources.first().map_or("", String::as_str))
        .with("sources", sources)
        .with("target", shown(target))
        .with("dry_run", dry_run)
}

/// Returns the fields of an event. `sized` is true for the transfer of a single file, whose size is
/// known when it starts.
pub(crate) fn fields(event: &Event, sized: bool) -> Object {
    let fields = Object::of(event);
    match event {
        Event::Started { .. } if !sized => fields.without("size_bytes"),
        _ => fields,
    }
}

/// Name and version of the schema. The version is raised when a field or event is removed or
/// changes its meaning, not for a new one.
pub(crate) const SCHEMA: &str = "nicstripe-cp-event/1";

#[cfg(test)]
mod tests {
    use nicstripe::FileCounts;
    use nicstripe_testkit::with;
    use std::time::Duration;

    use nicstripe::{
        Awaited, BitRate, EntryOutcome, FailCode, LinkProgress, LinkState, Name, Progress, Verdict,
        trust::PublicKey,
    };
    use serde_json::{Value, to_value};

    use super::*;
    use crate::output::json;
    use nicstripe_testkit::Schema;

    use crate::commands::cp::view::tests::link;

    fn line(event: &Event) -> Value {
        let event = fields(event, true);
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
                Event::Crowded {
                    running: 64,
                    since: Duration::from_secs(10),
                },
                "crowded",
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
        for event in [start, fields(&begun(), false)] {
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
        let started = to_value(fields(&begun(), false)).unwrap();
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

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
    };
    use serde_json::{Value, to_value};

    use super::*;
    use crate::output::json;
    use nicstripe_testkit::Schema;

    use crate::commands::cp::view::tests::{connected, link, queued, started, state, unreachable};

    fn line(event: &Event) -> Value {
        let event = fields(event, true);
        to_value(json::line(SCHEMA, Duration::from_millis(250), event)).unwrap()
    }

    #[test]
    fn every_event_is_as_the_schema_says() {
        let schema = Schema::load("cp-event");
        let link_progress = with!(LinkProgress::new(link("eth1")), bytes: 3, rate: BitRate(8), state: LinkState::LeftOut("by name".into()));
        let progress = with!(Progress::default(), bytes: 5, size: 10, open: false, files: None, resumed: 2, rate: BitRate(8), links: vec![link_progress]);
        let entry = |outcome| entry(b"a/\xff", outcome);
        let copied = |verdict| entry(EntryOutcome::Copied { verdict, bytes: 5 });
        let failed = EntryOutcome::Failed {
            code: FailCode::Io,
            text: "because".into(),
        };
        let since = Duration::from_millis(1500);
        let awaited = Awaited::Opening;
        let files = Some(FileCounts { done: 1, found: 2 });
        let down = LinkState::Down("no carrier".into());
        for (name, events) in [
            ("connected", vec![connected(None), connected(Some("nas"))]),
            ("link", vec![state("eth1", down)]),
            ("started", vec![started(10, 2)]),
            (
                "progress",
                vec![
                    Event::Progress(progress.clone()),
                    Event::Progress(with!(progress.clone(), open: true)),
                    Event::Progress(with!(progress, open: true, files: files)),
                ],
            ),
            (
                "entry",
                vec![
                    copied(Verdict::Create),
                    copied(Verdict::Replace),
                    entry(EntryOutcome::Skipped(Verdict::Same)),
                    entry(EntryOutcome::Skipped(Verdict::Newer)),
                    entry(EntryOutcome::Deleted),
                    entry(EntryOutcome::Special),
                    entry(failed),
                ],
            ),
            ("waiting", vec![Event::Waiting { since }]),
            (
                "unreachable",
                vec![
                    unreachable(&["eth1", "eth2"], Some(600)),
                    unreachable(&[], None),
                ],
            ),
            ("stalled", vec![Event::Stalled { since, awaited }]),
            ("crowded", vec![Event::Crowded { running: 64, since }]),
            ("queued", vec![queued(Some(64)), queued(None)]),
            ("restarted", vec![Event::Restarted]),
        ] {
            for event in events {
                let line = line(&event);
                assert_eq!(line["event"], name);
                schema.check(&line);
            }
        }
        let start = start(&["a".into()], OsStr::new("nas:"), false);
        for event in [start, fields(&started(0, 0), false)] {
            schema.check(&to_value(json::line(SCHEMA, Duration::ZERO, event)).unwrap());
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
        let started = to_value(fields(&started(0, 0), false)).unwrap();
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
        let line = line(&state("eth1", LinkState::Down("no carrier".into())));
        let expected = r#"{"event":"link","interface":"eth1","reason":"no carrier","remote":"10.0.0.2","schema":"nicstripe-cp-event/1","state":"down","time_s":0.25}"#;
        assert_eq!(line, serde_json::from_str::<Value>(expected).unwrap());
    }
}

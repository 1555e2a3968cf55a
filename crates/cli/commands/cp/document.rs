//! JSON document at the end of `nicstripe cp`.

use std::time::Duration;

use nicstripe::Report;

use super::view::View;
use crate::{
    failure::Failure,
    output::json::{Object, outcome, seconds},
};

/// Outcome of a copy. A tree copy that failed in part has both a report and a failure.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub(crate) report: Option<&'a Report>,
    /// Reference that the content was compared with.
    pub(crate) proof: Option<&'a str>,
    pub(crate) failure: Option<&'a Failure>,
    /// Run time of the command, used if the copy ended without a report.
    pub(crate) elapsed: Duration,
    pub(crate) hint: Option<String>,
}

/// Returns the document of a copy, described in `docs/schema/cp-report.schema.json`: from its
/// report, or from its last events if it failed before there was a report.
pub(crate) fn document(end: End<'_>, view: &View, dry_run: bool) -> Object {
    let peer = view.peer.as_ref();
    Object::default()
        .with("schema", SCHEMA)
        .and(outcome(end.failure, end.hint))
        .with("resumable", end.failure.is_some_and(Failure::is_resumable))
        .with("peer_key", peer.map(|(key, _)| key.to_string()))
        .with("peer_name", peer.and_then(|(_, name)| name.as_ref()))
        .with("proof", end.proof)
        .and(match end.report {
            Some(report) => of_report(report, dry_run),
            None => of_view(view, end.elapsed),
        })
}

/// A report does not know whether it is that of a dry run.
fn of_report(report: &Report, dry_run: bool) -> Object {
    let tree = report
        .tree
        .as_ref()
        .map(|tree| Object::of(tree).with("dry_run", dry_run));
    Object::of(report).without("tree").with("tree", tree)
}

fn of_view(view: &View, elapsed: Duration) -> Object {
    let progress = view.progress.as_ref();
    let files = progress.and_then(|progress| progress.files);
    let sized = progress.filter(|progress| !progress.open);
    Object::default()
        .with("bytes", progress.map(|progress| progress.bytes))
        .with("size_bytes", sized.map(|progress| progress.size))
        .with("files", files.map_or(0, |files| files.done))
        .with("elapsed_s", seconds(elapsed))
        .with("resumed_bytes", progress.map(|progress| progress.resumed))
        .list("links", &view.links, |link| {
            // Only the progress is known.
            Object::of(link).without("goodput_bps")
        })
        .with("failed", NONE)
        .with("unused", NONE)
}

/// Interfaces of a copy that failed before there was a report.
const NONE: [Object; 0] = [];

/// Name and version of the schema. The version is raised when a field is removed or changes its
/// meaning, not for a new field.
const SCHEMA: &str = "nicstripe-cp-report/1";

#[cfg(test)]
mod tests {
    use nicstripe::{Error, FailCode, LinkState, Progress};
    use nicstripe::{FailedEntry, FileCounts, TreeReport};
    use nicstripe_testkit::with;
    use serde_json::{Value, json, to_value};

    use nicstripe_testkit::Schema;

    use super::*;
    use crate::{
        commands::cp::{
            error::both_local,
            shortfall::tests::shortfall,
            summary::tests::report,
            view::tests::{connected, started, state},
        },
        failure::exit::Stop,
    };

    fn document(result: Result<Report, Failure>, view: &View) -> Value {
        ended(result.as_ref().ok(), result.as_ref().err(), view)
    }

    fn ended(report: Option<&Report>, failure: Option<&Failure>, view: &View) -> Value {
        let hint = failure.map(|_| "try again".to_owned());
        let end = End {
            report,
            proof: report.map(|_| "verified"),
            failure,
            elapsed: Duration::from_millis(1500),
            hint,
        };
        to_value(super::document(end, view, false)).unwrap()
    }

    /// Checks that a document has all these fields.
    fn has(document: &Value, fields: Value) {
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&document[name], value, "{name}");
        }
    }

    fn check(document: &Value) {
        Schema::load("cp-report").check(document);
    }

    #[test]
    fn a_copy_that_succeeded_is_described_as_the_schema_says() {
        let mut view = View::default();
        view.apply(&connected(Some("nas")));
        let document = document(Ok(report()), &view);
        check(&document);
        has(
            &document,
            json!({"ok": true, "exit_code": 0, "elapsed_s": 2.284, "efficiency": 0.9987}),
        );
        has(
            &document,
            json!({"limited_by": "cables", "peer_name": "nas"}),
        );
        assert_eq!(document["links"][0]["rtt_us"], 1234);
    }

    #[test]
    fn every_limit_and_state_is_in_the_schema() {
        use nicstripe::Limit::{
            Cables, Files, Latency, LinkDown, Loss, Receiver, SendBuffer, Source, Unknown,
        };
        for limited_by in [
            Cables, Source, Receiver, SendBuffer, Loss, LinkDown, Latency, Files, Unknown,
        ] {
            check(&document(
                Ok(with!(report(), limited_by: limited_by)),
                &View::default(),
            ));
        }
        let down = LinkState::Down("no carrier".into());
        for state in [
            LinkState::Connecting,
            LinkState::Up,
            LinkState::Suspect,
            down,
            LinkState::LeftOut("by name".into()),
        ] {
            let mut report = report();
            report.links[0].state = state;
            check(&document(Ok(report), &View::default()));
        }
    }

    #[test]
    fn what_is_unknown_is_absent() {
        let mut report = with!(report(), expected: None);
        report.links[0].theory = None;
        report.links[0].kernel = nicstripe::KernelView::default();
        let document = document(Ok(report), &View::default());
        check(&document);
        for absent in ["theory_bps", "efficiency", "error", "hint", "peer_key"] {
            assert_eq!(document.get(absent), None, "{absent}");
        }
        for absent in ["theory_bps", "rtt_us", "busy_us", "retransmitted_bytes"] {
            assert_eq!(document["links"][0].get(absent), None, "{absent}");
        }
        assert!(!document.to_string().contains("null"), "{document}");
    }

    #[test]
    fn a_tree_of_which_something_failed_has_a_report_and_an_error() {
        let codes = [
            FailCode::Io,
            FailCode::SourceChanged,
            FailCode::NotAFile,
            FailCode::Exists,
            FailCode::Busy,
            FailCode::NotFound,
        ];
        let failure = |code: &FailCode| FailedEntry::new("dir/a".into(), *code, "because".into());
        let failures: Vec<FailedEntry> = codes.iter().map(failure).collect();
        let tree = with!(TreeReport::default(), files: 7, bytes: 5, deleted: 1, failed: 6, failures: failures);
        let report = with!(report(), tree: Some(tree), digest: None);
        let shortfall = Failure::from(shortfall(&codes, "-r"));
        let document = ended(Some(&report), Some(&shortfall), &View::default());
        check(&document);
        has(
            &document,
            json!({"ok": false, "exit_code": 23, "resumable": true, "files": 7}),
        );
        assert_eq!(document.get("blake3"), None);
        has(&document["tree"], json!({"deleted": 1, "failed": 6}));
        assert_eq!(document["tree"]["failures"][1]["code"], "source_changed");
        assert!(
            document["error"].as_str().unwrap().contains("files failed"),
            "{document:#}"
        );
    }

    #[test]
    fn a_tree_that_was_given_up_says_how_many_files_are_there() {
        let progress = with!(Progress::default(), bytes: 5, size: 10, open: true, files: Some(FileCounts { done: 3, found: 4 }));
        let view = View {
            progress: Some(progress),
            ..View::default()
        };
        let document = document(
            Err(Failure::Interrupted {
                stop: Stop::Interrupt,
                resumable: true,
            }),
            &view,
        );
        check(&document);
        has(&document, json!({"files": 3, "bytes": 5}));
        assert_eq!(document.get("size_bytes"), None);
    }

    #[test]
    fn a_copy_that_failed_half_way_says_how_far_it_came() {
        let mut view = View::default();
        view.apply(&started(1000, 100));
        view.apply(&state("eth1", LinkState::Up));
        let failure = Failure::Interrupted {
            stop: Stop::Terminate,
            resumable: true,
        };
        let document = document(Err(failure), &view);
        check(&document);
        has(
            &document,
            json!({"ok": false, "exit_code": 143, "resumable": true}),
        );
        has(
            &document,
            json!({"bytes": 100, "size_bytes": 1000, "resumed_bytes": 100}),
        );
        assert_eq!(document["links"][0]["interface"], "eth1");
        assert_eq!(document.get("goodput_bps"), None);
    }

    #[test]
    fn a_copy_that_never_began_is_described_too() {
        for failure in [
            both_local().into(),
            Error::Cancelled { resumable: false }.into(),
        ] {
            let document = document(Err(failure), &View::default());
            check(&document);
            assert_eq!(document.get("bytes"), None);
            assert_eq!(document["links"], Value::Array(Vec::new()));
        }
    }
}

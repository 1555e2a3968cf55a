//! JSON document at the end of `nicstripe cp`.

use std::time::Duration;

use nicstripe::{FailedEntry, LinkProgress, LinkReport, Report, TreeReport, UnusedInterface};
use serde::Serialize;

use super::view::View;
use crate::{
    failure::Failure,
    output::json::{LinkEnds, Outcome, State, micros, seconds},
};

/// JSON document of a copy, described in `docs/schema/cp-report.schema.json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
    resumable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    files: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<TreeDocument<'a>>,
    elapsed_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    moving_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    theory_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    efficiency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failovers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routes_installed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by: Option<&'static str>,
    links: Vec<LinkDocument<'a>>,
    failed: Vec<FailedDocument<'a>>,
}

/// JSON object of an interface that should have been a link but failed.
#[derive(Debug, Serialize)]
struct FailedDocument<'a> {
    side: &'static str,
    interface: &'a str,
    reason: &'a str,
}

/// JSON object with the statistics of one link.
#[derive(Debug, Serialize)]
struct LinkDocument<'a> {
    #[serde(flatten)]
    ends: LinkEnds<'a>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    theory_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmitted_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_us: Option<u64>,
    #[serde(flatten)]
    state: State<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    busy_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rwnd_limited_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sndbuf_limited_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    starved_us: Option<u64>,
}

/// JSON object with the result of a tree copy.
#[derive(Debug, Serialize)]
struct TreeDocument<'a> {
    dry_run: bool,
    files: u64,
    bytes: u64,
    directories: u64,
    symlinks: u64,
    nodes: u64,
    hard_links: u64,
    unchanged: u64,
    newer: u64,
    deleted: u64,
    special: u64,
    stripped: u64,
    failed: u64,
    failures: Vec<FailureDocument<'a>>,
}

/// JSON object of a tree entry that could not be copied.
#[derive(Debug, Serialize)]
struct FailureDocument<'a> {
    name: &'a str,
    code: &'static str,
    text: &'a str,
}

/// Outcome of a copy. A tree copy that failed in part has both a report and a failure.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub(crate) report: Option<&'a Report>,
    pub(crate) failure: Option<&'a Failure>,
    /// Run time of the command, used if the copy ended without a report.
    pub(crate) elapsed: Duration,
    pub(crate) hint: Option<String>,
}

impl<'a> Document<'a> {
    /// Builds the document of a finished copy from its report, or from its last events if it failed
    /// before there was a report.
    pub(crate) fn of(end: End<'a>, view: &'a View, dry_run: bool) -> Self {
        let peer = view.peer.as_ref();
        let document = Self {
            schema: SCHEMA,
            outcome: Outcome::of(end.failure, end.hint),
            resumable: end.failure.is_some_and(Failure::is_resumable),
            peer_key: peer.map(|(key, _)| key.to_string()),
            peer_name: peer.and_then(|(_, name)| name.as_deref()),
            elapsed_s: seconds(end.elapsed),
            ..Self::default()
        };
        match end.report {
            Some(report) => document.with_report(report, dry_run),
            None => document.with_view(view),
        }
    }

    fn with_report(self, report: &'a Report, dry_run: bool) -> Self {
        Self {
            bytes: Some(report.size),
            size_bytes: Some(report.size),
            files: report.tree.as_ref().map_or(1, |tree| tree.files),
            tree: report
                .tree
                .as_ref()
                .map(|tree| TreeDocument::of(tree, dry_run)),
            elapsed_s: seconds(report.elapsed),
            moving_s: Some(seconds(report.moving)),
            goodput_bps: Some(report.goodput().0),
            theory_bps: report.expected.map(|rate| rate.0),
            efficiency: report.efficiency().map(|part| (part * 1e4).round() / 1e4),
            blake3: report.digest.map(|digest| digest.to_string()),
            resumed_bytes: Some(report.resumed_bytes),
            resent_bytes: Some(report.resent_bytes),
            wire_bytes: Some(report.wire_bytes),
            failovers: Some(report.failovers),
            routes_installed: Some(report.routes_installed),
            limited_by: Some(report.limited_by.word()),
            links: report.links.iter().map(LinkDocument::from).collect(),
            failed: report.failed.iter().map(FailedDocument::from).collect(),
            ..self
        }
    }

    fn with_view(self, view: &'a View) -> Self {
        let progress = view.progress.as_ref();
        Self {
            bytes: progress.map(|progress| progress.bytes),
            size_bytes: progress
                .filter(|progress| !progress.open)
                .map(|progress| progress.size),
            files: progress
                .and_then(|progress| progress.files)
                .map_or(0, |(done, _)| done),
            resumed_bytes: progress.map(|progress| progress.resumed),
            links: view.links.iter().map(LinkDocument::from).collect(),
            ..self
        }
    }
}

impl<'a> TreeDocument<'a> {
    fn of(tree: &'a TreeReport, dry_run: bool) -> Self {
        Self {
            dry_run,
            files: tree.files,
            bytes: tree.bytes,
            directories: tree.directories,
            symlinks: tree.symlinks,
            nodes: tree.nodes,
            hard_links: tree.hard_links,
            unchanged: tree.unchanged,
            newer: tree.newer,
            deleted: tree.deleted,
            special: tree.special,
            stripped: tree.stripped,
            failed: tree.failed,
            failures: tree.failures.iter().map(FailureDocument::from).collect(),
        }
    }
}

impl<'a> From<&'a FailedEntry> for FailureDocument<'a> {
    fn from(failure: &'a FailedEntry) -> Self {
        Self {
            name: &failure.name,
            code: failure.code.word(),
            text: &failure.text,
        }
    }
}

impl<'a> From<&'a LinkReport> for LinkDocument<'a> {
    fn from(report: &'a LinkReport) -> Self {
        let kernel = report.kernel;
        Self {
            ends: (&report.link).into(),
            bytes: report.bytes,
            goodput_bps: Some(report.goodput.0),
            theory_bps: report.theory.map(|rate| rate.0),
            retransmitted_bytes: kernel.retransmitted_bytes,
            rtt_us: kernel.rtt.map(micros),
            state: (&report.state).into(),
            verified: report.verified,
            interface_bytes: report.interface_bytes,
            path_mtu: report.path_mtu,
            failures: Some(report.failures),
            damaged: Some(report.damaged),
            busy_us: kernel.busy.map(micros),
            rwnd_limited_us: kernel.rwnd_limited.map(micros),
            sndbuf_limited_us: kernel.sndbuf_limited.map(micros),
            starved_us: kernel.starved.map(micros),
        }
    }
}

impl<'a> From<&'a UnusedInterface> for FailedDocument<'a> {
    fn from(failed: &'a UnusedInterface) -> Self {
        Self {
            side: if failed.is_peers { "peer" } else { "here" },
            interface: &failed.interface,
            reason: &failed.why,
        }
    }
}

/// Builds the statistics of a link in a copy that failed: only its progress is known.
impl<'a> From<&'a LinkProgress> for LinkDocument<'a> {
    fn from(link: &'a LinkProgress) -> Self {
        Self {
            ends: (&link.link).into(),
            bytes: link.bytes,
            goodput_bps: None,
            theory_bps: None,
            retransmitted_bytes: None,
            rtt_us: None,
            state: (&link.state).into(),
            verified: None,
            interface_bytes: None,
            path_mtu: None,
            failures: None,
            damaged: None,
            busy_us: None,
            rwnd_limited_us: None,
            sndbuf_limited_us: None,
            starved_us: None,
        }
    }
}

/// Name and version of the schema. The version is raised when a field is removed or changes its
/// meaning, not for a new field.
const SCHEMA: &str = "nicstripe-cp-report/1";

#[cfg(test)]
mod tests {
    use nicstripe::{Error, Event, FailCode, LinkState, Progress, trust::PublicKey};
    use serde_json::{Value, to_value};

    use nicstripe_testkit::Schema;

    use super::*;
    use crate::{
        commands::cp::{
            error::PlanError, shortfall::tests::shortfall, summary::tests::report,
            view::tests::link,
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
            failure,
            elapsed: Duration::from_millis(1500),
            hint,
        };
        to_value(Document::of(end, view, false)).unwrap()
    }

    fn check(document: &Value) {
        Schema::load("cp-report").check(document);
    }

    #[test]
    fn a_copy_that_succeeded_is_described_as_the_schema_says() {
        let mut view = View::default();
        view.apply(&Event::Connected {
            key: PublicKey::from_bytes([1; 32]),
            name: Some("nas".into()),
        });
        let document = document(Ok(report()), &view);
        check(&document);
        assert_eq!(document["ok"], true);
        assert_eq!(document["exit_code"], 0);
        assert_eq!(document["elapsed_s"], 2.284);
        assert_eq!(document["efficiency"], 0.9987);
        assert_eq!(document["limited_by"], "cables");
        assert_eq!(document["links"][0]["rtt_us"], 1234);
        assert_eq!(document["peer_name"], "nas");
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
                Ok(Report {
                    limited_by,
                    ..report()
                }),
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
        let mut report = Report {
            expected: None,
            ..report()
        };
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
        let failure = |code: &FailCode| FailedEntry {
            name: "dir/a".into(),
            code: *code,
            text: "because".into(),
        };
        let failures: Vec<FailedEntry> = codes.iter().map(failure).collect();
        let tree = TreeReport {
            files: 7,
            bytes: 5,
            deleted: 1,
            failed: 6,
            failures,
            ..TreeReport::default()
        };
        let report = Report {
            tree: Some(tree),
            digest: None,
            ..report()
        };
        let shortfall = Failure::from(shortfall(&codes, &["-r"]));
        let document = ended(Some(&report), Some(&shortfall), &View::default());
        check(&document);
        assert_eq!(
            (
                &document["ok"],
                &document["exit_code"],
                &document["resumable"]
            ),
            (&false.into(), &23.into(), &true.into())
        );
        assert_eq!(
            (&document["files"], document.get("blake3")),
            (&7.into(), None)
        );
        assert_eq!(
            (&document["tree"]["deleted"], &document["tree"]["failed"]),
            (&1.into(), &6.into())
        );
        assert_eq!(document["tree"]["failures"][1]["code"], "source_changed");
        assert!(
            document["error"].as_str().unwrap().contains("files failed"),
            "{document:#}"
        );
    }

    #[test]
    fn a_tree_that_was_given_up_says_how_many_files_are_there() {
        let progress = Progress {
            bytes: 5,
            size: 10,
            open: true,
            files: Some((3, 4)),
            ..Progress::default()
        };
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
        assert_eq!(
            (
                &document["files"],
                &document["bytes"],
                document.get("size_bytes")
            ),
            (&3.into(), &5.into(), None)
        );
    }

    #[test]
    fn a_copy_that_failed_half_way_says_how_far_it_came() {
        let mut view = View::default();
        view.apply(&Event::Started {
            size: 1000,
            resumed: 100,
        });
        view.apply(&Event::Link {
            link: link("eth1"),
            state: LinkState::Up,
        });
        let failure = Failure::Interrupted {
            stop: Stop::Terminate,
            resumable: true,
        };
        let document = document(Err(failure), &view);
        check(&document);
        assert_eq!(
            (&document["ok"], &document["exit_code"]),
            (&false.into(), &143.into())
        );
        assert_eq!(
            (
                &document["bytes"],
                &document["size_bytes"],
                &document["resumed_bytes"]
            ),
            (&100.into(), &1000.into(), &100.into())
        );
        assert_eq!(document["resumable"], true);
        assert_eq!(document["links"][0]["interface"], "eth1");
        assert_eq!(document.get("goodput_bps"), None);
    }

    #[test]
    fn a_copy_that_never_began_is_described_too() {
        for failure in [
            PlanError::BothLocal.into(),
            Error::Cancelled { resumable: false }.into(),
        ] {
            let document = document(Err(failure), &View::default());
            check(&document);
            assert_eq!(document.get("bytes"), None);
            assert_eq!(document["links"], Value::Array(Vec::new()));
        }
    }
}

//! JSON events of a running bench, described in `docs/schema/nicstripe-bench-event-1.json`.

use nicstripe::bench::BenchEvent;

use crate::{
    failure::Failure,
    output::json::{Object, seconds},
};

/// Returns the first event, which names the host.
pub(crate) fn start(host: &str) -> Object {
    Object::event("start")
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("host", host)
}

/// Returns the document that is printed in place of a report.
pub(crate) fn failed(failure: &Failure, hint: Option<String>) -> Object {
    Object::event("failed")
        .with("exit_code", failure.exit().code())
        .with("error", failure.one_line())
        .with("hint", hint)
}

/// Returns the fields of an event; `None` if the schema does not describe it.
pub(crate) fn fields(event: &BenchEvent) -> Option<Object> {
    Some(match event {
        BenchEvent::Waiting { ahead, wait } => Object::event("waiting")
            .with("ahead", ahead)
            .with("wait_s", seconds(*wait)),
        BenchEvent::Connected { links } => Object::event("connected").with("links", links),
        BenchEvent::Idle { link, round_trips } => Object::event("idle")
            .with("link", link)
            .with("round_trips", round_trips),
        BenchEvent::Left(left) => Object::event("left").with("left_s", seconds(*left)),
        BenchEvent::Began {
            phase,
            repeat,
            links,
        } => Object::event("began")
            .with("phase", phase)
            .with("repeat", repeat)
            .with("links", links),
        BenchEvent::Sample {
            phase,
            repeat,
            way,
            interval,
            links,
        } => Object::event("sample")
            .with("phase", phase)
            .with("repeat", repeat)
            .with("way", way)
            .with("interval", interval)
            .with("links", links),
        BenchEvent::RunDone(run) => Object::event("run_done").with("run", run),
        BenchEvent::Point { kind, point } => Object::event("point")
            .with("kind", kind)
            .with("point", point),
        BenchEvent::Note(text) => Object::event("note").with("text", text),
        _ => return None,
    })
}

pub(crate) const SCHEMA: &str = "nicstripe-bench-event/1";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe::bench::BenchReport;
    use nicstripe_testkit::Schema;
    use serde_json::{Value, to_value};

    use super::*;
    use crate::{
        commands::bench::{live::tests::events, tests::samples},
        output::json,
    };

    fn line(event: Object) -> Value {
        to_value(json::line(SCHEMA, Duration::from_millis(500), event)).unwrap()
    }

    #[test]
    fn reports_of_every_shape_are_as_the_schema_says_and_are_read_back_as_they_were() {
        let schema = Schema::load("nicstripe-bench-report-1");
        for (name, report) in samples::all() {
            let document = to_value(&report).unwrap();
            schema.check(&document);
            assert!(
                !document.to_string().contains("null"),
                "{name}: unknown values are absent"
            );
            assert_eq!(
                serde_json::from_value::<BenchReport>(document).unwrap(),
                report,
                "{name}"
            );
        }
    }

    #[test]
    fn events_of_every_kind_are_as_the_schema_says() {
        let schema = Schema::load("nicstripe-bench-event-1");
        for (_, report) in samples::all() {
            for event in events(&report) {
                schema.check(&line(fields(&event).unwrap()));
            }
        }
        schema.check(&line(start("nas")));
        let failure = Failure::from(nicstripe::Error::NoInterface { why: "none is up" });
        for hint in [None, Some("plug it in".to_owned())] {
            schema.check(&line(failed(&failure, hint)));
        }
    }

    #[test]
    fn what_breaks_the_schema_is_found() {
        let schema = Schema::load("nicstripe-bench-report-1");
        let report = to_value(samples::swept()).unwrap();
        for (pointer, value) in [
            ("/schema", "nicstripe-bench-report/2".into()),
            ("/links/0/theory_bps", Value::Null),
            ("/runs/0/flows/0/limiter", "gremlins".into()),
            ("/runs/0/window_us", (-1).into()),
            ("/summary/together/median_bps", 1.5.into()),
            ("/hosts/client", "laptop".into()),
            ("/sweeps/0/points/0/rate", Value::Null),
        ] {
            let mut broken = report.clone();
            *broken.pointer_mut(pointer).unwrap() = value;
            assert!(
                std::panic::catch_unwind(|| schema.check(&broken)).is_err(),
                "{pointer}"
            );
        }
    }
}

//! JSON events of a running bench, one per line.

use std::time::{Duration, Instant};

use nicstripe::bench::{
    BenchEvent, BenchLink, Direction, Interval, Phase, RoundTrips, Run, SweepKind, SweepPoint,
};
use serde::Serialize;

use crate::{
    failure::Failure,
    output::json::{Line, print_document, seconds},
};

/// JSON event stream of a bench on standard output. The bench continues if the reader closes it.
#[derive(Debug)]
pub(crate) struct EventStream {
    begun: Instant,
    broken: Option<Failure>,
}

impl EventStream {
    /// Starts the stream with a `start` event that names the host.
    pub(crate) fn start(host: &str) -> Self {
        let mut stream = Self {
            begun: Instant::now(),
            broken: None,
        };
        stream.line(Kind::Start {
            version: env!("CARGO_PKG_VERSION"),
            host,
        });
        stream
    }

    /// Writes an event as one line. Skips events that the schema does not describe.
    pub(crate) fn write(&mut self, event: &BenchEvent) {
        if let Some(kind) = Kind::of(event) {
            self.line(kind);
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    ///
    /// A line could not be written to standard output.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.broken.map_or(Ok(()), Err)
    }

    fn line(&mut self, kind: Kind<'_>) {
        if self.broken.is_none() {
            let line = Line {
                schema: SCHEMA,
                time_s: seconds(self.begun.elapsed()),
                kind,
            };
            self.broken = print_document(&line).err();
        }
    }
}

/// Prints the failure as a JSON document in place of a report.
pub(crate) fn print_failure(
    failure: &Failure,
    hint: Option<String>,
    elapsed: Duration,
) -> Result<(), Failure> {
    let kind = Kind::Failed {
        exit_code: failure.exit().code(),
        error: failure.one_line(),
        hint,
    };
    print_document(&Line {
        schema: SCHEMA,
        time_s: seconds(elapsed),
        kind,
    })
}

/// Events of a bench, described in `docs/schema/nicstripe-bench-event-1.json`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Kind<'a> {
    Start {
        version: &'static str,
        host: &'a str,
    },
    Waiting {
        ahead: u32,
        wait_s: f64,
    },
    Connected {
        links: &'a [BenchLink],
    },
    Idle {
        link: u32,
        round_trips: RoundTrips,
    },
    Left {
        left_s: f64,
    },
    Began {
        phase: Phase,
        repeat: u32,
        links: &'a [u32],
    },
    Sample {
        phase: Phase,
        repeat: u32,
        way: Direction,
        interval: &'a Interval,
        links: &'a [u32],
    },
    RunDone {
        run: &'a Run,
    },
    Point {
        kind: SweepKind,
        point: &'a SweepPoint,
    },
    Note {
        text: &'a str,
    },
    Failed {
        exit_code: u8,
        error: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
}

impl<'a> Kind<'a> {
    fn of(event: &'a BenchEvent) -> Option<Self> {
        Some(match event {
            BenchEvent::Waiting { ahead, wait } => Self::Waiting {
                ahead: *ahead,
                wait_s: seconds(*wait),
            },
            BenchEvent::Connected { links } => Self::Connected { links },
            BenchEvent::Idle { link, round_trips } => Self::Idle {
                link: *link,
                round_trips: *round_trips,
            },
            BenchEvent::Left(left) => Self::Left {
                left_s: seconds(*left),
            },
            BenchEvent::Began {
                phase,
                repeat,
                links,
            } => Self::Began {
                phase: *phase,
                repeat: *repeat,
                links,
            },
            BenchEvent::Sample {
                phase,
                repeat,
                way,
                interval,
                links,
            } => Self::Sample {
                phase: *phase,
                repeat: *repeat,
                way: *way,
                interval,
                links,
            },
            BenchEvent::RunDone(run) => Self::RunDone { run },
            BenchEvent::Point { kind, point } => Self::Point { kind: *kind, point },
            BenchEvent::Note(text) => Self::Note { text },
            _ => return None,
        })
    }
}

/// Name and version of the schema. The version is raised when a field or event is removed or
/// changes its meaning, not for a new one.
const SCHEMA: &str = "nicstripe-bench-event/1";

#[cfg(test)]
mod tests {
    use nicstripe::bench::BenchReport;
    use nicstripe_testkit::Schema;
    use serde_json::{Value, to_value};

    use super::*;
    use crate::commands::bench::{live::tests::events, tests::samples};

    fn line(kind: Kind<'_>) -> Value {
        to_value(Line {
            schema: SCHEMA,
            time_s: 0.5,
            kind,
        })
        .unwrap()
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
                schema.check(&line(Kind::of(&event).unwrap()));
            }
        }
        schema.check(&line(Kind::Start {
            version: "0.2.0",
            host: "nas",
        }));
        for hint in [None, Some("plug it in".to_owned())] {
            schema.check(&line(Kind::Failed {
                exit_code: 10,
                error: "no link".into(),
                hint,
            }));
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

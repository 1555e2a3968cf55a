//! One bench from connecting to the exit code: shows progress, handles signals, and writes the
//! requested outputs.

use std::path::PathBuf;

use nicstripe::bench::{BenchEvent, BenchReport, Comparison};

use super::{
    arguments::Measure, failure::BenchError, files, history::History, html, outcome, prom,
    show::Show,
};
use crate::{
    failure::{Failure, exit::Stop},
    output::terminal::Terminal,
    process::signals::{Signalled, Signals},
};

pub(crate) trait Measurement {
    /// Returns the next event of the bench; `None` after the last. Cancel safe.
    async fn next_event(&mut self) -> Option<BenchEvent>;

    /// Requests an early end. The report then contains the data measured so far.
    fn stop(&self);

    /// Waits for the report, and closes the connections.
    async fn finish(self) -> Result<BenchReport, Failure>;
}

/// Function that compares a report with a baseline.
pub(crate) type Compare = fn(&BenchReport, &BenchReport) -> Comparison;

/// Outputs and baseline of a bench, checked before the measurement.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    measure: &'a Measure,
    history: History,
    baseline: Option<BenchReport>,
    compare: Compare,
}

/// Result of a bench, and the signal that ended it, if any.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Report of the bench, also if a signal ended it early, or the error that ended it.
    pub(crate) report: Result<BenchReport, Failure>,
    pub(crate) stop: Option<Stop>,
}

impl<'a> Session<'a> {
    /// Reads the baseline, and checks that the output files can be written.
    pub(crate) fn new(
        measure: &'a Measure,
        history: History,
        compare: Compare,
    ) -> Result<Self, Failure> {
        for path in measure.html.iter().chain(&measure.prom) {
            files::check(path)?;
        }
        let baseline = measure
            .baseline
            .as_ref()
            .map(|baseline| history.find(baseline))
            .transpose()?;
        Ok(Self {
            measure,
            history,
            baseline,
            compare,
        })
    }

    /// Writes the files and prints the output that the options request, and returns the result of
    /// the command.
    ///
    /// A file that cannot be written does not suppress the printed output. The cause of an early
    /// end takes precedence over the checks of the report.
    pub(crate) fn conclude(
        &self,
        ended: Ended,
        show: Show,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let interrupted = |stop| Failure::Interrupted {
            stop,
            resumable: false,
        };
        let mut report = match ended.report {
            Ok(report) => report,
            Err(failure) => {
                let failure = ended.stop.map_or(failure, interrupted);
                return show.failure(&failure).and(Err(failure));
            }
        };
        if let Some(baseline) = &self.baseline {
            report.baseline = Some((self.compare)(&report, baseline));
        }
        let stored = if self.measure.no_history {
            Ok(())
        } else {
            self.history.keep(&report)
        };
        if let Err(failure) = stored {
            terminal.warning(&format!("cannot store the report: {}", failure.one_line()));
        }
        let written = self.write(&report);
        let printed = show.report(&report);
        if let Some(stop) = ended.stop {
            return Err(interrupted(stop));
        }
        written.and(printed)?;
        Ok(self.check(&report)?)
    }

    fn write(&self, report: &BenchReport) -> Result<(), Failure> {
        let write = |path: &Option<PathBuf>, text: fn(&BenchReport) -> String| match path {
            Some(path) => files::replace(path, text(report).as_bytes()),
            None => Ok(()),
        };
        let html = write(&self.measure.html, html::page);
        let prom = write(&self.measure.prom, prom::metrics);
        html.and(prom)
    }

    /// Checks the report against its baseline first, since a regression says more than a missed
    /// minimum rate.
    fn check(&self, report: &BenchReport) -> Result<(), BenchError> {
        report
            .baseline
            .as_ref()
            .map_or(Ok(()), outcome::check_comparison)?;
        self.measure
            .assert_floor
            .map_or(Ok(()), |floor| outcome::check_floor(report, floor))
    }
}

/// Shows a bench until it ends. The first signal ends it with a report of the data so far, the
/// second ends the process.
pub(crate) async fn watch(
    mut bench: impl Measurement,
    show: &mut Show,
    signals: &mut Signals,
) -> Ended {
    let mut stopped = None;
    loop {
        tokio::select! {
            event = bench.next_event() => match event {
                Some(event) => show.on_event(&event),
                None => break,
            },
            signal = signals.next() => match (signal, stopped) {
                (Signalled::Status | Signalled::Reload, _) => show.print_status(),
                (Signalled::Stop(stop), Some(_)) => stop.at_once(),
                (Signalled::Stop(stop), None) => {
                    stopped = Some(stop);
                    bench.stop();
                }
            },
        }
    }
    let finish = bench.finish();
    tokio::pin!(finish);
    loop {
        tokio::select! {
            report = &mut finish => return Ended { report, stop: stopped },
            stop = signals.stop() => match stopped {
                Some(_) => stop.at_once(),
                None => stopped = Some(stop),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, fs, path::Path};

    use nicstripe::bench::Verdict;
    use nicstripe::trust::Home;

    use super::*;
    use crate::commands::bench::{arguments::tests::parse, live::tests::events, tests::samples};

    struct Recorded {
        events: VecDeque<BenchEvent>,
        report: BenchReport,
    }

    impl Measurement for Recorded {
        async fn next_event(&mut self) -> Option<BenchEvent> {
            self.events.pop_front()
        }

        fn stop(&self) {}

        async fn finish(self) -> Result<BenchReport, Failure> {
            Ok(self.report)
        }
    }

    /// Compares the rates of two reports. A rate that is lower by more than 5 % is a regression.
    fn compare(report: &BenchReport, baseline: &BenchReport) -> Comparison {
        let rate = |report: &BenchReport| {
            report
                .summary
                .together
                .map_or(0.0, |total| total.median_bps as f64)
        };
        let change_pct = (rate(report) / rate(baseline) - 1.0) * 100.0;
        let verdict = if change_pct < -5.0 {
            Verdict::Regression
        } else {
            Verdict::Same
        };
        Comparison {
            id: baseline.id.clone(),
            baseline: baseline.summary.together.unwrap(),
            change_pct,
            noise_pct: 3.0,
            verdict,
            why: None,
        }
    }

    /// Runs a simulated bench with the arguments `bench nas -q` and `words`, and returns the exit
    /// code.
    fn run(folder: &Path, words: &[&str], report: BenchReport, stop: Option<Stop>) -> u8 {
        let words: Vec<&str> = ["nas", "-q"].iter().chain(words).copied().collect();
        let bench = parse(&words).unwrap();
        let terminal = Terminal::default();
        let session = match Session::new(&bench.measure, History::of(&Home::at(folder)), compare) {
            Ok(session) => session,
            Err(failure) => return failure.exit().code(),
        };
        let mut show = Show::new(&terminal, &bench.measure, "nas");
        let runtime = crate::process::runtime::local().unwrap();
        let recorded = Recorded {
            events: events(&report).into(),
            report,
        };
        let ended = runtime.block_on(async {
            let mut signals = Signals::take().unwrap();
            watch(recorded, &mut show, &mut signals).await
        });
        let result = session.conclude(Ended { stop, ..ended }, show, &terminal);
        result.map_or_else(|failure| failure.exit().code(), |()| 0)
    }

    #[test]
    fn a_report_goes_to_all_places_and_the_exit_code_says_how_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (html, prom) = (at("r.html"), at("r.prom"));
        let words = [
            "--html",
            html.to_str().unwrap(),
            "--prom",
            prom.to_str().unwrap(),
            "--assert-floor",
            "97%",
        ];
        assert_eq!(run(folder.path(), &words, samples::good(), None), 0);
        assert!(fs::read_to_string(&html).unwrap().ends_with("</html>\n"));
        assert!(
            fs::read_to_string(&prom)
                .unwrap()
                .contains("nicstripe_bench_complete{peer=\"nas\"} 1")
        );
        assert_eq!(
            History::of(&Home::at(folder.path())).list().unwrap().len(),
            1
        );
        assert_eq!(run(folder.path(), &words, samples::shared(), None), 41);
        assert_eq!(
            run(folder.path(), &["--no-history"], samples::shared(), None),
            0
        );
        assert_eq!(
            History::of(&Home::at(folder.path())).list().unwrap().len(),
            2
        );
    }

    #[test]
    fn slower_than_the_baseline_is_41_and_the_report_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (base, html) = (
            folder.path().join("base.json"),
            folder.path().join("r.html"),
        );
        fs::write(&base, serde_json::to_vec(&samples::good()).unwrap()).unwrap();
        let words = [
            "--baseline",
            base.to_str().unwrap(),
            "--html",
            html.to_str().unwrap(),
        ];
        assert_eq!(run(folder.path(), &words, samples::good(), None), 0);
        assert_eq!(run(folder.path(), &words, samples::shared(), None), 41);
        assert!(
            fs::read_to_string(&html)
                .unwrap()
                .contains("SLOWER (significant)")
        );
    }

    #[test]
    fn a_signal_outranks_the_verdict_and_the_partial_report_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let html = folder.path().join("r.html");
        let words = ["--html", html.to_str().unwrap(), "--assert-floor", "97%"];
        assert_eq!(
            run(
                folder.path(),
                &words,
                samples::partial(),
                Some(Stop::Interrupt)
            ),
            130
        );
        assert!(fs::read_to_string(&html).unwrap().contains("Incomplete"));
        assert_eq!(
            run(
                folder.path(),
                &words,
                samples::partial(),
                Some(Stop::Terminate)
            ),
            143
        );
    }

    #[test]
    fn what_cannot_work_is_found_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none/r.html");
        assert_eq!(
            run(
                folder.path(),
                &["--html", none.to_str().unwrap()],
                samples::good(),
                None
            ),
            11
        );
        assert_eq!(
            run(
                folder.path(),
                &["--baseline", "ffffffff"],
                samples::good(),
                None
            ),
            11
        );
        let no_report = folder.path().join("x.json");
        fs::write(&no_report, "{}").unwrap();
        assert_eq!(
            run(
                folder.path(),
                &["--baseline", no_report.to_str().unwrap()],
                samples::good(),
                None
            ),
            11
        );
    }

    #[test]
    fn without_a_report_the_failure_counts_unless_a_signal_was_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        let bench = parse(&["nas", "-q"]).unwrap();
        let session = Session::new(
            &bench.measure,
            History::of(&Home::at(folder.path())),
            compare,
        )
        .unwrap();
        let terminal = Terminal::default();
        for (stop, code) in [(None, 10), (Some(Stop::Interrupt), 130)] {
            let failure = nicstripe::Error::NoInterface { why: "none is up" };
            let show = Show::new(&terminal, &bench.measure, "nas");
            let result = session.conclude(
                Ended {
                    report: Err(failure.into()),
                    stop,
                },
                show,
                &terminal,
            );
            assert_eq!(result.unwrap_err().exit().code(), code);
        }
    }
}

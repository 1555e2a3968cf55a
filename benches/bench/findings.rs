//! Table of measured values with their thresholds.

use std::fmt::Debug;

use nicstripe::bench::{BenchReport, Limiter, Run};
use nicstripe_testkit::bench::{Result, Spread, Table};

/// Measured values of all cases, and the failures that make the bench fail.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    rows: Vec<[String; 4]>,
    failures: Vec<String>,
}

impl Findings {
    /// Adds a value measured in several runs. Marks the row as missed if the median does not meet
    /// `is_met`. `bar` is the threshold as text.
    pub(crate) fn value(
        &mut self,
        what: &str,
        spread: &Spread,
        decimals: usize,
        bar: &str,
        is_met: impl Fn(f64) -> bool,
    ) {
        self.row(what, spread.print(decimals), bar, is_met(spread.median()));
    }

    /// Adds a row without a threshold.
    pub(crate) fn note(&mut self, what: &str, value: String) {
        self.row(what, value, "", true);
    }

    /// Adds the number of runs whose diagnosed bottleneck (`found`) is one of `expected`. Marks the
    /// row as missed unless all runs count.
    pub(crate) fn named(&mut self, what: &str, expected: &[Limiter], found: &[Option<Limiter>]) {
        let right = found
            .iter()
            .filter(|limiter| limiter.is_some_and(|limiter| expected.contains(&limiter)))
            .count();
        let mut value = format!("{right} of {}", found.len());
        let others: Vec<String> = found
            .iter()
            .filter(|limiter| limiter.is_none_or(|limiter| !expected.contains(&limiter)))
            .map(name)
            .collect();
        if !others.is_empty() {
            value += &format!(" ({})", others.join(", "));
        }
        let names: Vec<String> = expected.iter().map(name).collect();
        self.row(what, value, &names.join(" or "), right == found.len());
    }

    /// Adds the number of times that a condition held, `right` out of `of`. Marks the row as missed
    /// unless the two are equal.
    pub(crate) fn count(&mut self, what: &str, right: usize, of: usize) {
        self.row(what, format!("{right} of {of}"), "all", right == of);
    }

    fn row(&mut self, what: &str, value: String, bar: &str, is_met: bool) {
        let mark = if is_met { "" } else { "MISSED" };
        eprintln!("{what}: {value} {mark}");
        self.rows
            .push([what.to_owned(), value, bar.to_owned(), mark.to_owned()]);
    }

    /// Adds a failure that makes the bench fail. Used for errors only, never for low speed.
    pub(crate) fn fail(&mut self, failure: impl Into<String>) {
        let failure = failure.into();
        eprintln!("{failure}");
        self.failures.push(failure);
    }

    /// Adds a failure if a report is inconsistent: the report is incomplete, a run's flows do not
    /// add up to its total, or a flow has an unknown link.
    pub(crate) fn check(&mut self, report: &BenchReport) {
        let wrong: Vec<&Run> = report.runs.iter().filter(|run| !adds_up(run)).collect();
        if let Some(run) = wrong.first() {
            let bytes: Vec<u64> = run.flows.iter().map(|flow| flow.bytes).collect();
            let (phase, repeat, window, total) =
                (run.phase, run.repeat, run.window_us, run.total_bps);
            self.fail(format!("{phase:?} {repeat}: {bytes:?} bytes in {window} µs are not {total} bit/s; {} such runs", wrong.len()));
        }
        if !report.complete {
            self.fail("a bench ended early");
        }
        let ids: Vec<u32> = report.links.iter().map(|link| link.id).collect();
        if report
            .runs
            .iter()
            .flat_map(|run| &run.flows)
            .any(|flow| !ids.contains(&flow.link))
        {
            self.fail(format!("flow without a link: {ids:?}"));
        }
    }

    /// Adds a failure if the measurement of `case` returned an error.
    pub(crate) fn end_of(&mut self, case: impl Debug, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.fail(format!("{case:?}: {error}"));
        }
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(&["what", "value", "bar", ""]);
        for row in &self.rows {
            table.row(row.clone());
        }
        table
    }

    pub(crate) fn verdict(self) -> Result<()> {
        if self.failures.is_empty() {
            Ok(())
        } else {
            Err(self.failures.join("; ").into())
        }
    }
}

/// Returns true if the bytes of a run's flows match the run's total rate, within a rounding error
/// of 1 bit/s.
fn adds_up(run: &Run) -> bool {
    let bytes: u64 = run.flows.iter().map(|flow| flow.bytes).sum();
    let rate = u128::from(bytes) * 8_000_000 / u128::from(run.window_us.max(1));
    u128::from(run.total_bps).abs_diff(rate) <= 1
}

/// Returns the name of a limiter in the JSON report; `none` for no limiter.
fn name(limiter: &impl serde::Serialize) -> String {
    serde_json::to_value(limiter)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_else(|| "none".to_owned())
}

//! Checks of a report against a baseline and a minimum rate, which determine the exit code.

use nicstripe::bench::{BaselineVerdict, BenchReport, Comparison, Phase};

use super::reading::{Reading, obstacle, short_id};
use crate::failure::{Fault, exit::Exit};

pub(crate) fn check_comparison(comparison: &Comparison) -> Result<(), Fault> {
    let id = short_id(&comparison.id);
    let (percent, noise) = (-comparison.change_pct, comparison.noise_pct);
    let (exit, text) = match comparison.verdict {
        BaselineVerdict::Same | BaselineVerdict::Better => return Ok(()),
        BaselineVerdict::Regression => (
            Exit::Slower,
            format!("{percent:.1} % slower than {id}, noise is {noise:.1} %"),
        ),
        BaselineVerdict::NotComparable => (
            Exit::Failed,
            format!("cannot be compared with {id}: {}", obstacle(comparison)),
        ),
    };
    Err(Fault::new(exit, text))
}

/// Returns an error if all links together reach less than `floor` of the theoretical rate, a share
/// from 0 to 1. Checks the median of each one-way load.
pub(crate) fn check_floor(report: &BenchReport, floor: f64) -> Result<(), Fault> {
    let unchecked = |why: &str| Fault::new(Exit::Failed, format!("cannot check the floor: {why}"));
    let reading = Reading::of(report);
    let phases = reading.whole_phases().map(|(phase, _)| phase);
    let reached = phases
        .filter(|phase| *phase != Phase::Both)
        .map(|phase| reading.whole_efficiency(phase))
        .collect::<Option<Vec<f64>>>()
        .ok_or_else(|| unchecked("a line rate is unknown, so no theoretical rate"))?;
    match reached.into_iter().min_by(f64::total_cmp) {
        None => Err(unchecked("no load of all links in one direction")),
        Some(least) if least < floor => {
            let (reached, floor) = (least * 100.0, floor * 100.0);
            let text = format!("{reached:.1} % of theory is below the floor of {floor:.1} %");
            Err(Fault::new(Exit::Slower, text))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    #[test]
    fn a_floor_is_of_theory_and_counts_both_ways() {
        let mut slow_back = samples::good();
        slow_back.summary.reverse.as_mut().unwrap().median_bps /= 2;
        let mut unknown = samples::good();
        unknown.summary.theory_bps = None;
        for (report, floor, expected) in [
            (samples::good(), 0.97, ""),
            (
                samples::shared(),
                0.97,
                " % of theory is below the floor of 97.0 %",
            ),
            (slow_back, 0.97, " % of theory is below the floor of 97.0 %"),
            (
                samples::jumbo(),
                0.95,
                " % of theory is below the floor of 95.0 %",
            ),
            (samples::partial(), 0.5, "cannot check the floor: "),
            (
                unknown,
                0.5,
                "cannot check the floor: a line rate is unknown",
            ),
        ] {
            let text = said(check_floor(&report, floor));
            assert!(text.contains(expected), "{expected}: {text}");
            assert_eq!(text.is_empty(), expected.is_empty(), "{text}");
        }
    }

    /// Returns the text of an error; empty for none.
    fn said(checked: Result<(), Fault>) -> String {
        checked.map_or_else(|fault| fault.to_string(), |()| String::new())
    }

    #[test]
    fn only_a_regression_and_what_cannot_be_compared_fail() {
        let comparison = |verdict| Comparison {
            verdict,
            ..samples::with_disk().baseline.unwrap()
        };
        for (verdict, expected) in [
            (BaselineVerdict::Same, ""),
            (BaselineVerdict::Better, ""),
            (
                BaselineVerdict::Regression,
                "11.4 % slower than 0badcafe, noise is 3.0 %",
            ),
            (
                BaselineVerdict::NotComparable,
                "cannot be compared with 0badcafe: measured differently",
            ),
        ] {
            assert_eq!(said(check_comparison(&comparison(verdict))), expected);
        }
    }
}

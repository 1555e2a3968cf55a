//! Several programs that copy the same file in turn.

use super::{Cables, Contender, Copied, Place, Result, Sample, Scene, Way, measure};

/// Runs the programs round by round, so that other load on the machine affects all alike.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    pub(crate) place: &'a Place,
    pub(crate) contenders: &'a [Contender],
    /// Measured rounds.
    pub(crate) runs: u32,
    /// Rounds before the measured ones: a virtual machine's first use of memory costs extra.
    pub(crate) warm_ups: u32,
    /// Failures of nicstripe; those of other programs are only printed.
    pub(crate) failures: Vec<String>,
}

/// Copies of one program; none if one of them failed.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) contender: Contender,
    pub(crate) runs: Vec<Copied>,
}

impl Comparison<'_> {
    /// Compares the programs over a set of cables. A program that fails is excluded from then on.
    pub(crate) fn over(&mut self, cables: &Cables, way: Way, sample: &mut Sample) -> Vec<Series> {
        let mut series: Vec<Result<Vec<Copied>>> =
            self.contenders.iter().map(|_| Ok(Vec::new())).collect();
        for round in 1..=self.warm_ups + self.runs {
            for (contender, outcome) in self.contenders.iter().zip(&mut series) {
                let Ok(runs) = outcome else { continue };
                match Scene::build(cables, self.place, sample, way.from())
                    .and_then(|scene| measure(*contender, &scene))
                {
                    Ok(copied) => {
                        let what = if round > self.warm_ups {
                            "run"
                        } else {
                            "warm-up"
                        };
                        eprintln!(
                            "{cables}, {}, {what}: {contender} {:.3} s",
                            way.name(),
                            copied.wall.as_secs_f64()
                        );
                        runs.extend((round > self.warm_ups).then_some(copied));
                    }
                    Err(error) => *outcome = Err(error),
                }
            }
        }
        let series = self.contenders.iter().zip(series);
        series
            .map(|(contender, outcome)| Series {
                contender: *contender,
                runs: self.judge(*contender, cables, way, outcome),
            })
            .collect()
    }

    fn judge(
        &mut self,
        contender: Contender,
        cables: &Cables,
        way: Way,
        outcome: Result<Vec<Copied>>,
    ) -> Vec<Copied> {
        outcome.unwrap_or_else(|error| {
            let failure = format!("{cables}, {}: {contender}: {error}", way.name());
            eprintln!("{failure}");
            self.failures
                .extend((contender == Contender::Nicstripe).then_some(failure));
            Vec::new()
        })
    }

    /// Returns an error if a copy of nicstripe failed or was wrong.
    pub(crate) fn verdict(self) -> Result<()> {
        if self.failures.is_empty() {
            Ok(())
        } else {
            Err(self.failures.join("; ").into())
        }
    }
}

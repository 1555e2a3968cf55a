//! Comparison of several programs that copy the same file in turn.

use super::{
    arguments::Way,
    cables::Cables,
    contender::Contender,
    copy::{Copied, measure},
    error::Result,
    place::Place,
    sample::Sample,
    scene::Scene,
    table::{Cell, Table, cell},
};

/// Benchmark of several programs in interleaved rounds, so that other load on the machine affects
/// all programs alike.
#[derive(Debug)]
pub struct Comparison<'a> {
    pub place: &'a Place,
    pub contenders: &'a [Contender],
    /// Number of measured rounds. Each round has one copy per program.
    pub runs: u32,
    /// Number of discarded rounds before the measured ones. The first use of memory in a virtual
    /// machine takes extra time.
    pub warm_ups: u32,
    /// Error messages of failed copies by nicstripe and the floor. Failures of other programs are
    /// only printed.
    pub failures: Vec<String>,
}

/// Measured copies of one program. Empty if one of the program's copies failed.
#[derive(Debug)]
pub struct Series {
    pub contender: Contender,
    pub way: Way,
    pub runs: Vec<Copied>,
}

impl Comparison<'_> {
    /// Measures all programs over a set of cables in one direction. A program that fails is
    /// excluded from the later rounds.
    pub fn over(&mut self, cables: &Cables, way: Way, sample: &mut Sample) -> Vec<Series> {
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
                way,
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
            let is_ours = matches!(contender, Contender::Nicstripe | Contender::Floor);
            self.failures.extend(is_ours.then_some(failure));
            Vec::new()
        })
    }

    /// Measures all programs over each set of cables in each direction. Returns the table of the
    /// cells that `row` makes of a program's copies and of those of all programs, with the copies'
    /// circumstances before them.
    ///
    /// `size` is the size of the file for a set of cables.
    pub fn table(
        &mut self,
        all: &[Cables],
        directions: &[Way],
        size: impl Fn(&Cables) -> u64,
        row: impl Fn(&Series, &[Series], &Cables) -> Vec<Cell>,
    ) -> Result<Table> {
        let mut table = Table::default();
        for cables in all {
            let mut sample = self.place.sample(size(cables))?;
            for way in directions {
                let series = self.over(cables, *way, &mut sample);
                for one in &series {
                    let first = [
                        cell("cables", cables),
                        cell("way", way.name()),
                        cell("program", one.contender),
                    ];
                    let cells = match one.runs.is_empty() {
                        true => vec![failed()],
                        false => row(one, &series, cables),
                    };
                    table.row(first.into_iter().chain(cells));
                }
            }
            sample.remove()?;
        }
        Ok(table)
    }

    /// Returns an error if any copy by nicstripe or the floor failed or differed from the source.
    pub fn verdict(self) -> Result<()> {
        verdict(&self.failures)
    }
}

/// Returns the cell of a copy that failed.
pub fn failed() -> Cell {
    cell("", "failed")
}

/// Returns an error with all failures, if there are any.
pub fn verdict(failures: &[String]) -> Result<()> {
    match failures {
        [] => Ok(()),
        some => Err(some.join("; ").into()),
    }
}

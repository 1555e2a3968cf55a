//! A value of several runs.

/// Values of the same thing, one a run.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// Ascending.
    values: Vec<f64>,
}

impl Spread {
    /// The spread of one value of each run.
    pub(crate) fn of<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// The value in the middle, or the mean of the two there; NaN of no runs.
    pub(crate) fn median(&self) -> f64 {
        let middle = self.values.len() / 2;
        match self.values[..] {
            [] => f64::NAN,
            _ if self.values.len().is_multiple_of(2) => f64::midpoint(self.values[middle - 1], self.values[middle]),
            _ => self.values[middle],
        }
    }

    /// The median alone.
    pub(crate) fn middle(&self, decimals: usize) -> String {
        format!("{:.decimals$}", self.median())
    }

    /// Median, least and greatest: `9.21 (9.19–9.25)`; the value alone when there was one run.
    pub(crate) fn print(&self, decimals: usize) -> String {
        match self.values[..] {
            [least, .., greatest] => format!("{} ({least:.decimals$}–{greatest:.decimals$})", self.middle(decimals)),
            _ => self.middle(decimals),
        }
    }
}

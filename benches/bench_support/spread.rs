//! One value over several runs.

/// Values of one quantity, one per run.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// Ascending.
    values: Vec<f64>,
}

impl Spread {
    /// Collects one value of each run.
    pub(crate) fn of<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// Returns the middle value, or the mean of the two middle ones; NaN without runs.
    pub(crate) fn median(&self) -> f64 {
        let middle = self.values.len() / 2;
        match self.values[..] {
            [] => f64::NAN,
            _ if self.values.len().is_multiple_of(2) => {
                f64::midpoint(self.values[middle - 1], self.values[middle])
            }
            _ => self.values[middle],
        }
    }

    /// Formats only the median.
    pub(crate) fn middle(&self, decimals: usize) -> String {
        format!("{:.decimals$}", self.median())
    }

    /// Formats median, minimum and maximum: `9.21 (9.19–9.25)`; a single run's value alone.
    pub(crate) fn print(&self, decimals: usize) -> String {
        match self.values[..] {
            [least, .., greatest] => format!(
                "{} ({least:.decimals$}–{greatest:.decimals$})",
                self.middle(decimals)
            ),
            _ => self.middle(decimals),
        }
    }
}

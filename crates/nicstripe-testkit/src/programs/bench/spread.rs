//! Median and range of a value over several runs.

/// Measured values of one quantity, one per run.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Measured values in ascending order.
    values: Vec<f64>,
}

impl Spread {
    /// Collects the measured `value` of each run.
    pub fn of<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// Returns the median, or NaN without values. For an even number of values, this is the mean of
    /// the two middle ones.
    pub fn median(&self) -> f64 {
        let middle = self.values.len() / 2;
        match self.values[..] {
            [] => f64::NAN,
            _ if self.values.len().is_multiple_of(2) => {
                f64::midpoint(self.values[middle - 1], self.values[middle])
            }
            _ => self.values[middle],
        }
    }

    /// Formats the median with the given number of decimals.
    pub fn middle(&self, decimals: usize) -> String {
        format!("{:.decimals$}", self.median())
    }

    /// Formats median, minimum and maximum as `9.21 (9.19–9.25)`. A single value has no range.
    pub fn print(&self, decimals: usize) -> String {
        match self.values[..] {
            [least, .., greatest] => format!(
                "{} ({least:.decimals$}–{greatest:.decimals$})",
                self.middle(decimals)
            ),
            _ => self.middle(decimals),
        }
    }
}

//! A Markdown table that is readable as plain text.

use std::fmt;

/// Markdown table with column headings.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with column headings and no rows.
    pub fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![headings.iter().map(ToString::to_string).collect()],
        }
    }

    /// Adds a row of cells; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell: &String| cell.chars().count())
                .max()
        };
        (0..self.rows[0].len())
            .map(|column| width(column).unwrap_or(0).max(3))
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                write!(
                    f,
                    "| {:width$} ",
                    row.get(column).map_or("", String::as_str)
                )?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                widths
                    .iter()
                    .try_for_each(|width| write!(f, "| {} ", "-".repeat(*width)))?;
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

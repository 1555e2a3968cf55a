//! A Markdown table that is readable as plain text.

use std::fmt;

/// Markdown table whose rows name their columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Cell of a table, with the heading of its column.
pub type Cell = (&'static str, String);

/// Returns a cell of a table.
pub fn cell(heading: &'static str, value: impl ToString) -> Cell {
    (heading, value.to_string())
}

impl Table {
    /// Adds a row. The longest row gives the headings; missing cells of others stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let (headings, row): (Vec<&str>, Vec<String>) = cells.into_iter().unzip();
        if headings.len() > self.headings.len() {
            self.headings = headings;
        }
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&heads]);
            let cells = cells.filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).fold(3, usize::max)
        };
        let rule: Vec<String> = (0..heads.len())
            .map(|column| "-".repeat(width(column)))
            .collect();
        for row in [&heads, &rule].into_iter().chain(&self.rows) {
            for (column, rule) in rule.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                write!(f, "| {cell:0$} ", rule.len())?;
            }
            writeln!(f, "|")?;
        }
        Ok(())
    }
}

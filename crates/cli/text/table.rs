//! Text tables with aligned columns.

use std::fmt::Write as _;

/// Returns the width of the terminal on standard output, in columns; `None` if it is not a
/// terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns a table with the header `heads`, as [`aligned_rows`] does.
pub(crate) fn aligned<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Vec<String> {
    let heads = heads.map(str::to_owned);
    aligned_rows(&std::iter::once(heads).chain(rows).collect::<Vec<_>>())
}

/// Pads all cells of a column to the widest one. The first and last column are left-aligned, the
/// others right-aligned. All rows must have as many cells as the first.
pub(crate) fn aligned_rows<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<String> {
    let widths = widths(rows);
    let columns = widths.len();
    let line = |row: &Row| {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let left = column == 0 || column + 1 == columns;
            let _ = if left {
                write!(line, " {cell:<width$} ")
            } else {
                write!(line, " {cell:>width$} ")
            };
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Pads all cells of a column to the widest one, all left-aligned, with two spaces in between.
pub(crate) fn left_aligned<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<String> {
    let widths = widths(rows);
    let line = |row: &Row| {
        let cells = row.as_ref().iter().zip(&widths);
        let padded = cells.map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn widths<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<usize> {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

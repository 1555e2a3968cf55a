//! Tables on a terminal.

use std::fmt::Write as _;

/// Pads columns to their widest cell: the first and last to the left, numbers to the right.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let left = column == 0 || column == N - 1;
            let _ = if left { write!(line, " {cell:<width$} ") } else { write!(line, " {cell:>width$} ") };
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

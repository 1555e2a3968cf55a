//! Maximum-weight matching of a table: selects at most one cell per row and column.
//!
//! Hungarian method (Kuhn 1955, Munkres 1957) with prices, O(n³). Finds shortest augmenting paths,
//! row by row, under prices that keep each cell's reduced cost at or above zero.

/// Returns the column selected for each row of a table; `None` for a row without a column. The
/// selection has the maximum total weight and is deterministic.
///
/// `cell` returns a weight above zero; `None` if the cell cannot be selected.
pub(super) fn heaviest(
    rows: usize,
    columns: usize,
    cell: impl Fn(usize, usize) -> Option<i128>,
) -> Vec<Option<usize>> {
    // A row without a match gets a cell of weight zero, if necessary in an additional column.
    let weight = |row: usize, column: usize| {
        if row < rows && column < columns {
            cell(row, column)
        } else {
            None
        }
    };
    let mut table = Table::new(rows.max(columns), |row, column| {
        -weight(row, column).unwrap_or(0)
    });
    for row in 0..table.size {
        table.assign(row);
    }
    let mut chosen = vec![None; rows];
    for (column, row) in table.row_of.iter().enumerate() {
        if let Some(row) = *row
            && weight(row, column).is_some()
        {
            chosen[row] = Some(column);
        }
    }
    chosen
}

/// Square cost table, with the cheapest assignment of the rows that have been placed.
///
/// Invariant: a cell costs at least the sum of the prices of its row and column. An assigned cell
/// costs exactly this sum.
struct Table<F> {
    size: usize,
    cost: F,
    row_price: Vec<i128>,
    column_price: Vec<i128>,
    row_of: Vec<Option<usize>>,
}

/// Shortest-path entry of a column: the total reduced cost, and the previous column on the path.
/// `None` means the row that is being placed.
#[derive(Clone, Copy)]
struct Reach {
    distance: i128,
    from: Option<usize>,
}

impl<F: Fn(usize, usize) -> i128> Table<F> {
    fn new(size: usize, cost: F) -> Self {
        Self {
            size,
            cost,
            row_price: vec![0; size],
            column_price: vec![0; size],
            row_of: vec![None; size],
        }
    }

    /// Assigns a column to `row`. Moves earlier rows to other columns if this is cheaper.
    fn assign(&mut self, row: usize) {
        let mut reached: Vec<Option<Reach>> = vec![None; self.size];
        let mut settled = vec![false; self.size];
        let (mut at, mut from, mut distance) = (row, None, 0);
        let free = loop {
            self.relax(at, from, distance, &settled, &mut reached);
            let open = (0..self.size).filter(|&column| !settled[column]);
            let nearest = open
                .filter_map(|column| reached[column].map(|reach| (reach.distance, column)))
                .min();
            // Never `None`: a free column exists while a row is unassigned, and every row reaches
            // every column.
            let Some((least, column)) = nearest else {
                return;
            };
            settled[column] = true;
            distance = least;
            match self.row_of[column] {
                Some(next) => (at, from) = (next, Some(column)),
                None => break column,
            }
        };
        self.reprice(row, distance, &settled, &reached);
        self.shift(row, free, &reached);
    }

    /// Relaxes all columns from row `at`, which has been reached at `distance` through column
    /// `from`.
    fn relax(
        &self,
        at: usize,
        from: Option<usize>,
        distance: i128,
        settled: &[bool],
        reached: &mut [Option<Reach>],
    ) {
        for column in (0..self.size).filter(|&column| !settled[column]) {
            let reduced = (self.cost)(at, column) - self.row_price[at] - self.column_price[column];
            let distance = distance + reduced;
            if reached[column].is_none_or(|reach| distance < reach.distance) {
                reached[column] = Some(Reach { distance, from });
            }
        }
    }

    /// Restores the invariant along the augmenting path. Reprices each settled column and its row
    /// by the difference to the path's total distance.
    fn reprice(&mut self, row: usize, end: i128, settled: &[bool], reached: &[Option<Reach>]) {
        self.row_price[row] += end;
        for column in (0..self.size).filter(|&column| settled[column]) {
            let Some(reach) = reached[column] else {
                continue;
            };
            let slack = end - reach.distance;
            self.column_price[column] -= slack;
            if let Some(owner) = self.row_of[column] {
                self.row_price[owner] += slack;
            }
        }
    }

    /// Assigns the next column to each row on the path, up to the free column.
    fn shift(&mut self, row: usize, free: usize, reached: &[Option<Reach>]) {
        let mut column = free;
        while let Some(before) = reached[column].and_then(|reach| reach.from) {
            self.row_of[column] = self.row_of[before];
            column = before;
        }
        self.row_of[column] = Some(row);
    }
}

#[cfg(test)]
mod tests {
    use nicstripe_sim::Rng;

    use super::*;

    type Row = Vec<Option<i128>>;

    fn solve(cells: &[Row], columns: usize) -> Vec<Option<usize>> {
        heaviest(cells.len(), columns, |row, column| cells[row][column])
    }

    /// Returns the maximum total weight by trying all matchings of the rows from `row` on.
    fn brute_force(cells: &[Row], row: usize, used: u32) -> i128 {
        let Some(weights) = cells.get(row) else {
            return 0;
        };
        let with = |(column, weight): (usize, &Option<i128>)| {
            let weight = weight.filter(|_| used & (1 << column) == 0)?;
            Some(weight + brute_force(cells, row + 1, used | (1 << column)))
        };
        let best = weights.iter().enumerate().filter_map(with).max();
        best.unwrap_or(0).max(brute_force(cells, row + 1, used))
    }

    /// Returns the sum of the selected cells. Panics unless they form a valid matching.
    fn total(cells: &[Row], chosen: &[Option<usize>]) -> i128 {
        let mut used = 0_u32;
        let mut sum = 0;
        for (row, column) in chosen.iter().enumerate() {
            let Some(column) = *column else { continue };
            assert_eq!(used & (1 << column), 0, "column {column} is used twice");
            used |= 1 << column;
            sum += cells[row][column].expect("a cell that cannot be chosen");
        }
        sum
    }

    #[test]
    fn no_matching_of_a_random_table_is_heavier() {
        for seed in 0..3000 {
            let mut rng = Rng::new(seed);
            let (rows, columns) = (rng.below(7) as usize, rng.below(7) as usize);
            let (absent, most) = (rng.below(4), 1 + rng.below(12));
            let mut cell = || (rng.below(4) >= absent).then(|| 1 + rng.below(most) as i128);
            let cells: Vec<Row> = (0..rows)
                .map(|_| (0..columns).map(|_| cell()).collect())
                .collect();
            let chosen = solve(&cells, columns);
            assert_eq!(chosen.len(), rows);
            assert_eq!(
                total(&cells, &chosen),
                brute_force(&cells, 0, 0),
                "seed {seed}: {cells:?}"
            );
        }
    }

    #[test]
    fn the_heaviest_cell_is_left_where_two_others_weigh_more() {
        let cells = [vec![Some(10), Some(9)], vec![Some(9), None]];
        assert_eq!(solve(&cells, 2), [Some(1), Some(0)]);
    }

    #[test]
    fn empty_tables_are_harmless() {
        assert_eq!(solve(&[], 3), []);
        assert_eq!(solve(&[vec![], vec![]], 0), [None, None]);
        assert_eq!(solve(&[vec![None; 2], vec![None; 2]], 2), [None, None]);
    }
}

//! Measurement and output of this crate's benchmarks.

// Each bench is a separate crate, and uses only a part of this module.
#![allow(dead_code)]
// Clippy forbids reading the clock in this crate, but a bench must read it.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

/// Returns true if benches should run: `cargo bench` passes `--bench`, `cargo test --all-targets`
/// does not.
pub(crate) fn is_wanted() -> bool {
    let wanted = std::env::args().any(|argument| argument == "--bench");
    if !wanted {
        println!("nothing measured: run it by `cargo bench`, or with --bench");
    }
    wanted
}

/// Returns the current time, for functions that take it as an argument.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Accumulated time of many short operations of one kind.
///
/// Each measurement includes two reads of the clock, about 50 ns. Shorter operations must therefore
/// be measured in batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch {
    total: Duration,
    count: u64,
}

impl Stopwatch {
    /// Measures a closure that performs `count` operations.
    pub(crate) fn time<T>(&mut self, count: u64, run: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = run();
        self.total += begun.elapsed();
        self.count += count;
        result
    }

    pub(crate) fn nanoseconds(self) -> f64 {
        self.total.as_secs_f64() * 1e9 / self.count as f64
    }
}

/// Calls `measure` once as a warm-up and then [`SAMPLES`] times. Returns the measured values in
/// ascending order.
pub(crate) fn sample(mut measure: impl FnMut() -> f64) -> [f64; SAMPLES] {
    measure();
    let mut values = [0.0; SAMPLES];
    values.iter_mut().for_each(|value| *value = measure());
    values.sort_by(f64::total_cmp);
    values
}

/// Prints the heading of the table. [`print`] prints its rows.
pub(crate) fn print_head() {
    println!("\nMedian (least–greatest) of {SAMPLES}.\n");
    println!(
        "| {:50} | {:>30} | {:10} | {:40} |",
        "what", "value", "unit", "bar"
    );
    println!(
        "| {} | {}: | {} | {} |",
        "-".repeat(50),
        "-".repeat(29),
        "-".repeat(10),
        "-".repeat(40)
    );
}

/// Prints a table row: median, minimum and maximum of the ascending `values`, their unit, and the
/// threshold.
pub(crate) fn print(what: &str, values: [f64; SAMPLES], unit: &str, bar: &str) {
    let decimals = if values[SAMPLES / 2] < 100.0 { 2 } else { 0 };
    let value = format!(
        "{:.decimals$} ({:.decimals$}–{:.decimals$})",
        values[SAMPLES / 2],
        values[0],
        values[SAMPLES - 1]
    );
    println!("| {what:50} | {value:>30} | {unit:10} | {bar:40} |");
}

const SAMPLES: usize = 11;

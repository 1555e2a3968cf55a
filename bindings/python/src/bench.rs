//! Measuring the links.

use nicstripe::{BenchPlan, blocking::Client};
use pyo3::{exceptions::PyValueError, prelude::*};
use pythonize::pythonize;

use crate::wait::{duration, wait};

/// Measures the links. Returns the report as a dict with the fields of `nicstripe bench --json`.
pub(crate) fn bench<'py>(
    py: Python<'py>,
    client: Client,
    load: f64,
    repeats: Option<u32>,
    budget: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut plan = BenchPlan {
        load: duration(load)?,
        ..BenchPlan::default()
    };
    if let Some(repeats) = repeats {
        if repeats == 0 {
            return Err(PyValueError::new_err("repeats 0: expected 1 or more"));
        }
        plan.repeats = repeats..=repeats;
    }
    plan.budget = budget.map(duration).transpose()?;
    let report = wait(py, move || client.bench(plan).finish())?;
    Ok(pythonize(py, &report)?)
}

//! Listings, entry by entry.

use nicstripe::blocking;
use pyo3::prelude::*;

use crate::{own::Own, stat::Stat};

/// Iterator over the entries of a listing, as `Client.walk` returns it.
#[pyclass(module = "nicstripe", frozen)]
pub(crate) struct Entries(Own<blocking::Entries>);

impl Entries {
    pub(crate) fn new(entries: blocking::Entries) -> Self {
        Self(Own::new(entries))
    }
}

#[pymethods]
impl Entries {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Stat>> {
        let entry = self.0.wait(py, |entries| entries.next().transpose())?;
        Ok(entry.as_ref().map(Stat::of_entry))
    }
}

//! Reports of finished transfers.

use pyo3::prelude::*;
use pythonize::pythonize;

/// A finished transfer.
#[pyclass(module = "nicstripe", frozen)]
pub(crate) struct Report(pub(crate) nicstripe::Report);

#[pymethods]
impl Report {
    /// Size of the file, or of all files of a tree, in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.size
    }

    /// BLAKE3 hash of the file in hexadecimal digits, equal at both ends; `None` for a tree.
    #[getter]
    fn digest(&self) -> Option<String> {
        self.0.digest.map(|digest| digest.to_string())
    }

    /// Entity tag of the written file; `None` for a tree, and from a daemon without tags.
    #[getter]
    fn etag(&self) -> Option<String> {
        self.0.etag.map(|tag| tag.to_string())
    }

    /// Seconds from the call until the file was durable.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.0.elapsed.as_secs_f64()
    }

    /// Bytes of an interrupted attempt, which were not sent again.
    #[getter]
    fn resumed_bytes(&self) -> u64 {
        self.0.resumed_bytes
    }

    /// Goodput in bits per second: of the file, without what was resumed.
    #[getter]
    fn goodput_bps(&self) -> u64 {
        self.0.goodput().0
    }

    /// Goodput that the links could reach together, in bits per second; `None` if unknown.
    #[getter]
    fn expected_bps(&self) -> Option<u64> {
        self.0.expected.map(|rate| rate.0)
    }

    /// Bottleneck of the rate, such as `"cables"` or `"receiver"`.
    #[getter]
    fn limited_by(&self) -> &'static str {
        self.0.limited_by.word()
    }

    /// Returns all fields: those of the line that `nicstripe cp --json` prints at its end.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.0)?)
    }

    fn __repr__(&self) -> String {
        let (size, rate) = (self.0.size, self.0.goodput());
        format!("<nicstripe.Report {size} bytes at {rate}>")
    }
}

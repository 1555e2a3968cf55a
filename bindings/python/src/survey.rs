//! Links of a session, as a dict.

use nicstripe::{LinkSurvey, SurveyedLink};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};
use pythonize::pythonize;

/// Returns the links and what is not one. Rates are in bits per second.
pub(crate) fn survey<'py>(py: Python<'py>, survey: &LinkSurvey) -> PyResult<Bound<'py, PyDict>> {
    let links = survey.links.iter().map(|one| link(py, one));
    let all = PyDict::new(py);
    all.set_item(
        "links",
        PyList::new(py, links.collect::<PyResult<Vec<_>>>()?)?,
    )?;
    all.set_item("unused", pythonize(py, &survey.unused)?)?;
    all.set_item("theory_bps", survey.expected.map(|rate| rate.0))?;
    Ok(all)
}

fn link<'py>(py: Python<'py>, link: &SurveyedLink) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for part in [pythonize(py, &link.link)?, pythonize(py, &link.state)?] {
        fields.update(part.cast::<PyDict>()?.as_mapping())?;
    }
    fields.set_item("verified", link.verified)?;
    fields.set_item("mtu", link.path_mtu.unwrap_or(link.mtu))?;
    fields.set_item("line_rate_bps", link.line_rate.map(|rate| rate.0))?;
    fields.set_item("peer_line_rate_bps", link.peer_line_rate.map(|rate| rate.0))?;
    fields.set_item("theory_bps", link.theory.map(|rate| rate.0))?;
    fields.set_item("streams", link.streams)?;
    Ok(fields)
}

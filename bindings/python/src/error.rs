//! Errors of the library as exceptions.

use std::{fmt::Write as _, io};

use nicstripe::{Actor, Error, NameError};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyDict};

use crate::report::Report;

/// Returns the exception of an error: `nicstripe._errors.make` chooses its class.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let fields = PyDict::new(py);
    let set = || {
        fields.set_item("text", with_causes(error))?;
        fields.set_item("word", error.word())?;
        fields.set_item("number", error.number())?;
        fields.set_item("actor", error.actor().word())?;
        fields.set_item("code", error.fail_code().map(|code| code.word()))?;
        fields.set_item("exit_code", error.exit_code())?;
        fields.set_item("retryable", error.is_retryable())?;
        fields.set_item("resumable", error.is_resumable())
    };
    made(py, set(), &fields)
}

fn made(py: Python<'_>, set: PyResult<()>, fields: &Bound<'_, PyDict>) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    set.and_then(|()| MAKE.import(py, "nicstripe._errors", "make"))
        .and_then(|make| make.call((), Some(fields)))
        .map_or_else(|failed| failed, PyErr::from_value)
}

/// Returns the exception of a directory whose key or trusted peers cannot be used.
pub(crate) fn invalid_home(py: Python<'_>, error: impl std::error::Error) -> PyErr {
    let fields = PyDict::new(py);
    let set = || {
        fields.set_item("text", with_causes(&error))?;
        fields.set_item("word", "home")?;
        fields.set_item("actor", Actor::Machine.word())
    };
    made(py, set(), &fields)
}

/// Returns an error's message with those of its causes.
pub(crate) fn with_causes(error: &impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// Returns the library's error that a reader or writer has failed with.
pub(crate) fn of_stream(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(source) => Error::System {
            what: "use the file",
            source,
        },
    }
}

/// Returns the exception of a name that is not valid.
pub(crate) fn invalid_name(py: Python<'_>, error: NameError) -> PyErr {
    raised(py, &Error::Name(error))
}

/// Returns the exception of a tree copy with failed entries.
pub(crate) fn incomplete(py: Python<'_>, failed: u64, report: Report) -> PyErr {
    static INCOMPLETE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = INCOMPLETE
        .import(py, "nicstripe._errors", "incomplete")
        .and_then(|make| make.call1((format!("{failed} entries could not be copied"), report)));
    made.map_or_else(|failed| failed, PyErr::from_value)
}

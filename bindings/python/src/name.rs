//! Names and paths, from Python and to it: `str` with surrogate escapes, as `os.fsencode` makes them,
//! `bytes` or `os.PathLike`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
};

use nicstripe::Name;
use pyo3::{prelude::*, sync::PyOnceLock, types::PyBytes};

use crate::error::invalid_name;

/// Path of this machine.
pub(crate) struct LocalPath(pub(crate) PathBuf);

/// Name at the daemon, relative to its root.
pub(crate) struct RemoteName(pub(crate) Name);

/// Directory at the daemon: a name, or `None`, `""` or `"."` for its root.
pub(crate) struct RemoteDir(pub(crate) Option<Name>);

impl<'a, 'py> FromPyObject<'a, 'py> for LocalPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let bytes = OsString::from_vec(encoded(object)?);
        Ok(Self(bytes.into()))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for RemoteName {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let name = Name::parse(&encoded(object)?);
        name.map(Self)
            .map_err(|error| invalid_name(object.py(), error))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for RemoteDir {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() || matches!(encoded(object)?.as_slice(), b"" | b".") {
            return Ok(Self(None));
        }
        Ok(Self(Some(RemoteName::extract(object)?.0)))
    }
}

/// Returns the bytes of a name as `os.fsencode` does.
fn encoded(object: Borrowed<'_, '_, PyAny>) -> PyResult<Vec<u8>> {
    static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let encode = ENCODE.import(object.py(), "os", "fsencode")?;
    let bytes = encode.call1((object,))?;
    Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec())
}

/// Returns a name as `str`, so that `os.fsencode` of it has the same bytes.
pub(crate) fn decoded(name: &Name) -> OsString {
    OsStr::from_bytes(&name.to_bytes()).to_owned()
}

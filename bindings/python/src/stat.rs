//! Metadata of names.

use std::{
    ffi::OsString,
    time::{SystemTime, UNIX_EPOCH},
};

use nicstripe::{Entry, Kind, Name};
use pyo3::prelude::*;

use crate::name::decoded;

/// A name at the daemon.
#[pyclass(module = "nicstripe", frozen, eq, get_all)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Name; in a listing relative to the directory that is listed.
    name: OsString,
    /// `"file"`, `"dir"` or `"other"`.
    kind: &'static str,
    /// Size of a file in bytes.
    size: u64,
    /// Time of the last modification in nanoseconds since 1970, on the daemon's clock.
    modified_ns: i128,
    /// Entity tag of a file, which changes with its content; `None` from a daemon without tags.
    etag: Option<String>,
    /// BLAKE3 hash of a file in hexadecimal digits, if the daemon knows it and it was asked for.
    digest: Option<String>,
}

impl Stat {
    pub(crate) fn new(name: &Name, stat: &nicstripe::Stat) -> Self {
        Self {
            name: decoded(name),
            kind: match stat.kind {
                Kind::File => "file",
                Kind::Dir => "dir",
                _ => "other",
            },
            size: stat.size,
            modified_ns: nanoseconds(stat.modified),
            etag: stat.etag.map(|tag| tag.to_string()),
            digest: stat.digest.map(|digest| digest.to_string()),
        }
    }

    pub(crate) fn of_entry(entry: &Entry) -> Self {
        Self::new(&entry.name, &entry.stat)
    }
}

#[pymethods]
impl Stat {
    /// Time of the last modification in seconds since 1970, on the daemon's clock.
    #[getter]
    fn modified(&self) -> f64 {
        self.modified_ns as f64 / 1e9
    }

    /// True for a file.
    #[getter]
    fn is_file(&self) -> bool {
        self.kind == "file"
    }

    /// True for a directory.
    #[getter]
    fn is_dir(&self) -> bool {
        self.kind == "dir"
    }

    fn __repr__(&self) -> String {
        let (name, kind, size) = (self.name.to_string_lossy(), self.kind, self.size);
        format!("<nicstripe.Stat {name:?} {kind}, {size} bytes>")
    }
}

fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |n| -n),
    }
}

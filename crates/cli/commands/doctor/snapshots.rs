//! Files with facts: written, read, and shown.

use std::{
    io,
    path::{Path, PathBuf},
};

use nicstripe_doctor::{Case, Snapshot, SnapshotError};
use nicstripe_link::facts::{Facts, MAX_JSON};
use serde_json::Value;

use crate::{
    failure::{CommandError, Failure, exit::Exit},
    output::{files, stdout},
    text::shown,
};

/// Error of reading a snapshot.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("cannot read {path:?}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use {path:?}")]
    Invalid {
        path: PathBuf,
        source: SnapshotError,
    },
    #[error("{path:?} has two machines: expected one machine in each of two files")]
    Two { path: PathBuf },
    #[error("{count} files: expected one, or one for each end")]
    Many { count: usize },
}

impl CommandError for ReadError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } | Self::Invalid { .. } => Exit::Files,
            Self::Two { .. } | Self::Many { .. } => Exit::Usage,
        }
    }
}

/// Reads one snapshot, or two of one machine each.
pub(super) fn read(files: &[PathBuf]) -> Result<Case, ReadError> {
    match files {
        [one] => Ok(parsed(one)?.into_case(None)),
        [here, there] => {
            let (first, second) = (parsed(here)?, parsed(there)?);
            for (path, snapshot) in [(here, &first), (there, &second)] {
                if snapshot.machines.len() > 1 {
                    return Err(ReadError::Two { path: path.clone() });
                }
            }
            Ok(first.into_case(Some(second)))
        }
        files => Err(ReadError::Many { count: files.len() }),
    }
}

fn parsed(path: &Path) -> Result<Snapshot, ReadError> {
    let failed = |source| ReadError::Read {
        path: path.to_owned(),
        source,
    };
    let text = files::read(path, MOST_BYTES).map_err(failed)?;
    Snapshot::parse(&String::from_utf8_lossy(&text)).map_err(|source| ReadError::Invalid {
        path: path.to_owned(),
        source,
    })
}

/// Writes a snapshot to a file, whole or not at all.
pub(super) fn write(path: &Path, snapshot: &Snapshot) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(snapshot).unwrap_or_default();
    text.push(b'\n');
    files::replace(path, &text)
}

/// Prints the facts of a snapshot, one a line.
pub(super) fn show(snapshot: &Snapshot) -> Result<(), Failure> {
    for (index, facts) in snapshot.machines.iter().enumerate() {
        stdout::line(["this machine", "peer"][index.min(1)])?;
        print(facts)?;
    }
    let links = serde_json::to_value(&snapshot.links).unwrap_or_default();
    if !snapshot.links.is_empty() {
        stdout::line("links")?;
        print_value("  ", "", &links)?;
    }
    match snapshot.bench {
        Some(_) => stdout::line("bench: its report, without names"),
        None => Ok(()),
    }
}

fn print(facts: &Facts) -> Result<(), Failure> {
    print_value("  ", "", &serde_json::to_value(facts).unwrap_or_default())
}

/// Prints the leaves of a value as `a.b.c = value`.
fn print_value(indent: &str, path: &str, value: &Value) -> Result<(), Failure> {
    let inner = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    match value {
        Value::Object(map) => map
            .iter()
            .try_for_each(|(key, value)| print_value(indent, &inner(key), value)),
        Value::Array(list) if list.iter().any(|item| item.is_object()) => {
            list.iter().enumerate().try_for_each(|(index, item)| {
                let name = item.get("name").and_then(Value::as_str);
                let key = name.map_or_else(|| index.to_string(), str::to_owned);
                print_value(indent, &inner(&key), item)
            })
        }
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(plain).collect();
            stdout::line(format_args!(
                "{indent}{} = {}",
                shown(path),
                shown(items.join(" "))
            ))
        }
        value => stdout::line(format_args!(
            "{indent}{} = {}",
            shown(path),
            shown(plain(value))
        )),
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Maximum length of a snapshot that is read: the facts of two machines at three times, and a
/// report of a long bench.
const MOST_BYTES: u64 = 16 * MAX_JSON as u64;

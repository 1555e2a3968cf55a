//! Files with facts: written, read, and shown.

use std::path::{Path, PathBuf};

use nicstripe_doctor::{Case, Snapshot};
use nicstripe_link::facts::MAX_JSON;
use serde_json::Value;

use crate::{
    failure::{Failure, Fault, exit::Exit},
    output::{files, stdout},
    text::shown,
};

/// Reads one snapshot, or two of one machine each.
pub(super) fn read(files: &[PathBuf]) -> Result<Case, Fault> {
    match files {
        [one] => Ok(parsed(one)?.into_case(None)),
        [here, there] => {
            let (first, second) = (parsed(here)?, parsed(there)?);
            for (path, snapshot) in [(here, &first), (there, &second)] {
                if snapshot.machines.len() > 1 {
                    let text = format!(
                        "{path:?} has two machines: expected one machine in each of two files"
                    );
                    return Err(Fault::new(Exit::Usage, text));
                }
            }
            Ok(first.into_case(Some(second)))
        }
        files => Err(Fault::new(
            Exit::Usage,
            format!("{} files: expected one, or one for each end", files.len()),
        )),
    }
}

fn parsed(path: &Path) -> Result<Snapshot, Fault> {
    let text = files::read(path, MOST_BYTES).map_err(Fault::reading(path))?;
    Snapshot::parse(&String::from_utf8_lossy(&text))
        .map_err(|error| Fault::new(Exit::Files, format!("cannot use {path:?}")).because(error))
}

pub(super) fn write(path: &Path, snapshot: &Snapshot) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(snapshot).unwrap_or_default();
    text.push(b'\n');
    files::replace(path, &text)
}

pub(super) fn show(snapshot: &Snapshot) -> Result<(), Failure> {
    for (index, facts) in snapshot.machines.iter().enumerate() {
        stdout::line(["this machine", "peer"][index.min(1)])?;
        print_value("", &serde_json::to_value(facts).unwrap_or_default())?;
    }
    let links = serde_json::to_value(&snapshot.links).unwrap_or_default();
    if !snapshot.links.is_empty() {
        stdout::line("links")?;
        print_value("", &links)?;
    }
    match snapshot.bench {
        Some(_) => stdout::line("bench: its report, without names"),
        None => Ok(()),
    }
}

/// Prints the leaves of a value as `a.b.c = value`.
fn print_value(path: &str, value: &Value) -> Result<(), Failure> {
    let inner = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    match value {
        Value::Object(map) => map
            .iter()
            .try_for_each(|(key, value)| print_value(&inner(key), value)),
        Value::Array(list) if list.iter().any(|item| item.is_object()) => {
            list.iter().enumerate().try_for_each(|(index, item)| {
                let name = item.get("name").and_then(Value::as_str);
                let key = name.map_or_else(|| index.to_string(), str::to_owned);
                print_value(&inner(&key), item)
            })
        }
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(plain).collect();
            stdout::line(format_args!(
                "  {} = {}",
                shown(path),
                shown(items.join(" "))
            ))
        }
        value => stdout::line(format_args!("  {} = {}", shown(path), shown(plain(value)))),
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

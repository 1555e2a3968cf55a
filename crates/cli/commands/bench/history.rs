//! History of bench reports, stored as one file per report in one directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nicstripe::{
    bench::{BenchReport, Ends, HostFacts, Limiter, SCHEMA, Spread},
    trust::Home,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    failure::BenchError,
    files,
    reading::{limiter_text, short_id},
    unit::{RateUnit, bytes_a_second, percent},
};
use crate::{
    failure::Failure,
    text::{known, shown, table::aligned},
};

#[derive(Debug)]
pub(crate) struct History {
    folder: PathBuf,
    most: usize,
}

/// Fields of a stored report that `bench list` prints.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Brief {
    schema: String,
    id: String,
    started: String,
    complete: bool,
    hosts: Ends<HostFacts>,
    summary: BriefSummary,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct BriefSummary {
    together: Option<Spread>,
    reverse: Option<Spread>,
    both: Option<Spread>,
    efficiency: Option<f64>,
    limiter: Option<Limiter>,
}

impl History {
    /// Returns the history in the state directory of `home`. The directory need not exist.
    pub(crate) fn of(home: &Home) -> Self {
        Self {
            folder: home.state().join("bench"),
            most: MOST,
        }
    }

    /// Stores a report, and deletes the oldest ones above the maximum.
    pub(crate) fn keep(&self, report: &BenchReport) -> Result<(), Failure> {
        let failed = |source| Failure::Write {
            path: self.folder.clone(),
            source,
        };
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let path = self.folder.join(file_name(report));
        let json = serde_json::to_vec(report).map_err(|error| Failure::Write {
            path: path.clone(),
            source: error.into(),
        })?;
        files::replace(&path, &json)?;
        let names = self.names().map_err(failed)?;
        for name in &names[..names.len().saturating_sub(self.most)] {
            fs::remove_file(self.folder.join(name)).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns a brief of each stored report, the newest last. Skips files that are not reports.
    pub(crate) fn list(&self) -> Result<Vec<Brief>, Failure> {
        let names = self.names().map_err(|source| BenchError::Read {
            path: self.folder.clone(),
            source,
        })?;
        Ok(names
            .iter()
            .filter_map(|name| read(&self.folder.join(name)).ok())
            .collect())
    }

    /// Reads a report: from the file `text` if it exists, otherwise the stored report whose ID
    /// begins with `text`.
    pub(crate) fn find(&self, text: &Path) -> Result<BenchReport, Failure> {
        if text.exists() {
            return Ok(read(text)?);
        }
        let typed = text.to_string_lossy();
        let begins = |brief: &Brief| typed.len() >= LEAST_TYPED && brief.id.starts_with(&*typed);
        let names = self.names().unwrap_or_default();
        let paths = names.iter().map(|name| self.folder.join(name));
        let found: Vec<PathBuf> = paths
            .filter(|path| read::<Brief>(path).is_ok_and(|brief| begins(&brief)))
            .collect();
        match &found[..] {
            [path] => Ok(read(path)?),
            others => Err(BenchError::Unknown {
                text: shown(&*typed),
                count: others.len(),
            }
            .into()),
        }
    }

    /// Returns the file names of stored reports, the oldest first.
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(
                entry?
                    .file_name()
                    .into_string()
                    .ok()
                    .filter(|name| name.ends_with(".json") && !name.starts_with('.')),
            );
        }
        names.sort_unstable();
        Ok(names)
    }
}

pub(crate) fn table(briefs: &[Brief]) -> Vec<String> {
    let heads = [
        "id",
        "began (UTC)",
        "machines",
        "Mbit/s",
        "MB/s (MiB/s)",
        "of theory",
        "limited by",
    ];
    aligned(heads, briefs.iter().map(Brief::row))
}

impl Brief {
    fn row(&self) -> [String; 7] {
        let name = |host: &HostFacts| known(host.name.as_ref().map(shown));
        let summary = &self.summary;
        let of_all = [
            (summary.together, "→"),
            (summary.reverse, "←"),
            (summary.both, "↔"),
        ];
        let measured = of_all.into_iter().find(|(total, _)| total.is_some());
        let (total, way) = measured.unwrap_or((None, "→"));
        let bps = total.map(|total| total.median_bps);
        let bytes = |bps| {
            let text = bytes_a_second(bps);
            text.replace(" MB/s", "").replace(" MiB/s", "")
        };
        let incomplete = (!self.complete).then_some("incomplete");
        let limits = summary.limiter.map(limiter_text).into_iter();
        let hosts = &self.hosts;
        [
            short_id(&self.id),
            shown(self.started.trim_end_matches('Z').replace('T', " ")),
            format!("{} {way} {}", name(&hosts.client), name(&hosts.daemon)),
            known(bps.map(|bps| RateUnit::Megabits.text(bps))),
            known(bps.map(bytes)),
            known(summary.efficiency.map(percent)),
            limits.chain(incomplete).collect::<Vec<_>>().join(", "),
        ]
    }
}

fn read<T: DeserializeOwned + Versioned>(path: &Path) -> Result<T, BenchError> {
    let bytes = files::read(path, LARGEST).map_err(|source| BenchError::Read {
        path: path.to_owned(),
        source,
    })?;
    let no_report = |source| BenchError::NoReport {
        path: path.to_owned(),
        source,
    };
    let report: T = parse(&bytes).map_err(no_report)?;
    match report.version() == SCHEMA {
        true => Ok(report),
        false => Err(no_report(serde::de::Error::custom(format!(
            "its schema is {:?}, not {SCHEMA:?}",
            shown(report.version())
        )))),
    }
}

/// Parses a JSON document, or the last line of the output of `--json-stream`.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    let whole = serde_json::from_slice(bytes);
    let lines = bytes.trim_ascii_end();
    match (whole, lines.iter().rposition(|byte| *byte == b'\n')) {
        (Err(_), Some(end)) => serde_json::from_slice(&lines[end..]),
        (whole, _) => whole,
    }
}

/// JSON document that carries its schema version.
trait Versioned {
    fn version(&self) -> &str;
}

impl Versioned for BenchReport {
    fn version(&self) -> &str {
        &self.schema
    }
}

impl Versioned for Brief {
    fn version(&self) -> &str {
        &self.schema
    }
}

/// Returns the file name for a report. It begins with the start time, so that names sort by age,
/// and contains no text from the peer.
fn file_name(report: &BenchReport) -> String {
    let plain = |text: &str| {
        text.chars()
            .filter(char::is_ascii_alphanumeric)
            .take(32)
            .collect::<String>()
    };
    format!("{}-{}.json", plain(&report.started), plain(&report.id))
}

/// Maximum number of stored reports. A report takes about 100 KB, so all take about 20 MB.
const MOST: usize = 200;

/// Maximum size of a report to read, in bytes. Reports of this program are far smaller.
const LARGEST: u64 = 64 << 20;

/// Minimum hexadecimal digits of a typed ID prefix. A shorter text is more likely a mistyped file
/// name.
const LEAST_TYPED: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    fn history(folder: &Path, most: usize) -> History {
        History {
            folder: folder.join("bench"),
            most,
        }
    }

    /// Returns a report that started at this minute of an hour. Its ID begins with the minute.
    fn at(minute: u32) -> BenchReport {
        BenchReport {
            id: format!("{minute:08x}7b2d48d6a5e3c1b09f876543"),
            started: format!("2026-05-17T09:{minute:02}:07Z"),
            ..samples::shared()
        }
    }

    #[test]
    fn what_is_kept_is_found_by_the_beginning_of_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let history = history(folder.path(), 10);
        assert_eq!(history.list().unwrap(), []);
        history.keep(&at(1)).unwrap();
        history.keep(&at(2)).unwrap();
        assert_eq!(history.find("00000002".as_ref()).unwrap(), at(2));
        for (text, expected) in [("0000", 2), ("ffff", 0), ("0", 0), ("", 0)] {
            let error = history.find(text.as_ref()).unwrap_err();
            assert!(
                matches!(error.command(), Some(BenchError::Unknown { count, .. }) if *count == expected),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let history = history(folder.path(), 3);
        for minute in [5, 4, 3, 2, 1, 6] {
            history.keep(&at(minute)).unwrap();
        }
        let kept: Vec<String> = history
            .list()
            .unwrap()
            .into_iter()
            .map(|brief| brief.started)
            .collect();
        assert_eq!(
            kept,
            [
                "2026-05-17T09:04:07Z",
                "2026-05-17T09:05:07Z",
                "2026-05-17T09:06:07Z"
            ]
        );
    }

    #[test]
    fn the_list_has_a_line_for_each_report_also_one_that_is_not_complete() {
        let folder = tempfile::tempdir().unwrap();
        let history = history(folder.path(), 10);
        history.keep(&at(1)).unwrap();
        history
            .keep(&BenchReport {
                started: "2026-05-17T10:00:00Z".into(),
                ..samples::partial()
            })
            .unwrap();
        fs::write(history.folder.join("20269999-x.json"), "{}").unwrap();
        fs::write(history.folder.join("note.txt"), "mine").unwrap();
        let lines = table(&history.list().unwrap());
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(
            lines[1].contains("laptop → nas") && lines[1].ends_with("shared"),
            "{}",
            lines[1]
        );
        assert!(lines[2].ends_with("incomplete"), "{}", lines[2]);
    }

    #[test]
    fn a_file_is_read_as_one_document_and_as_a_stream() {
        let folder = tempfile::tempdir().unwrap();
        let history = history(folder.path(), 10);
        let path = folder.path().join("stream.json");
        let json = serde_json::to_string(&at(1)).unwrap();
        fs::write(&path, format!("{{\"event\":\"note\"}}\n{json}\n")).unwrap();
        assert_eq!(history.find(&path).unwrap(), at(1));
        fs::write(&path, json).unwrap();
        assert_eq!(history.find(&path).unwrap(), at(1));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let history = history(folder.path(), 10);
        let path = folder.path().join("x.json");
        let other = serde_json::to_string(&BenchReport {
            schema: "nicstripe-bench-report/2".into(),
            ..at(1)
        })
        .unwrap();
        for text in ["", "{}", "[1]", "null", &other, "\n\n"] {
            fs::write(&path, text).unwrap();
            assert!(
                matches!(
                    history.find(&path).unwrap_err().command(),
                    Some(BenchError::NoReport { .. })
                ),
                "{text:.40}"
            );
        }
        assert!(matches!(
            history.find(folder.path()).unwrap_err().command(),
            Some(BenchError::Read { .. })
        ));
    }

    #[test]
    fn a_name_of_a_file_holds_nothing_that_a_report_could_smuggle_in() {
        let report = BenchReport {
            id: "../../x".into(),
            started: "../2026".into(),
            ..samples::empty()
        };
        assert_eq!(file_name(&report), "2026-x.json");
    }
}

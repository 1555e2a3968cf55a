//! History of bench reports, stored as one file per report in one directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nicstripe::{
    bench::{BenchReport, Ends, HostFacts, Phase, SCHEMA},
    trust::Home,
};

use super::{
    reading::{Reading, limiter_text, short_id},
    unit::{RateUnit, bytes_a_second, percent},
};
use crate::{
    failure::{Failure, Fault, exit::Exit},
    output::files,
    text::{known, shown, table::aligned},
};

#[derive(Debug)]
pub(crate) struct History {
    folder: PathBuf,
    most: usize,
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
        let failed = Failure::writing(&self.folder);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let path = self.folder.join(file_name(report));
        let json = serde_json::to_vec(report).map_err(io::Error::from);
        let json = json.map_err(Failure::writing(&path))?;
        files::replace(&path, &json)?;
        let names = self.names().map_err(failed)?;
        for name in &names[..names.len().saturating_sub(self.most)] {
            fs::remove_file(self.folder.join(name)).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the stored reports, the newest last. Skips files that are not reports.
    pub(crate) fn list(&self) -> Result<Vec<BenchReport>, Failure> {
        let names = self.names().map_err(Fault::reading(&self.folder))?;
        let paths = names.iter().map(|name| self.folder.join(name));
        Ok(paths.filter_map(|path| read(&path).ok()).collect())
    }

    /// Reads a report: from the file `text` if it exists, otherwise the stored report whose ID
    /// begins with `text`.
    pub(crate) fn find(&self, text: &Path) -> Result<BenchReport, Failure> {
        if text.exists() {
            return Ok(read(text)?);
        }
        let typed = text.to_string_lossy();
        let begins = |id: &str| typed.len() >= LEAST_TYPED && id.starts_with(&*typed);
        let mut found = self.list().unwrap_or_default();
        found.retain(|report| begins(&report.id));
        match (found.pop(), found.len()) {
            (Some(report), 0) => Ok(report),
            (last, others) => {
                let (text, count) = (shown(&*typed), others + last.iter().len());
                let text = format!(
                    "{text:?} is neither a file nor the prefix of one report id: {count} match in `nicstripe bench list`"
                );
                Err(Fault::new(Exit::Files, text).into())
            }
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
            names.extend(entry?.file_name().into_string());
        }
        names.retain(|name| name.ends_with(".json") && !name.starts_with('.'));
        names.sort_unstable();
        Ok(names)
    }
}

pub(crate) fn table(reports: &[BenchReport]) -> Vec<String> {
    let heads = [
        "id",
        "began (UTC)",
        "machines",
        "Mbit/s",
        "MB/s (MiB/s)",
        "of theory",
        "limited by",
    ];
    aligned(heads, reports.iter().map(row))
}

fn row(report: &BenchReport) -> [String; 7] {
    let summary = &report.summary;
    let (way, total) = match Reading::of(report).whole_phases().next() {
        Some((Phase::Reverse, total)) => ("←", Some(total)),
        Some((Phase::Both, total)) => ("↔", Some(total)),
        other => ("→", other.map(|(_, total)| total)),
    };
    let bps = total.map(|total| total.median_bps);
    let bytes = |bps| {
        let text = bytes_a_second(bps);
        text.replace(" MB/s", "").replace(" MiB/s", "")
    };
    let name = |host: &HostFacts| known(host.name.as_ref().map(shown));
    let incomplete = (!report.complete).then_some("incomplete");
    let limits = summary.limiter.map(limiter_text).into_iter();
    let Ends { client, daemon } = &report.hosts;
    [
        short_id(&report.id),
        shown(report.started.trim_end_matches('Z').replace('T', " ")),
        format!("{} {way} {}", name(client), name(daemon)),
        known(bps.map(|bps| RateUnit::Megabits.text(bps))),
        known(bps.map(bytes)),
        known(summary.efficiency.map(percent)),
        limits.chain(incomplete).collect::<Vec<_>>().join(", "),
    ]
}

fn read(path: &Path) -> Result<BenchReport, Fault> {
    let bytes = files::read(path, LARGEST).map_err(Fault::reading(path))?;
    let text = format!("{path:?} is not a bench report of this version");
    let no_report = Fault::new(Exit::Files, text);
    match parse(&bytes) {
        Ok(report) if report.schema == SCHEMA => Ok(report),
        Ok(BenchReport { schema, .. }) => {
            let why = format!("its schema is {:?}, not {SCHEMA:?}", shown(schema));
            Err(no_report.because(why))
        }
        Err(error) => Err(no_report.because(error)),
    }
}

/// Parses a JSON document, or the last line of the output of `--json-stream`.
fn parse(bytes: &[u8]) -> Result<BenchReport, serde_json::Error> {
    let whole = serde_json::from_slice(bytes);
    let lines = bytes.trim_ascii_end();
    match (whole, lines.iter().rposition(|byte| *byte == b'\n')) {
        (Err(_), Some(end)) => serde_json::from_slice(&lines[end..]),
        (whole, _) => whole,
    }
}

/// Returns the file name for a report. It begins with the start time, so that names sort by age,
/// and contains no text from the peer.
fn file_name(report: &BenchReport) -> String {
    let plain = |text: &str| -> String {
        let chars = text.chars().filter(char::is_ascii_alphanumeric);
        chars.take(32).collect()
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
            let error = history.find(text.as_ref()).unwrap_err().to_string();
            assert!(
                error.contains(&format!(": {expected} match in ")),
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
            .map(|report| report.started)
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
            let error = history.find(&path).unwrap_err().to_string();
            assert!(
                error.ends_with(" is not a bench report of this version"),
                "{text:.40}"
            );
        }
        let error = history.find(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read "), "{error}");
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

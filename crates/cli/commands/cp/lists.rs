//! Files that options name: paths to copy (`--files-from`) and patterns (`--exclude-from`).

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use ignore::gitignore::GitignoreBuilder;
use nicstripe::{Name, NameError};

use super::filters::{Filter, Filters};
use crate::{
    failure::{CommandError, exit::Exit},
    process::streams,
    text::shown,
};

/// Reads the paths to copy from a file of `--files-from`, or from standard input for `-`. Each ends
/// with a NUL byte instead of a newline if `from0` is set.
pub(super) fn listed_names(path: &Path, from0: bool) -> Result<Vec<Name>, ListError> {
    names_in(&read(path)?, path, from0)
}

pub(crate) fn names_in(bytes: &[u8], path: &Path, from0: bool) -> Result<Vec<Name>, ListError> {
    let end = if from0 { 0 } else { b'\n' };
    let lines = bytes.split(|byte| *byte == end).enumerate();
    let names = lines.filter_map(|(index, line)| {
        let line = beneath(if from0 {
            line
        } else {
            line.strip_suffix(b"\r").unwrap_or(line)
        });
        let wrong = |source| ListError::Name {
            path: path.to_owned(),
            number: index + 1,
            source,
        };
        (!line.is_empty()).then(|| Name::parse(line).map_err(wrong))
    });
    names.collect()
}

/// Removes the leading `./` of a path that `find .` printed. The path `.` becomes empty.
fn beneath(mut line: &[u8]) -> &[u8] {
    while let [b'.', b'/', rest @ ..] = line {
        line = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
    }
    if line == b"." { b"" } else { line }
}

impl Filters {
    /// Returns all patterns, including those in pattern files, as lines of gitignore(5).
    pub(crate) fn read(&self) -> Result<Vec<String>, ListError> {
        let mut patterns = Vec::new();
        for filter in &self.0 {
            match filter {
                Filter::ExcludeFrom(path) => patterns.extend(patterns_of(path)?),
                filter => patterns.extend(filter.line()),
            }
        }
        patterns.iter().try_for_each(|pattern| check(pattern))?;
        Ok(patterns)
    }
}

/// Checks the syntax of a pattern, so that the error names it. The library would reject it later
/// without saying which one.
fn check(pattern: &str) -> Result<(), ListError> {
    let wrong = |source| ListError::Pattern {
        pattern: shown(pattern),
        source,
    };
    GitignoreBuilder::new("")
        .add_line(None, pattern)
        .map(drop)
        .map_err(wrong)
}

fn patterns_of(path: &Path) -> Result<Vec<String>, ListError> {
    let text = String::from_utf8(read(path)?).map_err(|_| ListError::NotText {
        path: path.to_owned(),
    })?;
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<Vec<u8>, ListError> {
    if path.as_os_str() == "-" && streams::check_input().is_err() {
        return Err(ListError::Closed);
    }
    let read = || match path.as_os_str() == "-" {
        true => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            Ok(bytes)
        }
        false => fs::read(path),
    };
    read().map_err(|source| ListError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Error of reading the file of `--files-from` or `--exclude-from`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("cannot read the list {path:?}")]
    Read { path: PathBuf, source: io::Error },
    /// `-` names standard input, which was closed when the process started.
    #[error("standard input is closed: expected a list for \"-\"")]
    Closed,
    /// A name in the file is not a valid relative path.
    #[error("{path:?}, name {number}")]
    Name {
        path: PathBuf,
        /// Position of the name in the file, from 1.
        number: usize,
        source: NameError,
    },
    #[error("invalid pattern \"{pattern}\": expected .gitignore syntax")]
    Pattern {
        /// Invalid pattern, with control characters escaped.
        pattern: String,
        source: ignore::Error,
    },
    /// A pattern file is not UTF-8.
    #[error("{path:?} is not UTF-8: expected one pattern per line")]
    NotText { path: PathBuf },
}

impl CommandError for ListError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } => Exit::Files,
            _ => Exit::Usage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8], from0: bool) -> Result<Vec<String>, ListError> {
        let names = names_in(bytes, "list".as_ref(), from0)?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_name_is_a_line_or_ends_with_nul() {
        assert_eq!(
            names(b"a/b\nc d\r\n\n\xff", false).unwrap(),
            ["a/b", "c d", "\\xff"]
        );
        assert_eq!(names(b"a\nb\0c\0", true).unwrap(), ["a\\nb", "c"]);
        assert!(names(b"", false).unwrap().is_empty());
    }

    #[test]
    fn what_find_prints_is_taken() {
        assert_eq!(
            names(b".\n./a\n.//b/\n./.hidden\n", false).unwrap(),
            ["a", "b", ".hidden"]
        );
    }

    #[test]
    fn names_that_leave_the_source_are_refused_with_their_place() {
        for (bytes, number) in [
            (&b"a\n../b\n"[..], 2),
            (b"/etc/passwd", 1),
            (b"a\nb\nc/./d", 3),
        ] {
            let error = nicstripe::chain(&names(bytes, false).unwrap_err());
            assert!(
                error.starts_with(&format!("\"list\", name {number}: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let error = Filters(vec![
            Filter::Exclude("a".into()),
            Filter::Exclude("[z-a]".into()),
        ])
        .read()
        .unwrap_err();
        assert!(
            error.to_string().starts_with("invalid pattern \"[z-a]\""),
            "{error}"
        );
    }

    #[test]
    fn patterns_of_a_file_stand_where_the_file_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("patterns");
        fs::write(&path, "# objects\n*.o\r\n\n!keep.o\n").unwrap();
        let filters = Filters(vec![
            Filter::Exclude("a".into()),
            Filter::ExcludeFrom(path),
            Filter::Include("b".into()),
        ]);
        assert_eq!(filters.read().unwrap(), ["a", "*.o", "!keep.o", "!b"]);
        let missing = Filters(vec![Filter::ExcludeFrom(folder.path().join("missing"))]);
        assert!(matches!(missing.read(), Err(ListError::Read { .. })));
    }
}

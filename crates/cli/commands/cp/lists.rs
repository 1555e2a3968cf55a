//! Files that options name: paths to copy (`--files-from`) and patterns (`--exclude-from`).

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use ignore::gitignore::GitignoreBuilder;
use nicstripe::Name;

use super::filters::{Filter, Filters};
use crate::{
    failure::{Fault, exit::Exit, usage},
    process::streams,
    text::shown,
};

/// Paths to copy, as `--files-from` lists them.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) names: Vec<Name>,
    /// True if SRC itself is listed, as `.`, `./` or `/`.
    pub(crate) is_source_listed: bool,
}

impl Listed {
    /// Returns the paths to copy; `None` if a recursive copy includes all of SRC.
    pub(super) fn selected(self, recursive: bool) -> Option<Vec<Name>> {
        (!self.is_source_listed || !recursive).then_some(self.names)
    }
}

/// Reads the paths to copy from a file of `--files-from`, or from standard input for `-`. Each ends
/// with a NUL byte instead of a newline if `from0` is set.
pub(super) fn listed_names(path: &Path, from0: bool) -> Result<Listed, Fault> {
    names_in(&read(path)?, path, from0)
}

pub(crate) fn names_in(bytes: &[u8], path: &Path, from0: bool) -> Result<Listed, Fault> {
    let end = if from0 { 0 } else { b'\n' };
    let bytes = if from0 { bytes } else { without_mark(bytes) };
    let mut listed = Listed::default();
    for (index, line) in bytes.split(|byte| *byte == end).enumerate() {
        let line = match line.strip_suffix(b"\r") {
            Some(line) if !from0 => line,
            _ => line,
        };
        if line.is_empty() {
            continue;
        }
        let line = beneath(line);
        if line.is_empty() {
            listed.is_source_listed = true;
            continue;
        }
        let wrong = |error| {
            let text = format!("{path:?}, name {}", index + 1);
            usage(text).because(error)
        };
        listed.names.push(Name::parse(line).map_err(wrong)?);
    }
    Ok(listed)
}

/// Removes the UTF-8 byte order mark that some editors write at the start of a file.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Removes leading slashes, which stand for SRC as in rsync, and the leading `./` of a path that
/// `find .` printed. SRC itself becomes empty.
fn beneath(mut line: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] | [b'.', b'/', rest @ ..] = line {
        line = rest;
    }
    if line == b"." { b"" } else { line }
}

impl Filters {
    /// Returns all patterns, including those in pattern files, as lines of gitignore(5).
    pub(crate) fn read(&self) -> Result<Vec<String>, Fault> {
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
fn check(pattern: &str) -> Result<(), Fault> {
    let wrong = |error| {
        let pattern = shown(pattern);
        let text = format!("invalid pattern \"{pattern}\": expected .gitignore syntax");
        usage(text).because(error)
    };
    GitignoreBuilder::new("")
        .add_line(None, pattern)
        .map(drop)
        .map_err(wrong)
}

fn patterns_of(path: &Path) -> Result<Vec<String>, Fault> {
    let bytes = read(path)?;
    let text = str::from_utf8(without_mark(&bytes)).map_err(|_| {
        usage(format!(
            "{path:?} is not UTF-8: expected one pattern per line"
        ))
    })?;
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    if path.as_os_str() == "-" && streams::check_input().is_err() {
        return Err(usage("standard input is closed: expected a list for \"-\""));
    }
    let read = || match path.as_os_str() == "-" {
        true => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            Ok(bytes)
        }
        false => fs::read(path),
    };
    read().map_err(|error| {
        Fault::new(Exit::Files, format!("cannot read the list {path:?}")).because(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::CommandError as _;

    fn names(bytes: &[u8], from0: bool) -> Result<Vec<String>, Fault> {
        let listed = names_in(bytes, "list".as_ref(), from0)?;
        Ok(listed.names.iter().map(ToString::to_string).collect())
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
    fn a_leading_slash_is_the_source() {
        assert_eq!(
            names(b"/a/b\n//c\n/./d\n", false).unwrap(),
            ["a/b", "c", "d"]
        );
    }

    #[test]
    fn the_source_itself_selects_all_of_it_in_a_recursive_copy() {
        for list in [".\na", "./", "/", "//", "a\r\n.\r\n"] {
            let listed = |recursive| {
                names_in(list.as_bytes(), "list".as_ref(), false)
                    .unwrap()
                    .selected(recursive)
            };
            assert_eq!(listed(true), None, "{list:?}");
            assert!(listed(false).is_some(), "{list:?}");
        }
        let listed = names_in(b"\n\r\n", "list".as_ref(), false).unwrap();
        assert_eq!(listed.selected(true), Some(Vec::new()));
    }

    #[test]
    fn a_byte_order_mark_is_part_of_no_line() {
        assert_eq!(names(b"\xef\xbb\xbfa\nb\n", false).unwrap(), ["a", "b"]);
        // Between NUL bytes, names are exact.
        assert_ne!(names(b"\xef\xbb\xbfa\0", true).unwrap(), ["a"]);
    }

    #[test]
    fn names_that_leave_the_source_are_refused_with_their_place() {
        for (bytes, number) in [(&b"a\n../b\n"[..], 2), (b"/..", 1), (b"a\nb\nc/./d", 3)] {
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
        fs::write(&path, "\u{feff}# objects\n*.o\r\n\n!keep.o\n").unwrap();
        let filters = Filters(vec![
            Filter::Exclude("a".into()),
            Filter::ExcludeFrom(path),
            Filter::Include("b".into()),
        ]);
        assert_eq!(filters.read().unwrap(), ["a", "*.o", "!keep.o", "!b"]);
        let missing = Filters(vec![Filter::ExcludeFrom(folder.path().join("missing"))]);
        assert_eq!(missing.read().unwrap_err().exit(), Exit::Files);
        let broken = folder.path().join("broken");
        fs::write(&broken, b"\xff").unwrap();
        let broken = Filters(vec![Filter::ExcludeFrom(broken)]);
        assert_eq!(broken.read().unwrap_err().exit(), Exit::Usage);
    }
}

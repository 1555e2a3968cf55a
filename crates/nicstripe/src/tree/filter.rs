//! Exclude filters of a tree copy, in the syntax of gitignore(5).

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use nicstripe_proto::name::escaped;

use crate::file::FileError;

/// Compiled exclude patterns of gitignore(5) in order: the last match decides.
///
/// Sender and receiver evaluate the same patterns on the same paths. The sender does not enter
/// excluded directories; the receiver does not delete excluded files.
#[derive(Debug, Clone)]
pub(crate) struct Filters(Gitignore);

impl Filters {
    /// Compiles exclude patterns as the user gave them; a leading `!` re-includes.
    ///
    /// # Errors
    ///
    /// [`FailCode::Refused`] for an invalid pattern.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, FileError> {
        Self::parse(patterns)?
            .build()
            .map(Self)
            .map_err(|error| refused("", error))
    }

    /// Parses exclude patterns without compiling them. Compilation takes most of the time.
    pub(crate) fn parse(patterns: &[String]) -> Result<GitignoreBuilder, FileError> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            check_nesting(pattern)?;
            builder
                .add_line(None, pattern)
                .map_err(|error| refused(pattern, error))?;
        }
        Ok(builder)
    }

    /// Returns true if a path, relative to its source, is excluded. The source itself (an empty
    /// path) is never excluded.
    ///
    /// Callers need not check paths inside an excluded directory, because excluded directories are
    /// neither entered nor deleted.
    pub(crate) fn excludes(&self, path_beneath_source: &Path, is_directory: bool) -> bool {
        !path_beneath_source.as_os_str().is_empty()
            && self
                .0
                .matched(path_beneath_source, is_directory)
                .is_ignore()
    }
}

/// Checks the number of opening braces. The compiler of patterns recurses once for each `{` within
/// another, and a peer may send 64 KiB of them.
fn check_nesting(pattern: &str) -> Result<(), FileError> {
    let braces = pattern.bytes().filter(|byte| *byte == b'{').count();
    if braces <= MOST_BRACES {
        return Ok(());
    }
    let why = format!("it has {braces} opening braces, limit is {MOST_BRACES}");
    Err(refused(pattern, why))
}

/// Maximum number of `{` in a pattern; lists of names have one.
const MOST_BRACES: usize = 64;

fn refused(pattern: &str, error: impl ToString) -> FileError {
    // The message repeats the pattern, which may come from a peer and goes into logs.
    let why = escaped(error.to_string().as_bytes());
    FileError::refused("use the filter", escaped(pattern.as_bytes()), why)
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    use nicstripe_proto::FailCode;

    use super::*;

    #[test]
    fn a_pattern_with_thousands_of_braces_is_refused() {
        let nested = |depth| vec!["{".repeat(depth) + "a" + &"}".repeat(depth)];
        assert!(Filters::new(&nested(MOST_BRACES)).is_ok());
        let error = Filters::new(&nested(30_000)).unwrap_err();
        assert_eq!(error.code, FailCode::Refused);
        assert!(
            error.source.to_string().ends_with("limit is 64"),
            "{}",
            error.source
        );
    }

    fn excluded<'a>(patterns: &[&str], paths: &[&'a str]) -> Vec<&'a str> {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let filters = Filters::new(&patterns).unwrap();
        let is_excluded = |path: &&&str| {
            filters.excludes(Path::new(path.trim_end_matches('/')), path.ends_with('/'))
        };
        paths.iter().filter(is_excluded).copied().collect()
    }

    #[test]
    fn patterns_mean_what_gitignore_says() {
        let paths = [
            "a.o", "d/a.o", "d/keep.o", "build/", "build", "d/build/", "top", "d/top", "", "d/e/f",
        ];
        assert_eq!(excluded(&["*.o", "!keep.o"], &paths), ["a.o", "d/a.o"]);
        assert_eq!(
            excluded(&["!keep.o", "*.o"], &paths),
            ["a.o", "d/a.o", "d/keep.o"]
        );
        assert_eq!(excluded(&["build/"], &paths), ["build/", "d/build/"]);
        assert_eq!(excluded(&["/top"], &paths), ["top"]);
        assert_eq!(excluded(&["d/**/f"], &paths), ["d/e/f"]);
        assert_eq!(excluded(&["*"], &paths).len(), paths.len() - 1);
        assert_eq!(excluded(&[], &paths), [""; 0]);
    }

    #[test]
    fn names_that_are_not_utf_8_can_be_left_out() {
        let filters = Filters::new(&["*.tmp".into()]).unwrap();
        assert!(filters.excludes(Path::new(OsStr::from_bytes(b"d/\xff.tmp")), false));
        assert!(!filters.excludes(Path::new(OsStr::from_bytes(b"d/\xff.txt")), false));
    }

    #[test]
    fn what_is_no_pattern_is_refused_by_name() {
        let error = Filters::new(&["a".into(), "[z-a]".into()]).unwrap_err();
        assert_eq!(
            (error.code, error.to_string()),
            (FailCode::Refused, "cannot use the filter \"[z-a]\"".into())
        );
        let error = Filters::new(&["{\u{1b}[31m\nfaked".into()]).unwrap_err();
        assert!(
            !error.one_line().chars().any(char::is_control),
            "{}",
            error.one_line()
        );
    }
}

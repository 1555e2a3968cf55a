//! Error of a tree copy in which some entries failed.

use std::fmt;

use nicstripe::{FailCode, FailedEntry, TreeReport};

use super::{arguments::Cp, lookup::list_existing};
use crate::{
    failure::{CommandError, exit::Exit, hint::NextStep},
    text::{invocation::Invocation, quantity::Grouped},
};

/// Failed entries of a tree copy whose other entries arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortfall {
    /// Number of entries that could not be copied.
    failed: u64,
    /// Number of entries that the copy found, without directories.
    found: u64,
    /// Error code that all failed entries share; `None` if they differ.
    code: Option<FailCode>,
    /// True if every failed entry is a source that changed or vanished during the read.
    only_sources_changed: bool,
    /// Failed entries as text, one line each.
    lines: Vec<String>,
    recursive: bool,
    replace: bool,
}

impl Shortfall {
    /// Builds the error from the report of a tree copy; `None` if every entry arrived.
    pub(crate) fn of(tree: &TreeReport, cp: &Cp) -> Option<Self> {
        if tree.failed == 0 {
            return None;
        }
        let first = tree.failures.first().map(|failure| failure.code);
        let shown = if cp.output.verbose > 0 {
            usize::MAX
        } else {
            SHOWN
        };
        Some(Self {
            failed: tree.failed,
            found: tree.files
                + tree.symlinks
                + tree.nodes
                + tree.hard_links
                + tree.unchanged
                + tree.newer
                + tree.failed,
            code: first.filter(|code| tree.failures.iter().all(|failure| failure.code == *code)),
            only_sources_changed: tree.only_sources_changed(),
            lines: lines(tree, shown, cp.tree.delete),
            recursive: cp.tree.is_recursive(),
            replace: !cp.no_replace,
        })
    }

    /// Returns the remedy if one applies to all failed entries.
    fn next_step(&self) -> Option<NextStep> {
        match self.code? {
            // Entries of different types do not replace each other in any case.
            FailCode::Exists if !self.replace => Some(NextStep::Replace),
            FailCode::NotAFile if !self.recursive => Some(NextStep::Recurse),
            FailCode::SourceChanged => Some(NextStep::Rerun),
            FailCode::NotPermitted => Some(NextStep::Rights),
            FailCode::NoSpace => Some(NextStep::Room),
            _ => None,
        }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.only_sources_changed {
            "changed or vanished while they were read"
        } else {
            "failed"
        };
        write!(
            f,
            "{} of {} file{} {what}",
            Grouped(self.failed),
            Grouped(self.found),
            if self.found == 1 { "" } else { "s" }
        )
    }
}

impl std::error::Error for Shortfall {}

impl CommandError for Shortfall {
    fn exit(&self) -> Exit {
        match self.only_sources_changed {
            true => Exit::SourceChanged,
            false => Exit::Partial,
        }
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        match self.code {
            Some(FailCode::NotFound) => list_existing(invocation),
            _ => Some(self.next_step()?.text(invocation)),
        }
    }

    /// Complete files are not transferred again.
    fn is_resumable(&self) -> bool {
        true
    }

    /// Returns one line per failed entry, and a last line with the number of omitted ones.
    fn details(&self) -> &[String] {
        &self.lines
    }
}

fn lines(tree: &TreeReport, shown: usize, delete: bool) -> Vec<String> {
    let mut lines: Vec<String> = tree.failures.iter().take(shown).map(line).collect();
    let left = tree.failed.saturating_sub(lines.len() as u64);
    if left > 0 {
        let more = if tree.failures.len() > lines.len() {
            "; -v shows them"
        } else {
            ""
        };
        lines.push(format!("and {} more{more}", Grouped(left)));
    }
    if delete {
        lines.push("--delete: nothing was deleted in directories where an entry failed".to_owned());
    }
    lines
}

/// Formats a failed entry. Prefixes its name unless the error text contains it; an entry that
/// cannot be sent may have no name.
fn line(failure: &FailedEntry) -> String {
    match failure.name.is_empty() || failure.text.contains(&format!("\"{}\"", failure.name)) {
        true => failure.text.clone(),
        false => format!("\"{}\": {}", failure.name, failure.text),
    }
}

/// Maximum number of failed entries to print, so that they and the closing lines fit on a screen.
const SHOWN: usize = 20;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::cp::arguments::tests::parse;
    use nicstripe_testkit::with;

    fn cp(words: &str) -> Cp {
        parse(&format!("{words} src nas:")).unwrap()
    }

    fn tree(codes: &[FailCode]) -> TreeReport {
        let failure = |(index, code): (usize, &FailCode)| {
            FailedEntry::new(format!("f{index}"), *code, "because".into())
        };
        let failures: Vec<FailedEntry> = codes.iter().enumerate().map(failure).collect();
        let changed = codes
            .iter()
            .filter(|code| **code == FailCode::SourceChanged)
            .count() as u64;
        with!(TreeReport::default(), files: 7, unchanged: 2, failed: failures.len() as u64, changed: changed, failures: failures)
    }

    /// Returns the error of a tree copy that ran with the arguments `words`, with one failed entry
    /// per code.
    pub(crate) fn shortfall(codes: &[FailCode], words: &str) -> Shortfall {
        Shortfall::of(&tree(codes), &cp(words)).unwrap()
    }

    #[test]
    fn where_nothing_failed_there_is_none() {
        assert_eq!(Shortfall::of(&tree(&[]), &cp("-r")), None);
    }

    #[test]
    fn the_sentence_counts_what_failed_among_what_was_found() {
        assert_eq!(
            shortfall(&[FailCode::Io, FailCode::Exists], "-r").to_string(),
            "2 of 11 files failed"
        );
        let changed = shortfall(&[FailCode::SourceChanged], "-r");
        assert_eq!(
            changed.to_string(),
            "1 of 10 files changed or vanished while they were read"
        );
        assert!(changed.exit() == Exit::SourceChanged);
        assert!(shortfall(&[FailCode::SourceChanged, FailCode::Io], "-r").exit() == Exit::Partial);
    }

    #[test]
    fn the_first_twenty_are_shown_and_all_when_asked_for() {
        let short = shortfall(&[FailCode::Io; 30], "-r");
        assert_eq!(
            (short.details().len(), short.details()[20].as_str()),
            (21, "and 10 more; -v shows them")
        );
        assert_eq!(short.details()[0], "\"f0\": because");
        assert_eq!(shortfall(&[FailCode::Io; 30], "-rv").details().len(), 30);
        let mut many = tree(&[FailCode::Io; 3]);
        many.failed = 5000;
        let shown = Shortfall::of(&many, &cp("-rv")).unwrap();
        assert_eq!(shown.details()[3], "and 4,997 more");
    }

    #[test]
    fn a_text_that_has_the_name_is_not_preceded_by_it() {
        let failure = FailedEntry::new(
            "a/b".into(),
            FailCode::Io,
            "cannot open \"a/b\": denied".into(),
        );
        assert_eq!(line(&failure), "cannot open \"a/b\": denied");
        assert_eq!(
            line(&with!(failure, name: String::new())),
            "cannot open \"a/b\": denied"
        );
    }

    #[test]
    fn what_can_be_done_is_told_only_if_it_helps_with_all() {
        for (codes, words, next_step) in [
            (
                &[FailCode::Exists, FailCode::Exists][..],
                "-r --no-replace",
                Some(NextStep::Replace),
            ),
            (&[FailCode::Exists], "-rf", None),
            (&[FailCode::Exists, FailCode::Io], "-r --no-replace", None),
            (&[FailCode::NotAFile], "-u", Some(NextStep::Recurse)),
            (&[FailCode::NotAFile], "-a", None),
            (&[FailCode::SourceChanged], "-r", Some(NextStep::Rerun)),
            (&[FailCode::NotPermitted], "-r", Some(NextStep::Rights)),
            (&[FailCode::Refused], "-r", None),
        ] {
            assert_eq!(
                shortfall(codes, words).next_step(),
                next_step,
                "{codes:?} {words:?}"
            );
        }
    }
}

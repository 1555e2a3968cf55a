//! Lines of `nicstripe cp -v` and `-n`, one per tree entry.

use nicstripe::{EntryOutcome, Name, Verdict};

/// Options for the printed lines of tree entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    pub(crate) dry_run: bool,
    /// True if skipped entries are printed too.
    pub(crate) skipped: bool,
}

impl Listing {
    /// Returns the line of a tree entry without a newline. Control characters in its name are
    /// escaped.
    ///
    /// A failed entry has no line, since the errors are printed at the end.
    pub(crate) fn line(self, name: &Name, outcome: &EntryOutcome) -> Option<String> {
        let word = match (outcome, self.dry_run) {
            (
                EntryOutcome::Copied {
                    verdict: Verdict::Replace,
                    ..
                },
                false,
            ) => "replaced",
            (
                EntryOutcome::Copied {
                    verdict: Verdict::Replace,
                    ..
                },
                true,
            ) => "would replace",
            (EntryOutcome::Copied { .. }, false) => "copied",
            (EntryOutcome::Copied { .. }, true) => "would copy",
            (EntryOutcome::Deleted, false) => "deleting",
            (EntryOutcome::Deleted, true) => "would delete",
            (EntryOutcome::Skipped(Verdict::Newer), _) if self.skipped => "newer there:",
            (EntryOutcome::Skipped(_), _) if self.skipped => "unchanged:",
            (EntryOutcome::Special, _) => "skipped:",
            _ => return None,
        };
        Some(format!("{word} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use nicstripe::FailCode;

    use super::*;

    fn line(dry_run: bool, skipped: bool, outcome: &EntryOutcome) -> Option<String> {
        Listing { dry_run, skipped }.line(&Name::parse(b"a/b\x1b[2J").unwrap(), outcome)
    }

    fn copied(verdict: Verdict) -> EntryOutcome {
        EntryOutcome::Copied { verdict, bytes: 5 }
    }

    #[test]
    fn each_outcome_has_its_word_and_a_dry_run_says_would() {
        for (outcome, word, would) in [
            (copied(Verdict::Create), "copied", "would copy"),
            (copied(Verdict::Replace), "replaced", "would replace"),
            (EntryOutcome::Deleted, "deleting", "would delete"),
        ] {
            let name = r"a/b\u{1b}[2J";
            assert_eq!(line(false, false, &outcome), Some(format!("{word} {name}")));
            assert_eq!(line(true, false, &outcome), Some(format!("{would} {name}")));
        }
    }

    #[test]
    fn what_is_skipped_is_listed_only_for_whoever_wants_more() {
        for (verdict, word) in [
            (Verdict::Same, "unchanged: "),
            (Verdict::Newer, "newer there: "),
        ] {
            let outcome = EntryOutcome::Skipped(verdict);
            assert_eq!(line(false, false, &outcome), None);
            assert!(line(false, true, &outcome).unwrap().starts_with(word));
        }
        assert!(
            line(false, false, &EntryOutcome::Special)
                .unwrap()
                .starts_with("skipped: ")
        );
        assert_eq!(
            line(
                false,
                true,
                &EntryOutcome::Failed {
                    code: FailCode::Io,
                    text: String::new()
                }
            ),
            None
        );
    }
}

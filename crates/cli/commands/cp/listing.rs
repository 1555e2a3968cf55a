//! Lines of `nicstripe cp -v` and `-n`, one per tree entry.

use nicstripe::{EntryOutcome, Name, Verdict};

use super::arguments::OutputArgs;

/// Returns the line of a tree entry without a newline. Control characters in its name are escaped.
///
/// A failed entry has no line, since the errors are printed at the end. A skipped one has a line
/// with `-vv`.
pub(super) fn line(wishes: OutputArgs, name: &Name, outcome: &EntryOutcome) -> Option<String> {
    let [printed, in_dry_run, in_comparison] = match outcome {
        EntryOutcome::Copied {
            verdict: Verdict::Replace,
            ..
        } => ["replaced", "would replace", "different:"],
        EntryOutcome::Copied { .. } => ["copied", "would copy", "missing:"],
        EntryOutcome::Skipped(_) if wishes.verbose < 2 => return None,
        EntryOutcome::Skipped(Verdict::Newer) => ["newer there:", "newer there:", "different:"],
        EntryOutcome::Skipped(_) => ["unchanged:", "unchanged:", "same:"],
        EntryOutcome::Special => ["skipped:", "skipped:", "skipped:"],
        EntryOutcome::Deleted => ["deleting", "would delete", "extra:"],
        _ => return None,
    };
    let word = match wishes {
        OutputArgs { compares: true, .. } => in_comparison,
        OutputArgs { dry_run: true, .. } => in_dry_run,
        _ => printed,
    };
    Some(format!("{word} {name}"))
}

#[cfg(test)]
mod tests {
    use nicstripe::FailCode;

    use super::*;
    use crate::commands::cp::arguments::Progress;

    fn line(dry_run: bool, skipped: bool, outcome: &EntryOutcome) -> Option<String> {
        let wishes = OutputArgs {
            quiet: false,
            verbose: if skipped { 2 } else { 1 },
            progress: Progress::Auto,
            stats: false,
            json: false,
            json_stream: false,
            dry_run,
            compares: false,
        };
        super::line(wishes, &Name::parse(b"a/b\x1b[2J").unwrap(), outcome)
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

//! Summary of a finished tree copy, for users.

use nicstripe::{Report, TreeReport};

use crate::text::quantity::{Grouped, Size};

/// Returns the counts of a tree copy in one line. Counts of zero are omitted.
pub(crate) fn counts(tree: &TreeReport, dry_run: bool) -> String {
    let mut copied = Vec::new();
    if tree.files > 0 {
        copied.push(format!(
            "{} ({})",
            several(tree.files, "file", "files"),
            Size(tree.bytes)
        ));
    }
    for (count, one, many) in [
        (tree.directories, "directory", "directories"),
        (tree.symlinks, "symbolic link", "symbolic links"),
        (tree.nodes, "special file", "special files"),
        (tree.hard_links, "hard link", "hard links"),
    ] {
        copied.extend((count > 0).then(|| several(count, one, many)));
    }
    let mut parts = match (copied.is_empty(), dry_run) {
        (true, _) => Vec::new(),
        (false, false) => vec![format!("{} copied", copied.join(", "))],
        (false, true) => vec![format!("would copy {}", copied.join(", "))],
    };
    for (count, after) in [
        (tree.unchanged, "unchanged"),
        (tree.newer, "newer at the target"),
        (
            tree.deleted,
            if dry_run {
                "would be deleted"
            } else {
                "deleted"
            },
        ),
        (tree.special, "special or partial files skipped"),
        (
            tree.stripped,
            "without all attributes (the disk cannot keep them, or special-modes is not granted)",
        ),
        (tree.failed, "failed"),
    ] {
        parts.extend((count > 0).then(|| format!("{} {after}", Grouped(count))));
    }
    match parts.is_empty() {
        true => "nothing to copy".to_owned(),
        false => parts.join("; "),
    }
}

/// Returns the files per second of a tree of small files. `None` for few or large files, for which
/// the byte rate says more.
pub(crate) fn files_per_second(report: &Report) -> Option<String> {
    let tree = report
        .tree
        .as_ref()
        .filter(|tree| tree.files >= MANY && tree.bytes / tree.files < SMALL)?;
    let rate = tree.files as f64 / report.elapsed.as_secs_f64().max(f64::EPSILON);
    Some(format!("{} files/s", Grouped(rate.round() as u64)))
}

/// Returns the totals of a tree copy in the format of `rsync --stats`, one line each.
pub(crate) fn stats(tree: &TreeReport) -> Vec<String> {
    let lines = [
        ("Number of files transferred", tree.files),
        ("Number of created directories", tree.directories),
        ("Number of created symbolic links", tree.symlinks),
        ("Number of created special files", tree.nodes),
        ("Number of hard links", tree.hard_links),
        ("Number of files unchanged", tree.unchanged),
        ("Number of files newer at the target", tree.newer),
        ("Number of deleted files", tree.deleted),
        ("Number of special or partial files skipped", tree.special),
        ("Number of entries without all attributes", tree.stripped),
        ("Number of failures", tree.failed),
    ];
    lines
        .iter()
        .map(|(what, count)| format!("{what}: {}", Grouped(*count)))
        .collect()
}

fn several(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", Grouped(count), if count == 1 { one } else { many })
}

/// Minimum number of files in a tree for a meaningful rate of files per second.
const MANY: u64 = 100;

/// Mean file size in bytes from which files per second are not printed. Sending 1 MiB at 1 Gbit/s
/// takes 9 ms and creating a file about 0.1 ms, so that the links limit larger files.
const SMALL: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use nicstripe_testkit::with;
    use std::time::Duration;

    use super::*;
    use crate::commands::cp::summary::tests::report;

    #[test]
    fn only_what_there_is_is_counted() {
        let tree = with!(TreeReport::default(), files: 1234, bytes: 5 << 20, directories: 1, unchanged: 7, deleted: 2, special: 1, failed: 3);
        assert_eq!(
            counts(&tree, false),
            "1,234 files (5.0 MiB), 1 directory copied; 7 unchanged; 2 deleted; 1 special or partial files skipped; 3 failed"
        );
        assert!(counts(&tree, true).starts_with(
            "would copy 1,234 files (5.0 MiB), 1 directory; 7 unchanged; 2 would be deleted"
        ));
        let unchanged = with!(TreeReport::default(), unchanged: 7, newer: 1);
        assert_eq!(
            counts(&unchanged, false),
            "7 unchanged; 1 newer at the target"
        );
        assert_eq!(counts(&TreeReport::default(), false), "nothing to copy");
    }

    #[test]
    fn files_a_second_are_told_of_many_small_ones() {
        let tree = |files, bytes| with!(report(), tree: Some(with!(TreeReport::default(), files: files, bytes: bytes)), elapsed: Duration::from_millis(500));
        assert_eq!(
            files_per_second(&tree(1000, 1 << 20)).as_deref(),
            Some("2,000 files/s")
        );
        assert_eq!(files_per_second(&tree(1000, 2000 << 20)), None);
        assert_eq!(files_per_second(&tree(99, 5)), None);
        assert_eq!(files_per_second(&report()), None);
    }
}

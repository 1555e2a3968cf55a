//! Conversion of the arguments of `cp` to library options, without access to files or the network.

use nicstripe::{CopyOptions, TreeOptions};

use super::{
    arguments::Cp, copy_kind::CopyKind, error::follow, filters::RECORDS, lists::listed_names,
};
use crate::{
    connect::place::Place,
    failure::{Failure, Fault, usage},
    text::{invocation::quoted, shown},
};

/// One copy with all its options, checked for contradictions.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) place: Place,
    pub(crate) kind: CopyKind,
    pub(crate) options: CopyOptions,
}

impl Plan {
    /// Converts the arguments to a plan.
    ///
    /// # Errors
    ///
    /// The sources, the target or the options contradict each other.
    pub(crate) fn of(cp: &Cp) -> Result<Self, Failure> {
        check_options(cp)?;
        let (remote, kind) = CopyKind::of(cp)?;
        if cp.follow && !matches!(kind, CopyKind::Put { .. }) {
            return Err(follow().into());
        }
        if cp.tree.shard.shard.is_some() && kind.depends_on_target() {
            let text = "with --shard, DST must mean the same before and after it exists: expected SRC/ or DST/";
            let hint =
                "SRC/ copies the content of SRC to DST, and DST/ keeps the name of SRC beneath DST";
            return Err(usage(text).with_hint(hint).into());
        }
        if let (Some(option), Some(url)) = (cp.links.port, remote.place.port)
            && option != url
        {
            return Err(usage(format!(
                "-P says port {option} and the URL says {url}: expected one of them"
            ))
            .into());
        }
        Ok(Self {
            place: remote.place,
            kind,
            options: copy_options(cp),
        })
    }
}

/// Returns the options of a tree copy. Reads the lists and patterns in the files that they name.
pub(crate) fn tree_options(cp: &Cp) -> Result<TreeOptions, Fault> {
    let tree = &cp.tree;
    let files_from = tree.files_from.as_deref();
    Ok(TreeOptions {
        // Of each copy.
        as_name: false,
        recursive: tree.is_recursive(),
        update: tree.update,
        checksum: tree.checksum,
        owners: tree.archive || tree.owner,
        numeric_ids: tree.numeric_ids,
        xattrs: tree.archive || tree.xattrs || tree.acls,
        nodes: tree.takes_nodes(),
        hard_links: tree.archive || tree.hard_links,
        delete: tree.delete,
        dry_run: tree.dry_run,
        one_file_system: tree.one_file_system,
        // As typed, the list of names is read before the patterns: both may be standard input.
        files_from: files_from
            .map(|path| listed_names(path, tree.from0))
            .transpose()?
            .and_then(|listed| listed.selected(tree.is_recursive())),
        filters: filters(cp)?,
        share: tree.share,
        // Others are compared or written otherwise.
        pieces: tree.share.is_some()
            && !(tree.checksum
                || tree.update
                || tree.dry_run
                || cp.delta
                || cp.inplace
                || cp.verify),
        only_delete: false,
        only_directories: false,
        list: (tree.dry_run && !cp.output.quiet) || cp.output.verbose > 0,
        files: copy_options(cp),
    })
}

/// Returns the patterns of what is neither copied nor deleted.
fn filters(cp: &Cp) -> Result<Vec<String>, Fault> {
    let mut filters = cp.tree.filters.read()?;
    if cp.tree.share.is_some() {
        filters.push(RECORDS.to_owned());
    }
    Ok(filters)
}

fn copy_options(cp: &Cp) -> CopyOptions {
    CopyOptions {
        replace: !cp.no_replace,
        force: cp.force,
        restart: cp.no_resume,
        preserve: cp.preserve || cp.tree.archive,
        verify: cp.verify,
        delta: cp.delta || cp.inplace,
        in_place: cp.inplace,
        compress: cp.compress,
        allow_changing: cp.allow_changing,
        parents: cp.mkpath,
        only_if: None,
        slice: None,
        times: false,
    }
}

/// Rejects options that contradict each other for any sources and target.
fn check_options(cp: &Cp) -> Result<(), Fault> {
    let tree = &cp.tree;
    if tree.delete && !tree.is_recursive() {
        return Err(usage("--delete needs -r"));
    }
    if tree.delete && tree.files_from.is_some() {
        return Err(usage(
            "--delete cannot be used with --files-from: it would delete all unlisted files",
        ));
    }
    if let Some(pattern) = tree.filters.first_invalid() {
        let pattern = shown(pattern);
        return Err(usage(format!(
            "invalid pattern \"{pattern}\" of --include or --exclude"
        )));
    }
    match tree.filters.idle_include() {
        Some(pattern) => Err(usage(format!(
            "--include \"{}\" has no effect: expected an --exclude before it, since the last match counts",
            shown(pattern)
        ))
        .with_hint(format!(
            "to copy only what matches: --exclude '*' --include '*/' --include {}",
            quoted(pattern)
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{commands::cp::arguments::tests::parse, text::invocation::Invocation};

    /// Returns the plan for `nicstripe cp` with the arguments `words`, for tests.
    pub(crate) fn plan(words: &str) -> Result<Plan, Failure> {
        Plan::of(&parse(words).unwrap())
    }

    fn tree(words: &str) -> TreeOptions {
        let cp = parse(&format!("{words} src nas:")).unwrap();
        Plan::of(&cp).unwrap();
        tree_options(&cp).unwrap()
    }

    #[test]
    fn options_that_do_not_go_together_are_refused_with_the_reason() {
        for (words, said) in [
            (
                "-P 1 a nicstripe://nas:2/",
                "-P says port 1 and the URL says 2",
            ),
            ("--delete a nas:", "--delete needs -r"),
            (
                "--delete -r --files-from list a nas:",
                "--delete cannot be used with --files-from",
            ),
            (
                "-r --include *.c --exclude * a nas:",
                "--include \"*.c\" has no effect",
            ),
            ("-r --exclude= a nas:", "invalid pattern"),
        ] {
            let error = plan(words).unwrap_err().to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
        let idle = plan("-r --include *.c a nas:").unwrap_err();
        let hint = idle.hint(&Invocation::of(&[])).unwrap();
        assert!(
            hint.ends_with(": --exclude '*' --include '*/' --include '*.c'"),
            "{hint}"
        );
        assert!(plan("-a --delete a nas:").is_ok());
        assert!(plan("-r --delete a b nas:").is_ok());
        assert!(plan("-r --delete a/ nas:").is_ok());
    }

    #[test]
    fn archive_is_all_that_is_known_of_a_file() {
        let all = tree("-a");
        assert!(
            all.recursive
                && all.owners
                && all.xattrs
                && all.nodes
                && all.hard_links
                && all.files.preserve
        );
        assert!(!all.delete && !all.dry_run && !all.update && !all.files.force && !all.list);
        let plain = tree("-r");
        let files = CopyOptions {
            replace: true,
            ..CopyOptions::default()
        };
        assert_eq!(
            plain,
            TreeOptions {
                recursive: true,
                files,
                ..TreeOptions::default()
            }
        );
        assert!(tree("-r -A").xattrs && tree("-r -X").xattrs);
    }

    #[test]
    fn every_option_arrives_at_the_library() {
        let one = tree("-rucnxH --delete --owner --exclude a --include b");
        assert!(
            one.update
                && one.checksum
                && one.dry_run
                && one.one_file_system
                && one.hard_links
                && one.delete
                && one.owners
        );
        assert!(!one.numeric_ids && tree("-a --numeric-ids").numeric_ids);
        assert_eq!(one.filters, ["a", "!b"]);
        let files = tree("-rz -f --inplace --allow-changing --no-resume --verify").files;
        assert!(
            files.compress
                && files.replace
                && files.force
                && files.delta
                && files.in_place
                && files.allow_changing
                && files.restart
                && files.verify
        );
        let delta = plan("--delta a nas:").unwrap().options;
        assert!(delta.delta && delta.replace && !delta.in_place);
        for option in ["--no-replace", "--no-clobber", "--ignore-existing"] {
            assert!(!tree(&format!("-r {option}")).files.replace, "{option}");
            for other in ["-f", "-u", "--delta", "--inplace"] {
                assert!(
                    parse(&format!("{option} {other} a nas:")).is_err(),
                    "{option} {other}"
                );
            }
        }
        // Options accepted for compatibility have no effect.
        assert_eq!(tree("-rSl"), tree("-r"));
    }

    #[test]
    fn entries_are_listed_when_somebody_wants_to_see_them() {
        assert!(tree("-rv").list && tree("-rn").list);
        assert!(!tree("-rnq").list);
    }

    #[test]
    fn the_port_comes_from_the_option_the_url_or_the_default() {
        let port = |words: &str| {
            let cp = parse(words).unwrap();
            cp.links.port(Plan::of(&cp).unwrap().place.port)
        };
        assert_eq!(port("a nas:"), 7747);
        assert_eq!(port("-P 99 a nas:"), 99);
        assert_eq!(port("a nicstripe://nas:99/"), 99);
        assert_eq!(port("nicstripe://nas:99/a nicstripe://nas:99/b ."), 99);
    }
}

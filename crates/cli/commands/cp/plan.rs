//! Conversion of the arguments of `cp` to library options, without access to files or the network.

use nicstripe::{CopyOptions, TreeOptions};

use super::{
    arguments::Cp,
    copy_kind::CopyKind,
    error::PlanError,
    filters::Filters,
    lists::{FilesFrom, ListError},
};
use crate::failure::Failure;

/// One copy with all its options, checked for contradictions.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Host name or address of the daemon.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Direction of the copy, sources and target.
    pub(crate) kind: CopyKind,
    pub(crate) options: CopyOptions,
    /// Options that only tree copies use.
    pub(crate) tree: TreePlan,
    pub(crate) dry_run: bool,
}

/// Options of a tree copy. The files that they name are not read yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreePlan {
    options: TreeOptions,
    filters: Filters,
    files_from: Option<FilesFrom>,
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
        if let (Some(option), Some(url)) = (cp.links.port, remote.port)
            && option != url
        {
            return Err(PlanError::Ports { option, url }.into());
        }
        let options = copy_options(cp);
        Ok(Self {
            port: cp.links.port(remote.port),
            host: remote.host,
            kind,
            options,
            tree: TreePlan::of(cp, options),
            dry_run: cp.tree.dry_run,
        })
    }
}

impl TreePlan {
    fn of(cp: &Cp, files: CopyOptions) -> Self {
        let tree = &cp.tree;
        let options = TreeOptions {
            recursive: tree.is_recursive(),
            update: tree.update,
            checksum: tree.checksum,
            owners: tree.archive || tree.owner,
            numeric_ids: tree.numeric_ids,
            xattrs: tree.archive || tree.xattrs || tree.acls,
            nodes: tree.archive || tree.nodes,
            hard_links: tree.archive || tree.hard_links,
            delete: tree.delete,
            dry_run: tree.dry_run,
            one_file_system: tree.one_file_system,
            list: (tree.dry_run && !cp.output.quiet) || cp.output.verbose > 0,
            files,
            ..TreeOptions::default()
        };
        let files_from = tree.files_from.clone().map(|path| FilesFrom {
            path,
            from0: tree.from0,
        });
        Self {
            options,
            filters: tree.filters.clone(),
            files_from,
        }
    }

    /// Returns true if a source may be a directory: with `-r` or `-a`, or with `--files-from`.
    pub(crate) fn takes_directories(&self) -> bool {
        self.options.recursive || self.files_from.is_some()
    }

    /// Returns true if FIFOs, sockets and devices are copied.
    pub(crate) fn takes_nodes(&self) -> bool {
        self.options.nodes
    }

    pub(crate) fn read(self) -> Result<TreeOptions, ListError> {
        let files_from = self.files_from.map(|list| list.read()).transpose()?;
        Ok(TreeOptions {
            filters: self.filters.read()?,
            files_from,
            ..self.options
        })
    }
}

fn copy_options(cp: &Cp) -> CopyOptions {
    CopyOptions {
        // Delta copies imply replacement, since the target exists.
        replace: cp.force || cp.delta || cp.inplace,
        restart: cp.no_resume,
        preserve: cp.preserve || cp.tree.archive,
        verify: cp.verify,
        delta: cp.delta || cp.inplace,
        in_place: cp.inplace,
        compress: cp.compress,
        allow_changing: cp.allow_changing,
        parents: cp.mkpath,
    }
}

/// Rejects options that contradict each other for any sources and target.
fn check_options(cp: &Cp) -> Result<(), PlanError> {
    let tree = &cp.tree;
    if tree.delete && !tree.is_recursive() {
        return Err(PlanError::DeleteWithoutRecursion);
    }
    if tree.delete && tree.files_from.is_some() {
        return Err(PlanError::DeleteFilesFrom);
    }
    if let Some(pattern) = tree.filters.first_invalid() {
        return Err(PlanError::Pattern {
            pattern: pattern.to_owned(),
        });
    }
    match tree.filters.idle_include() {
        Some(pattern) => Err(PlanError::IdleInclude {
            pattern: pattern.to_owned(),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::cp::arguments::tests::parse;

    /// Returns the plan for `nicstripe cp` with the arguments `words`, for tests.
    pub(crate) fn plan(words: &[&str]) -> Result<Plan, Failure> {
        Plan::of(&parse(words).unwrap())
    }

    fn tree(words: &[&str]) -> TreeOptions {
        plan(&[words, &["src", "nas:"]].concat())
            .unwrap()
            .tree
            .read()
            .unwrap()
    }

    #[test]
    fn options_that_do_not_go_together_are_refused_with_the_reason() {
        for (words, said) in [
            (
                &["-P", "1", "a", "nicstripe://nas:2/"][..],
                "-P says port 1 and the URL says 2",
            ),
            (&["--delete", "a", "nas:"], "--delete needs -r"),
            (
                &["--delete", "-r", "--files-from", "list", "a", "nas:"],
                "--delete cannot be used with --files-from",
            ),
            (
                &["-r", "--include", "*.c", "--exclude", "*", "a", "nas:"],
                "--include \"*.c\" has no effect",
            ),
            (&["-r", "--exclude", "", "a", "nas:"], "invalid pattern"),
        ] {
            let error = plan(words).unwrap_err().to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
        assert!(plan(&["-a", "--delete", "a", "nas:"]).is_ok());
        assert!(plan(&["-r", "--delete", "a", "b", "nas:"]).is_ok());
        assert!(plan(&["-r", "--delete", "a/", "nas:"]).is_ok());
    }

    #[test]
    fn archive_is_all_that_is_known_of_a_file() {
        let all = tree(&["-a"]);
        assert!(
            all.recursive
                && all.owners
                && all.xattrs
                && all.nodes
                && all.hard_links
                && all.files.preserve
        );
        assert!(!all.delete && !all.dry_run && !all.update && !all.files.replace && !all.list);
        let plain = tree(&["-r"]);
        let files = CopyOptions::default();
        assert_eq!(
            plain,
            TreeOptions {
                recursive: true,
                files,
                ..TreeOptions::default()
            }
        );
        assert!(tree(&["-r", "-A"]).xattrs && tree(&["-r", "-X"]).xattrs);
    }

    #[test]
    fn every_option_arrives_at_the_library() {
        let one = tree(&[
            "-rucnxH",
            "--delete",
            "--owner",
            "--exclude",
            "a",
            "--include",
            "b",
        ]);
        assert!(
            one.update
                && one.checksum
                && one.dry_run
                && one.one_file_system
                && one.hard_links
                && one.delete
                && one.owners
        );
        assert!(!one.numeric_ids && tree(&["-a", "--numeric-ids"]).numeric_ids);
        assert_eq!(one.filters, ["a", "!b"]);
        let files = tree(&[
            "-rz",
            "-f",
            "--inplace",
            "--allow-changing",
            "--no-resume",
            "--verify",
        ])
        .files;
        assert!(
            files.compress
                && files.replace
                && files.delta
                && files.in_place
                && files.allow_changing
                && files.restart
                && files.verify
        );
        let delta = plan(&["--delta", "a", "nas:"]).unwrap().options;
        assert!(delta.delta && delta.replace && !delta.in_place);
        assert!(tree(&["-r", "--inplace"]).files.replace);
        // Options accepted for compatibility have no effect.
        assert_eq!(tree(&["-rSl"]), tree(&["-r"]));
    }

    #[test]
    fn entries_are_listed_when_somebody_wants_to_see_them() {
        assert!(tree(&["-rv"]).list && tree(&["-rn"]).list);
        assert!(!tree(&["-rnq"]).list);
    }

    #[test]
    fn the_port_comes_from_the_option_the_url_or_the_default() {
        let port = |words: &[&str]| plan(words).unwrap().port;
        assert_eq!(port(&["a", "nas:"]), 7747);
        assert_eq!(port(&["-P", "99", "a", "nas:"]), 99);
        assert_eq!(port(&["a", "nicstripe://nas:99/"]), 99);
        assert_eq!(
            port(&["nicstripe://nas:99/a", "nicstripe://nas:99/b", "."]),
            99
        );
    }
}

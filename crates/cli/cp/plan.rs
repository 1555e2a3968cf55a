//! Conversion of arguments to library options. Pure: opens and looks up nothing.

use std::{path::PathBuf, time::Duration};

use nicstripe::{
    BitRate, CopyOptions, DEFAULT_PORT, Family, LinkRequest, RoutePolicy, TreeOptions,
};

use super::{
    arguments::Cp,
    copy_kind::CopyKind,
    filters::Filters,
    lists::{FilesFrom, ListError},
};
use crate::failure::Failure;

/// One copy, complete and consistent.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Name or address of the daemon's machine.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Copy kind, sources and target.
    pub(crate) kind: CopyKind,
    pub(crate) options: CopyOptions,
    /// Options of a tree copy.
    pub(crate) tree: TreePlan,
    /// Links and limits.
    pub(crate) network: Network,
    pub(crate) dry_run: bool,
}

/// Options of a tree copy, with list files that are not read yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreePlan {
    options: TreeOptions,
    filters: Filters,
    files_from: Option<FilesFrom>,
}

#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// Links to use; empty for all.
    pub(crate) links: Vec<LinkRequest>,
    pub(crate) exclude: Vec<String>,
    /// Connections per link, if specified.
    pub(crate) streams: Option<u8>,
    /// Policy for host routes.
    pub(crate) routes: RoutePolicy,
    /// Maximum rate over all links.
    pub(crate) bandwidth: Option<BitRate>,
    /// Maximum time without any connected link.
    pub(crate) patience: Duration,
    /// The only IP version to use.
    pub(crate) family: Option<Family>,
}

impl Plan {
    /// Builds the plan of a copy from its arguments.
    pub(crate) fn of(cp: &Cp) -> Result<Self, Failure> {
        check_options(cp)?;
        let (remote, kind) = CopyKind::of(cp)?;
        let port = match (cp.port, remote.port) {
            (Some(option), Some(url)) if option != url => {
                return Err(PlanError::Ports { option, url }.into());
            }
            (option, url) => option.or(url).unwrap_or(DEFAULT_PORT),
        };
        let options = copy_options(cp);
        let (tree, network) = (TreePlan::of(cp, options), Network::of(cp));
        Ok(Self {
            host: remote.host,
            port,
            kind,
            options,
            tree,
            network,
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
            list: (tree.dry_run && !cp.quiet) || cp.verbose > 0,
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

    /// Returns true if a source may be a directory: with recursion, or with a list of names in it.
    pub(crate) fn takes_directories(&self) -> bool {
        self.options.recursive || self.files_from.is_some()
    }

    /// Returns true if special files such as FIFOs are copied.
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

/// Rejects contradictory options, whatever the sources and the target are.
fn check_options(cp: &Cp) -> Result<(), PlanError> {
    let tree = &cp.tree;
    if tree.delete && !tree.is_recursive() {
        return Err(PlanError::DeleteWithoutRecursion);
    }
    if tree.delete && tree.files_from.is_some() {
        return Err(PlanError::DeleteFilesFrom);
    }
    if let Some(pattern) = tree.filters.senseless() {
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

impl Network {
    fn of(cp: &Cp) -> Self {
        Self {
            links: cp.link.clone(),
            exclude: cp.exclude_link.clone(),
            streams: cp.streams,
            routes: cp.routes.into(),
            bandwidth: cp.bwlimit.filter(|rate| *rate > BitRate::ZERO),
            patience: cp.timeout,
            family: cp.ip_version.only(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    /// Only one path.
    #[error("no target: expected SRC and DST")]
    NoTarget,
    /// A value after a letter that takes one in scp.
    #[error("-{letter} takes no value, unlike scp's: \"{value}\" would be a source")]
    ScpValue { letter: char, value: String },
    #[error("neither source nor target is remote: expected one of them as HOST:PATH")]
    BothLocal,
    #[error("source and target are both remote: expected one of them on this machine")]
    BothRemote,
    /// Two different ports.
    #[error("-P says port {option} and the URL says {url}: expected one of them")]
    Ports {
        /// Port of `-P`.
        option: u16,
        /// Port of the URL.
        url: u16,
    },
    /// A source without a name, such as `..`.
    #[error("{path:?} has no file name to keep")]
    NoName { path: PathBuf },
    /// A directory at the daemon, without recursion.
    #[error("\"{text}\" is a directory: copying it needs -r")]
    RemoteDirectory { text: String },
    #[error("sources are both local and remote: expected all on one machine")]
    MixedSources,
    /// Sources at several daemons.
    #[error("\"{one}\" and \"{other}\" are on different daemons: expected all sources on one")]
    Hosts {
        /// Host of the first source.
        one: String,
        /// Another host.
        other: String,
    },
    /// Two sources with one name in the target.
    #[error("two sources are named \"{name}\": expected different names in the target")]
    SameName { name: String },
    #[error("--files-from cannot be used with several SRC: expected one")]
    FilesFromSources,
    #[error("--delete needs -r")]
    DeleteWithoutRecursion,
    /// `--delete` with `--files-from`, which excludes most of a directory.
    #[error("--delete cannot be used with --files-from: it would delete all unlisted files")]
    DeleteFilesFrom,
    /// `--delete` with several sources: one would delete the files of another.
    #[error(
        "--delete cannot be used with several SRC if one ends in a slash: it would delete files of the others"
    )]
    DeleteContent,
    /// A remote pattern without matches.
    #[error("no file on the daemon matches \"{pattern}\"")]
    NoMatch { pattern: String },
    /// A remote pattern with more matches than one request allows.
    #[error("more than 1,024 names match \"{pattern}\"")]
    ManyMatches { pattern: String },
    /// An invalid include or exclude pattern.
    #[error("invalid pattern \"{}\" of --include or --exclude", nicstripe::escaped(pattern.as_bytes()))]
    Pattern { pattern: String },
    /// `--include` before any `--exclude`, as in rsync.
    #[error("--include \"{}\" has no effect: expected an --exclude before it, since the last match counts", nicstripe::escaped(pattern.as_bytes()))]
    IdleInclude { pattern: String },
    /// `-` as one of several sources.
    #[error("standard input or output cannot be one of several sources")]
    PipeAmongOthers,
    #[error("{option} cannot be used with standard input or output")]
    PipeWith { option: &'static str },
    /// `-` as the source for a directory.
    #[error("\"{text}\" is a directory, and standard input has no name: expected HOST:NAME")]
    PipeToDirectory { text: String },
    /// JSON output with standard output as the target.
    #[error("--json and --json-stream cannot be used with standard output as the target")]
    JsonToPipe,
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;
    use crate::{args::Args, args::Command};

    /// Returns the plan of `nicstripe cp` with these arguments.
    pub(crate) fn plan(words: &[&str]) -> Result<Plan, Failure> {
        let words = ["nicstripe", "cp"].iter().chain(words);
        let Command::Cp(cp) = Args::try_parse_from(words).unwrap().command else {
            panic!("not cp")
        };
        Plan::of(&cp)
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

    #[test]
    fn a_limit_of_zero_is_none() {
        let limit = |rate: &str| {
            plan(&["--bwlimit", rate, "a", "nas:"])
                .unwrap()
                .network
                .bandwidth
        };
        assert_eq!(limit("0"), None);
        assert_eq!(limit("1Mbit"), Some(BitRate::from_mbit(1)));
    }
}

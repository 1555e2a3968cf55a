//! Kinds of copy, by direction and type of source. A trailing slash on a path selects the content
//! of a directory.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use nicstripe::{Client, CopyOptions, Name, Transfer, TreeOptions, TreeSource, escaped};

use super::{
    arguments::Cp,
    error::{both_local, both_remote, directory, pipe_among_others},
    outlet::Outlet,
    view::Shape,
};
use crate::{
    connect::location::{Location, Remote, RemotePath},
    failure::{Failure, Fault, usage},
    process::streams::unbuffered,
    text::{invocation::quoted, shown},
};

/// Direction of a copy and type of its source, with all paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// One local file is sent to the daemon.
    Put {
        source: PathBuf,
        /// Target name at the daemon; `None` keeps the file's name, in the daemon's root.
        name: Option<Name>,
    },
    /// One file is received from the daemon.
    Get { name: Name, target: PathBuf },
    /// Local files and trees are sent to the daemon.
    PutTree {
        /// Local sources. A trailing slash selects the content of a directory.
        sources: Vec<PathBuf>,
        /// Target directory at the daemon; `None` is the daemon's root.
        name: Option<Name>,
        /// True if the only source gets the target's name. If a directory of that name exists, the
        /// source is copied into it instead.
        as_name: bool,
    },
    /// Files and trees are received from the daemon.
    GetTree {
        /// Name of each source at the daemon (`None` for its root), and true if only the content of
        /// that directory is copied.
        sources: Vec<(Option<Name>, bool)>,
        target: PathBuf,
        /// True if the only source gets the target's name. If a directory of that name exists, the
        /// source is copied into it instead.
        as_name: bool,
    },
    /// Standard input is sent to a file at the daemon.
    PutPipe { name: Name },
    /// A file at the daemon is written to standard output, or to a local device or FIFO.
    GetPipe {
        name: Name,
        /// Device or FIFO; `None` for standard output.
        to: Option<Outlet>,
    },
}

impl CopyKind {
    /// Determines the daemon and the copy kind from the typed sources and target.
    pub(super) fn of(cp: &Cp) -> Result<(Remote, Self), Failure> {
        let sources = cp
            .sources()
            .iter()
            .map(|source| Location::parse(source))
            .collect::<Result<Vec<_>, _>>()?;
        let target = Location::parse(cp.target())?;
        if sources.is_empty() {
            return Err(usage("no target: expected SRC and DST").into());
        }
        if sources.contains(&Location::Pipe) || target == Location::Pipe {
            return pipe(sources, target, cp);
        }
        let is_tree = cp.tree.asks_for_tree() || sources.len() > 1;
        match target {
            Location::Remote(target) if is_tree => {
                put_tree(local_sources(sources, cp)?, target, cp)
            }
            Location::Remote(target) => put(local_sources(sources, cp)?.remove(0), target),
            Location::Local(target) if is_tree => get_tree(remote_sources(sources)?, target, cp),
            Location::Local(target) => get(remote_sources(sources)?.remove(0), target),
            Location::Pipe => Err(both_local().into()),
        }
    }

    pub(super) fn start(
        self,
        client: &Client,
        options: CopyOptions,
        tree: TreeOptions,
    ) -> Result<Transfer, Failure> {
        let of_pipe = Failure::opening(Path::new("-"));
        Ok(match self {
            Self::Put { source, name } => client.put(&source, name, options),
            Self::Get { name, target } => client.get(name, &target, options),
            Self::PutTree {
                sources,
                name,
                as_name,
            } => client.put_tree(sources, name, TreeOptions { as_name, ..tree }),
            Self::GetTree {
                sources,
                target,
                as_name,
            } => {
                let tree = TreeOptions { as_name, ..tree };
                let source = |(name, content)| match (name, content) {
                    (Some(name), false) => TreeSource::named(name),
                    (name, _) => TreeSource::content_of(name),
                };
                let sources = sources.into_iter().map(source);
                client.get_tree(sources, &target, tree)
            }
            Self::PutPipe { name } => {
                client.put_pipe(unbuffered(io::stdin()).map_err(of_pipe)?, name, options)
            }
            Self::GetPipe { name, to } => {
                let output = match to {
                    Some(outlet) => outlet.file(),
                    None => unbuffered(io::stdout()),
                };
                client.get_pipe(name, output.map_err(Failure::Output)?, options)
            }
        })
    }

    /// Returns a tree copy of one of its sources only.
    pub(super) fn of_source(&self, index: usize) -> Option<Self> {
        let mut kind = self.clone();
        match &mut kind {
            Self::PutTree { sources, .. } => *sources = vec![sources.get(index)?.clone()],
            Self::GetTree { sources, .. } => *sources = vec![sources.get(index)?.clone()],
            _ => return None,
        }
        Some(kind)
    }

    /// Returns true if a source gets the target's name unless that is a directory, and is copied into it then.
    pub(super) fn depends_on_target(&self) -> bool {
        matches!(
            self,
            Self::PutTree { as_name: true, .. } | Self::GetTree { as_name: true, .. }
        )
    }

    /// Returns the name of the source for messages: the file name without directories, or the
    /// number of sources.
    pub(crate) fn file_name(&self) -> String {
        match self {
            Self::Put { source, .. } => shown_name(source),
            Self::PutTree { sources, .. } => match &sources[..] {
                [source] => shown_name(source),
                sources => format!("{} sources", sources.len()),
            },
            Self::Get { name, .. } | Self::PutPipe { name } | Self::GetPipe { name, .. } => {
                escaped(name.file_name())
            }
            Self::GetTree { sources, .. } => match &sources[..] {
                [(name, _)] => name
                    .as_ref()
                    .map_or_else(|| "/".to_owned(), |name| escaped(name.file_name())),
                sources => format!("{} sources", sources.len()),
            },
        }
    }

    /// Returns the name that the only source gets in a target directory, escaped. `None` for
    /// several sources, standard input, and the content of a directory.
    pub(super) fn own_name(&self) -> Option<String> {
        match self {
            Self::Put { source, .. } => Some(shown(source.file_name()?)),
            Self::Get { name, .. } => Some(escaped(name.file_name())),
            Self::PutTree { sources, .. } => match &sources[..] {
                [source] if !means_content(source.as_os_str().as_bytes()) => {
                    Some(shown(source.file_name()?))
                }
                _ => None,
            },
            Self::GetTree { sources, .. } => match &sources[..] {
                [(Some(name), false)] => Some(escaped(name.file_name())),
                _ => None,
            },
            Self::PutPipe { .. } | Self::GetPipe { .. } => None,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        match self {
            Self::Put { .. } | Self::Get { .. } => Shape::File,
            Self::PutTree { .. } | Self::GetTree { .. } => Shape::Tree,
            Self::PutPipe { .. } | Self::GetPipe { .. } => Shape::Pipe,
        }
    }
}

pub(super) fn shown_name(path: &Path) -> String {
    shown(path.file_name().unwrap_or(path.as_os_str()))
}

/// Returns the local paths of the sources. Rejects remote sources.
fn local_sources(sources: Vec<Location>, cp: &Cp) -> Result<Vec<PathBuf>, Fault> {
    let local = |source| match source {
        Location::Local(path) => Some(path),
        _ => None,
    };
    let is_here = |path: &&OsString| Path::new(path).symlink_metadata().is_ok();
    let found = cp.paths.iter().find(is_here).map(PathBuf::from);
    all_of(sources, local, both_remote(found))
}

/// Returns the remote paths of the sources. Rejects local sources, and sources at different
/// daemons.
fn remote_sources(sources: Vec<Location>) -> Result<Vec<Remote>, Fault> {
    let remote = |source| match source {
        Location::Remote(remote) => Some(remote),
        _ => None,
    };
    let remote = all_of(sources, remote, both_local())?;
    match remote.iter().find(|other| other.place != remote[0].place) {
        Some(other) => Err(usage(format!(
            "\"{}\" and \"{other}\" are on different daemons: expected all sources on one",
            remote[0]
        ))),
        None => Ok(remote),
    }
}

/// Returns the sources on one machine. Rejects sources on both; `none` is the error if all are on
/// the other.
fn all_of<T>(
    sources: Vec<Location>,
    take: impl FnMut(Location) -> Option<T>,
    none: Fault,
) -> Result<Vec<T>, Fault> {
    let count = sources.len();
    let taken: Vec<T> = sources.into_iter().filter_map(take).collect();
    match taken.len() {
        len if len == count => Ok(taken),
        0 => Err(none),
        _ => Err(usage(
            "sources are both local and remote: expected all on one machine",
        )),
    }
}

fn put(source: PathBuf, target: Remote) -> Result<(Remote, CopyKind), Failure> {
    let name = match &target.path {
        RemotePath::Root => None,
        RemotePath::File(name) => Some(name.clone()),
        RemotePath::Directory(directory) => Some(directory.join(own_name(&source)?)?),
    };
    Ok((target, CopyKind::Put { source, name }))
}

fn get(source: Remote, target: PathBuf) -> Result<(Remote, CopyKind), Failure> {
    let name = file_of(&source)?;
    Ok((source, CopyKind::Get { name, target }))
}

/// Returns the name of a remote source that must be a file.
fn file_of(source: &Remote) -> Result<Name, Fault> {
    match &source.path {
        RemotePath::File(name) => Ok(name.clone()),
        RemotePath::Root | RemotePath::Directory(_) => Err(directory(&format!("\"{source}\""))),
    }
}

fn put_tree(sources: Vec<PathBuf>, target: Remote, cp: &Cp) -> Result<(Remote, CopyKind), Failure> {
    let is_listed = cp.tree.files_from.is_some();
    let content = |path: &Path| is_listed || means_content(path.as_os_str().as_bytes());
    let named = sources.iter().map(|path| {
        let name = path.file_name().filter(|_| !content(path));
        name.map(OsStr::as_bytes)
    });
    check_sources(named.collect(), is_listed, cp.tree.delete)?;
    let is_named = matches!(target.path, RemotePath::File(_));
    let as_name = is_named && sources.len() == 1 && !content(&sources[0]);
    let name = target.path.name().cloned();
    let slashed = |path: PathBuf| match content(&path) {
        true => with_slash(path),
        false => path,
    };
    let sources = sources.into_iter().map(slashed).collect();
    let kind = CopyKind::PutTree {
        sources,
        name,
        as_name,
    };
    Ok((target, kind))
}

fn get_tree(sources: Vec<Remote>, target: PathBuf, cp: &Cp) -> Result<(Remote, CopyKind), Failure> {
    let all = cp.tree.files_from.is_some();
    let is_file = |source: &Remote| matches!(source.path, RemotePath::File(_));
    if !all && !cp.tree.is_recursive() {
        sources
            .iter()
            .try_for_each(|source| file_of(source).map(drop))?;
    }
    let part = |source: &Remote| (source.path.name().cloned(), all || !is_file(source));
    let parts: Vec<_> = sources.iter().map(part).collect();
    check_remote(&parts, all, cp.tree.delete)?;
    let as_name = parts.len() == 1 && !parts[0].1 && !target.as_os_str().as_bytes().ends_with(b"/");
    let first = sources.into_iter().next().ok_or_else(both_local)?;
    let kind = CopyKind::GetTree {
        sources: parts,
        target,
        as_name,
    };
    Ok((first, kind))
}

/// Checks remote sources as [`check_sources`] does.
pub(super) fn check_remote(
    sources: &[(Option<Name>, bool)],
    is_listed: bool,
    delete: bool,
) -> Result<(), Fault> {
    check_sources(sources.iter().map(name_of).collect(), is_listed, delete)
}

/// Returns the name that a remote source gets in the target; `None` if its content is copied.
fn name_of((name, content): &(Option<Name>, bool)) -> Option<&[u8]> {
    name.as_ref().filter(|_| !content).map(Name::file_name)
}

/// Rejects several sources with `--files-from`, with `--delete` if the content of one is copied, or
/// with equal names in the target. `names` has `None` for a source whose content is copied.
fn check_sources(names: Vec<Option<&[u8]>>, is_listed: bool, delete: bool) -> Result<(), Fault> {
    if names.len() > 1 && is_listed {
        return Err(usage(
            "--files-from cannot be used with several SRC: expected one",
        ));
    }
    if names.len() > 1 && delete && names.contains(&None) {
        return Err(usage(
            "--delete cannot be used with several SRC if one ends in a slash: it would delete files of the others",
        ));
    }
    let twice = names
        .iter()
        .enumerate()
        .find_map(|(index, name)| name.filter(|_| names[..index].contains(name)));
    match twice {
        Some(name) => Err(usage(format!(
            "two sources are named \"{}\": expected different names in the target",
            escaped(name)
        ))),
        None => Ok(()),
    }
}

/// Returns true if a path selects the content of a directory: it ends with a slash, or its last
/// component is `.` or `..`.
fn means_content(path: &[u8]) -> bool {
    path.ends_with(b"/") || matches!(path.rsplit(|byte| *byte == b'/').next(), Some(b"." | b".."))
}

fn with_slash(path: PathBuf) -> PathBuf {
    let mut bytes = OsString::from(path).into_vec();
    if !bytes.ends_with(b"/") {
        bytes.push(b'/');
    }
    OsString::from_vec(bytes).into()
}

fn pipe(
    mut sources: Vec<Location>,
    target: Location,
    cp: &Cp,
) -> Result<(Remote, CopyKind), Failure> {
    if sources.len() > 1 {
        return Err(pipe_among_others().into());
    }
    let option = cp
        .tree
        .first_option()
        .or(cp.preserve.then_some("-p"))
        .or(cp.inplace.then_some("--inplace"));
    if let Some(option) = option.or(cp.delta.then_some("--delta")) {
        return Err(usage(format!(
            "{option} cannot be used with standard input or output"
        ))
        .into());
    }
    match (sources.remove(0), target) {
        (Location::Pipe, Location::Remote(target)) => match &target.path {
            RemotePath::File(name) => {
                let kind = CopyKind::PutPipe { name: name.clone() };
                Ok((target, kind))
            }
            RemotePath::Root | RemotePath::Directory(_) => {
                let text = format!(
                    "\"{target}\" is a directory, and standard input has no name: expected HOST:NAME"
                );
                let name = quoted(format!("{target}NAME"));
                Err(usage(text)
                    .with_hint(format!("give it a name, as in {name}"))
                    .into())
            }
        },
        (Location::Remote(source), Location::Pipe) => {
            let name = file_of(&source)?;
            Ok((source, CopyKind::GetPipe { name, to: None }))
        }
        _ => Err(both_local().into()),
    }
}

fn own_name(path: &Path) -> Result<&[u8], Fault> {
    path.file_name()
        .map(OsStr::as_bytes)
        .ok_or_else(|| usage(format!("{path:?} has no file name to keep")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::cp::plan::tests::plan, text::invocation::Invocation};

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap()
    }

    fn kind(words: &str) -> CopyKind {
        plan(words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
            .kind
    }

    fn put_tree(words: &str) -> (Vec<String>, Option<String>, bool) {
        match kind(words) {
            CopyKind::PutTree {
                sources,
                name,
                as_name,
            } => {
                let sources = sources
                    .iter()
                    .map(|source| source.to_str().unwrap().to_owned())
                    .collect();
                (sources, name.map(|name| name.to_string()), as_name)
            }
            kind => panic!("{words:?}: {kind:?}"),
        }
    }

    fn get_tree(words: &str) -> (Vec<(Option<Name>, bool)>, bool) {
        match kind(words) {
            CopyKind::GetTree {
                sources, as_name, ..
            } => (sources, as_name),
            kind => panic!("{words:?}: {kind:?}"),
        }
    }

    #[test]
    fn a_file_keeps_its_name_in_a_directory_of_the_daemon() {
        let put = |target: &str| match kind(&format!("dir/a.bin {target}")) {
            CopyKind::Put { name, .. } => name,
            kind => panic!("{kind:?}"),
        };
        assert_eq!(put("nas:"), None);
        assert_eq!(put("nas:/"), None);
        assert_eq!(put("nas:x/"), Some(name("x/a.bin")));
        assert_eq!(put("nas:/x/y"), Some(name("x/y")));
    }

    #[test]
    fn a_file_comes_from_the_daemon_by_its_name() {
        let kind = kind("nas:/x/a.bin .");
        assert_eq!(kind.file_name(), "a.bin");
        assert_eq!(
            kind,
            CopyKind::Get {
                name: name("x/a.bin"),
                target: ".".into()
            }
        );
    }

    #[test]
    fn a_source_becomes_the_target_or_goes_into_it_as_slashes_say() {
        for (words, sources, target, as_name) in [
            ("-r src nas:dst", "src", Some("dst"), true),
            ("-r src nas:dst/", "src", Some("dst"), false),
            ("-r src nas:", "src", None, false),
            ("-r src/ nas:dst", "src/", Some("dst"), false),
            ("-r . nas:dst", "./", Some("dst"), false),
            ("-r a/.. nas:dst", "a/../", Some("dst"), false),
            ("-r a/. nas:dst", "a/./", Some("dst"), false),
            ("-r / nas:dst", "/", Some("dst"), false),
            ("a b nas:dst", "a b", Some("dst"), false),
            ("-u a nas:dst", "a", Some("dst"), true),
            ("--files-from list src nas:dst", "src/", Some("dst"), false),
        ] {
            let expected = (
                sources.split(' ').map(str::to_owned).collect(),
                target.map(str::to_owned),
                as_name,
            );
            assert_eq!(put_tree(words), expected, "{words:?}");
        }
    }

    #[test]
    fn the_same_slashes_mean_the_same_the_other_way() {
        let source = |path: &str, content| (Some(name(path)), content);
        for (words, sources, as_name) in [
            ("-r nas:src dst", vec![source("src", false)], true),
            ("-r nas:src dst/", vec![source("src", false)], false),
            ("-r nas:src/ dst", vec![source("src", true)], false),
            ("-r nas: dst", vec![(None, true)], false),
            (
                "nas:a nas:b dst",
                vec![source("a", false), source("b", false)],
                false,
            ),
            ("-c nas:a dst", vec![source("a", false)], true),
            (
                "--files-from list nas:src dst",
                vec![source("src", true)],
                false,
            ),
            ("--files-from list nas: dst", vec![(None, true)], false),
        ] {
            assert_eq!(get_tree(words), (sources, as_name), "{words:?}");
        }
    }

    #[test]
    fn a_pipe_has_a_name_at_the_daemon() {
        assert_eq!(kind("- nas:x/y"), CopyKind::PutPipe { name: name("x/y") });
        assert_eq!(
            kind("nas:x/y -"),
            CopyKind::GetPipe {
                name: name("x/y"),
                to: None
            }
        );
        assert_eq!(
            kind("-z -f --verify - nas:y"),
            CopyKind::PutPipe { name: name("y") }
        );
        // A file called `-` is typed with its folder.
        assert!(matches!(kind("./- nas:y"), CopyKind::Put { .. }));
    }

    #[test]
    fn words_that_make_no_copy_are_refused_with_the_reason() {
        for (words, said) in [
            ("nas:", "no target: expected"),
            ("a b", "neither source nor target is remote"),
            ("a b c", "neither source nor target is remote"),
            ("- b", "neither source nor target is remote"),
            ("a -", "neither source nor target is remote"),
            ("- -", "neither source nor target is remote"),
            ("nas:a nas:b", "both remote"),
            ("nas:a b c", "sources are both local and remote"),
            ("a nas:b nas:", "sources are both local and remote"),
            (
                "nas:a other:b c",
                "\"nas:a\" and \"other:b\" are on different daemons",
            ),
            (
                "nicstripe://nas:1/a nicstripe://nas:2/b c",
                "are on different daemons",
            ),
            ("nas: .", "\"nas:\" is a directory"),
            ("nas:x/ .", "\"nas:x/\" is a directory"),
            ("nas:x/ nas:y .", "\"nas:x/\" is a directory"),
            ("nas:x/ -", "\"nas:x/\" is a directory"),
            (".. nas:x/", "no file name"),
            (
                "- nas:",
                "\"nas:\" is a directory, and standard input has no name",
            ),
            (
                "- nas:x/",
                "\"nas:x/\" is a directory, and standard input has no name",
            ),
            (
                "- a nas:x",
                "standard input or output cannot be one of several",
            ),
            (
                "nas:x nas:y -",
                "standard input or output cannot be one of several",
            ),
            ("-r - nas:x", "-r cannot be used"),
            ("-a nas:x -", "-a cannot be used"),
            ("-n - nas:x", "-n cannot be used"),
            ("-p - nas:x", "-p cannot be used"),
            ("--delta - nas:x", "--delta cannot be used"),
            ("--inplace nas:x -", "--inplace cannot be used"),
            ("x/a y/a nas:", "two sources are named \"a\""),
            ("-r nas:x/a nas:y/a .", "two sources are named \"a\""),
            ("-r --delete a/ b/ nas:", "--delete"),
            ("-r --delete a b/ nas:", "--delete"),
            ("--files-from list a b nas:", "--files-from"),
        ] {
            let error = plan(words)
                .map(|plan| panic!("{words:?}: {plan:?}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
        let unnamed = plan("- nas:x/").unwrap_err();
        let hint = unnamed.hint(&Invocation::of(&[]));
        assert_eq!(hint.unwrap(), "give it a name, as in nas:x/NAME");
    }
}

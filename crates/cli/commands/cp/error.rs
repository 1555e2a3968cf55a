//! Errors that `cp` reports before it copies.

use std::path::PathBuf;

use crate::{
    failure::{CommandError, exit::Exit, hint::NextStep},
    text::{
        invocation::{Invocation, quoted},
        shown,
    },
};

/// Kind of a source that cannot be read.
pub(super) const SOCKET: &str = "a socket";

/// The arguments of `cp` contradict each other, or do not fit the source or the target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    /// Only one path was given.
    #[error("no target: expected SRC and DST")]
    NoTarget,
    /// The local source of a copy is a directory, and `-r` is missing.
    #[error("{0:?} is a directory: copying it needs -r")]
    Directory(PathBuf),
    /// The local source of a copy is a FIFO, a socket or a character device. It has no size, and may
    /// never end.
    #[error("{path:?} is {kind}: expected a file")]
    Endless { path: PathBuf, kind: &'static str },
    /// The local source of a copy is a symbolic link to a missing file.
    #[error("{0:?} is a symbolic link to a missing file")]
    DanglingSource(PathBuf),
    /// The local target of a copy ends with a slash and is not a directory.
    #[error("{0:?} is not a directory")]
    NotADirectory(PathBuf),
    /// The local target of a copy is a socket.
    #[error("cannot replace {0:?}: it is a socket")]
    Socket(PathBuf),
    /// The local target of a copy is a symbolic link to a missing file.
    #[error("cannot write {0:?}: it is a symbolic link to a missing file")]
    Dangling(PathBuf),
    #[error("neither source nor target is remote: expected one of them as HOST:PATH")]
    BothLocal,
    #[error("source and target are both remote: expected one of them on this machine")]
    BothRemote {
        /// Argument that is also the name of a local file.
        local: Option<PathBuf>,
    },
    /// `-P` and the URL have different ports.
    #[error("-P says port {option} and the URL says {url}: expected one of them")]
    Ports {
        /// Port given with `-P`.
        option: u16,
        /// Port in the URL.
        url: u16,
    },
    /// A source has no file name, such as `..`.
    #[error("{0:?} has no file name to keep")]
    NoName(PathBuf),
    /// A source at the daemon is a directory, and `-r` is missing.
    #[error("\"{0}\" is a directory: copying it needs -r")]
    RemoteDirectory(String),
    #[error("sources are both local and remote: expected all on one machine")]
    MixedSources,
    /// The sources are at different daemons.
    #[error("\"{one}\" and \"{other}\" are on different daemons: expected all sources on one")]
    Hosts {
        /// Host of the first source.
        one: String,
        /// Host of another source.
        other: String,
    },
    /// Two sources would have the same name in the target directory.
    #[error("two sources are named \"{0}\": expected different names in the target")]
    SameName(String),
    #[error("--files-from cannot be used with several SRC: expected one")]
    FilesFromSources,
    #[error("--delete needs -r")]
    DeleteWithoutRecursion,
    /// `--delete` was given with `--files-from`, and would delete all files that the list omits.
    #[error("--delete cannot be used with --files-from: it would delete all unlisted files")]
    DeleteFilesFrom,
    /// `--shard` was given, and the target means something else once the first share has made it.
    #[error(
        "with --shard, DST must mean the same before and after it exists: expected SRC/ or DST/"
    )]
    ShardTarget,
    #[error("--follow sends one file from here: expected FILE HOST:PATH")]
    Follow,
    /// An option of a copy to one target was given with several.
    #[error("with {0} there is one DST")]
    OneTarget(&'static str),
    /// `--delete` was given with several sources, one of which ends in a slash. Copying its content
    /// would delete the files of the others.
    #[error(
        "--delete cannot be used with several SRC if one ends in a slash: it would delete files of the others"
    )]
    DeleteContent,
    /// A pattern of `--include` or `--exclude` is invalid.
    #[error("invalid pattern \"{}\" of --include or --exclude", shown(.0))]
    Pattern(String),
    /// `--include` comes before any `--exclude`, as in rsync, and has no effect.
    #[error(
        "--include \"{}\" has no effect: expected an --exclude before it, since the last match counts",
        shown(.0)
    )]
    IdleInclude(String),
    /// `-` is one of several sources.
    #[error("standard input or output cannot be one of several sources")]
    PipeAmongOthers,
    #[error("{0} cannot be used with standard input or output")]
    PipeWith(&'static str),
    /// Standard input is the source and the target is a directory, so that the file would have no
    /// name.
    #[error("\"{0}\" is a directory, and standard input has no name: expected HOST:NAME")]
    PipeToDirectory(String),
    /// `--json` or `--json-stream` was given with standard output as the target.
    #[error("--json and --json-stream cannot be used with standard output as the target")]
    JsonToPipe,
}

impl CommandError for PlanError {
    fn exit(&self) -> Exit {
        match self {
            Self::Directory(_)
            | Self::Endless { .. }
            | Self::DanglingSource(_)
            | Self::NotADirectory(_)
            | Self::Socket(_)
            | Self::Dangling(_)
            | Self::RemoteDirectory(_) => Exit::Files,
            _ => Exit::Usage,
        }
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        Some(match self {
            Self::BothLocal => "write a remote path as HOST:PATH, as in nas:backup/".into(),
            Self::BothRemote { local: Some(path) } => format!(
                "for the local file {path:?}, type {}",
                quoted(PathBuf::from(".").join(path))
            ),
            Self::BothRemote { local: None } => "run the command on one of the two machines".into(),
            Self::RemoteDirectory(_) | Self::Directory(_) => NextStep::Recurse.text(invocation),
            Self::NotADirectory(_) => NextStep::Create.text(invocation),
            Self::Endless { kind: SOCKET, .. } => return None,
            // Standard input is no part of a tree.
            Self::Endless { .. } if invocation.is_recursive() => return None,
            Self::Endless { path, .. } => format!(
                "to copy data from it until it ends: {}",
                invocation.reading_standard_input(path)
            ),
            Self::DanglingSource(_) => {
                format!("to copy the link itself: {}", invocation.with_flag("-r"))
            }
            Self::ShardTarget => {
                "SRC/ copies the content of SRC to DST, and DST/ keeps the name of SRC beneath DST"
                    .into()
            }
            Self::PipeToDirectory(text) => {
                format!("give it a name, as in {}", quoted(format!("{text}NAME")))
            }
            Self::IdleInclude(pattern) => format!(
                "to copy only what matches: --exclude '*' --include '*/' --include {}",
                quoted(pattern)
            ),
            _ => return None,
        })
    }
}

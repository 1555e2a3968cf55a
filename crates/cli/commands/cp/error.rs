//! Errors that `cp` reports before it copies: arguments that contradict each other, or do not fit the source
//! or the target.

use std::path::{Path, PathBuf};

use crate::{
    failure::{Fault, exit::Exit, hint::NextStep, usage},
    text::invocation::{Invocation, quoted},
};

/// Kind of a source that cannot be read.
pub(super) const SOCKET: &str = "a socket";

fn of_file(text: impl Into<String>) -> Fault {
    Fault::new(Exit::Files, text)
}

/// Returns the error of a source, local or at the daemon, that is a directory, if `-r` is missing.
pub(crate) fn directory(shown: &str) -> Fault {
    let hint = NextStep::Recurse.text(&Invocation::of_this_process());
    of_file(format!("{shown} is a directory: copying it needs -r")).with_hint(hint)
}

/// Returns the error of a FIFO, a socket or a character device as the source. It has no size, and may never
/// end.
pub(super) fn endless(path: &Path, kind: &str) -> Fault {
    let invocation = Invocation::of_this_process();
    // Standard input is no part of a tree.
    let is_readable = kind != SOCKET && !invocation.is_recursive();
    let hint = is_readable.then(|| {
        let command = invocation.reading_standard_input(path);
        format!("to copy data from it until it ends: {command}")
    });
    of_file(format!("{path:?} is {kind}: expected a file")).hinted(hint)
}

pub(super) fn dangling_source(path: &Path) -> Fault {
    let command = Invocation::of_this_process().with_flag("-r");
    of_file(format!("{path:?} is a symbolic link to a missing file"))
        .with_hint(format!("to copy the link itself: {command}"))
}

/// Returns the error of a local target that ends with a slash and is no directory.
pub(crate) fn not_a_directory(path: &Path) -> Fault {
    let hint = NextStep::Create.text(&Invocation::of_this_process());
    of_file(format!("{path:?} is not a directory")).with_hint(hint)
}

pub(crate) fn both_local() -> Fault {
    usage("neither source nor target is remote: expected one of them as HOST:PATH")
        .with_hint("write a remote path as HOST:PATH, as in nas:backup/")
}

/// Returns the error of remote sources and a remote target. `local` is an argument that is also the name of
/// a local file.
pub(super) fn both_remote(local: Option<PathBuf>) -> Fault {
    let hint = match local {
        Some(path) => format!(
            "for the local file {path:?}, type {}",
            quoted(Path::new(".").join(&path))
        ),
        None => "run the command on one of the two machines".to_owned(),
    };
    usage("source and target are both remote: expected one of them on this machine").with_hint(hint)
}

pub(super) fn follow() -> Fault {
    usage("--follow sends one file from here: expected FILE HOST:PATH")
}

pub(super) fn pipe_among_others() -> Fault {
    usage("standard input or output cannot be one of several sources")
}

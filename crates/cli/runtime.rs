//! The async runtime that the library's work runs on.

use std::{num::NonZero, thread};

use nicstripe_link::check_threads;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Makes a runtime with a thread a core.
pub(crate) fn threaded() -> Result<Runtime, Failure> {
    check_threads(cores() + others()).map_err(Failure::Runtime)?;
    Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)
}

/// Makes a runtime on the calling thread alone.
///
/// For `demo`: its children are killed when the thread that started them ends, and the main thread ends last. For `dial`: one connection is
/// carried by one thread faster than ssh encrypts, and several would spend as much on waking each other.
pub(crate) fn local() -> Result<Runtime, Failure> {
    check_threads(others()).map_err(Failure::Runtime)?;
    Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Threads besides those of the runtime: the library's for files and its one for work that can wait, one that looks up names, one that
/// remembers where the peer is, one for a tree, one for a pipe.
///
/// A runtime that gets none of its own panics, and is dropped by waiting for ever for those that it got.
fn others() -> usize {
    cores().clamp(2, 8) + 5
}

/// Lets the process have as many files open as it may: each connection of a program that is carried to the peer is one.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

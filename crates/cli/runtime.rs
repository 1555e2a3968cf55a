//! The async runtime that the library's work runs on.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Makes a runtime with a thread a core.
pub(crate) fn threaded() -> Result<Runtime, Failure> {
    Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)
}

/// Makes a runtime on the calling thread alone.
///
/// For `demo`: its children are killed when the thread that started them ends, and the main thread ends last. For `dial`: one connection is
/// carried by one thread faster than ssh encrypts, and several would spend as much on waking each other.
pub(crate) fn local() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)
}

/// Lets the process have as many files open as it may: each connection of a program that is carried to the peer is one.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

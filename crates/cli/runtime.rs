//! Async runtimes for the library.

use std::{num::NonZero, thread};

use nicstripe_link::check_threads;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Creates a runtime with one thread per core.
pub(crate) fn threaded() -> Result<Runtime, Failure> {
    check_threads(cores() + others()).map_err(Failure::Runtime)?;
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)
}

/// Creates a runtime on the calling thread alone.
///
/// `demo` needs it because its children are killed when the thread that started them ends, and the
/// main thread ends last. `dial` uses it because one thread carries one connection faster than ssh
/// encrypts, and several would spend as much on waking each other.
pub(crate) fn local() -> Result<Runtime, Failure> {
    check_threads(others()).map_err(Failure::Runtime)?;
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Number of threads besides those of the runtime.
///
/// The library has file threads and one for deferred work. Name lookup, the address book, a tree
/// and a pipe take one thread each. A runtime that cannot start its own threads panics, and its
/// drop then waits forever for those that it did start.
fn others() -> usize {
    cores().clamp(2, 8) + 5
}

/// Raises the limit of open files to the hard limit: each forwarded connection takes one.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

//! Tokio runtimes for commands.

use std::{fs::File, io, num::NonZero, thread};

use nicstripe_link::check_threads;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Failure, Fault, exit::Exit};

/// Runs a command on one worker thread for two cores; I/O threads hash, read and write on the others.
/// Does not wait at the end for background work of the library.
///
/// Measured on two cores: a second worker is woken in vain for most inputs, which costs 5 % of the
/// processor time over two gigabit cables, and an unshaped copy is not faster with it.
pub(crate) fn run<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    finish(start()?, command)
}

/// Starts the runtime of [`run`], for a command that uses it several times.
pub(crate) fn start() -> Result<Runtime, Failure> {
    let workers = cores().div_ceil(2);
    built(of_workers(workers), workers)
}

#[cfg(feature = "s3")]
/// Runs a command on one worker thread for each core: the workers compute checksums of all that passes.
///
/// Measured on two cores with rclone through `serve s3`, over two gigabit cables: a second worker raises
/// the rate from 88 to 95 %.
pub(crate) fn run_hashing<T>(
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let workers = cores();
    finish(built(of_workers(workers), workers)?, command)
}

fn of_workers(workers: usize) -> Builder {
    let mut builder = Builder::new_multi_thread();
    // Without a number, tokio reads TOKIO_WORKER_THREADS and panics if it is no positive number.
    builder.worker_threads(workers);
    builder
}

/// Runs a command on the calling thread.
///
/// `demo` needs it because its child processes are killed when the thread that started them ends,
/// and the main thread ends last. `dial` uses it because one thread carries one connection faster
/// than ssh encrypts; more threads would spend as much CPU time on waking each other.
pub(crate) fn run_here<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    finish(local()?, command)
}

fn finish<T>(
    runtime: Runtime,
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}

pub(crate) fn local() -> Result<Runtime, Failure> {
    built(Builder::new_current_thread(), 0)
}

fn built(mut builder: Builder, workers: usize) -> Result<Runtime, Failure> {
    raise_open_files();
    check_open_files().map_err(|error| {
        let under = match getrlimit(Resource::Nofile).current {
            Some(most) => format!("a limit of {most} open files"),
            None => "the system's limit".to_owned(),
        };
        let text = format!("cannot open the files of this command under {under}");
        Fault::new(Exit::Failed, text).because(error)
    })?;
    check_threads(workers + others())
        .and_then(|()| builder.enable_all().build())
        .map_err(Failure::Runtime)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns the number of threads that a command starts besides the runtime's workers.
///
/// The library has file threads, one that watches them, and one thread for deferred work. Name
/// lookup, the record of addresses and sightings, a tree and a pipe take one thread each. The number is checked before
/// the start: a runtime that cannot start its own threads panics, and its drop then waits forever
/// for those it did start.
fn others() -> usize {
    cores().clamp(2, 8) + 6
}

/// Checks that [`OPEN_FILES`] more files can be opened. The runtime panics if it cannot open its
/// own.
fn check_open_files() -> io::Result<()> {
    let first = File::open("/dev/null")?;
    (1..OPEN_FILES)
        .map(|_| first.try_clone())
        .collect::<io::Result<Vec<_>>>()
        .map(drop)
}

/// Files that a command opens at least: 7 of the runtime and its signals, and the sockets of a
/// session over two cables.
const OPEN_FILES: usize = 16;

/// Raises the soft limit of open files (RLIMIT_NOFILE) to the hard limit, since each connection and
/// each open file of a transfer takes one.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

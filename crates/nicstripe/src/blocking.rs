//! The client for programs without async code: calls that wait for what they do.
//!
//! A [`Client`] has a runtime of its own, with two worker threads, beside the I/O threads that every client has. It may be used from any
//! number of threads at once. Everything else is as with [`crate::Client`]: the same builder, names, options, events, reports and errors.
//!
//! ```no_run
//! use nicstripe::{CopyOptions, Name, blocking, trust::{Home, Identity, Peers}};
//!
//! let home = Home::from_env()?;
//! let builder = nicstripe::Client::builder()
//!     .identity(Identity::load_or_create(&home.identity_file())?)
//!     .peers(Peers::load(&home.peers_file())?);
//! let client = blocking::Client::connect(builder, "backup.lan")?;
//! let report = client.put("disk.img".as_ref(), None, CopyOptions::default()).finish()?;
//! println!("{} bytes at {}", report.size, report.goodput());
//! client.close();
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! None of this may be called from async code, whose thread it would block: as everywhere in tokio, that panics. `spawn_blocking` is for that.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nicstripe_proto::Name;
use tokio::runtime::{Builder, Runtime};

use crate::{
    CancellationToken,
    client::{self, ClientBuilder, CopyOptions, Entry, LinkSurvey, Stat},
    error::Error,
    event::{Event, Progress},
    report::Report,
    tree::TreeOptions,
    trust::PublicKey,
};

/// Threads of a client's runtime: one may be busy with a session while the other serves the connections.
const WORKERS: usize = 2;

/// A daemon that files are moved to and from. Cheap to clone; clones share one session and one runtime.
///
/// Transfers run side by side as with [`crate::Client`]: they are started by these calls, and waited for by [`Transfer::finish`]. When the
/// last clone and the last transfer are dropped, what still runs ends at once, as after a kill; [`Client::close`] ends in order.
#[derive(Clone)]
pub struct Client {
    inner: client::Client,
    /// Dropped last: the others' tasks run on it.
    runtime: Arc<OwnRuntime>,
}

impl Client {
    /// Connects to a host by name or address, as [`ClientBuilder::connect`] does.
    ///
    /// # Errors
    ///
    /// The same, and that no threads can be started.
    pub fn connect(builder: ClientBuilder, host: &str) -> Result<Self, Error> {
        let runtime = Arc::new(OwnRuntime::start()?);
        let inner = runtime.wait(builder.connect(host))?;
        Ok(Self { inner, runtime })
    }

    /// Sends a file, as [`crate::Client::put`] does.
    pub fn put(&self, source: &Path, name: Option<Name>, options: CopyOptions) -> Transfer {
        self.start(|client| client.put(source, name, options))
    }

    /// Fetches a file, as [`crate::Client::get`] does.
    pub fn get(&self, name: Name, target: &Path, options: CopyOptions) -> Transfer {
        self.start(|client| client.get(name, target, options))
    }

    /// Sends files and trees, as [`crate::Client::put_tree`] does.
    pub fn put_tree(&self, sources: Vec<PathBuf>, name: Option<Name>, as_name: bool, options: TreeOptions) -> Transfer {
        self.start(|client| client.put_tree(sources, name, as_name, options))
    }

    /// Fetches files and trees, as [`crate::Client::get_tree`] does.
    pub fn get_tree(&self, sources: Vec<(Option<Name>, bool)>, target: &Path, as_name: bool, options: TreeOptions) -> Transfer {
        self.start(|client| client.get_tree(sources, target, as_name, options))
    }

    /// Sends what a reader gives until its end, as [`crate::Client::put_pipe`] does.
    pub fn put_pipe(&self, reader: impl std::io::Read + Send + 'static, name: Name, options: CopyOptions) -> Transfer {
        self.start(|client| client.put_pipe(reader, name, options))
    }

    /// Fetches a file into a writer, in order, as [`crate::Client::get_pipe`] does.
    pub fn get_pipe(&self, name: Name, writer: impl std::io::Write + Send + 'static, options: CopyOptions) -> Transfer {
        self.start(|client| client.get_pipe(name, writer, options))
    }

    /// Returns what is in a directory, as [`crate::Client::list`] does.
    ///
    /// # Errors
    ///
    /// The same; so it is with each of the calls that follow.
    pub fn list(&self, dir: Option<&Name>) -> Result<Vec<Entry>, Error> {
        self.runtime.wait(self.inner.list(dir))
    }

    /// Says what has a name, as [`crate::Client::stat`] does.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn stat(&self, name: &Name) -> Result<Stat, Error> {
        self.runtime.wait(self.inner.stat(name))
    }

    /// Removes a file or an empty directory, as [`crate::Client::remove`] does.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn remove(&self, name: &Name) -> Result<(), Error> {
        self.runtime.wait(self.inner.remove(name))
    }

    /// Gives what has one name another, as [`crate::Client::rename`] does.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), Error> {
        self.runtime.wait(self.inner.rename(from, to, replace))
    }

    /// Makes a directory and those that lead to it, as [`crate::Client::make_dir`] does.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn make_dir(&self, name: &Name) -> Result<(), Error> {
        self.runtime.wait(self.inner.make_dir(name))
    }

    /// Reads a file or a part of it into memory, as [`crate::Client::read`] does.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn read(&self, name: &Name, range: Option<Range<u64>>) -> Result<Vec<u8>, Error> {
        self.runtime.wait(self.inner.read(name, range))
    }

    /// Writes a file from memory, as [`crate::Client::write`] does.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn write(&self, name: &Name, bytes: impl AsRef<[u8]>, options: CopyOptions) -> Result<Report, Error> {
        self.runtime.wait(self.inner.write(name, bytes, options))
    }

    /// The daemon's key, and its name in the peers file.
    ///
    /// # Errors
    ///
    /// The daemon cannot be reached any more.
    pub fn peer(&self) -> Result<(PublicKey, Option<String>), Error> {
        self.runtime.wait(self.inner.peer())
    }

    /// Returns the links of the session, and why other interfaces are none. Links that still connect are waited for, at most 2 s.
    ///
    /// # Errors
    ///
    /// The daemon cannot be reached any more.
    pub fn links(&self) -> Result<LinkSurvey, Error> {
        self.runtime.wait(self.inner.links())
    }

    /// Ends the session in order. Transfers that run are interrupted and can be resumed.
    pub fn close(self) {
        let Self { inner, runtime } = self;
        runtime.wait(inner.close());
    }

    fn start(&self, job: impl FnOnce(&client::Client) -> client::Transfer) -> Transfer {
        let runtime = self.runtime.clone();
        let inner = runtime.within(|| job(&self.inner));
        Transfer { inner, runtime }
    }
}

/// A transfer that runs. Dropping it interrupts it; what is durable stays, so that a rerun goes on from there.
pub struct Transfer {
    inner: client::Transfer,
    /// Dropped last: the transfer's task runs on it.
    runtime: Arc<OwnRuntime>,
}

impl Transfer {
    /// Waits for the next event; `None` when the transfer has ended.
    pub fn next_event(&mut self) -> Option<Event> {
        self.runtime.wait(self.inner.next_event())
    }

    /// The same, for so long at most: `Ok(None)` when the transfer has ended.
    ///
    /// # Errors
    ///
    /// [`NoEvent`] where none came in time.
    pub fn next_event_within(&mut self, most: Duration) -> Result<Option<Event>, NoEvent> {
        // The timer belongs to the runtime, so it is made within.
        self.runtime.wait(async { tokio::time::timeout(most, self.inner.next_event()).await }).map_err(|_| NoEvent)
    }

    /// Interrupts it: what was written becomes durable, so that a rerun goes on from there. Does not wait for that.
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// How far it is, as [`crate::Transfer::progress`].
    pub fn progress(&self) -> Progress {
        self.inner.progress()
    }

    /// A handle that interrupts it, for another thread.
    pub fn cancel_token(&self) -> CancellationToken {
        self.inner.cancel_token()
    }

    /// Waits for its end: `Ok` means that the whole file is durable at the receiver under its name.
    ///
    /// # Errors
    ///
    /// As [`Error`] lists them.
    pub fn finish(self) -> Result<Report, Error> {
        let Self { inner, runtime } = self;
        runtime.wait(inner.finish())
    }
}

/// No event came in the time that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no event in the time that was given")]
pub struct NoEvent;

/// A runtime that may be dropped anywhere.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn start() -> Result<Self, Error> {
        let runtime = nicstripe_link::check_threads(WORKERS + 1);
        let runtime =
            runtime.and_then(|()| Builder::new_multi_thread().worker_threads(WORKERS).thread_name("nicstripe").enable_all().build());
        runtime.map(|runtime| Self(Some(runtime))).map_err(|source| Error::System { what: "start threads", source })
    }

    fn runtime(&self) -> &Runtime {
        // Taken when it is dropped, and not before.
        self.0.as_ref().unwrap_or_else(|| unreachable!("the runtime is there until it is dropped"))
    }

    fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime().block_on(what)
    }

    /// Runs what starts tasks.
    fn within<T>(&self, what: impl FnOnce() -> T) -> T {
        let _here = self.runtime().enter();
        what()
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Without waiting, which is not allowed where this may be dropped.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("inner", &self.inner).finish_non_exhaustive()
    }
}

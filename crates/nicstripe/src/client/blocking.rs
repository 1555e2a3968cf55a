//! Client for programs without async code: its calls block until they are done.
//!
//! A [`Client`] owns a runtime with two worker threads, in addition to the I/O threads of every
//! client. Any number of threads may use it at once. Builder, names, options, events, reports and
//! errors are those of [`crate::Client`].
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
//! Do not call this module from async code: it would block the thread, and tokio panics. Use
//! `spawn_blocking` there.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nicstripe_proto::Name;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{self, ClientBuilder, Entry, Stat},
    file::options::CopyOptions,
    report::{
        Report,
        error::Error,
        event::{Event, Progress},
        survey::LinkSurvey,
    },
    tree::TreeOptions,
    trust::PublicKey,
};

/// Worker threads of a client's runtime: one serves the connections while the other is busy with
/// the session's event loop.
const WORKERS: usize = 2;

/// Client of one daemon, with blocking calls. Cheap to clone; clones share one session and one
/// runtime.
///
/// These calls start transfers, which run concurrently as with [`crate::Client`];
/// [`Transfer::finish`] waits for one. Dropping the last clone and the last transfer aborts all
/// work at once, as killing the process does. [`Client::close`] closes the session instead.
#[derive(Clone)]
pub struct Client {
    inner: client::Client,
    /// Runtime of the client. The last field, so that it is dropped after the tasks that run on it.
    runtime: Arc<OwnRuntime>,
}

impl Client {
    /// Connects to a host by name or address, like [`ClientBuilder::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`ClientBuilder::connect`]; [`Error::System`] if the threads cannot be started.
    pub fn connect(builder: ClientBuilder, host: &str) -> Result<Self, Error> {
        let runtime = Arc::new(OwnRuntime::start()?);
        let inner = runtime.wait(builder.connect(host))?;
        Ok(Self { inner, runtime })
    }

    /// Sends a file, like [`crate::Client::put`].
    pub fn put(&self, source: &Path, name: Option<Name>, options: CopyOptions) -> Transfer {
        self.start(|client| client.put(source, name, options))
    }

    /// Fetches a file, like [`crate::Client::get`].
    pub fn get(&self, name: Name, target: &Path, options: CopyOptions) -> Transfer {
        self.start(|client| client.get(name, target, options))
    }

    /// Sends files and trees, like [`crate::Client::put_tree`].
    pub fn put_tree(
        &self,
        sources: Vec<PathBuf>,
        name: Option<Name>,
        as_name: bool,
        options: TreeOptions,
    ) -> Transfer {
        self.start(|client| client.put_tree(sources, name, as_name, options))
    }

    /// Fetches files and trees, like [`crate::Client::get_tree`].
    pub fn get_tree(
        &self,
        sources: Vec<(Option<Name>, bool)>,
        target: &Path,
        as_name: bool,
        options: TreeOptions,
    ) -> Transfer {
        self.start(|client| client.get_tree(sources, target, as_name, options))
    }

    /// Sends the bytes of a reader until end of file, like [`crate::Client::put_pipe`].
    pub fn put_pipe(
        &self,
        reader: impl std::io::Read + Send + 'static,
        name: Name,
        options: CopyOptions,
    ) -> Transfer {
        self.start(|client| client.put_pipe(reader, name, options))
    }

    /// Fetches a file into a writer, in order, like [`crate::Client::get_pipe`].
    pub fn get_pipe(
        &self,
        name: Name,
        writer: impl std::io::Write + Send + 'static,
        options: CopyOptions,
    ) -> Transfer {
        self.start(|client| client.get_pipe(name, writer, options))
    }

    /// Lists a directory, like [`crate::Client::list`].
    pub fn list(&self, dir: Option<&Name>) -> Result<Vec<Entry>, Error> {
        self.runtime.wait(self.inner.list(dir))
    }

    /// Returns the metadata of a name, like [`crate::Client::stat`].
    pub fn stat(&self, name: &Name) -> Result<Stat, Error> {
        self.runtime.wait(self.inner.stat(name))
    }

    /// Removes a file or an empty directory, like [`crate::Client::remove`].
    pub fn remove(&self, name: &Name) -> Result<(), Error> {
        self.runtime.wait(self.inner.remove(name))
    }

    /// Renames a file or directory, like [`crate::Client::rename`].
    pub fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), Error> {
        self.runtime.wait(self.inner.rename(from, to, replace))
    }

    /// Creates a directory and its missing parents, like [`crate::Client::make_dir`].
    pub fn make_dir(&self, name: &Name) -> Result<(), Error> {
        self.runtime.wait(self.inner.make_dir(name))
    }

    /// Reads a file or a range of it into memory, like [`crate::Client::read`].
    pub fn read(&self, name: &Name, range: Option<Range<u64>>) -> Result<Vec<u8>, Error> {
        self.runtime.wait(self.inner.read(name, range))
    }

    /// Writes a file from memory, like [`crate::Client::write`].
    pub fn write(
        &self,
        name: &Name,
        bytes: impl AsRef<[u8]>,
        options: CopyOptions,
    ) -> Result<Report, Error> {
        self.runtime.wait(self.inner.write(name, bytes, options))
    }

    /// Returns the daemon's public key, and its name if the peers file has one.
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub fn peer(&self) -> Result<(PublicKey, Option<String>), Error> {
        self.runtime.wait(self.inner.peer())
    }

    /// Returns the absolute path of the directory that the daemon serves to this client, which names
    /// are relative to. `None` if the daemon serves other storage, or does not tell.
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub fn root(&self) -> Result<Option<PathBuf>, Error> {
        self.runtime.wait(self.inner.root())
    }

    /// Returns the links of the session, and the reasons why other interfaces are not used. Waits
    /// at most 2 s for links that are still connecting.
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub fn links(&self) -> Result<LinkSurvey, Error> {
        self.runtime.wait(self.inner.links())
    }

    /// Closes the session. Running transfers are interrupted and can be resumed.
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

/// Running transfer. Dropping it interrupts it; data that is durable at the receiver remains, so
/// that repeating the transfer resumes.
pub struct Transfer {
    inner: client::Transfer,
    /// Runtime of the transfer. The last field, so that it is dropped after the task that runs on
    /// it.
    runtime: Arc<OwnRuntime>,
}

impl Transfer {
    /// Waits for the next event; returns `None` once the transfer has ended.
    pub fn next_event(&mut self) -> Option<Event> {
        self.runtime.wait(self.inner.next_event())
    }

    /// Waits at most `most` for the next event. Returns `Ok(None)` once the transfer has ended.
    ///
    /// # Errors
    ///
    /// [`NoEvent`] on timeout.
    pub fn next_event_within(&mut self, most: Duration) -> Result<Option<Event>, NoEvent> {
        // The timer must be created inside the runtime.
        self.runtime
            .wait(async { tokio::time::timeout(most, self.inner.next_event()).await })
            .map_err(|_| NoEvent)
    }

    /// Interrupts the transfer without waiting for its end. The receiver makes the data received so
    /// far durable, so that repeating the transfer resumes.
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// Returns the current progress, like [`crate::Transfer::progress`].
    pub fn progress(&self) -> Progress {
        self.inner.progress()
    }

    /// Returns a token that lets another thread cancel the transfer.
    pub fn cancel_token(&self) -> CancellationToken {
        self.inner.cancel_token()
    }

    /// Waits until the transfer ends. `Ok` means that the whole file is durable at the receiver
    /// under its name.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn finish(self) -> Result<Report, Error> {
        let Self { inner, runtime } = self;
        runtime.wait(inner.finish())
    }
}

/// Error of [`Transfer::next_event_within`]: no event arrived before the timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no event before the timeout")]
pub struct NoEvent;

/// Runtime that may be dropped in async code too, where dropping a [`Runtime`] panics.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn start() -> Result<Self, Error> {
        let runtime = nicstripe_link::check_threads(WORKERS + 1);
        let runtime = runtime.and_then(|()| {
            Builder::new_multi_thread()
                .worker_threads(WORKERS)
                .thread_name("nicstripe")
                .enable_all()
                .build()
        });
        runtime
            .map(|runtime| Self(Some(runtime)))
            .map_err(|source| Error::system("start threads", source))
    }

    fn runtime(&self) -> &Runtime {
        // Taken only in `drop`.
        self.0
            .as_ref()
            .unwrap_or_else(|| unreachable!("the runtime exists until drop"))
    }

    fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime().block_on(what)
    }

    /// Runs a closure with this runtime entered, so that it can spawn tasks on it.
    fn within<T>(&self, what: impl FnOnce() -> T) -> T {
        let _here = self.runtime().enter();
        what()
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Does not wait: blocking is not allowed in every context where this is dropped.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

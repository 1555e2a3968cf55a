//! Blocking calls of the client: see [`crate::blocking`].

mod exec;
mod objects;
#[cfg(feature = "trees")]
mod trees;
mod tunnels;
pub(crate) mod waiter;

use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};

use nicstripe_link::facts::Facts;
use nicstripe_proto::{ETag, Name, ObjectAttributes};
use tokio_util::sync::CancellationToken;

use self::waiter::Waiter;
pub use self::{
    exec::{MOST_OUTPUT, Output},
    objects::{Entries, ObjectReader, ObjectWriter},
    tunnels::{Listener, Tunnel, TunnelReader, TunnelWriter},
};
use crate::{
    client::{
        self, ClientBuilder, ConnectedPeer, Content, Entry, Head, NotRemoved, OpenOptions, Stat,
    },
    file::options::{CopyOptions, RenameOptions},
    report::{
        Report,
        error::Error,
        event::{Event, Progress},
        survey::LinkSurvey,
    },
};

/// Client of one daemon, with blocking calls. Cheap to clone; clones share one session and one
/// runtime.
///
/// These calls start transfers, which run concurrently as with [`crate::Client`];
/// [`Transfer::finish`] waits for one. Dropping the last clone and the last transfer aborts all
/// work at once, as killing the process does. [`Client::close`] closes the session instead.
///
/// A call waits as long as the async one. [`within`](Self::within) and
/// [`interrupted_by`](Self::interrupted_by) return a client whose calls end earlier.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) inner: client::Client,
    /// The last field, so that its runtime is dropped after the tasks that run on it.
    pub(crate) waiter: Waiter,
}

impl Client {
    /// Connects to a host by name or address, like [`ClientBuilder::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`ClientBuilder::connect`]; [`Error::System`] if the threads cannot be started.
    pub fn connect(builder: ClientBuilder, host: &str) -> Result<Self, Error> {
        let waiter = Waiter::start()?;
        Self::connected(builder, host, waiter)
    }

    /// Connects like [`Client::connect`], at most for `most`, and returns a client
    /// [`within`](Self::within) `most`.
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`]; [`Error::TimedOut`].
    pub fn connect_within(
        builder: ClientBuilder,
        host: &str,
        most: Duration,
    ) -> Result<Self, Error> {
        let mut waiter = Waiter::start()?;
        waiter.most = Some(most);
        Self::connected(builder, host, waiter)
    }

    /// Connects like [`Client::connect`], and returns a client [`until`](Self::until) `is_over`.
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`]; [`Error::Cancelled`] once `is_over` returns true.
    pub fn connect_until(
        builder: ClientBuilder,
        host: &str,
        is_over: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let mut waiter = Waiter::start()?;
        waiter.check = Some(Arc::new(is_over));
        Self::connected(builder, host, waiter)
    }

    fn connected(builder: ClientBuilder, host: &str, waiter: Waiter) -> Result<Self, Error> {
        let inner = waiter.call(builder.connect(host))?;
        Ok(Self { inner, waiter })
    }

    /// Returns the async client, for calls that are not here. It shares the session, and works as
    /// long as one of these clients or their values exists.
    pub fn as_async(&self) -> &client::Client {
        &self.inner
    }

    /// Returns a client of the same session each of whose calls ends with [`Error::TimedOut`] after
    /// `most`. So do waits of the values that it returns: a read, the end of a transfer.
    pub fn within(&self, most: Duration) -> Self {
        let mut client = self.clone();
        client.waiter.most = Some(most);
        client
    }

    /// Returns a client of the same session whose calls, and waits of the values that it returns, end
    /// with [`Error::Cancelled`] once `interrupt` is cancelled, by another thread or a signal.
    pub fn interrupted_by(&self, interrupt: CancellationToken) -> Self {
        let mut client = self.clone();
        client.waiter.interrupt = Some(interrupt);
        client
    }

    /// Returns a client of the same session whose calls, and waits of the values that it returns, end
    /// with [`Error::Cancelled`] once `is_over` returns true. The thread that waits calls it first and
    /// then every 50 ms: for a program that learns of a signal only when it asks, as an interpreter.
    pub fn until(&self, is_over: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let mut client = self.clone();
        client.waiter.check = Some(Arc::new(is_over));
        client
    }

    /// Sends a file, like [`crate::Client::put`].
    pub fn put(
        &self,
        source: impl Into<PathBuf>,
        name: Option<Name>,
        options: CopyOptions,
    ) -> Transfer {
        self.start(|client| client.put(source, name, options))
    }

    /// Fetches a file, like [`crate::Client::get`].
    pub fn get(&self, name: Name, target: impl Into<PathBuf>, options: CopyOptions) -> Transfer {
        self.start(|client| client.get(name, target, options))
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
        self.waiter.call(self.inner.list(dir))
    }

    /// Returns the metadata of a name, like [`crate::Client::stat`].
    pub fn stat(&self, name: &Name) -> Result<Stat, Error> {
        self.waiter.call(self.inner.stat(name))
    }

    /// Removes a file or an empty directory, like [`crate::Client::remove`].
    pub fn remove(&self, name: &Name) -> Result<(), Error> {
        self.waiter.call(self.inner.remove(name))
    }

    /// Renames a file or directory, like [`crate::Client::rename`].
    pub fn rename(&self, from: &Name, to: &Name, options: RenameOptions) -> Result<(), Error> {
        self.waiter.call(self.inner.rename(from, to, options))
    }

    /// Removes many files and empty directories, like [`crate::Client::remove_many`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::remove_many`].
    pub fn remove_many(&self, names: &[Name]) -> Result<Vec<NotRemoved>, Error> {
        self.waiter.call(self.inner.remove_many(names))
    }

    /// Removes many files and nothing else, like [`crate::Client::remove_files`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::remove_files`].
    pub fn remove_files(&self, names: &[Name]) -> Result<Vec<NotRemoved>, Error> {
        self.waiter.call(self.inner.remove_files(names))
    }

    /// Copies a file at the daemon, like [`crate::Client::copy`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::copy`].
    pub fn copy(&self, from: &Name, to: &Name, options: RenameOptions) -> Result<Stat, Error> {
        self.waiter.call(self.inner.copy(from, to, options))
    }

    /// Makes one file of others at the daemon, like [`crate::Client::concat`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::concat`].
    pub fn concat(&self, parts: &[Name], to: &Name, options: RenameOptions) -> Result<Stat, Error> {
        self.waiter.call(self.inner.concat(parts, to, options))
    }

    /// Reads a file at the daemon and compares its hash, like [`crate::Client::verify`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::verify`].
    pub fn verify(&self, name: &Name) -> Result<Stat, Error> {
        self.waiter.call(self.inner.verify(name))
    }

    /// Creates a directory and its missing parents, like [`crate::Client::make_dir`].
    pub fn make_dir(&self, name: &Name) -> Result<(), Error> {
        self.waiter.call(self.inner.make_dir(name))
    }

    /// Reads a file or a range of it into memory, like [`crate::Client::read`].
    pub fn read(&self, name: &Name, range: Option<Range<u64>>) -> Result<Vec<u8>, Error> {
        self.waiter.call(self.inner.read(name, range))
    }

    /// Writes a file from memory, like [`crate::Client::write`].
    pub fn write(
        &self,
        name: &Name,
        bytes: impl AsRef<[u8]>,
        options: CopyOptions,
    ) -> Result<Report, Error> {
        self.waiter.call(self.inner.write(name, bytes, options))
    }

    /// Writes a file with attributes from memory, like [`crate::Client::write_with`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::write_with`].
    pub fn write_with(
        &self,
        name: &Name,
        bytes: impl AsRef<[u8]>,
        options: CopyOptions,
        attributes: &ObjectAttributes,
    ) -> Result<Report, Error> {
        let written = self.inner.write_with(name, bytes, options, attributes);
        self.waiter.call(written)
    }

    /// Returns the metadata of a name with the attributes of a file, like [`crate::Client::head`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::head`].
    pub fn head(&self, name: &Name) -> Result<Head, Error> {
        self.waiter.call(self.inner.head(name))
    }

    /// Returns the daemon's public key, and its name if the peers file has one.
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub fn peer(&self) -> Result<ConnectedPeer, Error> {
        self.waiter.call(self.inner.peer())
    }

    /// Returns the absolute path of the directory that the daemon serves to this client, which names
    /// are relative to. `None` if the daemon serves other storage, or does not tell.
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub fn root(&self) -> Result<Option<PathBuf>, Error> {
        self.waiter.call(self.inner.root())
    }

    /// Returns the links of the session, and the reasons why other interfaces are not used. Waits
    /// at most 2 s for links that are still connecting.
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub fn links(&self) -> Result<LinkSurvey, Error> {
        self.waiter.call(self.inner.links())
    }

    /// Reads a range of a file into memory of the caller, like [`crate::Client::read_into`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::read`].
    pub fn read_into(&self, name: &Name, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.waiter.call(self.inner.read_into(name, offset, into))
    }

    /// Opens a file for sequential or random reads, like [`crate::Client::open`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::open`].
    pub fn open(&self, name: &Name) -> Result<ObjectReader, Error> {
        Ok(ObjectReader {
            inner: self.waiter.call(self.inner.open(name))?,
            waiter: self.waiter.clone(),
        })
    }

    /// Opens a range of a file, like [`crate::Client::open_with`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::open_with`].
    pub fn open_with(&self, name: &Name, options: OpenOptions) -> Result<ObjectReader, Error> {
        Ok(ObjectReader {
            inner: self.waiter.call(self.inner.open_with(name, options))?,
            waiter: self.waiter.clone(),
        })
    }

    /// Reads a file or a range of it with its metadata, like [`crate::Client::read_with`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::read_with`].
    pub fn read_with(&self, name: &Name, options: OpenOptions) -> Result<Content, Error> {
        self.waiter.call(self.inner.read_with(name, options))
    }

    /// Removes a file if it has an entity tag, like [`crate::Client::remove_if`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::remove_if`].
    pub fn remove_if(&self, name: &Name, tag: ETag) -> Result<(), Error> {
        self.waiter.call(self.inner.remove_if(name, tag))
    }

    /// Creates a file of unknown length, like [`crate::Client::create`].
    pub fn create(&self, name: &Name, options: CopyOptions) -> ObjectWriter {
        ObjectWriter {
            inner: self.inner.create(name, options),
            waiter: self.waiter.clone(),
        }
    }

    /// Creates a file with attributes, like [`crate::Client::create_with`].
    pub fn create_with(
        &self,
        name: &Name,
        options: CopyOptions,
        attributes: &ObjectAttributes,
    ) -> ObjectWriter {
        ObjectWriter {
            inner: self.inner.create_with(name, options, attributes),
            waiter: self.waiter.clone(),
        }
    }

    /// Lists a directory entry by entry, like [`crate::Client::entries`].
    pub fn entries(&self, dir: Option<Name>) -> Entries {
        Entries {
            inner: self.inner.entries(dir),
            waiter: self.waiter.clone(),
            has_failed: false,
        }
    }

    /// Lists a directory and those below it entry by entry, like [`crate::Client::walk`].
    pub fn walk(&self, dir: Option<Name>) -> Entries {
        Entries {
            inner: self.inner.walk(dir),
            waiter: self.waiter.clone(),
            has_failed: false,
        }
    }

    /// Connects to a service through the daemon, like [`crate::Client::dial`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::dial`].
    pub fn dial(&self, target: &str) -> Result<Tunnel, Error> {
        let tunnel = self.waiter.call(self.inner.dial(target))?;
        Ok(Tunnel::new(tunnel, self.waiter.clone()))
    }

    /// Listens at the daemon, like [`crate::Client::listen`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::listen`].
    pub fn listen(&self, address: &str) -> Result<Listener, Error> {
        Ok(Listener {
            inner: self.waiter.call(self.inner.listen(address))?,
            waiter: self.waiter.clone(),
        })
    }

    /// Runs a command at the daemon to its end, with its whole input, like
    /// [`crate::Client::exec`]. Of a command with more input or output than fits into memory, use
    /// the streams of that call.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::exec`]; an output is longer than [`MOST_OUTPUT`].
    pub fn exec(
        &self,
        words: impl IntoIterator<Item: Into<Vec<u8>>>,
        stdin: impl Into<Vec<u8>>,
    ) -> Result<Output, Error> {
        let words = words.into_iter().map(Into::into).collect();
        let output = exec::output(&self.inner, words, stdin.into());
        self.waiter.call(output)
    }

    /// Returns facts about the daemon's machine, like [`crate::Client::facts`].
    ///
    /// # Errors
    ///
    /// Those of [`crate::Client::facts`].
    pub fn facts(&self) -> Result<Facts, Error> {
        self.waiter.call(self.inner.facts())
    }

    /// Closes this client and its clones, like [`crate::Client::close`]. A wait that ends early leaves
    /// the session to the runtime.
    pub fn close(self) {
        let Self { inner, waiter } = self;
        let _ = waiter.call(async {
            inner.close().await;
            Ok(())
        });
    }

    fn start(&self, job: impl FnOnce(&client::Client) -> client::Transfer) -> Transfer {
        Transfer {
            inner: self.waiter.within(|| job(&self.inner)),
            waiter: self.waiter.clone(),
        }
    }
}

/// Blocking calls of a client that async code has connected. Its runtime must have a thread of its
/// own, as a multi-threaded one has, and the calls must not come from its tasks.
impl From<client::Client> for Client {
    fn from(inner: client::Client) -> Self {
        let waiter = Waiter::on(inner.runtime().clone());
        Self { inner, waiter }
    }
}

/// Running transfer. Dropping it interrupts it; data that is durable at the receiver remains, so
/// that repeating the transfer resumes.
#[derive(Debug)]
pub struct Transfer {
    inner: client::Transfer,
    /// The last field, so that its runtime is dropped after the task that runs on it.
    waiter: Waiter,
}

impl Transfer {
    /// Waits for the next event; returns `None` once the transfer has ended.
    pub fn next_event(&mut self) -> Option<Event> {
        self.waiter.wait(self.inner.next_event())
    }

    /// Waits at most `most` for the next event. Returns `Ok(None)` once the transfer has ended.
    ///
    /// # Errors
    ///
    /// [`NoEvent`] on timeout.
    pub fn next_event_within(&mut self, most: Duration) -> Result<Option<Event>, NoEvent> {
        // The timer must be created inside the runtime.
        self.waiter
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
        let Self { inner, waiter } = self;
        waiter.call(inner.finish())
    }
}

/// Error of [`Transfer::next_event_within`]: no event arrived before the timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no event before the timeout")]
pub struct NoEvent;

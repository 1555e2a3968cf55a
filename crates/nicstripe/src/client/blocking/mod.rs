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

/// Calls of the async client, with a wait for each.
macro_rules! waits_for {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Client {
            $(
                #[doc = concat!("Waits for [`crate::Client::", stringify!($name), "`].")]
                ///
                /// # Errors
                ///
                #[doc = concat!("Those of [`crate::Client::", stringify!($name), "`].")]
                pub fn $name(&self, $($argument: $kind),*) -> Result<$result, Error> {
                    self.waiter.call(self.inner.$name($($argument),*))
                }
            )*
        }
    };
}

waits_for! {
    list(dir: Option<&Name>) -> Vec<Entry>;
    stat(name: &Name) -> Stat;
    remove(name: &Name) -> ();
    rename(from: &Name, to: &Name, options: RenameOptions) -> ();
    remove_many(names: &[Name]) -> Vec<NotRemoved>;
    remove_files(names: &[Name]) -> Vec<NotRemoved>;
    copy(from: &Name, to: &Name, options: RenameOptions) -> Stat;
    concat(parts: &[Name], to: &Name, options: RenameOptions) -> Stat;
    verify(name: &Name) -> Stat;
    make_dir(name: &Name) -> ();
    read(name: &Name, range: Option<Range<u64>>) -> Vec<u8>;
    write(name: &Name, bytes: impl AsRef<[u8]>, options: CopyOptions) -> Report;
    write_with(name: &Name, bytes: impl AsRef<[u8]>, options: CopyOptions, attributes: &ObjectAttributes) -> Report;
    head(name: &Name) -> Head;
    peer() -> ConnectedPeer;
    root() -> Option<PathBuf>;
    links() -> LinkSurvey;
    read_into(name: &Name, offset: u64, into: &mut [u8]) -> usize;
    read_with(name: &Name, options: OpenOptions) -> Content;
    remove_if(name: &Name, tag: ETag) -> ();
    facts() -> Facts;
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

//! Handle of a client, whose clones share one session.

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{Name, message::Feature};
use tokio::runtime::Handle;

use super::{
    builder::ClientBuilder,
    files::{FileDownload, FileUpload},
    request::{Once, Request, download_of},
    sessions::Inner,
    transfer::Transfer,
};
use crate::{
    file::options::CopyOptions,
    report::{error::Error, survey::LinkSurvey},
    session::kind::{Upload, pipe},
    trust::{Identity, PublicKey},
};

/// Daemon that a client is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectedPeer {
    /// Public key, which the daemon has proved.
    pub key: PublicKey,
    /// Name of the key in the local peers file; `None` if it has none.
    pub name: Option<String>,
}

/// Client of one daemon: uploads and downloads files and trees. Cheap to clone; clones share one
/// session.
///
/// Up to [`MOST_TRANSFERS`](crate::MOST_TRANSFERS) transfers run concurrently. Each has its own
/// events, counters and result; a failed or cancelled one does not affect the others. Their chunks
/// are sent round-robin, so that a small transfer does not wait for a large one. Every transfer
/// receives the link events.
///
/// All its work runs on the tokio runtime of [`ClientBuilder::connect`], whatever thread or executor
/// makes a call. Once that runtime has been dropped, calls end with [`Error::RuntimeEnded`]; in a
/// child process that `fork` made, with [`Error::Forked`].
///
/// A call waits for a daemon that was lost as long as [`patience`](ClientBuilder::patience) allows,
/// and those that change nothing, or to the same again, are repeated:
///
/// | call | waits for the daemon | repeated if the session is lost on the way |
/// | --- | --- | --- |
/// | [`connect`](ClientBuilder::connect) | while it is full or accepts too slowly | |
/// | `put`, `get`, `put_tree`, `get_tree` | yes | yes; resumes |
/// | `write`, `make_dir`, `read`, reads of an [`ObjectReader`](crate::ObjectReader) | yes | yes |
/// | `stat`, `list`, `entries`, `walk`, `open` | yes | yes |
/// | `copy` | yes | yes; begins again |
/// | `put_pipe`, `get_pipe`, `create` | yes | only before the first byte: what has passed is gone |
/// | `remove`, `remove_many`, `rename` | yes | only if unsent: may have been carried out |
/// | `exec`, `dial`, `listen`, `facts`, `bench` | yes | no |
/// | `peer`, `root`, `links` | yes | |
#[derive(Clone)]
pub struct Client {
    pub(super) inner: Arc<Inner>,
}

impl Client {
    /// Returns a builder with default settings.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().port(7748).streams(2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Sends the file `source`. `name` is relative to the daemon's root. If `name` is a directory
    /// or `None`, the file is created in it under its own name.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let options = CopyOptions { replace: true, preserve: true, ..CopyOptions::default() };
    /// let report = client
    ///     .put("disk.img", Some(Name::parse(b"images/disk.img")?), options)
    ///     .finish()
    ///     .await?;
    /// println!("{} bytes at {}", report.size, report.goodput());
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(
        &self,
        source: impl Into<PathBuf>,
        name: Option<Name>,
        options: CopyOptions,
    ) -> Transfer {
        self.start(FileUpload {
            source: source.into(),
            name,
            options,
            trial: false,
        })
    }

    /// Fetches the file `name`, relative to the daemon's root, into the local path `target`. If
    /// `target` is a directory or ends in a slash, the file is created in it under its own name.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let name = Name::parse(b"images/disk.img")?;
    /// let report = client
    ///     .get(name, "restored.img", CopyOptions::default())
    ///     .finish()
    ///     .await?;
    /// println!("{} bytes", report.size);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, name: Name, target: impl Into<PathBuf>, options: CopyOptions) -> Transfer {
        self.start(FileDownload {
            name,
            target: target.into(),
            options,
            trial: false,
        })
    }

    /// Sends the bytes of `reader` until end of file, as the file `name` below the daemon's root.
    ///
    /// The daemon creates the name only after all data has arrived. A read error ends the transfer
    /// and leaves no file. A dedicated thread reads from `reader`.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let mut dump = std::process::Command::new("pg_dump")
    ///     .stdout(std::process::Stdio::piped())
    ///     .spawn()?;
    /// let output = dump.stdout.take().ok_or("no output")?;
    /// client.put_pipe(output, Name::parse(b"db.sql")?, CopyOptions::default()).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_pipe(
        &self,
        reader: impl std::io::Read + Send + 'static,
        name: Name,
        options: CopyOptions,
    ) -> Transfer {
        let upload = Upload {
            name,
            into: None,
            options: options.on_wire(),
            attributes: None,
        };
        let needed = options.only_if.map(|_| Feature::Tags);
        self.start(Once::pipe(pipe::source(reader, upload)).needing(needed))
    }

    /// Fetches the file `name` below the daemon's root into a writer, in order. At most
    /// [`PIPE_WINDOW`](crate::PIPE_WINDOW) received bytes wait for the writer: a slow writer
    /// throttles the sender and blocks no link. A dedicated thread writes to the writer.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let file = std::fs::File::create("db.sql")?;
    /// client.get_pipe(Name::parse(b"db.sql")?, file, CopyOptions::default()).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_pipe(
        &self,
        name: Name,
        writer: impl std::io::Write + Send + 'static,
        options: CopyOptions,
    ) -> Transfer {
        let download = download_of(name, self.inner.limit_bps(), options, None);
        self.start(Once::pipe(pipe::sink(writer, download)))
    }

    /// Returns the daemon's public key, and its name if the peers file has one.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let peer = client.peer().await?;
    /// println!("{} is {}", peer.name.unwrap_or_default(), peer.key.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn peer(&self) -> Result<ConnectedPeer, Error> {
        let key = self.inner.session().await?.key;
        let name = self.inner.name_of(&key);
        Ok(ConnectedPeer { key, name })
    }

    /// Returns the absolute path of the directory that the daemon serves to this client, which names
    /// are relative to. `None` if the daemon serves other storage, or does not tell.
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub async fn root(&self) -> Result<Option<PathBuf>, Error> {
        Ok(self.inner.session().await?.peer.root)
    }

    /// Returns the links of the session, and the reasons why other interfaces are not used. Waits
    /// at most 2 s for links that are still connecting.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// for link in client.links().await?.links {
    ///     println!("{link:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The daemon is no longer reachable.
    pub async fn links(&self) -> Result<LinkSurvey, Error> {
        let inner = self.inner.clone();
        let surveyed = async move {
            let session = inner.session().await?;
            let ended = || Error::ended(&inner.host, "before its links were known");
            let deadline = Instant::now() + SURVEY_TIMEOUT;
            loop {
                let survey = session.survey().await.ok_or_else(ended)?;
                if survey.is_settled() || Instant::now() >= deadline {
                    return Ok(survey);
                }
                tokio::time::sleep(SURVEY_PAUSE).await;
            }
        };
        self.inner.runtime.run(surveyed).await?
    }

    /// Returns the daemon's host name or address as the caller gave it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), nicstripe::Error> {
    /// let client = nicstripe::Client::builder().connect("nas").await?;
    /// assert_eq!(client.host(), "nas");
    /// # Ok(())
    /// # }
    /// ```
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    /// Closes this client and its clones, whose later calls end with [`Error::Closed`]. Running
    /// transfers are interrupted and can be resumed.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client.put("disk.img", None, nicstripe::CopyOptions::default()).finish().await?;
    /// client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) {
        self.inner.close().await;
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime.handle
    }

    pub(super) fn start(&self, request: impl Request + 'static) -> Transfer {
        Transfer::start(self.inner.clone(), Box::new(request))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut client = f.debug_struct("Client");
        client
            .field("host", &self.inner.host)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Connects to a host by name or address, and creates a session.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Client, trust::{Home, Identity, Peers}};
    ///
    /// let home = Home::from_env()?;
    /// let client = Client::builder()
    ///     .identity(Identity::load_or_create(&home.identity_file())?)
    ///     .peers(Peers::load(&home.peers_file())?)
    ///     .connect("backup.lan")
    ///     .await?;
    /// println!("connected to {}", client.peer().await?.key.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Error`]; a failed attempt leaves nothing behind. [`Error::NoRuntime`] if the future is
    /// polled outside a tokio runtime.
    ///
    /// # Panics
    ///
    /// The runtime has no I/O or time driver (`enable_all` of its builder).
    pub async fn connect(self, host: &str) -> Result<Client, Error> {
        Error::require_runtime()?;
        let identity = match &self.identity {
            Some(identity) => identity.clone(),
            None => Identity::generate().map_err(|error| Error::failed("make a key", error))?,
        };
        let inner = Inner::new(self, identity, host)?;
        let client = Client {
            inner: Arc::new(inner),
        };
        let told = client.inner.settings.session.events.as_ref();
        client.inner.session_of(None, told).await?;
        Ok(client)
    }
}

/// Maximum wait in [`Client::links`] for links that are still connecting.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);

/// Polling interval of the link states in [`Client::links`].
const SURVEY_PAUSE: Duration = Duration::from_millis(20);

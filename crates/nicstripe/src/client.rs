//! The client: makes sessions and moves files over them.

mod builder;
mod carried;
mod claims;
mod contact;
mod establish;
mod feed;
mod jobs;
mod linker;
mod numbers;
mod objects;
mod probes;
mod reader;
mod sessions;
mod survey;
mod transfer;
mod trees;
mod tunnels;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    Name,
    message::{CloseCode, PutOptions},
};

pub use self::{
    builder::ClientBuilder,
    objects::{Entries, Entry, Kind, Stat},
    reader::ObjectReader,
    survey::{LinkReason, LinkRemedy, LinkSurvey, SurveyedLink, UnusedInterface},
    transfer::Transfer,
    writer::ObjectWriter,
};
use self::{
    jobs::{Job, PipeJob, TreeJob},
    linker::MOST_STREAMS,
    sessions::{Inner, LiveSession},
};
use crate::{
    bench::{Bench, BenchPlan},
    error::Error,
    path_routes::RouteKeeper,
    session::{Command, SessionHandle},
    tree::TreeOptions,
    trust::PublicKey,
};

/// How a file is copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Replace a file of that name; otherwise it is an error that there is one.
    pub replace: bool,
    /// Start from nothing although a partial file is there.
    pub restart: bool,
    /// Keep mode and modification time.
    pub preserve: bool,
    /// Read back what was written, from the disk, and compare before the file gets its name.
    pub verify: bool,
    /// Where a file of the name exists, send only the chunks of 256 KiB that differ from it; implies `replace` for that file.
    pub delta: bool,
    /// Write into the existing file rather than into a new one that takes its place; implies `delta`. What is interrupted leaves it mixed.
    pub in_place: bool,
    /// Compress chunks with zstd where that pays.
    pub compress: bool,
    /// Do not fail when the source changes while it is read: what is sent is what was read, up to the size that it had at first.
    pub allow_changing: bool,
    /// Make the directories that lead to the target, where they are missing.
    pub parents: bool,
}

impl From<CopyOptions> for PutOptions {
    fn from(options: CopyOptions) -> Self {
        let CopyOptions { replace, restart, preserve, verify, delta, in_place, parents, .. } = options;
        Self { replace, restart, preserve, verify, delta, in_place, trial: false, parents }
    }
}

/// Transfers of one client that run side by side; others wait for their turn. Each has files open at both ends.
pub const MOST_TRANSFERS: usize = 64;

/// A daemon that files are moved to and from. Cheap to clone; clones share one session.
///
/// Transfers run side by side, up to [`MOST_TRANSFERS`] of them, each with its own events, numbers and end: one that fails or is cancelled
/// takes no other along. Their chunks take turns, so that a small one does not wait for a large one. What happens to links is told to all.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl Client {
    /// Starts to set up a client.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().port(7748).streams(2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Sends the file `source`. `name` is relative to the daemon's root; where that is a directory, or `None`, the file goes into it under its
    /// own name.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let options = CopyOptions { replace: true, preserve: true, ..CopyOptions::default() };
    /// let report = client.put("disk.img".as_ref(), Some(Name::parse(b"images/disk.img")?), options).finish().await?;
    /// println!("{} bytes at {}", report.size, report.goodput());
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&self, source: &Path, name: Option<Name>, options: CopyOptions) -> Transfer {
        self.start(Job::Put { source: source.to_owned(), name, options, trial: false })
    }

    /// Sends a file as [`Client::put`] does, to a daemon that makes it durable and keeps nothing of it.
    pub(crate) fn try_put(&self, source: &Path, name: Option<Name>) -> Transfer {
        self.start(Job::Put { source: source.to_owned(), name, options: CopyOptions::default(), trial: true })
    }

    /// Fetches a file as [`Client::get`] does, makes it durable and keeps nothing of it.
    pub(crate) fn try_get(&self, name: Name, target: &Path) -> Transfer {
        self.start(Job::Get { name, target: target.to_owned(), options: CopyOptions::default(), trial: true })
    }

    /// Fetches the file `name` of the daemon's root. Where `target` is a directory or ends in a slash, the file goes into it under its own name.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let name = Name::parse(b"images/disk.img")?;
    /// let report = client.get(name, "restored.img".as_ref(), CopyOptions::default()).finish().await?;
    /// println!("{} bytes", report.size);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, name: Name, target: &Path, options: CopyOptions) -> Transfer {
        self.start(Job::Get { name, target: target.to_owned(), options, trial: false })
    }

    /// Sends files and trees. `name` is a directory relative to the daemon's root, or `None` for the root itself: each source goes into it
    /// under its own name, or, where the source's path ends in a slash, what is in it. With `as_name` and one source the source gets `name`
    /// itself, unless that is a directory.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, TreeOptions};
    /// let options = TreeOptions { recursive: true, ..TreeOptions::default() };
    /// let report = client.put_tree(vec!["photos".into()], Some(Name::parse(b"2026")?), false, options).finish().await?;
    /// let tree = report.tree.unwrap_or_default();
    /// println!("{} files, {} were there, {} failed", tree.files, tree.unchanged, tree.failed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_tree(&self, sources: Vec<PathBuf>, name: Option<Name>, as_name: bool, options: TreeOptions) -> Transfer {
        self.start(Job::Tree(TreeJob::Put { sources, name, as_name }, options))
    }

    /// Fetches files and trees into the directory `target`, as [`Client::put_tree`] sends them. Of each source the second part says that what
    /// is in it is meant, not itself; a source without a name is the daemon's root, whose content is meant.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, TreeOptions};
    /// let options = TreeOptions { recursive: true, ..TreeOptions::default() };
    /// let sources = vec![(Some(Name::parse(b"2026/photos")?), false)];
    /// client.get_tree(sources, "restored".as_ref(), false, options).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_tree(&self, sources: Vec<(Option<Name>, bool)>, target: &Path, as_name: bool, options: TreeOptions) -> Transfer {
        self.start(Job::Tree(TreeJob::Get { sources, target: target.to_owned(), as_name }, options))
    }

    /// Sends what a reader gives until its end, as the file `name` of the daemon's root.
    ///
    /// Nothing appears under the name before the end. A reader that fails ends the transfer, and nothing is left. Has to be called within a
    /// tokio runtime; the reader is read on a thread of its own.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let mut dump = std::process::Command::new("pg_dump").stdout(std::process::Stdio::piped()).spawn()?;
    /// let output = dump.stdout.take().ok_or("no output")?;
    /// client.put_pipe(output, Name::parse(b"db.sql")?, CopyOptions::default()).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_pipe(&self, reader: impl std::io::Read + Send + 'static, name: Name, options: CopyOptions) -> Transfer {
        self.start(Job::Pipe(Some(PipeJob::Put { reader: Box::new(reader), name }).into(), options))
    }

    /// Fetches the file `name` of the daemon's root into a writer, in order. What is written is at most [`PIPE_WINDOW`] bytes behind what has
    /// arrived: a writer that is slow holds back the sender and no link. Has to be called within a tokio runtime; the writer is written to on a
    /// thread of its own.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let file = std::fs::File::create("db.sql")?;
    /// client.get_pipe(Name::parse(b"db.sql")?, file, CopyOptions::default()).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_pipe(&self, name: Name, writer: impl std::io::Write + Send + 'static, options: CopyOptions) -> Transfer {
        self.start(Job::Pipe(Some(PipeJob::Get { name, writer: Box::new(writer) }).into(), options))
    }

    /// The daemon's key, and its name in the peers file.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let (key, name) = client.peer().await?;
    /// println!("{} is {}", name.unwrap_or_default(), key.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn peer(&self) -> Result<(PublicKey, Option<String>), Error> {
        let key = self.inner.session(None).await?.key;
        Ok((key, self.inner.name_of(&key)))
    }

    /// Returns the links of the session, and why other interfaces are none. Links that still connect are waited for, at most 2 s.
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
    /// The daemon cannot be reached any more.
    pub async fn links(&self) -> Result<LinkSurvey, Error> {
        let session = self.inner.session(None).await?;
        let gone = || Error::Ended { host: self.inner.host.clone(), why: "before its links were known".into() };
        let deadline = Instant::now() + SURVEY_TIMEOUT;
        loop {
            let survey = session.survey().await.ok_or_else(gone)?;
            if survey.is_settled() || Instant::now() >= deadline {
                return Ok(survey);
            }
            tokio::time::sleep(SURVEY_PAUSE).await;
        }
    }

    /// Measures what the links carry, as `plan` says.
    ///
    /// The daemon benches with one at a time, and not beside copies: it may have to be waited for. Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = client.bench(nicstripe::BenchPlan::default()).finish().await?;
    /// println!("{}", report.summary.sentence);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bench(&self, plan: BenchPlan) -> Bench {
        Bench::start(self.clone(), plan)
    }

    /// The way to the session, which lasts as long as the client.
    pub(crate) async fn session_handle(&self) -> Result<SessionHandle, Error> {
        Ok(self.inner.session(None).await?.handle)
    }

    /// What the daemon was called.
    pub(crate) fn host(&self) -> &str {
        &self.inner.host
    }

    /// Connects once more if there is a place, with so many connections a link where that is said, and with these socket buffers.
    pub(crate) async fn another(&self, streams: Option<u8>, socket_buffer: Option<u64>) -> Result<Self, Error> {
        let mut settings = self.inner.settings.clone();
        (settings.socket_buffer, settings.queues) = (socket_buffer, false);
        settings.streams = streams.map(|streams| streams.clamp(1, MOST_STREAMS)).or(settings.streams);
        settings.identity = Some(self.inner.identity.clone());
        settings.connect(&self.inner.host).await
    }

    /// What changes MTUs for a measurement; `None` without a state directory.
    pub(crate) fn keeper(&self) -> Option<RouteKeeper> {
        self.inner.settings.session_routes()
    }

    /// Ends the session in order. Transfers that run are interrupted and can be resumed.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client.put("disk.img".as_ref(), None, nicstripe::CopyOptions::default()).finish().await?;
    /// client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) {
        let session = self.inner.slot.lock().await.session.take();
        if let Some(session) = session {
            session.flush_tunnels().await;
            session.handle.command(Command::Close(CloseCode::Done)).await;
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.handle.ended.cancelled()).await;
        }
    }

    fn start(&self, job: Job) -> Transfer {
        Transfer::start(self.inner.clone(), job)
    }
}

/// How long an ended session may take to make durable what was written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long links may take to connect before they are told as they are.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two looks at them.
const SURVEY_PAUSE: Duration = Duration::from_millis(20);

/// Most bytes that have arrived for the writer of [`Client::get_pipe`] and are not written yet: 16 MiB, 10 Gbit/s for 13 ms.
pub const PIPE_WINDOW: u64 = 16 << 20;

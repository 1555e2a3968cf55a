//! Moves large files between two machines over every cable that joins them, and proves that what arrived is what was sent.
//!
//! A [`Daemon`] serves a directory; a [`Client`] puts files into it, gets files from it, and reads and writes objects in it. Between them is one
//! session with a connection on each link; it outlives any of them. This page is the guide; the command `nicstripe` is made of the same
//! library.
//!
//! # A first copy
//!
//! Two machines have a key each ([`trust::Identity`]) and speak only to keys that they know ([`trust::Peers`]). Both are values that the program
//! brings; [`trust::Home`] is where the command keeps them.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{Client, CopyOptions, trust::{Home, Identity, Peers}};
//!
//! let home = Home::from_env()?;
//! let client = Client::builder()
//!     .identity(Identity::load_or_create(&home.identity_file())?)
//!     .peers(Peers::load(&home.peers_file())?)
//!     .connect("backup.lan")
//!     .await?;
//! let report = client.put("disk.img".as_ref(), None, CopyOptions::default()).finish().await?;
//! println!("{} bytes at {}", report.size, report.goodput());
//! # Ok(())
//! # }
//! ```
//!
//! `Ok` means: the whole file is durable at the other end, under its name, and has the digest that the [`Report`] tells.
//! [`Client::put`] and [`Client::get`] move one file, [`Client::put_tree`] and [`Client::get_tree`] move trees, [`Client::put_pipe`] and
//! [`Client::get_pipe`] what a [`std::io::Read`] gives or a [`std::io::Write`] takes.
//!
//! # Objects
//!
//! What has no file here is written and read at the daemon as it is made: [`Client::create`] returns a `tokio::io::AsyncWrite` of a length that
//! nobody has to know, [`Client::open`] one that is read and sought in, [`Client::write`] and [`Client::read`] take and return bytes.
//! [`Client::list`], [`Client::stat`], [`Client::rename`], [`Client::remove`] and [`Client::make_dir`] do what they say, durably.
//!
//! ```no_run
//! # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CopyOptions, Name};
//! use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
//!
//! let name = Name::parse(b"packs/0001")?;
//! let mut object = client.create(&name, CopyOptions { parents: true, ..CopyOptions::default() });
//! object.write_all(b"some bytes, and more of them").await?;
//! // Until here nothing has the name; from here on it is there, whole and durable.
//! object.finish().await?;
//!
//! let mut object = client.open(&name).await?;
//! object.seek(std::io::SeekFrom::Start(5)).await?;
//! let mut bytes = [0; 5];
//! object.read_exact(&mut bytes).await?;
//! assert_eq!(&bytes, b"bytes");
//!
//! for entry in client.list(Some(&Name::parse(b"packs")?)).await? {
//!     println!("{:>12} {}", entry.stat.size, entry.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Many at once
//!
//! A [`Client`] is cheap to clone, and its clones share the session. Up to [`MOST_TRANSFERS`] transfers run side by side, and their chunks take
//! turns; more wait. One large object fills all links by itself, small ones want company: each waits for the daemon's disk once.
//!
//! ```no_run
//! # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CopyOptions, Name};
//!
//! let mut writing = tokio::task::JoinSet::new();
//! for number in 0..16 {
//!     let client = client.clone();
//!     let name = Name::parse(format!("packs/{number}").as_bytes())?;
//!     writing.spawn(async move { client.write(&name, vec![0; 1 << 20], CopyOptions::default()).await });
//! }
//! while let Some(written) = writing.join_next().await {
//!     written??;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Progress and events
//!
//! [`Transfer::progress`] is a snapshot: bytes, rates, and the same for each link. [`Transfer::next_event`] tells what happens: links that come
//! and go, a daemon that is waited for. Neither has to be used: at most 1024 [`Event`]s wait for their reader, then they are dropped.
//!
//! ```no_run
//! # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CopyOptions, Event};
//!
//! let mut transfer = client.put("disk.img".as_ref(), None, CopyOptions::default());
//! while let Some(event) = transfer.next_event().await {
//!     match event {
//!         Event::Progress(progress) => println!("{} of {} bytes at {}", progress.bytes, progress.size, progress.rate),
//!         Event::Link { link, state } => println!("{}: {state:?}", link.interface),
//!         _ => {}
//!     }
//! }
//! transfer.finish().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Cancel and resume
//!
//! Dropping what this crate returns, at any await point, ends what it does. A [`Transfer`] of a file or a tree that is dropped or
//! [cancelled](Transfer::cancel) leaves what has arrived durable at the receiver, and the same call made again, by this process or a later one,
//! goes on there; [`Error::is_resumable`] says so. An object that is dropped before [`ObjectWriter::finish`] leaves nothing: what made its bytes
//! is gone.
//!
//! # Errors, and what to try again
//!
//! Every call returns [`Error`], whose variants are split by who must act. [`Error::is_retryable`] says that the same call may succeed later
//! without anybody changing anything, [`Error::is_not_found`] and [`Error::fail_code`] what stands against it for good. A link that is lost is
//! no error as long as another is left, or comes back within [`ClientBuilder::patience`]. Copies of files and trees wait for a daemon that is
//! restarted; calls that cannot be repeated by the library, as their bytes are gone, are the caller's to repeat:
//!
//! ```no_run
//! # async fn example(client: nicstripe::Client, name: nicstripe::Name, pack: Vec<u8>) -> Result<(), nicstripe::Error> {
//! use nicstripe::{CopyOptions, FailCode};
//!
//! loop {
//!     match client.write(&name, &pack, CopyOptions::default()).await {
//!         Err(error) if error.is_retryable() => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
//!         // Of a name that its content gives: an attempt before, whose answer was lost.
//!         Err(error) if error.fail_code() == Some(FailCode::Exists) => return Ok(()),
//!         written => return written.map(drop),
//!     }
//! }
//! # }
//! ```
//!
//! # A daemon of one's own
//!
//! [`Daemon::builder`] takes what a program has: identity, peers or their file, root, addresses or interfaces. [`Daemon::run`] serves until it
//! is told to end, [`DaemonHandle`] reads its numbers and changes its limits meanwhile.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CancellationToken, Daemon, trust::{Home, Identity}};
//!
//! let home = Home::at("/etc/backup-tool");
//! let daemon = Daemon::builder()
//!     .identity(Identity::load_or_create(&home.identity_file())?)
//!     .peers_file(home.peers_file())
//!     .root("/srv/backups".into())
//!     .bind()
//!     .await?;
//! let shutdown = CancellationToken::new();
//! let running = tokio::spawn(daemon.run(shutdown.clone()));
//! // Sessions end in order: what has arrived becomes durable.
//! shutdown.cancel();
//! running.await??;
//! # Ok(())
//! # }
//! ```
//!
//! It may also hand over its [listening sockets](DaemonBuilder::listeners), an [open directory](DaemonBuilder::root_handle), or another
//! [`storage`] than a directory.
//!
//! # Tunnels
//!
//! [`Client::dial`] connects with a TCP service that the daemon reaches and this peer may: an `AsyncRead` and `AsyncWrite` that all links carry.
//!
//! # Threads and runtime
//!
//! Programs without async code use [`blocking`], which has the same client on a runtime of its own.
//!
//! Everything async runs on the tokio runtime that calls it, with I/O and time enabled; either kind of runtime does. Files are read, hashed and
//! written on a few I/O threads that a [`Client`] or [`Daemon`] owns and that end with it. There is no thread per object; pipes have one, as what
//! they read may block.
//!
//! # What it never does
//!
//! It has no global state, prints nothing, handles no signal, installs no logger (it speaks through `tracing`), and reads no environment but in
//! [`trust::Home::from_env`]. Routes and MTUs are left alone unless the program gives a [state directory](ClientBuilder::state_dir) or a
//! [`routes::RouteKeeper`]; only then may a process be started, the helper `nicstripe-routes`. Unsafe code is in the crate `nicstripe-link`
//! alone.
//!
//! # Features
//!
//! There are none: what the crate does is always in it. It runs on Linux.
//!
//! # The way of a byte
//!
//! [`Client::put`] opens a file, the session reads a chunk on an I/O thread, hands it to the path that asked for it, whose connection encrypts it;
//! at the other end the connection decrypts it, an I/O thread verifies and writes it, the session makes it durable, and acknowledges.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bench;
pub mod blocking;
mod client;
mod connect;
mod daemon;
pub mod discovery;
mod error;
mod event;
mod file;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod here;
#[cfg(test)]
mod hostile;
mod link;
pub mod links;
mod logged;
mod path_routes;
mod plan;
mod report;
pub mod routes;
mod session;
pub mod storage;
mod stream;
mod tls;
mod tree;
pub mod trust;
mod tunnel;
mod unreached;

pub use self::{
    bench::{Bench, BenchEvent, BenchLimits, BenchPlan, BenchReport},
    client::{
        Client, ClientBuilder, CopyOptions, Entries, Entry, Kind, LinkReason, LinkRemedy, LinkSurvey, MOST_TRANSFERS, ObjectReader,
        ObjectWriter, PIPE_WINDOW, Stat, SurveyedLink, Transfer, UnusedInterface,
    },
    daemon::{Daemon, DaemonBuilder, DaemonHandle, Direction, Histogram, InterfaceBytes, Limits, ListenAddress, Metrics, PathCounts},
    error::Error,
    event::{Event, LinkName, LinkProgress, LinkState, Progress},
    file::FileError,
    link::{Family, LinkEnd, LinkRequest, LinkRequestError, RoutePolicy},
    report::{KernelView, Limit, LinkReport, Report},
    tree::{EntryOutcome, FailedEntry, TreeOptions, TreeReport},
    tunnel::Tunnel,
    unreached::{Cables, Tried, Unreached},
};
pub use nicstripe_proto::{
    BitRate, Digest, FailCode, Name, NameError,
    name::{escaped, printable},
    tree::Verdict,
    tunnel::TargetRefusal,
};
pub use tokio_util::sync::CancellationToken;

/// Port that daemons listen on unless told otherwise; registered with nobody, free in /etc/services.
pub const DEFAULT_PORT: u16 = 7747;

/// Returns an error and its causes in one line, joined by `: `.
///
/// ```
/// let error = std::io::Error::other("no route to host");
/// assert_eq!(nicstripe::chain(&error), "no route to host");
/// ```
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Random bytes of the operating system.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // aws-lc aborts the process rather than return an error when the system has no random numbers; its signature has one all the same.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        tracing::error!("the system has no random numbers");
    }
    bytes
}

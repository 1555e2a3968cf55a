//! Moves large files between two machines over every cable that joins them, and verifies that the
//! received bytes are the sent ones.
//!
//! A [`Daemon`] serves a directory. A [`Client`] uploads files to it, downloads files from it, and
//! reads and writes objects in it. Both share one session with a connection on each link; the
//! session outlives any of these connections. This page is the guide. The command `nicstripe` is
//! built on the same library.
//!
//! # A first copy
//!
//! Each machine has a key ([`trust::Identity`]) and accepts only peers whose keys it knows
//! ([`trust::Peers`]). The program provides both values; [`trust::Home`] is the folder where the
//! command stores them. [`invitation`] exchanges the keys of two machines by a short code.
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
//! let report = client.put("disk.img", None, CopyOptions::default()).finish().await?;
//! println!("{} bytes at {}", report.size, report.goodput());
//! # Ok(())
//! # }
//! ```
//!
//! `Ok` means that the whole file is durable at the receiver, under its name, with the digest in
//! the [`Report`]. [`Client::put`] and [`Client::get`] copy one file, [`Client::put_tree`] and
//! [`Client::get_tree`] copy trees. [`Client::put_pipe`] sends the bytes of a [`std::io::Read`],
//! [`Client::get_pipe`] writes to a [`std::io::Write`].
//!
//! # Objects
//!
//! Data that is not a local file is read and written directly at the daemon. [`Client::create`]
//! returns a `tokio::io::AsyncWrite` whose length need not be known in advance. [`Client::open`]
//! returns a reader that can seek. [`Client::write`] and [`Client::read`] take and return bytes.
//! [`Client::list`], [`Client::stat`], [`Client::rename`], [`Client::remove`] and
//! [`Client::make_dir`] manage names; their changes are durable.
//!
//! ```no_run
//! # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CopyOptions, Name};
//! use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
//!
//! let name = Name::parse(b"packs/0001")?;
//! let mut object = client.create(&name, CopyOptions { parents: true, ..CopyOptions::default() });
//! object.write_all(b"some bytes, and more of them").await?;
//! // Only now does the daemon create the name, with the complete and durable object.
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
//! # Concurrent transfers
//!
//! A [`Client`] is cheap to clone, and its clones share the session. Up to [`MOST_TRANSFERS`]
//! transfers run concurrently, and their chunks are sent round-robin; further transfers wait. One
//! large object fills all links. Send small objects concurrently, because each waits once for the
//! daemon's disk.
//!
//! ```no_run
//! # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CopyOptions, Name};
//!
//! let mut writing = tokio::task::JoinSet::new();
//! for number in 0..16 {
//!     let client = client.clone();
//!     let name = Name::parse(format!("packs/{number}").as_bytes())?;
//!     writing.spawn(async move {
//!         client.write(&name, vec![0; 1 << 20], CopyOptions::default()).await
//!     });
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
//! [`Transfer::progress`] is a snapshot: bytes and rates, in total and per link.
//! [`Transfer::next_event`] reports events, such as a link that comes up or fails, or a wait for
//! the daemon. Reading them is optional: at most 1024 [`Event`]s are queued, further ones are
//! dropped.
//!
//! ```no_run
//! # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CopyOptions, Event};
//!
//! let mut transfer = client.put("disk.img", None, CopyOptions::default());
//! while let Some(event) = transfer.next_event().await {
//!     match event {
//!         Event::Progress(progress) => println!(
//!             "{} of {} bytes at {}",
//!             progress.bytes, progress.size, progress.rate
//!         ),
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
//! Dropping a value of this crate, at any await point, ends its work. A [`Transfer`] of a file or a
//! tree that is dropped or [cancelled](Transfer::cancel) leaves the received data durable at the
//! receiver. Repeating the call, from this process or a later one, resumes it;
//! [`Error::is_resumable`] returns true in that case. An object that is dropped before
//! [`ObjectWriter::finish`] leaves nothing, because its source cannot be read again. A request that
//! was sent may be carried out although its call was dropped: `remove`, `rename`, `make_dir`, and a
//! `write` whose bytes had all arrived.
//!
//! # Errors and retries
//!
//! Every call returns [`Error`]. [`Error::actor`] names who must act, [`Error::is_retryable`]
//! returns true if the same call may succeed later without any change. [`Error::is_not_found`] and
//! [`Error::fail_code`] identify permanent failures. The loss of a link is no error while another
//! link is up, or if it returns within [`ClientBuilder::patience`], and neither is that of a daemon
//! that returns within it: [`Client`] has the table of what waits and what is repeated. The caller
//! must repeat the rest, or what has waited in vain. A repeated call may find its own work: `write`
//! without `replace` finds that the name exists, `remove` and `rename` do not find the old name.
//!
//! ```no_run
//! # async fn example(
//! #     client: nicstripe::Client,
//! #     name: nicstripe::Name,
//! #     pack: Vec<u8>,
//! # ) -> Result<(), nicstripe::Error> {
//! use nicstripe::{CopyOptions, FailCode};
//!
//! loop {
//!     match client.write(&name, &pack, CopyOptions::default()).await {
//!         Err(error) if error.is_retryable() => {
//!             tokio::time::sleep(std::time::Duration::from_secs(1)).await;
//!         }
//!         // Content-addressed name: an earlier attempt succeeded and its answer was lost.
//!         Err(error) if error.fail_code() == Some(FailCode::Exists) => return Ok(()),
//!         written => return written.map(drop),
//!     }
//! }
//! # }
//! ```
//!
//! # Embedding a daemon
//!
//! [`Daemon::builder`] takes identity, peers or their file, root directory, and addresses or
//! interfaces. [`Daemon::run`] serves until it is cancelled. Meanwhile [`DaemonHandle`] reads its
//! metrics and changes its limits.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{CancellationToken, Daemon, trust::{Home, Identity}};
//!
//! let home = Home::at("/etc/backup-tool");
//! let daemon = Daemon::builder()
//!     .identity(Identity::load_or_create(&home.identity_file())?)
//!     .peers_file(home.peers_file())
//!     .root("/srv/backups")
//!     .bind()
//!     .await?;
//! let shutdown = CancellationToken::new();
//! let running = tokio::spawn(daemon.run(shutdown.clone()));
//! // Closes all sessions and makes the received data durable.
//! shutdown.cancel();
//! running.await??;
//! # Ok(())
//! # }
//! ```
//!
//! A program may also pass its own [listening sockets](DaemonBuilder::listeners), an [open
//! directory](DaemonBuilder::root_handle), or another [`storage`] than a directory.
//!
//! # Tunnels
//!
//! [`Client::dial`] connects to a service that the daemon can reach and this peer may use.
//! [`Client::listen`] makes the daemon listen where this peer may, and its [`Listener`] returns the
//! connections. Each implements `AsyncRead` and `AsyncWrite`, and all links carry it. For both ends,
//! a service is a TCP port or a socket file ([`LocalListener`], [`LocalStream`]).
//!
//! # Threads and runtime
//!
//! Programs without async code use [`blocking`], which wraps the same client and its own runtime.
//!
//! [`ClientBuilder::connect`] and [`DaemonBuilder::bind`] need a tokio runtime, of either flavour,
//! with I/O and time enabled, on which all work of the client or daemon runs. Its calls may come
//! from other runtimes and executors, or from threads with none. A child process made by `fork` has
//! none of the threads: connect there again. A few I/O threads read, hash and write files; a [`Client`] or [`Daemon`] owns them, and they end
//! with it. There is no thread per object. Each tree and each pipe has a thread.
//!
//! # Side effects
//!
//! The library has no global state, prints nothing, handles no signal and installs no logger (it
//! logs through `tracing`). It reads the environment only in [`trust::Home::from_env`] and
//! [`bootstrap`]. It changes routes and MTUs only if the program passes a
//! [state directory](ClientBuilder::state_dir) or a [`routes::RouteKeeper`]; only then may it start
//! a process, the helper `nicstripe-routes`. Unsafe code is confined to the crate `nicstripe-link`.
//!
//! # Features
//!
//! All but `serde` are on by default. With `default-features = false` the dependency tree has 60 crates instead
//! of 89.
//!
//! | feature | what it gives | crates |
//! | --- | --- | --- |
//! | `bench` | [`Client::bench`]; the daemon serves benchmarks | 1 |
//! | `compress` | [`CopyOptions::compress`]; chunks are compressed in both directions | 3 |
//! | `discovery` | [`discovery`]: [`ClientBuilder::connect`] also searches for a peer on the cables, the daemon answers | 0 |
//! | `introduce` | [`invitation`], [`bootstrap`] and `discovery` | 13 |
//! | `serde` | `serde::Serialize` for [`Report`], [`Event`] and [`Progress`] | 0 |
//! | `trees` | [`Client::put_tree`], [`Client::get_tree`]; the daemon serves trees | 12 |
//!
//! Client and daemon need not have the same features. A daemon refuses benchmarks and trees that it
//! does not have, and no end sends compressed chunks to one that does not accept them.
//!
//! The crate runs on Linux.
//!
//! # Data flow
//!
//! [`Client::put`] opens a file. The session reads a chunk on an I/O thread and hands it to the
//! path that requested it, whose connection encrypts it. At the receiver the connection decrypts it
//! and an I/O thread verifies and writes it. The session then acknowledges it and makes it durable.
//! It confirms the file once all of it is durable under its name.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]
// Without all features, parts of shared modules have no caller.
#![cfg_attr(
    not(all(feature = "bench", feature = "introduce", feature = "trees")),
    allow(
        clippy::needless_pass_by_ref_mut,
        dead_code,
        unreachable_pub,
        unused_imports
    )
)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/EMBEDDING.md")]
struct Embedding;

#[cfg(feature = "bench")]
pub mod bench;
mod client;
mod daemon;
mod file;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "introduce")]
mod introduce;
pub mod links;
mod report;
mod session;
pub mod storage;
mod text;
mod tree;
pub mod trust;
mod tunnel;
mod wire;

pub mod blocking {
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
    //! let report = client.put("disk.img", None, CopyOptions::default()).finish()?;
    //! println!("{} bytes at {}", report.size, report.goodput());
    //! client.close();
    //! # Ok::<_, Box<dyn std::error::Error>>(())
    //! ```
    //!
    //! Do not call this module from async code: it would block the thread, and tokio panics. Use
    //! `spawn_blocking` there.

    #[cfg(feature = "bench")]
    pub use crate::bench::blocking::Bench;
    pub use crate::client::blocking::{
        Client, Entries, Listener, MOST_OUTPUT, NoEvent, ObjectReader, ObjectWriter, Output,
        Transfer, Tunnel, TunnelReader, TunnelWriter,
    };
}

#[cfg(feature = "discovery")]
pub mod discovery {
    //! Discovery: finds daemons on the cables of this machine, without an address, a name server or
    //! any setting.
    //!
    //! A [`Search`] sends multicast queries on each interface, and returns each daemon that
    //! answered as [`DiscoveredPeer`]; [`discover`] collects them all. A running
    //! [`Daemon`](crate::Daemon) answers. So
    //! [`ClientBuilder::connect`](crate::ClientBuilder::connect) needs only a peer's name.
    //! [`nicstripe_proto::discovery`] defines the messages. Every message is signed, and is ignored
    //! unless its signature is valid.
    //!
    //! ```no_run
    //! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    //! use nicstripe::{discovery::{SearchOptions, discover}, trust::{Home, Identity, Peers}};
    //!
    //! let home = Home::from_env()?;
    //! let identity = Identity::load_or_create(&home.identity_file())?;
    //! for heard in
    //!     discover(&identity, &Peers::load(&home.peers_file())?, SearchOptions::default()).await?
    //! {
    //!     println!("{} is on {} as {}", heard.key.fingerprint(), heard.interface, heard.address);
    //! }
    //! # Ok(())
    //! # }
    //! ```

    pub use crate::links::discovery::{DiscoveredPeer, Search, SearchOptions, discover};
}

pub mod exec {
    //! Commands at a peer: [`Client::exec`](crate::Client::exec) runs one, and an [`Executor`] of the
    //! daemon's program starts those that the peer's line permits
    //! ([`ExecRule`](crate::trust::ExecRule)).

    pub use nicstripe_proto::message::ExitStatus;

    pub use crate::daemon::{Executor, PeerCommand, StartedCommand};
}

pub mod chain {
    //! Order in which the receivers of one source feed each other.

    pub use nicstripe_proto::chain::{Chain, Change, Fault, Feed, Need, Order, item_size};
}

pub mod receipts {
    //! Outlines of files, which tell of each MiB whether it is right, and receipts: what a machine states
    //! about a file that it has received.

    pub use nicstripe_proto::{
        ChainingValue,
        outline::{Outline, PIECE, value_of},
    };

    pub use crate::client::{Receipt, outline_of};
}

pub mod replicas {
    //! One file from several daemons that have it.

    pub use crate::client::replicas::{Drawn, LeftReplica, Replica, draw};
}

pub mod routes {
    //! Administration of the host routes and MTU changes that nicstripe has made.

    pub use crate::links::{
        route_keeper::{RouteFacts, RouteKeeper, needs_route},
        routes::{
            ChangedMtu, HostRoute, MtuError, RouteError, SHARED_STATE_DIR, clean, clean_mtus, list,
            list_mtus,
        },
    };
}

#[cfg(feature = "bench")]
pub use self::bench::{Bench, BenchEvent, BenchLimits, BenchPlan, BenchReport};
#[cfg(feature = "introduce")]
pub use self::introduce::{bootstrap, invitation};
#[cfg(feature = "trees")]
pub use self::tree::{Listing, TreeOptions, TreeSource};
pub use self::{
    client::{
        Client, ClientBuilder, ConnectedPeer, Content, Entries, Entry, FetchRequest, Head, Kind,
        Listener, NotRemoved, ObjectChunk, ObjectReader, ObjectWriter, OpenOptions, Stat, Transfer,
    },
    daemon::{Daemon, DaemonBuilder, DaemonHandle, Limits},
    file::{
        FileError,
        options::{CopyOptions, DEFAULT_PORT, MOST_TRANSFERS, PIPE_WINDOW, RenameOptions, Slice},
    },
    links::{
        listeners::ListenAddress,
        request::{Family, LinkEnd, LinkRequest, LinkRequestError, RoutePolicy},
    },
    report::{
        KernelView, Limit, LinkReport, Report,
        error::{
            Error,
            actor::Actor,
            unreachable::{Attempt, CableSearch, Unreachable},
        },
        event::{Awaited, Event, FileCounts, LinkName, LinkProgress, LinkState, Progress},
        metrics::{
            Histogram, InterfaceBytes, Metrics, PathCounts, RunningLink, RunningSession,
            RunningTransfer, TransferDirection,
        },
        survey::{FailedLink, LinkFailure, LinkReason, LinkSurvey, SurveyedLink, UnusedInterface},
    },
    text::chain,
    tree::{EntryOutcome, FailedEntry, TreeReport},
    tunnel::{LocalListener, LocalStream, Tunnel},
};
pub use nicstripe_link::facts;
pub use nicstripe_proto::{
    AttributesError, BitRate, Digest, ETag, FailCode, MOST_ATTRIBUTES, Name, NameError,
    ObjectAttributes,
    etag::ParseETagError,
    name::{escaped, printable},
    tree::{LargeFile, Share, ShareError, Verdict},
    tunnel::TargetRefusal,
};
pub use tokio_util::sync::CancellationToken;

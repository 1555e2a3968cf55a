//! Moves large files between two machines over every cable that joins them, and proves that what arrived is what was sent.
//!
//! A [`Daemon`] serves a directory; a [`Client`] puts files into it and gets files from it. Both prove their [`trust::Identity`] on each
//! connection and speak only to keys in their [`trust::Peers`]. Nothing here prints, handles signals, installs a logger or touches state
//! that is global to the process; events come from [`Transfer::next_event`].
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
//! What the daemon has need not become a file here: [`Client::list`], [`Client::stat`], [`Client::remove`], [`Client::rename`] and
//! [`Client::make_dir`] are about names, [`Client::read`] and [`Client::write`] about what fits into memory, [`Client::open`] and
//! [`Client::create`] about what does not: a reader that seeks, and a writer whose file is there, whole and durable, when it is
//! [finished](ObjectWriter::finish), or not at all. Each of them may be dropped at any moment. [`Error::is_retryable`] says what may be tried
//! again.
//!
//! Programs without async code use [`blocking`]. A program that embeds a daemon may hand over its [listening
//! sockets](DaemonBuilder::listeners), an [open directory](DaemonBuilder::root_handle), or another [`storage`] than a directory.
//!
//! The way of a byte through this crate: [`Client::put`] opens a file, the session reads a chunk on an I/O thread, hands it to the path that
//! asked for it, whose connection encrypts it; at the other end the connection decrypts it, an I/O thread verifies and writes it, the session makes it
//! durable, and acknowledges.

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

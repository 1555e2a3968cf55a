//! Interface of a benchmark to the program that it measures: its client, its sessions and its disks.

use std::{
    fmt::Debug,
    net::IpAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nicstripe_link::facts::Facts;
use nicstripe_proto::{
    BitRate, Name, PathId,
    load::PingOrder,
    message::{BenchBody, BenchSample, RunReady},
};
use tokio::sync::{mpsc, oneshot};

use crate::report::Direction;

/// Client of a daemon, over whose sessions a benchmark runs.
pub trait Client: Clone + Send + Sync + 'static {
    /// Error of the client's operations.
    type Error: std::error::Error + Send + Sync + 'static;
    /// Session of the client, over which a benchmark runs.
    type Session: Session;
    /// Guard of local interfaces whose packet sizes the benchmark may change.
    type Packets: Packets<Error = Self::Error>;

    /// Returns the client's error for a failed measurement.
    fn error(&self, failure: Failure) -> Self::Error;

    /// Returns the text of an error with its causes, in one line.
    fn text(error: &Self::Error) -> String;

    /// Returns true if the daemon rejects the client, so that another attempt would fail as well.
    fn is_refusal(error: &Self::Error) -> bool;

    /// Returns the facts about the daemon's machine; `None` if the daemon does not tell them.
    fn facts(&self) -> impl Future<Output = Option<Facts>> + Send;

    /// Returns the client's session once its links are known.
    fn session(&self) -> impl Future<Output = Result<Self::Session, Self::Error>> + Send;

    /// Opens another session with the same daemon, optionally with another number of connections
    /// per link and another socket buffer size in bytes.
    fn another(
        &self,
        streams: Option<u8>,
        socket_buffer: Option<u64>,
    ) -> impl Future<Output = Result<Self, Self::Error>> + Send;

    /// Closes the session.
    fn close(self) -> impl Future<Output = ()> + Send;

    /// Checks the permission to change the packet sizes of these local interfaces. Returns the
    /// reason if it is missing.
    fn claim_packets(
        &self,
        interfaces: Vec<String>,
    ) -> impl Future<Output = Result<Self::Packets, String>> + Send;

    /// Copies a file from disk to disk and discards it. Returns the goodput.
    fn try_copy(
        &self,
        way: Direction,
        file: &Path,
        name: &Name,
    ) -> impl Future<Output = Result<BitRate, Self::Error>> + Send;

    /// Reads up to `bytes` bytes of a local file as a sender does, without sending them. Blocks the
    /// thread.
    fn read_stage(file: &Path, bytes: u64, stop: &AtomicBool) -> Result<Moved, String>;

    /// Writes `bytes` bytes for a local target as a receiver does, and deletes them. Blocks the
    /// thread.
    fn write_stage(file: &Path, bytes: u64, stop: &AtomicBool) -> Result<Moved, String>;
}

/// Session of a client, which carries out the commands of a benchmark.
pub trait Session: Debug + Send + Sync + 'static {
    /// Passes a command to the session. Returns false if it has ended.
    fn command(&self, command: BenchCommand) -> impl Future<Output = bool> + Send;
}

/// Local interfaces whose packet sizes a benchmark may change. Dropping this restores them.
pub trait Packets: Debug + Send + Sync + 'static {
    /// Error of a failed MTU change.
    type Error;

    /// Lowers the MTU of all interfaces to at most `mtu` bytes.
    fn set(&self, mtu: u32) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Restores the original MTU of all interfaces; returns the first error.
    fn restore(&self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Failure of a measurement, from which [`Client::error`] makes the client's error.
#[derive(Debug)]
pub enum Failure {
    /// The caller ended the benchmark.
    Cancelled,
    /// The daemon rejected or ended the benchmark. Contains the reason.
    Refused(String),
    /// The session ended or did not answer. Contains a few words on when or why.
    Ended(&'static str),
    /// A link is not usable for the measurement.
    Link {
        /// Name of the local interface.
        link: String,
        /// Reason why the link is not usable.
        why: &'static str,
    },
    /// The task that opens another session failed.
    Task(tokio::task::JoinError),
}

/// Command of a client's benchmark to its session.
#[derive(Debug)]
pub enum BenchCommand {
    /// Send all [`BenchNews`] to this channel, first the list of paths.
    Attach(mpsc::Sender<BenchNews>),
    /// Send an order to the daemon and apply it to the local end.
    Tell(Box<BenchBody>),
    /// Measure round-trip times on a path.
    Ping {
        /// Path to measure.
        path: PathId,
        /// Number, size and time limit of the messages.
        order: PingOrder,
        /// Channel for the round-trip times; dropped if the connection is lost.
        reply: oneshot::Sender<Vec<Duration>>,
    },
}

/// Event of a session for the benchmark that is attached to it.
#[derive(Debug)]
pub enum BenchNews {
    /// Paths that carry data, and the highest run identifier used so far.
    Paths(Vec<BenchPath>, u32),
    /// Message from the daemon, and its time of arrival.
    Said(BenchBody, Instant),
    /// Sample of the local end, and its time.
    Sample(BenchSample, Instant),
    /// Smallest socket buffer sizes that the local kernel granted for a run.
    Buffers(RunReady),
}

/// Path of a session that carries data.
#[derive(Debug, Clone)]
pub struct BenchPath {
    /// Identifier of the path in its session.
    pub id: PathId,
    /// Name of the local interface.
    pub interface: String,
    /// Name of the peer's interface; `None` if unknown.
    pub peer_interface: Option<String>,
    /// Local address of the connection; `None` if unknown.
    pub local: Option<IpAddr>,
    /// Remote address of the connection.
    pub remote: IpAddr,
    /// Line rate of the slower interface; `None` if unknown.
    pub line: Option<BitRate>,
    /// Rates of the local and the remote traffic shaper.
    pub shapers: [Option<BitRate>; 2],
    /// Path MTU in bytes; `None` if it equals the interface's MTU.
    pub path_mtu: Option<u32>,
    /// True if the path reached the intended interface of the peer; `None` if unknown.
    pub verified: Option<bool>,
}

/// Result of one disk stage: bytes moved, duration and file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Number of bytes moved.
    pub bytes: u64,
    /// Duration of the stage.
    pub elapsed: Duration,
    /// Type of the file system, such as `ext4`; `None` if unknown.
    pub file_system: Option<String>,
}

impl Moved {
    /// Returns the rate of the stage.
    pub fn rate(&self) -> BitRate {
        BitRate::from_bytes_over(self.bytes, self.elapsed)
    }
}

/// Guard that sets the stop flag of a disk stage when dropped.
#[derive(Debug, Default)]
pub struct StopOnDrop(Arc<AtomicBool>);

impl StopOnDrop {
    /// Returns the flag, which the stage polls.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

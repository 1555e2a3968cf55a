//! Control messages of a benchmark.

use minicbor::{Decode, Encode};

use crate::id::LAST_PATH;

/// Benchmark message in either direction. Body of [`crate::Message::Bench`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum BenchBody {
    /// Client's request for admission to a benchmark.
    #[n(0)]
    Ask(#[n(0)] BenchAsk),
    /// Daemon's admission of the client, for a limited time.
    #[n(1)]
    Admitted(#[n(0)] BenchAdmitted),
    /// Daemon's report of the client's position in the queue, repeated after each change.
    #[n(2)]
    Queued(#[n(0)] BenchQueued),
    /// Daemon's rejection or end of the client's benchmark.
    #[n(3)]
    Refused(#[n(0)] BenchRefused),
    /// Daemon's description of its machine, for the report.
    #[n(4)]
    Facts(#[n(0)] BenchFacts),
    /// Client's start of a run, which is a measurement with fixed parameters.
    #[n(5)]
    Run(#[n(0)] RunOrder),
    /// Daemon's confirmation that it counts received bytes and sends its own load.
    #[n(6)]
    Ready(#[n(0)] RunReady),
    /// Daemon's counters of the current run.
    #[n(7)]
    Sample(#[n(0)] BenchSample),
    /// Client's end of the current run.
    #[n(8)]
    Stop(#[n(0)] RunNumber),
    /// Daemon's confirmation of the run's end. No sample of the run follows.
    #[n(9)]
    Stopped(#[n(0)] RunNumber),
    /// Client's request for a disk read or write by the daemon.
    #[n(10)]
    Disk(#[n(0)] DiskOrder),
    /// Daemon's result of a disk read or write.
    #[n(11)]
    DiskDone(#[n(0)] DiskDone),
    /// Client's departure from the benchmark or its queue.
    #[n(12)]
    Leave,
}

/// Client's request for admission to a benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchAsk {
    /// Random ID of the benchmark. Sessions with the same key and the same ID belong to the same
    /// benchmark.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub id: [u8; 16],
    /// Expected duration of the benchmark in seconds, from which the daemon estimates the wait of
    /// queued clients.
    #[n(1)]
    pub seconds: u32,
}

/// Admission of a client that requested a benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchAdmitted {
    /// Time limit of the benchmark in seconds. The daemon ends the benchmark at this limit.
    #[n(0)]
    pub seconds: u32,
}

/// Position of a client in the daemon's benchmark queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchQueued {
    /// Number of benchmarks before this one, including the active one.
    #[n(0)]
    pub ahead: u32,
    /// Maximum wait for the benchmarks ahead, in milliseconds.
    #[n(1)]
    pub wait_ms: u64,
    /// Number of active transfers of other sessions. They must end first.
    #[n(2)]
    pub transfers: u32,
}

/// Rejection or forced end of a client's benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchRefused {
    /// Reason for the rejection or end.
    #[n(0)]
    pub why: BenchRefusal,
    /// Minimum delay before the next attempt in milliseconds; `None` if unknown.
    #[n(1)]
    pub retry_after_ms: Option<u64>,
}

/// Reason why a daemon rejects or ends a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum BenchRefusal {
    /// Benchmarks are disabled on this daemon.
    #[n(0)]
    Disabled,
    /// The daemon's list of peers does not permit this client to run benchmarks.
    #[n(1)]
    NotPermitted,
    /// The benchmark queue is full.
    #[n(2)]
    Busy,
    /// The time limit of the benchmark has expired.
    #[n(3)]
    TimeOver,
    /// The daemon's process is shutting down.
    #[n(4)]
    ShuttingDown,
}

/// First words of a daemon that has admitted a client. Facts about its machine are requested by
/// [`AskKind::Facts`](super::AskKind::Facts).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchFacts {
    /// Version of nicstripe on this machine.
    #[n(0)]
    pub version: String,
}

/// Parameters of one benchmark run.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunOrder {
    /// ID of the run. Must exceed all earlier run IDs of the session.
    #[n(0)]
    pub run: u32,
    /// True if the client sends load to the daemon.
    #[n(1)]
    pub to_daemon: bool,
    /// True if the daemon sends load to the client.
    #[n(2)]
    pub to_client: bool,
    /// IDs of the paths to load and measure, 1 to 64.
    #[n(3)]
    pub paths: Vec<u16>,
    /// Maximum duration of the run in milliseconds. The daemon then ends the run.
    #[n(4)]
    pub longest_ms: u32,
    /// Interval between two samples in milliseconds.
    #[n(5)]
    pub interval_ms: u32,
    /// Payload of one load frame in bytes, 1 byte to 256 KiB.
    #[n(6)]
    pub message_bytes: u32,
    /// Socket buffer size in bytes, to be set on both ends; `None` leaves it unchanged.
    #[n(7)]
    pub socket_buffer: Option<u64>,
}

/// Minimum and maximum of [`RunOrder::interval_ms`].
pub(crate) const SAMPLE_INTERVALS: (u32, u32) = (20, 60_000);

/// Maximum of [`RunOrder::socket_buffer`] in bytes: 1 GiB.
pub(crate) const MAX_SOCKET_BUFFER: u64 = 1 << 30;

/// Maximum number of processors in one sample. A machine omits further processors.
pub const MAX_CORES: usize = 512;

/// Maximum length of a text of a benchmark message in bytes.
pub const MAX_LETTERS: usize = 256;

impl RunOrder {
    /// Returns true if paths, intervals and sizes are within the protocol's limits and no path
    /// occurs twice.
    pub(crate) fn is_valid(&self) -> bool {
        let paths = !self.paths.is_empty() && self.paths.len() <= usize::from(LAST_PATH.0) + 1;
        let distinct = || {
            self.paths
                .iter()
                .enumerate()
                .all(|(index, path)| *path <= LAST_PATH.0 && !self.paths[..index].contains(path))
        };
        let message = (1..=crate::wire::frame::MAX_LOAD as u32).contains(&self.message_bytes);
        let interval = (SAMPLE_INTERVALS.0..=SAMPLE_INTERVALS.1).contains(&self.interval_ms);
        let buffer = self
            .socket_buffer
            .is_none_or(|bytes| (1..=MAX_SOCKET_BUFFER).contains(&bytes));
        paths && distinct() && message && interval && buffer
    }
}

/// Daemon's confirmation that a run has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunReady {
    /// ID of the run, from [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
    /// Smallest send buffer, in bytes, that the kernel granted to a path's socket; `None` unless a
    /// size was requested.
    #[n(1)]
    pub send_buffer: Option<u64>,
    /// Smallest receive buffer, in bytes, that the kernel granted to a path's socket; `None` unless
    /// a size was requested.
    #[n(2)]
    pub receive_buffer: Option<u64>,
}

/// Reference to a benchmark run by its ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunNumber {
    /// ID of the run, from [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
}

/// Counters of all paths of a run at one instant. Each counter starts at an arbitrary value and
/// only increases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchSample {
    /// ID of the run, from [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
    /// Time of the sample in microseconds since the daemon started the run.
    #[n(1)]
    pub at_us: u64,
    /// Counters of each path, in the order of [`RunOrder::paths`].
    #[n(2)]
    pub paths: Vec<PathSample>,
    /// CPU time of the machine and the process; `None` if unknown.
    #[n(3)]
    pub cpu: Option<CpuSample>,
    /// True for the last sample of the run.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub last: bool,
    /// Number of transfers, in all sessions, that were active at the daemon during the run; `None`
    /// if unknown.
    #[n(5)]
    pub transfers: Option<u32>,
}

/// Counters of one path. Each counter starts at an arbitrary value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PathSample {
    /// Bytes of load payload received on the path.
    #[n(0)]
    pub received: u64,
    /// Bytes of load payload written to the socket.
    #[n(1)]
    pub sent: u64,
    /// Bytes received on the path's local interface, including packet headers and other traffic;
    /// `None` if unknown.
    #[n(2)]
    pub interface_received: Option<u64>,
    /// Bytes sent on the path's local interface, including packet headers and other traffic; `None`
    /// if unknown.
    #[n(3)]
    pub interface_sent: Option<u64>,
    /// TCP statistics of the path's connection; `None` if unknown.
    #[n(4)]
    pub tcp: Option<TcpSample>,
}

/// TCP statistics of one connection, from the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TcpSample {
    /// Bytes sent by TCP, including retransmissions; `None` if unknown.
    #[n(0)]
    pub sent: Option<u64>,
    /// Bytes retransmitted by TCP; `None` if unknown.
    #[n(1)]
    pub retransmitted: Option<u64>,
    /// Time during which data was ready to send, in microseconds; `None` if unknown.
    #[n(2)]
    pub busy_us: Option<u64>,
    /// Part of `busy_us` during which the peer's receive window limited TCP, in microseconds;
    /// `None` if unknown.
    #[n(3)]
    pub rwnd_limited_us: Option<u64>,
    /// Part of `busy_us` during which the send buffer limited TCP, in microseconds; `None` if
    /// unknown.
    #[n(4)]
    pub sndbuf_limited_us: Option<u64>,
    /// Congestion window in bytes; `None` if unknown.
    #[n(5)]
    pub cwnd_bytes: Option<u64>,
    /// Smoothed round-trip time in microseconds; `None` if unknown.
    #[n(6)]
    pub rtt_us: Option<u64>,
    /// Send buffer of the socket in bytes, as returned by `getsockopt`; `None` if unknown.
    #[n(7)]
    pub send_buffer: Option<u64>,
    /// Receive buffer of the socket in bytes, as returned by `getsockopt`; `None` if unknown.
    #[n(8)]
    pub receive_buffer: Option<u64>,
}

/// CPU time of a machine in microseconds. Each counter starts at an arbitrary value before the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CpuSample {
    /// CPU time in user space, in microseconds.
    #[n(0)]
    pub user_us: u64,
    /// CPU time in the kernel, without interrupts, in microseconds.
    #[n(1)]
    pub system_us: u64,
    /// CPU time in interrupts and softirqs, in microseconds.
    #[n(2)]
    pub softirq_us: u64,
    /// CPU time of the process in user space and in the kernel, in microseconds.
    #[n(3)]
    pub process_us: u64,
    /// Time during which the control group's CPU quota throttled the process, in microseconds;
    /// `None` if unknown.
    #[n(4)]
    pub throttled_us: Option<u64>,
    /// Busy time of each processor in microseconds.
    #[n(5)]
    pub cores_us: Vec<u64>,
}

/// Client's request for a disk read or write by the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DiskOrder {
    /// Number of bytes to write, at most 64 GiB. The daemon writes them to the directory in which a
    /// file named `name` would be stored, and then removes them.
    #[n(0)]
    pub bytes: u64,
    /// Name that an uploaded file would have; `None` selects the daemon's root directory.
    #[n(1)]
    pub name: Option<crate::file::name::Name>,
    /// ID of the request in the session.
    #[n(2)]
    pub number: u32,
    /// True to read up to `bytes` bytes of the file `name`, false to write.
    #[cbor(n(3), default, skip_if = "std::ops::Not::not")]
    pub read: bool,
}

/// Result of a disk read or write by the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DiskDone {
    /// ID of the request, from [`DiskOrder::number`].
    #[n(0)]
    pub number: u32,
    /// Number of bytes that were read, or that were written and made durable.
    #[n(1)]
    pub bytes: u64,
    /// Duration of the read or write in microseconds.
    #[n(2)]
    pub micros: u64,
    /// Type of the file system, such as `ext4`; `None` if unknown.
    #[n(3)]
    pub file_system: Option<String>,
    /// Error text; `None` if the read or write succeeded.
    #[n(4)]
    pub error: Option<String>,
}

impl BenchBody {
    /// Returns true if a client sends this message, false if a daemon does.
    pub(crate) fn is_clients(&self) -> bool {
        matches!(
            self,
            Self::Ask(_) | Self::Run(_) | Self::Stop(_) | Self::Disk(_) | Self::Leave
        )
    }

    /// Returns true if all lists and texts are within the protocol's limits.
    pub fn is_bounded(&self) -> bool {
        match self {
            Self::Run(order) => order.is_valid(),
            Self::Sample(sample) => {
                let cores = sample.cpu.as_ref().map_or(0, |cpu| cpu.cores_us.len());
                sample.paths.len() <= usize::from(LAST_PATH.0) + 1 && cores <= MAX_CORES
            }
            Self::Facts(facts) => facts.version.len() <= MAX_LETTERS,
            Self::DiskDone(done) => [&done.file_system, &done.error]
                .into_iter()
                .flatten()
                .all(|text| text.len() <= MAX_LETTERS),
            _ => true,
        }
    }
}

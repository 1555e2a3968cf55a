//! Control messages of a benchmark.

use minicbor::{Decode, Encode};

use super::is_unset;
use crate::path::LAST_PATH;

/// Body of [`crate::Message::Bench`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum BenchBody {
    /// Client: requests a benchmark.
    #[n(0)]
    Ask(#[n(0)] BenchAsk),
    /// Daemon: admits the client for a limited time.
    #[n(1)]
    Admitted(#[n(0)] BenchAdmitted),
    /// Daemon: the client's place in the queue, repeated after each change.
    #[n(2)]
    Queued(#[n(0)] BenchQueued),
    /// Daemon: rejects or ends the benchmark.
    #[n(3)]
    Refused(#[n(0)] BenchRefused),
    /// Daemon: describes its machine.
    #[n(4)]
    Facts(#[n(0)] BenchFacts),
    /// Client: starts a run.
    #[n(5)]
    Run(#[n(0)] RunOrder),
    /// Daemon: counts received bytes and sends its own load.
    #[n(6)]
    Ready(#[n(0)] RunReady),
    /// Daemon: counters of the run.
    #[n(7)]
    Sample(#[n(0)] BenchSample),
    /// Client: ends the run.
    #[n(8)]
    Stop(#[n(0)] RunNumber),
    /// Daemon: the run has ended; no sample follows.
    #[n(9)]
    Stopped(#[n(0)] RunNumber),
    /// Client: requests a disk read or write.
    #[n(10)]
    Disk(#[n(0)] DiskOrder),
    /// Daemon: result of the disk operation.
    #[n(11)]
    DiskDone(#[n(0)] DiskDone),
    /// Client: ends the benchmark.
    #[n(12)]
    Leave,
}

/// Request for admission.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchAsk {
    /// 128 random bits. Sessions of one key with the same ID belong to one benchmark.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub id: [u8; 16],
    /// Expected duration in seconds, for the wait estimate of queued clients.
    #[n(1)]
    pub seconds: u32,
}

/// Admission of a client.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchAdmitted {
    /// Time limit in seconds; the daemon ends the benchmark after it.
    #[n(0)]
    pub seconds: u32,
}

/// Place of a client in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchQueued {
    /// Benchmarks ahead of it, including the active one.
    #[n(0)]
    pub ahead: u32,
    /// Longest wait for those benchmarks, in milliseconds.
    #[n(1)]
    pub wait_ms: u64,
    /// Transfers of other sessions that must end first.
    #[n(2)]
    pub transfers: u32,
}

/// Rejection or forced end of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchRefused {
    /// The reason.
    #[n(0)]
    pub why: BenchRefusal,
    /// Earliest retry in milliseconds, if known.
    #[n(1)]
    pub retry_after_ms: Option<u64>,
}

/// Reason to reject or end a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum BenchRefusal {
    /// Benchmarks are disabled on this daemon.
    #[n(0)]
    Disabled,
    /// The peer lacks permission.
    #[n(1)]
    NotPermitted,
    /// The queue is full.
    #[n(2)]
    Busy,
    /// The time limit has expired.
    #[n(3)]
    TimeOver,
    /// The daemon is shutting down.
    #[n(4)]
    ShuttingDown,
}

/// Facts about a machine as visible to the process; used only in reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchFacts {
    /// Version of the program.
    #[n(0)]
    pub version: String,
    /// Host name.
    #[n(1)]
    pub name: Option<String>,
    /// Operating system.
    #[n(2)]
    pub os: Option<String>,
    /// Kernel release.
    #[n(3)]
    pub kernel: Option<String>,
    /// Processor model.
    #[n(4)]
    pub cpu: Option<String>,
    /// Logical processors available to the process.
    #[n(5)]
    pub cores: Option<u32>,
    /// Processor frequency in MHz.
    #[n(6)]
    pub cpu_mhz: Option<u32>,
    /// Default congestion control algorithm.
    #[n(7)]
    pub congestion: Option<String>,
    /// Largest receive buffer that a socket may request, in bytes.
    #[n(8)]
    pub receive_buffer_max: Option<u64>,
    /// Largest send buffer that a socket may request, in bytes.
    #[n(9)]
    pub send_buffer_max: Option<u64>,
    /// CPU quota of the control group, in thousandths of one core.
    #[n(10)]
    pub cpu_quota_millicores: Option<u64>,
    /// Interface details that [`Welcome`](super::Welcome) does not carry.
    #[n(11)]
    pub interfaces: Vec<BenchInterface>,
    /// True if TCP timestamps are enabled.
    #[n(12)]
    pub timestamps: Option<bool>,
}

/// Interface of the described machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchInterface {
    /// Name of the interface.
    #[n(0)]
    pub name: String,
    /// Name of the driver.
    #[n(1)]
    pub driver: Option<String>,
    /// `half` or `full`.
    #[n(2)]
    pub duplex: Option<String>,
    /// Active offloads.
    #[n(3)]
    pub offloads: Option<Vec<String>>,
    /// MTU in bytes.
    #[n(4)]
    pub mtu: Option<u32>,
    /// Line rate, or the rate of a traffic shaper if lower, in bit/s.
    #[n(5)]
    pub line_bps: Option<u64>,
}

/// Parameters of one run.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunOrder {
    /// Run number, greater than any before in the session.
    #[n(0)]
    pub run: u32,
    /// True if the client sends.
    #[n(1)]
    pub to_daemon: bool,
    /// True if the daemon sends.
    #[n(2)]
    pub to_client: bool,
    /// Paths to load and sample, 1 to 64.
    #[n(3)]
    pub paths: Vec<u16>,
    /// Time limit in milliseconds, after which the daemon ends the run.
    #[n(4)]
    pub longest_ms: u32,
    /// Interval between samples in milliseconds.
    #[n(5)]
    pub interval_ms: u32,
    /// Payload bytes of one load frame, 1 to 256 KiB.
    #[n(6)]
    pub message_bytes: u32,
    /// Socket buffer size to set on both ends, in bytes; unchanged if absent.
    #[n(7)]
    pub socket_buffer: Option<u64>,
}

/// Shortest and longest sample interval, in milliseconds.
pub const SAMPLE_INTERVALS: (u32, u32) = (20, 60_000);

/// Largest socket buffer that a run may request: 1 GiB.
pub const MAX_SOCKET_BUFFER: u64 = 1 << 30;

/// Most processors in one sample; the rest is omitted.
pub const MAX_CORES: usize = 512;

/// Most interfaces in [`BenchFacts`], and most bytes of each text in it.
pub const MAX_FACTS: (usize, usize) = (64, 256);

impl RunOrder {
    /// Returns true if all parameters are within the protocol limits.
    pub fn is_valid(&self) -> bool {
        let paths = !self.paths.is_empty() && self.paths.len() <= usize::from(LAST_PATH.0) + 1;
        let distinct = || {
            self.paths
                .iter()
                .enumerate()
                .all(|(index, path)| *path <= LAST_PATH.0 && !self.paths[..index].contains(path))
        };
        let message = (1..=crate::frame::MAX_LOAD as u32).contains(&self.message_bytes);
        let interval = (SAMPLE_INTERVALS.0..=SAMPLE_INTERVALS.1).contains(&self.interval_ms);
        let buffer = self
            .socket_buffer
            .is_none_or(|bytes| (1..=MAX_SOCKET_BUFFER).contains(&bytes));
        paths && distinct() && message && interval && buffer
    }
}

/// The daemon's confirmation that a run has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunReady {
    /// [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
    /// Smallest send buffer that the kernel granted on any path, in bytes; only if a size was
    /// requested.
    #[n(1)]
    pub send_buffer: Option<u64>,
    /// Smallest receive buffer, likewise.
    #[n(2)]
    pub receive_buffer: Option<u64>,
}

/// Reference to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunNumber {
    /// [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
}

/// Counters of all paths of a run at one instant. They are monotonic from an arbitrary start value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchSample {
    /// [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
    /// Local time since the start of the run, in microseconds.
    #[n(1)]
    pub at_us: u64,
    /// Counters of each path, in the order of [`RunOrder::paths`].
    #[n(2)]
    pub paths: Vec<PathSample>,
    /// Processor times.
    #[n(3)]
    pub cpu: Option<CpuSample>,
    /// True for the last sample of the run.
    #[n(4)]
    #[cbor(default, skip_if = "is_unset")]
    pub last: bool,
    /// Transfers of any session that were active at the daemon during the run.
    #[n(5)]
    pub transfers: Option<u32>,
}

/// Counters of one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PathSample {
    /// Payload bytes received.
    #[n(0)]
    pub received: u64,
    /// Payload bytes handed to the kernel.
    #[n(1)]
    pub sent: u64,
    /// Bytes received on the path's local interface, including headers.
    #[n(2)]
    pub interface_received: Option<u64>,
    /// Bytes sent on that interface, including headers.
    #[n(3)]
    pub interface_sent: Option<u64>,
    /// TCP statistics of the connection.
    #[n(4)]
    pub tcp: Option<TcpSample>,
}

/// TCP statistics of a connection, from the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TcpSample {
    /// Bytes sent, including retransmissions.
    #[n(0)]
    pub sent: Option<u64>,
    /// Bytes retransmitted.
    #[n(1)]
    pub retransmitted: Option<u64>,
    /// Time with data to send, in microseconds.
    #[n(2)]
    pub busy_us: Option<u64>,
    /// Part of `busy_us` limited by the peer's window.
    #[n(3)]
    pub rwnd_limited_us: Option<u64>,
    /// Part of `busy_us` limited by the send buffer.
    #[n(4)]
    pub sndbuf_limited_us: Option<u64>,
    /// Congestion window in bytes.
    #[n(5)]
    pub cwnd_bytes: Option<u64>,
    /// Smoothed round-trip time in microseconds.
    #[n(6)]
    pub rtt_us: Option<u64>,
    /// Send buffer of the socket in bytes, from `getsockopt`.
    #[n(7)]
    pub send_buffer: Option<u64>,
    /// Receive buffer of the socket in bytes, from `getsockopt`.
    #[n(8)]
    pub receive_buffer: Option<u64>,
}

/// Processor time of a machine in microseconds, from an arbitrary start before the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CpuSample {
    /// Time in user space.
    #[n(0)]
    pub user_us: u64,
    /// Time in the kernel, without interrupts.
    #[n(1)]
    pub system_us: u64,
    /// Time in interrupts and softirqs.
    #[n(2)]
    pub softirq_us: u64,
    /// User and system time of the process.
    #[n(3)]
    pub process_us: u64,
    /// Time for which the control group's quota throttled the process.
    #[n(4)]
    pub throttled_us: Option<u64>,
    /// Busy time of each processor.
    #[n(5)]
    pub cores_us: Vec<u64>,
}

/// Request for a disk read or write by the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DiskOrder {
    /// Bytes to write, at most 64 GiB, in the directory where a file of `name` would be stored. The
    /// daemon removes the data afterwards.
    #[n(0)]
    pub bytes: u64,
    /// Name of an uploaded file; in the daemon's root if absent.
    #[n(1)]
    pub name: Option<crate::name::Name>,
    /// Request number in the session.
    #[n(2)]
    pub number: u32,
    /// True to read this many bytes of the file `name` instead; all of it if the file is shorter.
    #[n(3)]
    #[cbor(default, skip_if = "is_unset")]
    pub read: bool,
}

/// Result of a disk operation.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DiskDone {
    /// [`DiskOrder::number`].
    #[n(0)]
    pub number: u32,
    /// Bytes written and made durable, or read.
    #[n(1)]
    pub bytes: u64,
    /// Duration in microseconds.
    #[n(2)]
    pub micros: u64,
    /// Name of the file system.
    #[n(3)]
    pub file_system: Option<String>,
    /// Error text of a failure.
    #[n(4)]
    pub error: Option<String>,
}

impl BenchBody {
    /// Returns true if a client sends this message, false if a daemon does.
    pub fn is_clients(&self) -> bool {
        matches!(
            self,
            Self::Ask(_) | Self::Run(_) | Self::Stop(_) | Self::Disk(_) | Self::Leave
        )
    }

    /// Returns true if all lists and texts are within the protocol limits.
    pub fn is_bounded(&self) -> bool {
        let (most, letters) = MAX_FACTS;
        match self {
            Self::Run(order) => order.is_valid(),
            Self::Sample(sample) => {
                let cores = sample.cpu.as_ref().map_or(0, |cpu| cpu.cores_us.len());
                sample.paths.len() <= usize::from(LAST_PATH.0) + 1 && cores <= MAX_CORES
            }
            Self::Facts(facts) => {
                let BenchFacts {
                    version,
                    name,
                    os,
                    kernel,
                    cpu,
                    congestion,
                    interfaces,
                    ..
                } = facts;
                let mut texts = [name, os, kernel, cpu, congestion]
                    .into_iter()
                    .flatten()
                    .chain([version]);
                interfaces.len() <= most
                    && texts.all(|text| text.len() <= letters)
                    && interfaces.iter().all(BenchInterface::is_bounded)
            }
            Self::DiskDone(done) => [&done.file_system, &done.error]
                .into_iter()
                .flatten()
                .all(|text| text.len() <= letters),
            _ => true,
        }
    }
}

impl BenchInterface {
    fn is_bounded(&self) -> bool {
        let (most, letters) = MAX_FACTS;
        let offloads = self.offloads.iter().flatten();
        let mut texts = [&self.driver, &self.duplex]
            .into_iter()
            .flatten()
            .chain([&self.name])
            .chain(offloads);
        texts.all(|text| text.len() <= letters)
            && self.offloads.as_ref().map_or(0, Vec::len) <= most
    }
}

//! What two peers tell each other of a bench.

use minicbor::{Decode, Encode};

use super::is_unset;
use crate::path::LAST_PATH;

/// Body of [`crate::Message::Bench`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum BenchBody {
    /// Client: may I bench?
    #[n(0)]
    Ask(#[n(0)] BenchAsk),
    /// Daemon: you may, for so long.
    #[n(1)]
    Admitted(#[n(0)] BenchAdmitted),
    /// Daemon: others are before you. Said again whenever that changes.
    #[n(2)]
    Queued(#[n(0)] BenchQueued),
    /// Daemon: you may not, or no longer.
    #[n(3)]
    Refused(#[n(0)] BenchRefused),
    /// Daemon: this is the machine that I am on.
    #[n(4)]
    Facts(#[n(0)] BenchFacts),
    /// Client: this is what is loaded now.
    #[n(5)]
    Run(#[n(0)] RunOrder),
    /// Daemon: I count what comes, and send what I am to send.
    #[n(6)]
    Ready(#[n(0)] RunReady),
    /// Daemon: this is how far it is.
    #[n(7)]
    Sample(#[n(0)] BenchSample),
    /// Client: the run ends.
    #[n(8)]
    Stop(#[n(0)] RunNumber),
    /// Daemon: it has ended here; no sample of it follows.
    #[n(9)]
    Stopped(#[n(0)] RunNumber),
    /// Client: read or write this much of your disk.
    #[n(10)]
    Disk(#[n(0)] DiskOrder),
    /// Daemon: so long it took.
    #[n(11)]
    DiskDone(#[n(0)] DiskDone),
    /// Client: I have all that I wanted.
    #[n(12)]
    Leave,
}

/// Asks to be let in.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchAsk {
    /// 128 random bits. Sessions of one key that name the same are one bench.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub id: [u8; 16],
    /// How long it will take, in seconds, as far as that is known: for those who wait.
    #[n(1)]
    pub seconds: u32,
}

/// Lets a client bench.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchAdmitted {
    /// For so many seconds; then it is refused.
    #[n(0)]
    pub seconds: u32,
}

/// Where a client is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchQueued {
    /// Benches before it, the one that runs included.
    #[n(0)]
    pub ahead: u32,
    /// How long they may take at most, in milliseconds.
    #[n(1)]
    pub wait_ms: u64,
    /// Transfers of other sessions that have to end first.
    #[n(2)]
    pub transfers: u32,
}

/// Why a client may not bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchRefused {
    /// Why.
    #[n(0)]
    pub why: BenchRefusal,
    /// When it may ask again, in milliseconds, where that is known.
    #[n(1)]
    pub retry_after_ms: Option<u64>,
}

/// Why a client may not bench, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum BenchRefusal {
    /// Nobody may, here.
    #[n(0)]
    Disabled,
    /// This peer may not.
    #[n(1)]
    NotPermitted,
    /// As many wait as may.
    #[n(2)]
    Busy,
    /// Its time is over.
    #[n(3)]
    TimeOver,
    /// The daemon is shutting down.
    #[n(4)]
    ShuttingDown,
}

/// A machine, as far as it can be seen from its process. All of it is for reports only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchFacts {
    /// Version of the program.
    #[n(0)]
    pub version: String,
    /// The machine's name.
    #[n(1)]
    pub name: Option<String>,
    /// Operating system.
    #[n(2)]
    pub os: Option<String>,
    /// Kernel release.
    #[n(3)]
    pub kernel: Option<String>,
    /// Model of the processor.
    #[n(4)]
    pub cpu: Option<String>,
    /// Logical processors that the process may use.
    #[n(5)]
    pub cores: Option<u32>,
    /// Frequency in MHz.
    #[n(6)]
    pub cpu_mhz: Option<u32>,
    /// Default congestion control.
    #[n(7)]
    pub congestion: Option<String>,
    /// Largest receive buffer that may be asked for, in bytes.
    #[n(8)]
    pub receive_buffer_max: Option<u64>,
    /// The same for sending.
    #[n(9)]
    pub send_buffer_max: Option<u64>,
    /// Quota of a control group, in thousandths of one core.
    #[n(10)]
    pub cpu_quota_millicores: Option<u64>,
    /// What is known of interfaces besides what a welcome says.
    #[n(11)]
    pub interfaces: Vec<BenchInterface>,
    /// Whether TCP has timestamps.
    #[n(12)]
    pub timestamps: Option<bool>,
}

/// An interface, by its name there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchInterface {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Its driver.
    #[n(1)]
    pub driver: Option<String>,
    /// `half` or `full`.
    #[n(2)]
    pub duplex: Option<String>,
    /// Offloads that are on.
    #[n(3)]
    pub offloads: Option<Vec<String>>,
    /// Its packets' size.
    #[n(4)]
    pub mtu: Option<u32>,
    /// Rate of its line, or of a shaper in front of it where that is less, in bit/s.
    #[n(5)]
    pub line_bps: Option<u64>,
}

/// One load.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunOrder {
    /// Its number in the session: greater than those before.
    #[n(0)]
    pub run: u32,
    /// Whether the client sends.
    #[n(1)]
    pub to_daemon: bool,
    /// Whether the daemon sends.
    #[n(2)]
    pub to_client: bool,
    /// The paths that are loaded and sampled, 1 to 64.
    #[n(3)]
    pub paths: Vec<u16>,
    /// After so many milliseconds the daemon ends it by itself.
    #[n(4)]
    pub longest_ms: u32,
    /// Time between two samples, in milliseconds.
    #[n(5)]
    pub interval_ms: u32,
    /// Filler of one frame, 1 to 256 KiB.
    #[n(6)]
    pub message_bytes: u32,
    /// Socket buffers to set at both ends, in bytes; absent: as they are.
    #[n(7)]
    pub socket_buffer: Option<u64>,
}

/// Fewest and most milliseconds between two samples.
pub const SAMPLE_INTERVALS: (u32, u32) = (20, 60_000);

/// Most bytes of a socket buffer that is asked for: 1 GiB.
pub const MAX_SOCKET_BUFFER: u64 = 1 << 30;

/// Most processors of which a sample tells: the first ones.
pub const MAX_CORES: usize = 512;

/// Most interfaces of which facts tell, and most letters of each text in them.
pub const MAX_FACTS: (usize, usize) = (64, 256);

impl RunOrder {
    /// Whether it is within the bounds of the protocol.
    pub fn is_valid(&self) -> bool {
        let paths = !self.paths.is_empty() && self.paths.len() <= usize::from(LAST_PATH.0) + 1;
        let distinct = || self.paths.iter().enumerate().all(|(index, path)| *path <= LAST_PATH.0 && !self.paths[..index].contains(path));
        let message = (1..=crate::frame::MAX_LOAD as u32).contains(&self.message_bytes);
        let interval = (SAMPLE_INTERVALS.0..=SAMPLE_INTERVALS.1).contains(&self.interval_ms);
        let buffer = self.socket_buffer.is_none_or(|bytes| (1..=MAX_SOCKET_BUFFER).contains(&bytes));
        paths && distinct() && message && interval && buffer
    }
}

/// The daemon takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunReady {
    /// [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
    /// The least send buffer that its kernel gave to one of the paths, in bytes, if some were asked for.
    #[n(1)]
    pub send_buffer: Option<u64>,
    /// The same for receiving.
    #[n(2)]
    pub receive_buffer: Option<u64>,
}

/// Names a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RunNumber {
    /// [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
}

/// What all paths of a run had carried at one instant. Counters only rise, from whatever they began with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BenchSample {
    /// [`RunOrder::run`].
    #[n(0)]
    pub run: u32,
    /// Microseconds since the run began at this end.
    #[n(1)]
    pub at_us: u64,
    /// The paths, in the order of [`RunOrder::paths`].
    #[n(2)]
    pub paths: Vec<PathSample>,
    /// The processors.
    #[n(3)]
    pub cpu: Option<CpuSample>,
    /// Whether no other follows, as the run ends.
    #[n(4)]
    #[cbor(default, skip_if = "is_unset")]
    pub last: bool,
    /// Transfers that ran at the daemon at any time since the run began, for whomever.
    #[n(5)]
    pub transfers: Option<u32>,
}

/// One path of a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PathSample {
    /// Filler of the run that has come.
    #[n(0)]
    pub received: u64,
    /// Filler of it that the kernel was given.
    #[n(1)]
    pub sent: u64,
    /// Bytes that the path's interface here has received, headers included.
    #[n(2)]
    pub interface_received: Option<u64>,
    /// Bytes that it has sent.
    #[n(3)]
    pub interface_sent: Option<u64>,
    /// What the kernel says of the connection.
    #[n(4)]
    pub tcp: Option<TcpSample>,
}

/// What a kernel says of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TcpSample {
    /// Bytes sent, those sent again included.
    #[n(0)]
    pub sent: Option<u64>,
    /// Bytes sent again.
    #[n(1)]
    pub retransmitted: Option<u64>,
    /// Time with something to send, in microseconds.
    #[n(2)]
    pub busy_us: Option<u64>,
    /// Part of it held back by the peer's window.
    #[n(3)]
    pub rwnd_limited_us: Option<u64>,
    /// Part of it held back by the send buffer.
    #[n(4)]
    pub sndbuf_limited_us: Option<u64>,
    /// Congestion window in bytes.
    #[n(5)]
    pub cwnd_bytes: Option<u64>,
    /// Smoothed round trip.
    #[n(6)]
    pub rtt_us: Option<u64>,
    /// The socket's send buffer as `getsockopt` tells it.
    #[n(7)]
    pub send_buffer: Option<u64>,
    /// Its receive buffer.
    #[n(8)]
    pub receive_buffer: Option<u64>,
}

/// Processor time of a machine since some moment before the run, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CpuSample {
    /// In user space.
    #[n(0)]
    pub user_us: u64,
    /// In the kernel, interrupts not included.
    #[n(1)]
    pub system_us: u64,
    /// In interrupts and what they leave for later.
    #[n(2)]
    pub softirq_us: u64,
    /// Of the process, user and system.
    #[n(3)]
    pub process_us: u64,
    /// Time that a control group's quota held the process back.
    #[n(4)]
    pub throttled_us: Option<u64>,
    /// How long each processor was busy.
    #[n(5)]
    pub cores_us: Vec<u64>,
}

/// Asks for work on the daemon's disk.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DiskOrder {
    /// Bytes to write, in the directory where a file of the name would go; no more than 64 GiB of them are. Nothing stays.
    #[n(0)]
    pub bytes: u64,
    /// What a file put there would be called; absent: something in the daemon's root.
    #[n(1)]
    pub name: Option<crate::name::Name>,
    /// Number of the order in the session.
    #[n(2)]
    pub number: u32,
    /// Read so many bytes of the file of that name, or all of a shorter one, instead.
    #[n(3)]
    #[cbor(default, skip_if = "is_unset")]
    pub read: bool,
}

/// What a disk did.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DiskDone {
    /// [`DiskOrder::number`].
    #[n(0)]
    pub number: u32,
    /// Bytes that were written and made durable, or read.
    #[n(1)]
    pub bytes: u64,
    /// How long that took.
    #[n(2)]
    pub micros: u64,
    /// The file system's name.
    #[n(3)]
    pub file_system: Option<String>,
    /// Why it failed, if it did.
    #[n(4)]
    pub error: Option<String>,
}

impl BenchBody {
    /// Whether a client says so; else a daemon does.
    pub fn is_clients(&self) -> bool {
        matches!(self, Self::Ask(_) | Self::Run(_) | Self::Stop(_) | Self::Disk(_) | Self::Leave)
    }

    /// Whether its lists and texts are within the bounds of the protocol.
    pub fn is_bounded(&self) -> bool {
        let (most, letters) = MAX_FACTS;
        match self {
            Self::Run(order) => order.is_valid(),
            Self::Sample(sample) => {
                let cores = sample.cpu.as_ref().map_or(0, |cpu| cpu.cores_us.len());
                sample.paths.len() <= usize::from(LAST_PATH.0) + 1 && cores <= MAX_CORES
            }
            Self::Facts(facts) => {
                let BenchFacts { version, name, os, kernel, cpu, congestion, interfaces, .. } = facts;
                let mut texts = [name, os, kernel, cpu, congestion].into_iter().flatten().chain([version]);
                interfaces.len() <= most && texts.all(|text| text.len() <= letters) && interfaces.iter().all(BenchInterface::is_bounded)
            }
            Self::DiskDone(done) => [&done.file_system, &done.error].into_iter().flatten().all(|text| text.len() <= letters),
            _ => true,
        }
    }
}

impl BenchInterface {
    fn is_bounded(&self) -> bool {
        let (most, letters) = MAX_FACTS;
        let offloads = self.offloads.iter().flatten();
        let mut texts = [&self.driver, &self.duplex].into_iter().flatten().chain([&self.name]).chain(offloads);
        texts.all(|text| text.len() <= letters) && self.offloads.as_ref().map_or(0, Vec::len) <= most
    }
}
